/* OpenWhisk's action contract.
 *
 *     POST /init   {"value": {"env": {…}, "code": "", …}}                 once; code is refused
 *     POST /run    {"value": {parameters}, "deadline": …, "api_key": …}   other keys: __OW_<KEY>
 *     POST /       {"init": {…}, "activation": {…}, "value": {…}}         Knative: either, or both
 *
 * Handlers only hold the exchange and queue it. One thread processes requests in order, so that
 * runs cannot overlap, and owns what /init brought. Codes and messages are those of OpenWhisk's
 * reference proxy, except that invalid JSON is refused, where the proxy ignores it.
 *
 * After each activation, and after a failed /init, one line with the marker ends both output
 * streams; the platform cuts its logs there. */
#include "functions/openwhisk.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "functions/incoming.h"
#include "functions/memory_limit.h"
#include "http/server.h"
#include "providers/provider.h"

static const char no_second_init[] = "Cannot initialize the action more than once.";
static const char no_arguments[] = "The action did not receive a dictionary or array as an argument.";
static const char no_result[] = "The action did not return a dictionary or array.";

enum { MOST_WAITING = 64, HTTP_THREADS = 2, MOST_CONNECTIONS = 128, HELD_S = 86400 };
#define STOPPED_RUN_S  30.0 /* for a run to end after it was asked to */
#define LAST_ANSWERS_S 5.0

typedef enum request_kind { REQUEST_INIT, REQUEST_RUN, REQUEST_KNATIVE } request_kind;

typedef struct action_request {
    request_kind kind;
    fth_exchange *exchange; /* held */
    struct action_request *next;
} action_request;

struct fth_openwhisk {
    fth_server *server;
    pthread_t runner;
    fth_stop stop; /* of the current run */

    /* For the runner thread only. */
    fth_function *function;
    json_t *environment; /* of /init: object of strings */
    bool initialized, warm;
    uint64_t memory_limit_bytes;
    double startup_s; /* from the start of the process until it served */

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    action_request *first, **last;
    int waiting;
    bool busy, stopping;
};

/* ---- answers ---- */

static void write_all(int stream, const char *text)
{
    for (size_t done = 0, length = strlen(text); done < length;) {
        ssize_t written = write(stream, text + done, length - done);
        if (written < 0 && errno != EINTR)
            return; /* the stream has no reader */
        done += written > 0 ? (size_t)written : 0;
    }
}

static void end_activation(void)
{
    fflush(stdout);
    fflush(stderr);
    write_all(STDOUT_FILENO, FTH_OPENWHISK_END_OF_LOGS);
    write_all(STDERR_FILENO, FTH_OPENWHISK_END_OF_LOGS);
}

static void answer_error(fth_exchange *exchange, int code, const char *message)
{
    fth_exchange_answer_json(exchange, code, json_pack("{s:s}", "error", message));
}

/* Ends an activation that failed. */
static void fail_activation(fth_exchange *exchange, int code, const char *id, const char *message)
{
    fth_log_error("%s%s%s%s", *id ? "activation " : "", id, *id ? ": " : "", message);
    end_activation();
    answer_error(exchange, code, message);
}

/* ---- /init ---- */

static fth_status take_environment(const json_t *value, json_t **environment)
{
    fth_status status = FTH_OK;
    json_t *variables = json_object();
    const json_t *given = json_object_get(value, "env"), *code = json_object_get(value, "code");
    const char *name;
    json_t *text;

    FTH_REQUIRE(variables, FTH_NO_MEMORY, "no memory for the environment");
    FTH_REQUIRE(!code || json_is_null(code) || (json_is_string(code) && json_string_length(code) == 0), FTH_INVALID,
                "this image has its own code and runs none that /init brings; create the action without a file");
    FTH_REQUIRE(!given || json_is_null(given) || json_is_object(given), FTH_INVALID,
                "/init: \"env\" must be an object of strings");
    json_object_foreach((json_t *)given, name, text) FTH_TRY(fth_incoming_set_variable(variables, name, text));
    *environment = variables;
    variables = NULL;

out:
    json_decref(variables);
    return status;
}

