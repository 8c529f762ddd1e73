/* See runtime_api.h. A state machine decides what a process may do; invalid requests are answered
 * like Lambda's own emulator does:
 *
 *     STARTING --next--> READY --event--> RUNNING --response, error--> ANSWERED --next--> READY
 *        `--init/error--> BROKEN
 *
 * A request for the next event is held until there is one (READY). An event that the process has
 * not asked for yet waits in `event`. */
#include "platform/runtime_api.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "http/server.h"

#define API        "/2018-06-01/runtime"
#define INVOCATION API "/invocation/"

static const double look_every_s = 0.005, hold_s = 86400 * 30.0;
/* Bodies up to here are read, so that one slightly over Lambda's limit gets Lambda's message. */
static const uint64_t max_body_bytes = 32 << 20;

typedef enum runtime_state { STARTING, READY, RUNNING, ANSWERED, BROKEN } runtime_state;

struct fth_runtime_api {
    fth_server *server;
    pthread_mutex_t mutex; /* of everything below */
    pthread_cond_t changed;
    runtime_state state;
    fth_exchange *asking;           /* held: the process waits for an event; or NULL */
    const fth_runtime_event *event; /* of the current invoke call; or NULL */
    fth_runtime_answer *answer;     /* where its answer goes */
    char *init_error;               /* body of init/error */
    size_t init_error_bytes;
};

void fth_runtime_answer_release(fth_runtime_answer *answer)
{
    free(answer->body);
    free(answer->error_type);
    *answer = (fth_runtime_answer){0};
}

/* ---- answers to the process ---- */

static void accept(fth_exchange *exchange)
{
    fth_exchange_answer_json(exchange, 202, json_pack("{s:s}", "status", "OK"));
}

static void refuse(fth_exchange *exchange, int code, const char *type, const char *message)
{
    fth_exchange_answer_json(exchange, code, json_pack("{s:s, s:s}", "errorMessage", message, "errorType", type));
}

static void refuse_state(fth_exchange *exchange)
{
    refuse(exchange, 403, "InvalidStateTransition",
           "this is not the time for that request: State transition is not allowed");
}

/* Delivers the event to the waiting process. With the mutex held. */
static void deliver(fth_runtime_api *api)
{
    const fth_runtime_event *event = api->event;
    fth_exchange *exchange = api->asking;
    char deadline[32];
    double wall = fth_clock_wall_seconds();

    snprintf(deadline, sizeof deadline, "%" PRId64, (int64_t)((wall + event->timeout_s) * 1000));
    fth_exchange_set_header(exchange, "Lambda-Runtime-Aws-Request-Id", event->request_id);
    fth_exchange_set_header(exchange, "Lambda-Runtime-Deadline-Ms", deadline);
    fth_exchange_set_header(exchange, "Lambda-Runtime-Invoked-Function-Arn", event->function_arn);
    if (event->trace_id)
        fth_exchange_set_header(exchange, "Lambda-Runtime-Trace-Id", event->trace_id);
    api->asking = NULL;
    api->state = RUNNING;
    api->answer->delivered_s = fth_clock_seconds();
    fth_exchange_answer(exchange, 200, "application/json", event->body, event->body_bytes);
    pthread_cond_broadcast(&api->changed);
}

/* ---- requests of the process ---- */

/* Drops a poll that the process has abandoned. With the mutex held. */
static void drop_abandoned(fth_runtime_api *api)
{
    if (api->asking && fth_exchange_is_abandoned(api->asking)) {
        fth_exchange_answer(api->asking, 503, "text/plain", "", 0);
        api->asking = NULL;
    }
}

static void handle_next(void *context, fth_exchange *exchange)
{
    fth_runtime_api *api = context;
    pthread_mutex_lock(&api->mutex);
    drop_abandoned(api);
    if (api->asking || api->state == RUNNING || api->state == BROKEN) {
        refuse_state(exchange);
    } else {
        fth_exchange_hold(exchange, hold_s, 503);
        api->asking = exchange;
        api->state = READY;
        if (api->event && !api->answer->answered)
            deliver(api);
        pthread_cond_broadcast(&api->changed);
    }
    pthread_mutex_unlock(&api->mutex);
}

