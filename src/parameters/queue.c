/* What waits for a thread of the server, first come first served. */
#include <stdlib.h>

#include "parameters/parameters_internal.h"

void fth_queue_init(fth_queue *queue)
{
    queue->first = NULL;
    queue->last = &queue->first;
}

void fth_queue_put(fth_queue *queue, fth_item *item)
{
    item->next = NULL;
    *queue->last = item;
    queue->last = &item->next;
}

fth_item *fth_queue_take(fth_queue *queue)
{
    fth_item *item = queue->first;
    if (item && !(queue->first = item->next))
        queue->last = &queue->first;
    return item;
}

void fth_item_free(fth_parameters *server, fth_item *item)
{
    fth_gradient_release(&item->gradient);
    fth_body_release(&item->place_in_log);
    atomic_fetch_sub(&server->local_bytes, item->local_bytes);
    if (item->own_body)
        fth_parameters_return_body(server, item->own_body);
    free(item);
}
