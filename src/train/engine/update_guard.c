/* See update_guard.h. */
#include "train/engine/update_guard.h"

#include <math.h>
#include <stdlib.h>

#include "train/engine/engine_internal.h"

struct fth_update_guard {
    fth_engine *engine;
    fth_update_bounds bounds;
    float *saved[1 + FTH_MAX_OPTIMIZER_VECTORS]; /* parameters, state: from before a trial; made for the first one */
};

static float *vector_of(const fth_update_guard *guard, int index)
{
    return index == 0 ? guard->engine->vectors.parameters : guard->engine->vectors.state[index - 1];
}

/* A norm is at least as large as any of its numbers, and finite, being summed in double, only if
 * all of them are. */
static fth_status measure(const fth_update_guard *guard, fth_update_bounds *bounds, bool *finite)
{
    fth_status status = FTH_OK;
    const fth_engine *engine = guard->engine;

    *finite = true;
    for (int i = 0; i <= engine->vectors.sizes.state_count; i++) {
        double norm = 0;
        FTH_TRY(engine->backend->norm(engine->device, vector_of(guard, i), engine->vectors.sizes.trained, &norm));
        *(i == 0 ? &bounds->parameter : &bounds->state[i - 1]) = norm;
        *finite = *finite && isfinite(norm);
    }

out:
    return status;
}

fth_status fth_update_guard_create(fth_engine *engine, fth_update_guard **result)
{
    fth_status status = FTH_OK;
    fth_update_guard *guard = NULL;
    bool finite = false;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *guard, &guard));
    guard->engine = engine;
    FTH_TRY(measure(guard, &guard->bounds, &finite));
    FTH_REQUIRE(finite, FTH_DIVERGED, "the weights to begin with, or the optimizer's state, are not finite numbers");
    *result = guard;
    guard = NULL;

out:
    fth_update_guard_free(guard);
    return status;
}

void fth_update_guard_free(fth_update_guard *guard)
{
    if (!guard)
        return;
    for (size_t i = 0; i < FTH_COUNT_OF(guard->saved); i++)
        free(guard->saved[i]);
    free(guard);
}

/* ---- bounds ---- */

/* Moves the bounds to what holds after the update; false if they do not rule an overflow out. */
static bool move_bounds(const fth_update_guard *guard, const fth_guarded_update *update, fth_update_bounds *bounds)
{
    const fth_engine *engine = guard->engine;
    const fth_optimizer *optimizer = fth_weight_update_get_optimizer(engine->update);
    double largest = update->pieces ? update->largest * fabs((double)update->scale) : update->largest;
    if (!optimizer->bound || !isfinite(largest))
        return false;
    const fth_update_arguments arguments = fth_weight_update_get_arguments(
        engine->update, update->learning_rate, update->update, 1); /* --clip only makes gradients smaller */
    return optimizer->bound(&arguments, largest, bounds) < FTH_UPDATE_LIMIT;
}

bool fth_update_guard_allows(const fth_update_guard *guard, const fth_guarded_update *update)
{
    fth_update_bounds bounds = guard->bounds;
    return move_bounds(guard, update, &bounds);
}

/* The same; where the bounds have drifted too far, from what the vectors really hold. */
static fth_status check_bounds(fth_update_guard *guard, const fth_guarded_update *update, fth_update_bounds *after,
                               bool *allowed)
{
    fth_status status = FTH_OK;
    bool finite = false;
    *after = guard->bounds;
    *allowed = move_bounds(guard, update, after);
    if (*allowed)
        return FTH_OK;
    FTH_TRY(measure(guard, &guard->bounds, &finite));
    *after = guard->bounds;
    *allowed = finite && move_bounds(guard, update, after);

out:
    return status;
}

/* ---- updates ---- */

static fth_status run(const fth_update_guard *guard, const fth_guarded_update *update)
{
    if (!update->pieces)
        return fth_engine_update(guard->engine, update->learning_rate, update->update);
    return fth_service_update(guard->engine, update->learning_rate, update->update, update->scale, update->pieces,
                              update->count);
}

static fth_status copy_vectors(fth_update_guard *guard, bool back)
{
    fth_status status = FTH_OK;
    const fth_engine *engine = guard->engine;
    size_t bytes = engine->vectors.sizes.trained * sizeof(float);
    for (int i = 0; i <= engine->vectors.sizes.state_count; i++) {
        if (!guard->saved[i])
            FTH_TRY(fth_allocate(engine->vectors.sizes.trained + 1, sizeof(float), &guard->saved[i]));
        FTH_TRY(back ? engine->backend->copy_in(engine->device, vector_of(guard, i), guard->saved[i], bytes)
                     : engine->backend->copy_out(engine->device, guard->saved[i], vector_of(guard, i), bytes));
    }

out:
    return status;
}

/* Makes the update and takes it back where it left something that is not finite, or where it is not
 * to stay. */
static fth_status run_on_trial(fth_update_guard *guard, const fth_guarded_update *update, bool stays, bool *finite)
{
    fth_status status = FTH_OK;
    fth_update_bounds after = {0};

    *finite = false;
    FTH_TRY(copy_vectors(guard, false));
    FTH_TRY(run(guard, update));
    FTH_TRY(measure(guard, &after, finite));
    if (*finite && stays) {
        guard->bounds = after;
    } else {
        FTH_TRY(copy_vectors(guard, true));
        fth_weight_update_take_back(guard->engine->update);
    }

out:
    return status;
}

fth_status fth_update_guard_try(fth_update_guard *guard, const fth_guarded_update *update, bool *finite)
{
    fth_status status = FTH_OK;
    fth_update_bounds after;
    FTH_TRY(check_bounds(guard, update, &after, finite));
    if (!*finite)
        FTH_TRY(run_on_trial(guard, update, false, finite));

out:
    return status;
}

fth_status fth_update_guard_apply(fth_update_guard *guard, const fth_guarded_update *update, bool *finite)
{
    fth_status status = FTH_OK;
    fth_update_bounds after;
    FTH_TRY(check_bounds(guard, update, &after, finite));
    if (!*finite) {
        FTH_TRY(run_on_trial(guard, update, true, finite));
    } else {
        FTH_TRY(run(guard, update));
        guard->bounds = after;
    }

out:
    return status;
}