static char *copy_bytes(const void *bytes, size_t size)
{
    char *copy = malloc(size + 1);
    if (copy) {
        if (size > 0)
            memcpy(copy, bytes, size);
        copy[size] = '\0';
    }
    return copy;
}

/* Ends the current invocation; takes `body`. With the mutex held. */
static void settle(fth_runtime_api *api, bool failed, char *body, size_t size, const char *error_type)
{
    fth_runtime_answer *answer = api->answer;
    answer->answered = true;
    answer->failed = failed || !body;
    answer->body = body;
    answer->body_bytes = body ? size : 0;
    answer->error_type = error_type ? strdup(error_type) : NULL;
    api->state = ANSWERED;
    pthread_cond_broadcast(&api->changed);
}

static void settle_too_large(fth_runtime_api *api, fth_exchange *exchange)
{
    static const char type[] = "Function.ResponseSizeTooLarge";
    char *body =
        fth_format("{\"errorMessage\": \"Response payload size exceeded maximum allowed payload size (%d bytes).\", "
                   "\"errorType\": \"%s\"}",
                   (int)FTH_RUNTIME_MAX_PAYLOAD, type);
    settle(api, true, body, body ? strlen(body) : 0, type);
    char message[80];
    snprintf(message, sizeof message, "Exceeded maximum allowed payload size (%d bytes).",
             (int)FTH_RUNTIME_MAX_PAYLOAD);
    refuse(exchange, 413, "RequestEntityTooLarge", message);
}

typedef enum invocation_part { PART_NONE, PART_RESPONSE, PART_ERROR } invocation_part;

/* Which part of the current invocation the request is about; refuses other requests. With the mutex
 * held. */
static invocation_part find_part(const fth_runtime_api *api, fth_exchange *exchange)
{
    const char *id = fth_exchange_path(exchange) + strlen(INVOCATION), *rest = strchr(id, '/');
    invocation_part part = !rest                            ? PART_NONE
                           : strcmp(rest, "/response") == 0 ? PART_RESPONSE
                           : strcmp(rest, "/error") == 0    ? PART_ERROR
                                                            : PART_NONE;
    if (part == PART_NONE) {
        refuse(exchange, 404, "InvalidRequest", "known are next, ID/response and ID/error");
    } else if (api->state != RUNNING || !api->event) {
        refuse_state(exchange);
        part = PART_NONE;
    } else if (strlen(api->event->request_id) != (size_t)(rest - id) ||
               strncmp(id, api->event->request_id, (size_t)(rest - id)) != 0) {
        refuse(exchange, 400, "InvalidRequestID", "Invalid request ID");
        part = PART_NONE;
    }
    return part;
}

static void handle_invocation(void *context, fth_exchange *exchange)
{
    fth_runtime_api *api = context;
    size_t size;
    const void *bytes = fth_exchange_body(exchange, &size);

    pthread_mutex_lock(&api->mutex);
    invocation_part part = find_part(api, exchange);
    if (part != PART_NONE && size > FTH_RUNTIME_MAX_PAYLOAD) {
        settle_too_large(api, exchange);
    } else if (part != PART_NONE) {
        settle(api, part == PART_ERROR, copy_bytes(bytes, size), size,
               part == PART_ERROR ? fth_exchange_header(exchange, "Lambda-Runtime-Function-Error-Type") : NULL);
        accept(exchange);
    }
    pthread_mutex_unlock(&api->mutex);
}

static void handle_init_error(void *context, fth_exchange *exchange)
{
    fth_runtime_api *api = context;
    size_t size;
    const void *bytes = fth_exchange_body(exchange, &size);

    pthread_mutex_lock(&api->mutex);
    if (api->state != STARTING) {
        refuse_state(exchange);
    } else {
        api->state = BROKEN;
        api->init_error = copy_bytes(bytes, size);
        api->init_error_bytes = api->init_error ? size : 0;
        pthread_cond_broadcast(&api->changed);
        accept(exchange);
    }
    pthread_mutex_unlock(&api->mutex);
}

/* Refuses an answer that is far too large before reading it. */
static bool admit(void *context, fth_exchange *exchange, const fth_route *route, fth_role *role)
{
    fth_runtime_api *api = context;
    const char *length = fth_exchange_header(exchange, "Content-Length");
    *role = FTH_ROLE_NONE;
    if (route->handle != handle_invocation || !length || strtoull(length, NULL, 10) <= max_body_bytes)
        return true;
    pthread_mutex_lock(&api->mutex);
    if (find_part(api, exchange) != PART_NONE)
        settle_too_large(api, exchange);
    pthread_mutex_unlock(&api->mutex);
    return false;
}

