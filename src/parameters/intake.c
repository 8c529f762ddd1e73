/* See intake.h. */
#include "parameters/intake.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "parameters/updates.h"

enum { CHECKERS = 2, SPARE_BODIES = 2, HELD_S = 120 };

struct fth_intake {
    const fth_server_parts *parts;
    atomic_uint_fast64_t local_bytes;

    pthread_mutex_t mutex;  /* guards what follows */
    pthread_cond_t arrived; /* for the checking threads */
    pthread_cond_t work;    /* for the applying thread */
    fth_request_queue unchecked, ready;
    bool woken;
    bool closing, closed;             /* closing: nothing more is accepted; closed: and all gradients are checked */
    char *spare_bodies[SPARE_BODIES]; /* max_body_bytes each */

    pthread_t checkers[CHECKERS]; /* for the thread that creates and closes */
    int checkers_running;
};

/* ---- bringing bodies here ---- */

static void return_memory(fth_intake *intake, char *body)
{
    pthread_mutex_lock(&intake->mutex);
    for (size_t i = 0; i < SPARE_BODIES && body; i++) {
        if (!intake->spare_bodies[i]) {
            intake->spare_bodies[i] = body;
            body = NULL;
        }
    }
    pthread_mutex_unlock(&intake->mutex);
    free(body);
}

/* Takes memory for a body that has no blob in the log. */
static bool take_memory(fth_intake *intake, fth_server_request *request)
{
    pthread_mutex_lock(&intake->mutex);
    for (size_t i = 0; i < SPARE_BODIES && !request->own_body; i++) {
        request->own_body = intake->spare_bodies[i];
        intake->spare_bodies[i] = NULL;
    }
    pthread_mutex_unlock(&intake->mutex);
    if (!request->own_body)
        request->own_body = malloc(intake->parts->model->max_body_bytes);
    return request->own_body != NULL;
}

static fth_status copy_body(void *context, int fd)
{
    const fth_server_request *request = context;
    for (size_t done = 0; done < request->body_bytes;) {
        ssize_t got = pread(fd, request->own_body + done, request->body_bytes - done, (off_t)done);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return fth_fail(FTH_INVALID, "the body was truncated while it was read");
        done += got > 0 ? (size_t)got : 0;
    }
    return FTH_OK;
}

static fth_status fill_blob(void *context, int fd)
{
    fth_server_request *request = context;
    return fth_wal_blob_fill(&request->blob, fd < 0 ? request->body : NULL, fd, &request->seen);
}

/* Brings the body to where it is checked and applied: a blob in the log if there is a log and the
 * body is large. Other bodies stay where they were received, or are copied into memory. */
static fth_refusal fetch_body(fth_intake *intake, fth_server_request *request, char message[FTH_MAX_REFUSAL])
{
    fth_status status = FTH_OK;
    bool local = request->place.process > 0;
    uint64_t size = local ? request->place.size_bytes : request->body_bytes;
    if (size > intake->parts->model->max_body_bytes) {
        snprintf(message, FTH_MAX_REFUSAL, "%" PRIu64 " bytes are more than a gradient can have", size);
        return FTH_REFUSAL_MALFORMED;
    }
    request->body_bytes = (size_t)size;
    if (local) /* counts like a received body until the request is freed */
        request->local_bytes = size;
    uint64_t before = atomic_fetch_add(&intake->local_bytes, request->local_bytes);
    bool logged = fth_journal_reserve_blob(intake->parts->journal, size, &request->blob);
    if (before + request->local_bytes > intake->parts->options->max_memory_bytes ||
        (local && !logged && !take_memory(intake, request))) {
        snprintf(message, FTH_MAX_REFUSAL, "no memory for this gradient now");
        return FTH_REFUSAL_BUSY;
    }
    if (local)
        status = fth_local_read(&request->place, logged ? fill_blob : copy_body, request);
    else if (logged)
        status = fill_blob(request, -1);
    if (status != FTH_OK) {
        bool theirs = status == FTH_INVALID;
        if (!theirs)
            fth_log_error("a gradient is refused: %s", fth_error_message());
        snprintf(message, FTH_MAX_REFUSAL, "%s",
                 theirs ? fth_error_message() : "the log cannot be written; try again later");
        return theirs ? FTH_REFUSAL_MALFORMED : FTH_REFUSAL_BUSY;
    }
    if (logged)
        request->body = request->blob.bytes;
    else if (local)
        request->body = request->own_body;
    return FTH_REFUSAL_NONE;
}

/* ---- checking ---- */

/* Fetches the body; checks its signature, form and numbers. */
static fth_refusal check(fth_intake *intake, fth_server_request *request, char message[FTH_MAX_REFUSAL])
{
    const fth_server_parts *parts = intake->parts;
    fth_refusal refusal = fetch_body(intake, request, message);
    if (refusal != FTH_REFUSAL_NONE)
        return refusal;
    if (fth_access_keyed(parts->access) &&
        !fth_signed_body_matches(&request->who, request->body, request->body_bytes)) {
        snprintf(message, FTH_MAX_REFUSAL, "the body is not the one that was signed");
        return FTH_REFUSAL_BODY;
    }
    refusal = fth_gradient_parse_seen(parts->model->layout, request->body, request->body_bytes, request->seen,
                                      &request->gradient, message);
    if (refusal == FTH_REFUSAL_NONE)
        fth_gradient_clip(parts->model, parts->metrics, &request->gradient, parts->options->clip_pushes);
    else if (refusal == FTH_REFUSAL_NOT_FINITE &&
             fth_health_note_unfit(parts->health, &request->gradient, request->who.access, message))
        fth_intake_wake(intake); /* a step may be complete without it */
    return refusal;
}

