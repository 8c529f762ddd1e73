/* farthing worker openwhisk: an action of OpenWhisk (src/functions/openwhisk.h). */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "cli/serve/worker_cli.h"
#include "functions/openwhisk.h"

enum { LOOK_EVERY_MS = 20 };

typedef struct action_options {
    fth_option_bits set;
    fth_function_flags function;
    char *address;
    int64_t port;
    bool json;
} action_options;

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, action_options, member)
static const fth_option rows[] = {
    {ROW("port", INTEGER, port), .fallback = "8080", .argument = "N", .maximum = 65535,
     .help = "where the platform calls it; 0: any free one", .group = "The action"},
    {ROW("address", TEXT, address), .fallback = "0.0.0.0", .argument = "IP",
     .help = "use 127.0.0.1 outside containers: anyone who can connect can run jobs"},
    FTH_FUNCTION_ROWS(offsetof(action_options, function)),
    {ROW("json", SWITCH, json), .help = "say where it serves as one JSON object"},
};
static const fth_option_table table = FTH_OPTION_TABLE(rows, action_options);

static void tell_where(const action_options *asked, int port)
{
    if (asked->json) {
        fth_cli_print_json_new(json_pack("{s:s, s:i}", "event", "serving", "port", port));
        return;
    }
    if (!isatty(STDOUT_FILENO)) /* what a container writes becomes the first activation's log */
        return;
    fth_print_line(stdout, "waiting for /init and /run on %s port %d", asked->address, port);
    fth_cli_flush();
}

static fth_status serve(const action_options *asked, const fth_stop *stop)
{
    fth_status status = FTH_OK;
    const fth_function_options options = fth_function_flags_read(&asked->function);
    fth_function *function = NULL;
    fth_openwhisk *service = NULL;

    FTH_TRY(fth_function_create(&options, &function));
    FTH_TRY(fth_openwhisk_start(&(fth_openwhisk_options){.address = asked->address, .port = (int)asked->port}, function,
                                &service));
    tell_where(asked, fth_openwhisk_port(service));
    while (!stop->asked)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_EVERY_MS * 1000000L}, NULL);
    if (!fth_openwhisk_stop(service, 0)) { /* its run uses what would be freed here */
        fth_log_error("the run under way did not stop");
        fflush(NULL);
        _exit(FTH_EXIT_FAILURE);
    }

out:
    fth_function_free(function);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    (void)command;
    return fth_cli_exit_code(serve(options, arguments->stop));
}

const fth_command fth_worker_openwhisk = {
    .name = "worker openwhisk",
    .arguments = "[--port 8080] [--flag value ...]",
    .summary = "be an action of OpenWhisk: train for a parameter server, or prefetch, when invoked",
    .details = "POST /init once, then POST /run with {\"value\": {parameters}} for each activation, one at a time;\n"
               "or Knative's POST /. docs/functions.md lists the parameters and what a job answers. Keys for the\n"
               "parameter server: FARTHING_ACCESS_KEY and FARTHING_SECRET_KEY, in the environment or that of /init.\n"
               "SIGTERM asks the run under way to stop; it answers with what it has.\n",
    .examples = (const fth_example[]){{"farthing worker openwhisk", "in a container, as the platform starts it"},
                                      {"farthing worker openwhisk --address 127.0.0.1 --port 8081",
                                       "on this machine, to be called with curl"},
                                      {0}},
    .table = &table,
    .flags_only = true,
    .stop_words = "stopping",
    .run = run,
};
