/* Saving in the background; see saver.h. saver_last.c is about the last save of a process. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/process.h"
#include "train/model/classifier.h"
#include "train/save/saver_internal.h"

#define SLOWEST_BYTES_S 20e6 /* assumed of a store that nothing is known about */

enum { SAVE_CHECKPOINT = 1 };

/* ---- jobs ---- */

/* What belongs to a job besides its tensors. */
typedef struct job_details {
    json_t *state;
    const void *best; /* the best model that the state names, mapped; NULL: it is stored, or there is none */
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

/* In the writer's thread, or the closer's. */
static fth_status write_job(void *context, const fth_writer_job *job, const fth_store_progress *progress,
                            uint64_t *size_bytes)
{
    fth_status status = FTH_OK;
    fth_saver *saver = context;
    fth_snapshot *snapshot = saver->snapshots[job->slot];
    const job_details *details = job->details;
    fth_publication publication = {
        .step = job->step, .state = details->state, .best = details->best, .best_bytes = details->best_bytes};

    if (fth_snapshot_finish(snapshot) != FTH_OK) /* of the device, not of the store: training finds out for itself */
        return fth_fail(FTH_IO, "%s", fth_error_message());
    FTH_TRY(fth_snapshot_check_finite(snapshot));
    FTH_TRY(fth_snapshot_as_file(snapshot, &publication.bytes, &publication.size_bytes));
    *size_bytes = publication.size_bytes;
    FTH_TRY(fth_publisher_put(saver->publisher, &publication, progress));

out:
    return status;
}

/* The first snapshot's memory, ahead of its use. The second is made when it is needed, which it
 * seldom is. In the writer's thread. */
static void prepare_snapshot(void *context)
{
    fth_saver *saver = context;
    fth_snapshot *snapshot = NULL;
    if (fth_engine_create_snapshot(saver->options.engine, true, &snapshot) != FTH_OK)
        return; /* the first save tries again, and says why */
    fth_snapshot_prepare(snapshot);
    saver->snapshots[0] = snapshot;
}

/* ---- making one ---- */

static size_t count_state_bytes(const fth_engine *engine)
{
    fth_engine_sizes sizes = fth_engine_get_sizes(engine);
    return (sizes.parameters + sizes.buffers + (size_t)sizes.state_count * sizes.trained) * sizeof(float);
}

static fth_status begin_interval(fth_saver *saver)
{
    fth_status status = FTH_OK;
    const fth_saver_options *options = &saver->options;
    fth_record_summary record = {0};

    FTH_TRY(fth_interval_begin(options->train->saving.every, &saver->interval));
    FTH_TRY(fth_share_parse(options->train->saving.overhead, &saver->facts.overhead));
    if (saver->interval.automatic && options->resumed) {
        FTH_TRY(fth_record_read(options->folder, &record));
        saver->facts.interruptions = record.resumes + 1; /* and this one */
    }

out:
    fth_record_release(&record);
    return status;
}

fth_status fth_saver_create(const fth_saver_options *options, fth_saver **result)
{
    fth_status status = FTH_OK;
    fth_saver *saver = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *saver, &saver));
    saver->options = *options;
    saver->state_bytes = count_state_bytes(options->engine);
    pthread_mutex_init(&saver->mutex, NULL);
    FTH_TRY(begin_interval(saver));
    FTH_TRY(fth_publisher_open(options->train, options->folder, options->run_store, &saver->publisher));
    saver->options.folder = NULL; /* the caller's; it may go with the record */
    *result = saver;
    saver = NULL;

out:
    fth_saver_free(saver);
    return status;
}

/* With `prepare` the writer makes the first snapshot ahead of its use. */
static fth_status start_writer(fth_saver *saver, bool prepare)
{
    fth_writer *writer = NULL;
    if (saver->writer)
        return FTH_OK;
    fth_status status = fth_writer_create(
        &(fth_writer_work){
            .context = saver, .prepare = prepare ? prepare_snapshot : NULL, .write = write_job, .drop = free_details},
        &writer);
    pthread_mutex_lock(&saver->mutex);
    saver->writer = writer;
    pthread_mutex_unlock(&saver->mutex);
    return status;
}

