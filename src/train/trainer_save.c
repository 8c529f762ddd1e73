/* How a trainer gets a checkpoint back, and model files. trainer_writer.c saves. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/classifier.h"
#include "train/trainer_internal.h"

/* ---- checkpoints ---- */

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
    FTH_TRY(fth_engine_load(trainer->setup.engine, checkpoint.tensors, origin));
    FTH_TRY(fth_position_restore(&trainer->position, trainer->setup.engine, checkpoint.state));
    FTH_REQUIRE(trainer->position.step == checkpoint.step, FTH_CORRUPT, "%s has the state of step %" PRId64, origin,
                trainer->position.step);
    *restored = true;

out:
    free(origin);
    fth_checkpoint_release(&checkpoint);
    return status;
}

/* ---- models ---- */

fth_status fth_trainer_save_model(fth_trainer *trainer, const char *path)
{
    return fth_trainer_save_weights(trainer, trainer->setup.engine, trainer->position.step,
                                    trainer->position.state.batches, path);
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

    FTH_TRY(fth_model_facts_of_data(trainer->setup.dataset, &facts));
    facts.model = fth_format("%s", trainer->setup.options->model);
    FTH_TRY(fth_model_facts_to_metadata(&facts, &metadata));
    snprintf(step, sizeof step, "%" PRId64, of_step);
    metadata.entries[metadata.count++] = (fth_metadata_entry){"step", step};
    FTH_TRY(fth_engine_lend_model(engine, trainer->position.state.counter_start + batches, &snapshot));
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
    fth_train_state *state = &trainer->position.state;
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
        fth_reporter_write_warning(trainer->reporter, message);
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
        fth_reporter_write_warning(trainer->reporter, message);
    }
    free(message);
}
