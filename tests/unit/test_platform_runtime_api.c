/* Lambda's Runtime API, with a thread as the function's process. */
#include "support.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "http/http.h"
#include "platform/runtime_api.h"

/* A process: some requests in a row, and what they were answered. */
enum { MAX_REQUESTS = 8 };
typedef struct scripted_request {
    const char *method, *path; /* "%s" stands for the id of the last event */
    const char *body, *header;
    size_t body_bytes; /* 0: of the text */
} scripted_request;
#define NEXT                                                                                                           \
    {                                                                                                                  \
        .method = "GET", .path = "invocation/next"                                                                     \
    }
#define POST(where, text)                                                                                              \
    {                                                                                                                  \
        .method = "POST", .path = where, .body = text                                                                  \
    }

typedef struct process {
    int port;
    const scripted_request *requests;
    int codes[MAX_REQUESTS];
    char *bodies[MAX_REQUESTS];
    char id[64], deadline_ms[32], arn[128], trace[128];
    pthread_t thread;
    atomic_bool ended;
} process;

static void keep_header(const fth_http_response *response, const char *name, char *value, size_t size)
{
    char *text = fth_http_header(response, name);
    if (text)
        snprintf(value, size, "%s", text);
    free(text);
}

static void *act(void *context)
{
    process *self = context;
    fth_http_client *client = NULL;
    assert_int_equal(fth_http_client_open(NULL, &client), FTH_OK);
    for (int i = 0; self->requests[i].method; i++) {
        const scripted_request *asked = &self->requests[i];
        const char *headers[] = {asked->header, NULL};
        char url[300], path[200];
        fth_http_response response = {0};
        snprintf(path, sizeof path, asked->path, self->id);
        snprintf(url, sizeof url, "http://127.0.0.1:%d/2018-06-01/runtime/%s", self->port, path);
        fth_http_request request = {.method = asked->method,
                                    .url = url,
                                    .headers = headers,
                                    .body = asked->body,
                                    .body_bytes = asked->body_bytes ? asked->body_bytes
                                                  : asked->body     ? strlen(asked->body)
                                                                    : 0,
                                    .deadline = test_deadline_in(60)};
        if (fth_http_perform(client, &request, &response) == FTH_OK) {
            self->codes[i] = response.code;
            self->bodies[i] = strdup(response.body ? response.body : "");
            keep_header(&response, "Lambda-Runtime-Aws-Request-Id", self->id, sizeof self->id);
            keep_header(&response, "Lambda-Runtime-Deadline-Ms", self->deadline_ms, sizeof self->deadline_ms);
            keep_header(&response, "Lambda-Runtime-Invoked-Function-Arn", self->arn, sizeof self->arn);
            keep_header(&response, "Lambda-Runtime-Trace-Id", self->trace, sizeof self->trace);
        }
        fth_http_response_release(&response);
    }
    fth_http_client_free(client);
    self->ended = true;
    return NULL;
}

static void start_process(process *self, const fth_runtime_api *api, const scripted_request *requests)
{
    *self = (process){.port = fth_runtime_api_port(api), .requests = requests};
    assert_int_equal(pthread_create(&self->thread, NULL, act, self), 0);
}

static void end_process(process *self)
{
    pthread_join(self->thread, NULL);
}

static void forget_process(process *self)
{
    for (int i = 0; i < MAX_REQUESTS; i++)
        free(self->bodies[i]);
}

static bool is_alive(void *context)
{
    return !((process *)context)->ended;
}

static fth_runtime_api *start_api(void)
{
    fth_runtime_api *api = NULL;
    if (fth_runtime_api_start(&api) != FTH_OK)
        fail_msg("%s", fth_error_message());
    return api;
}

static const fth_runtime_event event = {.request_id = "11111111-2222-3333-4444-555555555555",
                                        .function_arn = "arn:aws:lambda:us-east-1:000000000000:function:echo",
                                        .trace_id = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=0",
                                        .body = "{\"snow\": \"❄\"}",
                                        .body_bytes = sizeof "{\"snow\": \"❄\"}" - 1,
                                        .start_s = 60,
                                        .timeout_s = 60};

