/* Checking gradients before they are queued for applying: where their bytes are, whether they are what was signed,
 * their form and their numbers. A few threads do it, so that neither HTTP nor applying waits for it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "parameters/parameters_internal.h"

/* ---- bringing bodies here ---- */

void fth_parameters_return_body(fth_parameters *server, char *body)
{
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

/* Memory for a body that has no place in the log. */
static bool take_memory(fth_parameters *server, fth_item *item)
{
    pthread_mutex_lock(&server->mutex);
    for (size_t i = 0; i < FTH_COUNT_OF(server->spare_bodies) && !item->own_body; i++) {
        item->own_body = server->spare_bodies[i];
        server->spare_bodies[i] = NULL;
    }
    pthread_mutex_unlock(&server->mutex);
    if (!item->own_body)
        item->own_body = malloc(server->max_body_bytes);
    return item->own_body != NULL;
}

static fth_status copy_body(void *context, int fd)
{
    const fth_item *item = context;
    for (size_t done = 0; done < item->body_bytes;) {
        ssize_t got = pread(fd, item->own_body + done, item->body_bytes - done, (off_t)done);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return fth_fail(FTH_INVALID, "the body was taken away while it was read");
        done += got > 0 ? (size_t)got : 0;
    }
    return FTH_OK;
}

static fth_status log_body(void *context, int fd)
{
    fth_item *item = context;
    return fth_body_fill(&item->place_in_log, fd < 0 ? item->body : NULL, fd, &item->seen);
}

/* Brings the body to where it is checked and applied from: the log's own file, where there is one and the body is
 * large; else it stays where it was received, or is copied into memory. */
static fth_refusal fetch_body(fth_parameters *server, fth_item *item, char message[FTH_MAX_REFUSAL])
{
    fth_status status = FTH_OK;
    bool local = item->place.process > 0;
    uint64_t size = local ? item->place.size_bytes : item->body_bytes;
    if (size > server->max_body_bytes) {
        snprintf(message, FTH_MAX_REFUSAL, "%" PRIu64 " bytes are more than a gradient can have", size);
        return FTH_REFUSAL_MALFORMED;
    }
    item->body_bytes = (size_t)size;
    if (local) /* counts as bodies that were received do, until the item goes */
        item->local_bytes = size;
    uint64_t before = atomic_fetch_add(&server->local_bytes, item->local_bytes);
    bool logged = server->wal && fth_wal_take_place(server->wal, size, &item->place_in_log);
    if (before + item->local_bytes > server->options.max_memory_bytes ||
        (local && !logged && !take_memory(server, item))) {
        snprintf(message, FTH_MAX_REFUSAL, "no memory for this gradient now");
        return FTH_REFUSAL_BUSY;
    }
    if (local)
        status = fth_local_read(&item->place, logged ? log_body : copy_body, item);
    else if (logged)
        status = log_body(item, -1);
    if (status != FTH_OK) {
        bool theirs = status == FTH_INVALID;
        if (!theirs)
            fth_log_error("a gradient is refused: %s", fth_error_message());
        snprintf(message, FTH_MAX_REFUSAL, "%s",
                 theirs ? fth_error_message() : "the log cannot be written; try again later");
        return theirs ? FTH_REFUSAL_MALFORMED : FTH_REFUSAL_BUSY;
    }
    if (logged)
        item->body = item->place_in_log.bytes;
    else if (local)
        item->body = item->own_body;
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
        char message[FTH_MAX_REFUSAL] = "";
        fth_refusal refusal = fetch_body(server, item, message);
        if (refusal == FTH_REFUSAL_NONE && server->keys &&
            !fth_signed_body_matches(&item->who, item->body, item->body_bytes)) {
            refusal = FTH_REFUSAL_BODY;
            snprintf(message, sizeof message, "the body is not the one that was signed");
        } else if (refusal == FTH_REFUSAL_NONE)
            refusal = fth_gradient_parse_seen(server->layout, item->body, item->body_bytes, item->seen, &item->gradient,
                                              message);
        if (refusal == FTH_REFUSAL_NONE)
            fth_step_clip(server, &item->gradient, server->options.clip_pushes);
        else if (refusal == FTH_REFUSAL_NOT_FINITE)
            fth_parameters_note_unfit(server, item, message);
        if (refusal != FTH_REFUSAL_NONE) {
            fth_parameters_refuse(server, item->exchange, refusal, "%s", message);
            fth_item_free(server, item);
            pthread_mutex_lock(&server->mutex);
            continue;
        }
        /* Now, not when everything queued before it is done. */
        fth_workers_renew(server->workers, item->gradient.worker, item->access);
        pthread_mutex_lock(&server->mutex);
        fth_queue_put(&server->queue, item);
        pthread_cond_signal(&server->work);
    }
    pthread_mutex_unlock(&server->mutex);
    return NULL;
}
