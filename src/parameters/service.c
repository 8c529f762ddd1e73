/* The routes, who may use them, and the threads that check bodies before they are queued for applying. Handlers run in
 * the HTTP server's threads and do nothing that takes long: they read atomics, or queue what they have and hold it. */
#include <inttypes.h>
#include <math.h>
#include <openssl/rand.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parameters/parameters_internal.h"
#include "parameters/rates.h"

enum { MAX_JSON_BODY = 4096, HELD_S = 120, DEFAULT_WAIT_S = 30, MOST_WAIT_S = 60 };

/* ---- refusing ---- */

void fth_parameters_refuse(fth_parameters *server, fth_exchange *exchange, fth_refusal refusal, const char *format, ...)
{
    char message[FTH_MAX_REFUSAL];
    va_list arguments;
    va_start(arguments, format);
    fth_printable_format(message, sizeof message, format, arguments); /* it may quote what is not UTF-8 */
    va_end(arguments);
    atomic_fetch_add(&server->metrics.refused[refusal], 1);
    int code = fth_refusal_code(refusal);
    if (code == 503 || code == 429)
        fth_exchange_set_header(exchange, "Retry-After", "1");
    json_t *json = json_pack("{s:i, s:s, s:s, s:I}", "code", code, "error", message, "reason",
                             fth_refusal_name(refusal), "version", (json_int_t)atomic_load(&server->version));
    fth_exchange_answer_json(exchange, code, json);
}

/* ---- who may ---- */

/* Who signed a request; stays with it. */
typedef struct visitor {
    fth_signed who;
} visitor;

/* What a caller may do who signs nothing. */
static fth_role unsigned_role(const fth_parameters *server)
{
    if (!server->keys)
        return FTH_ROLE_ADMIN;
    return server->options.open_reads ? FTH_ROLE_READ : FTH_ROLE_NONE;
}

/* A request that nobody signed, by the name that it is for. What is open to everybody on a server with keys is asked
 * for under whatever name a monitor or a load balancer knows. */
static bool check_host(fth_parameters *server, fth_exchange *exchange, const fth_route *route)
{
    const char *host = fth_exchange_header(exchange, "Host");
    if ((server->keys && route->role == FTH_ROLE_NONE) || fth_hosts_know(server->hosts, host))
        return true;
    fth_parameters_refuse(server, exchange, FTH_REFUSAL_HOST,
                          "\"%.100s\" is not a name of this server; if it is meant to be, start it with --host-name",
                          host);
    return false;
}

static bool check_origin(fth_parameters *server, fth_exchange *exchange)
{
    const char *origin = fth_exchange_header(exchange, "Origin");
    if (!fth_origin_is_foreign(origin, fth_exchange_header(exchange, "Sec-Fetch-Site"),
                               fth_exchange_header(exchange, "Host")))
        return true;
    fth_parameters_refuse(server, exchange, FTH_REFUSAL_ORIGIN,
                          "a page in a browser asks (Origin: %.100s); this server is for programs",
                          origin ? origin : "not said");
    return false;
}

static void refuse_time(fth_parameters *server, fth_exchange *exchange, const fth_signed *who)
{
    bool ahead = who->ahead_s > 0;
    fth_parameters_refuse(server, exchange, FTH_REFUSAL_CLOCK,
                          "the time of the request lies %" PRId64 " s in the %s of the server's clock; "
                          "check the clocks of both machines",
                          ahead ? who->ahead_s : -who->ahead_s, ahead ? "future" : "past");
}

static void forbid(void *context, fth_exchange *exchange, const fth_route *route, fth_role role)
{
    fth_parameters_refuse(context, exchange, FTH_REFUSAL_FORBIDDEN, "this key's role is %s; %s is needed",
                          fth_role_name(role), fth_role_name(route->role));
}

