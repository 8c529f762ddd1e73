/* A fleet: N functions kept running. Invokes them with bounded concurrency, retries what was
 * throttled or failed, and invokes again, with its continuation, what stopped at its deadline,
 * until all have finished.
 *
 *     waiting --> running --> done
 *                  ^  |-----> retrying (throttled, failed) --> running, or failed after too many
 *                  |  |-----> lost (no answer, may be running) --> retrying, after its time limit
 *                  +--+       its result has a continuation
 *
 * One thread per running function, because a platform's invoke() may wait for the end. A few
 * hundred are fine. */
#ifndef FTH_PROVIDERS_FLEET_H
#define FTH_PROVIDERS_FLEET_H

#include "providers/provider.h"

typedef struct fth_fleet_row {
    int number;        /* 1..count */
    char id[80];       /* of the current invocation, once known, or the last */
    const char *state; /* "waiting", "running", "retrying", "lost", "done", "failed" */
    int invocations;   /* accepted ones */
    int failures, throttled;
    double seconds;        /* of all ended invocations, as billed or as measured here */
    double since_s;        /* start of the current one, by fth_clock_seconds(); NAN: none */
    int64_t samples;       /* from the results */
    double loss, accuracy; /* of the last result; NAN: none yet */
    double peak_bytes;     /* the maximum; NAN: unknown */
    char problem[240];     /* why it is retried or has failed; or "" */
} fth_fleet_row;

typedef struct fth_fleet_options {
    fth_provider *provider;
    const char *function;
    int count, concurrency;          /* concurrency 0: count */
    const json_t *const *parameters; /* (count) objects */
    double limit_s;                  /* the function's time limit; 0: 900 */
    int max_failures;                /* in a row, of one function; 0: 5 */
    double retry_first_s;            /* wait before the first retry, then doubled; 0: 0.5 */
    fth_deadline deadline;           /* of the whole; INFINITY: none */
    const fth_stop *stop;            /* also the provider's, so that it ends all waiting; may be NULL */
    /* Called by the thread of fth_fleet_run(): show() after changes and at least once a second,
     * ended() for each invocation that has ended. May be NULL. */
    void (*show)(void *context, const fth_fleet_row *rows, int count);
    void (*ended)(void *context, int number, const fth_invocation_outcome *outcome);
    void *context;
} fth_fleet_options;

/* Runs until all have finished. `results` gets an array of their last results, or null; release it
 * in every case. FTH_INTERRUPTED if stopped: functions keep running (unless the provider
 * ends_with_caller), and the same command continues at the parameter server's positions.
 * FTH_TIMEOUT at the deadline. FTH_IO if some have failed, which does not stop the others.
 *
 * "worker" in the parameters names a worker of a parameter server. After a failed or lost
 * invocation the next one uses another name (NAME.1, NAME.2), because the server may still count
 * the first as alive. */

fth_status fth_fleet_run(const fth_fleet_options *options, json_t **results);

#endif