static void *run_checker(void *context)
{
    fth_intake *intake = context;
    pthread_mutex_lock(&intake->mutex);
    for (;;) {
        while (!intake->unchecked.first && !intake->closing)
            pthread_cond_wait(&intake->arrived, &intake->mutex);
        fth_server_request *request = fth_request_queue_take(&intake->unchecked);
        if (!request)
            break;
        pthread_mutex_unlock(&intake->mutex);
        char message[FTH_MAX_REFUSAL] = "";
        fth_refusal refusal = check(intake, request, message);
        if (refusal != FTH_REFUSAL_NONE) {
            fth_refuse(intake->parts->metrics, request->exchange, refusal, "%s", message);
            fth_server_request_free(intake, request);
        } else { /* now, not after everything queued before it */
            fth_workers_renew(intake->parts->workers, request->gradient.worker, request->who.access);
        }
        pthread_mutex_lock(&intake->mutex);
        if (refusal == FTH_REFUSAL_NONE) {
            fth_request_queue_put(&intake->ready, request);
            pthread_cond_signal(&intake->work);
        }
    }
    pthread_mutex_unlock(&intake->mutex);
    return NULL;
}

/* ---- submitting ---- */

void fth_intake_submit(fth_intake *intake, fth_server_request *request)
{
    fth_exchange *exchange = request->exchange;
    bool gradient = request->kind == FTH_REQUEST_GRADIENT;
    pthread_mutex_lock(&intake->mutex);
    bool closing = intake->closing;
    if (!closing) {
        fth_exchange_hold(exchange, HELD_S, 503);
        fth_request_queue_put(gradient ? &intake->unchecked : &intake->ready, request);
        pthread_cond_signal(gradient ? &intake->arrived : &intake->work);
    }
    pthread_mutex_unlock(&intake->mutex);
    if (closing) {
        fth_refuse(intake->parts->metrics, exchange, FTH_REFUSAL_BUSY, "the server is stopping");
        fth_server_request_free(intake, request);
    }
}

void fth_server_request_free(fth_intake *intake, fth_server_request *request)
{
    fth_gradient_release(&request->gradient);
    fth_wal_blob_release(&request->blob);
    json_decref(request->json);
    atomic_fetch_sub(&intake->local_bytes, request->local_bytes);
    if (request->own_body)
        return_memory(intake, request->own_body);
    free(request);
}

uint64_t fth_intake_local_bytes(const fth_intake *intake)
{
    return atomic_load(&intake->local_bytes);
}

/* ---- the applying thread's side ---- */

static bool take_wake(fth_intake *intake)
{
    bool woken = intake->woken;
    intake->woken = false;
    return woken;
}

bool fth_intake_wait(fth_intake *intake, double until_s)
{
    struct timespec until = fth_deadline_timespec((fth_deadline){until_s});
    bool over = false;
    pthread_mutex_lock(&intake->mutex);
    while (!intake->ready.first && !intake->closed && !intake->woken && !over)
        over = pthread_cond_clockwait(&intake->work, &intake->mutex, CLOCK_MONOTONIC, &until) != 0;
    bool woken = take_wake(intake);
    pthread_mutex_unlock(&intake->mutex);
    return woken || over;
}

bool fth_intake_was_woken(fth_intake *intake)
{
    pthread_mutex_lock(&intake->mutex);
    bool woken = take_wake(intake);
    pthread_mutex_unlock(&intake->mutex);
    return woken;
}

fth_server_request *fth_intake_take(fth_intake *intake, bool *closed)
{
    pthread_mutex_lock(&intake->mutex);
    fth_server_request *request = fth_request_queue_take(&intake->ready);
    *closed = intake->closed && !request;
    pthread_mutex_unlock(&intake->mutex);
    return request;
}

void fth_intake_wake(fth_intake *intake)
{
    pthread_mutex_lock(&intake->mutex);
    intake->woken = true;
    pthread_cond_signal(&intake->work);
    pthread_mutex_unlock(&intake->mutex);
}

/* ---- beginning and end ---- */

fth_status fth_intake_create(const fth_server_parts *parts, fth_intake **result)
{
    fth_status status = FTH_OK;
    fth_intake *intake = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *intake, &intake));
    intake->parts = parts;
    pthread_mutex_init(&intake->mutex, NULL);
    pthread_cond_init(&intake->arrived, NULL);
    pthread_cond_init(&intake->work, NULL);
    fth_request_queue_init(&intake->unchecked);
    fth_request_queue_init(&intake->ready);
    for (int i = 0; i < CHECKERS; i++) {
        FTH_REQUIRE(fth_thread_start(&intake->checkers[i], "check-bodies", run_checker, intake) == 0, FTH_NO_MEMORY,
                    "no thread to check gradients");
        intake->checkers_running++;
    }
    *result = intake;
    intake = NULL;

out:
    fth_intake_free(intake);
    return status;
}

void fth_intake_close(fth_intake *intake)
{
    pthread_mutex_lock(&intake->mutex);
    intake->closing = true;
    pthread_cond_broadcast(&intake->arrived);
    pthread_mutex_unlock(&intake->mutex);
    for (int i = 0; i < intake->checkers_running; i++)
        pthread_join(intake->checkers[i], NULL);
    intake->checkers_running = 0;
    pthread_mutex_lock(&intake->mutex);
    intake->closed = true;
    pthread_cond_broadcast(&intake->work);
    pthread_mutex_unlock(&intake->mutex);
}

void fth_intake_free(fth_intake *intake)
{
    if (!intake)
        return;
    fth_intake_close(intake);
    for (size_t i = 0; i < SPARE_BODIES; i++)
        free(intake->spare_bodies[i]);
    pthread_cond_destroy(&intake->arrived);
    pthread_cond_destroy(&intake->work);
    pthread_mutex_destroy(&intake->mutex);
    free(intake);
}