static bool admit(void *context, fth_exchange *exchange, const fth_route *route, fth_role *role)
{
    fth_parameters *server = context;
    const char *method = fth_exchange_method(exchange);
    const char *header = fth_exchange_header(exchange, "Authorization");

    if (server->rates && !fth_rates_allow(server->rates, fth_exchange_client(exchange))) {
        fth_parameters_refuse(server, exchange, FTH_REFUSAL_RATE, "more than %g requests a second",
                              server->options.max_requests_per_s);
        return false;
    }
    if (!check_origin(server, exchange))
        return false;
    *role = unsigned_role(server);
    if (!server->keys || (route->role <= *role && !header))
        return check_host(server, exchange, route);
    visitor *who = calloc(1, sizeof *who);
    if (!who)
        return false;
    fth_signature_result result = fth_keys_check(server->keys, header, method, fth_exchange_target(exchange),
                                                 strcmp(method, "POST") == 0, &who->who);
    atomic_fetch_add(&server->metrics.signatures[result], 1);
    if (result == FTH_SIGNATURE_GOOD) {
        *role = who->who.role;
        fth_exchange_set_data(exchange, who, free);
        return true;
    }
    if (result == FTH_SIGNATURE_FULL)
        fth_parameters_refuse(server, exchange, FTH_REFUSAL_BUSY, "too many signed requests; try again later");
    else if (result == FTH_SIGNATURE_OLD || result == FTH_SIGNATURE_FUTURE)
        refuse_time(server, exchange, &who->who);
    else {
        fth_exchange_set_header(exchange, "WWW-Authenticate", "FTH1");
        fth_parameters_refuse(server, exchange, FTH_REFUSAL_UNSIGNED, "the signature is %s",
                              fth_signature_result_name(result));
    }
    free(who);
    return false;
}

static const visitor *visitor_of(const fth_exchange *exchange)
{
    return fth_exchange_get_data(exchange);
}

/* The body is what was signed; else refused. */
static bool check_body(fth_parameters *server, fth_exchange *exchange)
{
    const visitor *who = visitor_of(exchange);
    size_t size = 0;
    const void *body = fth_exchange_body(exchange, &size);
    if (!server->keys || (who && fth_signed_body_matches(&who->who, body, size)))
        return true;
    fth_parameters_refuse(server, exchange, FTH_REFUSAL_BODY, "the body is not the one that was signed");
    return false;
}

/* The worker that a request names, its lease renewed; "" if it names none. */
static void note_worker(fth_parameters *server, fth_exchange *exchange, char name[FTH_MAX_WORKER_NAME + 1])
{
    const char *text = fth_exchange_header(exchange, "X-Farthing-Worker");
    const visitor *who = visitor_of(exchange);
    if (!text)
        text = fth_exchange_query(exchange, "worker");
    *name = '\0';
    if (!text || !fth_worker_name_valid(text) || (server->keys && !who))
        return;
    if (fth_workers_renew(server->workers, text, who ? who->who.access : ""))
        snprintf(name, FTH_MAX_WORKER_NAME + 1, "%s", text);
}

/* ---- reads ---- */

static void get_version(void *context, fth_exchange *exchange)
{
    fth_parameters *server = context;
    char name[FTH_MAX_WORKER_NAME + 1], text[64];
    note_worker(server, exchange, name);
    int length =
        snprintf(text, sizeof text, "{\"code\":200,\"version\":%" PRId64 "}", (int64_t)atomic_load(&server->version));
    fth_exchange_answer(exchange, 200, "application/json", text, (size_t)length);
}

static void get_accuracy(void *context, fth_exchange *exchange)
{
    fth_parameters *server = context;
    char name[FTH_MAX_WORKER_NAME + 1];
    note_worker(server, exchange, name);
    pthread_mutex_lock(&server->mutex);
    bool known = server->validation.known;
    json_t *json = json_pack("{s:i, s:o, s:o, s:o}", "code", 200, "version",
                             known ? json_integer(server->validation.version) : json_null(), "accuracy",
                             known ? json_real(server->validation.accuracy) : json_null(), "loss",
                             known ? json_real(server->validation.loss) : json_null());
    pthread_mutex_unlock(&server->mutex);
    fth_exchange_answer_json(exchange, 200, json);
}

/* A whole number from a query or a header's tag; `fallback` where there is none, -2 where it is not valid. */
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
    fth_parameters *server = context;
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
        fth_parameters_refuse(server, exchange, FTH_REFUSAL_MALFORMED,
                              "since, wait, offset and count are whole numbers, and offset comes with count");
        return;
    }
    note_worker(server, exchange, pull.worker);
    bool polls = pull.since >= 0;
    if (*pull.worker) /* so that whoever waits, and asks again, keeps its lease */
        wait_s = fmin(wait_s, server->options.lease_s / 2);
    pull.until_s = fth_clock_seconds() + (polls ? fmin(wait_s, MOST_WAIT_S) : DEFAULT_WAIT_S);
    int64_t version = atomic_load(&server->version);
    if (!polls && unless == version) {
        char tag[32];
        snprintf(tag, sizeof tag, "\"%" PRId64 "\"", version);
        fth_exchange_set_header(exchange, "ETag", tag);
        fth_exchange_answer(exchange, 304, NULL, NULL, 0);
        return;
    }
    pthread_mutex_lock(&server->mutex);
    bool done = fth_pull_try(server, &pull);
    if (!done && !server->applying_ended) {
        fth_pull *waiting = malloc(sizeof *waiting);
        if (waiting) {
            *waiting = pull;
            fth_exchange_hold(exchange, MOST_WAIT_S + 5, 503);
            waiting->next = server->pulls;
            server->pulls = waiting;
            pthread_cond_signal(&server->work);
            done = true;
        }
    }
    pthread_mutex_unlock(&server->mutex);
    if (!done)
        fth_parameters_refuse(server, exchange, FTH_REFUSAL_BUSY, "the server is stopping");
}

