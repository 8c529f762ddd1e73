/* The applying thread: takes one thing after another off the queue and is the only one to change the model.
 *
 * A gradient:
 *
 *     queued -> checked against its worker: registered? new sequence? how stale? and its numbers (fth_step_judge)
 *               |-> logged -> added -> [step] -> answered
 *               |-> refused: nothing has changed
 *               |-> deferred (bounded): others' gradients would become too old; looked at again when one of those has
 *                   come, or its lease is over
 *
 * What is logged is applied, now or by the next process; what was not logged was not acknowledged. A step is made when
 * the last gradient it takes is there; where one came that completes it, its record says so, so that a replay steps at
 * the same place; where a worker left instead, a record of its own does. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parameters/parameters_internal.h"

void fth_parameters_fail(fth_parameters *server, fth_status status)
{
    pthread_mutex_lock(&server->mutex);
    if (server->failure == FTH_OK) {
        server->failure = status;
        snprintf(server->failure_message, sizeof server->failure_message, "%s", fth_error_message());
    }
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
}

/* What gradients are clipped to is said before the first one that it holds for. */
static fth_status append_clip(fth_parameters *server)
{
    double clip = server->options.clip_pushes;
    if (server->log_clip == clip)
        return FTH_OK;
    fth_status status = fth_wal_append(
        server->wal, &(fth_log_record){.kind = FTH_LOG_CLIP, .version = atomic_load(&server->version), .rate = clip});
    if (status == FTH_OK)
        server->log_clip = clip;
    return status;
}

static fth_status append(fth_parameters *server, fth_log_kind kind, uint32_t flags, const void *body, size_t size_bytes,
                         fth_body *place)
{
    fth_status status = FTH_OK;
    if (!server->wal)
        return FTH_OK;
    if (kind == FTH_LOG_GRADIENT)
        status = append_clip(server);
    if (status == FTH_OK)
        status = fth_wal_append(server->wal, &(fth_log_record){.kind = kind,
                                                               .flags = flags,
                                                               .version = atomic_load(&server->version),
                                                               .rate = fth_parameters_rate(server),
                                                               .body = body,
                                                               .body_bytes = size_bytes,
                                                               .place = place});
    atomic_store(&server->metrics.log_bytes, fth_wal_size_bytes(server->wal));
    return status;
}

/* ---- gradients ---- */

static void answer_push(fth_parameters *server, fth_exchange *exchange, const fth_worker *worker, bool duplicate)
{
    json_t *json = json_pack("{s:i, s:I, s:I}", "code", worker->last_code, "version", (json_int_t)worker->last_version,
                             "staleness", (json_int_t)worker->last_staleness);
    if (duplicate) {
        json_object_set_new(json, "duplicate", json_true());
        atomic_fetch_add(&server->metrics.duplicates, 1);
    }
    fth_exchange_answer_json(exchange, worker->last_code, json);
}