static void an_event_is_answered(void **state)
{
    (void)state;
    const scripted_request requests[] = {
        NEXT, POST("invocation/%s/response", "[\"☃\", 1]"), NEXT, POST("invocation/%s/response", "\"again\""), {0}};
    fth_runtime_api *api = start_api();
    fth_runtime_answer answer;
    process self;
    double wall = fth_clock_wall_seconds();
    start_process(&self, api, requests);
    assert_int_equal(fth_runtime_api_invoke(api, &event, NULL, NULL, &answer), FTH_OK);
    assert_true(answer.answered && !answer.failed && !isnan(answer.delivered_s));
    assert_string_equal(answer.body, "[\"☃\", 1]");
    fth_runtime_answer_release(&answer);
    /* The same process takes the next, and the body is any bytes. */
    fth_runtime_event second = event;
    second.request_id = "second";
    assert_int_equal(fth_runtime_api_invoke(api, &second, NULL, NULL, &answer), FTH_OK);
    assert_string_equal(answer.body, "\"again\"");
    fth_runtime_answer_release(&answer);
    end_process(&self);
    const int expected[] = {200, 202, 200, 202};
    assert_memory_equal(self.codes, expected, sizeof expected);
    assert_string_equal(self.bodies[0], event.body);
    assert_string_equal(self.bodies[1], "{\"status\":\"OK\"}");
    assert_string_equal(self.id, "second");
    assert_string_equal(self.arn, event.function_arn);
    assert_string_equal(self.trace, event.trace_id);
    double deadline_s = (double)atoll(self.deadline_ms) / 1000;
    assert_true(deadline_s >= wall + 59.9 && deadline_s <= fth_clock_wall_seconds() + 60.1);
    forget_process(&self);
    fth_runtime_api_stop(api);
}

static void errors_are_reported(void **state)
{
    (void)state;
    static const char body[] = "{\"errorMessage\": \"no\", \"errorType\": \"ValueError\", \"stackTrace\": []}";
    const scripted_request requests[] = {NEXT,
                                         {.method = "POST",
                                          .path = "invocation/%s/error",
                                          .body = body,
                                          .header = "Lambda-Runtime-Function-Error-Type: ValueError"},
                                         {0}};
    fth_runtime_api *api = start_api();
    fth_runtime_answer answer;
    process self;
    start_process(&self, api, requests);
    assert_int_equal(fth_runtime_api_invoke(api, &event, NULL, NULL, &answer), FTH_OK);
    assert_true(answer.answered && answer.failed);
    assert_string_equal(answer.body, body);
    assert_string_equal(answer.error_type, "ValueError");
    fth_runtime_answer_release(&answer);
    end_process(&self);
    assert_int_equal(self.codes[1], 202);
    forget_process(&self);
    fth_runtime_api_stop(api);
}

static void a_failed_start_is_the_invocations_error(void **state)
{
    (void)state;
    const scripted_request requests[] = {
        POST("init/error", "{\"errorMessage\": \"no module\"}"), POST("init/error", "{}"), NEXT, {0}};
    fth_runtime_api *api = start_api();
    fth_runtime_answer answer;
    process self;
    start_process(&self, api, requests);
    assert_int_equal(fth_runtime_api_invoke(api, &event, NULL, NULL, &answer), FTH_OK);
    assert_true(answer.failed && isnan(answer.delivered_s));
    assert_string_equal(answer.body, "{\"errorMessage\": \"no module\"}");
    fth_runtime_answer_release(&answer);
    end_process(&self);
    const int expected[] = {202, 403, 403};
    assert_memory_equal(self.codes, expected, sizeof expected);
    forget_process(&self);
    fth_runtime_api_stop(api);
}

