/* See weight_update.h. */
#include "train/engine/weight_update.h"

#include <stdlib.h>
#include <string.h>

#include "train/engine/parameter_groups.h"
#include "train/setup/usual.h"

struct fth_weight_update {
    fth_device *device;
    const fth_optimizer *optimizer;
    const fth_update_kernel *kernel;
    fth_parameter_groups *own_groups;
    fth_update_groups groups;       /* of these; none: all parameters are updated alike */
    fth_update_arguments arguments; /* what does not change from one update to the next */
    double clip;                    /* largest norm of the gradients; 0: any */
    bool diverged;                  /* an update left a parameter that is not finite; arguments.diverged points here */
    fth_loss_scale loss_scale;      /* once there is an updater, as last read from it */
    fth_updater *updater;           /* where the back end has them, from the first step on */
    int64_t left_out;               /* updates, as the updater last reported */
};

static fth_status find_kernel(fth_weight_update *update)
{
    const fth_optimizer *optimizer = update->optimizer;
    const fth_backend *backend = update->device->backend;
    const char *rule = optimizer->choose_rule ? optimizer->choose_rule(&update->arguments) : optimizer->name;
    for (update->kernel = backend->updates; update->kernel->rule; update->kernel++)
        if (strcmp(update->kernel->rule, rule) == 0)
            return FTH_OK;
    return fth_fail(FTH_UNSUPPORTED, "--optimizer %s is not supported by --device %s: no kernel for %s",
                    optimizer->name, backend->name, rule);
}

fth_status fth_weight_update_create(const fth_train_options *options, const fth_graph *graph, fth_device *device,
                                    bool scales_loss, fth_weight_update **result)
{
    fth_status status = FTH_OK;
    fth_weight_update *update = NULL;
    fth_usual usual;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *update, &update));
    update->device = device;
    update->clip = options->optimizer.clip;
    if (scales_loss)
        update->loss_scale.scale = FTH_FIRST_LOSS_SCALE;
    FTH_TRY(fth_usual_find(options, NULL, &usual));
    FTH_TRY(fth_optimizer_find(usual.optimizer, &update->optimizer));
    update->arguments = (fth_update_arguments){.momentum = (float)options->optimizer.momentum,
                                               .weight_decay = (float)options->optimizer.weight_decay,
                                               .beta1 = (float)options->optimizer.beta1,
                                               .beta2 = (float)options->optimizer.beta2,
                                               .epsilon = (float)options->optimizer.epsilon,
                                               .nesterov = options->optimizer.nesterov,
                                               .diverged = &update->diverged};
    FTH_TRY(find_kernel(update));
    FTH_TRY(fth_parameter_groups_create(options, graph, &update->own_groups));
    update->groups = fth_parameter_groups_get(update->own_groups);
    *result = update;
    update = NULL;

out:
    fth_weight_update_free(update);
    return status;
}

void fth_weight_update_free(fth_weight_update *update)
{
    if (!update)
        return;
    if (update->updater)
        update->device->backend->capture->updater->close(update->updater);
    fth_parameter_groups_free(update->own_groups);
    free(update);
}

const fth_optimizer *fth_weight_update_get_optimizer(const fth_weight_update *update)
{
    return update->optimizer;
}

int fth_weight_update_state_count(const fth_weight_update *update)
{
    return update->kernel->vectors;
}

fth_update_arguments fth_weight_update_get_arguments(const fth_weight_update *update, double learning_rate,
                                                     int64_t number, float gradient_scale)
{
    fth_update_arguments arguments = update->arguments;
    arguments.learning_rate = (float)learning_rate;
    arguments.step = number;
    arguments.gradient_scale = gradient_scale;
    return arguments;
}

/* ---- the loss scale ---- */

fth_loss_scale fth_weight_update_get_loss_scale(fth_weight_update *update)
{
    if (update->updater && update->loss_scale.scale > 0)
        FTH_IGNORE(update->device->backend->capture->updater->get_scale(update->updater, &update->loss_scale),
                   "a lost device is reported by the next step");
    return update->loss_scale;
}

void fth_weight_update_set_loss_scale(fth_weight_update *update, fth_loss_scale scale)
{
    if (update->loss_scale.scale <= 0 || scale.scale <= 0)
        return;
    update->loss_scale = scale;
    if (update->updater)
        FTH_IGNORE(update->device->backend->capture->updater->set_scale(update->updater, scale),
                   "a lost device is reported by the next step");
}

static void log_left_out(double scale)
{
    fth_log_debug("gradients overflowed in f16: an update is left out, and the loss is scaled by %g from now on",
                  scale);
}

/* ---- updates after the run ---- */

static fth_status fail_diverged(void)
{
    return fth_fail(FTH_DIVERGED, "gradients or weights are no longer finite");
}

/* What the gradients are to be multiplied by; 0: the update is left out. */
static fth_status judge(fth_weight_update *update, const float *gradients, size_t count, float *factor)
{
    fth_status status = FTH_OK;
    fth_loss_scale scale = fth_weight_update_get_loss_scale(update);
    double norm = 0;

    *factor = 1;
    if (update->clip <= 0 && scale.scale <= 0)
        return FTH_OK;
    FTH_TRY(update->device->backend->norm(update->device, gradients, count, &norm));
    fth_update_verdict verdict = fth_judge_gradients(norm, update->clip, &scale, factor);
    if (verdict == FTH_UPDATE_DIVERGED)
        FTH_TRY(fail_diverged());
    if (verdict == FTH_UPDATE_LEAVE_OUT)
        log_left_out(scale.scale);
    fth_weight_update_set_loss_scale(update, scale);

out:
    return status;
}

