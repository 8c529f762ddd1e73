/* Making items: fetch, decode, transform, collate. The coordinator's threads, workers on other
 * machines and functions all do this, bit for bit as the loader of a run without the cache.
 *
 * A batch is made in place, in the cache's memory, by one or several threads that take pieces of
 * it. It is put only when it is complete. A sample that cannot be read is a bad image: in a batch
 * the next readable sample replaces it, as in a loader, and the batch lists it; as an item of its
 * own it holds the cause. Any other failure (a store that does not answer, no memory) fails the
 * order and leaves nothing in the cache. */
#ifndef FTH_BATCHES_PREFETCH_ITEM_TASK_H
#define FTH_BATCHES_PREFETCH_ITEM_TASK_H

#include <stdatomic.h>

#include "batches/cache/cache.h"
#include "batches/prefetch/order.h"
#include "batches/prefetch/prefetch_set.h"

typedef struct fth_prefetch_tools fth_prefetch_tools; /* the tools of one thread */

/* Once *stop (may be NULL) is set, reads fail with FTH_INTERRUPTED. */
fth_status fth_prefetch_tools_create(fth_prefetch_set *set, const atomic_bool *stop, fth_prefetch_tools **thread);
void fth_prefetch_tools_free(fth_prefetch_tools *thread);
fth_prefetch_set *fth_prefetch_tools_set(const fth_prefetch_tools *thread);

typedef struct fth_item_task fth_item_task;
/* Starts an item. Encoded samples that a batch needs are taken from the cache, where it has them.
 * The task's functions fail with FTH_INVALID (the order is wrong, for any prefetcher),
 * FTH_NO_MEMORY (no room in the cache), or, where another try may succeed, FTH_IO (the data has
 * another version here), FTH_PEER_LOST and FTH_TIMEOUT. */
fth_status fth_item_task_begin(fth_prefetch_tools *thread, const fth_order *order, fth_cache *cache,
                               fth_deadline deadline, fth_item_task **task);
/* Takes a piece and makes it; false: none was left. Any number of threads, each with tools for the
 * same data set. */
bool fth_item_task_run_piece(fth_item_task *task, fth_prefetch_tools *thread);
int64_t fth_item_task_left(const fth_item_task *task); /* samples that no thread has taken */
/* No more pieces are taken, and the task ends with FTH_INTERRUPTED. */
void fth_item_task_stop(fth_item_task *task);
/* After all threads have left: puts the item, or says why it could not be made. Frees the task. */
fth_status fth_item_task_end(fth_item_task *task, fth_prefetch_result *result);

#endif
