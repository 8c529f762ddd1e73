/* Prefetching by functions: an order is POSTed to a function's address, which answers with the
 * outcome (coordinator.h).
 *
 * "functions" is the list of --functions, "http://…" is one function. Each has a few threads, which
 * mostly wait.
 *
 *     cold -> starting (one order, with the long deadline; the others wait) -> warm
 *     warm -> cold, after a failure or a long silence
 *
 * Nothing that a function says is trusted: its answer is bounded and must be about the order, and
 * an item counts as cached only if the cache has an entry of that length and checksum. A function
 * that fails is not used for a while, longer each time. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "batches/prefetch/prefetch.h"
#include "http/http.h"
#include "http/local_token.h"

enum { DEFAULT_CONCURRENCY = 8, MAX_CONCURRENCY = 64, MAX_FUNCTIONS = 32, MAX_ANSWER_BYTES = 64 << 10 };
#define TAKE_S           0.25
#define DEFAULT_COLD_S   60.0
#define DEFAULT_ANSWER_S 20.0
#define CONFIRM_S        5.0
#define STAYS_WARM_S     60.0 /* without a request */
#define FIRST_PAUSE_S    0.2
#define MAX_PAUSE_S      5.0

typedef struct remote_function {
    fth_order_source source;
    fth_prefetch_options options;
    char *address; /* of the coordinator */
    char *url;     /* with secrets */
    char *name;    /* without; its name at the coordinator */
    const char *target;
    pthread_t threads[MAX_CONCURRENCY];
    int thread_count;
    atomic_bool stop;

    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t changed;
    double answered_s; /* when it last answered correctly; 0: never, or it has failed since */
    bool starting;     /* the order of a cold start is in progress */
    int failures;      /* consecutive */
    double pause_until_s;
} remote_function;

/* ---- one order ---- */

static int is_stopping(void *context, uint64_t sent_bytes, uint64_t received_bytes)
{
    const remote_function *function = context;
    (void)sent_bytes;
    (void)received_bytes;
    return atomic_load(&function->stop);
}

static fth_status make_body(const remote_function *function, const fth_order *order, char **body)
{
    json_t *json = fth_order_save(order);
    if (json) {
        json_object_set_new(json, "cache", json_string(fth_cache_name(function->source.cache)));
        json_object_set_new(json, "address", json_string(function->address));
    }
    *body = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return *body ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for an order");
}

static fth_status send_order(const remote_function *function, fth_http_client *http, const fth_order *order,
                             double seconds, fth_http_response *response)
{
    fth_status status = FTH_OK;
    char *body = NULL, authorization[FTH_MAX_AUTHORIZATION + 32] = "Authorization: ";
    const char *headers[] = {"Content-Type: application/json", NULL, NULL};
    fth_signer signer = {0};
    bool is_signed = false;

    FTH_TRY(make_body(function, order, &body));
    FTH_TRY(fth_signer_find(function->url, &signer, &is_signed));
    if (is_signed) {
        FTH_TRY(fth_signer_sign(&signer, "POST", function->target, body, strlen(body),
                                authorization + strlen(authorization)));
        headers[1] = authorization;
    }
    const fth_http_request request = {.method = "POST",
                                      .url = function->url,
                                      .headers = headers,
                                      .address = signer.local,
                                      .body = body,
                                      .body_bytes = strlen(body),
                                      .max_body_bytes = MAX_ANSWER_BYTES,
                                      .stall_s = seconds + 1,
                                      .deadline = fth_deadline_in(seconds),
                                      .progress = is_stopping,
                                      .progress_context = (void *)function};
    status = fth_http_perform(http, &request, response);
    if (status == FTH_INVALID)
        status = fth_fail(FTH_IO, "its answer has more than %d bytes", MAX_ANSWER_BYTES);

out:
    fth_wipe(&signer, sizeof signer);
    free(body);
    return status;
}

/* Reads the outcome of an order; OpenWhisk wraps it in an envelope. *proper: it is a function's
 * answer, though perhaps a failure. */
