/* See routes.h. */
#include "parameters/routes.h"

#include <inttypes.h>
#include <math.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parameters/snapshots.h"
#include "parameters/validator.h"
#include "train/model/run_network.h"

enum { MAX_JSON_BODY = 4096, DEFAULT_WAIT_S = 30, MOST_WAIT_S = 60 };

/* docs/parameter-server.openapi.yaml, embedded by the build */
extern const char fth_parameters_openapi[];
extern const size_t fth_parameters_openapi_size;

struct fth_parameter_service {
    const fth_server_parts *parts;
    fth_server *_Atomic http; /* NULL until it has started; handlers may run before that */
};

static void refuse(void *context, fth_exchange *exchange, fth_access_refusal why, int code, const char *message)
{
    static const fth_refusal refusals[] = {
        [FTH_ACCESS_FORBIDDEN] = FTH_REFUSAL_FORBIDDEN, [FTH_ACCESS_UNSIGNED] = FTH_REFUSAL_UNSIGNED,
        [FTH_ACCESS_CLOCK] = FTH_REFUSAL_CLOCK,         [FTH_ACCESS_BODY] = FTH_REFUSAL_BODY,
        [FTH_ACCESS_HOST] = FTH_REFUSAL_HOST,           [FTH_ACCESS_ORIGIN] = FTH_REFUSAL_ORIGIN,
        [FTH_ACCESS_BUSY] = FTH_REFUSAL_BUSY,           [FTH_ACCESS_RATE] = FTH_REFUSAL_RATE};
    fth_parameter_service *service = context;
    (void)code;
    fth_refuse(service->parts->metrics, exchange, refusals[why], "%s", message);
}

/* Finds the worker that a request names, and renews its lease. `name` is "" if it names none, or
 * one of another key. True if the worker is known. */
static bool note_worker(fth_parameter_service *service, fth_exchange *exchange, char name[FTH_MAX_WORKER_NAME + 1])
{
    const char *text = fth_exchange_header(exchange, "X-Farthing-Worker");
    const fth_signed *who = fth_access_signer(exchange);
    if (!text)
        text = fth_exchange_query(exchange, "worker");
    *name = '\0';
    if (!text || !fth_worker_name_valid(text) || (fth_access_keyed(service->parts->access) && !who))
        return false;
    bool renewed = fth_workers_renew(service->parts->workers, text, who ? who->access : "");
    if (renewed || !fth_workers_get(service->parts->workers, text, NULL))
        snprintf(name, FTH_MAX_WORKER_NAME + 1, "%s", text);
    return renewed;
}

/* ---- reads ---- */

static void get_version(void *context, fth_exchange *exchange)
{
    fth_parameter_service *service = context;
    char name[FTH_MAX_WORKER_NAME + 1];
    fth_validation last;
    note_worker(service, exchange, name);
    bool known = fth_served_validator_get(service->parts->validator, &last);
    fth_exchange_answer_json(exchange, 200,
                             json_pack("{s:i, s:I, s:o}", "code", 200, "version",
                                       (json_int_t)fth_served_position_version(service->parts->position), "accuracy",
                                       known ? json_real(last.accuracy) : json_null()));
}

static void get_accuracy(void *context, fth_exchange *exchange)
{
    fth_parameter_service *service = context;
    char name[FTH_MAX_WORKER_NAME + 1];
    fth_validation last;
    note_worker(service, exchange, name);
    bool known = fth_served_validator_get(service->parts->validator, &last);
    fth_exchange_answer_json(exchange, 200,
                             json_pack("{s:i, s:o, s:o, s:o}", "code", 200, "version",
                                       known ? json_integer(last.version) : json_null(), "accuracy",
                                       known ? json_real(last.accuracy) : json_null(), "loss",
                                       known ? json_real(last.loss) : json_null()));
}

/* Parses a whole number from a query or a header's tag: `fallback` if there is none, -2 if it is
 * invalid. */
static int64_t read_number(const char *text, int64_t fallback)
{
    char *end = NULL;
    if (!text)
        return fallback;
    if (*text == '"')
        text++;
    if (*text < '0' || *text > '9' || strlen(text) > 19)
        return -2;
    int64_t value = strtoll(text, &end, 10);
    return !*end || strcmp(end, "\"") == 0 ? value : -2;
}

