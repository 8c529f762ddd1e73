/* See applier.h. */
#include "parameters/applier.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "model/exported_model.h"
#include "parameters/saver.h"
#include "parameters/shard_leases.h"
#include "parameters/snapshots.h"
#include "parameters/updates.h"
#include "parameters/worker_totals.h"

static const double LOOK_EVERY_S = 0.2;

struct fth_applier {
    const fth_server_parts *parts;
    pthread_t thread; /* of the thread that starts and joins */
    bool running;

    /* For the applying thread only. */
    fth_request_queue deferred; /* gradients whose step would make others too old (bounded) */
    fth_request_queue again;    /* deferred gradients to retry before new requests */
    bool recheck;               /* something changed that deferred gradients wait for */
    double gathering_since_s;   /* when the first step started to wait for sync:N's workers; 0: not waiting */
    bool gathered;              /* the wait is over */
};

static int64_t version_of(const fth_applier *applier)
{
    return fth_served_position_version(applier->parts->position);
}

static double rate_of(const fth_applier *applier)
{
    return fth_served_model_rate(applier->parts->model, version_of(applier));
}

/* Whether the request was signed with another key than the worker's registration. */
static bool belongs_to_another(const fth_applier *applier, const fth_worker *worker, const fth_server_request *request)
{
    return fth_access_keyed(applier->parts->access) && request->who.role != FTH_ROLE_ADMIN &&
           strcmp(worker->access, request->who.access) != 0;
}

/* ---- when a step is complete ---- */

/* Ends sync:N's wait for its workers when they have all come, or --gather has passed. */
static void look_for_workers(fth_applier *applier)
{
    const fth_consistency *consistency = &applier->parts->options->consistency;
    if (consistency->kind != FTH_CONSISTENCY_SYNC || consistency->count == 0 || applier->gathered ||
        fth_updates_pending(applier->parts->updates) == 0)
        return;
    double now = fth_clock_seconds();
    if (applier->gathering_since_s == 0)
        applier->gathering_since_s = now;
    bool over = now - applier->gathering_since_s >= applier->parts->options->gather_s;
    int64_t most = fth_workers_most_live(applier->parts->workers);
    applier->gathered = over || most >= consistency->count;
    if (most >= consistency->count || !over)
        return;
    char *message =
        fth_format("sync:%lld has waited %.4g s (--gather) for its workers, and %lld came; steps are now made of "
                   "the gradients of these",
                   (long long)consistency->count, applier->parts->options->gather_s, (long long)most);
    fth_served_record_warn(applier->parts->record, version_of(applier), message ? message : "workers are missing");
    free(message);
}

/* Whether the gradients so far, with one more from `worker` (unless NULL), are a step. */
static bool step_is_complete(fth_applier *applier, const char *worker)
{
    const fth_consistency *consistency = &applier->parts->options->consistency;
    int64_t have = fth_updates_pending(applier->parts->updates) + (worker != NULL), count = consistency->count;
    if (have == 0 || consistency->kind != FTH_CONSISTENCY_SYNC)
        return have > 0;
    if (count > 0 && have >= count)
        return true;
    if (count > 0 && !applier->gathered && fth_workers_most_live(applier->parts->workers) < count)
        return false; /* not all of them have registered yet */
    /* A gradient still counts after its worker has left. The step waits for live workers without
     * one. */
    return fth_workers_all_contributed(applier->parts->workers, version_of(applier), worker);
}

/* Makes a step that a worker's leaving has completed. */
static void step_if_complete(fth_applier *applier)
{
    if (fth_updates_pending(applier->parts->updates) == 0 || !step_is_complete(applier, NULL))
        return;
    if (fth_journal_append(applier->parts->journal, FTH_LOG_STEP, 0, NULL, 0, NULL) != FTH_OK) {
        fth_log_error("cannot log a step, which is delayed: %s", fth_error_message());
        return;
    }
    fth_status status = fth_updates_make_step(applier->parts->updates, rate_of(applier));
    if (status != FTH_OK)
        fth_health_fail(applier->parts->health, status);
    fth_worker_totals_end_step(applier->parts->totals, fth_clock_seconds());
}

/* ---- gradients ---- */

