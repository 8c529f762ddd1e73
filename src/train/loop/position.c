/* See position.h. */
#include "train/loop/position.h"

#include <inttypes.h>
#include <stddef.h>

fth_status fth_position_begin(const fth_engine *engine, const fth_train_options *options, const fth_schedule *schedule,
                              int64_t samples, fth_position *position)
{
    *position = (fth_position){.state = {.best_step = -1, .validation_step = -1}};
    return fth_position_set_batch(position, engine, options, schedule, samples);
}

fth_status fth_position_set_batch(fth_position *position, const fth_engine *engine, const fth_train_options *options,
                                  const fth_schedule *schedule, int64_t samples)
{
    fth_status status = FTH_OK;
    int64_t by_epochs = 0;

    position->batches_per_epoch = fth_batches_per_epoch(samples, options->batch);
    position->steps_per_epoch = fth_engine_updates_per_epoch(engine);
    position->step = fth_engine_updates(engine, position->state.batches);
    position->total_steps = options->limits.steps;
    if (options->limits.epochs > 0) {
        FTH_REQUIRE(options->limits.epochs <= INT64_MAX / 4 / position->batches_per_epoch, FTH_INVALID,
                    "--epochs %" PRId64 " is more than can be counted", options->limits.epochs);
        by_epochs = options->limits.epochs * position->steps_per_epoch;
    }
    if (by_epochs > 0 && (position->total_steps == 0 || by_epochs < position->total_steps))
        position->total_steps = by_epochs;
    FTH_TRY(fth_schedule_check_end(schedule, options->schedule.warmup, position->total_steps, "--epochs or --steps"));

out:
    return status;
}

void fth_position_start_clock(fth_position *position)
{
    position->clock_origin_s = fth_clock_seconds() - position->state.elapsed_s;
}

double fth_position_elapsed(fth_position *position)
{
    position->state.elapsed_s = fth_clock_seconds() - position->clock_origin_s;
    return position->state.elapsed_s;
}

double fth_position_epoch(const fth_position *position)
{
    return (double)position->state.batches / (double)position->batches_per_epoch;
}

/* ---- sums ---- */

void fth_position_add_result(fth_position *position, const fth_step_result *result)
{
    fth_train_state *state = &position->state;
    state->samples += result->samples;
    state->epoch_loss += result->samples > 0 ? result->loss * (double)result->samples : 0;
    state->epoch_correct += result->correct;
    state->epoch_samples += result->samples;
}

void fth_position_set_validation(fth_position *position, const fth_evaluation *evaluation, int64_t step)
{
    fth_train_state *state = &position->state;
    state->validation_loss = evaluation->loss;
    state->validation_accuracy = evaluation->accuracy;
    state->validation_step = step;
    position->changes++;
}

fth_epoch_facts fth_position_describe_epoch(fth_position *position)
{
    const fth_train_state *state = &position->state;
    double elapsed = fth_position_elapsed(position);
    fth_meters meters = state->meters;
    meters.read_s -= state->epoch_meters.read_s;
    meters.data_wait_s -= state->epoch_meters.data_wait_s;
    meters.decode_s -= state->epoch_meters.decode_s;
    meters.fetch_s -= state->epoch_meters.fetch_s;
    meters.compute_s -= state->epoch_meters.compute_s;
    meters.checkpoint_s -= state->epoch_meters.checkpoint_s;
    meters.evaluate_s -= state->epoch_meters.evaluate_s;
    meters.accelerator_s -= state->epoch_meters.accelerator_s;
    return (fth_epoch_facts){.epoch = state->batches / position->batches_per_epoch,
                             .step = position->step,
                             .batches = state->batches,
                             .samples_so_far = state->samples,
                             .loss = state->epoch_loss,
                             .correct = state->epoch_correct,
                             .samples = state->epoch_samples,
                             .seconds = elapsed - state->epoch_elapsed_s,
                             .meters = meters};
}

void fth_position_begin_epoch(fth_position *position)
{
    fth_train_state *state = &position->state;
    state->epoch_loss = 0;
    state->epoch_correct = state->epoch_samples = 0;
    state->epoch_elapsed_s = fth_position_elapsed(position);
    state->epoch_meters = state->meters;
    position->changes++;
}

/* ---- the state as JSON ---- */

typedef struct state_field {
    const char *name;
    bool integer;
    size_t offset;
    bool optional; /* missing in checkpoints of older versions: 0 */
} state_field;

