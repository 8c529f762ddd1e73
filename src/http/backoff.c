/* Waits between tries; see http.h. */
#include <math.h>
#include <stdint.h>
#include <sys/random.h>

#include "http/http.h"

double fth_backoff_next_s(fth_backoff *backoff, double at_least_s)
{
    double first_s = backoff->first_s > 0 ? backoff->first_s : 0.1;
    double most_s = backoff->most_s > 0 ? backoff->most_s : 10;
    double whole_s = fmin(most_s, ldexp(first_s, backoff->tries < 30 ? backoff->tries : 30));
    uint32_t bits = 0; /* not from the run's random numbers: clients that failed together must not come back together */
    if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits)
        bits = (uint32_t)(fth_clock_seconds() * 1e9);
    backoff->tries++;
    return fmax(at_least_s, whole_s * (0.5 + 0.5 * (double)bits / UINT32_MAX));
}

bool fth_backoff_wait(fth_backoff *backoff, double at_least_s, fth_deadline deadline)
{
    double wait_s = fth_backoff_next_s(backoff, at_least_s);
    if (fth_deadline_left_seconds(deadline) <= wait_s)
        return false;
    fth_sleep(wait_s);
    return true;
}
