/* Switches (store.h): a meter that only cancels, and notes on the requests of the threads that use
 * it. */
#include <stdio.h>
#include <stdlib.h>

#include "store/store_internal.h"

enum { WHAT_BYTES = 256, CAUSE_BYTES = 768 };
static const double QUIET_S = 1; /* an answer may take this long without being mentioned */

struct fth_store_switch {
    fth_store_meter meter;
    fth_store_switch *outer;
    pthread_mutex_t mutex;   /* guards what follows */
    int under_way;           /* requests */
    double quiet_since_s;    /* when requests began, or the last one succeeded */
    char what[WHAT_BYTES];   /* the first of these requests */
    char cause[CAUSE_BYTES]; /* of the latest failure since then; "": none */
};

fth_status fth_store_switch_create(const fth_store_progress *progress, fth_store_switch *outer,
                                   fth_store_switch **result)
{
    fth_status status = fth_allocate(1, sizeof **result, result);
    if (status != FTH_OK)
        return status;
    fth_store_meter_begin(&(*result)->meter, 0, progress);
    (*result)->meter.running = *result;
    (*result)->outer = outer;
    pthread_mutex_init(&(*result)->mutex, NULL);
    return FTH_OK;
}

void fth_store_switch_free(fth_store_switch *used)
{
    if (!used)
        return;
    pthread_mutex_destroy(&used->mutex);
    free(used);
}

void fth_store_switch_use(fth_store_switch *used)
{
    fth_store_watched = used ? &used->meter : NULL;
}

fth_store_switch *fth_store_switch_used(void)
{
    return fth_store_watched ? fth_store_watched->running : NULL;
}

void fth_store_switch_off(fth_store_switch *used)
{
    atomic_store(&used->meter.cancelled, true);
}

bool fth_store_switch_explain(fth_store_switch *used, bool *failing, char *text, size_t size)
{
    pthread_mutex_lock(&used->mutex);
    double quiet_s = used->under_way > 0 ? fth_clock_seconds() - used->quiet_since_s : 0;
    *failing = *used->cause;
    bool known = *failing || quiet_s > QUIET_S;
    if (*failing)
        snprintf(text, size, "%s", used->cause);
    else if (known)
        snprintf(text, size, "%s: no answer for %.0f s", used->what, quiet_s);
    pthread_mutex_unlock(&used->mutex);
    return known;
}

/* ---- noting requests ---- */

void fth_store_note_begin(const char *what)
{
    for (fth_store_switch *used = fth_store_switch_used(); used; used = used->outer) {
        pthread_mutex_lock(&used->mutex);
        if (used->under_way++ == 0) {
            used->quiet_since_s = fth_clock_seconds();
            *used->what = '\0';
        }
        if (!*used->what)
            snprintf(used->what, sizeof used->what, "%s", what);
        pthread_mutex_unlock(&used->mutex);
    }
}

void fth_store_note_failure(const char *what, const char *cause)
{
    for (fth_store_switch *used = fth_store_switch_used(); used; used = used->outer) {
        pthread_mutex_lock(&used->mutex);
        snprintf(used->cause, sizeof used->cause, "%s: %s", what, cause);
        pthread_mutex_unlock(&used->mutex);
    }
}

void fth_store_note_end(bool worked)
{
    for (fth_store_switch *used = fth_store_switch_used(); used; used = used->outer) {
        pthread_mutex_lock(&used->mutex);
        used->under_way--;
        if (worked) {
            used->quiet_since_s = fth_clock_seconds();
            *used->what = *used->cause = '\0';
        }
        pthread_mutex_unlock(&used->mutex);
    }
}
