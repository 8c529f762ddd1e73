/* farthing standby: waits beside a run that another machine trains, and carries it on when that one is gone. All that
 * it knows it reads from the run's store; no controller is needed. */
#include "cli/cli.h"

static fth_exit_code run(const fth_command *command, const fth_invocation *invocation)
{
    return fth_cli_train(command, invocation, true);
}

const fth_command fth_command_standby = {
    .name = "standby",
    .arguments = "[FILE.yaml] --checkpoints URL [--flag value ...]",
    .summary = "wait for a run's machine to vanish, then train on",
    .details =
        "Takes the arguments of train. Waits until there is a run in the store, then until its machine has given "
        "it\nup, or has shown no sign of life for the time of a lease; then trains. If the run ends meanwhile, so "
        "does\nthis, with exit code 0.\n",
    .computes = true,
    .run = run,
};