static void get_parameter(void *context, fth_exchange *exchange)
{
    fth_parameter_service *service = context;
    fth_pull pull = {.exchange = exchange};
    const char *offset = fth_exchange_query(exchange, "offset"), *count = fth_exchange_query(exchange, "count");
    int64_t first = read_number(offset, 0), numbers = read_number(count, 0);
    int64_t unless = read_number(fth_exchange_header(exchange, "If-None-Match"), -1);
    double wait_s = (double)read_number(fth_exchange_query(exchange, "wait"), DEFAULT_WAIT_S);

    pull.since = read_number(fth_exchange_query(exchange, "since"), -1);
    pull.if_match = read_number(fth_exchange_header(exchange, "If-Match"), -1);
    pull.local = fth_exchange_query(exchange, "local") && fth_local_is_loopback(fth_exchange_client(exchange));
    pull.numbers = offset || count;
    pull.offset = (uint64_t)first;
    pull.count = (uint64_t)numbers;
    pull.if_range = read_number(fth_exchange_header(exchange, "If-Range"), -1);
    pull.has_range = strcmp(fth_exchange_method(exchange), "GET") == 0 &&
                     fth_range_parse(fth_exchange_header(exchange, "Range"), &pull.range);
    if (pull.since == -2 || first < 0 || numbers < 0 || wait_s < 0 || (offset && !count)) {
        fth_refuse(service->parts->metrics, exchange, FTH_REFUSAL_MALFORMED,
                   "since, wait, offset and count are whole numbers, and offset comes with count");
        return;
    }
    bool known = note_worker(service, exchange, pull.worker), polls = pull.since >= 0;
    if (known)
        wait_s = fmin(wait_s, fth_workers_longest_wait_s(service->parts->workers, pull.worker));
    pull.until_s = fth_clock_seconds() + (polls ? fmin(wait_s, MOST_WAIT_S) : DEFAULT_WAIT_S);
    int64_t version = fth_served_position_version(service->parts->position);
    if (!polls && unless == version) {
        char tag[32];
        snprintf(tag, sizeof tag, "\"%" PRId64 "\"", version);
        fth_exchange_set_header(exchange, "ETag", tag);
        fth_exchange_answer(exchange, 304, NULL, NULL, 0);
        return;
    }
    fth_parameter_snapshots_pull(service->parts->snapshots, &pull);
}

/* The text of the exported network that is trained. */
static void get_network(void *context, fth_exchange *exchange)
{
    fth_parameter_service *service = context;
    const char *text = fth_run_network_text(service->parts->model->train);
    char name[FTH_MAX_WORKER_NAME + 1];
    note_worker(service, exchange, name);
    if (text)
        fth_exchange_answer(exchange, 200, "application/json", text, strlen(text));
    else
        fth_exchange_answer_json(exchange, 404,
                                 json_pack("{s:i, s:s}", "code", 404, "error", "the model is not an exported network"));
}

static void get_health(void *context, fth_exchange *exchange)
{
    fth_parameter_service *service = context;
    int code = 0;
    json_t *json = fth_health_describe(service->parts->health, &code);
    fth_exchange_answer_json(exchange, code, json);
}

static void get_metrics(void *context, fth_exchange *exchange)
{
    fth_parameter_service *service = context;
    const fth_server *http = atomic_load(&service->http);
    fth_validation last = {.accuracy = NAN};
    fth_served_validator_get(service->parts->validator, &last);
    fth_metrics_gauges gauges = {.workers = service->parts->workers,
                                 .http = http,
                                 .access = service->parts->access,
                                 .bodies_bytes = (http ? fth_server_body_bytes(http) : 0) +
                                                 fth_intake_local_bytes(service->parts->intake),
                                 .accuracy = last.accuracy};
    gauges.snapshots = fth_parameter_snapshots_count(service->parts->snapshots, &gauges.snapshots_bytes);
    char *text = fth_metrics_format(service->parts->metrics, &gauges);
    fth_exchange_answer(exchange, text ? 200 : 500, "text/plain; version=0.0.4", text, text ? strlen(text) : 0);
    free(text);
}

static void get_openapi(void *context, fth_exchange *exchange)
{
    (void)context;
    fth_exchange_answer(exchange, 200, "application/yaml", fth_parameters_openapi, fth_parameters_openapi_size);
}

/* ---- what changes something ---- */

