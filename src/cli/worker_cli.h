/* Workers of `farthing worker`: a command each, in worker_<name>.c, and a row in cmd_worker.c. */
#ifndef FTH_CLI_WORKER_CLI_H
#define FTH_CLI_WORKER_CLI_H

#include "cli/cli.h"

extern const fth_command fth_worker_prefetch;

#endif
