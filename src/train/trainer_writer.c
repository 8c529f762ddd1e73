/* Saving while training goes on.
 *
 *     a checkpoint is due -> the flat vectors are copied into one of two snapshots (training waits for that alone; on a
 *                            GPU not even for that: the copy is made there, between two steps)
 *                         -> the writer's thread fetches it from a GPU, checks the numbers, writes and uploads
 *                         -> the result is told by the training thread, between two steps
 *
 * If a save is still under way and another waits, the one that waits is replaced by the newer state. What could not be
 * written is a warning and is tried again at the next; only the last save of a process is waited for. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "train/trainer_internal.h"

enum { SAVE_CHECKPOINT = 1 };

/* What belongs to a job beside its tensors. */
typedef struct job_details {
    json_t *state;
    const void *best; /* the best model that the state knows, mapped; NULL: it is stored, or there is none */
    size_t best_bytes;
    double stall_s; /* that training waited */
} job_details;

static void free_details(void *context, const fth_writer_job *job)
{
    job_details *details = job->details;
    (void)context;
    if (details) {
        json_decref(details->state);
        fth_file_unmap(details->best, details->best_bytes);
    }
    free(details);
}

/* ---- in the writer's thread ---- */

/* An upload under way ends when the run is lost: a machine that slept must not go on writing when it wakes. */
typedef struct guarded {
    fth_saving *saving;
    const fth_store_progress *progress;
} guarded;

static bool moved(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    const guarded *upload = context;
    bool go_on = upload->progress->moved(upload->progress->context, done_bytes, total_bytes);
    return go_on && (!upload->saving->run_store || fth_run_store_guard(upload->saving->run_store) != FTH_PEER_LOST);
}

static fth_status write_job(void *context, const fth_writer_job *job, const fth_store_progress *progress,
                            uint64_t *size_bytes)
{
    fth_status status = FTH_OK;
    fth_saving *saving = context;
    fth_snapshot *snapshot = saving->snapshots[job->slot];
    const job_details *details = job->details;
    const void *bytes = NULL;
    size_t size = 0;

    if (fth_snapshot_finish(snapshot) != FTH_OK) /* of the device, not of the store: training finds out for itself */
        return fth_fail(FTH_IO, "%s", fth_error_message());
    FTH_TRY(fth_snapshot_check_finite(snapshot));
    FTH_TRY(fth_snapshot_as_file(snapshot, &bytes, &size));
    *size_bytes = size;
    if (saving->run_store && !saving->hurry) {
        FTH_TRY(fth_run_store_flush(saving->run_store)); /* so that the record is never behind */
        if (details->best)
            FTH_TRY(fth_run_store_put_best(saving->run_store, details->best, details->best_bytes, 0));
    }
    guarded upload = {saving, progress};
    FTH_TRY(fth_checkpoint_put(&saving->place, job->step, bytes, size, details->state,
                               &(fth_store_progress){.context = &upload, .moved = moved}));
    saving->written_step = job->step;
    if (saving->run_store && !saving->hurry)
        fth_run_store_tidy_best(saving->run_store, false);

out:
    if (status == FTH_INTERRUPTED && saving->run_store && fth_run_store_guard(saving->run_store) == FTH_PEER_LOST)
        status = FTH_PEER_LOST;
    if (status == FTH_PEER_LOST && saving->run_store)
        fth_run_store_set_lost(saving->run_store);
    return status;
}

/* ---- in the training thread ---- */

static void tell_saved(fth_trainer *trainer, const fth_writer_result *result)
{
    const job_details *details = result->job.details;
    char name[80];
    snprintf(name, sizeof name, "step-%012" PRId64 "%s", result->job.step, trainer->saving.name_suffix);
    char *path = fth_path_join(trainer->checkpoint_folder, name);
    fth_reporter_write(trainer->reporter, "checkpoint",
                       json_pack("{s:s, s:f, s:I, s:f, s:f, s:I, s:s}", "event", "checkpoint", "time", 0.0, "step",
                                 (json_int_t)result->job.step, "seconds", result->seconds, "stall_s", details->stall_s,
                                 "bytes", (json_int_t)result->size_bytes, "file", path));
    free(path);
    if (fth_reporter_sync(trainer->reporter) != FTH_OK)
        fth_log_warning("%s", fth_error_message());
}

/* A running mean that follows changes within a few saves. */
static void follow(double *mean, double value)
{
    *mean = *mean > 0 ? 0.5 * (*mean + value) : value;
}