/* clang-format off */
#define REAL(member)          {#member, false, offsetof(fth_train_state, member), false}
#define INTEGER(member)       {#member, true, offsetof(fth_train_state, member), false}
#define LATER_REAL(member)    {#member, false, offsetof(fth_train_state, member), true}
#define LATER_INTEGER(member) {#member, true, offsetof(fth_train_state, member), true}
/* clang-format on */

static const state_field state_fields[] = {
    INTEGER(batches),
    INTEGER(samples),
    REAL(epoch_loss),
    INTEGER(epoch_correct),
    INTEGER(epoch_samples),
    REAL(elapsed_s),
    REAL(meters.data_wait_s),
    REAL(meters.decode_s),
    REAL(meters.compute_s),
    REAL(meters.checkpoint_s),
    REAL(meters.evaluate_s),
    REAL(epoch_elapsed_s),
    REAL(epoch_meters.data_wait_s),
    REAL(epoch_meters.decode_s),
    REAL(epoch_meters.compute_s),
    REAL(epoch_meters.checkpoint_s),
    REAL(epoch_meters.evaluate_s),
    REAL(best_loss),
    REAL(best_accuracy),
    INTEGER(best_step),
    REAL(validation_loss),
    REAL(validation_accuracy),
    INTEGER(validation_step),
    INTEGER(counter_start),
    LATER_REAL(meters.accelerator_s),
    LATER_REAL(epoch_meters.accelerator_s),
    LATER_REAL(meters.fetch_s),
    LATER_REAL(epoch_meters.fetch_s),
    LATER_REAL(meters.read_s),
    LATER_REAL(epoch_meters.read_s),
    LATER_REAL(loss_scale),
    LATER_INTEGER(loss_scale_updates),
    LATER_INTEGER(workers),
    LATER_INTEGER(pending.epoch),
    LATER_INTEGER(pending.samples_so_far),
    LATER_REAL(pending.loss),
    LATER_INTEGER(pending.correct),
    LATER_INTEGER(pending.samples),
    LATER_REAL(pending.seconds),
    LATER_REAL(pending.meters.data_wait_s),
    LATER_REAL(pending.meters.decode_s),
    LATER_REAL(pending.meters.compute_s),
    LATER_REAL(pending.meters.checkpoint_s),
    LATER_REAL(pending.meters.evaluate_s),
    LATER_REAL(pending.meters.accelerator_s),
    LATER_REAL(pending.meters.fetch_s),
    LATER_REAL(pending.meters.read_s),
};

static json_t *state_to_json(const fth_train_state *state)
{
    json_t *json = json_object();
    for (size_t i = 0; i < FTH_COUNT_OF(state_fields); i++) {
        const char *place = (const char *)state + state_fields[i].offset;
        json_t *value =
            state_fields[i].integer ? json_integer(*(const int64_t *)place) : json_real(*(const double *)place);
        if (json_object_set_new(json, state_fields[i].name, value) != 0) {
            json_decref(json);
            return NULL;
        }
    }
    return json;
}

static fth_status state_from_json(const json_t *json, fth_train_state *state)
{
    for (size_t i = 0; i < FTH_COUNT_OF(state_fields); i++) {
        const json_t *value = json_object_get(json, state_fields[i].name);
        char *place = (char *)state + state_fields[i].offset;
        if (!value && state_fields[i].optional)
            continue;
        if (state_fields[i].integer ? !json_is_integer(value) : !json_is_number(value))
            return fth_fail(FTH_CORRUPT, "the checkpoint's state has no valid \"%s\"", state_fields[i].name);
        if (state_fields[i].integer)
            *(int64_t *)place = json_integer_value(value);
        else
            *(double *)place = json_number_value(value);
    }
    if (state->batches < 0 || state->samples < 0 || state->epoch_samples < 0)
        return fth_fail(FTH_CORRUPT, "the checkpoint's state has a negative position");
    return FTH_OK;
}

fth_status fth_position_save(fth_position *position, fth_engine *engine, json_t **json)
{
    fth_loss_scale scale = fth_engine_get_loss_scale(engine);
    fth_position_elapsed(position);
    position->state.loss_scale = scale.scale;
    position->state.loss_scale_updates = scale.good_updates;
    *json = state_to_json(&position->state);
    return *json ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for the checkpoint's state");
}

fth_status fth_position_restore(fth_position *position, fth_engine *engine, const json_t *json)
{
    fth_train_state *state = &position->state;
    fth_status status = state_from_json(json, state);
    if (status != FTH_OK)
        return status;
    fth_engine_set_loss_scale(engine,
                              (fth_loss_scale){.scale = state->loss_scale, .good_updates = state->loss_scale_updates});
    position->step = fth_engine_updates(engine, state->batches);
    return FTH_OK;
}