static void answer_push(fth_applier *applier, fth_exchange *exchange, const fth_worker *worker, bool duplicate)
{
    json_t *json = json_pack("{s:i, s:I, s:I}", "code", worker->last_code, "version", (json_int_t)worker->last_version,
                             "staleness", (json_int_t)worker->last_staleness);
    if (duplicate) {
        json_object_set_new(json, "duplicate", json_true());
        atomic_fetch_add(&applier->parts->metrics->duplicates, 1);
    }
    fth_exchange_answer_json(exchange, worker->last_code, json);
}

/* Checks a gradient against its worker; NULL if that is unknown. FTH_REFUSAL_DUPLICATE: a repeated
 * push. */
static fth_refusal check_sender(const fth_applier *applier, const fth_server_request *request, const fth_worker *worker,
                                char message[FTH_MAX_REFUSAL])
{
    const fth_gradient *gradient = &request->gradient;
    if (!worker || (!worker->live && worker->sequence < gradient->sequence)) {
        snprintf(message, FTH_MAX_REFUSAL, "%s is not registered%s; register it", gradient->worker,
                 worker ? " any more: its lease ran out, or it was unregistered" : "");
        return FTH_REFUSAL_STRANGER;
    }
    if (belongs_to_another(applier, worker, request)) {
        snprintf(message, FTH_MAX_REFUSAL, "%s was registered with another key", gradient->worker);
        return FTH_REFUSAL_FORBIDDEN;
    }
    if (*gradient->instance && strcmp(worker->instance, gradient->instance) != 0) {
        snprintf(message, FTH_MAX_REFUSAL, "%s is now another process's name; register again", gradient->worker);
        return FTH_REFUSAL_STRANGER; /* its sequence numbers would be mistaken for the other's */
    }
    if (gradient->sequence == worker->sequence)
        return FTH_REFUSAL_DUPLICATE;
    if (gradient->sequence < worker->sequence) {
        snprintf(message, FTH_MAX_REFUSAL, "sequence %" PRId64 " is not above %" PRId64 ", the last one of %s",
                 gradient->sequence, worker->sequence, gradient->worker);
        return FTH_REFUSAL_SEQUENCE;
    }
    return FTH_REFUSAL_NONE;
}

/* Checks that training has not ended and the gradient is not too old. */
static fth_refusal check_age(const fth_applier *applier, const fth_gradient *gradient, char message[FTH_MAX_REFUSAL])
{
    const fth_train_options *train = applier->parts->model->train;
    const fth_consistency *consistency = &applier->parts->options->consistency;
    int64_t version = version_of(applier), staleness = version - gradient->version, most = INT64_MAX;

    if (fth_served_position_progress(applier->parts->position) >= 1) {
        snprintf(message, FTH_MAX_REFUSAL, "training has ended: --%s %" PRId64 " is reached",
                 train->limits.steps > 0 ? "steps" : "epochs",
                 train->limits.steps > 0 ? train->limits.steps : train->limits.epochs);
        return FTH_REFUSAL_FINISHED;
    }
    if (staleness < 0) {
        snprintf(message, FTH_MAX_REFUSAL, "it is for version %" PRId64 ", but the version is %" PRId64,
                 gradient->version, version);
        return FTH_REFUSAL_VERSION;
    }
    if (consistency->kind == FTH_CONSISTENCY_SYNC)
        most = 0;
    if (consistency->kind == FTH_CONSISTENCY_BOUNDED)
        most = consistency->count;
    if (staleness > most) {
        snprintf(message, FTH_MAX_REFUSAL,
                 "too stale: it is for version %" PRId64 ", the version is %" PRId64 ", and %" PRId64
                 " behind is the most; pull again",
                 gradient->version, version, most);
        return FTH_REFUSAL_STALE;
    }
    return FTH_REFUSAL_NONE;
}

/* With bounded staleness: whether this step would make a gradient that another worker is computing
 * too old. */
static bool must_wait(fth_applier *applier, const fth_gradient *gradient)
{
    const fth_consistency *consistency = &applier->parts->options->consistency;
    return consistency->kind == FTH_CONSISTENCY_BOUNDED &&
           fth_workers_would_be_late(applier->parts->workers, version_of(applier), consistency->count,
                                     gradient->worker);
}

