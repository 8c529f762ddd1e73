/* A function over HTTP that prepares items: it is POSTed an order, and answers what came of it (coordinator.h).
 *
 *     POST /, POST /run   the order; or {"value":{order}}, as OpenWhisk's runtime sends it
 *     POST /init          OpenWhisk's first request: {"ok":true}
 *     GET  /healthz
 *
 * Answers are held, so requests cost no threads. One thread hands each order to the client of its coordinator and cache, which it
 * opens if need be: that may block, and handlers must not. A request:
 *
 *     incoming -> queue of a client -> being made -> answered
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "batches/prefetch/remote_preparer.h"
#include "batches/prefetch/worker.h"
#include "http/access.h"
#include "http/server.h"

enum { MOST_CLIENTS = 4, MOST_REQUESTS = 256, MOST_BODY_BYTES = 64 << 10, ADDRESS_TEXT = 1024 };
#define ORDER_S 120.0 /* who asked gives up before that */

typedef struct function_request {
    fth_order order;
    char url[ADDRESS_TEXT], cache[ADDRESS_TEXT];
    fth_exchange *exchange;
    struct function_request *next;
} function_request;

/* Requests in the order in which they came. */
typedef struct request_list {
    function_request *first;
} request_list;

typedef struct function_client {
    fth_prefetch_function *function;
    char url[ADDRESS_TEXT], cache[ADDRESS_TEXT];
    fth_remote_preparer *remote;
    request_list queue, making; /* guarded by the function's mutex */
} function_client;

struct fth_prefetch_function {
    fth_prefetch_function_options with;
    char *url;
    fth_access *access; /* NULL: everybody may ask */
    fth_server *server;
    pthread_t router;
    bool has_router;
    function_client *clients[MOST_CLIENTS]; /* of the router thread */
    int client_count;

    pthread_mutex_t mutex; /* guards what follows, and the clients' lists */
    pthread_cond_t changed;
    request_list incoming;
    int request_count;
    bool stopping;
};

/* ---- lists ---- */

static void append(request_list *list, function_request *request)
{
    function_request **last = &list->first;
    while (*last)
        last = &(*last)->next;
    request->next = NULL;
    *last = request;
}

static function_request *pop(request_list *list)
{
    function_request *request = list->first;
    if (request)
        list->first = request->next;
    return request;
}

/* Takes the first request for an item off the list; NULL: there is none. */
static function_request *pop_item(request_list *list, fth_item_id id)
{
    for (function_request **at = &list->first; *at; at = &(*at)->next)
        if (fth_item_id_equal((*at)->order.id, id)) {
            function_request *found = *at;
            *at = found->next;
            return found;
        }
    return NULL;
}

/* ---- answers ---- */

static void answer(fth_prefetch_function *function, function_request *request, fth_status status, const char *reason,
                   const fth_preparation *preparation)
{
    fth_exchange_answer_json(request->exchange, 200, fth_result_save(&request->order, status, reason, preparation));
    free(request);
    pthread_mutex_lock(&function->mutex);
    function->request_count--;
    pthread_mutex_unlock(&function->mutex);
}

/* ---- for the clients ---- */

static bool take(void *context, fth_remote_preparer *remote, fth_deadline deadline, fth_order *order)
{
    function_client *client = context;
    fth_prefetch_function *function = client->function;
    struct timespec until = fth_deadline_timespec(deadline);
    function_request *request = NULL;
    int waited = 0;
    (void)remote;

    pthread_mutex_lock(&function->mutex);
    while (!request) {
        while (!client->queue.first && waited == 0 && !function->stopping)
            waited = pthread_cond_clockwait(&function->changed, &function->mutex, CLOCK_MONOTONIC, &until);
        request = pop(&client->queue);
        if (!request)
            break;
        if (fth_exchange_is_abandoned(request->exchange)) { /* nobody waits for it */
            pthread_mutex_unlock(&function->mutex);
            answer(function, request, FTH_INTERRUPTED, "nobody waits for it any more", NULL);
            pthread_mutex_lock(&function->mutex);
            request = NULL;
            continue;
        }
        *order = request->order;
        append(&client->making, request);
    }
    pthread_mutex_unlock(&function->mutex);
    return request != NULL;
}

static void done(void *context, const fth_order *order, fth_status status, const char *reason,
                 const fth_preparation *preparation)
{
    function_client *client = context;
    pthread_mutex_lock(&client->function->mutex);
    function_request *request = pop_item(&client->making, order->id);
    pthread_mutex_unlock(&client->function->mutex);
    if (request)
        answer(client->function, request, status, reason, preparation);
}

/* ---- routing ---- */

