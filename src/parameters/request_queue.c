/* A queue of requests; see intake.h. */
#include "parameters/intake.h"

void fth_request_queue_init(fth_request_queue *queue)
{
    queue->first = NULL;
    queue->last = &queue->first;
}

void fth_request_queue_put(fth_request_queue *queue, fth_server_request *request)
{
    request->next = NULL;
    *queue->last = request;
    queue->last = &request->next;
}

fth_server_request *fth_request_queue_take(fth_request_queue *queue)
{
    fth_server_request *request = queue->first;
    if (request && !(queue->first = request->next))
        queue->last = &queue->first;
    return request;
}

void fth_request_queue_put_first(fth_request_queue *queue, fth_request_queue *others)
{
    if (!others->first)
        return;
    *others->last = queue->first;
    if (!queue->first)
        queue->last = others->last;
    queue->first = others->first;
    fth_request_queue_init(others);
}
