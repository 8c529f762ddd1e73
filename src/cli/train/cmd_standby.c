/* farthing standby: waits while another machine trains a run, and continues the run when that
 * machine is lost. It uses only the run's store; there is no controller. */
#include "cli/cli.h"

const fth_command fth_command_standby = {
    .name = "standby",
    .arguments = "[FILE.yaml] --checkpoints URL [--flag value ...]",
    .summary = "wait until a run's machine is lost, then continue the run",
    .details = "Waits until the store contains a run, and its machine has released it or shown no sign of life for the "
               "duration\nof a lease; then trains. If the run ends meanwhile, standby ends with exit code 0.\n\nGive "
               "it the options of `farthing train` that the run was started with, or the same FILE.yaml. These may "
               "differ\nfrom machine to machine:\n",
    .computes = true,
    .make_table = fth_cli_train_table,
    .options = {.command = FTH_FOR_STANDBY, .unlisted = FTH_FOR_TRAIN},
    .examples =
        (const fth_example[]){
            {"farthing standby run.yaml --checkpoints s3://bucket/run", "take over when the machine is gone"}, {0}},
    .run = fth_cli_train,
};
