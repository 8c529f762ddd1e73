/* A platform in this process: queues, warm processes and ends, with this program as the
 * function. */
#include "support.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/process.h"
#include "http/http.h"
#include "platform/platform.h"

static fth_platform *open_platform(const fth_platform_options *more)
{
    char path[TEST_MAX_PATH];
    fth_platform *platform = NULL;
    fth_platform_options options = *more;
    options.folder = test_path(path, "platform");
    if (fth_platform_open(&options, &platform) != FTH_OK)
        fail_msg("%s", fth_error_message());
    return platform;
}

static void deploy(fth_platform *platform, const char *name, double timeout_s)
{
    char self[TEST_MAX_PATH];
    const char *command[] = {fth_process_program(self, sizeof self), "function", NULL};
    fth_function_spec spec = {
        .name = name, .contract = "lambda", .command = command, .memory_mb = 256, .timeout_s = timeout_s};
    if (fth_platform_deploy(platform, &spec) != FTH_OK)
        fail_msg("%s", fth_error_message());
}

static void start(fth_platform *platform, const char *name, const char *what, char id[80])
{
    bool throttled = true;
    json_t *value = json_pack("{s:s}", "do", what);
    if (fth_platform_invoke(platform, name, value, id, &throttled) != FTH_OK)
        fail_msg("%s", fth_error_message());
    assert_false(throttled);
    json_decref(value);
}

static fth_invocation_outcome run(fth_platform *platform, const char *name, const char *what)
{
    fth_invocation_outcome outcome;
    char id[80];
    start(platform, name, what, id);
    if (fth_platform_poll(platform, id, test_deadline_in(60), &outcome) != FTH_OK)
        fail_msg("%s", fth_error_message());
    assert_string_equal(outcome.id, id);
    return outcome;
}

static int64_t pid_of(const fth_invocation_outcome *outcome)
{
    return json_integer_value(json_object_get(outcome->result, "pid"));
}

static void outcomes_say_what_became_of_it(void **state)
{
    (void)state;
    fth_platform *platform = open_platform(&(fth_platform_options){0});
    deploy(platform, "echo", 60);
    fth_invocation_outcome first = run(platform, "echo", "answer"), second = run(platform, "echo", "answer");
    assert_int_equal(first.state, FTH_INVOCATION_DONE);
    assert_true(first.duration_s >= 0 && first.start_s > 0 && first.peak_bytes > 0);
    assert_true(isnan(second.start_s)); /* it was warm */
    assert_int_equal(pid_of(&first), pid_of(&second));
    assert_non_null(strstr(first.logs, "REPORT RequestId"));
    fth_invocation_outcome_release(&second);
    second = run(platform, "echo", "exit");
    assert_int_equal(second.state, FTH_INVOCATION_FAILED);
    assert_non_null(strstr(second.error, "exit status 3"));
    fth_invocation_outcome_release(&second);
    second = run(platform, "echo", "answer");
    assert_int_not_equal(pid_of(&first), pid_of(&second));
    fth_invocation_outcome_release(&first);
    fth_invocation_outcome_release(&second);
    fth_platform_close(platform);
}

static void time_runs_out(void **state)
{
    (void)state;
    fth_platform *platform = open_platform(&(fth_platform_options){0});
    deploy(platform, "slow", 0.2);
    fth_invocation_outcome outcome = run(platform, "slow", "sleep");
    assert_int_equal(outcome.state, FTH_INVOCATION_FAILED);
    assert_non_null(strstr(outcome.error, "longer than its 0.2 s"));
    fth_invocation_outcome_release(&outcome);
    fth_platform_close(platform);
}

/* Asserts are for the test's own thread: gives what went wrong, or NULL. */
static void *invoke_some(void *context)
{
    char *wrong = NULL;
    for (int i = 0; i < 6 && !wrong; i++) {
        fth_invocation_outcome outcome = {0};
        json_t *value = json_pack("{s:s}", "do", "answer");
        bool throttled = false;
        char id[80];
        if (fth_platform_invoke(context, i % 2 ? "one" : "other", value, id, &throttled) != FTH_OK || throttled ||
            fth_platform_poll(context, id, test_deadline_in(60), &outcome) != FTH_OK)
            wrong = strdup(throttled ? "throttled" : fth_error_message());
        else if (outcome.state != FTH_INVOCATION_DONE)
            wrong = fth_format("state %d: %s\n%s", outcome.state, outcome.error ? outcome.error : "no error",
                               outcome.logs ? outcome.logs : "");
        else if (strcmp(outcome.id, id) != 0 || pid_of(&outcome) == 0)
            wrong = fth_format("%s was asked for and %s answered", id, outcome.id);
        fth_invocation_outcome_release(&outcome);
        json_decref(value);
    }
    return wrong;
}

