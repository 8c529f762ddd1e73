/* farthing worker lambda: a function of AWS Lambda (src/functions/lambda.h). */
#include "cli/serve/worker_cli.h"
#include "functions/lambda.h"

typedef struct lambda_options {
    fth_option_bits set;
    fth_function_flags function;
    char *api;
} lambda_options;

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, lambda_options, member)
static const fth_option rows[] = {
    {ROW("api", TEXT, api), .argument = "HOST:PORT",
     .help = "Lambda's Runtime API; else AWS_LAMBDA_RUNTIME_API, which Lambda sets", .group = "The function"},
    FTH_FUNCTION_ROWS(offsetof(lambda_options, function)),
};
static const fth_option_table table = FTH_OPTION_TABLE(rows, lambda_options);

static fth_status work(const lambda_options *asked, const fth_stop *stop)
{
    const fth_function_options options = fth_function_flags_read(&asked->function);
    fth_function *function = NULL;
    const fth_lambda_options with = {.api = *asked->api ? asked->api : NULL, .stop = stop};
    fth_status status = fth_function_create(&options, &function);
    status = status == FTH_OK ? fth_lambda_run(&with, function) : fth_lambda_report_start_failure(&with, status);
    fth_function_free(function);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    (void)command;
    return fth_cli_exit_code(work(options, arguments->stop));
}

const fth_command fth_worker_lambda = {
    .name = "worker lambda",
    .arguments = "[--flag value ...]",
    .summary = "be a function of AWS Lambda: train for a parameter server, or prefetch, when invoked",
    .details = "The loop of a custom runtime: asks Lambda's Runtime API for invocations and answers them. The program\n"
               "does this by itself when it is started under the name bootstrap, as Lambda starts what is in a zip.\n"
               "docs/functions.md lists the parameters of events and what a job answers. Keys for the parameter\n"
               "server: FARTHING_ACCESS_KEY and FARTHING_SECRET_KEY in the function's environment.\n",
    .examples =
        (const fth_example[]){{"farthing worker lambda", "in Lambda"},
                              {"farthing worker lambda --api 127.0.0.1:9001", "for a Runtime API on this machine"},
                              {0}},
    .table = &table,
    .flags_only = true,
    .stop_words = "stopping",
    .run = run,
};