/* True if it initialized the action and has answered nothing. `value` may be NULL. */
static bool initialize(fth_openwhisk *service, fth_exchange *exchange, const json_t *value)
{
    if (service->initialized) {
        fth_log_error("%s", no_second_init);
        answer_error(exchange, 403, no_second_init);
        return false;
    }
    if (value && !json_is_object(value)) {
        answer_error(exchange, 404, "/init takes {\"value\": {}}");
        return false;
    }
    if (take_environment(value, &service->environment) != FTH_OK) {
        fail_activation(exchange, 502, "", fth_error_message());
        return false;
    }
    service->initialized = true;
    return true;
}

static void handle_init(fth_openwhisk *service, fth_exchange *exchange, const json_t *message)
{
    if (!service->initialized && message && !json_is_object(message))
        answer_error(exchange, 404, "/init takes a JSON object");
    else if (initialize(service, exchange, json_object_get(message, "value")))
        fth_exchange_answer_json(exchange, 200, json_pack("{s:b}", "ok", true));
}

/* ---- /run ---- */

/* The variables of one activation: those of /init, and its keys except "value". */
static fth_status collect_variables(const fth_openwhisk *service, const json_t *activation, json_t **variables)
{
    fth_status status = FTH_OK;
    json_t *collected = service->environment ? json_copy(service->environment) : json_object();
    const char *key;
    json_t *value;

    FTH_REQUIRE(collected, FTH_NO_MEMORY, "no memory for the environment");
    json_object_foreach((json_t *)activation, key, value)
    {
        char name[128] = "__OW_";
        size_t length = strlen(name);
        if (strcmp(key, "value") == 0)
            continue;
        FTH_REQUIRE(length + strlen(key) < sizeof name, FTH_INVALID, "a key of the activation is too long");
        for (const char *from = key; *from; from++)
            name[length++] = (char)toupper((unsigned char)*from);
        name[length] = '\0';
        FTH_TRY(fth_incoming_set_variable(collected, name, value));
    }
    *variables = collected;
    collected = NULL;

out:
    json_decref(collected);
    return status;
}

/* "mnist/train" of "/guest/mnist/train": the name without its name space. */
static const char *name_in_space(const char *action)
{
    const char *slash = *action == '/' ? strchr(action + 1, '/') : NULL;
    return slash ? slash + 1 : action;
}

static fth_status run_job(fth_openwhisk *service, const char *id, const json_t *variables, const json_t *value,
                          json_t **result)
{
    fth_status status = FTH_OK;
    char action[256];
    fth_incoming_copy_name(action, sizeof action, json_string_value(json_object_get(variables, "__OW_ACTION_NAME")));
    fth_invocation_event event = {.platform = "openwhisk",
                                  .id = id,
                                  .function = name_in_space(action),
                                  .value = value,
                                  .environment = variables,
                                  .memory_limit_bytes = service->memory_limit_bytes,
                                  .cold = !service->warm,
                                  .began_s = fth_clock_seconds() - (service->warm ? 0 : service->startup_s),
                                  .stop = &service->stop};

    FTH_TRY(fth_incoming_deadline(json_string_value(json_object_get(variables, "__OW_DEADLINE")), &event.deadline_s));
    FTH_REQUIRE(json_is_object(value), FTH_INVALID, "the parameters are an array; this action takes an object");
    service->warm = true;
    FTH_TRY(fth_function_run(service->function, &event, result));

out:
    return status;
}

