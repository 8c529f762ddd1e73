/* See request_limit.h. A table of fixed size: clients whose addresses meet in a place share it,
 * which can only slow them. */
#include "http/request_limit.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

enum { PLACES = 4096 };

struct fth_rates {
    pthread_mutex_t mutex;
    double per_s;
    struct {
        double tokens, at_s;
    } places[PLACES];
};

fth_status fth_rates_create(double per_s, fth_rates **rates)
{
    fth_status status = fth_allocate(1, sizeof **rates, rates);
    if (status != FTH_OK)
        return status;
    pthread_mutex_init(&(*rates)->mutex, NULL);
    (*rates)->per_s = per_s;
    return FTH_OK;
}

void fth_rates_free(fth_rates *rates)
{
    if (!rates)
        return;
    pthread_mutex_destroy(&rates->mutex);
    free(rates);
}

bool fth_rates_allow(fth_rates *rates, const char *client)
{
    uint64_t hash = 14695981039346656037u;
    for (; *client; client++)
        hash = (hash ^ (unsigned char)*client) * 1099511628211u;
    size_t place = fth_random_mix(hash) % PLACES;
    double now = fth_clock_seconds();
    pthread_mutex_lock(&rates->mutex);
    double tokens =
        fmin(2 * rates->per_s + 1, rates->places[place].tokens + (now - rates->places[place].at_s) * rates->per_s);
    bool allowed = tokens >= 1;
    rates->places[place].tokens = allowed ? tokens - 1 : tokens;
    rates->places[place].at_s = now;
    pthread_mutex_unlock(&rates->mutex);
    return allowed;
}
