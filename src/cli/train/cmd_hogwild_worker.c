/* farthing hogwild-worker: a worker process of `train --strategy hogwild --processes N`. Not for
 * users. */
#include <stdlib.h>

#include "cli/cli.h"
#include "parallel/parallel.h"

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    (void)options;
    if (arguments->count != 2)
        return fth_cli_usage(command, "this is for farthing itself: train --strategy hogwild --processes N");
    return fth_cli_exit_code(fth_hogwild_worker_run(atoi(arguments->positional[0]), atoi(arguments->positional[1])));
}

const fth_command fth_command_hogwild_worker = {
    .name = FTH_HOGWILD_COMMAND,
    .arguments = "DESCRIPTOR NUMBER",
    .summary = "a worker process of train --strategy hogwild",
    .hidden = true,
    .run = run,
};
