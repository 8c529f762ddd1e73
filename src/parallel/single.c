/* One process, one engine: gradients, then the update, in turn. */
#include "parallel/parallel_internal.h"
#include "train/engine.h"

static fth_status single_open(fth_engine *engine, const fth_train_options *options, void **state)
{
    (void)options;
    *state = engine; /* it needs nothing of its own */
    return FTH_OK;
}

static fth_status single_step(void *state, const fth_batch *batch, double learning_rate, fth_step_result *result)
{
    fth_engine *engine = state;
    fth_group group = fth_engine_group(engine, batch);
    fth_status status = fth_engine_compute(engine, batch, &group, result);
    if (status == FTH_OK && group.last)
        status = fth_engine_update(engine, learning_rate, group.update);
    return status;
}

static void single_close(void *state)
{
    (void)state;
}

const fth_strategy fth_strategy_single = {
    .name = "single",
    .summary = "one process, one device",
    .open = single_open,
    .step = single_step,
    .close = single_close,
};