fth_status fth_saver_start(fth_saver *saver)
{
    return saver ? start_writer(saver, true) : FTH_OK;
}

/* ---- beginning ---- */

fth_status fth_saver_restore(fth_saver *saver, bool *restored)
{
    fth_status status = FTH_OK;
    fth_position *position = saver->options.position;
    fth_checkpoint checkpoint = {0};
    char *origin = NULL;

    *restored = false;
    FTH_TRY(fth_publisher_move_copy(saver->publisher, saver->options.stop));
    FTH_TRY(fth_publisher_load_latest(saver->publisher, saver->options.stop, &checkpoint));
    if (!checkpoint.tensors)
        goto out;
    origin =
        fth_format("the checkpoint of step %" PRId64 " in %s", checkpoint.step, fth_publisher_url(saver->publisher));
    FTH_TRY(fth_engine_load(saver->options.engine, checkpoint.tensors, origin));
    FTH_TRY(fth_position_restore(position, saver->options.engine, checkpoint.state));
    FTH_REQUIRE(position->step == checkpoint.step, FTH_CORRUPT, "%s has the state of step %" PRId64, origin,
                position->step);
    *restored = true;

out:
    free(origin);
    fth_checkpoint_release(&checkpoint);
    return status;
}

/* What is wrong with the file of the best model, for people; NULL: it is the one that the position
 * knows. */
static char *judge_best(const char *path, int64_t best_step)
{
    fth_safetensors *tensors = NULL;
    char *message = NULL;
    if (fth_safetensors_open(path, &tensors) == FTH_OK) {
        const char *step = fth_safetensors_metadata(tensors, "step");
        if (step && strtoll(step, NULL, 10) != best_step)
            message = fth_format(
                "removed %s: it is of step %.24s, which was undone; the next validation writes a new one", path, step);
    } else {
        message = fth_format("removed %s, the next validation writes a new one: %s", path, fth_error_message());
    }
    fth_safetensors_free(tensors);
    return message;
}

void fth_saver_check_best(fth_saver *saver)
{
    fth_train_state *state = &saver->options.position->state;
    const char *path = saver->options.best_path;

    if (!fth_file_exists(path)) {
        if (state->best_step < 0 || fth_publisher_has_best(saver->publisher, state->best_step))
            return; /* another machine's, fetched at the end */
        fth_reporter_warn(saver->options.reporter,
                          "the best model so far, of step %" PRId64
                          ", went with its machine; the next validation writes a new one",
                          state->best_step);
        state->best_step = -1;
        return;
    }
    char *message = judge_best(path, state->best_step);
    if (!message)
        return;
    bool stored = fth_publisher_has_best(saver->publisher, state->best_step); /* this machine had an older one */
    bool removed = unlink(path) == 0;
    if (!stored)
        state->best_step = -1;
    if (!stored && removed)
        fth_reporter_warn(saver->options.reporter, "%s", message);
    free(message);
}

void fth_saver_begin(fth_saver *saver)
{
    const fth_position *position = saver->options.position;
    saver->saved_at_s = position->state.elapsed_s;
    saver->saved_step = position->step;
    pthread_mutex_lock(&saver->mutex);
    saver->restored_step = position->step;
    pthread_mutex_unlock(&saver->mutex);
    fth_publisher_warn_of_space(saver->publisher, saver->state_bytes);
}

/* ---- results ---- */

static void record_saved(fth_saver *saver, const fth_writer_result *result)
{
    const job_details *details = result->job.details;
    char *path = fth_publisher_describe(saver->publisher, result->job.step);
    fth_reporter_write(saver->options.reporter, "checkpoint",
                       json_pack("{s:s, s:f, s:I, s:f, s:f, s:I, s:s}", "event", "checkpoint", "time", 0.0, "step",
                                 (json_int_t)result->job.step, "seconds", result->seconds, "stall_s", details->stall_s,
                                 "bytes", (json_int_t)result->size_bytes, "file", path));
    free(path);
    if (fth_reporter_sync(saver->options.reporter) != FTH_OK)
        fth_log_warning("%s", fth_error_message());
}

/* A running mean that follows changes within a few saves. */
static double follow(double mean, double value)
{
    return mean > 0 ? 0.5 * (mean + value) : value;
}

