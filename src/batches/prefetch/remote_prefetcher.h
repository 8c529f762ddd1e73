/* Makes items away from the coordinator, in a worker (worker.c) or a function (function.c): it has
 * the coordinator's data sets, opened at the addresses that the coordinator names with this
 * machine's own credentials, its cache, and threads. */
#ifndef FTH_BATCHES_PREFETCH_REMOTE_PREFETCHER_H
#define FTH_BATCHES_PREFETCH_REMOTE_PREFETCHER_H

#include "batches/prefetch/prefetch.h"

typedef struct fth_remote_prefetcher fth_remote_prefetcher;

typedef struct fth_remote_prefetcher_options {
    const char *url;                  /* of the coordinator */
    const char *pinned_key, *ca_file; /* as fth_http_client_options */
    const char *cache;                /* as the coordinator names it; "shm" is its own memory */
    int threads;                      /* 0: one per core */
    double limit_s;                   /* of an order */
    /* The source of orders and the sink of results, as in fth_order_source. Outlives the remote
     * prefetcher. */
    void *context;
    bool (*take)(void *context, fth_remote_prefetcher *remote, fth_deadline deadline, fth_order *order);
    void (*done)(void *context, const fth_order *order, fth_status status, const char *reason,
                 const fth_prefetch_result *result);
} fth_remote_prefetcher_options;

/* Opens the cache, which must be reachable. Data sets are opened when first needed. */
fth_status fth_remote_prefetcher_open(const fth_remote_prefetcher_options *options, fth_remote_prefetcher **remote);
/* Stops the threads: unfinished orders end with FTH_INTERRUPTED. */
void fth_remote_prefetcher_close(fth_remote_prefetcher *remote);

/* The version of a data set that is open here; NULL: it is not. Lent until the remote prefetcher is
 * closed. */
const char *fth_remote_prefetcher_version(fth_remote_prefetcher *remote, const char *data);

/* An outcome as in coordinator.h: {"id", "preparation"}, or {"id", "status", "error"}. */
json_t *fth_order_save_outcome(const fth_order *order, fth_status status, const char *reason,
                               const fth_prefetch_result *result);

#endif
