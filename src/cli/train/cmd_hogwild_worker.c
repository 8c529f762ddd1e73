/* farthing hogwild-worker: what `train --strategy hogwild --processes N` starts N of. Not for
 * people. */
#include <stdlib.h>

#include "cli/cli.h"
#include "parallel/parallel.h"

static fth_exit_code run(const fth_command *command, const fth_invocation *invocation)
{
    if (invocation->argc != 2)
        return fth_cli_usage(command, "this is for farthing itself: train --strategy hogwild --processes N");
    fth_status status = fth_hogwild_worker_run(atoi(invocation->argv[0]), atoi(invocation->argv[1]));
    return status == FTH_OK ? FTH_EXIT_OK : fth_cli_fail();
}

const fth_command fth_command_hogwild_worker = {
    .name = FTH_HOGWILD_COMMAND,
    .arguments = "DESCRIPTOR NUMBER",
    .summary = "a worker process of train --strategy hogwild",
    .hidden = true,
    .run = run,
};