static void get_health(void *context, fth_exchange *exchange)
{
    fth_parameters *server = context;
    pthread_mutex_lock(&server->mutex);
    bool failed = server->failure != FTH_OK, stopping = server->stopping;
    fth_unfit_news unfit = server->unfit;
    pthread_mutex_unlock(&server->mutex);
    int code = failed || stopping ? 503 : 200;
    json_t *json = json_pack("{s:i, s:s, s:I, s:I}", "code", code, "status",
                             failed     ? "failed"
                             : stopping ? "stopping"
                                        : "ok",
                             "version", (json_int_t)atomic_load(&server->version), "unfit", (json_int_t)unfit.count);
    if (unfit.count > 0)
        json_object_set_new(json, "last_unfit",
                            json_pack("{s:s, s:I, s:f, s:s}", "worker", unfit.worker, "version",
                                      (json_int_t)unfit.version, "seconds_ago", fth_clock_seconds() - unfit.at_s,
                                      "error", unfit.why));
    fth_exchange_answer_json(exchange, code, json);
}

static void get_metrics(void *context, fth_exchange *exchange)
{
    char *text = fth_metrics_format(context);
    fth_exchange_answer(exchange, text ? 200 : 500, "text/plain; version=0.0.4", text, text ? strlen(text) : 0);
    free(text);
}

static void get_openapi(void *context, fth_exchange *exchange)
{
    (void)context;
    fth_exchange_answer(exchange, 200, "application/yaml", fth_parameters_openapi, fth_parameters_openapi_size);
}

/* ---- what changes something ---- */

static fth_item *make_item(fth_parameters *server, fth_exchange *exchange, fth_item_kind kind)
{
    const visitor *who = visitor_of(exchange);
    fth_item *item = calloc(1, sizeof *item);
    if (!item) {
        fth_parameters_refuse(server, exchange, FTH_REFUSAL_BUSY, "no memory for this request");
        return NULL;
    }
    item->kind = kind;
    item->seen = INFINITY;
    item->exchange = exchange;
    if (who) {
        item->who = who->who;
        snprintf(item->access, sizeof item->access, "%s", who->who.access);
        item->role = who->who.role;
    }
    return item;
}

/* Holds the exchange and queues the item; the applying thread, or a checking one, answers. */
static void enqueue(fth_parameters *server, fth_item *item)
{
    fth_exchange *exchange = item->exchange;
    bool gradient = item->kind == FTH_ITEM_GRADIENT;
    pthread_mutex_lock(&server->mutex);
    bool ended = server->stopping;
    if (!ended) {
        fth_exchange_hold(exchange, HELD_S, 503);
        fth_queue_put(gradient ? &server->unchecked : &server->queue, item);
        pthread_cond_signal(gradient ? &server->arrived : &server->work);
    }
    pthread_mutex_unlock(&server->mutex);
    if (ended) {
        fth_parameters_refuse(server, exchange, FTH_REFUSAL_BUSY, "the server is stopping");
        fth_item_free(server, item);
    }
}

static void put_gradient(void *context, fth_exchange *exchange)
{
    fth_parameters *server = context;
    fth_item *item = make_item(server, exchange, FTH_ITEM_GRADIENT);
    if (!item)
        return;
    item->body = fth_exchange_body(exchange, &item->body_bytes);
    const char *local = fth_exchange_header(exchange, FTH_LOCAL_HEADER);
    if (local && (item->body_bytes > 0 || !fth_local_is_loopback(fth_exchange_client(exchange)) ||
                  !fth_local_parse(local, &item->place))) {
        fth_parameters_refuse(server, exchange, FTH_REFUSAL_MALFORMED,
                              FTH_LOCAL_HEADER " is PID FD SIZE STAMP, of a process of this machine, without a body");
        fth_item_free(server, item);
        return;
    }
    atomic_fetch_add(&server->metrics.received_bytes, local ? item->place.size_bytes : item->body_bytes);
    enqueue(server, item);
}

