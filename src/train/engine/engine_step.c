/* A training step: gradients, and the update.
 *
 * Where the back end has updaters, both are one piece of work: the learning rate goes with it, and
 * clipping and f16's loss scale are decided on the device. Elsewhere, and for accumulated batches,
 * the update is made when the gradients are there. Both ways give the same numbers. */
#include <math.h>
#include <stdlib.h>

#include "train/engine/engine_internal.h"
#include "train/engine/snapshot.h"

/* ---- numbers that are not finite ---- */

fth_status fth_engine_check_finite(fth_engine *engine)
{
    fth_status status = FTH_OK;
    fth_snapshot *snapshot = NULL;

    FTH_TRY(fth_engine_lend_model(engine, 0, &snapshot));
    FTH_TRY(fth_snapshot_check_finite(snapshot));

out:
    fth_snapshot_free(snapshot);
    return status;
}

fth_status fth_engine_fail_diverged(fth_engine *engine, const char *what)
{
    fth_status found = fth_engine_check_finite(engine);
    if (found != FTH_OK && found != FTH_DIVERGED)
        return found;
    char *weights = fth_format("%s", found == FTH_OK ? "all weights are finite" : fth_error_message());
    fth_status status = fth_fail(FTH_DIVERGED, "%s (%s)", what, weights);
    free(weights);
    return status;
}

static fth_status check_loss(fth_engine *engine, const fth_step_result *result)
{
    if (isfinite(result->loss))
        return FTH_OK;
    return fth_engine_fail_diverged(engine, isnan(result->loss) ? "the loss is not a number" : "the loss is infinite");
}

/* The update noted what became of the parameters; buffers, which the forward pass moves, are
 * few. */
fth_status fth_engine_check_update(fth_engine *engine)
{
    if (fth_weight_update_left_finite(engine->update) &&
        (!engine->backend->host_memory ||
         fth_numbers_are_finite(engine->vectors.buffers, FTH_F32, engine->vectors.sizes.buffers)))
        return FTH_OK;
    return fth_engine_fail_diverged(engine, "a weight is no longer finite");
}

/* ---- sums on the devices of peers ---- */

/* What is accumulated is summed when it is complete; an empty part has no run. */
static bool sums_in_run(const fth_engine *engine, const fth_batch *batch)
{
    return engine->peers.group && !engine->vectors.accumulated && batch->count > 0;
}

/* Queues what the run did not do, for the last batch of a group. */
static fth_status sum_on_devices(fth_engine *engine, const fth_batch *batch)
{
    const fth_run run = {.peers = &engine->peers};
    const size_t count = engine->vectors.sizes.trained;
    size_t summed = 0;
    if (!engine->peers.group || sums_in_run(engine, batch))
        return FTH_OK;
    return fth_plan_sum_gradients(engine->device, &run, fth_model_vectors_get_gradients(&engine->vectors), count, count,
                                  &summed);
}

fth_status fth_engine_wait_for_sums(fth_engine *engine)
{
    enum { TIMEOUT_S = 300 };
    return engine->backend->collectives->wait(engine->peers.group, fth_deadline_in(TIMEOUT_S));
}

/* Forward and backward, with the settings of `run`. */
static fth_status run_training(fth_engine *engine, const fth_batch *batch, const fth_group *group, fth_run run,
                               fth_step_result *result)
{
    const fth_loss_scale loss_scale = fth_engine_get_loss_scale(engine);
    const double scale = loss_scale.scale > 0 ? loss_scale.scale : 1;

    run.gradient_scale = (float)(group->share * scale);
    run.sum_gradients = sums_in_run(engine, batch);
    run.step_seconds = engine->profile;
    return fth_engine_run_batch(engine, batch, FTH_PLAN_TRAIN, run, result);
}

fth_status fth_engine_compute(fth_engine *engine, const fth_batch *batch, const fth_group *group,
                              fth_step_result *result)
{
    fth_status status = FTH_OK;

    FTH_TRY(run_training(engine, batch, group, (fth_run){0}, result));
    FTH_TRY(fth_model_vectors_accumulate(&engine->vectors, group->first));
    if (group->last)
        FTH_TRY(sum_on_devices(engine, batch));
    FTH_TRY(check_loss(engine, result));

out:
    return status;
}

