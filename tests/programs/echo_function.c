/* A function with jobs of the tests' own, behind the real contracts:
 *
 *     echo_function openwhisk     prints its port; ends at the end of its input
 *     echo_function lambda        works for $AWS_LAMBDA_RUNTIME_API; a stop at the end of its input
 *     echo_function no-lambda     reports that it cannot start
 *
 * Its jobs: "echo" (what it was given), "print" (fills both streams), "text" and "array" (results
 * of these types), "fail" (with "message"), "wait" (until the file "until" exists or it is stopped;
 * says whether another ran meanwhile). */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/process.h"
#include "functions/lambda.h"
#include "functions/openwhisk.h"

static fth_status open_nothing(const fth_function_options *options, void **state)
{
    (void)options;
    *state = NULL;
    return FTH_OK;
}

static void close_nothing(void *state)
{
    (void)state;
}

static bool fits_always(const json_t *value)
{
    (void)value;
    return true;
}

static bool fits_never(const json_t *value)
{
    (void)value;
    return false;
}

static const char *text_of(const json_t *value, const char *key)
{
    const char *text = json_string_value(json_object_get(value, key));
    return text ? text : "";
}

static fth_status echo(void *state, const fth_invocation_event *event, json_t **result)
{
    const char *log = text_of(event->value, "log");
    (void)state;
    if (*log)
        fth_log_info("%s", log);
    *result =
        json_pack("{s:O, s:O, s:s, s:s, s:s, s:b, s:I, s:f}", "value", event->value, "environment", event->environment,
                  "id", event->id, "function", event->function, "platform", event->platform, "cold", event->cold,
                  "memory", (json_int_t)event->memory_limit_bytes, "age_s", fth_clock_seconds() - event->began_s);
    if (isfinite(event->deadline_s))
        json_object_set_new(*result, "left_s", json_real(event->deadline_s - fth_clock_seconds()));
    const char *variable = fth_invocation_variable(event, "__OW_API_HOST");
    if (variable)
        json_object_set_new(*result, "api_host", json_string(variable));
    return FTH_OK;
}

static fth_status print(void *state, const fth_invocation_event *event, json_t **result)
{
    (void)state;
    for (json_int_t i = json_integer_value(json_object_get(event->value, "lines")); i > 0; i--) {
        printf("out %d\n", (int)i); /* buffered: the contract flushes */
        fth_log_info("err %d", (int)i);
    }
    *result = json_object();
    return FTH_OK;
}

static fth_status text(void *state, const fth_invocation_event *event, json_t **result)
{
    (void)state, (void)event;
    *result = json_string("not an object");
    return FTH_OK;
}

static fth_status array(void *state, const fth_invocation_event *event, json_t **result)
{
    (void)state, (void)event;
    *result = json_pack("[i, i]", 1, 2);
    return FTH_OK;
}

static fth_status fail(void *state, const fth_invocation_event *event, json_t **result)
{
    (void)state, (void)result;
    return fth_fail(FTH_PEER_LOST, "%s", text_of(event->value, "message"));
}

static fth_status wait(void *state, const fth_invocation_event *event, json_t **result)
{
    static atomic_int running;
    bool overlapped = atomic_fetch_add(&running, 1) > 0;
    (void)state;
    fth_log_info("waiting");
    while (access(text_of(event->value, "until"), F_OK) != 0 && !event->stop->asked)
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    overlapped = atomic_fetch_sub(&running, 1) > 1 || overlapped;
    *result = json_pack("{s:b, s:b}", "overlapped", overlapped, "stopped", (bool)event->stop->asked);
    return FTH_OK;
}

static void *watch_input(void *context)
{
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    fth_stop_ask(context, FTH_STOP_REQUEST, 30, "test", "the input has ended");
    return NULL;
}

#define JOB(job, fit)                                                                                                  \
    &(const fth_job_kind)                                                                                              \
    {                                                                                                                  \
#job, fit, open_nothing, job, close_nothing                                                                    \
    }

int main(int argc, char **argv)
{
    static fth_stop stop = FTH_STOP_INITIALIZER;
    const fth_job_kind *const jobs[] = {JOB(echo, fits_always),
                                        JOB(print, fits_never),
                                        JOB(text, fits_never),
                                        JOB(array, fits_never),
                                        JOB(fail, fits_never),
                                        JOB(wait, fits_never),
                                        NULL};
    const char *contract = argc > 1 ? argv[1] : "";
    fth_function *function = NULL;
    fth_openwhisk *service = NULL;
    fth_status status = FTH_OK;
    pthread_t watcher;

    fth_log_set_level(FTH_LOG_INFO);
    FTH_TRY(fth_function_create(&(fth_function_options){.jobs = jobs}, &function));
    FTH_REQUIRE(fth_thread_start(&watcher, "input", watch_input, &stop) == 0, FTH_NO_MEMORY, "no thread");
    const fth_lambda_options lambda = {.stop = &stop, .patience_s = 1};
    if (strcmp(contract, "lambda") == 0) {
        FTH_TRY(fth_lambda_run(&lambda, function));
    } else if (strcmp(contract, "no-lambda") == 0) {
        FTH_TRY(fth_lambda_report_start_failure(&lambda, fth_fail(FTH_UNSUPPORTED, "no function here")));
    } else {
        FTH_TRY(fth_openwhisk_start(&(fth_openwhisk_options){.address = "127.0.0.1"}, function, &service));
        printf("%d\n", fth_openwhisk_port(service));
        fflush(stdout);
        while (!stop.asked)
            nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        FTH_REQUIRE(fth_openwhisk_stop(service, 0), FTH_TIMEOUT, "the run did not stop");
    }
    pthread_join(watcher, NULL);

out:
    if (status != FTH_OK)
        fth_log_error("%s", fth_error_message());
    fth_function_free(function);
    return status == FTH_OK ? 0 : 1;
}
