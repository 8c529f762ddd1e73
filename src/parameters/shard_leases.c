/* See shard_leases.h. */
#include "parameters/shard_leases.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double DEFAULT_WAIT_S = 30, MOST_WAIT_S = 60, LOOK_FOR_GONE_S = 0.5;

struct fth_shard_leases {
    const fth_server_parts *parts;
    fth_request_queue waiting; /* requests for a shard, in the order of arrival */
    bool changed;              /* a shard became free, or none is left: waiting requests may be answered */
    double look_at_s;          /* when the next waiting request may time out */
};

static void count_states(fth_shard_leases *leases)
{
    fth_parameters_metrics *metrics = leases->parts->metrics;
    fth_shards_totals totals = fth_shards_count(leases->parts->shards);
    atomic_store(&metrics->shards_listed, totals.listed);
    atomic_store(&metrics->shards_held, totals.held);
    atomic_store(&metrics->shards_done, totals.done);
}

static void count_event(fth_shard_leases *leases, fth_lease_event event)
{
    atomic_fetch_add(&leases->parts->metrics->shard_leases[event], 1);
    count_states(leases);
    if (event != FTH_LEASE_TAKEN)
        leases->changed = true;
}

fth_status fth_shard_leases_create(const fth_server_parts *parts, fth_shard_leases **result)
{
    fth_status status = fth_allocate(1, sizeof **result, result);
    if (status != FTH_OK)
        return status;
    fth_shard_leases *leases = *result;
    leases->parts = parts;
    leases->look_at_s = INFINITY;
    fth_request_queue_init(&leases->waiting);
    count_states(leases);
    return FTH_OK;
}

void fth_shard_leases_free(fth_shard_leases *leases)
{
    free(leases);
}

/* ---- what a asked asks for ---- */

typedef struct shard_request {
    bool brings;
    fth_shard_state shard; /* the brought shard */
    double wait_s;
} shard_request;

static bool read_whole(const json_t *json, const char *name, int64_t *value)
{
    const json_t *number = json_object_get(json, name);
    if (json_is_integer(number))
        *value = json_integer_value(number);
    return json_is_integer(number);
}

/* Parses {"wait"?, "shard"?: {"run", "name", "samples", "epochs"?}}; false if it is malformed. */
static bool read_request(const json_t *json, shard_request *asked)
{
    const json_t *wait = json_object_get(json, "wait"), *shard = json_object_get(json, "shard");
    const char *run = json_string_value(json_object_get(shard, "run"));
    const char *name = json_string_value(json_object_get(shard, "name"));
    fth_shard_state *brought = &asked->shard;

    *asked = (shard_request){.wait_s = wait ? json_number_value(wait) : DEFAULT_WAIT_S};
    if (wait && (!json_is_number(wait) || !(asked->wait_s >= 0)))
        return false;
    asked->wait_s = fmin(asked->wait_s, MOST_WAIT_S);
    if (!shard)
        return true;
    asked->brings = true;
    if (!run || !name || !*run || !*name || strlen(run) + strlen(name) + 1 > FTH_MAX_SHARD_NAME ||
        !read_whole(shard, "samples", &brought->samples) ||
        (json_object_get(shard, "epochs") && !read_whole(shard, "epochs", &brought->epochs)))
        return false;
    snprintf(brought->name, sizeof brought->name, "%s/%s", run, name);
    return fth_shard_name_valid(brought->name);
}

/* Adds a brought shard to the table, with a record in the log if it is new. False: the request was
 * refused. */