/* Logs the gradient, adds it to the step and answers. */
static void apply(fth_applier *applier, fth_server_request *request, const fth_update_how *how, double began_s)
{
    const fth_server_parts *parts = applier->parts;
    const fth_gradient *gradient = &request->gradient;
    uint32_t flags = (how->steps ? FTH_LOG_STEPS : 0) | (how->averaged ? FTH_LOG_AVERAGED : 0) | FTH_LOG_CHECKED;
    int64_t staleness = version_of(applier) - gradient->version;
    fth_worker worker = {0};

    if (fth_journal_append(parts->journal, FTH_LOG_GRADIENT, flags, request->body, request->body_bytes,
                           &request->blob) != FTH_OK) {
        fth_log_error("a gradient is refused: %s", fth_error_message());
        fth_refuse(parts->metrics, request->exchange, FTH_REFUSAL_BUSY, "the log cannot be written; try again later");
        return;
    }
    fth_status status = fth_shard_leases_move(parts->leases, gradient);
    if (status == FTH_OK)
        status = fth_updates_add(parts->updates, gradient, how);
    fth_metrics_count_staleness(parts->metrics, staleness);
    if (status != FTH_OK) {
        fth_health_fail(parts->health, status);
        fth_refuse(parts->metrics, request->exchange, FTH_REFUSAL_BUSY, "the update failed");
        return;
    }
    fth_worker_totals_add(parts->totals, gradient);
    if (how->steps)
        fth_worker_totals_end_step(parts->totals, fth_clock_seconds());
    fth_workers_note_push(parts->workers, gradient->worker,
                          &(fth_accepted_push){.sequence = gradient->sequence,
                                               .version = version_of(applier),
                                               .staleness = staleness,
                                               .stepped = how->steps},
                          &worker);
    applier->recheck = true;
    fth_served_position_add_apply_s(parts->position, fth_clock_seconds() - began_s);
    answer_push(applier, request->exchange, &worker, false);
}

/* False if the gradient was deferred. */
static bool take_gradient(fth_applier *applier, fth_server_request *request)
{
    const fth_server_parts *parts = applier->parts;
    fth_gradient *gradient = &request->gradient;
    char message[FTH_MAX_REFUSAL] = "";
    double began_s = fth_clock_seconds();
    fth_worker worker;

    bool known = fth_workers_get(parts->workers, gradient->worker, &worker);
    fth_refusal refusal = check_sender(applier, request, known ? &worker : NULL, message);
    if (known && refusal != FTH_REFUSAL_FORBIDDEN) /* even if it has to wait for others: the worker is alive */
        fth_workers_renew(parts->workers, gradient->worker, request->who.access);
    if (refusal == FTH_REFUSAL_DUPLICATE) {
        answer_push(applier, request->exchange, &worker, true);
        return true;
    }
    if (refusal == FTH_REFUSAL_NONE)
        refusal = check_age(applier, gradient, message);
    if (refusal == FTH_REFUSAL_NONE)
        refusal = fth_shard_leases_check(parts->leases, gradient, message);
    if (refusal == FTH_REFUSAL_NONE && must_wait(applier, gradient)) {
        fth_workers_note_arrival(parts->workers, gradient->worker);
        return false;
    }
    fth_update_how how = {.averaged = fth_updates_averaged(parts->updates), .rate = rate_of(applier)};
    if (refusal == FTH_REFUSAL_NONE) {
        how.steps = step_is_complete(applier, gradient->worker);
        refusal = fth_updates_check(parts->updates, gradient, &how, message);
    }
    if (refusal == FTH_REFUSAL_DIVERGES && fth_health_note_unfit(parts->health, gradient, request->who.access, message))
        applier->recheck = true; /* a step may be complete without it */
    if (refusal != FTH_REFUSAL_NONE)
        fth_refuse(parts->metrics, request->exchange, refusal, "%s", message);
    else
        apply(applier, request, &how, began_s);
    return true;
}

/* ---- workers ---- */

static json_t *describe_normalization(const fth_normalization *normalization)
{
    return normalization->channels > 0 ? fth_normalization_to_json(normalization) : json_null();
}

