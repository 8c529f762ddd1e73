/* Orders for workers on other machines (--prefetch workers), which ask for them over HTTP and hand
 * in what they made. An order is assigned for a limited time; then it has failed, and another
 * prefetcher gets it. */
#ifndef FTH_BATCHES_COORDINATOR_WORKER_ORDERS_H
#define FTH_BATCHES_COORDINATOR_WORKER_ORDERS_H

#include "batches/coordinator/coordinator_dispatcher.h"
#include "http/server.h"

typedef struct fth_worker_orders fth_worker_orders;

/* `limit_s` is the time for an order. */
fth_status fth_worker_orders_create(fth_dispatcher *dispatcher, fth_cache *cache, double limit_s,
                                    fth_worker_orders **workers);
void fth_worker_orders_free(fth_worker_orders *workers);

/* Each takes over the exchange of a request, and answers it now or later. FTH_INVALID, ...: it was
 * not answered. */
fth_status fth_worker_orders_take(fth_worker_orders *workers, fth_exchange *exchange, const json_t *request);
fth_status fth_worker_orders_finish(fth_worker_orders *workers, fth_exchange *exchange, const json_t *request);
/* An uploaded entry: checks it, and puts it into the shared memory. */
fth_status fth_worker_orders_put(fth_worker_orders *workers, fth_exchange *exchange, fth_item_id id);

/* Gives orders to waiting workers, and takes back overdue ones. True if workers still wait. */
bool fth_worker_orders_tick(fth_worker_orders *workers);
void fth_worker_orders_close(fth_worker_orders *workers);   /* answers all held requests */
size_t fth_worker_orders_count(fth_worker_orders *workers); /* orders that are assigned */

#endif