static void measure(fth_saver *saver, const fth_writer_result *result)
{
    const job_details *details = result->job.details;
    pthread_mutex_lock(&saver->mutex);
    saver->size_bytes = result->size_bytes;
    saver->save_s = saver->facts.save_s = follow(saver->save_s, result->seconds);
    saver->stall_s = saver->facts.stall_s = follow(saver->stall_s, details->stall_s);
    pthread_mutex_unlock(&saver->mutex);
}

static void adapt_interval(fth_saver *saver)
{
    fth_interval_facts *facts = &saver->facts;
    double between_s = 0;
    facts->elapsed_s = fth_position_elapsed(saver->options.position);
    if (!fth_interval_adapt(&saver->interval, facts, &between_s))
        return;
    double seconds = saver->interval.seconds;
    char text[48], between[48];
    fth_duration_format(seconds, text, sizeof text);
    fth_duration_format(between_s, between, sizeof between);
    fth_log_info("a checkpoint every %s: one stalls training for %.0f ms and is written in %.1f s, and a machine is "
                 "expected to last %s",
                 text, 1e3 * facts->stall_s, facts->save_s, between);
    fth_reporter_write(saver->options.reporter, "interval",
                       json_pack("{s:s, s:f, s:I, s:f, s:f, s:f, s:f, s:o}", "event", "interval", "time", 0.0, "step",
                                 (json_int_t)saver->options.position->step, "seconds", seconds, "stall_s",
                                 facts->stall_s, "save_s", facts->save_s, "step_s", saver->step_s,
                                 "between_interruptions_s", fth_json_number(between_s)));
}

static void warn_failed(fth_saver *saver, int64_t step, const char *why)
{
    fth_reporter_warn(saver->options.reporter, "no checkpoint at step %" PRId64 ", trying again at the next: %s", step,
                      why);
}

static fth_status take_result(fth_saver *saver, const fth_writer_result *result)
{
    if (result->status == FTH_OK) {
        saver->failed = false;
        measure(saver, result);
        record_saved(saver, result);
        adapt_interval(saver);
        return FTH_OK;
    }
    saver->saved_changes = -1;
    if (result->status == FTH_DIVERGED || result->status == FTH_PEER_LOST)
        return fth_fail(result->status, "%s", result->message);
    saver->failed = true;
    snprintf(saver->message, sizeof saver->message, "%s", result->message);
    if (result->status != FTH_INTERRUPTED) /* the thread that cancelled it knows */
        warn_failed(saver, result->job.step, result->message);
    return FTH_OK;
}

static fth_status collect(fth_saver *saver)
{
    fth_status status = FTH_OK;
    fth_writer_result result;
    while (status == FTH_OK && saver->writer && fth_writer_take_result(saver->writer, &result)) {
        status = take_result(saver, &result);
        free_details(NULL, &result.job);
    }
    return status;
}

fth_status fth_saver_collect(fth_saver *saver, double step_s)
{
    if (!saver)
        return FTH_OK;
    saver->step_s = step_s;
    return collect(saver);
}

/* ---- saving ---- */

/* The best model as it is now: when the job is written there may be another under its name. */
static fth_status hold_best(const fth_saver *saver, job_details *details)
{
    const char *path = saver->options.best_path;
    if (!fth_publisher_wants_best(saver->publisher, saver->options.position->state.best_step) ||
        !fth_file_exists(path)) /* another machine's */
        return FTH_OK;
    return fth_file_map(path, &details->best, &details->best_bytes);
}

/* The last save: by a thread of its own, with the priority of the training thread. */
typedef struct closing_job {
    fth_writer *writer;
    fth_writer_job job;
    fth_deadline deadline;
} closing_job;

static void *write_last(void *context)
{
    closing_job *closing = context;
    FTH_IGNORE(fth_writer_wait_idle(closing->writer, closing->deadline), "the save under way may be cancelled");
    fth_writer_run(closing->writer, &closing->job);
    free(closing);
    return NULL;
}