static bool add_brought(fth_shard_leases *leases, const fth_server_request *request, const fth_shard_state *shard)
{
    bool known = false;
    fth_status status = fth_shards_check(leases->parts->shards, shard, &known);
    if (status != FTH_OK) {
        fth_refuse(leases->parts->metrics, request->exchange,
                   status == FTH_INVALID ? FTH_REFUSAL_LEASE : FTH_REFUSAL_BUSY, "%s", fth_error_message());
        return false;
    }
    if (known)
        return true;
    status = fth_journal_append_json(leases->parts->journal, FTH_LOG_SHARD,
                                     json_pack("{s:s, s:I, s:I}", "name", shard->name, "samples",
                                               (json_int_t)shard->samples, "epochs", (json_int_t)shard->epochs));
    if (status == FTH_OK)
        status = fth_shards_add(leases->parts->shards, shard);
    if (status != FTH_OK) {
        fth_log_error("cannot add shard %s: %s", shard->name, fth_error_message());
        fth_refuse(leases->parts->metrics, request->exchange, FTH_REFUSAL_BUSY,
                   "the log cannot be written; try again later");
    }
    return status == FTH_OK;
}

/* ---- answers ---- */

static void answer_lease(fth_shard_leases *leases, const fth_server_request *request, const fth_shard_state *shard)
{
    char *url = NULL;
    const char *etag = shard->listed ? fth_shard_listing_etag(leases->parts->listing, shard->name) : "";
    if (shard->listed && fth_shard_listing_make_url(leases->parts->listing, shard->name, &url) != FTH_OK) {
        fth_log_error("cannot lease shard %s: %s", shard->name, fth_error_message());
        fth_shard_leases_remove_worker(leases, request->worker, false);
        fth_refuse(leases->parts->metrics, request->exchange, FTH_REFUSAL_BUSY,
                   "cannot make an address for shard %s now; try again later", shard->name);
        return;
    }
    json_t *lease =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:s, s:s, s:I, s:I}", "shard", shard->name, "epoch",
                  (json_int_t)shard->epoch, "from", (json_int_t)shard->position, "to", (json_int_t)shard->samples,
                  "samples", (json_int_t)shard->samples, "url", url ? url : "", "etag", etag, "first", (json_int_t)0,
                  "seed", (json_int_t)fth_shards_seed(leases->parts->shards));
    fth_exchange_answer_json(request->exchange, 200, json_pack("{s:i, s:o}", "code", 200, "lease", lease));
    fth_wipe_text(url);
    fth_workers_set_idle(leases->parts->workers, request->worker, false);
}

/* Leases a shard and counts the change; a shard that the worker holds already is not counted again.
 * */
static fth_shard_answer take_and_count(fth_shard_leases *leases, const char *worker, const char *name,
                                       fth_shard_state *shard)
{
    fth_shards *shards = leases->parts->shards;
    fth_shard_state before;
    bool held = fth_shards_get_held(shards, worker, &before);
    fth_shard_answer answer = fth_shards_take(shards, worker, name, shard);
    bool again = held && answer == FTH_SHARD_TAKEN && strcmp(before.name, shard->name) == 0;
    if (held && !again)
        count_event(leases, FTH_LEASE_RETURNED);
    if (answer == FTH_SHARD_TAKEN && !again)
        count_event(leases, FTH_LEASE_TAKEN);
    return answer;
}

/* Answers the request; false if others hold all shards that are left. */
static bool try_answer(fth_shard_leases *leases, const fth_server_request *request)
{
    const fth_server_parts *parts = leases->parts;
    shard_request asked;
    fth_shard_state shard;

    read_request(request->json, &asked);
    bool ended = fth_served_position_progress(parts->position) >= 1;
    fth_shard_answer answer =
        ended ? FTH_SHARD_DONE
              : take_and_count(leases, request->worker, asked.brings ? asked.shard.name : NULL, &shard);
    switch (answer) {
    case FTH_SHARD_TAKEN: answer_lease(leases, request, &shard); return true;
    case FTH_SHARD_WAIT: return false;
    case FTH_SHARD_DONE:
        fth_workers_set_idle(parts->workers, request->worker, true);
        fth_refuse(parts->metrics, request->exchange, FTH_REFUSAL_FINISHED, "%s",
                   ended          ? "training has ended"
                   : asked.brings ? "every epoch of this shard is done"
                                  : "every epoch of every shard is done");
    }
    return true;
}

