/* A function over HTTP that makes items: it is POSTed an order, and answers with the outcome
 * (coordinator.h).
 *
 *     POST /, POST /run   the order; or {"value":{order}}, as OpenWhisk's runtime sends it
 *     POST /init          OpenWhisk's first request: {"ok":true}
 *     GET  /healthz
 *
 * Answers are held, so requests cost no threads; the work is done by order_queue.h. */
#include <stdlib.h>

#include "batches/prefetch/order_queue.h"
#include "batches/prefetch/worker.h"
#include "http/access.h"
#include "http/server.h"

enum { MAX_BODY_BYTES = 64 << 10 };

struct fth_prefetch_function {
    fth_order_queue *queue;
    fth_access *access; /* NULL: open to everybody */
    fth_server *server;
};

/* ---- HTTP ---- */

static void refuse(void *context, fth_exchange *exchange, fth_access_refusal why, int code, const char *message)
{
    (void)context, (void)why;
    fth_exchange_answer_json(exchange, code, json_pack("{s:s}", "error", message));
}

static bool admit_all(void *context, fth_exchange *exchange, const fth_route *route, fth_role *role)
{
    (void)context, (void)exchange, (void)route;
    *role = FTH_ROLE_ADMIN;
    return true;
}

static void hold(void *context)
{
    fth_exchange_hold(context, FTH_ORDER_S + 10, 503);
}

static bool is_abandoned(void *context)
{
    return fth_exchange_is_abandoned(context);
}

static void answer(void *context, json_t *result)
{
    fth_exchange_answer_json(context, 200, result);
}

static void handle_order(void *context, fth_exchange *exchange)
{
    fth_prefetch_function *function = context;
    size_t size_bytes = 0;
    const char *bytes = fth_exchange_body(exchange, &size_bytes);
    json_t *body = json_loadb(bytes ? bytes : "", size_bytes, 0, NULL);
    const json_t *value = json_object_get(body, "value");

    if (!fth_access_check_body(exchange))
        goto answered;
    fth_status status = fth_order_queue_submit(function->queue, value ? value : body,
                                               &(fth_order_requester){exchange, hold, is_abandoned, answer});
    if (status != FTH_OK)
        fth_exchange_answer_json(
            exchange, status == FTH_INVALID ? 400 : 503,
            json_pack("{s:s, s:s}", "error", fth_error_message(), "status", fth_status_name(status)));

answered:
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
    {.method = "POST", .path = "/", .handle = handle_order, .role = FTH_ROLE_TRAIN, .max_body_bytes = MAX_BODY_BYTES},
    {.method = "POST",
     .path = "/run",
     .handle = handle_order,
     .role = FTH_ROLE_TRAIN,
     .max_body_bytes = MAX_BODY_BYTES},
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
    FTH_TRY(fth_order_queue_open(&(fth_order_queue_options){.url = options->url,
                                                            .pinned_key = options->pinned_key,
                                                            .ca_file = options->ca_file,
                                                            .threads = options->threads},
                                 &started->queue));
    if (!options->open || options->keys)
        FTH_TRY(fth_access_create(&(fth_access_options){.address = options->address,
                                                        .keys = options->keys,
                                                        .host_names = options->host_names,
                                                        .certificate_pem = options->certificate_pem,
                                                        .max_requests_per_s = options->max_requests_per_s,
                                                        .port = options->port},
                                  &started->access));
    FTH_TRY(fth_server_start(&(fth_server_options){.address = options->address,
                                                   .port = options->port,
                                                   .routes = routes,
                                                   .context = started,
                                                   .access = started->access,
                                                   .refuse = refuse,
                                                   .admit = admit_all,
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
    if (!function)
        return;
    if (function->queue)
        fth_order_queue_stop(function->queue); /* answers held requests */
    if (function->server)
        fth_server_stop(function->server, deadline_s);
    fth_access_free(function->access);
    fth_order_queue_free(function->queue);
    free(function);
}
