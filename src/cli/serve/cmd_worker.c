/* farthing worker: workers that other services use, by a second word. Each is a row of the table
 * below. */
#include <string.h>

#include "cli/serve/worker_cli.h"

static const fth_command *const workers[] = {&fth_worker_prefetch, &fth_worker_openwhisk, &fth_worker_lambda, NULL};

static fth_choice choose_worker(size_t index)
{
    const fth_command *worker = workers[index];
    return worker ? (fth_choice){fth_command_last_word(worker), worker->summary} : (fth_choice){0};
}

fth_exit_code fth_cli_run_worker(const fth_command *command, const fth_invocation *invocation, void *asked,
                                 fth_status (*work)(const void *asked, const fth_stop *stop))
{
    fth_arguments arguments;
    fth_exit_code code = FTH_EXIT_OK;
    fth_stop stop = FTH_STOP_INITIALIZER;

    if (fth_cli_read_flags(command, invocation, asked, &arguments, &code)) {
        fth_signals_set_words("stopping");
        fth_signals_watch(&stop);
        if (arguments.count > 0)
            code = fth_cli_usage(command, "%s takes flags only, not \"%s\"", command->name, arguments.positional[0]);
        else if (work(asked, &stop) != FTH_OK)
            code = fth_cli_fail();
        fth_signals_unwatch();
    }
    fth_arguments_release(&arguments);
    fth_options_release(command->table, asked);
    return code;
}

static fth_exit_code run(const fth_command *command, const fth_invocation *invocation)
{
    return fth_cli_run_part(command, invocation, "the worker", choose_worker);
}

const fth_command fth_command_worker = {
    .name = "worker",
    .arguments = "WHAT [--flag value ...]",
    .summary = "work for a service on another machine: prefetch (batches); openwhisk, lambda (functions)",
    .details = "`farthing worker WHAT --help` says more of each.\n",
    .parts = workers,
    .run = run};
