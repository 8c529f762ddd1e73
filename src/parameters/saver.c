/* See saver.h. */
#include "parameters/saver.h"

#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/writer.h"
#include "parameters/journal.h"
#include "parameters/updates.h"
#include "train/engine/snapshot.h"

enum { KEPT = 2 };

struct fth_served_saver {
    const fth_server_parts *parts;
    const char *folder_path; /* of checkpoints and logs */
    fth_store *folder;       /* the same folder as a store */
    fth_writer *writer;
    fth_snapshot *snapshot; /* belongs to the writer until it is idle */
    int64_t saved_version;  /* of the newest checkpoint, complete or being written */
    double saved_at_s;
    bool asked;
};

/* ---- state other than tensors ---- */

static json_t *describe_state(const fth_served_saver *saver)
{
    const fth_served_position *position = saver->parts->position;
    const fth_served_record *record = saver->parts->record;
    return json_pack("{s:s, s:s, s:I, s:I, s:f, s:f, s:s, s:s, s:o, s:o, s:o}", "kind", "parameter-server", "input",
                     saver->parts->model->input.text, "version", (json_int_t)fth_served_position_version(position),
                     "samples", (json_int_t)fth_served_position_samples(position), "elapsed_s",
                     fth_served_position_elapsed_s(position), "apply_s", fth_served_position_apply_s(position), "run",
                     fth_served_record_id(record), "run_folder", fth_served_record_folder(record), "workers",
                     fth_workers_to_json(saver->parts->workers), "shards", fth_shards_to_json(saver->parts->shards),
                     "functions", fth_served_usage_to_json(saver->parts->usage));
}

/* Another tokenizer of the same size would fit the vectors, but mean other words. */
static fth_status check_texts(const fth_served_saver *saver, const char *before)
{
    const fth_served_model *model = saver->parts->model;
    if (model->input.longest == 0 || !before || strcmp(before, model->input.text) == 0)
        return FTH_OK;
    return fth_fail(FTH_INVALID,
                    "%s holds a model for %s, and this server has %s: give --vocab the tokenizer.json of its run",
                    saver->folder_path, before, model->input.text);
}

static fth_status restore_state(fth_served_saver *saver, const json_t *state, int64_t step)
{
    fth_status status = FTH_OK;
    json_int_t version = -1, samples = 0;
    const char *kind = NULL;
    double elapsed_s = 0;

    FTH_REQUIRE(json_unpack((json_t *)state, "{s:s, s:I, s:I, s:F}", "kind", &kind, "version", &version, "samples",
                            &samples, "elapsed_s", &elapsed_s) == 0 &&
                    strcmp(kind, "parameter-server") == 0 && version == step && samples >= 0,
                FTH_INVALID, "%s holds checkpoints that are not a parameter server's", saver->folder_path);
    FTH_TRY(check_texts(saver, json_string_value(json_object_get(state, "input"))));
    if (json_object_get(state, "shards")) /* absent in older versions */
        FTH_TRY(fth_shards_from_json(saver->parts->shards, json_object_get(state, "shards")));
    fth_served_position_add_listed(saver->parts->position, fth_shards_count(saver->parts->shards).samples_done);
    fth_served_usage_from_json(saver->parts->usage, json_object_get(state, "functions"));
    fth_served_position_restore(saver->parts->position, version, samples, elapsed_s,
                                json_number_value(json_object_get(state, "apply_s")));
    FTH_TRY(fth_workers_from_json(saver->parts->workers, json_object_get(state, "workers")));

out:
    return status;
}

/* ---- writing ---- */

static fth_status put(fth_served_saver *saver, fth_store *store, const fth_writer_job *job,
                      const fth_store_progress *progress)
{
    fth_status status = FTH_OK;
    const void *bytes = NULL;
    size_t size = 0;
    FTH_TRY(fth_snapshot_as_file(saver->snapshot, &bytes, &size));
    fth_checkpoint_place place = {.store = store, .prefix = "", .keep = KEPT};
    FTH_TRY(fth_checkpoint_put(&place, job->step, bytes, size, job->details, progress));

out:
    return status;
}

/* Runs in the writer's thread. Older logs are removed when the local checkpoint is complete; the
 * copy in the store comes after that. */