void fth_shard_leases_take(fth_shard_leases *leases, fth_server_request *request)
{
    const fth_server_parts *parts = leases->parts;
    shard_request asked;

    if (!read_request(request->json, &asked)) {
        fth_refuse(parts->metrics, request->exchange, FTH_REFUSAL_MALFORMED,
                   "expected {\"worker\": name, \"wait\": seconds, \"shard\": {\"run\": text, \"name\": text, "
                   "\"samples\": number, \"epochs\": number}}, of which wait and shard may be missing");
    } else if (!asked.brings && !parts->listing) {
        fth_refuse(parts->metrics, request->exchange, FTH_REFUSAL_LEASE,
                   "this server lists no shards; start it with --shards, or bring a shard");
    } else if ((!asked.brings || add_brought(leases, request, &asked.shard)) && !try_answer(leases, request)) {
        request->until_s =
            fth_clock_seconds() + fmin(asked.wait_s, fth_workers_longest_wait_s(parts->workers, request->worker));
        leases->look_at_s = 0;
        fth_workers_set_idle(parts->workers, request->worker, true);
        fth_request_queue_put(&leases->waiting, request);
        return;
    }
    fth_server_request_free(parts->intake, request);
}

void fth_shard_leases_return(fth_shard_leases *leases, fth_server_request *request)
{
    bool held = fth_shards_release(leases->parts->shards, request->worker);
    if (held)
        count_event(leases, FTH_LEASE_RETURNED);
    fth_exchange_answer_json(request->exchange, 200, json_pack("{s:i, s:b}", "code", 200, "returned", held));
    fth_server_request_free(leases->parts->intake, request);
}

void fth_shard_leases_list(fth_shard_leases *leases, fth_server_request *request)
{
    const fth_shards *shards = leases->parts->shards;
    fth_shards_totals totals = fth_shards_count(shards);
    fth_shard_state shard;
    json_t *list = json_array();
    for (size_t i = 0; fth_shards_get_at(shards, i, &shard); i++)
        json_array_append_new(list, json_pack("{s:s, s:b, s:I, s:I, s:I, s:I, s:b, s:s?}", "name", shard.name, "listed",
                                              shard.listed, "samples", (json_int_t)shard.samples, "epochs",
                                              (json_int_t)shard.epochs, "epoch", (json_int_t)shard.epoch, "position",
                                              (json_int_t)shard.position, "done", fth_shard_is_done(&shard), "worker",
                                              *shard.holder ? shard.holder : NULL));
    fth_exchange_answer_json(request->exchange, 200,
                             json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "code", 200, "version",
                                       (json_int_t)fth_served_position_version(leases->parts->position), "samples",
                                       (json_int_t)totals.samples, "samples_done", (json_int_t)totals.samples_done,
                                       "epochs_done", (json_int_t)totals.epochs_done, "held", (json_int_t)totals.held,
                                       "done", (json_int_t)totals.done, "shards", list));
    fth_server_request_free(leases->parts->intake, request);
}

json_t *fth_shard_leases_describe(const fth_shard_leases *leases)
{
    fth_shards_totals totals = fth_shards_count(leases->parts->shards);
    if (totals.listed + totals.brought == 0)
        return NULL;
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "listed", (json_int_t)totals.listed, "brought",
                     (json_int_t)totals.brought, "held", (json_int_t)totals.held, "done", (json_int_t)totals.done,
                     "epochs_done", (json_int_t)totals.epochs_done);
}

/* ---- gradients and workers ---- */

fth_refusal fth_shard_leases_check(const fth_shard_leases *leases, const fth_gradient *gradient,
                                   char message[FTH_MAX_REFUSAL])
{
    if (!*gradient->span.name || fth_shards_fit(leases->parts->shards, gradient->worker, &gradient->span) == FTH_OK)
        return FTH_REFUSAL_NONE;
    fth_workers_note_arrival(leases->parts->workers, gradient->worker); /* the gradient it pulled for will not come */
    snprintf(message, FTH_MAX_REFUSAL, "%s", fth_error_message());
    return FTH_REFUSAL_LEASE;
}