/* More than there may be processes of, from several threads, of two functions that take each
 * other's places. */
static void many_at_once_are_all_answered(void **state)
{
    (void)state;
    fth_platform *platform = open_platform(&(fth_platform_options){.max_processes = 3});
    pthread_t threads[6];
    deploy(platform, "one", 60);
    deploy(platform, "other", 60);
    for (size_t i = 0; i < FTH_COUNT_OF(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, invoke_some, platform), 0);
    for (size_t i = 0; i < FTH_COUNT_OF(threads); i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        if (wrong)
            fail_msg("%s", (char *)wrong);
    }
    fth_platform_close(platform);
}

/* What waits for the only place gets it as soon as that is free, though its process could stay. */
static void a_place_that_is_free_is_given_on(void **state)
{
    (void)state;
    fth_platform *platform = open_platform(&(fth_platform_options){.max_processes = 1, .idle_s = 1000});
    fth_invocation_outcome outcome;
    char first[80], second[80];
    deploy(platform, "one", 60);
    deploy(platform, "other", 60);
    start(platform, "one", "answer", first);
    start(platform, "other", "answer", second);
    assert_int_equal(fth_platform_poll(platform, second, test_deadline_in(60), &outcome), FTH_OK);
    assert_int_equal(outcome.state, FTH_INVOCATION_DONE);
    fth_invocation_outcome_release(&outcome);
    fth_platform_close(platform);
}

typedef struct redeployment {
    fth_platform *platform;
    atomic_bool done;
} redeployment;

static void *redeploy(void *context)
{
    redeployment *self = context;
    const fth_function_spec spec = {.name = "one", .contract = "lambda", .memory_mb = 256};
    char *wrong = NULL;
    for (int i = 0; i < 100 && !wrong; i++)
        if (fth_platform_deploy(self->platform, &spec) != FTH_OK)
            wrong = strdup(fth_error_message());
    atomic_store(&self->done, true);
    return wrong;
}

/* Who looks while others deploy sees the old function or the new one, whole. */
static void a_function_is_whole_while_it_is_replaced(void **state)
{
    (void)state;
    redeployment again = {.platform = open_platform(&(fth_platform_options){0})};
    pthread_t thread;
    void *wrong = NULL;
    deploy(again.platform, "one", 60);
    assert_int_equal(pthread_create(&thread, NULL, redeploy, &again), 0);
    while (!wrong && !atomic_load(&again.done)) {
        json_t *functions = NULL;
        if (fth_platform_status(again.platform, "one", &functions) != FTH_OK)
            wrong = strdup(fth_error_message());
        json_decref(functions);
    }
    void *deploying = NULL;
    pthread_join(thread, &deploying);
    if (wrong || deploying)
        fail_msg("%s", wrong ? (char *)wrong : (char *)deploying);
    fth_platform_close(again.platform);
}

static void too_many_are_not_accepted(void **state)
{
    (void)state;
    fth_platform *platform = open_platform(&(fth_platform_options){.max_activations = 2});
    char id[80];
    bool throttled = false;
    json_t *value = json_object();
    deploy(platform, "slow", 60);
    start(platform, "slow", "sleep", id);
    start(platform, "slow", "sleep", id);
    assert_int_equal(fth_platform_invoke(platform, "slow", value, id, &throttled), FTH_OK);
    assert_true(throttled);
    assert_int_equal(fth_platform_invoke(platform, "nothing", value, id, &throttled), FTH_INVALID);
    assert_message_has("no function nothing; deploy it first");
    json_decref(value);
    fth_platform_close(platform);
}