static fth_status open_client(fth_prefetch_function *function, const function_request *request,
                              function_client **opened)
{
    fth_status status = FTH_OK;
    function_client *client = NULL;

    FTH_REQUIRE(function->client_count < MOST_CLIENTS, FTH_IO, "this function works for %d coordinators already",
                MOST_CLIENTS);
    FTH_TRY(fth_allocate(1, sizeof *client, &client));
    client->function = function;
    memcpy(client->url, request->url, sizeof client->url);
    memcpy(client->cache, request->cache, sizeof client->cache);
    FTH_TRY(fth_remote_preparer_open(&(fth_remote_preparer_options){.url = client->url,
                                                                    .pinned_key = function->with.pinned_key,
                                                                    .ca_file = function->with.ca_file,
                                                                    .cache = client->cache,
                                                                    .threads = function->with.threads,
                                                                    .limit_s = ORDER_S,
                                                                    .context = client,
                                                                    .take = take,
                                                                    .done = done},
                                     &client->remote));
    function->clients[function->client_count++] = *opened = client;
    client = NULL;

out:
    free(client);
    return status;
}

static fth_status find_client(fth_prefetch_function *function, const function_request *request,
                              function_client **client)
{
    for (int i = 0; i < function->client_count; i++)
        if (strcmp(function->clients[i]->url, request->url) == 0 &&
            strcmp(function->clients[i]->cache, request->cache) == 0) {
            *client = function->clients[i];
            return FTH_OK;
        }
    return open_client(function, request, client);
}

static void route_request(fth_prefetch_function *function, function_request *request)
{
    function_client *client = NULL;
    fth_status status = find_client(function, request, &client);
    if (status != FTH_OK) {
        char reason[512];
        snprintf(reason, sizeof reason, "%s", fth_error_message());
        answer(function, request, status, reason, NULL);
        return;
    }
    pthread_mutex_lock(&function->mutex);
    append(&client->queue, request);
    pthread_cond_broadcast(&function->changed);
    pthread_mutex_unlock(&function->mutex);
}

static void *run_router(void *context)
{
    fth_prefetch_function *function = context;
    pthread_mutex_lock(&function->mutex);
    while (!function->stopping) {
        function_request *request = pop(&function->incoming);
        if (!request) {
            pthread_cond_wait(&function->changed, &function->mutex); /* ended by a request, or the stop */
            continue;
        }
        pthread_mutex_unlock(&function->mutex);
        route_request(function, request);
        pthread_mutex_lock(&function->mutex);
    }
    pthread_mutex_unlock(&function->mutex);
    return NULL;
}

/* ---- HTTP ---- */

static void refuse(void *context, fth_exchange *exchange, fth_access_refusal why, const char *message)
{
    static const int codes[] = {
        [FTH_ACCESS_FORBIDDEN] = 403, [FTH_ACCESS_UNSIGNED] = 401, [FTH_ACCESS_CLOCK] = 401, [FTH_ACCESS_BODY] = 401,
        [FTH_ACCESS_HOST] = 403,      [FTH_ACCESS_ORIGIN] = 403,   [FTH_ACCESS_BUSY] = 503,  [FTH_ACCESS_RATE] = 429};
    (void)context;
    fth_exchange_answer_json(exchange, codes[why], json_pack("{s:s}", "error", message));
}

static bool admit(void *context, fth_exchange *exchange, const fth_route *route, fth_role *role)
{
    fth_prefetch_function *function = context;
    if (function->access)
        return fth_access_admit(function->access, &(fth_refuser){NULL, refuse}, exchange, route, role);
    *role = FTH_ROLE_ADMIN;
    return true;
}

static void forbid(void *context, fth_exchange *exchange, const fth_route *route, fth_role role)
{
    (void)context;
    fth_access_forbid(&(fth_refuser){NULL, refuse}, exchange, route, role);
}

/* An order, and for whom it is. */
static fth_status read_request(const fth_prefetch_function *function, const json_t *body, function_request *request)
{
    fth_status status = FTH_OK;
    const json_t *value = json_object_get(body, "value"), *order = value ? value : body;
    const char *cache = json_string_value(json_object_get(order, "cache"));
    const char *address = json_string_value(json_object_get(order, "address"));

    FTH_TRY(fth_order_load(order, &request->order));
    FTH_REQUIRE(cache && *cache && strlen(cache) < sizeof request->cache, FTH_INVALID,
                "order: \"cache\" must be the address of a cache");
    FTH_REQUIRE(function->url || (address && *address), FTH_INVALID,
                "order: \"address\" must be that of its coordinator; or give the function --server");
    FTH_REQUIRE(!address || strlen(address) < sizeof request->url, FTH_INVALID, "order: \"address\" is too long");
    snprintf(request->url, sizeof request->url, "%s", function->url ? function->url : address);
    snprintf(request->cache, sizeof request->cache, "%s", cache);

out:
    return status;
}