static void begin_closing(fth_saver *saver, const fth_writer_job *job, fth_deadline deadline)
{
    closing_job *closing = NULL;
    if (fth_allocate(1, sizeof *closing, &closing) == FTH_OK) {
        *closing = (closing_job){saver->writer, *job, deadline};
        saver->closing = fth_thread_start(&saver->closer, "save-last", write_last, closing) == 0;
    }
    if (!saver->closing) {
        free(closing);
        fth_writer_submit(saver->writer, job);
    }
}

static fth_status wait_for_closer(fth_saver *saver, fth_deadline deadline)
{
    if (!saver->closing)
        return FTH_OK;
    if (!fth_thread_join_by(saver->closer, deadline))
        return fth_fail(FTH_TIMEOUT, "the last checkpoint was not stored in time");
    saver->closing = false;
    return FTH_OK;
}

static fth_status copy_state(fth_saver *saver, int slot)
{
    fth_status status = FTH_OK;
    const fth_train_state *state = &saver->options.position->state;
    fth_snapshot **snapshot = &saver->snapshots[slot];
    if (!*snapshot)
        FTH_TRY(fth_engine_create_snapshot(saver->options.engine, true, snapshot));
    FTH_TRY(fth_snapshot_begin(*snapshot, state->counter_start + state->batches));

out:
    return status;
}

/* Copies the state into `slot` and hands it over. */
static fth_status submit(fth_saver *saver, int slot, bool last)
{
    fth_status status = FTH_OK;
    fth_position *position = saver->options.position;
    job_details *details = NULL;
    double began = fth_clock_seconds();

    FTH_TRY(copy_state(saver, slot));
    double seconds = fth_clock_seconds() - began;
    position->state.meters.checkpoint_s += seconds;
    FTH_TRY(fth_allocate(1, sizeof *details, &details));
    details->stall_s = seconds;
    FTH_TRY(hold_best(saver, details));
    FTH_TRY(fth_position_save(position, saver->options.engine, &details->state));
    fth_writer_job job = {.slot = slot, .kind = SAVE_CHECKPOINT, .step = position->step, .details = details};
    details = NULL;
    if (last)
        begin_closing(saver, &job, fth_stop_get(saver->options.stop).deadline);
    else
        fth_writer_submit(saver->writer, &job);

out:
    if (status != FTH_OK)
        fth_writer_unclaim(saver->writer, slot);
    if (details)
        free_details(NULL, &(fth_writer_job){.details = details});
    return status;
}

fth_status fth_saver_begin_save(fth_saver *saver, bool last)
{
    fth_position *position = saver->options.position;
    fth_writer_job replaced;
    fth_status status = start_writer(saver, false);
    if (status != FTH_OK)
        return status;
    int slot = fth_writer_claim(saver->writer, SAVE_CHECKPOINT, &replaced);
    if (replaced.slot >= 0)
        free_details(NULL, &replaced);
    status = submit(saver, slot, last); /* there is a slot: all jobs are of one kind */
    if (status == FTH_OK)
        saver->saved_changes = position->changes;
    saver->saved_at_s = fth_position_elapsed(position);
    saver->saved_step = position->step;
    return status;
}

fth_status fth_saver_wait(fth_saver *saver, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    if (!saver->writer)
        return FTH_OK;
    double began = fth_clock_seconds();
    status = wait_for_closer(saver, deadline);
    if (status == FTH_OK)
        status = fth_writer_wait_idle(saver->writer, deadline);
    saver->options.position->state.meters.checkpoint_s += fth_clock_seconds() - began;
    FTH_TRY(status);
    FTH_TRY(collect(saver));
    FTH_REQUIRE(!saver->failed, FTH_IO, "%s", saver->message);

out:
    return status;
}

bool fth_saver_is_unsaved(const fth_saver *saver)
{
    return saver && saver->options.position->changes != saver->saved_changes;
}

bool fth_saver_is_due(const fth_saver *saver)
{
    if (!fth_saver_is_unsaved(saver))
        return false;
    const fth_position *position = saver->options.position;
    return fth_interval_is_over(&saver->interval, position->step - saver->saved_step,
                                position->state.elapsed_s - saver->saved_at_s);
}

fth_status fth_saver_save(fth_saver *saver)
{
    if (!saver)
        return FTH_OK;
    fth_status status = collect(saver);
    if (status != FTH_OK)
        return status;
    status = fth_saver_begin_save(saver, false);
    if (status == FTH_OK || status == FTH_DIVERGED)
        return status;
    warn_failed(saver, saver->options.position->step, fth_error_message());
    return FTH_OK;
}