/* What stands against it; `worker` is NULL where it is unknown. FTH_REFUSAL_DUPLICATE: it is a repeated push. */
static fth_refusal judge(fth_parameters *server, const fth_item *item, const fth_worker *worker, char *message,
                         size_t size)
{
    const fth_gradient *gradient = &item->gradient;
    int64_t version = atomic_load(&server->version), staleness = version - gradient->version, most = INT64_MAX;

    if (!worker || (!worker->live && worker->sequence < gradient->sequence)) {
        snprintf(message, size, "%s is not registered%s; register it", gradient->worker,
                 worker ? " any more: its lease ran out, or it was unregistered" : "");
        return FTH_REFUSAL_STRANGER;
    }
    if (server->keys && item->role != FTH_ROLE_ADMIN && strcmp(worker->access, item->access) != 0) {
        snprintf(message, size, "%s was registered with another key", gradient->worker);
        return FTH_REFUSAL_FORBIDDEN;
    }
    if (*gradient->instance && strcmp(worker->instance, gradient->instance) != 0) {
        snprintf(message, size, "%s is another process's name by now; register again", gradient->worker);
        return FTH_REFUSAL_STRANGER; /* its numbers would be taken for the other's */
    }
    if (gradient->sequence == worker->sequence)
        return FTH_REFUSAL_DUPLICATE;
    if (gradient->sequence < worker->sequence) {
        snprintf(message, size, "sequence %" PRId64 " is not above %" PRId64 ", the last one of %s", gradient->sequence,
                 worker->sequence, gradient->worker);
        return FTH_REFUSAL_SEQUENCE;
    }
    if (atomic_load(&server->progress) >= 1) {
        snprintf(message, size, "training has ended: --%s %" PRId64 " is reached",
                 server->train->steps > 0 ? "steps" : "epochs",
                 server->train->steps > 0 ? server->train->steps : server->train->epochs);
        return FTH_REFUSAL_FINISHED;
    }
    if (staleness < 0) {
        snprintf(message, size, "it is for version %" PRId64 ", but the version is %" PRId64, gradient->version,
                 version);
        return FTH_REFUSAL_VERSION;
    }
    if (server->options.consistency.kind == FTH_CONSISTENCY_SYNC)
        most = 0;
    if (server->options.consistency.kind == FTH_CONSISTENCY_BOUNDED)
        most = server->options.consistency.count;
    if (staleness > most) {
        snprintf(message, size,
                 "too stale: it is for version %" PRId64 ", the version is %" PRId64 ", and %" PRId64
                 " behind is the most; pull again",
                 gradient->version, version, most);
        return FTH_REFUSAL_STALE;
    }
    return FTH_REFUSAL_NONE;
}

void fth_parameters_note_unfit(fth_parameters *server, const fth_item *item, const char *why)
{
    const fth_gradient *gradient = &item->gradient;
    int64_t count = 0, reported = 1;

    count = fth_workers_note_unfit(server->workers, gradient->worker, item->access, gradient->version,
                                   atomic_load(&server->version));
    pthread_mutex_lock(&server->mutex);
    if (count > 0) {
        server->recheck = true;
        pthread_cond_signal(&server->work);
    }
    server->unfit.count++;
    server->unfit.version = atomic_load(&server->version);
    server->unfit.at_s = fth_clock_seconds();
    snprintf(server->unfit.worker, sizeof server->unfit.worker, "%s", count > 0 ? gradient->worker : "");
    snprintf(server->unfit.why, sizeof server->unfit.why, "%s", why);
    pthread_mutex_unlock(&server->mutex);
    while (reported < count)
        reported *= 10;
    if (reported != count) /* the first, the tenth, the hundredth */
        return;
    char *message =
        fth_format("worker %s: %lld of its gradients refused so far; %s", gradient->worker, (long long)count, why);
    fth_log_warning("%s", message ? message : why);
    fth_parameters_tell(
        server, "warning",
        json_pack("{s:I, s:s}", "step", (json_int_t)atomic_load(&server->version), "message", message ? message : why));
    free(message);
}

/* With bounded staleness: true if this step would make somebody's gradient too old before it is there. */
static bool must_wait(fth_parameters *server, const fth_item *item)
{
    return server->options.consistency.kind == FTH_CONSISTENCY_BOUNDED &&
           fth_workers_would_be_late(server->workers, atomic_load(&server->version), server->options.consistency.count,
                                     item->gradient.worker);
}

