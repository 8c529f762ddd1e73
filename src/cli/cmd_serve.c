/* farthing serve: services, by a second word. Each is a row of the table at the end. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/serve_cli.h"

static const fth_service_command *const services[] = {&fth_serve_parameters};

static fth_exit_code run_serve(const fth_command *command, const fth_invocation *invocation)
{
    const char *name = invocation->argc > 0 ? invocation->argv[0] : "--help";
    const char *names[FTH_COUNT_OF(services) + 1] = {0};
    for (size_t i = 0; i < FTH_COUNT_OF(services); i++) {
        names[i] = services[i]->name;
        if (strcmp(name, names[i]) == 0) {
            fth_command inner = *command;
            char whole[64];
            snprintf(whole, sizeof whole, "serve %s", name);
            inner.name = whole;
            inner.summary = services[i]->summary;
            inner.arguments = "[--flag value ...]";
            inner.details = services[i]->details;
            return services[i]->run(&inner,
                                    &(fth_invocation){invocation->program, invocation->argc - 1, invocation->argv + 1});
        }
    }
    if (strcmp(name, "--help") == 0) {
        printf("farthing serve: %s\n\nusage: farthing serve WHAT [--flag value ...]\n\n", command->summary);
        for (size_t i = 0; i < FTH_COUNT_OF(services); i++)
            printf("  %-12s %s\n", services[i]->name, services[i]->summary);
        printf("\n`farthing serve WHAT --help` says more\n");
        return FTH_EXIT_OK;
    }
    const char *nearest = fth_nearest_name(name, names);
    return fth_cli_usage(command, "there is no service \"%s\"%s%s", name, nearest ? "; did you mean " : "",
                         nearest ? nearest : "");
}

const fth_command fth_command_serve = {.name = "serve",
                                       .arguments = "WHAT [--flag value ...]",
                                       .summary = "run a service: parameters (a parameter server)",
                                       .computes = true,
                                       .run = run_serve};
