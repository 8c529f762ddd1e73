/* The coordinator's HTTP: each handler reads a request and gives it to the part concerned. Held
 * requests are answered by the watcher's thread. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "batches/coordinator/coordinator_internal.h"

enum { MAX_REGISTRATION = 64 << 10, MAX_MESSAGE = 8 << 20 };

/* docs/batches.openapi.yaml, compiled in */
extern const char fth_batches_openapi[];
extern const size_t fth_batches_openapi_size;

/* ---- refusals ---- */

static void answer_error(fth_exchange *exchange, int code, fth_status status, const char *message)
{
    if (code == 429 || code == 503)
        fth_exchange_set_header(exchange, "Retry-After", "1");
    fth_exchange_answer_json(
        exchange, code,
        json_pack("{s:i, s:s, s:s}", "code", code, "error", message, "status", fth_status_name(status)));
}

/* Answers with the calling thread's error message. */
static void answer_failure(fth_exchange *exchange, fth_status status)
{
    int code = status == FTH_INVALID || status == FTH_CORRUPT ? 400 : status == FTH_NO_MEMORY ? 503 : 500;
    answer_error(exchange, code, status, fth_error_message());
}

void fth_coordinator_refuse(void *context, fth_exchange *exchange, fth_access_refusal why, int code,
                            const char *message)
{
    (void)context;
    answer_error(exchange, code, why == FTH_ACCESS_BUSY || why == FTH_ACCESS_RATE ? FTH_IO : FTH_INVALID, message);
}

/* The signed body as JSON; NULL: refused. json_decref() it. */
static json_t *read_body(fth_exchange *exchange)
{
    size_t size = 0;
    json_error_t error;
    if (!fth_access_check_body(exchange))
        return NULL;
    const char *body = fth_exchange_body(exchange, &size);
    json_t *json = size > 0 ? json_loadb(body, size, JSON_REJECT_DUPLICATES, &error) : NULL;
    if (json_is_object(json))
        return json;
    json_decref(json);
    answer_error(exchange, 400, FTH_INVALID, "the body must be a JSON object");
    return NULL;
}

/* The part of the path behind a route's prefix. */
static const char *rest_of_path(const fth_exchange *exchange, const char *prefix)
{
    return fth_exchange_path(exchange) + strlen(prefix);
}

static bool may_read(const fth_exchange *exchange, const char *data)
{
    const fth_signed *caller = fth_access_signer(exchange);
    return !caller || fth_signed_may_read(caller, data);
}

/* ---- jobs and agents ---- */

static void get_data(void *context, fth_exchange *exchange)
{
    const fth_coordinator_parts *parts = context;
    const fth_open_set *set = NULL;
    const char *name = rest_of_path(exchange, "/v1/data/");
    if (!may_read(exchange, name))
        answer_error(exchange, 403, FTH_INVALID, "this key may not read that data set");
    else if (fth_served_sets_require(parts->sets, name, &set) != FTH_OK)
        answer_error(exchange, 404, FTH_INVALID, fth_error_message());
    else
        fth_exchange_answer_json(exchange, 200, json_deep_copy(set->description));
}

static void register_job(void *context, fth_exchange *exchange)
{
    fth_coordinator_parts *parts = context;
    uint64_t job = 0;
    json_t *answer = NULL, *request = read_body(exchange);
    if (!request)
        return;
    const char *agent = json_string_value(json_object_get(request, "agent"));
    fth_status status = fth_served_jobs_register(parts->jobs, request, agent ? agent : fth_exchange_client(exchange),
                                                 fth_access_signer(exchange), &job, &answer);
    if (status == FTH_OK)
        fth_exchange_answer_json(exchange, 200, answer);
    else
        answer_failure(exchange, status);
    fth_state_saver_nudge(parts->saver);
    json_decref(request);
}

static void get_job(void *context, fth_exchange *exchange)
{
    fth_coordinator_parts *parts = context;
    fth_served_job job;
    uint64_t id = strtoull(rest_of_path(exchange, "/v1/jobs/"), NULL, 10);
    if (!fth_served_jobs_find(parts->jobs, id, &job) || !may_read(exchange, job.spec.data))
        answer_error(exchange, 404, FTH_INVALID, "there is no such job");
    else
        fth_exchange_answer_json(exchange, 200, fth_served_job_describe(&job));
}

static void sync_agent(void *context, fth_exchange *exchange)
{
    fth_coordinator_parts *parts = context;
    json_t *request = read_body(exchange);
    if (!request)
        return;
    fth_status status = fth_agents_sync(parts->agents, exchange, request, fth_access_signer(exchange));
    if (status != FTH_OK)
        answer_failure(exchange, status);
    else
        fth_watcher_wake(parts->watcher);
    json_decref(request);
}

