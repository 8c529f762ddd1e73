/* OpenWhisk's and Lambda's REST APIs against a server whose answers are written down: what is sent,
 * what is made of each answer, and what is tried again. */
#include "support.h"

#include <math.h>

#include "providers/provider.h"
#include "stub_server.h"

enum { MAX_ANSWERS = 8 };

typedef struct canned_answer {
    int code; /* 0: the connection is closed without one; -1: nothing comes */
    const char *lines, *body;
} canned_answer;

/* A server, its answers in their order (the last one over and over), and what it was asked. */
typedef struct fixture {
    stub_server server;
    canned_answer answers[MAX_ANSWERS];
    int count;
    char asked[MAX_ANSWERS][256], bodies[MAX_ANSWERS][512], headers[MAX_ANSWERS][2048];
    fth_provider *provider;
    fth_stop stop;
} fixture;

static char *answer(void *context, const stub_request *request, size_t *size_bytes, bool *close)
{
    fixture *f = context;
    (void)close;
    int slot = request->number < MAX_ANSWERS ? request->number : MAX_ANSWERS - 1;
    const canned_answer *chosen = &f->answers[request->number < f->count ? request->number : f->count - 1];
    snprintf(f->asked[slot], sizeof f->asked[slot], "%s %.230s", request->method, request->target);
    snprintf(f->bodies[slot], sizeof f->bodies[slot], "%s", request->body_bytes ? request->body : "");
    snprintf(f->headers[slot], sizeof f->headers[slot], "%.2000s", request->headers);
    if (chosen->code == 0)
        return NULL;
    if (chosen->code < 0) {
        *size_bytes = 0;
        return strdup("");
    }
    return stub_answer(chosen->code, chosen->lines ? chosen->lines : "", chosen->body ? chosen->body : "", size_bytes);
}