static void make_name(const char *prefix, char *name, size_t size)
{
    uint64_t random = 0;
    if (RAND_bytes((unsigned char *)&random, sizeof random) != 1)
        random = (uint64_t)(fth_clock_seconds() * 1e9);
    snprintf(name, size, "%s%016" PRIx64, prefix, random);
}

/* Reads {"worker", "instance"} of a body into the item; refuses and frees it otherwise. */
static bool read_worker(fth_parameters *server, fth_exchange *exchange, fth_item *item, bool needs_name)
{
    size_t size = 0;
    const char *body = fth_exchange_body(exchange, &size);
    json_error_t error;
    json_t *json = size > 0 ? json_loadb(body, size, JSON_REJECT_DUPLICATES, &error) : json_object();
    const json_t *worker = json_object_get(json, "worker"), *instance = json_object_get(json, "instance");
    bool good = json_is_object(json) && (!worker || json_is_string(worker)) &&
                (!instance || json_is_string(instance)) &&
                (!worker || fth_worker_name_valid(json_string_value(worker))) &&
                (!instance || fth_worker_name_valid(json_string_value(instance))) && (worker || !needs_name);
    if (good && worker)
        snprintf(item->worker, sizeof item->worker, "%s", json_string_value(worker));
    else
        make_name("worker-", item->worker, sizeof item->worker);
    if (good && instance)
        snprintf(item->instance, sizeof item->instance, "%s", json_string_value(instance));
    else
        make_name("", item->instance, sizeof item->instance);
    json_decref(json);
    if (good)
        return true;
    fth_parameters_refuse(server, exchange, FTH_REFUSAL_MALFORMED,
                          "expected {\"worker\": name%s}: 1 to 64 letters, digits, '.', '_' or '-'",
                          needs_name ? "" : ", \"instance\": text");
    fth_item_free(server, item);
    return false;
}

static void change_worker(fth_parameters *server, fth_exchange *exchange, fth_item_kind kind)
{
    if (!check_body(server, exchange))
        return;
    fth_item *item = make_item(server, exchange, kind);
    if (item && read_worker(server, exchange, item, kind == FTH_ITEM_UNREGISTER))
        enqueue(server, item);
}

static void register_worker(void *context, fth_exchange *exchange)
{
    change_worker(context, exchange, FTH_ITEM_REGISTER);
}

static void unregister_worker(void *context, fth_exchange *exchange)
{
    change_worker(context, exchange, FTH_ITEM_UNREGISTER);
}

static void save_checkpoint(void *context, fth_exchange *exchange)
{
    fth_parameters *server = context;
    if (!check_body(server, exchange))
        return;
    fth_item *item = make_item(server, exchange, FTH_ITEM_CHECKPOINT);
    if (item)
        enqueue(server, item);
}

/* ---- the table ---- */

static const fth_route routes[] = {
    {"GET", "/getVersion", get_version, FTH_ROLE_READ, 0, NULL},
    {"GET", "/getAccuracy", get_accuracy, FTH_ROLE_READ, 0, NULL},
    {"GET", "/getParameter", get_parameter, FTH_ROLE_READ, 0, NULL},
    {"POST", "/putGradient", put_gradient, FTH_ROLE_TRAIN, FTH_SERVER_BODY, NULL}, /* known with the model */
    {"POST", "/registerWorker", register_worker, FTH_ROLE_TRAIN, MAX_JSON_BODY, NULL},
    {"POST", "/unregisterWorker", unregister_worker, FTH_ROLE_TRAIN, MAX_JSON_BODY, NULL},
    {"POST", "/saveCheckpoint", save_checkpoint, FTH_ROLE_ADMIN, MAX_JSON_BODY, NULL},
    {"GET", "/healthz", get_health, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/metrics", get_metrics, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/openapi.yaml", get_openapi, FTH_ROLE_NONE, 0, NULL},
    {0},
};

fth_status fth_parameters_serve(fth_parameters *server)
{
    const fth_parameters_options *options = &server->options;
    fth_server_options http = {.address = options->address,
                               .port = options->port,
                               .routes = routes,
                               .context = server,
                               .admit = admit,
                               .forbid = forbid,
                               .max_body_bytes = server->max_body_bytes,
                               .certificate_pem = options->certificate_pem,
                               .key_pem = options->key_pem,
                               .threads = 4,
                               .max_connections = 4096,
                               .max_memory_bytes = options->max_memory_bytes};
    fth_server *started = NULL;
    fth_status status = fth_server_start(&http, &started);
    pthread_mutex_lock(&server->mutex); /* the applying thread runs already */
    server->http = started;
    pthread_mutex_unlock(&server->mutex);
    return status;
}