static fth_status write_checkpoint(void *context, const fth_writer_job *job, const fth_store_progress *progress,
                                   uint64_t *size_bytes)
{
    fth_status status = FTH_OK;
    fth_served_saver *saver = context;
    const fth_server_parts *parts = saver->parts;
    double began = fth_clock_seconds();

    *size_bytes = fth_snapshot_size_bytes(saver->snapshot);
    /* diverged weights must not replace good ones */
    FTH_TRY(fth_snapshot_check_finite(saver->snapshot));
    FTH_TRY(put(saver, saver->folder, job, progress));
    atomic_store(&parts->metrics->checkpoint_version, job->step);
    fth_journal_forget(parts->journal, job->step);
    fth_served_record_append(parts->record, "checkpoint",
                             json_pack("{s:I, s:f, s:I, s:s}", "step", (json_int_t)job->step, "seconds",
                                       fth_clock_seconds() - began, "bytes", (json_int_t)*size_bytes, "file",
                                       saver->folder_path));
    if (parts->store && put(saver, parts->store, job, progress) != FTH_OK)
        fth_log_warning("the checkpoint of version %" PRId64 " is saved here, but not in %s: %s", job->step,
                        fth_store_url(parts->store), fth_error_message());

out:
    return status;
}

/* Pushes have priority over checkpoints. The writer already has a low priority, except under real-
 * time scheduling, where it is lowered here. */
static void give_way(void *context)
{
    struct sched_param now = {0};
    int policy = sched_getscheduler(0);
    (void)context;
    if ((policy == SCHED_RR || policy == SCHED_FIFO) && sched_getparam(0, &now) == 0 &&
        now.sched_priority > sched_get_priority_min(policy))
        sched_setscheduler(0, policy, &(struct sched_param){.sched_priority = now.sched_priority - 1});
}

static void drop_job(void *context, const fth_writer_job *job)
{
    (void)context;
    json_decref(job->details);
}

/* ---- from state to a job ---- */

static bool is_busy(const fth_served_saver *saver)
{
    fth_writer_state state = fth_writer_look(saver->writer);
    return state.writing || state.waiting;
}

/* Copies the vectors and the state into a job, to be submitted or run. Only while the writer is
 * idle, because there is one snapshot. */
static fth_status prepare_job(fth_served_saver *saver, fth_writer_job *job)
{
    fth_status status = FTH_OK;
    fth_writer_job replaced;

    *job = (fth_writer_job){.slot = fth_writer_claim(saver->writer, 0, &replaced),
                            .step = fth_served_position_version(saver->parts->position)};
    FTH_REQUIRE(job->slot >= 0, FTH_TIMEOUT, "another checkpoint is being written");
    if (!saver->snapshot)
        FTH_TRY(fth_engine_create_snapshot(saver->parts->model->engine, true, &saver->snapshot));
    FTH_TRY(fth_snapshot_begin(saver->snapshot, job->step));
    FTH_TRY(fth_snapshot_finish(saver->snapshot));
    job->details = describe_state(saver);
    FTH_REQUIRE(job->details, FTH_NO_MEMORY, "no memory for the checkpoint's state");

out:
    if (status != FTH_OK && job->slot >= 0)
        fth_writer_unclaim(saver->writer, job->slot);
    return status;
}

static void discard_job(fth_served_saver *saver, const fth_writer_job *job)
{
    fth_writer_unclaim(saver->writer, job->slot);
    json_decref(job->details);
}

/* Collects results; returns the last one's status, with its message. */
static fth_status take_results(fth_served_saver *saver)
{
    fth_status status = FTH_OK;
    fth_writer_result result;
    while (fth_writer_take_result(saver->writer, &result)) {
        json_decref(result.job.details);
        status = result.status == FTH_OK ? FTH_OK : fth_fail(result.status, "%s", result.message);
    }
    return status;
}

static fth_status write_now(fth_served_saver *saver, fth_writer_job *job)
{
    fth_writer_run(saver->writer, job);
    fth_status status = take_results(saver);
    if (status == FTH_OK)
        saver->saved_version = job->step;
    return status;
}

/* ---- restoring ---- */

/* Loads the newest checkpoint of this machine, or else of the store. */
static fth_status load_checkpoint(fth_served_saver *saver, fth_checkpoint *checkpoint, bool *from_store)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_checkpoint_load_latest(saver->folder_path, checkpoint));
    if (!checkpoint->tensors && saver->parts->store) {
        fth_checkpoint_place place = {.store = saver->parts->store, .prefix = "", .keep = KEPT};
        FTH_TRY(fth_checkpoint_get_latest(&place, saver->folder_path, NULL, checkpoint));
        *from_store = checkpoint->tensors != NULL;
    }

out:
    return status;
}

/* Saves the store's checkpoint here too: a local log needs a local checkpoint to start from. */
static fth_status keep_here(fth_served_saver *saver)
{
    fth_writer_job job;
    fth_status status = prepare_job(saver, &job);
    if (status != FTH_OK)
        return status;
    status = put(saver, saver->folder, &job, NULL);
    discard_job(saver, &job);
    return status;
}