/* What runs, and what waits, has failed when the platform is closed; the next one knows. */
static void an_end_is_the_end_of_all(void **state)
{
    (void)state;
    fth_platform *platform = open_platform(&(fth_platform_options){.max_processes = 1});
    fth_platform_service *service = NULL;
    fth_invocation_outcome outcome;
    char ids[2][80];
    assert_int_equal(fth_platform_serve(platform, &(fth_platform_service_options){0}, &service), FTH_OK);
    assert_true(fth_platform_service_port(service) > 0);
    deploy(platform, "slow", 60);
    start(platform, "slow", "sleep", ids[0]);
    start(platform, "slow", "sleep", ids[1]);
    assert_int_equal(fth_platform_poll(platform, ids[0], fth_deadline_in(0.01), &outcome), FTH_OK);
    assert_int_equal(outcome.state, FTH_INVOCATION_RUNNING);
    fth_invocation_outcome_release(&outcome);
    fth_platform_service_stop(service);
    fth_platform_close(platform);
    platform = open_platform(&(fth_platform_options){0});
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fth_platform_poll(platform, ids[i], test_deadline_in(60), &outcome), FTH_OK);
        assert_int_equal(outcome.state, FTH_INVOCATION_FAILED);
        assert_non_null(strstr(outcome.error, "the platform was stopped"));
        fth_invocation_outcome_release(&outcome);
    }
    json_t *functions = NULL;
    assert_int_equal(fth_platform_status(platform, NULL, &functions), FTH_OK);
    assert_int_equal(json_array_size(functions), 1);
    const json_t *invocations = json_object_get(json_array_get(functions, 0), "invocations");
    assert_int_equal(json_array_size(invocations), 2);
    assert_true(json_is_string(json_object_get(json_array_get(invocations, 0), "started")));
    json_decref(functions);
    assert_int_equal(fth_platform_remove(platform, "slow"), FTH_OK);
    assert_int_equal(fth_platform_remove(platform, "slow"), FTH_INVALID);
    fth_platform_close(platform);
}

static void what_cannot_be_deployed_is_refused(void **state)
{
    (void)state;
    const char *missing[] = {"/nowhere/program", NULL};
    const struct {
        fth_function_spec spec;
        const char *part;
    } cases[] = {
        {{.name = "../x"}, "cannot be the name"},
        {{.name = ""}, "cannot be the name"},
        {{.name = "x", .contract = "knative"}, "unknown contract"},
        {{.name = "x", .memory_mb = -5}, "-5 MB"},
        {{.name = "x", .timeout_s = INFINITY}, "time limit"},
        {{.name = "x", .command = missing}, "/nowhere/program cannot be executed"},
        {{.name = "x", .zip = "/nowhere/x.zip"}, "/nowhere/x.zip"},
    };
    fth_platform *platform = open_platform(&(fth_platform_options){0});
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        assert_int_equal(fth_platform_deploy(platform, &cases[i].spec), FTH_INVALID);
        assert_message_of(cases[i].spec.name, cases[i].part);
    }
    assert_false(test_exists("platform/actions/x"));
    fth_platform_close(platform);
}

/* ---- this program as the function ---- */

static int be_function(void)
{
    fth_http_client *client = NULL;
    char base[200];
    snprintf(base, sizeof base, "http://%s/2018-06-01/runtime/invocation", getenv("AWS_LAMBDA_RUNTIME_API"));
    if (fth_http_client_open(NULL, &client) != FTH_OK)
        return 1;
    for (;;) {
        char url[400], body[64];
        fth_http_response event = {0}, answer = {0};
        snprintf(url, sizeof url, "%s/next", base);
        if (fth_http_perform(client, &(fth_http_request){.method = "GET", .url = url, .stall_s = 1000}, &event) !=
                FTH_OK ||
            event.code != 200)
            return 0;
        if (strstr(event.body, "exit"))
            _exit(3); /* at once, as one that fails does */
        while (strstr(event.body, "sleep"))
            pause();
        char *id = fth_http_header(&event, "Lambda-Runtime-Aws-Request-Id");
        snprintf(url, sizeof url, "%s/%s/response", base, id);
        snprintf(body, sizeof body, "{\"pid\": %ld}", (long)getpid());
        fth_status status = fth_http_perform(
            client, &(fth_http_request){.method = "POST", .url = url, .body = body, .body_bytes = strlen(body)},
            &answer);
        free(id);
        fth_http_response_release(&event);
        fth_http_response_release(&answer);
        if (status != FTH_OK)
            return 0;
    }
}

int main(int count, char **arguments)
{
    if (count == 2 && strcmp(arguments[1], "function") == 0)
        return be_function();
    signal(SIGPIPE, SIG_IGN); /* as the program does */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(outcomes_say_what_became_of_it, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(time_runs_out, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(many_at_once_are_all_answered, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(a_place_that_is_free_is_given_on, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(a_function_is_whole_while_it_is_replaced, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(too_many_are_not_accepted, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(an_end_is_the_end_of_all, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(what_cannot_be_deployed_is_refused, test_make_folder, test_remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