static fth_server_request *make_request(fth_parameter_service *service, fth_exchange *exchange,
                                        fth_server_request_kind kind)
{
    const fth_signed *who = fth_access_signer(exchange);
    fth_server_request *request = calloc(1, sizeof *request);
    if (!request) {
        fth_refuse(service->parts->metrics, exchange, FTH_REFUSAL_BUSY, "no memory for this request");
        return NULL;
    }
    request->kind = kind;
    request->seen = INFINITY;
    request->exchange = exchange;
    if (who)
        request->who = *who;
    return request;
}

static void put_gradient(void *context, fth_exchange *exchange)
{
    fth_parameter_service *service = context;
    fth_server_request *request = make_request(service, exchange, FTH_REQUEST_GRADIENT);
    if (!request)
        return;
    request->body = fth_exchange_body(exchange, &request->body_bytes);
    const char *local = fth_exchange_header(exchange, FTH_LOCAL_HEADER);
    if (local && (request->body_bytes > 0 || !fth_local_is_loopback(fth_exchange_client(exchange)) ||
                  !fth_local_parse(local, &request->place))) {
        fth_refuse(service->parts->metrics, exchange, FTH_REFUSAL_MALFORMED,
                   FTH_LOCAL_HEADER " is PID FD SIZE STAMP, of a process of this machine, without a body");
        fth_server_request_free(service->parts->intake, request);
        return;
    }
    atomic_fetch_add(&service->parts->metrics->received_bytes, local ? request->place.size_bytes : request->body_bytes);
    fth_intake_submit(service->parts->intake, request);
}

static void make_name(const char *prefix, char *name, size_t size)
{
    uint64_t random = 0;
    if (RAND_bytes((unsigned char *)&random, sizeof random) != 1)
        random = (uint64_t)(fth_clock_seconds() * 1e9);
    snprintf(name, size, "%s%016" PRIx64, prefix, random);
}

/* The worker's name in {"worker": "w1"}, or "0" of the prototype's {"id": 0}; NULL if there is
 * none. A new reference. */
static json_t *read_name(const json_t *json)
{
    const json_t *worker = json_object_get(json, "worker"), *id = json_object_get(json, "id");
    if (!worker && json_is_integer(id))
        return json_sprintf("%" JSON_INTEGER_FORMAT, json_integer_value(id));
    return json_incref((json_t *)(worker ? worker : id));
}

/* Reads {"worker", "instance", ...} from the body into the request, or refuses and frees it. */
static bool read_worker(fth_parameter_service *service, fth_exchange *exchange, fth_server_request *request,
                        bool needs_name)
{
    size_t size = 0;
    const char *body = fth_exchange_body(exchange, &size);
    json_error_t error;
    json_t *json = size > 0 ? json_loadb(body, size, JSON_REJECT_DUPLICATES, &error) : json_object();
    json_t *worker = read_name(json);
    const json_t *instance = json_object_get(json, "instance");
    bool good = json_is_object(json) && (!worker || json_is_string(worker)) &&
                (!instance || json_is_string(instance)) &&
                (!worker || fth_worker_name_valid(json_string_value(worker))) &&
                (!instance || fth_worker_name_valid(json_string_value(instance))) && (worker || !needs_name);
    if (good && worker)
        snprintf(request->worker, sizeof request->worker, "%s", json_string_value(worker));
    else
        make_name("worker-", request->worker, sizeof request->worker);
    if (good && instance)
        snprintf(request->instance, sizeof request->instance, "%s", json_string_value(instance));
    else
        make_name("", request->instance, sizeof request->instance);
    request->json = json;
    json_decref(worker);
    if (good)
        return true;
    fth_refuse(service->parts->metrics, exchange, FTH_REFUSAL_MALFORMED,
               "expected {\"worker\": name%s}: 1 to 64 letters, digits, '.', '_' or '-'",
               needs_name ? "" : ", \"instance\": text");
    fth_server_request_free(service->parts->intake, request);
    return false;
}

static void submit_for_worker(fth_parameter_service *service, fth_exchange *exchange, fth_server_request_kind kind)
{
    if (!fth_access_check_body(exchange))
        return;
    fth_server_request *request = make_request(service, exchange, kind);
    if (request && read_worker(service, exchange, request, kind != FTH_REQUEST_REGISTER))
        fth_intake_submit(service->parts->intake, request);
}

