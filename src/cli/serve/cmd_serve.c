/* farthing serve: the list of services. */
#include "cli/serve/serve_cli.h"

static const fth_command *const services[] = {&fth_serve_parameters, &fth_serve_batches, &fth_serve_functions, NULL};

static fth_choice choose_service(size_t index)
{
    const fth_command *service = services[index];
    return service ? (fth_choice){fth_command_last_word(service), service->summary} : (fth_choice){0};
}

const fth_command fth_command_serve = {
    .name = "serve",
    .arguments = "WHAT [--flag value ...]",
    .summary =
        "run a service: parameters (a parameter server), batches (data for many jobs), functions (on this machine)",
    .details = "`farthing serve WHAT --help` describes each service.\n",
    .parts = services,
    .list_parts = choose_service,
    .part_subject = "the service",
    .computes = true,
};
