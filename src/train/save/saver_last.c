/* The last save of a process: at the end of a run, and at a stop. See saver.h. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "train/save/saver_internal.h"

/* ---- the copy on this machine ---- */

static fth_status save_copy(fth_saver *saver)
{
    fth_status status = FTH_OK;
    fth_position *position = saver->options.position;
    fth_publication publication = {.step = position->step};
    fth_snapshot *snapshot = NULL;
    json_t *state = NULL;

    FTH_TRY(fth_engine_take_snapshot(saver->options.engine, true,
                                     position->state.counter_start + position->state.batches, &snapshot));
    FTH_TRY(fth_snapshot_check_finite(snapshot));
    FTH_TRY(fth_snapshot_as_file(snapshot, &publication.bytes, &publication.size_bytes));
    FTH_TRY(fth_position_save(position, saver->options.engine, &state));
    publication.state = state;
    FTH_TRY(fth_publisher_save_copy(saver->publisher, &publication));

out:
    json_decref(state);
    fth_snapshot_free(snapshot);
    return status;
}

char *fth_saver_describe_copy(const fth_saver *saver)
{
    return saver ? fth_publisher_describe_copy(saver->publisher) : NULL;
}

bool fth_saver_is_closing(const fth_saver *saver)
{
    return saver && saver->closing;
}

/* Bytes of the copy that would stay here; 0 where the run's folder is the store. */
static size_t copy_bytes(const fth_saver *saver)
{
    return fth_publisher_is_remote(saver->publisher) ? saver->state_bytes : 0;
}

/* Whether steps of this process are in no checkpoint that is stored. */
static bool is_unstored(const fth_saver *saver)
{
    int64_t step = saver->options.position->step;
    return step > fth_publisher_stored_step(saver->publisher) && step > saver->restored_step;
}

/* ---- at the end of a run ---- */

/* The run has reached its end, and the store has not taken the last checkpoint: what was trained
 * since the one before must not depend on whether it ever does. */
static void copy_meanwhile(fth_saver *saver)
{
    if (save_copy(saver) != FTH_OK) {
        fth_log_warning("the last checkpoint is not stored yet, nor could a copy be saved here: %s",
                        fth_error_message());
        return;
    }
    char *message = fth_saver_describe_copy(saver);
    fth_log_warning("%s; waiting for the store (Ctrl-C ends that)", message);
    fth_reporter_write_warning(saver->options.reporter, message);
    free(message);
}

/* The error says where the copy is. */
static fth_status fail_unstored(fth_saver *saver, fth_status status)
{
    char *why = fth_format("%s", fth_error_message());
    bool copied = fth_publisher_copy_step(saver->publisher) == saver->options.position->step;
    if (!copied && save_copy(saver) != FTH_OK) {
        status = fth_fail_within(status, "%s, nor could a copy be saved here", why);
    } else {
        char *where = fth_saver_describe_copy(saver);
        status = fth_fail(status, "%s. %s", why, where);
        free(where);
    }
    free(why);
    return status;
}

static fth_status wait_for_last(fth_saver *saver)
{
    const double look_every_s = 0.1, copy_after_s = 5;
    fth_status status = FTH_TIMEOUT;
    const bool remote = fth_publisher_is_remote(saver->publisher);
    double began_s = fth_clock_seconds();
    bool copied = !remote || fth_publisher_stored_step(saver->publisher) >= saver->options.position->step;
    while (status == FTH_TIMEOUT) {
        fth_stop_reason reason = fth_stop_get(saver->options.stop);
        if (remote && fth_deadline_passed(fth_stop_store_deadline(&reason, copy_bytes(saver))))
            return fth_fail(FTH_INTERRUPTED, "stopped while the last checkpoint was being stored");
        status = fth_saver_wait(saver, fth_deadline_in(look_every_s));
        if (status == FTH_TIMEOUT && !copied && fth_clock_seconds() - began_s > copy_after_s) {
            copy_meanwhile(saver);
            copied = true;
        }
    }
    if (status == FTH_IO && remote && is_unstored(saver))
        status = fail_unstored(saver, status);
    else if (status == FTH_OK && fth_publisher_copy_step(saver->publisher) > 0)
        fth_publisher_drop_copy(saver->publisher);
    return status;
}