fth_status fth_shard_leases_move(fth_shard_leases *leases, const fth_gradient *gradient)
{
    const fth_shard_span *span = &gradient->span;
    fth_shard_state before;
    if (!*span->name)
        return FTH_OK;
    bool known = fth_shards_get(leases->parts->shards, span->name, &before);
    fth_status status = fth_shards_move(leases->parts->shards, gradient->worker, span);
    if (status != FTH_OK || !known)
        return status;
    if (!*before.holder)
        count_event(leases, FTH_LEASE_TAKEN);
    if (before.listed)
        fth_served_position_add_listed(leases->parts->position, span->to - span->from);
    if (span->to == before.samples)
        count_event(leases, FTH_LEASE_COMPLETED);
    return FTH_OK;
}

void fth_shard_leases_remove_worker(fth_shard_leases *leases, const char *worker, bool lost)
{
    if (fth_shards_release(leases->parts->shards, worker))
        count_event(leases, lost ? FTH_LEASE_LOST : FTH_LEASE_RETURNED);
}

/* ---- those who wait ---- */

/* Whether a waiting request is done: answered, or its connection is gone. *none_free: an earlier
 * request has found that no listed shard is free. */
static bool is_over(fth_shard_leases *leases, const fth_server_request *request, double now_s, bool *none_free)
{
    fth_worker worker;
    bool listed = !json_object_get(request->json, "shard");
    if (fth_exchange_is_abandoned(request->exchange)) {
        fth_exchange_answer(request->exchange, 503, NULL, NULL, 0); /* nobody receives it */
        return true;
    }
    if (!fth_workers_get(leases->parts->workers, request->worker, &worker) || !worker.live) {
        fth_refuse(leases->parts->metrics, request->exchange, FTH_REFUSAL_STRANGER, "%s is not registered any more",
                   request->worker);
        return true;
    }
    if (!(listed && *none_free) && try_answer(leases, request))
        return true;
    *none_free = *none_free || listed;
    if (now_s < request->until_s)
        return false;
    fth_exchange_answer_json(request->exchange, 200, json_pack("{s:i, s:n}", "code", 200, "lease"));
    return true;
}

void fth_shard_leases_answer_waiting(fth_shard_leases *leases, double *next_s)
{
    double now_s = fth_clock_seconds();
    bool ended = fth_served_position_progress(leases->parts->position) >= 1;
    if (leases->waiting.first && (leases->changed || ended || now_s >= leases->look_at_s)) {
        fth_request_queue waiting;
        bool none_free = false;
        fth_request_queue_init(&waiting);
        leases->look_at_s = now_s + LOOK_FOR_GONE_S;
        for (fth_server_request *request = fth_request_queue_take(&leases->waiting); request;
             request = fth_request_queue_take(&leases->waiting)) {
            if (is_over(leases, request, now_s, &none_free)) {
                fth_server_request_free(leases->parts->intake, request);
                continue;
            }
            leases->look_at_s = fmin(leases->look_at_s, request->until_s);
            fth_request_queue_put(&waiting, request);
        }
        fth_request_queue_put_first(&leases->waiting, &waiting);
    }
    leases->changed = false;
    if (leases->waiting.first)
        *next_s = fmin(*next_s, leases->look_at_s);
}

void fth_shard_leases_close(fth_shard_leases *leases)
{
    for (fth_server_request *request = fth_request_queue_take(&leases->waiting); request;
         request = fth_request_queue_take(&leases->waiting)) {
        fth_refuse(leases->parts->metrics, request->exchange, FTH_REFUSAL_BUSY, "the server is stopping");
        fth_server_request_free(leases->parts->intake, request);
    }
}