static fth_status read_answer(const fth_http_response *response, const fth_order *order, fth_prefetch_result *result,
                              bool *proper)
{
    fth_status status = FTH_OK;
    json_t *json = response->body ? json_loadb(response->body, response->body_bytes, 0, NULL) : NULL;
    const json_t *envelope = json_object_get(json_object_get(json, "response"), "result");
    const json_t *reported = envelope ? envelope : json;
    const char *id = json_string_value(json_object_get(reported, "id"));
    const char *error = json_string_value(json_object_get(reported, "error"));
    const char *name = json_string_value(json_object_get(reported, "status"));
    fth_item_id said;

    FTH_REQUIRE(error || (response->code >= 200 && response->code < 300), FTH_IO, "it answered %d: %.200s",
                response->code, response->body ? response->body : "");
    FTH_REQUIRE(json_is_object(reported), FTH_IO, "its answer is not JSON: %.100s",
                response->body ? response->body : "");
    *proper = response->code < 500;
    if (error) {
        status = name ? fth_status_find(name) : FTH_IO;
        /* Only this function is wrong: others may have the right data, or a newer version of this
         * program. */
        if (status == FTH_OK || status == FTH_INVALID || status == FTH_UNSUPPORTED)
            status = FTH_IO;
        status = fth_fail(status, "%.400s", error);
        goto out;
    }
    *proper = false;
    FTH_REQUIRE(id && fth_item_id_parse(id, &said) && fth_item_id_equal(said, order->id), FTH_IO,
                "its answer is for another item: \"%.40s\"", id ? id : "");
    status = fth_prefetch_result_load(json_object_get(reported, "preparation"), result);
    if (status != FTH_OK)
        status = fth_fail_within(FTH_IO, "its answer");
    else if (!fth_item_id_equal(result->receipt.id, order->id))
        status = fth_fail(FTH_IO, "its receipt is for another item");
    *proper = status == FTH_OK;

out:
    json_decref(json);
    return status;
}

static double price(const fth_prefetch_options *options, double seconds)
{
    return options->usd_per_request + seconds * options->function_memory_gb * options->usd_per_gb_s;
}

/* ---- cold and warm ---- */

/* With the mutex held. */
static bool is_warm(const remote_function *function, double now_s)
{
    return function->answered_s > 0 && now_s - function->answered_s < STAYS_WARM_S;
}

/* Waits until it may send an order; false: it is being stopped. *cold: this order starts a cold
 * function. */
static bool wait_for_turn(remote_function *function, bool *cold)
{
    pthread_mutex_lock(&function->mutex);
    for (;;) {
        double now_s = fth_clock_seconds();
        *cold = !is_warm(function, now_s);
        if (atomic_load(&function->stop) || (now_s >= function->pause_until_s && !(*cold && function->starting)))
            break;
        double wait_s = now_s < function->pause_until_s ? function->pause_until_s - now_s : 1;
        struct timespec until = fth_deadline_timespec(fth_deadline_in(wait_s));
        pthread_cond_clockwait(&function->changed, &function->mutex, CLOCK_MONOTONIC, &until);
    }
    bool go = !atomic_load(&function->stop);
    if (go && *cold)
        function->starting = true;
    pthread_mutex_unlock(&function->mutex);
    return go;
}

typedef enum turn_outcome { NO_ORDER, ANSWERED, BROKEN } turn_outcome;

static void end_turn(remote_function *function, bool cold, turn_outcome outcome)
{
    pthread_mutex_lock(&function->mutex);
    double now_s = fth_clock_seconds();
    if (cold)
        function->starting = false;
    if (outcome == ANSWERED) {
        function->answered_s = now_s;
        function->failures = 0;
    }
    if (outcome == BROKEN) {
        double pause_s = fmin(MAX_PAUSE_S, FIRST_PAUSE_S * (1 << (function->failures < 10 ? function->failures : 10)));
        function->failures++;
        function->answered_s = 0;
        function->pause_until_s = now_s + pause_s;
    }
    pthread_cond_broadcast(&function->changed);
    pthread_mutex_unlock(&function->mutex);
}

static void work_on(remote_function *function, fth_http_client *http, const fth_order *order, bool cold)
{
    const fth_prefetch_options *options = &function->options;
    fth_http_response response = {0};
    fth_prefetch_result result = {0};
    char reason[600] = "";
    double begin_s = fth_clock_seconds();
    fth_status status = send_order(function, http, order, cold ? options->cold_start_s : options->answer_s, &response);
    double seconds = fth_clock_seconds() - begin_s;
    bool proper = false;
    if (status == FTH_OK)
        status = read_answer(&response, order, &result, &proper);
    if (status == FTH_OK) {
        status = fth_cache_confirm(function->source.cache, &result.receipt, fth_deadline_in(CONFIRM_S));
        proper = status == FTH_OK;
    }
    if (status != FTH_OK)
        snprintf(reason, sizeof reason, "%s: %s", function->name, fth_error_message());
    fth_http_response_release(&response);
    end_turn(function, cold, proper ? ANSWERED : BROKEN);
    if (status != FTH_OK && atomic_load(&function->stop))
        status = FTH_INTERRUPTED;
    function->source.done(function->source.context, function->name, order, status, reason, &result,
                          price(options, seconds));
}

static void *run(void *context)
{
    remote_function *function = context;
    fth_http_client *http = NULL;
    fth_order order;
    bool cold;

    if (fth_http_client_open(&(fth_http_client_options){.attentive = true}, &http) != FTH_OK) {
        fth_log_warning("%s is not used: %s", function->name, fth_error_message());
        return NULL;
    }
    while (wait_for_turn(function, &cold)) {
        if (function->source.take(function->source.context, function->name, fth_deadline_in(TAKE_S), &order))
            work_on(function, http, &order, cold);
        else
            end_turn(function, cold, NO_ORDER);
    }
    fth_http_client_free(http);
    return NULL;
}