static void get_item(void *context, fth_exchange *exchange)
{
    fth_coordinator_parts *parts = context;
    fth_segment_cache *segment = fth_cache_segment(parts->cache);
    fth_item_id id;
    const void *entry = NULL;
    uint64_t size = 0;
    if (!segment || !fth_item_id_parse(rest_of_path(exchange, "/v1/items/"), &id) ||
        !fth_dispatcher_may_read(parts->dispatcher, id, fth_access_signer(exchange)) ||
        !fth_segment_hold(segment, id, &entry, &size)) {
        answer_error(exchange, 404, FTH_INVALID, "the cache has no such item");
        return;
    }
    fth_exchange_answer_large(exchange, 200, "application/octet-stream", entry, size);
    fth_segment_release(segment, entry);
}

/* ---- workers and functions ---- */

/* Orders may be for any data set, so a worker's key must allow all of them. */
static bool refuse_limited(const fth_coordinator_parts *parts, fth_exchange *exchange)
{
    const fth_open_set *set;
    for (size_t i = 0; (set = fth_served_sets_get(parts->sets, i)); i++) {
        if (may_read(exchange, set->name))
            continue;
        answer_error(exchange, 403, FTH_INVALID,
                     "this key may not read every data set, and a worker gets orders for all; use a key without data=");
        return true;
    }
    return false;
}

static void hand_to_workers(fth_coordinator_parts *parts, fth_exchange *exchange,
                            fth_status (*act)(fth_worker_orders *workers, fth_exchange *exchange,
                                              const json_t *request))
{
    json_t *request = refuse_limited(parts, exchange) ? NULL : read_body(exchange);
    if (!request)
        return;
    fth_status status = FTH_OK;
    if (!parts->has_workers)
        status = fth_fail(FTH_INVALID, "this coordinator has no orders for workers; start it with --prefetch workers");
    else
        status = act(parts->workers, exchange, request);
    if (status != FTH_OK)
        answer_failure(exchange, status);
    else
        fth_watcher_wake(parts->watcher);
    json_decref(request);
}

static void take_orders(void *context, fth_exchange *exchange)
{
    hand_to_workers(context, exchange, fth_worker_orders_take);
}

static void finish_orders(void *context, fth_exchange *exchange)
{
    hand_to_workers(context, exchange, fth_worker_orders_finish);
}

static void put_item(void *context, fth_exchange *exchange)
{
    fth_coordinator_parts *parts = context;
    fth_item_id id;
    if (refuse_limited(parts, exchange) || !fth_access_check_body(exchange))
        return;
    if (!fth_item_id_parse(rest_of_path(exchange, "/v1/items/"), &id)) {
        answer_error(exchange, 404, FTH_INVALID, "not the id of an item");
        return;
    }
    fth_status status = fth_worker_orders_put(parts->workers, exchange, id);
    if (status != FTH_OK)
        answer_failure(exchange, status);
}

/* ---- for people ---- */

static void get_status(void *context, fth_exchange *exchange)
{
    fth_exchange_answer_json(exchange, 200, fth_coordinator_describe(context, fth_access_signer(exchange)));
}

static void get_metrics(void *context, fth_exchange *exchange)
{
    char *text = fth_coordinator_format_metrics(context);
    fth_exchange_answer(exchange, text ? 200 : 500, "text/plain; version=0.0.4", text, text ? strlen(text) : 0);
    free(text);
}

static void get_health(void *context, fth_exchange *exchange)
{
    (void)context;
    fth_exchange_answer_json(exchange, 200, json_pack("{s:i, s:s}", "code", 200, "status", "ok"));
}

static void get_openapi(void *context, fth_exchange *exchange)
{
    (void)context;
    fth_exchange_answer(exchange, 200, "application/yaml", fth_batches_openapi, fth_batches_openapi_size);
}

const fth_route fth_coordinator_routes[] = {
    {"GET", "/v1/data/*", get_data, FTH_ROLE_READ, 0, "/v1/data"},
    {"POST", "/v1/jobs", register_job, FTH_ROLE_READ, MAX_REGISTRATION, NULL},
    {"GET", "/v1/jobs/*", get_job, FTH_ROLE_READ, 0, "/v1/jobs/JOB"},
    {"POST", "/v1/sync", sync_agent, FTH_ROLE_READ, MAX_MESSAGE, NULL},
    {"GET", "/v1/items/*", get_item, FTH_ROLE_READ, 0, "/v1/items"},
    {"PUT", "/v1/items/*", put_item, FTH_ROLE_TRAIN, FTH_SERVER_BODY, "/v1/items"},
    {"POST", "/v1/orders/take", take_orders, FTH_ROLE_TRAIN, MAX_REGISTRATION, NULL},
    {"POST", "/v1/orders/done", finish_orders, FTH_ROLE_TRAIN, MAX_MESSAGE, NULL},
    {"GET", "/v1/status", get_status, FTH_ROLE_READ, 0, NULL},
    {"GET", "/metrics", get_metrics, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/healthz", get_health, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/openapi.yaml", get_openapi, FTH_ROLE_NONE, 0, NULL},
    {0},
};
