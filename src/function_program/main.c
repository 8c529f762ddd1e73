/* farthing-function: the program that function platforms run. It has only what a worker needs: the
 * contracts of src/functions and the back end `portable`, no commands.
 *
 * With AWS_LAMBDA_RUNTIME_API set it is a custom Lambda runtime; else it serves OpenWhisk's
 * contract over HTTP. */
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "function_program/startup_pages.h"
#include "functions/lambda.h"
#include "functions/openwhisk.h"

enum { DEFAULT_PORT = 8080, LOOK_EVERY_MS = 20 };

static const char help[] =
    "farthing-function " FTH_VERSION ": trains in functions of OpenWhisk and AWS Lambda\n\n"
    "usage: farthing-function [--port N] [--address IP]\n\n"
    "  --port N      serve OpenWhisk's contract (POST /init, POST /run) on this port; 8080 if not given, 0: any free "
    "one\n"
    "  --address IP  and on this address; 0.0.0.0 if not given. 127.0.0.1 where it is no container\n\n"
    "Where AWS_LAMBDA_RUNTIME_API is set it takes invocations from there instead. docs/functions.md says what a\n"
    "function does.\n";

static fth_status serve_openwhisk(const fth_openwhisk_options *options, fth_function *function, const fth_stop *stop)
{
    fth_openwhisk *service = NULL;
    fth_status status = fth_openwhisk_start(options, function, &service);
    if (status != FTH_OK)
        return status;
    if (isatty(STDERR_FILENO)) /* a container's output becomes the first activation's log */
        fth_log_info("waiting for /init and /run on port %d", fth_openwhisk_port(service));
    while (!stop->asked)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_EVERY_MS * 1000000L}, NULL);
    if (!fth_openwhisk_stop(service, 0)) { /* the run still uses it */
        fth_log_error("the run under way did not stop");
        fflush(NULL);
        _exit(FTH_EXIT_FAILURE);
    }
    return FTH_OK;
}

static fth_exit_code run(const fth_openwhisk_options *options)
{
    fth_stop stop = FTH_STOP_INITIALIZER;
    fth_function *function = NULL;
    const char *api = getenv("AWS_LAMBDA_RUNTIME_API");
    const fth_lambda_options lambda = {.api = api, .stop = &stop};
    const bool on_lambda = api && *api;

    fth_signals_set_words("stopping");
    fth_signals_watch(&stop);
    fth_status status = fth_function_create(&(fth_function_options){0}, &function);
    if (status == FTH_OK)
        status = on_lambda ? fth_lambda_run(&lambda, function) : serve_openwhisk(options, function, &stop);
    else if (on_lambda)
        status = fth_lambda_report_start_failure(&lambda, status);
    fth_function_free(function);
    fth_signals_unwatch();
    if (status != FTH_OK)
        fth_log_error("%s", fth_error_message());
    return status == FTH_OK ? FTH_EXIT_OK : FTH_EXIT_FAILURE;
}

static bool read_port(const char *text, int *port)
{
    char *end;
    long number = strtol(text, &end, 10);
    *port = (int)number;
    return *text && !*end && number >= 0 && number <= 65535;
}

int main(int argc, char **argv)
{
    fth_openwhisk_options options = {.port = DEFAULT_PORT};
    prctl(PR_SET_NAME, "farthing"); /* not "ld.so", which starts it in a package */
    signal(SIGXFSZ, SIG_IGN);       /* beyond `ulimit -f` writes fail instead of ending the program */
    mallopt(M_ARENA_MAX, 2);        /* one thread computes, so more arenas would only hold more memory */
    fth_startup_pages_release();
    fth_log_set_level(FTH_LOG_INFO);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(help, stdout);
            return FTH_EXIT_OK;
        }
        if (strcmp(argv[i], "--version") == 0) {
            puts("farthing-function " FTH_VERSION);
            return FTH_EXIT_OK;
        }
        if (strcmp(argv[i], "--address") == 0 && i + 1 < argc) {
            options.address = argv[++i];
        } else if (strcmp(argv[i], "--port") != 0 || i + 1 >= argc || !read_port(argv[++i], &options.port)) {
            fth_log_error("cannot use \"%s\"; usage: farthing-function [--port N] [--address IP]", argv[i]);
            return FTH_EXIT_USAGE;
        }
    }
    return run(&options);
}