/* `activation`: the keys that become variables; or NULL. `value`: the parameters; or NULL. */
static void run_activation(fth_openwhisk *service, fth_exchange *exchange, const json_t *activation,
                           const json_t *value)
{
    json_t *variables = NULL, *result = NULL, *none = json_object();
    char id[80];

    fth_incoming_copy_name(id, sizeof id, json_string_value(json_object_get(activation, "activation_id")));
    if ((activation && !json_is_object(activation)) || (value && !json_is_object(value) && !json_is_array(value)))
        fail_activation(exchange, 404, id, no_arguments);
    else if (collect_variables(service, activation, &variables) != FTH_OK ||
             run_job(service, id, variables, value ? value : none, &result) != FTH_OK)
        fail_activation(exchange, 502, id, fth_error_message());
    else if (!json_is_object(result) && !json_is_array(result))
        fail_activation(exchange, 502, id, no_result);
    else {
        end_activation();
        fth_exchange_answer_json(exchange, 200, json_incref(result));
    }
    json_decref(variables);
    json_decref(result);
    json_decref(none);
}

static void handle_run(fth_openwhisk *service, fth_exchange *exchange, const json_t *message)
{
    run_activation(service, exchange, message, json_object_get(message, "value"));
}

static void handle_knative(fth_openwhisk *service, fth_exchange *exchange, const json_t *message)
{
    const json_t *init = json_object_get(message, "init"), *activation = json_object_get(message, "activation");
    const json_t *value = json_object_get(message, "value");
    bool runs = !init || activation || value;
    if (init && !initialize(service, exchange, init))
        return;
    if (!runs)
        fth_exchange_answer_json(exchange, 200, json_pack("{s:b}", "ok", true));
    else if (message && !json_is_object(message))
        fail_activation(exchange, 404, "", no_arguments);
    else
        run_activation(service, exchange, activation, value);
}

/* ---- the thread of the action ---- */

static void handle(fth_openwhisk *service, const action_request *request)
{
    static void (*const handlers[])(fth_openwhisk *, fth_exchange *, const json_t *) = {
        [REQUEST_INIT] = handle_init, [REQUEST_RUN] = handle_run, [REQUEST_KNATIVE] = handle_knative};
    json_t *message = NULL;
    size_t size_bytes = 0;
    const void *body = fth_exchange_body(request->exchange, &size_bytes);

    if (fth_incoming_parse(body, size_bytes, &message) == FTH_OK)
        handlers[request->kind](service, request->exchange, message);
    else if (request->kind == REQUEST_INIT)
        answer_error(request->exchange, 404, fth_error_message());
    else
        fail_activation(request->exchange, 404, "", fth_error_message());
    json_decref(message);
}

/* The next request, or NULL when the service stops. */
static action_request *take_request(fth_openwhisk *service)
{
    pthread_mutex_lock(&service->mutex);
    service->busy = false;
    pthread_cond_broadcast(&service->changed);
    while (!service->first && !service->stopping)
        pthread_cond_wait(&service->changed, &service->mutex); /* until a request or the stop */
    action_request *request = service->stopping ? NULL : service->first;
    if (request) {
        service->first = request->next;
        if (!service->first)
            service->last = &service->first;
        service->waiting--;
        service->busy = true;
    }
    pthread_mutex_unlock(&service->mutex);
    return request;
}

static void *run_requests(void *context)
{
    fth_openwhisk *service = context;
    for (action_request *request; (request = take_request(service));) {
        handle(service, request);
        free(request);
    }
    return NULL;
}

/* ---- HTTP ---- */

static void enqueue(fth_openwhisk *service, fth_exchange *exchange, request_kind kind)
{
    action_request *request = calloc(1, sizeof *request);
    pthread_mutex_lock(&service->mutex);
    bool stopping = service->stopping, taken = request && !stopping && service->waiting < MOST_WAITING;
    if (taken) {
        *request = (action_request){.kind = kind, .exchange = exchange};
        fth_exchange_hold(exchange, HELD_S, 503); /* the platform enforces time limits */
        *service->last = request;
        service->last = &request->next;
        service->waiting++;
        pthread_cond_broadcast(&service->changed);
    }
    pthread_mutex_unlock(&service->mutex);
    if (!taken) {
        free(request);
        answer_error(exchange, 503, stopping ? "the action is stopping" : "too many activations are waiting");
    }
}

static void on_init(void *context, fth_exchange *exchange)
{
    enqueue(context, exchange, REQUEST_INIT);
}