static fth_status take_result(fth_trainer *trainer, const fth_writer_result *result)
{
    fth_saving *saving = &trainer->saving;
    const job_details *details = result->job.details;
    if (result->status == FTH_OK) {
        saving->failed = false;
        saving->size_bytes = result->size_bytes;
        follow(&saving->save_s, result->seconds);
        follow(&saving->stall_s, details->stall_s);
        tell_saved(trainer, result);
        fth_trainer_adapt_interval(trainer);
        return FTH_OK;
    }
    trainer->position.unsaved = true;
    if (result->status == FTH_DIVERGED || result->status == FTH_PEER_LOST)
        return fth_fail(result->status, "%s", result->message);
    saving->failed = true;
    snprintf(saving->message, sizeof saving->message, "%s", result->message);
    if (result->status == FTH_INTERRUPTED)
        return FTH_OK; /* whoever cancelled it knows */
    char *message = fth_format("no checkpoint at step %" PRId64 ", trying again at the next: %s", result->job.step,
                               result->message);
    fth_log_warning("%s", message);
    fth_reporter_write_warning(trainer->reporter, message);
    free(message);
    return FTH_OK;
}

fth_status fth_trainer_follow_saves(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    fth_writer_result result;
    while (status == FTH_OK && trainer->saving.writer && fth_writer_take_result(trainer->saving.writer, &result)) {
        status = take_result(trainer, &result);
        free_details(NULL, &result.job);
    }
    if (status == FTH_OK)
        fth_trainer_tell_news(trainer);
    return status;
}

static fth_status copy_state(fth_trainer *trainer, fth_snapshot **snapshot)
{
    fth_status status = FTH_OK;
    if (!*snapshot)
        FTH_TRY(fth_engine_create_snapshot(trainer->setup.engine, true, snapshot));
    FTH_TRY(fth_snapshot_begin(*snapshot, trainer->position.state.counter_start + trainer->position.state.batches));

out:
    return status;
}

/* The best model as it is now: when the job is written there may be another under its name. */
static fth_status hold_best(const fth_trainer *trainer, job_details *details)
{
    const fth_saving *saving = &trainer->saving;
    int64_t step = trainer->position.state.best_step;
    if (!saving->run_store || step < 0 || fth_run_store_has_best(saving->run_store, step) ||
        !fth_file_exists(saving->best_path)) /* another machine's */
        return FTH_OK;
    return fth_file_map(saving->best_path, &details->best, &details->best_bytes);
}

/* ---- the last save: by a thread of its own, with the priority of this one ---- */

typedef struct closing_job {
    fth_writer *writer;
    fth_writer_job job;
    fth_deadline deadline;
} closing_job;

static void *write_last(void *context)
{
    closing_job *closing = context;
    (void)fth_writer_wait_idle(closing->writer, closing->deadline); /* for the one under way, or its cancelling */
    fth_writer_run(closing->writer, &closing->job);
    free(closing);
    return NULL;
}

static void begin_closing(fth_saving *saving, const fth_writer_job *job, fth_deadline deadline)
{
    closing_job *closing = NULL;
    if (fth_allocate(1, sizeof *closing, &closing) == FTH_OK) {
        *closing = (closing_job){saving->writer, *job, deadline};
        saving->closing = fth_thread_start(&saving->closer, "save-last", write_last, closing) == 0;
    }
    if (!saving->closing) {
        free(closing);
        fth_writer_submit(saving->writer, job);
    }
}

static fth_status wait_for_closer(fth_saving *saving, fth_deadline deadline)
{
    if (!saving->closing)
        return FTH_OK;
    if (!fth_thread_join_by(saving->closer, deadline))
        return fth_fail(FTH_TIMEOUT, "the last checkpoint was not stored in time");
    saving->closing = false;
    return FTH_OK;
}

/* Copies the state into `slot` and hands it over; the `last` save waits for no other work. */
static fth_status submit(fth_trainer *trainer, int slot, bool last)
{
    fth_status status = FTH_OK;
    fth_saving *saving = &trainer->saving;
    job_details *details = NULL;
    double began = fth_clock_seconds();

    FTH_TRY(copy_state(trainer, &saving->snapshots[slot]));
    double seconds = fth_clock_seconds() - began;
    trainer->position.state.meters.checkpoint_s += seconds;
    FTH_TRY(fth_allocate(1, sizeof *details, &details));
    details->stall_s = seconds;
    FTH_TRY(hold_best(trainer, details));
    FTH_TRY(fth_position_save(&trainer->position, trainer->setup.engine, &details->state));
    fth_writer_job job = {.slot = slot, .kind = SAVE_CHECKPOINT, .step = trainer->position.step, .details = details};
    details = NULL;
    if (last)
        begin_closing(saving, &job, fth_stop_get(trainer->stop).deadline);
    else
        fth_writer_submit(saving->writer, &job);

out:
    if (status != FTH_OK)
        fth_writer_unclaim(saving->writer, slot);
    if (details)
        free_details(NULL, &(fth_writer_job){.details = details});
    return status;
}

