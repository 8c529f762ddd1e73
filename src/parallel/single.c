/* One process, one engine: gradients, then the update, in turn. */
#include "parallel/parallel_internal.h"
#include "train/engine/engine.h"

static fth_status single_open(fth_engine *engine, const fth_train_options *options, void **state)
{
    (void)options;
    *state = engine; /* it needs nothing of its own */
    return FTH_OK;
}

static fth_status single_step(void *state, const fth_batch *batch, double learning_rate, fth_step_result *result)
{
    return fth_engine_step(state, batch, learning_rate, result);
}

static void single_close(void *state)
{
    (void)state;
}

const fth_strategy fth_strategy_single = {
    .name = "single",
    .summary = "one process, one device",
    .optimizer = FTH_OPTIMIZER_OF_ENGINE,
    .takes_checkpoints = true,
    .keeps_data_on_device = true,
    .open = single_open,
    .step = single_step,
    .close = single_close,
};