static void answer_registration(const fth_applier *applier, const fth_server_request *request, const fth_worker *worker)
{
    const fth_served_model *model = applier->parts->model;
    const fth_model *network = model->train->own.network;
    char consistency[32];
    fth_consistency_format(applier->parts->options->consistency, consistency, sizeof consistency);
    fth_exchange_answer_json(
        request->exchange, 200,
        json_pack("{s:i, s:s, s:s, s:I, s:I, s:f, s:s, s:s, s:s, s:i, s:o, s:I, s:I, s:s*}", "code", 200, "worker",
                  worker->name, "instance", worker->instance, "version", (json_int_t)version_of(applier), "sequence",
                  (json_int_t)worker->sequence, "lease_s", worker->lease_s, "consistency", consistency, "model",
                  fth_exported_model_short_name(model->train->model), "input", model->input.text, "classes",
                  model->classes, "normalization", describe_normalization(&model->input.normalization),
                  "max_body_bytes", (json_int_t)model->max_body_bytes, "unfit", (json_int_t)worker->unfit, "network",
                  network ? fth_exported_model_digest(network) : NULL));
}

static void take_registration(fth_applier *applier, fth_server_request *request)
{
    const fth_server_parts *parts = applier->parts;
    const char *name = request->worker, *access = request->who.access;
    fth_worker worker;
    bool known = fth_workers_get(parts->workers, name, &worker), live = known && worker.live;
    bool same = live && strcmp(worker.instance, request->instance) == 0 && strcmp(worker.access, access) == 0;

    if (live && !same) {
        fth_refuse(parts->metrics, request->exchange, FTH_REFUSAL_DUPLICATE,
                   "%s is registered, and its lease lasts; choose another name, or wait", name);
        return;
    }
    if (known && belongs_to_another(applier, &worker, request)) {
        fth_refuse(parts->metrics, request->exchange, FTH_REFUSAL_FORBIDDEN, "%s belongs to another key", name);
        return;
    }
    if (!live && fth_workers_live(parts->workers) >= FTH_MAX_WORKERS) {
        fth_refuse(parts->metrics, request->exchange, FTH_REFUSAL_BUSY, "there are %d workers already",
                   (int)FTH_MAX_WORKERS);
        return;
    }
    const json_t *function = json_object_get(request->json, "function");
    double now_s = fth_clock_wall_seconds();
    if (!same && fth_journal_append_json(parts->journal, FTH_LOG_REGISTER,
                                         json_pack("{s:s, s:s, s:s, s:o*, s:f}", "worker", name, "instance",
                                                   request->instance, "access", access, "function",
                                                   fth_usage_read_function(function), "since_s", now_s)) != FTH_OK) {
        fth_log_error("worker %s is not registered: %s", name, fth_error_message());
        fth_refuse(parts->metrics, request->exchange, FTH_REFUSAL_BUSY, "the log cannot be written; try again later");
        return;
    }
    if (same) {
        fth_workers_renew(parts->workers, name, access);
    } else {
        fth_workers_join(parts->workers, name, request->instance, access);
        if (function)
            fth_workers_mark_function(parts->workers, name);
        fth_served_usage_begin(parts->usage, name, function, now_s);
    }
    if (fth_workers_get(parts->workers, name, &worker))
        answer_registration(applier, request, &worker);
    else
        fth_refuse(parts->metrics, request->exchange, FTH_REFUSAL_BUSY, "there is no room for %s", name);
}

/* Removes a worker. `lost`: its lease ran out. False if the log could not be written. */
static bool let_go(fth_applier *applier, const char *name, bool lost)
{
    json_t *record = json_pack("{s:s, s:s, s:s}", "worker", name, "instance", "", "access", "");
    if (fth_journal_append_json(applier->parts->journal, FTH_LOG_UNREGISTER, record) != FTH_OK) {
        fth_log_warning("%s stays registered: %s", name, fth_error_message());
        return false;
    }
    fth_workers_leave(applier->parts->workers, name);
    fth_shard_leases_remove_worker(applier->parts->leases, name, lost);
    applier->recheck = true;
    return true;
}

/* Whether the request's worker is registered with the request's key; refuses the request otherwise.
 * */