double fth_saver_get_save_s(const fth_saver *saver)
{
    return saver ? saver->facts.save_s : 0;
}

fth_status fth_saver_save_model(fth_saver *saver, fth_engine *engine, int64_t of_step, int64_t counter,
                                const char *path)
{
    fth_status status = FTH_OK;
    fth_snapshot *snapshot = NULL;
    fth_model_facts facts = {0};
    fth_model_metadata metadata = {0};
    size_t count = 0;
    char step[24];
    bool tried_again = false;

    if (!saver)
        return FTH_OK;
    FTH_TRY(fth_model_facts_of_run(saver->options.train, saver->options.dataset, &facts));
    FTH_TRY(fth_model_facts_to_metadata(&facts, &metadata));
    snprintf(step, sizeof step, "%" PRId64, of_step);
    metadata.entries[metadata.count++] = (fth_metadata_entry){"step", step};
    FTH_TRY(fth_engine_lend_model(engine, counter, &snapshot));
    FTH_TRY(fth_snapshot_check_finite(snapshot));
    const fth_tensor_view *views = fth_snapshot_file_views(snapshot, &count);
    do
        status = fth_model_file_save(path, views, count, metadata.entries, metadata.count);
    while (status == FTH_NO_SPACE && fth_publisher_make_room(saver->publisher, &tried_again));

out:
    fth_snapshot_free(snapshot);
    fth_model_metadata_release(&metadata);
    fth_model_facts_release(&facts);
    return status;
}

void fth_saver_free(fth_saver *saver)
{
    if (!saver)
        return;
    if (saver->writer && saver->closing)
        fth_writer_cancel(saver->writer);
    FTH_IGNORE(wait_for_closer(saver, (fth_deadline){INFINITY}), "stores have deadlines of their own");
    fth_writer_free(saver->writer);
    for (int i = 0; i < FTH_WRITER_SLOTS; i++)
        fth_snapshot_free(saver->snapshots[i]);
    fth_publisher_free(saver->publisher);
    pthread_mutex_destroy(&saver->mutex);
    free(saver);
}

/* ---- for the watchdog ---- */

static fth_writer *get_writer(fth_saver *saver)
{
    pthread_mutex_lock(&saver->mutex);
    fth_writer *writer = saver->writer;
    pthread_mutex_unlock(&saver->mutex);
    return writer;
}

fth_saver_state fth_saver_look(fth_saver *saver)
{
    if (!saver)
        return (fth_saver_state){0};
    fth_writer *writer = get_writer(saver);
    fth_writer_state writing = writer ? fth_writer_look(writer) : (fth_writer_state){0};

    pthread_mutex_lock(&saver->mutex);
    double size = saver->size_bytes > 0 ? (double)saver->size_bytes : (double)saver->state_bytes;
    double rate = saver->save_s > 0 ? size / saver->save_s : SLOWEST_BYTES_S;
    double save_s = saver->stall_s + size / rate;
    int64_t restored_step = saver->restored_step;
    pthread_mutex_unlock(&saver->mutex);

    double rest = (double)(writing.total_bytes - writing.done_bytes);
    int64_t stored_step = fth_publisher_stored_step(saver->publisher);
    return (fth_saver_state){.estimate = {.save_s = save_s,
                                          .writing = writing.writing,
                                          .waiting = writing.waiting,
                                          .rest_s = writing.total_bytes > 0 ? rest / rate : save_s},
                             .stored_step = stored_step > restored_step ? stored_step : restored_step,
                             .copy_step = fth_publisher_copy_step(saver->publisher)};
}

void fth_saver_cancel(fth_saver *saver)
{
    fth_writer *writer = get_writer(saver);
    if (writer)
        fth_writer_cancel(writer);
}

void fth_saver_flush(fth_saver *saver, fth_deadline deadline)
{
    fth_writer *writer = get_writer(saver);
    fth_publisher_set_hurry(saver->publisher, isfinite(deadline.at_seconds));
    if (writer)
        FTH_IGNORE(fth_writer_wait_idle(writer, deadline), "the process ends then in any case");
}
