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

enum { CHECKERS = 2, SPARE_BODIES = 2, HELD_S = 120 };

struct fth_intake {
    fth_intake_options options;
    atomic_uint_fast64_t local_bytes;

    pthread_mutex_t mutex;  /* guards what follows */
    pthread_cond_t arrived; /* for the checking threads */
    pthread_cond_t work;    /* for the applying thread */
    fth_queue unchecked, ready;
    bool woken;
    bool closing, closed;             /* nothing more is accepted; and everything that was is checked */
    char *spare_bodies[SPARE_BODIES]; /* max_body_bytes each */

    pthread_t checkers[CHECKERS]; /* of the thread that creates and closes */
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

/* Memory for a body that has no place in the log. */
static bool take_memory(fth_intake *intake, fth_item *item)
{
    pthread_mutex_lock(&intake->mutex);
    for (size_t i = 0; i < SPARE_BODIES && !item->own_body; i++) {
        item->own_body = intake->spare_bodies[i];
        intake->spare_bodies[i] = NULL;
    }
    pthread_mutex_unlock(&intake->mutex);
    if (!item->own_body)
        item->own_body = malloc(intake->options.model->max_body_bytes);
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

/* Brings the body to where it is checked and applied from: the log's own file, where there is one
 * and the body is large; else it stays where it was received, or is copied into memory. */
static fth_refusal fetch_body(fth_intake *intake, fth_item *item, char message[FTH_MAX_REFUSAL])
{
    fth_status status = FTH_OK;
    bool local = item->place.process > 0;
    uint64_t size = local ? item->place.size_bytes : item->body_bytes;
    if (size > intake->options.model->max_body_bytes) {
        snprintf(message, FTH_MAX_REFUSAL, "%" PRIu64 " bytes are more than a gradient can have", size);
        return FTH_REFUSAL_MALFORMED;
    }
    item->body_bytes = (size_t)size;
    if (local) /* counts as bodies that were received do, until the item is freed */
        item->local_bytes = size;
    uint64_t before = atomic_fetch_add(&intake->local_bytes, item->local_bytes);
    bool logged = fth_journal_take_place(intake->options.journal, size, &item->place_in_log);
    if (before + item->local_bytes > intake->options.max_memory_bytes ||
        (local && !logged && !take_memory(intake, item))) {
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

/* ---- checking ---- */

/* The body's place, its signature, its form, its numbers. */
static fth_refusal check(fth_intake *intake, fth_item *item, char message[FTH_MAX_REFUSAL])
{
    const fth_intake_options *options = &intake->options;
    fth_refusal refusal = fetch_body(intake, item, message);
    if (refusal != FTH_REFUSAL_NONE)
        return refusal;
    if (options->keyed && !fth_signed_body_matches(&item->who, item->body, item->body_bytes)) {
        snprintf(message, FTH_MAX_REFUSAL, "the body is not the one that was signed");
        return FTH_REFUSAL_BODY;
    }
    refusal = fth_gradient_parse_seen(options->model->layout, item->body, item->body_bytes, item->seen, &item->gradient,
                                      message);
    if (refusal == FTH_REFUSAL_NONE)
        fth_gradient_clip(options->model, options->metrics, &item->gradient, options->clip);
    else if (refusal == FTH_REFUSAL_NOT_FINITE &&
             fth_health_note_unfit(options->health, &item->gradient, item->who.access, message))
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
        fth_item *item = fth_queue_take(&intake->unchecked);
        if (!item)
            break;
        pthread_mutex_unlock(&intake->mutex);
        char message[FTH_MAX_REFUSAL] = "";
        fth_refusal refusal = check(intake, item, message);
        if (refusal != FTH_REFUSAL_NONE) {
            fth_refuse(intake->options.metrics, item->exchange, refusal, "%s", message);
            fth_intake_free_item(intake, item);
        } else { /* now, not when everything queued before it is done */
            fth_workers_renew(intake->options.workers, item->gradient.worker, item->who.access);
        }
        pthread_mutex_lock(&intake->mutex);
        if (refusal == FTH_REFUSAL_NONE) {
            fth_queue_put(&intake->ready, item);
            pthread_cond_signal(&intake->work);
        }
    }
    pthread_mutex_unlock(&intake->mutex);
    return NULL;
}

/* ---- submitting ---- */

void fth_intake_submit(fth_intake *intake, fth_item *item)
{
    fth_exchange *exchange = item->exchange;
    bool gradient = item->kind == FTH_INTAKE_GRADIENT;
    pthread_mutex_lock(&intake->mutex);
    bool closing = intake->closing;
    if (!closing) {
        fth_exchange_hold(exchange, HELD_S, 503);
        fth_queue_put(gradient ? &intake->unchecked : &intake->ready, item);
        pthread_cond_signal(gradient ? &intake->arrived : &intake->work);
    }
    pthread_mutex_unlock(&intake->mutex);
    if (closing) {
        fth_refuse(intake->options.metrics, exchange, FTH_REFUSAL_BUSY, "the server is stopping");
        fth_intake_free_item(intake, item);
    }
}

void fth_intake_free_item(fth_intake *intake, fth_item *item)
{
    fth_gradient_release(&item->gradient);
    fth_body_release(&item->place_in_log);
    json_decref(item->request);
    atomic_fetch_sub(&intake->local_bytes, item->local_bytes);
    if (item->own_body)
        return_memory(intake, item->own_body);
    free(item);
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

fth_item *fth_intake_take(fth_intake *intake, bool *closed)
{
    pthread_mutex_lock(&intake->mutex);
    fth_item *item = fth_queue_take(&intake->ready);
    *closed = intake->closed && !item;
    pthread_mutex_unlock(&intake->mutex);
    return item;
}

void fth_intake_wake(fth_intake *intake)
{
    pthread_mutex_lock(&intake->mutex);
    intake->woken = true;
    pthread_cond_signal(&intake->work);
    pthread_mutex_unlock(&intake->mutex);
}

/* ---- beginning and end ---- */

fth_status fth_intake_create(const fth_intake_options *options, fth_intake **result)
{
    fth_status status = FTH_OK;
    fth_intake *intake = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *intake, &intake));
    intake->options = *options;
    pthread_mutex_init(&intake->mutex, NULL);
    pthread_cond_init(&intake->arrived, NULL);
    pthread_cond_init(&intake->work, NULL);
    fth_queue_init(&intake->unchecked);
    fth_queue_init(&intake->ready);
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