/* Log, add, step, answer. False if it was deferred instead. */
static bool take_gradient(fth_parameters *server, fth_item *item)
{
    fth_gradient *gradient = &item->gradient;
    char message[FTH_MAX_REFUSAL] = "";
    double began = fth_clock_seconds();

    fth_worker worker;
    bool known = fth_workers_get(server->workers, gradient->worker, &worker);
    fth_refusal refusal = judge(server, item, known ? &worker : NULL, message, sizeof message);
    if (known && refusal != FTH_REFUSAL_FORBIDDEN) /* also where it has to wait for others: it has not gone */
        fth_workers_renew(server->workers, gradient->worker, item->access);
    if (refusal == FTH_REFUSAL_NONE && must_wait(server, item)) {
        fth_workers_note_arrival(server->workers, gradient->worker);
        return false;
    }
    bool steps = refusal == FTH_REFUSAL_NONE && fth_step_is_complete(server, gradient->worker);
    if (refusal == FTH_REFUSAL_DUPLICATE) {
        answer_push(server, item->exchange, &worker, true);
        return true;
    }
    bool averaged = fth_step_is_averaged(server);
    double rate = fth_parameters_rate(server);
    if (refusal == FTH_REFUSAL_NONE)
        refusal = fth_step_judge(server, gradient, averaged, steps, rate, message);
    if (refusal == FTH_REFUSAL_DIVERGES)
        fth_parameters_note_unfit(server, item, message);
    if (refusal != FTH_REFUSAL_NONE) {
        fth_parameters_refuse(server, item->exchange, refusal, "%s", message);
        return true;
    }
    uint32_t flags = (steps ? FTH_LOG_STEPS : 0) | (averaged ? FTH_LOG_AVERAGED : 0) | FTH_LOG_JUDGED;
    if (append(server, FTH_LOG_GRADIENT, flags, item->body, item->body_bytes, &item->place_in_log) != FTH_OK) {
        fth_log_error("a gradient is refused: %s", fth_error_message());
        fth_exchange_set_header(item->exchange, "Retry-After", "5");
        fth_parameters_refuse(server, item->exchange, FTH_REFUSAL_BUSY, "the log cannot be written; try again later");
        return true;
    }
    int64_t staleness = atomic_load(&server->version) - gradient->version;
    fth_status status = fth_step_take(server, gradient, averaged, steps, rate);
    fth_metrics_count_staleness(&server->metrics, staleness);
    server->line.staleness += staleness;
    if (status != FTH_OK) {
        fth_parameters_fail(server, status);
        fth_parameters_refuse(server, item->exchange, FTH_REFUSAL_BUSY, "the update failed");
        return true;
    }
    fth_step_note_push(server, gradient, steps, staleness);
    pthread_mutex_lock(&server->mutex);
    server->recheck = true;
    pthread_mutex_unlock(&server->mutex);
    atomic_fetch_add(&server->metrics.apply_ns, (uint64_t)((fth_clock_seconds() - began) * 1e9));
    if (fth_workers_get(server->workers, gradient->worker, &worker))
        answer_push(server, item->exchange, &worker, false);
    return true;
}

/* A step that no gradient completed, but somebody's leaving. */
static void step_if_complete(fth_parameters *server)
{
    if (server->step_gradients == 0 || !fth_step_is_complete(server, NULL))
        return;
    if (append(server, FTH_LOG_STEP, 0, NULL, 0, NULL) != FTH_OK) {
        fth_log_error("a step waits: %s", fth_error_message());
        return;
    }
    fth_status status = fth_step_make(server, fth_parameters_rate(server));
    if (status != FTH_OK)
        fth_parameters_fail(server, status);
}

/* ---- workers ---- */

static fth_status log_worker(fth_parameters *server, fth_log_kind kind, const char *worker, const char *instance,
                             const char *access)
{
    json_t *json = json_pack("{s:s, s:s, s:s}", "worker", worker, "instance", instance, "access", access);
    char *text = json_dumps(json, JSON_COMPACT);
    fth_status status = text ? append(server, kind, 0, text, strlen(text), NULL) : fth_fail(FTH_NO_MEMORY, "no memory");
    free(text);
    json_decref(json);
    return status;
}

static json_t *describe_normalization(const fth_parameters *server)
{
    bool known = server->normalization.channels > 0;
    return known ? fth_normalization_to_json(&server->normalization) : json_null();
}

