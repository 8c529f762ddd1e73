/* farthing serve: services, by a second word. Each is a row of the table below. */
#include <stdio.h>
#include <string.h>

#include "cli/serve_cli.h"

static const fth_command *const services[] = {&fth_serve_parameters, &fth_serve_batches, NULL};

static fth_choice choose_service(size_t index)
{
    const fth_command *service = services[index];
    return service ? (fth_choice){fth_command_last_word(service), service->summary} : (fth_choice){0};
}

static fth_exit_code run(const fth_command *command, const fth_invocation *invocation)
{
    fth_no_options options;
    fth_arguments arguments;
    fth_exit_code code;
    const char *name = invocation->argc > 0 ? invocation->argv[0] : "--help";
    const fth_invocation rest = {invocation->program, invocation->argc - 1, invocation->argv + 1};

    for (const fth_command *const *service = services; *service; service++)
        if (strcmp(name, fth_command_last_word(*service)) == 0)
            return (*service)->run(*service, &rest);
    if (*name != '-')
        return fth_cli_usage_choice(command, "the service", name, choose_service);
    const fth_invocation first = {invocation->program, 1, (char *[]){(char *)name, NULL}};
    if (fth_cli_read_flags(command, &first, &options, &arguments, &code))
        code = fth_cli_usage(command, "say which service first: farthing serve WHAT");
    fth_arguments_release(&arguments);
    return code;
}

const fth_command fth_command_serve = {
    .name = "serve",
    .arguments = "WHAT [--flag value ...]",
    .summary = "run a service: parameters (a parameter server), batches (data for many jobs)",
    .details = "`farthing serve WHAT --help` says more of each.\n",
    .parts = services,
    .computes = true,
    .run = run};