static void register_worker(void *context, fth_exchange *exchange)
{
    submit_for_worker(context, exchange, FTH_REQUEST_REGISTER);
}

static void unregister_worker(void *context, fth_exchange *exchange)
{
    submit_for_worker(context, exchange, FTH_REQUEST_UNREGISTER);
}

static void take_shard(void *context, fth_exchange *exchange)
{
    submit_for_worker(context, exchange, FTH_REQUEST_TAKE_SHARD);
}

static void return_shard(void *context, fth_exchange *exchange)
{
    submit_for_worker(context, exchange, FTH_REQUEST_RETURN_SHARD);
}

static void list_shards(void *context, fth_exchange *exchange)
{
    fth_parameter_service *service = context;
    char name[FTH_MAX_WORKER_NAME + 1];
    note_worker(service, exchange, name);
    fth_server_request *request = make_request(service, exchange, FTH_REQUEST_LIST_SHARDS);
    if (request)
        fth_intake_submit(service->parts->intake, request);
}

static void save_checkpoint(void *context, fth_exchange *exchange)
{
    fth_parameter_service *service = context;
    if (!fth_access_check_body(exchange))
        return;
    fth_server_request *request = make_request(service, exchange, FTH_REQUEST_CHECKPOINT);
    if (request)
        fth_intake_submit(service->parts->intake, request);
}

/* ---- the table ---- */

static const fth_route routes[] = {
    {"GET", "/getVersion", get_version, FTH_ROLE_READ, 0, NULL},
    {"GET", "/getAccuracy", get_accuracy, FTH_ROLE_READ, 0, NULL},
    {"GET", "/getParameter", get_parameter, FTH_ROLE_READ, 0, NULL},
    {"GET", "/getNetwork", get_network, FTH_ROLE_READ, 0, NULL},
    {"POST", "/putGradient", put_gradient, FTH_ROLE_TRAIN, FTH_SERVER_BODY, NULL}, /* the limit depends on the model */
    {"POST", "/registerWorker", register_worker, FTH_ROLE_TRAIN, MAX_JSON_BODY, NULL},
    {"POST", "/unregisterWorker", unregister_worker, FTH_ROLE_TRAIN, MAX_JSON_BODY, NULL},
    {"POST", "/takeShard", take_shard, FTH_ROLE_TRAIN, MAX_JSON_BODY, NULL},
    {"POST", "/returnShard", return_shard, FTH_ROLE_TRAIN, MAX_JSON_BODY, NULL},
    {"GET", "/shards", list_shards, FTH_ROLE_READ, 0, NULL},
    {"POST", "/saveCheckpoint", save_checkpoint, FTH_ROLE_ADMIN, MAX_JSON_BODY, NULL},
    {"GET", "/healthz", get_health, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/metrics", get_metrics, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/openapi.yaml", get_openapi, FTH_ROLE_NONE, 0, NULL},
    {0},
};

/* ---- beginning and end ---- */

fth_status fth_parameter_service_start(const fth_server_parts *parts, fth_parameter_service **result)
{
    fth_status status = FTH_OK;
    const fth_parameters_options *options = parts->options;
    fth_parameter_service *service = NULL;
    fth_server *http = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *service, &service));
    service->parts = parts;
    FTH_TRY(fth_server_start(&(fth_server_options){.address = options->address,
                                                   .port = options->port,
                                                   .routes = routes,
                                                   .context = service,
                                                   .access = parts->access,
                                                   .refuse = refuse,
                                                   .max_body_bytes = parts->model->max_body_bytes,
                                                   .certificate_pem = options->certificate_pem,
                                                   .key_pem = options->key_pem,
                                                   .threads = 4,
                                                   .max_connections = 4096,
                                                   .max_memory_bytes = options->max_memory_bytes},
                             &http));
    atomic_store(&service->http, http);
    fth_parameter_snapshots_set_server(parts->snapshots, http);
    *result = service;
    service = NULL;

out:
    free(service);
    return status;
}

int fth_parameter_service_port(const fth_parameter_service *service)
{
    return fth_server_port(atomic_load(&service->http));
}

void fth_parameter_service_stop(fth_parameter_service *service, double seconds)
{
    if (!service)
        return;
    fth_parameter_snapshots_set_server(service->parts->snapshots, NULL);
    fth_server_stop(atomic_load(&service->http), seconds);
    free(service);
}
