/* Services of `farthing serve`: a command each, in serve_<name>.c, and a row in cmd_serve.c. */
#ifndef FTH_CLI_SERVE_CLI_H
#define FTH_CLI_SERVE_CLI_H

#include "cli/cli.h"

extern const fth_command fth_serve_parameters;

#endif
