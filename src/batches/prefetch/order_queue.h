/* Orders that wait for a prefetcher. They come one at a time, each naming its coordinator and
 * cache: over HTTP to `farthing worker prefetch --port` (function.c), or as the parameters of a
 * function (functions/prefetch_job.c). Connections, caches and data sets are kept for later
 * orders. */
#ifndef FTH_BATCHES_PREFETCH_ORDER_QUEUE_H
#define FTH_BATCHES_PREFETCH_ORDER_QUEUE_H

#include <jansson.h>

#include "base/base.h"

#define FTH_ORDER_S 120.0 /* time limit of an order; the coordinator gives up earlier */

typedef struct fth_order_queue fth_order_queue;

typedef struct fth_order_queue_options {
    const char *url;                  /* the only coordinator whose orders are taken; NULL: any that an order names */
    const char *pinned_key, *ca_file; /* as fth_http_client_options; outlive the queue */
    int threads;                      /* 0: one per core */
} fth_order_queue_options;

fth_status fth_order_queue_open(const fth_order_queue_options *options, fth_order_queue **queue);
/* Unfinished orders end with FTH_INTERRUPTED, and no more are taken. */
void fth_order_queue_stop(fth_order_queue *queue);
void fth_order_queue_free(fth_order_queue *queue); /* stops it first */

/* The sender of an order. */
typedef struct fth_order_requester {
    void *context;
    void (*accepted)(void *context);               /* before any answer, by the submitting thread; may be NULL */
    bool (*is_abandoned)(void *context);           /* nobody waits for the answer any more; any thread */
    void (*answer)(void *context, json_t *result); /* once, if accepted; any thread; takes the result */
} fth_order_requester;

/* {order, "cache", "address"}. FTH_INVALID: not an order; FTH_NO_MEMORY: there are too many. The
 * answer is that of fth_order_save_outcome(). Does not block. */
fth_status fth_order_queue_submit(fth_order_queue *queue, const json_t *order, const fth_order_requester *requester);

#endif
