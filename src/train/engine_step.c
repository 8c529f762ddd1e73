/* A training step: gradients, and the update.
 *
 * Where the back end has updaters, both are one piece of work: the learning rate goes with it, and clipping and f16's
 * loss scale are decided on the device. Elsewhere, and for accumulated batches, the update is made when the gradients
 * are there. Both ways give the same numbers. */
#include <math.h>
#include <stdlib.h>

#include "train/engine_internal.h"
#include "train/snapshot.h"

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

/* The update noted what became of the parameters; buffers, which the forward pass moves, are few. */
fth_status fth_engine_check_update(fth_engine *engine)
{
    if (!engine->spoiled && (!engine->backend->host_memory ||
                             fth_numbers_are_finite(engine->vectors.buffers, FTH_F32, engine->buffer_floats)))
        return FTH_OK;
    return fth_engine_fail_diverged(engine, "a weight is no longer finite");
}

fth_status fth_engine_compute(fth_engine *engine, const fth_batch *batch, const fth_group *group,
                              fth_step_result *result)
{
    fth_status status = FTH_OK;
    const fth_loss_scale loss_scale = fth_engine_get_loss_scale(engine);
    const double scale = loss_scale.scale > 0 ? loss_scale.scale : 1;

    FTH_TRY(fth_engine_run_batch(
        engine, batch, FTH_PLAN_TRAIN,
        (fth_run){.gradient_scale = (float)(group->share * scale), .step_seconds = engine->profile}, result));
    FTH_TRY(check_loss(engine, result));
    if (engine->accumulated) {
        size_t bytes = engine->trained_floats * sizeof(float);
        if (group->first)
            FTH_TRY(engine->backend->fill_zero(engine->device, engine->accumulated, bytes));
        FTH_TRY(engine->backend->add(engine->device, engine->accumulated, engine->vectors.gradients,
                                     engine->trained_floats));
    }

out:
    return status;
}

/* ---- the update by itself ---- */

fth_loss_scale fth_engine_get_loss_scale(fth_engine *engine)
{
    if (engine->updater && engine->loss_scale.scale > 0)
        engine->backend->capture->updater->get_scale(engine->updater,
                                                     &engine->loss_scale); /* a lost device shows elsewhere */
    return engine->loss_scale;
}

void fth_engine_set_loss_scale(fth_engine *engine, fth_loss_scale scale)
{
    if (engine->loss_scale.scale <= 0 || scale.scale <= 0)
        return;
    engine->loss_scale = scale;
    if (engine->updater)
        engine->backend->capture->updater->set_scale(engine->updater, scale);
}

static void warn_left_out(double scale)
{
    fth_log_debug("gradients overflowed in f16: an update is left out, and the loss is scaled by %g from now on",
                  scale);
}

static const char *const diverged = "gradients or weights are no longer finite";

/* What the gradients are to be multiplied by; 0: the update is left out. */
static fth_status judge(fth_engine *engine, const float *gradients, float *factor)
{
    fth_status status = FTH_OK;
    fth_loss_scale scale = fth_engine_get_loss_scale(engine);
    double norm = 0;

    *factor = 1;
    if (engine->options.train->clip <= 0 && scale.scale <= 0)
        return FTH_OK;
    FTH_TRY(engine->backend->norm(engine->device, gradients, engine->trained_floats, &norm));
    fth_update_verdict verdict = fth_judge_gradients(norm, engine->options.train->clip, &scale, factor);
    if (verdict == FTH_UPDATE_DIVERGED)
        FTH_TRY(fth_engine_fail_diverged(engine, diverged));
    if (verdict == FTH_UPDATE_LEAVE_OUT)
        warn_left_out(scale.scale);
    fth_engine_set_loss_scale(engine, scale);

out:
    return status;
}

fth_status fth_engine_update(fth_engine *engine, double learning_rate, int64_t update)
{
    fth_status status = FTH_OK;
    const float *gradients = engine->accumulated ? engine->accumulated : engine->vectors.gradients;

    engine->arguments.learning_rate = (float)learning_rate;
    engine->arguments.step = update;
    engine->arguments.spoiled = &engine->spoiled;
    FTH_TRY(judge(engine, gradients, &engine->arguments.gradient_scale));
    if (engine->arguments.gradient_scale != 0)
        FTH_TRY(engine->update->run(engine->device, &engine->arguments, engine->vectors.parameters, gradients,
                                    engine->state, engine->trained_floats));

out:
    return status;
}

/* ---- both in one ---- */

static bool has_updaters(const fth_backend *backend)
{
    return backend->capture && backend->capture->updater;
}

static fth_status open_updater(fth_engine *engine)
{
    fth_updater_options options = {.kernel = engine->update,
                                   .arguments = engine->arguments,
                                   .clip = engine->options.train->clip,
                                   .loss_scale = engine->loss_scale,
                                   .parameters = engine->vectors.parameters,
                                   .gradients = engine->vectors.gradients,
                                   .count = engine->trained_floats};
    for (int i = 0; i < engine->state_count; i++)
        options.state[i] = engine->state[i];
    return engine->backend->capture->updater->open(engine->device, &options, &engine->updater);
}

fth_status fth_engine_look_at_updates(fth_engine *engine)
{
    if (!engine->updater)
        return FTH_OK;
    fth_updater_outcome outcome = engine->backend->capture->updater->get_outcome(engine->updater);
    if (outcome.diverged)
        return fth_engine_fail_diverged(engine, diverged);
    if (outcome.left_out > engine->left_out)
        warn_left_out(fth_engine_get_loss_scale(engine).scale);
    engine->left_out = outcome.left_out;
    return FTH_OK;
}

fth_status fth_engine_step(fth_engine *engine, const fth_batch *batch, double learning_rate, fth_step_result *result)
{
    fth_status status = FTH_OK;
    const fth_group group = fth_engine_group(engine, batch);

    if (!has_updaters(engine->backend) || engine->accumulated || engine->profile) {
        FTH_TRY(fth_engine_compute(engine, batch, &group, result));
        if (group.last)
            FTH_TRY(fth_engine_update(engine, learning_rate, group.update));
        status = fth_engine_check_update(engine);
        goto out;
    }
    if (!engine->updater)
        FTH_TRY(open_updater(engine));
    FTH_TRY(fth_engine_run_batch(engine, batch, FTH_PLAN_TRAIN,
                                 (fth_run){.gradient_scale = group.share,
                                           .updater = engine->updater,
                                           .learning_rate = learning_rate,
                                           .update = group.update},
                                 result));
    FTH_TRY(check_loss(engine, result));
    FTH_TRY(fth_engine_look_at_updates(engine));

out:
    return status;
}
