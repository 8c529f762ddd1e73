/* Checking gradients before they are queued for applying: where their bytes are, whether they are what was signed,
 * their form and their numbers. A few threads do it, so that neither HTTP nor applying waits for it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "parameters/parameters_internal.h"

/* ---- bodies in a worker's memory ---- */

void fth_parameters_return_body(fth_parameters *server, char *body, uint64_t size_bytes)
{
    atomic_fetch_sub(&server->local_bytes, size_bytes);
    pthread_mutex_lock(&server->mutex);
    for (size_t i = 0; i < FTH_COUNT_OF(server->spare_bodies) && body; i++) {
        if (!server->spare_bodies[i]) {
            server->spare_bodies[i] = body;
            body = NULL;
        }
    }
    pthread_mutex_unlock(&server->mutex);
    free(body);
}

/* Copies it here; what is copied counts as bodies that were received do. */
static fth_refusal fetch_body(fth_parameters *server, fth_item *item, char message[FTH_MAX_REFUSAL])
{
    uint64_t size = item->place.size_bytes;
    if (size > server->max_body_bytes) {
        snprintf(message, FTH_MAX_REFUSAL, "%" PRIu64 " bytes are more than a gradient can have", size);
        return FTH_REFUSAL_MALFORMED;
    }
    uint64_t before = atomic_fetch_add(&server->local_bytes, size);
    pthread_mutex_lock(&server->mutex);
    for (size_t i = 0; i < FTH_COUNT_OF(server->spare_bodies) && !item->own_body; i++) {
        item->own_body = server->spare_bodies[i];
        server->spare_bodies[i] = NULL;
    }
    pthread_mutex_unlock(&server->mutex);
    bool room = before + size <= server->options.max_memory_bytes;
    if (room && !item->own_body)
        item->own_body = malloc(server->max_body_bytes);
    if (!room || !item->own_body) {
        snprintf(message, FTH_MAX_REFUSAL, "no memory for this gradient now");
        if (!item->own_body)
            atomic_fetch_sub(&server->local_bytes, size);
        return FTH_REFUSAL_BUSY;
    }
    if (fth_local_read(&item->place, item->own_body) != FTH_OK) {
        snprintf(message, FTH_MAX_REFUSAL, "%s", fth_error_message());
        return FTH_REFUSAL_MALFORMED;
    }
    item->body = item->own_body;
    item->body_bytes = (size_t)size;
    return FTH_REFUSAL_NONE;
}

/* A checking thread: the hash of the body, its form, its numbers. */
void *fth_parameters_check_bodies(void *context)
{
    fth_parameters *server = context;
    pthread_mutex_lock(&server->mutex);
    for (;;) {
        while (!server->unchecked.first && !server->stopping)
            pthread_cond_wait(&server->arrived, &server->mutex);
        fth_item *item = fth_queue_take(&server->unchecked);
        if (!item)
            break;
        pthread_mutex_unlock(&server->mutex);
        char message[FTH_MAX_REFUSAL] = "the body is not the one that was signed";
        fth_refusal refusal = item->place.process > 0 ? fetch_body(server, item, message) : FTH_REFUSAL_NONE;
        if (refusal == FTH_REFUSAL_NONE && server->keys &&
            !fth_signed_body_matches(&item->who, item->body, item->body_bytes))
            refusal = FTH_REFUSAL_BODY;
        else if (refusal == FTH_REFUSAL_NONE)
            refusal = fth_gradient_parse(server->layout, item->body, item->body_bytes, &item->gradient, message);
        if (refusal != FTH_REFUSAL_NONE) {
            fth_parameters_refuse(server, item->exchange, refusal, "%s", message);
            fth_item_free(server, item);
            pthread_mutex_lock(&server->mutex);
            continue;
        }
        pthread_mutex_lock(&server->mutex);
        fth_worker *worker = fth_workers_find(server->workers, item->gradient.worker);
        if (worker) /* now, not when the queue is done with what came before */
            fth_parameters_renew(server, worker, item->access);
        fth_queue_put(&server->queue, item);
        pthread_cond_signal(&server->work);
    }
    pthread_mutex_unlock(&server->mutex);
    return NULL;
}