fth_status fth_served_saver_restore(fth_served_saver *saver)
{
    fth_status status = FTH_OK;
    fth_checkpoint checkpoint = {0};
    fth_writer_job first;
    char *origin = NULL;
    bool from_store = false;

    FTH_TRY(load_checkpoint(saver, &checkpoint, &from_store));
    if (checkpoint.tensors) {
        origin = fth_format("the checkpoint of version %" PRId64 " in %s", checkpoint.step, saver->folder_path);
        FTH_TRY(fth_engine_load(saver->parts->model->engine, checkpoint.tensors, origin));
        FTH_TRY(restore_state(saver, checkpoint.state, checkpoint.step));
        if (from_store)
            FTH_TRY(keep_here(saver));
    } else {
        FTH_TRY(prepare_job(saver, &first));
        FTH_TRY(write_now(saver, &first));
    }
    saver->saved_version = fth_served_position_version(saver->parts->position);
    saver->saved_at_s = fth_clock_seconds();
    atomic_store(&saver->parts->metrics->checkpoint_version, saver->saved_version);

out:
    free(origin);
    fth_checkpoint_release(&checkpoint);
    return status;
}

/* ---- saving ---- */

static void report_failure(fth_served_saver *saver, fth_status status)
{
    if (status == FTH_OK)
        return;
    if (status == FTH_DIVERGED) {
        fth_health_fail(saver->parts->health, status);
        return;
    }
    fth_log_warning("the checkpoint of version %" PRId64 " could not be saved; it will be tried again: %s",
                    saver->saved_version, fth_error_message());
    fth_served_record_append(
        saver->parts->record, "warning",
        json_pack("{s:I, s:s}", "step", (json_int_t)saver->saved_version, "message", fth_error_message()));
}

static bool is_due(const fth_served_saver *saver, int64_t version)
{
    const fth_server_parts *parts = saver->parts;
    int64_t since = version - saver->saved_version;
    double age_s = fth_clock_seconds() - saver->saved_at_s;
    return since > 0 &&
           (saver->asked || (parts->options->checkpoint_every_s > 0 && age_s >= parts->options->checkpoint_every_s) ||
            (parts->options->checkpoint_every_versions > 0 && since >= parts->options->checkpoint_every_versions) ||
            fth_journal_is_full(parts->journal));
}

void fth_served_saver_begin_if_due(fth_served_saver *saver)
{
    int64_t version = fth_served_position_version(saver->parts->position);
    fth_writer_job job;

    report_failure(saver, take_results(saver));
    if (fth_updates_pending(saver->parts->updates) > 0 || !is_due(saver, version) || is_busy(saver))
        return;
    saver->saved_at_s = fth_clock_seconds(); /* even if it fails, so that it is not retried at once */
    fth_status status = prepare_job(saver, &job);
    if (status == FTH_OK && (status = fth_journal_rotate(saver->parts->journal, version)) != FTH_OK)
        discard_job(saver, &job);
    if (status != FTH_OK) {
        fth_log_warning("no checkpoint of version %" PRId64 ": %s", version, fth_error_message());
        return;
    }
    saver->saved_version = version;
    saver->asked = false;
    fth_writer_submit(saver->writer, &job);
}

void fth_served_saver_request(fth_served_saver *saver)
{
    saver->asked = true;
}

void fth_served_saver_finish(fth_served_saver *saver)
{
    FTH_IGNORE(fth_writer_wait_idle(saver->writer, (fth_deadline){INFINITY}), "stores have deadlines of their own");
    report_failure(saver, take_results(saver));
}

fth_status fth_served_saver_save_now(fth_served_saver *saver)
{
    fth_status status = FTH_OK;
    int64_t version = fth_served_position_version(saver->parts->position);
    fth_writer_job job;

    if (fth_updates_pending(saver->parts->updates) > 0 ||
        version <= atomic_load(&saver->parts->metrics->checkpoint_version)) /* the last one may have failed */
        return FTH_OK;
    FTH_TRY(prepare_job(saver, &job));
    status = fth_journal_rotate(saver->parts->journal, version);
    if (status != FTH_OK) {
        discard_job(saver, &job);
        goto out;
    }
    FTH_TRY(write_now(saver, &job));

out:
    return status;
}

/* ---- beginning and end ---- */

fth_status fth_served_saver_create(const fth_server_parts *parts, fth_served_saver **result)
{
    fth_status status = FTH_OK;
    fth_served_saver *saver = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *saver, &saver));
    saver->parts = parts;
    saver->folder_path = fth_served_record_state_folder(parts->record);
    FTH_TRY(fth_store_open(saver->folder_path, NULL, &saver->folder));
    FTH_TRY(fth_writer_create(
        &(fth_writer_work){.context = saver, .prepare = give_way, .write = write_checkpoint, .drop = drop_job},
        &saver->writer));
    *result = saver;
    saver = NULL;

out:
    fth_served_saver_free(saver);
    return status;
}

void fth_served_saver_free(fth_served_saver *saver)
{
    if (!saver)
        return;
    fth_writer_free(saver->writer);
    fth_snapshot_free(saver->snapshot);
    fth_store_free(saver->folder);
    free(saver);
}
