/* What is in a checkpoint beside tensors, how a trainer gets it back, and model files. trainer_writer.c saves.
 *
 * Doubles are written with 17 digits and come back as they were, so that sums over an epoch go on exactly. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/classifier.h"
#include "train/trainer_internal.h"

/* ---- the state as JSON ---- */

typedef struct state_field {
    const char *name;
    bool integer;
    size_t offset;
    bool optional; /* 0 in checkpoints that do not have it: written before there was such a thing */
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
    LATER_REAL(loss_scale),
    LATER_INTEGER(loss_scale_updates),
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

/* ---- checkpoints ---- */

fth_status fth_trainer_state_to_json(fth_trainer *trainer, json_t **json)
{
    fth_trainer_elapsed(trainer);
    fth_loss_scale scale = fth_engine_get_loss_scale(trainer->engine);
    trainer->state.loss_scale = scale.scale;
    trainer->state.loss_scale_updates = scale.good_updates;
    *json = state_to_json(&trainer->state);
    return *json ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for the checkpoint's state");
}

fth_status fth_trainer_restore(fth_trainer *trainer, bool *restored)
{
    fth_status status = FTH_OK;
    fth_checkpoint checkpoint = {0};
    char *origin = NULL;

    *restored = false;
    FTH_TRY(fth_checkpoint_get_latest(&trainer->saving.place, trainer->download_folder, trainer->stop, &checkpoint));
    if (!checkpoint.tensors)
        goto out;
    origin = fth_format("the checkpoint of step %" PRId64 " in %s", checkpoint.step, trainer->checkpoint_folder);
    FTH_TRY(fth_engine_load(trainer->engine, checkpoint.tensors, origin));
    FTH_TRY(state_from_json(checkpoint.state, &trainer->state));
    fth_engine_set_loss_scale(trainer->engine, (fth_loss_scale){.scale = trainer->state.loss_scale,
                                                                .good_updates = trainer->state.loss_scale_updates});
    trainer->step = fth_engine_updates(trainer->engine, trainer->state.batches);
    FTH_REQUIRE(trainer->step == checkpoint.step, FTH_CORRUPT, "%s has the state of step %" PRId64, origin,
                trainer->step);
    *restored = true;

out:
    free(origin);
    fth_checkpoint_release(&checkpoint);
    return status;
}

/* ---- models ---- */

fth_status fth_trainer_save_model(fth_trainer *trainer, const char *path)
{
    return fth_trainer_save_weights(trainer, trainer->engine, trainer->step, trainer->state.batches, path);
}

fth_status fth_trainer_save_weights(fth_trainer *trainer, fth_engine *engine, int64_t of_step, int64_t batches,
                                    const char *path)
{
    fth_status status = FTH_OK;
    fth_snapshot *snapshot = NULL;
    fth_model_facts facts = {0};
    fth_model_metadata metadata = {0};
    size_t count = 0;
    char step[24];
    bool tried_again = false;

    FTH_TRY(fth_model_facts_of_data(trainer->dataset, &facts));
    facts.model = fth_format("%s", trainer->options->model);
    FTH_TRY(fth_model_facts_to_metadata(&facts, &metadata));
    snprintf(step, sizeof step, "%" PRId64, of_step);
    metadata.entries[metadata.count++] = (fth_metadata_entry){"step", step};
    FTH_TRY(fth_engine_lend_model(engine, trainer->state.counter_start + batches, &snapshot));
    const fth_tensor_view *views = fth_snapshot_views(snapshot, &count);
    do
        status = fth_model_file_save(path, views, count, metadata.entries, metadata.count);
    while (status == FTH_NO_SPACE && trainer->store && fth_checkpoint_make_room(&trainer->saving.place, &tried_again));

out:
    fth_snapshot_free(snapshot);
    fth_model_metadata_release(&metadata);
    fth_model_facts_release(&facts);
    return status;
}

void fth_trainer_check_best(fth_trainer *trainer)
{
    fth_train_state *state = &trainer->state;
    fth_safetensors *tensors = NULL;
    char *message = NULL;

    if (!fth_file_exists(trainer->best_path)) {
        if (state->best_step < 0 || fth_trainer_best_is_stored(trainer)) /* another machine's, fetched at the end */
            return;
        message = fth_format("the best model so far, of step %" PRId64
                             ", went with its machine; the next validation writes a new one",
                             state->best_step);
        state->best_step = -1;
        fth_log_warning("%s", message);
        fth_trainer_tell_warning(trainer, message);
        free(message);
        return;
    }
    if (fth_safetensors_open(trainer->best_path, &tensors) == FTH_OK) {
        const char *step = fth_safetensors_metadata(tensors, "step");
        if (step && strtoll(step, NULL, 10) != state->best_step)
            message = fth_format("removed %s: it is of step %.24s, which is undone; the next validation writes it anew",
                                 trainer->best_path, step);
    } else {
        message =
            fth_format("removed %s, the next validation writes it anew: %s", trainer->best_path, fth_error_message());
    }
    fth_safetensors_free(tensors);
    if (!message)
        return;
    if (fth_trainer_best_is_stored(trainer)) { /* this machine had an older one */
        remove(trainer->best_path);
        free(message);
        return;
    }
    state->best_step = -1;
    if (remove(trainer->best_path) == 0) {
        fth_log_warning("%s", message);
        fth_trainer_tell_warning(trainer, message);
    }
    free(message);
}