static void answer_registration(fth_parameters *server, fth_item *item, const fth_worker *worker)
{
    char consistency[32];
    fth_consistency_format(server->options.consistency, consistency, sizeof consistency);
    fth_exchange_answer_json(
        item->exchange, 200,
        json_pack("{s:i, s:s, s:s, s:I, s:I, s:f, s:s, s:s, s:s, s:i, s:o, s:I, s:I}", "code", 200, "worker",
                  worker->name, "instance", worker->instance, "version", (json_int_t)atomic_load(&server->version),
                  "sequence", (json_int_t)worker->sequence, "lease_s", server->options.lease_s, "consistency",
                  consistency, "model", server->train->model, "input", server->input, "classes", server->classes,
                  "normalization", describe_normalization(server), "max_body_bytes", (json_int_t)server->max_body_bytes,
                  "unfit", (json_int_t)worker->unfit));
}

static void take_registration(fth_parameters *server, fth_item *item)
{
    fth_worker worker;
    bool known = fth_workers_get(server->workers, item->worker, &worker), live = known && worker.live;
    bool own = known && strcmp(worker.access, item->access) == 0;
    bool same = live && own && strcmp(worker.instance, item->instance) == 0;
    bool others = known && !own && server->keys && item->role != FTH_ROLE_ADMIN;
    bool full = !live && fth_workers_live(server->workers) >= FTH_MAX_WORKERS;
    if (live && !same) {
        fth_parameters_refuse(server, item->exchange, FTH_REFUSAL_DUPLICATE,
                              "%s is registered, and its lease lasts; choose another name, or wait", item->worker);
        return;
    }
    if (others) {
        fth_parameters_refuse(server, item->exchange, FTH_REFUSAL_FORBIDDEN, "%s belongs to another key", item->worker);
        return;
    }
    if (full || (!same && log_worker(server, FTH_LOG_REGISTER, item->worker, item->instance, item->access) != FTH_OK)) {
        fth_exchange_set_header(item->exchange, "Retry-After", "5");
        if (full)
            fth_parameters_refuse(server, item->exchange, FTH_REFUSAL_BUSY, "there are %d workers already",
                                  (int)FTH_MAX_WORKERS);
        else
            fth_parameters_refuse(server, item->exchange, FTH_REFUSAL_BUSY,
                                  "the log cannot be written; try again later");
        return;
    }
    bool joined = same ? fth_workers_renew(server->workers, item->worker, item->access)
                       : fth_workers_join(server->workers, item->worker, item->instance, item->access);
    if (joined && fth_workers_get(server->workers, item->worker, &worker))
        answer_registration(server, item, &worker);
    else
        fth_parameters_refuse(server, item->exchange, FTH_REFUSAL_BUSY, "there is no room for %s", item->worker);
}

/* False if the log could not take it. */
static bool let_go(fth_parameters *server, const char *name)
{
    if (log_worker(server, FTH_LOG_UNREGISTER, name, "", "") != FTH_OK) {
        fth_log_warning("%s stays registered: %s", name, fth_error_message());
        return false;
    }
    fth_workers_leave(server->workers, name);
    pthread_mutex_lock(&server->mutex);
    server->recheck = true;
    pthread_mutex_unlock(&server->mutex);
    return true;
}

static void take_unregistration(fth_parameters *server, fth_item *item)
{
    fth_worker worker;
    bool live = fth_workers_get(server->workers, item->worker, &worker) && worker.live;
    bool others = live && server->keys && item->role != FTH_ROLE_ADMIN && strcmp(worker.access, item->access) != 0;
    if (!live)
        fth_parameters_refuse(server, item->exchange, FTH_REFUSAL_STRANGER, "%s is not registered", item->worker);
    else if (others)
        fth_parameters_refuse(server, item->exchange, FTH_REFUSAL_FORBIDDEN, "%s belongs to another key", item->worker);
    else if (!let_go(server, item->worker))
        fth_parameters_refuse(server, item->exchange, FTH_REFUSAL_BUSY, "the log cannot be written");
    else
        fth_exchange_answer_json(item->exchange, 200,
                                 json_pack("{s:i, s:s, s:I}", "code", 200, "worker", item->worker, "version",
                                           (json_int_t)atomic_load(&server->version)));
}

