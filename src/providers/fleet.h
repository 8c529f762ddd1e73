/* N functions kept going: invokes them with a bounded number at once, tries again what was
 * throttled or failed, and invokes again with its continuation what has stopped at its deadline,
 * until all of them have finished.
 *
 *     waiting --> running --> done
 *                  ^  |-----> retrying (throttled, failed) --> running, or failed after too many in a row
 *                  |  |-----> lost (no answer: it may run) --> retrying, once its time limit has passed
 *                  +--+       its result has a continuation
 *
 * One thread for each that runs: a platform's invoke() may wait for the end. A few hundred at once
 * are fine. */
#ifndef FTH_PROVIDERS_FLEET_H
#define FTH_PROVIDERS_FLEET_H

#include "providers/provider.h"

typedef struct fth_fleet_row {
    int number;        /* 1..count */
    char id[80];       /* of the invocation under way, once it is known, or the last */
    const char *state; /* "waiting", "running", "retrying", "lost", "done", "failed" */
    int invocations;   /* that were accepted */
    int failures, throttled;
    double seconds;        /* of all its invocations that have ended, as billed or as seen here */
    double since_s;        /* when the one under way began, by fth_clock_seconds(); NAN: none is */
    int64_t samples;       /* by their results */
    double loss, accuracy; /* of the last result; NAN: none yet */
    double peak_bytes;     /* the most; NAN */
    char problem[240];     /* why it is tried again or has failed; "" */
} fth_fleet_row;

typedef struct fth_fleet_options {
    fth_provider *provider;
    const char *function;
    int count, concurrency;          /* concurrency 0: count */
    const json_t *const *parameters; /* (count) objects */
    double limit_s;                  /* the function's time limit; 0: 900 */
    int max_failures;                /* in a row, of one; 0: 5 */
    double retry_first_s;            /* wait before the first retry, doubled for each after it; 0: 0.5 */
    fth_deadline deadline;           /* of the whole; INFINITY: none */
    const fth_stop *stop;            /* the provider's too, so that a stop ends what waits in it; may be NULL */
    /* Both are called from the calling thread of fth_fleet_run(): after changes and at least once a
     * second; and for each invocation that has ended. May be NULL. */
    void (*show)(void *context, const fth_fleet_row *rows, int count);
    void (*ended)(void *context, int number, const fth_invocation_outcome *outcome);
    void *context;
} fth_fleet_options;

/* Until all have finished. `results`, to be released in every case, gets an array of their last
 * results, null where there was none. FTH_INTERRUPTED if it was stopped: what runs is left running
 * (unless the provider ends_with_caller), and the same command continues at the parameter server's
 * positions. FTH_TIMEOUT: not before the deadline. FTH_IO: some have failed; the others were not
 * stopped for that.
 *
 * "worker" in the parameters is the name of a worker at a parameter server: an invocation after one
 * that failed or was lost has another (NAME.1, NAME.2), since the server may still take the first
 * for alive. */
fth_status fth_fleet_run(const fth_fleet_options *options, json_t **results);

#endif
