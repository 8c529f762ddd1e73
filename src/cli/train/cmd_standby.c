/* farthing standby: waits beside a run that another machine trains, and continues it when that one
 * is gone. All that it knows it reads from the run's store; no controller is needed. */
#include "cli/cli.h"

const fth_command fth_command_standby = {
    .name = "standby",
    .arguments = "[FILE.yaml] --checkpoints URL [--flag value ...]",
    .summary = "wait until a run's machine is lost, then continue the run",
    .details =
        "Waits until there is a run in the store, then until its machine has given it up, or has shown no sign of "
        "life\nfor the time of a lease; then trains. If the run ends meanwhile, so does this, with exit code 0.\n"
        "\nGive it the options of `farthing train` that the run was started with, or the same FILE.yaml. These may "
        "differ\nfrom machine to machine:\n",
    .computes = true,
    .make_table = fth_cli_train_table,
    .options = {.command = FTH_FOR_STANDBY, .unlisted = FTH_FOR_TRAIN},
    .examples =
        (const fth_example[]){
            {"farthing standby run.yaml --checkpoints s3://bucket/run", "take over when the machine is gone"}, {0}},
    .run = fth_cli_train,
};
