/* Services of `farthing serve`: one file each, serve_<name>.c, and a row in cmd_serve.c. */
#ifndef FTH_CLI_SERVE_CLI_H
#define FTH_CLI_SERVE_CLI_H

#include "cli/cli.h"

typedef struct fth_service_command {
    const char *name, *summary;
    const char *details; /* for --help; may be NULL */
    fth_exit_code (*run)(const fth_command *command, const fth_invocation *invocation);
} fth_service_command;

extern const fth_service_command fth_serve_parameters;

#endif
