/* Verbs of `farthing functions`: a command each, in functions_<name>.c, and a row in cmd_functions.c. */
#ifndef FTH_CLI_FUNCTIONS_CLI_H
#define FTH_CLI_FUNCTIONS_CLI_H

#include "cli/cli.h"

extern const fth_command fth_functions_package;

#endif
