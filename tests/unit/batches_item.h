/* Making an item in one call, for tests of what uses items. */
#ifndef BATCHES_ITEM_H
#define BATCHES_ITEM_H

#include "batches/prefetch/item_task.h"

/* Makes the item on the calling thread and puts it into the cache. */
static inline fth_status make_whole_item(fth_prefetch_tools *thread, const fth_order *order, fth_cache *cache,
                                         fth_deadline deadline, fth_prefetch_result *result)
{
    fth_item_task *task = NULL;
    fth_status status = fth_item_task_begin(thread, order, cache, deadline, &task);
    if (status != FTH_OK)
        return status;
    while (fth_item_task_run_piece(task, thread))
        ;
    return fth_item_task_end(task, result);
}

#endif