/* The first snapshot's memory, ahead of its use. The second is made when it is needed, which it seldom is. */
static void prepare_snapshot(void *context)
{
    fth_saving *saving = context;
    fth_snapshot *snapshot = NULL;
    if (fth_engine_create_snapshot(saving->engine, true, &snapshot) != FTH_OK)
        return; /* the first save tries again, and says why */
    fth_snapshot_prepare(snapshot);
    saving->snapshots[0] = snapshot;
}

fth_status fth_trainer_open_writer(fth_trainer *trainer, bool ahead)
{
    fth_saving *saving = &trainer->saving;
    if (saving->writer)
        return FTH_OK;
    saving->engine = trainer->setup.engine;
    return fth_writer_create(
        &(fth_writer_work){
            .context = saving, .prepare = ahead ? prepare_snapshot : NULL, .write = write_job, .drop = free_details},
        &saving->writer);
}

static fth_status begin_save(fth_trainer *trainer, bool last)
{
    fth_saving *saving = &trainer->saving;
    fth_writer_job replaced;
    fth_status status = fth_trainer_open_writer(trainer, false);
    if (status != FTH_OK)
        return status;
    int slot = fth_writer_claim(saving->writer, SAVE_CHECKPOINT, &replaced);
    if (replaced.slot >= 0) {
        saving->skipped++;
        free_details(NULL, &replaced);
    }
    status = submit(trainer, slot, last); /* there is a slot: all jobs are of one kind */
    if (status == FTH_OK)
        trainer->position.unsaved = false;
    trainer->saved_at_s = fth_position_elapsed(&trainer->position);
    trainer->saved_step = trainer->position.step;
    return status;
}

fth_status fth_trainer_finish_saves(fth_trainer *trainer, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    fth_saving *saving = &trainer->saving;
    if (!saving->writer)
        return FTH_OK;
    double began = fth_clock_seconds();
    status = wait_for_closer(saving, deadline);
    if (status == FTH_OK)
        status = fth_writer_wait_idle(saving->writer, deadline);
    trainer->position.state.meters.checkpoint_s += fth_clock_seconds() - began;
    FTH_TRY(status);
    FTH_TRY(fth_trainer_follow_saves(trainer));
    FTH_REQUIRE(!saving->failed, FTH_IO, "%s", saving->message);

out:
    return status;
}

/* The run has reached its end, and the store has not taken the last checkpoint: what was trained since the one before
 * must not depend on whether it ever does. */
static void copy_meanwhile(fth_trainer *trainer)
{
    if (fth_trainer_save_local_copy(trainer) != FTH_OK) {
        fth_log_warning("the last checkpoint is not stored yet, nor could a copy be saved here: %s",
                        fth_error_message());
        return;
    }
    char *message = fth_trainer_describe_local_copy(trainer);
    fth_log_warning("%s; waiting for the store (Ctrl-C ends that)", message);
    fth_reporter_write_warning(trainer->reporter, message);
    free(message);
}

/* The error says where the copy is. */
static fth_status fail_unstored(fth_trainer *trainer, fth_status status)
{
    char *why = fth_format("%s", fth_error_message());
    if (trainer->saving.local_step != trainer->position.step && fth_trainer_save_local_copy(trainer) != FTH_OK) {
        status = fth_fail_within(status, "%s, nor could a copy be saved here", why);
    } else {
        char *where = fth_trainer_describe_local_copy(trainer);
        status = fth_fail(status, "%s. %s", why, where);
        free(where);
    }
    free(why);
    return status;
}