static void wrong_turns_are_refused(void **state)
{
    (void)state;
    const scripted_request requests[] = {POST("invocation/early/response", "1"), /* nothing runs */
                                         NEXT,
                                         POST("invocation/another/response", "1"),
                                         NEXT, /* before the answer */
                                         POST("invocation/%s/nothing", "1"),
                                         POST("init/error", "{}"),
                                         POST("invocation/%s/response", "2"),
                                         POST("invocation/%s/response", "3"), /* once more */
                                         {0}};
    fth_runtime_api *api = start_api();
    fth_runtime_answer answer;
    process self;
    start_process(&self, api, requests);
    assert_int_equal(fth_runtime_api_invoke(api, &event, NULL, NULL, &answer), FTH_OK);
    assert_string_equal(answer.body, "2");
    fth_runtime_answer_release(&answer);
    end_process(&self);
    const int expected[] = {403, 200, 400, 403, 404, 403, 202, 403};
    assert_memory_equal(self.codes, expected, sizeof expected);
    assert_non_null(strstr(self.bodies[2], "InvalidRequestID"));
    assert_non_null(strstr(self.bodies[3], "InvalidStateTransition"));
    forget_process(&self);
    fth_runtime_api_stop(api);
}

static void an_answer_that_is_too_large_is_an_error(void **state)
{
    (void)state;
    const size_t sizes[] = {FTH_RUNTIME_MAX_PAYLOAD, FTH_RUNTIME_MAX_PAYLOAD + 1, 40 << 20};
    char *large = calloc(1, 40 << 20);
    assert_non_null(large);
    for (size_t i = 0; i < FTH_COUNT_OF(sizes); i++) {
        const scripted_request requests[] = {
            NEXT, {.method = "POST", .path = "invocation/%s/response", .body = large, .body_bytes = sizes[i]}, {0}};
        fth_runtime_api *api = start_api();
        fth_runtime_answer answer;
        process self;
        start_process(&self, api, requests);
        assert_int_equal(fth_runtime_api_invoke(api, &event, NULL, NULL, &answer), FTH_OK);
        end_process(&self);
        if (i == 0) {
            assert_false(answer.failed);
            assert_int_equal(answer.body_bytes, sizes[0]);
        } else {
            assert_true(answer.failed);
            assert_string_equal(answer.error_type, "Function.ResponseSizeTooLarge");
            /* A client that does not ask first may find the connection closed before it has sent
             * all of 40 MB. */
            assert_true(self.codes[1] == 413 || (i == 2 && self.codes[1] == 0));
            if (self.codes[1] == 413)
                assert_non_null(strstr(self.bodies[1], "RequestEntityTooLarge"));
        }
        fth_runtime_answer_release(&answer);
        forget_process(&self);
        fth_runtime_api_stop(api);
    }
    free(large);
}

static void silence_and_death_are_told_apart(void **state)
{
    (void)state;
    const scripted_request takes[] = {NEXT, {0}};
    fth_runtime_api *api = start_api();
    fth_runtime_answer answer;
    process self;
    fth_runtime_event hurried = event;
    hurried.timeout_s = 0.05;
    start_process(&self, api, takes);
    assert_int_equal(fth_runtime_api_invoke(api, &hurried, NULL, NULL, &answer), FTH_TIMEOUT);
    assert_message_has("no answer within 0.05 s");
    end_process(&self);
    forget_process(&self);
    fth_runtime_api_stop(api);

    api = start_api();
    start_process(&self, api, takes);
    assert_int_equal(fth_runtime_api_invoke(api, &event, is_alive, &self, &answer), FTH_PEER_LOST);
    end_process(&self);
    forget_process(&self);
    fth_runtime_api_stop(api);

    api = start_api();
    hurried.start_s = 0.05;
    assert_int_equal(fth_runtime_api_invoke(api, &hurried, NULL, NULL, &answer), FTH_TIMEOUT);
    assert_message_has("did not ask for an invocation");
    fth_runtime_api_stop(api);
}

/* A process that waits for its next event does not keep the server. */
static void it_stops_while_a_process_waits(void **state)
{
    (void)state;
    const scripted_request waits[] = {NEXT, {0}};
    fth_runtime_api *api = start_api();
    process self;
    start_process(&self, api, waits);
    fth_runtime_api_stop(api);
    end_process(&self);
    assert_int_not_equal(self.codes[0], 200);
    forget_process(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_is_answered),
        cmocka_unit_test(errors_are_reported),
        cmocka_unit_test(a_failed_start_is_the_invocations_error),
        cmocka_unit_test(wrong_turns_are_refused),
        cmocka_unit_test(an_answer_that_is_too_large_is_an_error),
        cmocka_unit_test(silence_and_death_are_told_apart),
        cmocka_unit_test(it_stops_while_a_process_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
