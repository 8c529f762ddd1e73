/* See updates.h. */
#include "parameters/updates.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/engine/update_guard.h"

struct fth_updates {
    const fth_server_parts *parts;
    fth_update_guard *guard;

    /* The step under construction. Its sum of gradients is in the model's vectors. */
    bool averaged;
    int64_t gradients, samples, buffer_samples;
    double largest, largest_buffer; /* upper bounds of the sums' magnitude */
    float *buffer_sum;
    fth_gradient_piece *pieces; /* one for each trained parameter */
};

fth_status fth_updates_create(const fth_server_parts *parts, fth_updates **result)
{
    fth_status status = FTH_OK;
    fth_updates *updates = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *updates, &updates));
    updates->parts = parts;
    FTH_TRY(fth_allocate((size_t)parts->model->layout->trained + 1, sizeof *updates->pieces, &updates->pieces));
    FTH_TRY(fth_allocate_aligned((parts->model->layout->buffer_floats + 1) * sizeof(float), &updates->buffer_sum));
    *result = updates;
    updates = NULL;

out:
    fth_updates_free(updates);
    return status;
}

void fth_updates_free(fth_updates *updates)
{
    if (!updates)
        return;
    fth_update_guard_free(updates->guard);
    free(updates->buffer_sum);
    free(updates->pieces);
    free(updates);
}

fth_status fth_updates_begin(fth_updates *updates)
{
    return fth_update_guard_create(updates->parts->model->engine, &updates->guard);
}

int64_t fth_updates_pending(const fth_updates *updates)
{
    return updates->gradients;
}

bool fth_updates_averaged(const fth_updates *updates)
{
    return updates->gradients > 0 ? updates->averaged
                                  : updates->parts->options->consistency.kind == FTH_CONSISTENCY_SYNC;
}

static int64_t next_version(const fth_updates *updates)
{
    return fth_served_position_version(updates->parts->position) + 1;
}

/* ---- which gradients can be applied ----
 *
 * Finite numbers can still ruin a model: at once if the update overflows, or as surely if it moves
 * a weight so far that nothing can be computed with it. Neither gets into the log. Sums cannot
 * overflow, because a gradient that would make them is refused. */

/* The most that the learning rate alone may move a weight in a step. Trained weights stay below
 * 1000. */
static const double FARTHEST = 1e6;

static double weight_of(const fth_gradient *gradient, bool averaged)
{
    return averaged ? (double)gradient->samples : 1;
}

static bool moves_too_far(const fth_updates *updates, const fth_gradient *gradient)
{
    return (double)gradient->largest * gradient->scale * fth_served_model_base_rate(updates->parts->model) > FARTHEST;
}

static bool sums_overflow(const fth_updates *updates, const fth_gradient *gradient, double weight)
{
    return updates->largest + weight * gradient->scale * gradient->largest > FTH_UPDATE_LIMIT ||
           updates->largest_buffer + weight * gradient->largest_buffer > FTH_UPDATE_LIMIT;
}

/* Whether a step of this gradient alone leaves all numbers finite. */
static fth_status try_alone(fth_updates *updates, const fth_gradient *gradient, double rate, bool *finite)
{
    fth_guarded_update update = {
        .learning_rate = rate, .update = next_version(updates), .largest = (double)gradient->largest * gradient->scale};
    *finite = fth_update_guard_allows(updates->guard, &update);
    if (*finite)
        return FTH_OK;
    fth_gradient_add(updates->parts->model->layout, gradient, gradient->scale, true,
                     updates->parts->model->vectors.gradients);
    return fth_update_guard_try(updates->guard, &update, finite);
}

fth_refusal fth_updates_check(fth_updates *updates, fth_gradient *gradient, const fth_update_how *how,
                              char message[FTH_MAX_REFUSAL])
{
    double weight = weight_of(gradient, how->averaged);
    bool finite = true;
    if (moves_too_far(updates, gradient) || sums_overflow(updates, gradient, weight))
        fth_gradient_measure(updates->parts->model->layout, gradient); /* the bound known so far may be too wide */
    if (moves_too_far(updates, gradient)) {
        snprintf(message, FTH_MAX_REFUSAL,
                 "it diverges: its largest number is %.3g, which at a learning rate of %g moves a weight by more than "
                 "%g; lower the learning rate, or start the server with --clip-pushes",
                 (double)gradient->largest, fth_served_model_base_rate(updates->parts->model), FARTHEST);
        return FTH_REFUSAL_DIVERGES;
    }
    if (sums_overflow(updates, gradient, weight)) {
        snprintf(
            message, FTH_MAX_REFUSAL,
            "it diverges: its largest number, %.3g, times its samples overflows; lower the learning rate, or start "
            "the server with --clip-pushes",
            (double)fmaxf(gradient->largest, gradient->largest_buffer));
        return FTH_REFUSAL_DIVERGES;
    }
    if (!how->steps || updates->gradients > 0)
        return FTH_REFUSAL_NONE;
    if (try_alone(updates, gradient, how->rate, &finite) != FTH_OK) {
        snprintf(message, FTH_MAX_REFUSAL, "the update failed: %s", fth_error_message());
        return FTH_REFUSAL_BUSY;
    }
    if (finite)
        return FTH_REFUSAL_NONE;
    snprintf(message, FTH_MAX_REFUSAL,
             "it diverges: the update would leave a weight, or the optimizer's state, that is not a finite number");
    return FTH_REFUSAL_DIVERGES;
}