static void on_run(void *context, fth_exchange *exchange)
{
    enqueue(context, exchange, REQUEST_RUN);
}

static void on_knative(void *context, fth_exchange *exchange)
{
    enqueue(context, exchange, REQUEST_KNATIVE);
}

static const fth_route routes[] = {
    {.method = "POST", .path = "/init", .handle = on_init, .max_body_bytes = FTH_INCOMING_MOST_BYTES},
    {.method = "POST", .path = "/run", .handle = on_run, .max_body_bytes = FTH_INCOMING_MOST_BYTES},
    {.method = "POST", .path = "/", .handle = on_knative, .max_body_bytes = FTH_INCOMING_MOST_BYTES},
    {0}};

/* ---- start and stop ---- */

static void release(fth_openwhisk *service)
{
    json_decref(service->environment);
    pthread_mutex_destroy(&service->mutex);
    pthread_mutex_destroy(&service->stop.mutex);
    pthread_cond_destroy(&service->changed);
    free(service);
}

static void begin_stopping(fth_openwhisk *service)
{
    pthread_mutex_lock(&service->mutex);
    service->stopping = true;
    pthread_cond_broadcast(&service->changed);
    pthread_mutex_unlock(&service->mutex);
}

fth_status fth_openwhisk_start(const fth_openwhisk_options *options, fth_function *function, fth_openwhisk **result)
{
    fth_status status = FTH_OK;
    fth_openwhisk *service = NULL;
    bool runs = false;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *service, &service));
    service->function = function;
    service->last = &service->first;
    service->memory_limit_bytes = fth_memory_limit_bytes();
    pthread_mutex_init(&service->stop.mutex, NULL);
    pthread_mutex_init(&service->mutex, NULL);
    pthread_cond_init(&service->changed, NULL);
    FTH_REQUIRE(fth_thread_start(&service->runner, "action", run_requests, service) == 0, FTH_NO_MEMORY,
                "no thread for the action");
    runs = true;
    service->startup_s = fth_clock_process_seconds();
    FTH_TRY(fth_server_start(&(fth_server_options){.address = options->address ? options->address : "0.0.0.0",
                                                   .port = options->port,
                                                   .routes = routes,
                                                   .context = service,
                                                   .threads = HTTP_THREADS,
                                                   .max_connections = MOST_CONNECTIONS,
                                                   .max_memory_bytes = UINT64_C(4) * FTH_INCOMING_MOST_BYTES},
                             &service->server));
    *result = service;
    service = NULL;

out:
    if (service && runs) {
        begin_stopping(service);
        pthread_join(service->runner, NULL);
    }
    if (service)
        release(service);
    return status;
}

int fth_openwhisk_port(const fth_openwhisk *service)
{
    return fth_server_port(service->server);
}

/* Waits at most `seconds` until nothing runs. */
static bool wait_until_idle(fth_openwhisk *service, double seconds)
{
    struct timespec until = fth_deadline_timespec(fth_deadline_in(seconds));
    pthread_mutex_lock(&service->mutex);
    for (int waited = 0; service->busy && waited == 0;)
        waited = pthread_cond_clockwait(&service->changed, &service->mutex, CLOCK_MONOTONIC, &until);
    bool idle = !service->busy;
    pthread_mutex_unlock(&service->mutex);
    return idle;
}

bool fth_openwhisk_stop(fth_openwhisk *service, double seconds)
{
    if (!service)
        return true;
    begin_stopping(service);
    if (!wait_until_idle(service, seconds))
        fth_stop_ask(&service->stop, FTH_STOP_REQUEST, STOPPED_RUN_S, "platform", "the function is being stopped");
    if (!fth_thread_join_by(service->runner, fth_deadline_in(STOPPED_RUN_S)))
        return false;
    for (action_request *request = service->first, *next; request; request = next) {
        next = request->next;
        answer_error(request->exchange, 503, "the action is stopping");
        free(request);
    }
    fth_server_stop(service->server, LAST_ANSWERS_S);
    release(service);
    return true;
}
