/* Items in a row, see intake.h. */
#include "parameters/intake.h"

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

void fth_queue_put_first(fth_queue *queue, fth_queue *others)
{
    if (!others->first)
        return;
    *others->last = queue->first;
    if (!queue->first)
        queue->last = others->last;
    queue->first = others->first;
    fth_queue_init(others);
}