static bool is_from_worker(fth_applier *applier, const fth_server_request *request)
{
    fth_parameters_metrics *metrics = applier->parts->metrics;
    const char *name = request->worker;
    fth_worker worker;
    bool live = fth_workers_get(applier->parts->workers, name, &worker) && worker.live;
    if (live && !belongs_to_another(applier, &worker, request))
        return true;
    if (live)
        fth_refuse(metrics, request->exchange, FTH_REFUSAL_FORBIDDEN, "%s belongs to another key", name);
    else
        fth_refuse(metrics, request->exchange, FTH_REFUSAL_STRANGER, "%s is not registered", name);
    return false;
}

static void take_unregistration(fth_applier *applier, fth_server_request *request)
{
    const char *name = request->worker;
    if (!is_from_worker(applier, request))
        return;
    if (!let_go(applier, name, false)) {
        fth_refuse(applier->parts->metrics, request->exchange, FTH_REFUSAL_BUSY,
                   "the log cannot be written; try again later");
        return;
    }
    fth_served_usage_end(applier->parts->usage, name, json_object_get(request->json, "usage"));
    fth_exchange_answer_json(
        request->exchange, 200,
        json_pack("{s:i, s:s, s:I}", "code", 200, "worker", name, "version", (json_int_t)version_of(applier)));
}

static void take_shard_request(fth_applier *applier, fth_server_request *request)
{
    if (!is_from_worker(applier, request)) {
        fth_server_request_free(applier->parts->intake, request);
        return;
    }
    fth_workers_renew(applier->parts->workers, request->worker, request->who.access);
    if (request->kind == FTH_REQUEST_TAKE_SHARD)
        fth_shard_leases_take(applier->parts->leases, request);
    else
        fth_shard_leases_return(applier->parts->leases, request);
}

/* Removes a worker whose lease is over; false if there is none. *next_s is lowered to the end of
 * the next lease. */
static bool expire_one(fth_applier *applier, double *next_s)
{
    char name[FTH_MAX_WORKER_NAME + 1] = "";
    bool ended = false;
    fth_worker worker;
    double now_s = fth_clock_seconds();
    if (!fth_workers_find_expired(applier->parts->workers, now_s, name, &ended, next_s) ||
        !fth_workers_get(applier->parts->workers, name, &worker) || !let_go(applier, name, true))
        return false;
    double silent_s = ended ? 0 : now_s - (worker.lease_until_s - worker.lease_s);
    fth_served_usage_lose(applier->parts->usage, name, fth_clock_wall_seconds() - silent_s);
    if (ended) /* already reported by the caller of fth_workers_end_lease() */
        return true;
    atomic_fetch_add(&applier->parts->metrics->expired, 1);
    fth_log_info("worker %s has been silent for %.3g s; its lease has ended", name, worker.lease_s);
    return true;
}

/* ---- the record ---- */

/* Writes a step event every few seconds while gradients arrive, between steps. */
static void report_step(fth_applier *applier, bool now)
{
    const fth_server_parts *parts = applier->parts;
    fth_worker_totals_line line;
    if (fth_updates_pending(parts->updates) > 0 ||
        !fth_worker_totals_take_line(parts->totals, fth_clock_seconds(), now, &line))
        return;
    json_t *event = fth_served_position_describe(parts->position);
    if (isfinite(line.loss))
        json_object_set_new(event, "loss", json_real(line.loss));
    if (isfinite(line.accuracy))
        json_object_set_new(event, "accuracy", json_real(line.accuracy));
    json_object_set_new(event, "learning_rate", json_real(rate_of(applier)));
    if (isfinite(line.samples_per_s))
        json_object_set_new(event, "samples_per_s", json_real(line.samples_per_s));
    json_object_set_new(event, "pushes", json_integer(line.pushes));
    json_object_set_new(event, "staleness", fth_metrics_describe_staleness(parts->metrics));
    json_object_set_new(event, "workers", json_integer(fth_workers_live(parts->workers)));
    json_t *shards = fth_shard_leases_describe(parts->leases);
    if (shards)
        json_object_set_new(event, "shards", shards);
    fth_served_record_append(parts->record, "step", event);
}

/* ---- the loop ---- */