/* Lets one go whose lease is over; false if there is none. *next is when the next one is. */
static bool expire_one(fth_parameters *server, double *next)
{
    char name[FTH_MAX_WORKER_NAME + 1] = "";
    bool ended = false;
    if (!fth_workers_find_expired(server->workers, fth_clock_seconds(), name, &ended, next) || !let_go(server, name))
        return false;
    if (ended) /* whoever knows that has said so */
        return true;
    atomic_fetch_add(&server->metrics.expired, 1);
    fth_log_info("worker %s has not been heard of for %.3g s: it is no longer counted on", name,
                 server->options.lease_s);
    return true;
}

/* ---- the loop ---- */

static void take(fth_parameters *server, fth_item *item)
{
    bool done = true;
    switch (item->kind) {
    case FTH_ITEM_GRADIENT: done = take_gradient(server, item); break;
    case FTH_ITEM_REGISTER: take_registration(server, item); break;
    case FTH_ITEM_UNREGISTER: take_unregistration(server, item); break;
    case FTH_ITEM_CHECKPOINT:
        pthread_mutex_lock(&server->mutex);
        server->save_asked = true;
        pthread_mutex_unlock(&server->mutex);
        fth_exchange_answer_json(
            item->exchange, 202,
            json_pack("{s:i, s:I}", "code", 202, "version", (json_int_t)atomic_load(&server->version)));
        break;
    }
    if (done) {
        fth_item_free(server, item);
        return;
    }
    pthread_mutex_lock(&server->mutex);
    fth_queue_put(&server->deferred, item);
    pthread_mutex_unlock(&server->mutex);
}

/* What was deferred is looked at again, before what came later. */
static void requeue_deferred(fth_parameters *server)
{
    if (!server->deferred.first)
        return;
    *server->deferred.last = server->queue.first;
    if (!server->queue.first)
        server->queue.last = server->deferred.last;
    server->queue.first = server->deferred.first;
    fth_queue_init(&server->deferred);
}

/* Whatever is due that nobody asked for. Gives when to look again. */
static double look_around(fth_parameters *server)
{
    double next = fth_clock_seconds() + 0.2;
    while (expire_one(server, &next))
        ;
    fth_step_look_for_workers(server);
    step_if_complete(server);
    fth_pulls_serve(server);
    fth_parameters_consider_saving(server, false);
    fth_parameters_tell_step(server, false);
    return next;
}

void *fth_parameters_apply(void *context)
{
    fth_parameters *server = context;
    for (;;) {
        double next = look_around(server);
        pthread_mutex_lock(&server->mutex);
        bool waited = false;
        while (!server->queue.first && !server->all_checked && !server->recheck && !waited) {
            struct timespec until = fth_deadline_timespec((fth_deadline){next});
            waited = pthread_cond_clockwait(&server->work, &server->mutex, CLOCK_MONOTONIC, &until) != 0 ||
                     server->pulls || server->copy_wanted;
        }
        if (server->recheck || waited)
            requeue_deferred(server);
        server->recheck = false;
        fth_item *item = fth_queue_take(&server->queue);
        bool end = server->all_checked && !item, failed = server->failure != FTH_OK;
        pthread_mutex_unlock(&server->mutex);
        if (end)
            break;
        if (item && failed) {
            fth_parameters_refuse(server, item->exchange, FTH_REFUSAL_BUSY, "the server has failed");
            fth_item_free(server, item);
        } else if (item) {
            take(server, item);
        }
    }
    for (fth_item *item = fth_queue_take(&server->deferred); item; item = fth_queue_take(&server->deferred)) {
        fth_parameters_refuse(server, item->exchange, FTH_REFUSAL_BUSY, "the server is stopping");
        fth_item_free(server, item);
    }
    pthread_mutex_lock(&server->mutex);
    server->applying_ended = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
    fth_pulls_end(server);
    return NULL;
}
