/* What prepares items away from the coordinator, in a worker (worker.c) or a function (function.c): the coordinator's data sets,
 * opened here by the addresses it names and with this machine's own credentials; its cache; and threads. */
#ifndef FTH_BATCHES_WORKSHOP_H
#define FTH_BATCHES_WORKSHOP_H

#include "batches/prefetch.h"

typedef struct fth_workshop fth_workshop;

typedef struct fth_workshop_options {
    const char *url;                  /* of the coordinator */
    const char *pinned_key, *ca_file; /* as fth_http_client_options */
    const char *cache;                /* as the coordinator names it: "shm" is its own memory */
    int threads;                      /* 0: one per core */
    double limit_s;                   /* of an order */
    /* Where orders come from, and results go; as in fth_prefetch_desk. Outlives the workshop. */
    void *context;
    bool (*take)(void *context, fth_workshop *workshop, fth_deadline deadline, fth_order *order);
    void (*done)(void *context, const fth_order *order, fth_status status, const char *reason,
                 const fth_preparation *preparation);
} fth_workshop_options;

/* Opens the cache, which must be reachable; data sets when they are first needed. */
fth_status fth_workshop_open(const fth_workshop_options *options, fth_workshop **workshop);
/* Stops the threads: orders that are not finished end as FTH_INTERRUPTED. */
void fth_workshop_close(fth_workshop *workshop);

/* The version of a data set that is open here; NULL: it is not. For who takes the orders: lent until the workshop is closed. */
const char *fth_workshop_version(fth_workshop *workshop, const char *data);

/* A result as coordinator.h has it: {"id", "preparation"}, or {"id", "status", "error"}. */
json_t *fth_result_save(const fth_order *order, fth_status status, const char *reason,
                        const fth_preparation *preparation);

#endif
