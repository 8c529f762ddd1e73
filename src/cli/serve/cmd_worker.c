/* farthing worker: the list of workers for other services. */
#include <string.h>

#include "cli/serve/worker_cli.h"

static const fth_command *const workers[] = {&fth_worker_prefetch, &fth_worker_openwhisk, &fth_worker_lambda, NULL};

static fth_choice choose_worker(size_t index)
{
    const fth_command *worker = workers[index];
    return worker ? (fth_choice){fth_command_last_word(worker), worker->summary} : (fth_choice){0};
}

const fth_command fth_command_worker = {
    .name = "worker",
    .arguments = "WHAT [--flag value ...]",
    .summary = "work for a service on another machine: prefetch (batches); openwhisk, lambda (functions)",
    .details = "`farthing worker WHAT --help` describes each worker.\n",
    .parts = workers,
    .list_parts = choose_worker,
    .part_subject = "the worker",
};
