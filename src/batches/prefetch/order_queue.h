/* Orders that come one at a time, each for a coordinator and a cache that it names: `farthing
 * worker prefetch --port` gets them over HTTP (function.c), functions as their parameters
 * (functions/prefetch_job.c). Connections, caches and data sets are kept for the orders that
 * follow. */
#ifndef FTH_BATCHES_ORDER_DESK_H
#define FTH_BATCHES_ORDER_DESK_H

#include <jansson.h>

#include "base/base.h"

#define FTH_ORDER_S 120.0 /* that an order may take: who asked gives up before that */

typedef struct fth_order_queue fth_order_queue;

typedef struct fth_order_queue_options {
    const char *url;                  /* the one coordinator whose orders are taken; NULL: any that an order names */
    const char *pinned_key, *ca_file; /* as fth_http_client_options; outlive the desk */
    int threads;                      /* 0: one per core */
} fth_order_queue_options;

fth_status fth_order_queue_open(const fth_order_queue_options *options, fth_order_queue **queue);
/* Orders that are not finished end as FTH_INTERRUPTED, and no more are taken. */
void fth_order_queue_stop(fth_order_queue *queue);
void fth_order_queue_free(fth_order_queue *queue); /* stops it first */

/* Who gave an order. */
typedef struct fth_order_requester {
    void *context;
    void (*accepted)(void *context);               /* before any answer, by the thread that submits; may be NULL */
    bool (*is_abandoned)(void *context);           /* nobody waits for it any more; any thread */
    void (*answer)(void *context, json_t *result); /* once, if it was accepted; any thread; takes the result */
} fth_order_requester;

/* {order, "cache", "address"}. FTH_INVALID: it is no order; FTH_NO_MEMORY: there are too many. The
 * answer is fth_order_save_outcome()'s. Does not wait. */
fth_status fth_order_queue_submit(fth_order_queue *queue, const json_t *order, const fth_order_requester *requester);

#endif