static void handle_order(void *context, fth_exchange *exchange)
{
    fth_status status = FTH_OK;
    fth_prefetch_function *function = context;
    function_request *request = NULL;
    size_t size_bytes = 0;
    const char *bytes = fth_exchange_body(exchange, &size_bytes);
    json_t *body = json_loadb(bytes ? bytes : "", size_bytes, 0, NULL);

    if (function->access && !fth_access_check_body(function->access, &(fth_refuser){NULL, refuse}, exchange))
        goto answered;
    FTH_REQUIRE(json_is_object(body), FTH_INVALID, "the body must be an order as JSON");
    FTH_TRY(fth_allocate(1, sizeof *request, &request));
    FTH_TRY(read_request(function, body, request));
    request->exchange = exchange;
    pthread_mutex_lock(&function->mutex);
    bool room = function->request_count < MOST_REQUESTS && !function->stopping;
    if (room) {
        fth_exchange_hold(exchange, ORDER_S + 10, 503);
        function->request_count++;
        append(&function->incoming, request);
        request = NULL;
        pthread_cond_broadcast(&function->changed);
    }
    pthread_mutex_unlock(&function->mutex);
    if (!room)
        fth_exchange_answer_json(exchange, 503, json_pack("{s:s}", "error", "too many orders at once"));

out:
    if (status != FTH_OK)
        fth_exchange_answer_json(
            exchange, status == FTH_INVALID ? 400 : 503,
            json_pack("{s:s, s:s}", "error", fth_error_message(), "status", fth_status_name(status)));
answered:
    free(request);
    json_decref(body);
}

static void handle_init(void *context, fth_exchange *exchange)
{
    (void)context;
    fth_exchange_answer_json(exchange, 200, json_pack("{s:b}", "ok", 1));
}

static void handle_health(void *context, fth_exchange *exchange)
{
    (void)context;
    fth_exchange_answer(exchange, 200, "text/plain", "ok\n", 3);
}

static const fth_route routes[] = {
    {.method = "POST", .path = "/", .handle = handle_order, .role = FTH_ROLE_TRAIN, .max_body_bytes = MOST_BODY_BYTES},
    {.method = "POST",
     .path = "/run",
     .handle = handle_order,
     .role = FTH_ROLE_TRAIN,
     .max_body_bytes = MOST_BODY_BYTES},
    {.method = "POST", .path = "/init", .handle = handle_init, .role = FTH_ROLE_TRAIN, .max_body_bytes = 64 << 20},
    {.method = "GET", .path = "/healthz", .handle = handle_health},
    {0},
};

/* ---- starting and stopping ---- */

fth_status fth_prefetch_function_start(const fth_prefetch_function_options *options, fth_prefetch_function **function)
{
    fth_status status = FTH_OK;
    fth_prefetch_function *started = NULL;

    FTH_TRY(fth_allocate(1, sizeof *started, &started));
    pthread_mutex_init(&started->mutex, NULL);
    pthread_cond_init(&started->changed, NULL);
    started->with = *options;
    if (options->url && *options->url)
        FTH_REQUIRE(started->url = fth_format("%s", options->url), FTH_NO_MEMORY, "no memory for an address");
    if (!options->open || options->keys)
        FTH_TRY(fth_access_create(&(fth_access_options){.address = options->address,
                                                        .keys = options->keys,
                                                        .host_names = options->host_names,
                                                        .certificate_pem = options->certificate_pem,
                                                        .max_requests_per_s = options->max_requests_per_s},
                                  &started->access));
    FTH_REQUIRE(fth_thread_start(&started->router, "route orders", run_router, started) == 0, FTH_NO_MEMORY,
                "cannot start a thread");
    started->has_router = true;
    FTH_TRY(fth_server_start(&(fth_server_options){.address = options->address,
                                                   .port = options->port,
                                                   .routes = routes,
                                                   .context = started,
                                                   .admit = admit,
                                                   .forbid = forbid,
                                                   .certificate_pem = options->certificate_pem,
                                                   .key_pem = options->key_pem},
                             &started->server));
    *function = started;
    started = NULL;

out:
    fth_prefetch_function_stop(started);
    return status;
}

int fth_prefetch_function_port(const fth_prefetch_function *function)
{
    return fth_server_port(function->server);
}

void fth_prefetch_function_stop(fth_prefetch_function *function)
{
    const double deadline_s = 5;
    function_request *request;
    if (!function)
        return;
    pthread_mutex_lock(&function->mutex);
    function->stopping = true;
    pthread_cond_broadcast(&function->changed);
    pthread_mutex_unlock(&function->mutex);
    if (function->has_router)
        pthread_join(function->router, NULL); /* a connection it opens has a deadline */
    for (int i = 0; i < function->client_count; i++) {
        function_client *client = function->clients[i];
        fth_remote_preparer_close(client->remote); /* what is being made ends, and is answered */
        while ((request = pop(&client->queue)))
            answer(function, request, FTH_INTERRUPTED, "stopped", NULL);
        free(client);
    }
    while ((request = pop(&function->incoming)))
        answer(function, request, FTH_INTERRUPTED, "stopped", NULL);
    if (function->server)
        fth_server_stop(function->server, deadline_s);
    fth_access_free(function->access);
    free(function->url);
    pthread_cond_destroy(&function->changed);
    pthread_mutex_destroy(&function->mutex);
    free(function);
}