static const fth_route routes[] = {
    {.method = "GET", .path = INVOCATION "next", .handle = handle_next},
    {.method = "POST", .path = INVOCATION "*", .handle = handle_invocation, .max_body_bytes = FTH_SERVER_BODY},
    {.method = "POST", .path = API "/init/error", .handle = handle_init_error, .max_body_bytes = 1 << 20},
    {0}};

/* ---- the platform's side ---- */

fth_status fth_runtime_api_start(fth_runtime_api **result)
{
    fth_status status = FTH_OK;
    fth_runtime_api *api = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *api, &api));
    pthread_mutex_init(&api->mutex, NULL);
    pthread_cond_init(&api->changed, NULL);
    fth_server_options options = {.routes = routes,
                                  .context = api,
                                  .admit = admit,
                                  .threads = 1,
                                  .max_connections = 64,
                                  .max_body_bytes = max_body_bytes,
                                  .max_memory_bytes = 4 * max_body_bytes};
    FTH_TRY(fth_server_start(&options, &api->server));
    *result = api;
    api = NULL;

out:
    fth_runtime_api_stop(api);
    return status;
}

int fth_runtime_api_port(const fth_runtime_api *api)
{
    return fth_server_port(api->server);
}

/* A failed initialization fails the invocation. With the mutex held. */
static void settle_broken(fth_runtime_api *api)
{
    settle(api, true, api->init_error, api->init_error_bytes, NULL);
    api->init_error = NULL;
    api->state = BROKEN;
}

fth_status fth_runtime_api_invoke(fth_runtime_api *api, const fth_runtime_event *event, bool (*alive)(void *context),
                                  void *context, fth_runtime_answer *answer)
{
    fth_status status = FTH_OK;
    fth_deadline start = fth_deadline_in(event->start_s);

    *answer = (fth_runtime_answer){.delivered_s = NAN};
    pthread_mutex_lock(&api->mutex);
    api->event = event;
    api->answer = answer;
    if (api->state == READY) {
        drop_abandoned(api);
        if (api->asking)
            deliver(api);
    }
    while (!answer->answered) {
        const bool delivered = !isnan(answer->delivered_s);
        fth_deadline until =
                         delivered ? (fth_deadline){answer->delivered_s + event->timeout_s + event->grace_s} : start,
                     soon = fth_deadline_in(look_every_s);
        if (api->state == BROKEN) {
            settle_broken(api);
        } else if (fth_deadline_passed(until)) {
            status = delivered ? fth_fail(FTH_TIMEOUT, "no answer within %g s", event->timeout_s)
                               : fth_fail(FTH_TIMEOUT, "did not ask for an invocation within %g s", event->start_s);
            break;
        } else if (alive) {
            /* without the mutex, because alive() may block and the process may answer meanwhile */
            pthread_mutex_unlock(&api->mutex);
            bool lives = alive(context);
            pthread_mutex_lock(&api->mutex);
            if (!lives && !answer->answered && api->state != BROKEN) {
                status = fth_fail(FTH_PEER_LOST, "ended without an answer");
                break;
            }
        }
        if (!answer->answered && api->state != BROKEN) {
            struct timespec at = fth_deadline_timespec(soon.at_seconds < until.at_seconds ? soon : until);
            pthread_cond_clockwait(&api->changed, &api->mutex, CLOCK_MONOTONIC, &at);
        }
    }
    api->event = NULL;
    api->answer = NULL;
    pthread_mutex_unlock(&api->mutex);
    return status;
}

void fth_runtime_api_stop(fth_runtime_api *api)
{
    if (!api)
        return;
    pthread_mutex_lock(&api->mutex);
    fth_exchange *asking = api->asking;
    api->asking = NULL;
    api->state = BROKEN;
    pthread_mutex_unlock(&api->mutex);
    if (asking)
        fth_exchange_answer(asking, 503, "text/plain", "", 0);
    if (api->server)
        fth_server_stop(api->server, 1);
    pthread_mutex_destroy(&api->mutex);
    pthread_cond_destroy(&api->changed);
    free(api->init_error);
    free(api);
}