fth_status fth_trainer_finish_last_save(fth_trainer *trainer)
{
    const double look_every_s = 0.1, copy_after_s = 5;
    fth_status status = FTH_TIMEOUT;
    double began_s = fth_clock_seconds();
    bool copied = !trainer->run_store || trainer->saving.written_step >= trainer->position.step;
    while (status == FTH_TIMEOUT) {
        fth_stop_reason reason = fth_stop_get(trainer->stop);
        if (trainer->run_store && fth_deadline_passed(fth_trainer_store_deadline(trainer, &reason)))
            return fth_fail(FTH_INTERRUPTED, "stopped while the last checkpoint was being stored");
        status = fth_trainer_finish_saves(trainer, fth_deadline_in(look_every_s));
        if (status == FTH_TIMEOUT && !copied && fth_clock_seconds() - began_s > copy_after_s) {
            copy_meanwhile(trainer);
            copied = true;
        }
    }
    if (status == FTH_IO && trainer->run_store && trainer->saving.written_step < trainer->position.step &&
        trainer->restored_step < trainer->position.step)
        status = fail_unstored(trainer, status);
    else if (status == FTH_OK && trainer->saving.local_step > 0)
        fth_trainer_drop_local_copy(trainer);
    return status;
}

fth_status fth_trainer_checkpoint(fth_trainer *trainer, bool last)
{
    fth_status status = fth_trainer_follow_saves(trainer);
    if (status != FTH_OK)
        return status;
    status = begin_save(trainer, false);
    if (status == FTH_OK && last)
        status = fth_trainer_finish_last_save(trainer);
    if (status == FTH_OK || last || status == FTH_DIVERGED)
        return status;
    char *message = fth_format("no checkpoint at step %" PRId64 ", trying again at the next: %s",
                               trainer->position.step, fth_error_message());
    fth_log_warning("%s", message);
    fth_reporter_write_warning(trainer->reporter, message);
    free(message);
    return FTH_OK;
}

/* The store has not taken what was trained so far, and may not: a copy stays here unless it does after all. `saving`
 * says how that went: FTH_TIMEOUT, and it is still under way, or it has failed. */
static fth_status keep_local_copy(fth_trainer *trainer, const fth_stop_reason *reason, fth_status saving)
{
    char *why = fth_format("%s", fth_error_message());
    fth_status status = fth_trainer_save_local_copy(trainer);
    if (status == FTH_OK && saving == FTH_TIMEOUT && trainer->saving.closing &&
        fth_trainer_finish_saves(trainer, fth_trainer_leaving_deadline(reason)) == FTH_OK) {
        fth_trainer_drop_local_copy(trainer);
    } else if (status == FTH_OK) {
        char *message = fth_trainer_describe_local_copy(trainer);
        fth_log_warning("%s", why);
        fth_reporter_write_warning(trainer->reporter, message);
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

fth_status fth_trainer_save_at_stop(fth_trainer *trainer, const fth_stop_reason *reason)
{
    fth_status status = FTH_OK;
    fth_saving *saving = &trainer->saving;
    fth_save_choice choice = FTH_SAVE_AFTER;

    FTH_TRY(fth_trainer_follow_saves(trainer));
    saving->hurry = isfinite(reason->deadline.at_seconds);
    if (trainer->position.unsaved && trainer->position.step > 0) {
        choice = fth_trainer_choose_save(trainer, reason);
        if (choice == FTH_SAVE_INSTEAD)
            fth_writer_cancel(saving->writer);
        if (choice != FTH_SAVE_NOT)
            FTH_TRY(begin_save(trainer, true));
    }
    status = fth_trainer_finish_saves(trainer, fth_trainer_store_deadline(trainer, reason));
    if (status == FTH_OK && choice == FTH_SAVE_NOT)
        status = fth_fail(FTH_TIMEOUT, "there is no time to store another checkpoint");
    if (status == FTH_OK && saving->local_step > 0) /* made while the end of the run waited for the store */
        fth_trainer_drop_local_copy(trainer);
    if (status != FTH_TIMEOUT && status != FTH_IO)
        goto out;
    bool unstored = trainer->position.step > saving->written_step && trainer->position.step > trainer->restored_step;
    if (unstored && fth_trainer_wants_local_copy(trainer, reason)) {
        status = keep_local_copy(trainer, reason, status);
    } else if (!unstored || reason->kind == FTH_STOP_PREEMPTION) {
        fth_log_warning("%s", fth_error_message()); /* the notice's event says what was lost; earlier saves are good */
        status = FTH_OK;
    }

out:
    return status;
}

void fth_saving_close(fth_saving *saving)
{
    if (saving->writer && saving->closing)
        fth_writer_cancel(saving->writer);
    (void)wait_for_closer(saving, (fth_deadline){INFINITY});
    fth_writer_free(saving->writer);
    saving->writer = NULL;
    for (int i = 0; i < FTH_WRITER_SLOTS; i++) {
        fth_snapshot_free(saving->snapshots[i]);
        saving->snapshots[i] = NULL;
    }
}