/* ---- the kinds ---- */

static fth_status check_url(const char *url)
{
    const char *host = strstr(url, "://");
    if ((strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) || !host[3] || strchr(url, ' '))
        return fth_fail(FTH_INVALID, "%s is not the URL of a function: expected http://HOST[:PORT][/PATH] or https://",
                        url);
    return FTH_OK;
}

static void stop_function(void *state)
{
    remote_function *function = state;
    if (!function)
        return;
    atomic_store(&function->stop, true);
    pthread_mutex_lock(&function->mutex);
    pthread_cond_broadcast(&function->changed);
    pthread_mutex_unlock(&function->mutex);
    for (int i = 0; i < function->thread_count; i++)
        pthread_join(function->threads[i], NULL); /* requests end at the stop, waits after TAKE_S */
    pthread_cond_destroy(&function->changed);
    pthread_mutex_destroy(&function->mutex);
    fth_wipe_text(function->url);
    free(function->name);
    free(function->address);
    free(function);
}

static void set_options(remote_function *function, const fth_prefetch_options *options)
{
    function->options = *options;
    if (function->options.cold_start_s <= 0)
        function->options.cold_start_s = DEFAULT_COLD_S;
    if (function->options.answer_s <= 0)
        function->options.answer_s = DEFAULT_ANSWER_S;
    if (function->options.concurrency <= 0)
        function->options.concurrency = DEFAULT_CONCURRENCY;
    if (function->options.concurrency > MAX_CONCURRENCY)
        function->options.concurrency = MAX_CONCURRENCY;
}

static fth_status start_function(const char *url, const fth_order_source *source, const fth_prefetch_options *options,
                                 void **state)
{
    fth_status status = FTH_OK;
    remote_function *function = NULL;

    FTH_TRY(check_url(url));
    FTH_TRY(fth_allocate(1, sizeof *function, &function));
    pthread_mutex_init(&function->mutex, NULL);
    pthread_cond_init(&function->changed, NULL);
    function->source = *source;
    set_options(function, options);
    function->url = fth_address_whole(url);
    function->name = fth_http_harmless_url(url);
    function->address = fth_format("%s", options->address ? options->address : "");
    FTH_REQUIRE(function->url && function->name && function->address, FTH_NO_MEMORY, "no memory for a function");
    function->target = strchr(strstr(function->url, "://") + 3, '/');
    if (!function->target)
        function->target = "/";
    while (function->thread_count < function->options.concurrency &&
           fth_thread_start(&function->threads[function->thread_count], "function", run, function) == 0)
        function->thread_count++;
    FTH_REQUIRE(function->thread_count > 0, FTH_NO_MEMORY, "cannot start a thread for %s", function->name);
    *state = function;
    function = NULL;

out:
    stop_function(function);
    return status;
}

typedef struct function_list {
    void *functions[MAX_FUNCTIONS];
    int count;
} function_list;

static fth_status check_functions(const char *argument)
{
    return *argument
               ? fth_fail(FTH_INVALID, "functions:%s: expected functions alone; set their addresses with --functions",
                          argument)
               : FTH_OK;
}

static void stop_functions(void *state)
{
    function_list *list = state;
    for (int i = 0; list && i < list->count; i++)
        stop_function(list->functions[i]);
    free(list);
}

static fth_status start_functions(const char *argument, const fth_order_source *source,
                                  const fth_prefetch_options *options, void **state)
{
    fth_status status = FTH_OK;
    function_list *list = NULL;
    char *copy = fth_format("%s", options->functions ? options->functions : ""), *rest = copy, *url;

    FTH_TRY(check_functions(argument));
    FTH_REQUIRE(copy, FTH_NO_MEMORY, "no memory for a list of functions");
    FTH_REQUIRE(*copy, FTH_INVALID, "prefetching functions need --functions URL[,URL...]");
    FTH_TRY(fth_allocate(1, sizeof *list, &list));
    while ((url = strsep(&rest, ","))) {
        FTH_REQUIRE(list->count < MAX_FUNCTIONS, FTH_INVALID, "more than %d functions", MAX_FUNCTIONS);
        FTH_TRY(start_function(url, source, options, &list->functions[list->count]));
        list->count++;
    }
    *state = list;
    list = NULL;

out:
    stop_functions(list);
    free(copy);
    return status;
}

const fth_prefetch_kind fth_prefetch_functions = {
    .name = "functions",
    .summary = "deployed functions (OpenWhisk, Lambda), at the addresses of --functions",
    .check = check_functions,
    .start = start_functions,
    .stop = stop_functions,
};

const fth_prefetch_kind fth_prefetch_http = {
    .name = "http",
    .summary = "one function, by its address",
    .schemes = "http:// https://",
    .check = check_url,
    .start = start_function,
    .stop = stop_function,
};