/* Updates floats [begin, end) of the vectors; `gradients` are theirs alone. */
static fth_status run_kernel(const fth_weight_update *update, fth_model_vectors *vectors,
                             const fth_update_arguments *arguments, const float *gradients, size_t begin, size_t end)
{
    float *state[FTH_MAX_OPTIMIZER_VECTORS] = {0};
    if (end <= begin)
        return FTH_OK;
    for (int i = 0; i < vectors->sizes.state_count; i++)
        state[i] = vectors->state[i] + begin;
    return update->kernel->run(update->device, arguments, vectors->parameters + begin, gradients, state, end - begin);
}

/* The same, each group by its own numbers. */
static fth_status run_groups(const fth_weight_update *update, fth_model_vectors *vectors,
                             const fth_update_arguments *arguments, const float *gradients, size_t begin, size_t end)
{
    fth_status status = FTH_OK;
    const fth_update_groups *groups = &update->groups;

    if (groups->range_count == 0 || end <= begin)
        return run_kernel(update, vectors, arguments, gradients, begin, end);
    for (int i = fth_update_groups_find(groups, begin); begin < end; i++) {
        const fth_update_range *range = &groups->ranges[i];
        const size_t stop = range->end < end ? range->end : end;
        const fth_update_arguments own = fth_update_group_arguments(arguments, groups->groups[range->group]);
        FTH_TRY(run_kernel(update, vectors, &own, gradients, begin, stop));
        gradients += stop - begin;
        begin = stop;
    }

out:
    return status;
}

fth_status fth_weight_update_apply(fth_weight_update *update, fth_model_vectors *vectors, double learning_rate,
                                   int64_t number)
{
    const fth_float_range all = {0, vectors->sizes.trained};
    return fth_weight_update_apply_ranges(update, vectors, learning_rate, number, &all, 1);
}

fth_status fth_weight_update_apply_ranges(fth_weight_update *update, fth_model_vectors *vectors, double learning_rate,
                                          int64_t number, const fth_float_range *ranges, int count)
{
    fth_status status = FTH_OK;
    const float *gradients = fth_model_vectors_get_gradients(vectors);
    float factor = 0;

    FTH_TRY(judge(update, gradients, vectors->sizes.trained, &factor));
    fth_update_arguments arguments = fth_weight_update_get_arguments(update, learning_rate, number, factor);
    for (int i = 0; factor != 0 && i < count; i++)
        FTH_TRY(run_groups(update, vectors, &arguments, gradients + ranges[i].begin, ranges[i].begin, ranges[i].end));

out:
    return status;
}

fth_status fth_weight_update_apply_pieces(fth_weight_update *update, fth_model_vectors *vectors,
                                          const fth_update_arguments *arguments, const fth_gradient_piece *pieces,
                                          size_t count)
{
    fth_status status = FTH_OK;

    FTH_REQUIRE(update->clip <= 0, FTH_UNSUPPORTED, "gradients that are clipped must be in one vector");
    for (size_t i = 0; i < count; i++)
        FTH_TRY(run_groups(update, vectors, arguments, pieces[i].values, pieces[i].offset,
                           pieces[i].offset + pieces[i].count));

out:
    return status;
}

bool fth_weight_update_left_finite(const fth_weight_update *update)
{
    return !update->diverged;
}

void fth_weight_update_take_back(fth_weight_update *update)
{
    update->diverged = false;
}

/* ---- updates as a part of the run ---- */

bool fth_weight_update_has_updater(const fth_weight_update *update)
{
    const fth_backend *backend = update->device->backend;
    return backend->capture && backend->capture->updater;
}

fth_status fth_weight_update_get_updater(fth_weight_update *update, fth_model_vectors *vectors, fth_updater **updater)
{
    fth_status status = FTH_OK;

    if (!update->updater) {
        fth_updater_options options = {.kernel = update->kernel,
                                       .arguments = update->arguments,
                                       .clip = update->clip,
                                       .loss_scale = update->loss_scale,
                                       .parameters = vectors->parameters,
                                       .gradients = vectors->gradients,
                                       .count = vectors->sizes.trained,
                                       .groups = update->groups};
        for (int i = 0; i < vectors->sizes.state_count; i++)
            options.state[i] = vectors->state[i];
        FTH_TRY(update->device->backend->capture->updater->open(update->device, &options, &update->updater));
    }

out:
    *updater = update->updater;
    return status;
}

fth_status fth_weight_update_check(fth_weight_update *update)
{
    if (!update->updater)
        return FTH_OK;
    fth_updater_outcome outcome = update->device->backend->capture->updater->get_outcome(update->updater);
    if (outcome.diverged)
        return fail_diverged();
    if (outcome.left_out > update->left_out)
        log_left_out(fth_weight_update_get_loss_scale(update).scale);
    update->left_out = outcome.left_out;
    return FTH_OK;
}
