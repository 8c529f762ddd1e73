/* AWS Lambda's custom-runtime loop.
 *
 *     GET  /runtime/invocation/next            waits for an event, or a stop
 *     POST /runtime/invocation/ID/response     the result
 *     POST /runtime/invocation/ID/error        or why it failed
 *     POST /runtime/init/error                 there is no function to run
 *
 * Lambda freezes the process between invocations. An invalid invocation (an event that is not an
 * object, a deadline that is not a time) is answered with an error, and the loop continues. If the
 * Runtime API itself violates the protocol, the loop ends. */
#include "functions/lambda.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "functions/incoming.h"
#include "http/http.h"

enum { MOST_ID = 128 };
#define PATIENCE_S   5.0   /* default of patience_s */
#define ANSWER_S     30.0  /* to post a result */
#define LONG_POLL_S  86400 /* a long poll is idle while there is no invocation */
#define MEBIBYTE     (UINT64_C(1) << 20)
#define ANSWER_LIMIT (64 << 10)
#define INIT_ERROR   "/runtime/init/error"
#define NEXT         "/runtime/invocation/next"
#define BAD_EVENT    "Runtime.BadEvent" /* values of Lambda-Runtime-Function-Error-Type */
#define TOO_LARGE    "Function.ResponseTooLarge"
#define CANNOT_START "Runtime.StartFailed"

typedef struct lambda_runtime {
    char *base; /* http://HOST:PORT/2018-06-01 */
    fth_http_client *client;
    const fth_stop *stop;
    double patience_s;
    uint64_t memory_limit_bytes;
    double startup_s; /* from the start of the process to its first request for an invocation */
    bool warm;
} lambda_runtime;

/* One invocation as received. */
typedef struct lambda_event {
    char id[MOST_ID + 1];
    char *deadline, *arn, *trace; /* headers, or NULL */
    char *body;
    uint64_t body_bytes;
} lambda_event;

bool fth_lambda_is_bootstrap(const char *program)
{
    const char *slash = program ? strrchr(program, '/') : NULL;
    return program && strcmp(slash ? slash + 1 : program, "bootstrap") == 0;
}

/* ---- the Runtime API ---- */

static fth_status open_runtime(const fth_lambda_options *options, lambda_runtime *runtime)
{
    fth_status status = FTH_OK;
    const char *api = options->api ? options->api : getenv("AWS_LAMBDA_RUNTIME_API");
    const char *memory_mb = getenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE");

    *runtime = (lambda_runtime){.stop = options->stop,
                                .patience_s = options->patience_s > 0 ? options->patience_s : PATIENCE_S};
    FTH_REQUIRE(api && *api, FTH_INVALID,
                "AWS_LAMBDA_RUNTIME_API is not set: Lambda, or `farthing functions --provider local`, sets it to the "
                "HOST:PORT of its Runtime API");
    FTH_REQUIRE(strlen(api) < 256 && api[strcspn(api, "/?#@\\ \t\r\n")] == '\0', FTH_INVALID,
                "AWS_LAMBDA_RUNTIME_API is \"%.64s\"; expected HOST:PORT", api);
    runtime->base = fth_format("http://%s/2018-06-01", api);
    FTH_REQUIRE(runtime->base, FTH_NO_MEMORY, "no memory for an address");
    FTH_TRY(fth_http_client_open(&(fth_http_client_options){.no_proxy = true, .attentive = true}, &runtime->client));
    runtime->startup_s = fth_clock_process_seconds();
    double megabytes = memory_mb ? strtod(memory_mb, NULL) : 0;
    if (megabytes >= 1 && megabytes < 1e9)
        runtime->memory_limit_bytes = (uint64_t)megabytes * MEBIBYTE;

out:
    return status;
}

static void close_runtime(lambda_runtime *runtime)
{
    fth_http_client_free(runtime->client);
    free(runtime->base);
}

static int has_been_stopped(void *context, uint64_t sent_bytes, uint64_t received_bytes)
{
    const lambda_runtime *runtime = context;
    (void)sent_bytes, (void)received_bytes;
    return runtime->stop && runtime->stop->asked;
}

/* Posts JSON; `code` is the answer's. */
static fth_status post(lambda_runtime *runtime, const char *path, const json_t *body, const char *error_type, int *code)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    char *url = fth_format("%s%s", runtime->base, path), *text = json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY);
    char *type = fth_format("Lambda-Runtime-Function-Error-Type: %s", error_type ? error_type : "");

    FTH_REQUIRE(url && text && type, FTH_NO_MEMORY, "no memory for an answer");
    FTH_TRY(fth_http_perform(runtime->client,
                             &(fth_http_request){.method = "POST",
                                                 .url = url,
                                                 .headers = (const char *const[]){"Content-Type: application/json",
                                                                                  error_type ? type : NULL, NULL},
                                                 .body = text,
                                                 .body_bytes = strlen(text),
                                                 .max_body_bytes = ANSWER_LIMIT,
                                                 .stall_s = ANSWER_S,
                                                 .deadline = fth_deadline_in(ANSWER_S)},
                             &response));
    *code = response.code;

