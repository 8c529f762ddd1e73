/* What a function does when it is invoked: jobs, as a table, chosen by the parameters. An
 * fth_function keeps what is worth keeping between warm invocations: data, connections, plans.
 *
 * train      for a parameter server: {"apihost", "batch_sz_train", "epoch_n", "update_intv",
 *            "dataset_url", "device"}, the prototype's keys, and ours (docs/functions.md)
 * prefetch   an order of the batch cache (src/batches/prefetch)
 *
 * A job that cannot finish before the deadline returns what it has. Its result then has
 * "continuation": an object which, added to the same parameters, continues at that position. With
 * "continue": "self" the function has already invoked itself with it. */
#ifndef FTH_FUNCTIONS_FUNCTION_H
#define FTH_FUNCTIONS_FUNCTION_H

#include "functions/invocation.h"

typedef struct fth_function fth_function;

typedef struct fth_function_options {
    const char *cache_folder;               /* of shards; NULL: farthing-UID in $TMPDIR or /tmp */
    uint64_t cache_bytes;                   /* limit of that folder; 0: 400 MB */
    int threads;                            /* that compute; 0: as many as the platform offers */
    const struct fth_job_kind *const *jobs; /* NULL-terminated; NULL: those listed in function.c */
} fth_function_options;

fth_status fth_function_create(const fth_function_options *options, fth_function **function);
void fth_function_free(fth_function *function);

/* Runs one invocation; *result is a new object. On failure the message says why, without secrets.
 * One at a time. */
fth_status fth_function_run(fth_function *function, const fth_invocation_event *event, json_t **result);

/* ---- for the jobs ---- */

typedef struct fth_job_kind {
    const char *name; /* "job" in the parameters names one */
    bool (*fits)(const json_t *value);
    fth_status (*open)(const fth_function_options *options, void **state); /* at the first invocation */
    fth_status (*run)(void *state, const fth_invocation_event *event, json_t **result);
    void (*close)(void *state);
} fth_job_kind;

extern const fth_job_kind fth_job_train, fth_job_prefetch; /* listed in function.c */

#endif