fth_status fth_saver_finish(fth_saver *saver)
{
    fth_status status = FTH_OK;
    if (!saver)
        return FTH_OK;
    FTH_TRY(fth_saver_collect(saver, saver->step_s));
    if (fth_saver_is_unsaved(saver))
        FTH_TRY(fth_saver_begin_save(saver, false));
    FTH_TRY(wait_for_last(saver));

out:
    return status;
}

/* ---- at a stop ---- */

/* The store has not taken what was trained so far, and may not: a copy stays here unless it does
 * after all. `saved` says how that went: FTH_TIMEOUT, and it is still under way, or it has
 * failed. */
static fth_status keep_copy(fth_saver *saver, const fth_stop_reason *reason, fth_status saved)
{
    char *why = fth_format("%s", fth_error_message());
    fth_status status = save_copy(saver);
    if (status == FTH_OK && saved == FTH_TIMEOUT && saver->closing &&
        fth_saver_wait(saver, fth_stop_leaving_deadline(reason)) == FTH_OK) {
        fth_publisher_drop_copy(saver->publisher);
    } else if (status == FTH_OK) {
        char *message = fth_saver_describe_copy(saver);
        fth_log_warning("%s", why);
        fth_reporter_write_warning(saver->options.reporter, message);
        free(message);
    } else if (status != FTH_DIVERGED && reason->kind == FTH_STOP_PREEMPTION) {
        fth_log_warning("%s, nor could a copy be saved here: %s", why, fth_error_message());
        status = FTH_OK; /* the notice's event says what was lost; earlier saves are good */
    } else if (status != FTH_DIVERGED) {
        status = fth_fail_within(status, "%s, nor could a copy be saved here", why);
    }
    free(why);
    return status;
}

/* Begins to save what is unsaved, if it can be published in time. */
static fth_status begin_in_time(fth_saver *saver, const fth_stop_reason *reason, fth_save_choice *choice)
{
    *choice = FTH_SAVE_AFTER;
    if (!fth_saver_is_unsaved(saver) || saver->options.position->step == 0)
        return FTH_OK;
    fth_save_estimate estimate = fth_saver_look(saver).estimate;
    *choice = fth_stop_choose_save(reason, &estimate);
    if (*choice == FTH_SAVE_INSTEAD)
        fth_saver_cancel(saver);
    return *choice == FTH_SAVE_NOT ? FTH_OK : fth_saver_begin_save(saver, true);
}

fth_status fth_saver_save_at_stop(fth_saver *saver, const fth_stop_reason *reason)
{
    fth_status status = FTH_OK;
    fth_save_choice choice;

    if (!saver)
        return FTH_OK;
    FTH_TRY(fth_saver_collect(saver, saver->step_s));
    fth_publisher_set_hurry(saver->publisher, isfinite(reason->deadline.at_seconds));
    FTH_TRY(begin_in_time(saver, reason, &choice));
    status = fth_saver_wait(saver, fth_stop_store_deadline(reason, copy_bytes(saver)));
    if (status == FTH_OK && choice == FTH_SAVE_NOT)
        status = fth_fail(FTH_TIMEOUT, "there is no time to store another checkpoint");
    if (status == FTH_OK && fth_publisher_copy_step(saver->publisher) > 0) /* made while the end waited for the store */
        fth_publisher_drop_copy(saver->publisher);
    if (status != FTH_TIMEOUT && status != FTH_IO)
        goto out;
    bool unstored = is_unstored(saver);
    if (unstored && fth_publisher_is_remote(saver->publisher) && fth_stop_spares_disk(reason)) {
        status = keep_copy(saver, reason, status);
    } else if (!unstored || reason->kind == FTH_STOP_PREEMPTION) {
        fth_log_warning("%s", fth_error_message()); /* the notice's event says what was lost; earlier saves are good */
        status = FTH_OK;
    }

out:
    return status;
}