/* Gradients on their way from the backward pass to their watcher. */
typedef struct gradients_flow {
    fth_engine *engine;
    const fth_gradients_watch *watch;
    bool first;       /* the group's only batch, or its first */
    size_t passed_on; /* floats */
    fth_status status;
} gradients_flow;

static void pass_on(void *context, size_t floats)
{
    gradients_flow *flow = context;
    if (flow->status == FTH_OK && floats > flow->passed_on)
        flow->status = fth_model_vectors_accumulate_range(&flow->engine->vectors, flow->first, flow->passed_on, floats);
    if (flow->status != FTH_OK || floats <= flow->passed_on)
        return;
    flow->passed_on = floats;
    flow->watch->ready(flow->watch->context, floats);
}

fth_status fth_engine_compute_watched(fth_engine *engine, const fth_batch *batch, const fth_group *group,
                                      const fth_gradients_watch *watch, fth_step_result *result)
{
    fth_status status = FTH_OK;
    gradients_flow flow = {.engine = engine, .watch = watch, .first = group->first};

    FTH_TRY(
        run_training(engine, batch, group, (fth_run){.gradients_ready = pass_on, .gradients_context = &flow}, result));
    pass_on(&flow, engine->vectors.sizes.trained); /* what no step announces: padding, and all of an empty batch */
    FTH_TRY(flow.status);
    FTH_TRY(check_loss(engine, result));

out:
    return status;
}

/* ---- the update by itself ---- */

fth_loss_scale fth_engine_get_loss_scale(fth_engine *engine)
{
    return engine->update ? fth_weight_update_get_loss_scale(engine->update) : (fth_loss_scale){0};
}

void fth_engine_set_loss_scale(fth_engine *engine, fth_loss_scale scale)
{
    if (engine->update)
        fth_weight_update_set_loss_scale(engine->update, scale);
}

/* Adds to the message of an update that diverged which weight is no longer finite. */
static fth_status explain(fth_engine *engine, fth_status status)
{
    if (status != FTH_DIVERGED)
        return status;
    char *what = fth_format("%s", fth_error_message());
    status = fth_engine_fail_diverged(engine, what);
    free(what);
    return status;
}

fth_status fth_engine_update(fth_engine *engine, double learning_rate, int64_t update)
{
    return explain(engine, fth_weight_update_apply(engine->update, &engine->vectors, learning_rate, update));
}

fth_status fth_engine_update_ranges(fth_engine *engine, double learning_rate, int64_t update,
                                    const fth_float_range *ranges, int count)
{
    return explain(
        engine, fth_weight_update_apply_ranges(engine->update, &engine->vectors, learning_rate, update, ranges, count));
}

/* ---- both in one ---- */

fth_status fth_engine_step(fth_engine *engine, const fth_batch *batch, double learning_rate, fth_step_result *result)
{
    fth_status status = FTH_OK;
    const fth_group group = fth_engine_group(engine, batch);
    fth_updater *updater = NULL;

    if (!fth_weight_update_has_updater(engine->update) || engine->vectors.accumulated || engine->profile) {
        FTH_TRY(fth_engine_compute(engine, batch, &group, result));
        if (group.last)
            FTH_TRY(fth_engine_update(engine, learning_rate, group.update));
        status = fth_engine_check_update(engine);
        goto out;
    }
    FTH_TRY(fth_weight_update_get_updater(engine->update, &engine->vectors, &updater));
    FTH_TRY(fth_engine_run_batch(
        engine, batch, FTH_PLAN_TRAIN,
        (fth_run){
            .gradient_scale = group.share, .updater = updater, .learning_rate = learning_rate, .update = group.update},
        result));
    FTH_TRY(check_loss(engine, result));
    FTH_TRY(explain(engine, fth_weight_update_check(engine->update)));

out:
    return status;
}