void fth_gradient_clip(const fth_served_model *model, fth_parameters_metrics *metrics, fth_gradient *gradient,
                       double most)
{
    if (most <= 0)
        return;
    double norm = fth_gradient_norm(model->layout, gradient);
    if (norm <= most)
        return;
    gradient->scale = (float)(most / norm);
    atomic_fetch_add(&metrics->clipped, 1);
}

/* ---- steps ---- */

/* Adds all of a gradient except its numbers for trained parameters. */
static void add_rest(fth_updates *updates, const fth_gradient *gradient, double weight)
{
    if (gradient->has_buffers) {
        fth_gradient_add_buffers(updates->parts->model->layout, gradient, (float)weight, updates->buffer_samples == 0,
                                 updates->buffer_sum);
        updates->buffer_samples += gradient->samples;
        updates->largest_buffer += weight * gradient->largest_buffer;
    }
    updates->largest += weight * gradient->scale * gradient->largest;
    updates->gradients++;
    updates->samples += gradient->samples;
    fth_served_position_add_samples(updates->parts->position, gradient->samples);
    atomic_fetch_add(&updates->parts->metrics->samples, (uint64_t)gradient->samples);
}

static void scale(float *vector, float factor, size_t count)
{
    for (size_t i = 0; i < count; i++)
        vector[i] *= factor;
}

static void warn_of_void_step(fth_updates *updates)
{
    char message[160];
    snprintf(message, sizeof message,
             "the update to version %lld is skipped: a weight would no longer be a finite number. Lower the learning "
             "rate, or use --clip",
             (long long)next_version(updates));
    fth_served_record_warn(updates->parts->record, next_version(updates), message);
    atomic_fetch_add(&updates->parts->metrics->void_steps, 1);
}

/* Finishes a step after the update, or after it was skipped: takes the buffers, advances the
 * version. */
static void end_step(fth_updates *updates, bool updated)
{
    const size_t buffer_floats = updates->parts->model->layout->buffer_floats;

    if (!updated)
        warn_of_void_step(updates);
    if (updated && updates->buffer_samples > 0) {
        if (updates->averaged)
            scale(updates->buffer_sum, (float)(1.0 / (double)updates->buffer_samples), buffer_floats);
        memcpy(updates->parts->model->vectors.buffers, updates->buffer_sum, buffer_floats * sizeof(float));
    }
    updates->gradients = updates->samples = updates->buffer_samples = 0;
    updates->largest = updates->largest_buffer = 0;
    fth_served_position_advance(updates->parts->position);
}

fth_status fth_updates_make_step(fth_updates *updates, double rate)
{
    fth_status status = FTH_OK;
    bool updated = false;
    double share = updates->averaged && updates->samples > 0 ? 1.0 / (double)updates->samples : 1;
    if (share != 1)
        scale(updates->parts->model->vectors.gradients, (float)share, updates->parts->model->layout->trained_floats);
    if (updates->gradients > 0) /* 0 only if a replay has skipped all of them */
        FTH_TRY(fth_update_guard_apply(updates->guard,
                                       &(fth_guarded_update){.learning_rate = rate,
                                                             .update = next_version(updates),
                                                             .largest = updates->largest * share},
                                       &updated));
    end_step(updates, updated);

out:
    return status;
}

/* Updates directly from the gradient's body. */
static fth_status update_from(fth_updates *updates, const fth_gradient *gradient, double rate, bool *updated)
{
    const fth_layout *layout = updates->parts->model->layout;
    for (int i = 0; i < layout->trained; i++)
        updates->pieces[i] = (fth_gradient_piece){layout->tensors[i].vector_offset, (size_t)layout->tensors[i].count,
                                                  gradient->parts[i].values->data};
    return fth_update_guard_apply(updates->guard,
                                  &(fth_guarded_update){.learning_rate = rate,
                                                        .update = next_version(updates),
                                                        .largest = gradient->largest,
                                                        .pieces = updates->pieces,
                                                        .count = (size_t)layout->trained,
                                                        .scale = gradient->scale},
                                  updated);
}

fth_status fth_updates_add(fth_updates *updates, const fth_gradient *gradient, const fth_update_how *how)
{
    fth_status status = FTH_OK;
    const fth_served_model *model = updates->parts->model;
    bool first = updates->gradients == 0, updated = false;
    double weight = weight_of(gradient, how->averaged);
    /* A step of one gradient needs no sum; both ways give the same numbers. */
    bool direct = how->steps && first && !how->averaged && model->train->optimizer.clip <= 0 &&
                  fth_gradient_is_plain(model->layout, gradient);

    updates->averaged = how->averaged;
    if (direct)
        FTH_TRY(update_from(updates, gradient, how->rate, &updated));
    else
        fth_gradient_add(model->layout, gradient, (float)weight * gradient->scale, first, model->vectors.gradients);
    add_rest(updates, gradient, weight);
    if (direct)
        end_step(updates, updated);
    else if (how->steps)
        FTH_TRY(fth_updates_make_step(updates, how->rate));

out:
    return status;
}