out:
    fth_http_response_release(&response);
    free(url);
    free(text);
    free(type);
    return status;
}

static fth_status post_error(lambda_runtime *runtime, const char *path, const char *message, const char *error_type,
                             int *code)
{
    json_t *body = json_pack("{s:s, s:s}", "errorMessage", message, "errorType", error_type);
    fth_status status =
        body ? post(runtime, path, body, error_type, code) : fth_fail(FTH_NO_MEMORY, "no memory for an error message");
    json_decref(body);
    return status;
}

/* ---- the next invocation ---- */

static void release_event(lambda_event *event)
{
    free(event->deadline);
    free(event->arn);
    free(event->trace);
    free(event->body);
    *event = (lambda_event){0};
}

/* Checks an id that becomes part of a path. */
static bool is_request_id(const char *id)
{
    return id && *id && strlen(id) <= MOST_ID &&
           strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == strlen(id);
}

static fth_status read_event(fth_http_response *response, lambda_event *event)
{
    fth_status status = FTH_OK;
    char *id = fth_http_header(response, "Lambda-Runtime-Aws-Request-Id");

    FTH_REQUIRE(response->code == 200, FTH_CORRUPT, "the Runtime API answered %d to a request for an invocation",
                response->code);
    FTH_REQUIRE(is_request_id(id), FTH_CORRUPT, "the Runtime API sent an invocation without a valid request id");
    strcpy(event->id, id);
    event->deadline = fth_http_header(response, "Lambda-Runtime-Deadline-Ms");
    event->arn = fth_http_header(response, "Lambda-Runtime-Invoked-Function-Arn");
    event->trace = fth_http_header(response, "Lambda-Runtime-Trace-Id");
    event->body = response->body;
    event->body_bytes = response->body_bytes;
    response->body = NULL;

out:
    free(id);
    return status;
}

/* Waits for an invocation. FTH_INTERRUPTED: stopped. */
static fth_status get_next(lambda_runtime *runtime, lambda_event *event)
{
    fth_status status = FTH_OK;
    fth_backoff backoff = {.first_s = 0.05, .most_s = 1};
    fth_http_response response = {0};
    char *url = fth_format("%s%s", runtime->base, NEXT);
    fth_deadline patience = fth_deadline_in(runtime->patience_s);

    FTH_REQUIRE(url, FTH_NO_MEMORY, "no memory for an address");
    for (;;) {
        FTH_REQUIRE(!has_been_stopped(runtime, 0, 0), FTH_INTERRUPTED, "stopped");
        double asked_s = fth_clock_seconds();
        status = fth_http_perform(runtime->client,
                                  &(fth_http_request){.method = "GET",
                                                      .url = url,
                                                      .max_body_bytes = FTH_INCOMING_MOST_BYTES,
                                                      .connect_s = runtime->patience_s,
                                                      .stall_s = LONG_POLL_S,
                                                      .deadline = {INFINITY},
                                                      .progress = has_been_stopped,
                                                      .progress_context = runtime},
                                  &response);
        if (status != FTH_PEER_LOST)
            break;
        bool waited = response.failure == FTH_HTTP_NO_ANSWER && fth_clock_seconds() - asked_s > runtime->patience_s;
        if (waited) { /* the API was there, but idle */
            patience = fth_deadline_in(runtime->patience_s);
            backoff.tries = 0;
        }
        if (!fth_backoff_wait(&backoff, 0, patience))
            break;
    }
    if (status == FTH_OK)
        status = read_event(&response, event);

out:
    fth_http_response_release(&response);
    free(url);
    return status;
}

/* ---- one invocation ---- */

/* "train" of arn:aws:lambda:us-east-1:123456789012:function:train:$LATEST, in `name`. */
static void read_function_name(const char *arn, char *name, size_t size)
{
    const char *part = arn ? arn : "";
    for (int colons = 0; colons < 6 && *part; part++)
        colons += *part == ':';
    char copy[256];
    snprintf(copy, sizeof copy, "%.*s", (int)strcspn(part, ":"), part);
    fth_incoming_copy_name(name, size, *copy ? copy : getenv("AWS_LAMBDA_FUNCTION_NAME"));
}

