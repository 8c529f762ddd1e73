/* A copy of the state on this machine, for a stop, or the end of a run, at which the store does not answer or refuses.
 *
 *     stop -> the store takes the checkpoint in time: nothing is left here
 *          -> it does not: <run folder>/checkpoints/ gets the checkpoint, under this owner's number
 *     next start on this machine, with the lease -> nobody owned the run since: the copy goes to the store
 *                                                -> somebody did: the run has gone on without it, and it is removed
 *
 * Owners' numbers make this safe: whoever took the run over has a higher one, and its events and checkpoints say so. */
#include <inttypes.h>
#include <stdlib.h>

#include "train/trainer_internal.h"

/* The run's folder here as a place for checkpoints; fth_store_free(place->store). */
static fth_status open_place(const fth_trainer *trainer, fth_checkpoint_place *place)
{
    *place = (fth_checkpoint_place){.prefix = "checkpoints/", .fence = trainer->saving.place.fence, .keep = 1};
    return fth_store_open(fth_record_folder(fth_reporter_get_record(trainer->reporter)), NULL, &place->store);
}

fth_status fth_trainer_save_local_copy(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    fth_checkpoint_place place = {0};
    fth_snapshot *snapshot = NULL;
    json_t *state = NULL;
    const void *bytes = NULL;
    size_t size_bytes = 0;

    FTH_TRY(open_place(trainer, &place));
    FTH_TRY(fth_engine_take_snapshot(trainer->setup.engine, true,
                                     trainer->position.state.counter_start + trainer->position.state.batches,
                                     &snapshot));
    FTH_TRY(fth_snapshot_check_finite(snapshot));
    FTH_TRY(fth_snapshot_as_file(snapshot, &bytes, &size_bytes));
    FTH_TRY(fth_position_save(&trainer->position, trainer->setup.engine, &state));
    FTH_TRY(fth_checkpoint_put(&place, trainer->position.step, bytes, size_bytes, state, NULL));
    trainer->saving.local_step = trainer->position.step;

out:
    json_decref(state);
    fth_snapshot_free(snapshot);
    fth_store_free(place.store);
    return status;
}

void fth_trainer_drop_local_copy(fth_trainer *trainer)
{
    fth_checkpoint_place place = {0};
    if (open_place(trainer, &place) != FTH_OK || fth_checkpoint_remove_all(&place) != FTH_OK)
        fth_log_warning("%s", fth_error_message()); /* the next start removes it */
    fth_store_free(place.store);
    trainer->saving.local_step = 0;
}

char *fth_trainer_describe_local_copy(const fth_trainer *trainer)
{
    if (trainer->saving.local_step <= 0)
        return NULL;
    return fth_format("%s has not taken the last checkpoint: step %" PRId64
                      " is saved in %s, from where the next start on this machine goes on, unless another machine "
                      "carries the run on first",
                      fth_run_store_url(trainer->run_store), trainer->saving.local_step, trainer->download_folder);
}

fth_status fth_trainer_bring_local_copy(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    fth_checkpoint_place place = {0};
    int64_t step;
    bool brought;

    if (!trainer->run_store)
        return FTH_OK;
    FTH_TRY(open_place(trainer, &place));
    status = fth_checkpoint_move(&place, &trainer->saving.place, fth_run_store_last_owner(trainer->run_store),
                                 trainer->stop, &step, &brought);
    if (status == FTH_CORRUPT) { /* it is not the only one: the store has the run */
        fth_log_warning("the copy in %s is not used: %s", trainer->download_folder, fth_error_message());
        status = FTH_OK;
    }
    FTH_TRY(status);
    if (brought)
        fth_log_info("step %" PRId64 " was saved on this machine only; %s has it now", step,
                     fth_run_store_url(trainer->run_store));
    else if (step >= 0)
        fth_log_info("removed the copy of step %" PRId64 " on this machine: the run has gone on without it", step);

out:
    fth_store_free(place.store);
    return status;
}