static void take(fth_applier *applier, fth_server_request *request)
{
    bool done = true;
    switch (request->kind) {
    case FTH_REQUEST_TAKE_SHARD:
    case FTH_REQUEST_RETURN_SHARD: take_shard_request(applier, request); return;
    case FTH_REQUEST_LIST_SHARDS: fth_shard_leases_list(applier->parts->leases, request); return;
    case FTH_REQUEST_GRADIENT: done = take_gradient(applier, request); break;
    case FTH_REQUEST_REGISTER: take_registration(applier, request); break;
    case FTH_REQUEST_UNREGISTER: take_unregistration(applier, request); break;
    case FTH_REQUEST_CHECKPOINT:
        fth_served_saver_request(applier->parts->saver);
        fth_exchange_answer_json(request->exchange, 202,
                                 json_pack("{s:i, s:I}", "code", 202, "version", (json_int_t)version_of(applier)));
        break;
    }
    if (done)
        fth_server_request_free(applier->parts->intake, request);
    else
        fth_request_queue_put(&applier->deferred, request);
}

static void refuse_request(fth_applier *applier, fth_server_request *request, const char *why)
{
    fth_refuse(applier->parts->metrics, request->exchange, FTH_REFUSAL_BUSY, "%s", why);
    fth_server_request_free(applier->parts->intake, request);
}

/* Does work that belongs to no request. Returns when to look again. */
static double look_around(fth_applier *applier)
{
    double next_s = fth_clock_seconds() + LOOK_EVERY_S;
    while (expire_one(applier, &next_s))
        ;
    look_for_workers(applier);
    step_if_complete(applier);
    fth_shard_leases_answer_waiting(applier->parts->leases, &next_s);
    fth_parameter_snapshots_serve(applier->parts->snapshots);
    fth_served_saver_begin_if_due(applier->parts->saver);
    report_step(applier, false);
    return next_s;
}

/* The next request, or NULL at `until_s`. Deferred gradients that may be possible now come before
 * new requests. */
static fth_server_request *next_request(fth_applier *applier, double until_s, bool *closed)
{
    fth_intake *intake = applier->parts->intake;
    bool ready = applier->recheck || applier->again.first;
    bool woken = ready ? fth_intake_was_woken(intake) : fth_intake_wait(intake, until_s);
    if (applier->recheck || woken)
        fth_request_queue_put_first(&applier->again, &applier->deferred);
    applier->recheck = false;
    fth_server_request *request = fth_request_queue_take(&applier->again);
    return request ? request : fth_intake_take(intake, closed);
}

static void *run_applier(void *context)
{
    fth_applier *applier = context;
    bool closed = false;
    while (!closed) {
        fth_server_request *request = next_request(applier, look_around(applier), &closed);
        if (request && fth_health_get_failure(applier->parts->health) != FTH_OK)
            refuse_request(applier, request, "the server has failed");
        else if (request)
            take(applier, request);
    }
    for (fth_server_request *request = fth_request_queue_take(&applier->deferred); request;
         request = fth_request_queue_take(&applier->deferred))
        refuse_request(applier, request, "the server is stopping");
    fth_shard_leases_close(applier->parts->leases);
    fth_parameter_snapshots_close(applier->parts->snapshots);
    return NULL;
}

/* ---- beginning and end ---- */

fth_status fth_applier_start(const fth_server_parts *parts, fth_applier **result)
{
    fth_status status = FTH_OK;
    fth_applier *applier = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *applier, &applier));
    applier->parts = parts;
    fth_request_queue_init(&applier->deferred);
    fth_request_queue_init(&applier->again);
    applier->running = fth_thread_start(&applier->thread, "apply", run_applier, applier) == 0;
    FTH_REQUIRE(applier->running, FTH_NO_MEMORY, "no thread to apply gradients");
    *result = applier;
    applier = NULL;

out:
    free(applier);
    return status;
}

void fth_applier_join(fth_applier *applier)
{
    if (!applier || !applier->running)
        return;
    pthread_join(applier->thread, NULL);
    applier->running = false;
}

void fth_applier_report_last(fth_applier *applier)
{
    report_step(applier, true);
}

void fth_applier_free(fth_applier *applier)
{
    fth_applier_join(applier);
    free(applier);
}
