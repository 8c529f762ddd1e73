/* N functions kept going: invokes them with a bounded number at once, tries again what was throttled or failed, and invokes
 * again with its continuation what has stopped at its deadline, until all of them have finished. */
#ifndef FTH_PROVIDERS_FLEET_H
#define FTH_PROVIDERS_FLEET_H

#include "providers/provider.h"

typedef struct fth_fleet_row {
    int number;        /* 1..count */
    char id[80];       /* of the invocation under way or the last */
    const char *state; /* "waiting", "running", "retrying", "done", "failed" */
    int invocations, failures;
    double seconds;        /* of all its invocations, as billed or as seen here */
    int64_t samples;       /* by their results */
    double loss, accuracy; /* of the last result; NAN: none yet */
    double peak_bytes;     /* the most; NAN */
} fth_fleet_row;

typedef struct fth_fleet_options {
    fth_provider *provider;
    const char *function;
    int count, concurrency;          /* concurrency 0: count */
    const json_t *const *parameters; /* (count) objects */
    int max_failures;                /* in a row, of one; 0: 5 */
    fth_deadline deadline;           /* of the whole */
    const fth_stop *stop;
    /* Called from the calling thread of fth_fleet_run(), after changes and at least once a second. May be NULL. */
    void (*show)(void *context, const fth_fleet_row *rows, int count);
    void (*ended)(void *context, int number, const fth_invocation_outcome *outcome); /* each invocation; may be NULL */
    void *context;
} fth_fleet_options;

/* Until all have finished. `results` gets an array of their last results. FTH_INTERRUPTED if it was stopped: what runs is
 * left running, and the same command continues at the parameter server's positions. */
fth_status fth_fleet_run(const fth_fleet_options *options, json_t **results);

#endif