static int start(void **state)
{
    static const char *const unset[] = {"WHISK_APIHOST", "WHISK_AUTH",         "__OW_API_HOST",
                                        "__OW_API_KEY",  "AWS_ENDPOINT_URL",   "AWS_ENDPOINT_URL_LAMBDA",
                                        "AWS_REGION",    "AWS_DEFAULT_REGION", "AWS_PROFILE"};
    char path[TEST_MAX_PATH];
    fixture *f = calloc(1, sizeof *f);
    f->stop = (fth_stop)FTH_STOP_INITIALIZER;
    *state = f;
    for (size_t i = 0; i < FTH_COUNT_OF(unset); i++)
        unsetenv(unset[i]);
    if (test_make_folder(NULL) != 0)
        return -1;
    setenv("HOME", test_folder, 1);
    setenv("WSK_CONFIG_FILE", test_path(path, "wskprops"), 1);
    setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test", 1);
    setenv("AWS_SESSION_TOKEN", "token-of-the-test", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", test_path(path, "no-credentials"), 1);
    setenv("AWS_CONFIG_FILE", test_path(path, "no-config"), 1);
    stub_start(&f->server, answer, f);
    return 0;
}

static int stop(void **state)
{
    fixture *f = *state;
    if (f->provider)
        f->provider->kind->close(f->provider);
    stub_stop(&f->server);
    free(f);
    return test_remove_folder(NULL);
}

static void open_provider(fixture *f, const fth_provider_kind *kind, bool detached)
{
    char host[64];
    snprintf(host, sizeof host, "http://127.0.0.1:%d", f->server.port);
    assert_int_equal(kind->open(&(fth_provider_options){.host = host,
                                                        .key = "uuid:key-of-the-test",
                                                        .region = "eu-west-1",
                                                        .detached = detached,
                                                        .stop = &f->stop},
                                &f->provider),
                     FTH_OK);
}

static void set_answers(fixture *f, const canned_answer *answers, int count)
{
    pthread_mutex_lock(&f->server.mutex); /* under which it answers */
    memcpy(f->answers, answers, (size_t)count * sizeof *answers);
    f->count = count;
    pthread_mutex_unlock(&f->server.mutex);
}
#define SET_ANSWERS(f, ...)                                                                                            \
    set_answers(f, (const canned_answer[]){__VA_ARGS__},                                                               \
                (int)(sizeof(const canned_answer[]){__VA_ARGS__} / sizeof(canned_answer)))

static fth_status invoke(fixture *f, const char *name, double within_s, fth_invocation_outcome *outcome)
{
    json_t *parameters = json_pack("{s:i}", "epoch_n", 2);
    fth_status status = f->provider->kind->invoke(f->provider, name, parameters, fth_deadline_in(within_s), outcome);
    json_decref(parameters);
    return status;
}

/* ---- OpenWhisk ---- */

static void openwhisk_is_invoked_and_polled(void **state)
{
    fixture *f = *state;
    fth_invocation_outcome outcome;
    open_provider(f, &fth_provider_openwhisk, false);
    SET_ANSWERS(f, {202, NULL, "{\"activationId\":\"abc123\"}"}, {404, NULL, "{\"error\":\"not yet\",\"code\":\"x\"}"},
                {200, NULL,
                 "{\"activationId\":\"abc123\",\"duration\":1500,\"logs\":[\"t stdout: one\",\"t stderr: two\"],"
                 "\"annotations\":[{\"key\":\"initTime\",\"value\":250}],"
                 "\"response\":{\"status\":\"success\",\"success\":true,\"result\":{\"samples\":7}}}"});
    assert_int_equal(invoke(f, "mnist", 30, &outcome), FTH_OK);
    assert_int_equal(outcome.state, FTH_INVOCATION_RUNNING);
    assert_string_equal(outcome.id, "abc123");
    assert_string_equal(f->asked[0], "POST /api/v1/namespaces/_/actions/mnist");
    assert_string_equal(f->bodies[0], "{\"epoch_n\":2}");
    assert_non_null(strstr(f->headers[0], "Authorization: Basic dXVpZDprZXktb2YtdGhlLXRlc3Q=\r\n"));
    assert_non_null(strstr(f->headers[0], "Content-Type: application/json\r\n"));
    fth_invocation_outcome_release(&outcome);

    assert_int_equal(f->provider->kind->poll(f->provider, "mnist", "abc123", test_deadline_in(30), &outcome), FTH_OK);
    assert_string_equal(f->asked[2], "GET /api/v1/namespaces/_/activations/abc123");
    assert_int_equal(outcome.state, FTH_INVOCATION_DONE);
    assert_int_equal(json_integer_value(json_object_get(outcome.result, "samples")), 7);
    assert_string_equal(outcome.logs, "t stdout: one\nt stderr: two\n");
    assert_true(fabs(outcome.duration_s - 1.5) < 1e-9 && fabs(outcome.start_s - 0.25) < 1e-9);
    fth_invocation_outcome_release(&outcome);
}

static void openwhisk_names_have_name_spaces(void **state)
{
    fixture *f = *state;
    fth_invocation_outcome outcome;
    static const char *const wrong[] = {"", "/", "/ns", "//x", "/ns/", "a/../../b", "/ns//x"};
    open_provider(f, &fth_provider_openwhisk, false);
    SET_ANSWERS(f, {202, NULL, "{\"activationId\":\"a\"}"});
    assert_int_equal(invoke(f, "/guest/pkg/mnist \xe2\x98\x83", 30, &outcome), FTH_OK);
    assert_string_equal(f->asked[0], "POST /api/v1/namespaces/guest/actions/pkg/mnist%20%E2%98%83");
    fth_invocation_outcome_release(&outcome);
    for (size_t i = 0; i < FTH_COUNT_OF(wrong); i++) {
        assert_int_equal(invoke(f, wrong[i], 30, &outcome), FTH_INVALID);
        assert_message_of(wrong[i], "not the name of an action");
        fth_invocation_outcome_release(&outcome);
    }
    assert_int_equal(f->server.requests, 1);
}

static void openwhisk_failures_are_outcomes(void **state)
{
    fixture *f = *state;
    fth_invocation_outcome outcome;
    open_provider(f, &fth_provider_openwhisk, false);
    SET_ANSWERS(f, {200, NULL,
                    "{\"activationId\":\"a\",\"response\":{\"status\":\"application error\",\"success\":false,"
                    "\"result\":{\"error\":\"The action exceeded its time limits of 300000 milliseconds.\"}}}"});
    assert_int_equal(f->provider->kind->poll(f->provider, "mnist", "a", fth_deadline_in(0), &outcome), FTH_OK);
    assert_int_equal(outcome.state, FTH_INVOCATION_FAILED);
    assert_non_null(strstr(outcome.error, "exceeded its time limits"));
    assert_true(isnan(outcome.duration_s) && isnan(outcome.peak_bytes));
    fth_invocation_outcome_release(&outcome);
}

static void too_many_is_throttling(void **state)
{
    fixture *f = *state;
    fth_invocation_outcome outcome;
    open_provider(f, &fth_provider_openwhisk, false);
    SET_ANSWERS(f, {429, "Retry-After: 7\r\n", "{\"error\":\"Too many concurrent requests\",\"code\":\"c\"}"});
    assert_int_equal(invoke(f, "mnist", 30, &outcome), FTH_OK);
    assert_int_equal(outcome.state, FTH_INVOCATION_THROTTLED);
    assert_true(fabs(outcome.retry_after_s - 7) < 1e-9);
    assert_non_null(strstr(outcome.error, "Too many concurrent"));
    fth_invocation_outcome_release(&outcome);
    assert_int_equal(f->server.requests, 1);
}

/* What may have started is not started again here, by whichever way its answer was lost. */
static void a_lost_answer_is_unknown(void **state)
{
    fixture *f = *state;
    fth_invocation_outcome outcome;
    static const canned_answer lost[] = {{0, NULL, NULL}, {-1, NULL, NULL}, {502, NULL, "bad gateway"}};
    const fth_provider_kind *const kinds[] = {&fth_provider_openwhisk, &fth_provider_lambda};
    for (size_t k = 0; k < FTH_COUNT_OF(kinds); k++) {
        open_provider(f, kinds[k], false);
        for (size_t i = 0; i < FTH_COUNT_OF(lost); i++) {
            int before = f->server.requests;
            set_answers(f, &lost[i], 1);
            assert_int_equal(invoke(f, "mnist", 0.3 * TEST_SLOWDOWN, &outcome), FTH_OK);
            assert_int_equal(outcome.state, FTH_INVOCATION_UNKNOWN);
            assert_non_null(strstr(outcome.error, "127.0.0.1"));
            fth_invocation_outcome_release(&outcome);
            assert_int_equal(f->server.requests, before + 1);
        }
        kinds[k]->close(f->provider);
        f->provider = NULL;
    }
}

static void what_may_be_repeated_is(void **state)
{
    fixture *f = *state;
    open_provider(f, &fth_provider_openwhisk, false);
    SET_ANSWERS(f, {503, NULL, ""}, {0, NULL, NULL}, {200, NULL, "{}"});
    assert_int_equal(f->provider->kind->remove(f->provider, "mnist"), FTH_OK);
    assert_int_equal(f->server.requests, 3);
    assert_string_equal(f->asked[2], "DELETE /api/v1/namespaces/_/actions/mnist");
}

static void refusals_say_what_to_do(void **state)
{
    fixture *f = *state;
    fth_invocation_outcome outcome;
    open_provider(f, &fth_provider_openwhisk, false);
    static const struct {
        canned_answer answer;
        const char *part;
    } cases[] = {
        {{401, NULL, "{\"error\":\"The supplied authentication is invalid\"}"}, "WHISK_AUTH"},
        {{404, NULL, "{\"error\":\"The requested resource does not exist.\"}"}, "does not exist"},
        {{302, "Location: https://elsewhere.example/login?token=abc\r\n", ""}, "https://elsewhere.example/login;"},
        {{200, NULL, "<html>hello</html>"}, "is not JSON"},
        {{202, NULL, "{\"activationId\":17}"}, "no activationId"},
        {{202, NULL, "{\"activationId\":\"a\\u001bb\"}"}, "no activationId"},
        {{202, NULL, "[]"}, "no activationId"},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        set_answers(f, &cases[i].answer, 1);
        assert_int_not_equal(invoke(f, "mnist", 30, &outcome), FTH_OK);
        assert_message_has(cases[i].part);
        assert_message_has("127.0.0.1");
        assert_null(strstr(fth_error_message(), "key-of-the-test"));
        fth_invocation_outcome_release(&outcome);
    }
}

static void a_stop_ends_what_waits(void **state)
{
    fixture *f = *state;
    fth_invocation_outcome outcome;
    open_provider(f, &fth_provider_openwhisk, false);
    SET_ANSWERS(f, {404, NULL, "{}"});
    fth_stop_ask(&f->stop, FTH_STOP_REQUEST, INFINITY, "test", "enough");
    assert_int_equal(f->provider->kind->poll(f->provider, "mnist", "a", fth_deadline_in(3600), &outcome),
                     FTH_INTERRUPTED);
    fth_invocation_outcome_release(&outcome);
}

static void openwhisk_is_found_by_its_file(void **state)
{
    fixture *f = *state;
    fth_invocation_outcome outcome;
    char text[256];
    SET_ANSWERS(f, {202, NULL, "{\"activationId\":\"a\"}"});
    snprintf(text, sizeof text, "# wsk\nAPIHOST = http://127.0.0.1:%d/\r\nAUTH=uuid:of-the-file\nNAMESPACE=_\n",
             f->server.port);
    test_write_text("wskprops", text);
    assert_int_equal(fth_provider_openwhisk.open(&(fth_provider_options){0}, &f->provider), FTH_OK);
    assert_int_equal(invoke(f, "mnist", 30, &outcome), FTH_OK);
    assert_non_null(strstr(f->headers[0], "Basic dXVpZDpvZi10aGUtZmlsZQ==\r\n"));
    fth_invocation_outcome_release(&outcome);
    f->provider->kind->close(f->provider);

    setenv("WHISK_AUTH", "uuid:of-wsk", 1); /* goes before the file */
    assert_int_equal(fth_provider_openwhisk.open(&(fth_provider_options){0}, &f->provider), FTH_OK);
    assert_int_equal(invoke(f, "mnist", 30, &outcome), FTH_OK);
    assert_non_null(strstr(f->headers[1], "Basic dXVpZDpvZi13c2s=\r\n"));
    fth_invocation_outcome_release(&outcome);
}

static void openwhisk_needs_a_host_and_a_key(void **state)
{
    fixture *f = *state;
    static const char *const hosts[] = {"ftp://x", "https://", "https://user:pw@x", "x?y", "a b", "/x"};
    assert_int_equal(fth_provider_openwhisk.open(&(fth_provider_options){.key = "a:b"}, &f->provider), FTH_INVALID);
    assert_message_has("WHISK_APIHOST");
    assert_int_equal(fth_provider_openwhisk.open(&(fth_provider_options){.host = "h"}, &f->provider), FTH_INVALID);
    assert_message_has("WHISK_AUTH");
    assert_int_equal(
        fth_provider_openwhisk.open(&(fth_provider_options){.host = "h", .key = "half-a-secret"}, &f->provider),
        FTH_INVALID);
    assert_message_has("UUID:KEY");
    assert_null(strstr(fth_error_message(), "half-a-secret"));
    for (size_t i = 0; i < FTH_COUNT_OF(hosts); i++) {
        assert_int_equal(
            fth_provider_openwhisk.open(&(fth_provider_options){.host = hosts[i], .key = "a:b"}, &f->provider),
            FTH_INVALID);
        assert_null(f->provider);
    }
}

/* ---- Lambda ---- */

static void lambda_answers_with_its_result(void **state)
{
    fixture *f = *state;
    fth_invocation_outcome outcome;
    open_provider(f, &fth_provider_lambda, false);
    /* START, REPORT RequestId: r Duration: 1.50 ms Billed Duration: 200 ms Memory Size: 128 MB Max
     * Memory Used: 61 MB Init Duration: 30.00 ms */
    SET_ANSWERS(f,
                {200,
                 "x-amzn-RequestId: request-1\r\nX-Amz-Log-Result: "
                 "U1RBUlQKUkVQT1JUIFJlcXVlc3RJZDogcglEdXJhdGlvbjogMS41MCBtcwlCaWxsZWQgRHVyYXRpb246IDIwMCBtcwlNZW1vcnkg"
                 "U2l6ZTogMTI4IE1CCU1heCBNZW1vcnkgVXNlZDogNjEgTUIJSW5pdCBEdXJhdGlvbjogMzAuMDAgbXM=\r\n",
                 "{\"samples\":9}"});
    assert_int_equal(invoke(f, "mnist", 30, &outcome), FTH_OK);
    assert_string_equal(f->asked[0], "POST /2015-03-31/functions/mnist/invocations");
    assert_non_null(strcasestr(f->headers[0], "x-amz-invocation-type: RequestResponse\r\n"));
    assert_non_null(strcasestr(f->headers[0], "x-amz-security-token: token-of-the-test\r\n"));
    assert_non_null(strstr(f->headers[0], "Credential=AKIDEXAMPLE/"));
    assert_non_null(strstr(f->headers[0], "/eu-west-1/lambda/aws4_request, SignedHeaders=content-type;host;"));
    assert_int_equal(outcome.state, FTH_INVOCATION_DONE);
    assert_string_equal(outcome.id, "request-1");
    assert_int_equal(json_integer_value(json_object_get(outcome.result, "samples")), 9);
    assert_true(fabs(outcome.duration_s - 0.2) < 1e-9 && fabs(outcome.start_s - 0.03) < 1e-9);
    assert_true(fabs(outcome.peak_bytes - 61.0 * 1024 * 1024) < 1);
    fth_invocation_outcome_release(&outcome);
}

static void lambda_events_are_not_waited_for(void **state)
{
    fixture *f = *state;
    fth_invocation_outcome outcome;
    open_provider(f, &fth_provider_lambda, true);
    SET_ANSWERS(f, {202, "x-amzn-RequestId: r2\r\n", ""});
    assert_int_equal(invoke(f, "arn:aws:lambda:eu-west-1:1:function:mnist", 30, &outcome), FTH_OK);
    assert_string_equal(f->asked[0],
                        "POST /2015-03-31/functions/arn%3Aaws%3Alambda%3Aeu-west-1%3A1%3Afunction%3Amnist/invocations");
    assert_non_null(strcasestr(f->headers[0], "x-amz-invocation-type: Event\r\n"));
    assert_int_equal(outcome.state, FTH_INVOCATION_RUNNING);
    assert_string_equal(outcome.id, "r2");
    fth_invocation_outcome_release(&outcome);
    assert_int_equal(f->provider->kind->poll(f->provider, "mnist", "r2", fth_deadline_in(1), &outcome),
                     FTH_UNSUPPORTED);
    fth_invocation_outcome_release(&outcome);
}

static void lambda_failures_are_outcomes(void **state)
{
    fixture *f = *state;
    fth_invocation_outcome outcome;
    open_provider(f, &fth_provider_lambda, false);
    static const struct {
        canned_answer answer;
        fth_invocation_state state;
        const char *part;
    } cases[] = {
        {{200, "X-Amz-Function-Error: Unhandled\r\n",
          "{\"errorMessage\":\"Task timed out after 3.00 seconds\",\"errorType\":\"Sandbox.Timedout\"}"},
         FTH_INVOCATION_FAILED,
         "Sandbox.Timedout: Task timed out"},
        {{200, "X-Amz-Function-Error: Unhandled\r\nX-Amz-Log-Result: ****\r\n", "oops"},
         FTH_INVOCATION_FAILED,
         "Unhandled"},
        {{429, "Retry-After: 2\r\n",
          "{\"Reason\":\"ReservedFunctionConcurrentInvocationLimitExceeded\","
          "\"Type\":\"User\",\"message\":\"Rate Exceeded.\"}"},
         FTH_INVOCATION_THROTTLED,
         "Rate Exceeded."},
        {{500, NULL, "{\"Message\":\"internal\"}"}, FTH_INVOCATION_UNKNOWN, "internal"},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        set_answers(f, &cases[i].answer, 1);
        assert_int_equal(invoke(f, "mnist", 30, &outcome), FTH_OK);
        assert_int_equal(outcome.state, cases[i].state);
        assert_non_null(strstr(outcome.error, cases[i].part));
        fth_invocation_outcome_release(&outcome);
    }
    SET_ANSWERS(f, {200, NULL, "\"a text\""});
    assert_int_equal(invoke(f, "mnist", 30, &outcome), FTH_OK);
    assert_string_equal(json_string_value(json_object_get(outcome.result, "value")), "a text");
    fth_invocation_outcome_release(&outcome);
}

static void lambda_refusals_say_what_to_do(void **state)
{
    fixture *f = *state;
    fth_invocation_outcome outcome;
    open_provider(f, &fth_provider_lambda, false);
    SET_ANSWERS(f, {403, NULL, "{\"Message\":\"User is not authorized to perform: lambda:InvokeFunction\"}"});
    assert_int_equal(invoke(f, "mnist", 30, &outcome), FTH_INVALID);
    assert_message_has("not authorized");
    assert_message_has("policy");
    fth_invocation_outcome_release(&outcome);
    assert_int_equal(invoke(f, "../../x", 30, &outcome), FTH_INVALID);
    assert_message_has("not the name of a Lambda function");
    fth_invocation_outcome_release(&outcome);
    fth_provider *none = NULL;
    assert_int_equal(fth_provider_lambda.open(&(fth_provider_options){0}, &none), FTH_INVALID);
    assert_message_has("AWS_REGION");
    assert_int_equal(fth_provider_lambda.open(&(fth_provider_options){.region = "eu west"}, &none), FTH_INVALID);
    assert_int_equal(fth_provider_lambda.open(&(fth_provider_options){.host = "https://u:p@x", .region = "x"}, &none),
                     FTH_INVALID);
    assert_null(none);
}

static void signatures_cover_the_function_and_hide_the_key(void **state)
{
    fixture *f = *state;
    fth_invocation_outcome outcome;
    char first[65] = "", second[65] = "";
    SET_ANSWERS(f, {202, NULL, ""});
    open_provider(f, &fth_provider_lambda, true);
    assert_int_equal(invoke(f, "a", 30, &outcome), FTH_OK);
    fth_invocation_outcome_release(&outcome);
    assert_int_equal(invoke(f, "b", 30, &outcome), FTH_OK);
    fth_invocation_outcome_release(&outcome);
    assert_int_equal(sscanf(strstr(f->headers[0], "Signature="), "Signature=%64[0-9a-f]", first), 1);
    assert_int_equal(sscanf(strstr(f->headers[1], "Signature="), "Signature=%64[0-9a-f]", second), 1);
    assert_string_not_equal(first, second);
    assert_null(strstr(f->headers[0], "secret-of-the-test"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(openwhisk_is_invoked_and_polled, start, stop),
        cmocka_unit_test_setup_teardown(openwhisk_names_have_name_spaces, start, stop),
        cmocka_unit_test_setup_teardown(openwhisk_failures_are_outcomes, start, stop),
        cmocka_unit_test_setup_teardown(too_many_is_throttling, start, stop),
        cmocka_unit_test_setup_teardown(a_lost_answer_is_unknown, start, stop),
        cmocka_unit_test_setup_teardown(what_may_be_repeated_is, start, stop),
        cmocka_unit_test_setup_teardown(refusals_say_what_to_do, start, stop),
        cmocka_unit_test_setup_teardown(a_stop_ends_what_waits, start, stop),
        cmocka_unit_test_setup_teardown(openwhisk_is_found_by_its_file, start, stop),
        cmocka_unit_test_setup_teardown(openwhisk_needs_a_host_and_a_key, start, stop),
        cmocka_unit_test_setup_teardown(lambda_answers_with_its_result, start, stop),
        cmocka_unit_test_setup_teardown(lambda_events_are_not_waited_for, start, stop),
        cmocka_unit_test_setup_teardown(lambda_failures_are_outcomes, start, stop),
        cmocka_unit_test_setup_teardown(lambda_refusals_say_what_to_do, start, stop),
        cmocka_unit_test_setup_teardown(signatures_cover_the_function_and_hide_the_key, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
