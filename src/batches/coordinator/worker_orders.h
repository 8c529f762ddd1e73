/* Workers on other machines (--prefetch workers), which ask for orders over HTTP and hand in what
 * they made. An order is lent for a time: when it is over, it has failed, and somebody else gets
 * it. */
#ifndef FTH_BATCHES_COORDINATOR_WORKERS_H
#define FTH_BATCHES_COORDINATOR_WORKERS_H

#include "batches/coordinator/coordinator_dispatcher.h"
#include "http/server.h"

typedef struct fth_worker_orders fth_worker_orders;

/* `limit_s` is how long an order is lent. */
fth_status fth_worker_orders_create(fth_dispatcher *dispatcher, fth_cache *cache, double limit_s,
                                    fth_worker_orders **workers);
void fth_worker_orders_free(fth_worker_orders *workers);

/* Each takes over the exchange of a request, which it answers now or later; FTH_INVALID, ...: not
 * answered. */
fth_status fth_worker_orders_take(fth_worker_orders *workers, fth_exchange *exchange, const json_t *request);
fth_status fth_worker_orders_finish(fth_worker_orders *workers, fth_exchange *exchange, const json_t *request);
/* An entry that somebody made: checked, and put into the shared memory. */
fth_status fth_worker_orders_put(fth_worker_orders *workers, fth_exchange *exchange, fth_item_id id);

/* Gives orders to those who wait, and takes back what is overdue. Gives whether somebody waits. */
bool fth_worker_orders_tick(fth_worker_orders *workers);
void fth_worker_orders_close(fth_worker_orders *workers);   /* answers everything that is held */
size_t fth_worker_orders_count(fth_worker_orders *workers); /* orders that are lent */

#endif