/* *error_type is set if it fails for another reason than the function's. */
static fth_status run_event(lambda_runtime *runtime, fth_function *function, const lambda_event *lambda,
                            json_t **result, const char **error_type)
{
    fth_status status = FTH_OK;
    json_t *value = NULL, *variables = json_object();
    char name[256];
    fth_invocation_event event = {.platform = "lambda",
                                  .id = lambda->id,
                                  .function = name,
                                  .environment = variables,
                                  .memory_limit_bytes = runtime->memory_limit_bytes,
                                  .cold = !runtime->warm,
                                  .began_s = fth_clock_seconds() - (runtime->warm ? 0 : runtime->startup_s),
                                  .stop = runtime->stop};

    *error_type = BAD_EVENT;
    FTH_REQUIRE(variables, FTH_NO_MEMORY, "no memory for an invocation");
    read_function_name(lambda->arn, name, sizeof name);
    if (lambda->trace) { /* json_string() rejects invalid UTF-8 */
        json_t *trace = json_string(lambda->trace);
        if (trace)
            json_object_set_new(variables, "_X_AMZN_TRACE_ID", trace);
    }
    FTH_TRY(fth_incoming_deadline(lambda->deadline, &event.deadline_s));
    FTH_TRY(fth_incoming_parse(lambda->body, (size_t)lambda->body_bytes, &value));
    FTH_REQUIRE(json_is_object(value), FTH_INVALID, "the event must be a JSON object");
    event.value = value;
    *error_type = NULL;
    runtime->warm = true;
    FTH_TRY(fth_function_run(function, &event, result));

out:
    json_decref(value);
    json_decref(variables);
    return status;
}

/* "Function.PeerLost" of FTH_PEER_LOST. */
static void name_error_type(fth_status status, char *type, size_t size)
{
    size_t length = (size_t)snprintf(type, size, "Function.");
    bool capital = true;
    for (const char *from = fth_status_name(status); *from && length + 1 < size; from++) {
        if (*from != ' ')
            type[length++] = (char)(capital && *from >= 'a' && *from <= 'z' ? *from - 'a' + 'A' : *from);
        capital = *from == ' ';
    }
    type[length] = '\0';
}

/* Posts the result or the error. An answer that the Runtime API rejects, because the invocation has
 * timed out, is logged and dropped. */
static fth_status answer(lambda_runtime *runtime, const lambda_event *event, fth_status ran, const json_t *result,
                         const char *error_type)
{
    fth_status status = FTH_OK;
    int code = 0;
    char path[MOST_ID + 64], message[2048], type[64];

    if (ran == FTH_OK) {
        snprintf(path, sizeof path, "/runtime/invocation/%s/response", event->id);
        FTH_TRY(post(runtime, path, result, NULL, &code));
        if (code == 413) {
            ran = fth_fail(FTH_INVALID, "the result is larger than Lambda takes");
            error_type = TOO_LARGE;
        }
    }
    if (ran != FTH_OK) {
        snprintf(message, sizeof message, "%s", fth_error_message());
        name_error_type(ran, type, sizeof type);
        fth_log_error("request %s: %s", event->id, message);
        snprintf(path, sizeof path, "/runtime/invocation/%s/error", event->id);
        FTH_TRY(post_error(runtime, path, message, error_type ? error_type : type, &code));
    }
    FTH_REQUIRE(code < 500, FTH_PEER_LOST, "the Runtime API answered %d to a result; Lambda starts the function again",
                code);
    if (code >= 300)
        fth_log_warning("request %s: the Runtime API rejected the answer (%d)", event->id, code);

out:
    return status;
}

fth_status fth_lambda_run(const fth_lambda_options *options, fth_function *function)
{
    fth_status status = FTH_OK;
    lambda_runtime runtime;

    FTH_TRY(open_runtime(options, &runtime));
    while (status == FTH_OK) {
        lambda_event event = {0};
        json_t *result = NULL;
        const char *error_type = NULL;
        status = get_next(&runtime, &event);
        if (status == FTH_OK) {
            fth_status ran = run_event(&runtime, function, &event, &result, &error_type);
            status = answer(&runtime, &event, ran, result, error_type);
        }
        json_decref(result);
        release_event(&event);
    }
    if (status == FTH_INTERRUPTED)
        status = FTH_OK;

out:
    close_runtime(&runtime);
    return status;
}

fth_status fth_lambda_report_start_failure(const fth_lambda_options *options, fth_status failed)
{
    lambda_runtime runtime;
    int code = 0;
    char message[2048];

    snprintf(message, sizeof message, "%s", fth_error_message());
    if (open_runtime(options, &runtime) != FTH_OK ||
        post_error(&runtime, INIT_ERROR, message, CANNOT_START, &code) != FTH_OK)
        fth_log_warning("cannot report that to the Runtime API: %s", fth_error_message());
    close_runtime(&runtime);
    return fth_fail(failed, "%s", message);
}
