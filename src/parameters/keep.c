/* Checkpoints beside the applying thread, and going on from them.
 *
 *     due -> vectors copied, log rotated (applying thread) -> saved (saver) -> logs from before it removed (saver)
 *
 * Until the new one is whole, the old one and both logs are there. A checkpoint is made between steps only: gradients
 * that were stored for a step are in the log. One memory holds the copy, time after time: it is the saver's until that
 * is idle again. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process.h"
#include "parameters/parameters_internal.h"
#include "train/classifier.h"

enum { KEPT = 2 };

typedef struct fth_saving { /* of the server's snapshot */
    json_t *state;
    int64_t version;
} fth_saving;

static void free_saving(fth_saving *saving)
{
    if (!saving)
        return;
    json_decref(saving->state);
    free(saving);
}

/* ---- the state beside tensors ---- */

static json_t *describe_state(fth_parameters *server)
{
    json_t *workers = fth_workers_to_json(server->workers);
    double apply_s = server->apply_before_s + (double)atomic_load(&server->metrics.apply_ns) * 1e-9;
    return json_pack("{s:s, s:I, s:I, s:f, s:f, s:s, s:s, s:o}", "kind", "parameter-server", "version",
                     (json_int_t)atomic_load(&server->version), "samples", (json_int_t)server->samples, "elapsed_s",
                     fth_parameters_elapsed(server), "apply_s", apply_s, "run", fth_record_id(server->record),
                     "run_folder", fth_record_folder(server->record), "workers", workers);
}

static fth_status restore_state(fth_parameters *server, const json_t *state, int64_t step)
{
    fth_status status = FTH_OK;
    json_int_t version = -1, samples = 0;
    const char *kind = NULL;
    double elapsed_s = 0;

    FTH_REQUIRE(json_unpack((json_t *)state, "{s:s, s:I, s:I, s:F}", "kind", &kind, "version", &version, "samples",
                            &samples, "elapsed_s", &elapsed_s) == 0 &&
                    strcmp(kind, "parameter-server") == 0 && version == step && samples >= 0,
                FTH_INVALID, "%s holds checkpoints that are not a parameter server's", server->state_folder);
    atomic_store(&server->version, version);
    server->samples = samples;
    server->elapsed_before_s = elapsed_s;
    server->apply_before_s = json_number_value(json_object_get(state, "apply_s"));
    FTH_TRY(fth_workers_from_json(server->workers, json_object_get(state, "workers")));

out:
    return status;
}

/* ---- restoring ---- */

/* The newest checkpoint here; or, where this machine has none, of the store. */
static fth_status load_checkpoint(fth_parameters *server, fth_checkpoint *checkpoint, bool *from_store)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_folder_create(server->state_folder));
    FTH_TRY(fth_store_open(server->state_folder, NULL, &server->folder));
    FTH_TRY(fth_checkpoint_load_latest(server->state_folder, checkpoint));
    if (!checkpoint->tensors && server->store) {
        fth_checkpoint_place place = {.store = server->store, .prefix = "", .keep = KEPT};
        FTH_TRY(fth_checkpoint_get_latest(&place, server->state_folder, NULL, checkpoint));
        *from_store = checkpoint->tensors != NULL;
    }

out:
    return status;
}

static fth_status take_snapshot(fth_parameters *server, fth_saving **result)
{
    fth_status status = FTH_OK;
    fth_saving *saving = NULL;
    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *saving, &saving));
    saving->version = atomic_load(&server->version);
    if (!server->snapshot)
        FTH_TRY(fth_engine_create_snapshot(server->engine, true, &server->snapshot));
    FTH_TRY(fth_snapshot_begin(server->snapshot, saving->version));
    FTH_TRY(fth_snapshot_finish(server->snapshot));
    saving->state = describe_state(server);
    FTH_REQUIRE(saving->state, FTH_NO_MEMORY, "no memory for the checkpoint's state");
    *result = saving;
    saving = NULL;

out:
    free_saving(saving);
    return status;
}

static fth_status put(fth_parameters *server, fth_store *store, const fth_saving *saving)
{
    fth_status status = FTH_OK;
    const void *bytes = NULL;
    size_t size = 0;
    FTH_TRY(fth_snapshot_as_file(server->snapshot, &bytes, &size));
    fth_checkpoint_place place = {.store = store, .prefix = "", .keep = KEPT};
    FTH_TRY(fth_checkpoint_put(&place, saving->version, bytes, size, saving->state, NULL));

out:
    return status;
}

static fth_status save(fth_parameters *server, const fth_saving *saving)
{
    fth_status status = FTH_OK;
    double began = fth_clock_seconds();

    /* Diverged weights are not worth keeping over good ones. */
    FTH_TRY(fth_snapshot_check_finite(server->snapshot));
    FTH_TRY(put(server, server->folder, saving));
    atomic_store(&server->metrics.checkpoint_version, saving->version);
    fth_wal_forget(server->state_folder, saving->version);
    fth_parameters_tell(server, "checkpoint",
                        json_pack("{s:I, s:f, s:I, s:s}", "step", (json_int_t)saving->version, "seconds",
                                  fth_clock_seconds() - began, "bytes",
                                  (json_int_t)fth_snapshot_size_bytes(server->snapshot), "file", server->state_folder));
    if (server->store && put(server, server->store, saving) != FTH_OK)
        fth_log_warning("the checkpoint of version %" PRId64 " is here, but not in %s: %s", saving->version,
                        fth_store_url(server->store), fth_error_message());

out:
    return status;
}

/* A log that a process before this one kept, and this one does not: what it has is in a checkpoint from now on. */
static fth_status end_log(fth_parameters *server)
{
    fth_status status = FTH_OK;
    fth_saving *saving = NULL;

    fth_wal_free(server->wal);
    server->wal = NULL;
    if (atomic_load(&server->version) > server->saved_version) {
        FTH_TRY(take_snapshot(server, &saving));
        FTH_TRY(save(server, saving));
        server->saved_version = saving->version;
    }

out:
    free_saving(saving);
    return status;
}

fth_status fth_parameters_restore(fth_parameters *server)
{
    fth_status status = FTH_OK;
    fth_checkpoint checkpoint = {0};
    fth_saving *first = NULL;
    char *origin = NULL;
    int64_t version = 0;
    bool from_store = false;

    FTH_TRY(load_checkpoint(server, &checkpoint, &from_store));
    if (checkpoint.tensors) {
        origin = fth_format("the checkpoint of version %" PRId64 " in %s", checkpoint.step, server->state_folder);
        FTH_TRY(fth_engine_load(server->engine, checkpoint.tensors, origin));
        FTH_TRY(restore_state(server, checkpoint.state, checkpoint.step));
        if (from_store) { /* logs here begin from a checkpoint here */
            FTH_TRY(take_snapshot(server, &first));
            FTH_TRY(put(server, server->folder, first));
        }
    } else {
        /* The initial weights come first, so that a log always has something to begin from. */
        FTH_TRY(take_snapshot(server, &first));
        FTH_TRY(save(server, first));
    }
    FTH_TRY(fth_update_guard_create(server->engine, &server->guard));
    version = atomic_load(&server->version);
    server->saved_version = version;
    server->saved_at_s = fth_clock_seconds();
    atomic_store(&server->metrics.checkpoint_version, version);
    /* The version is an atomic of ours; the log checks that it moves on as its records say. Room for as much as there may be when a checkpoint takes its time. */
    size_t map_bytes = (size_t)(2 * server->options.max_log_bytes + 4 * server->max_body_bytes);
    FTH_TRY(fth_wal_open(server->state_folder, server->options.durability == FTH_DURABILITY_POWER, map_bytes,
                         &(fth_wal_reader){fth_parameters_replay, fth_parameters_replayed_version, server},
                         &server->wal));
    if (server->options.durability == FTH_DURABILITY_CHECKPOINT)
        FTH_TRY(end_log(server));
    atomic_store(&server->metrics.log_bytes, server->wal ? fth_wal_size_bytes(server->wal) : 0);
    if (atomic_load(&server->version) > version)
        fth_log_info("the checkpoint is of version %" PRId64 "; replayed %s from the log", version,
                     FTH_COUNTED(atomic_load(&server->version) - version, "later update"));

out:
    free(origin);
    free_saving(first);
    fth_checkpoint_release(&checkpoint);
    return status;
}

/* ---- saving ---- */

/* Pushes come first: the saver, and the thread that hashes for it, are below them in whatever class the process has. */
static void give_way(void)
{
    enum { NICENESS = 5 };
    struct sched_param now = {0};
    int policy = sched_getscheduler(0);
    id_t thread = (id_t)syscall(SYS_gettid); /* on Linux priorities are a thread's own */
    if (policy != SCHED_RR && policy != SCHED_FIFO)
        setpriority(PRIO_PROCESS, thread, getpriority(PRIO_PROCESS, thread) + NICENESS);
    else if (sched_getparam(0, &now) == 0 && now.sched_priority > sched_get_priority_min(policy))
        sched_setscheduler(0, policy, &(struct sched_param){.sched_priority = now.sched_priority - 1});
}

static void *run_saver(void *context)
{
    fth_parameters *server = context;
    give_way();
    pthread_mutex_lock(&server->mutex);
    for (;;) {
        while (!server->saving && !server->saver_ends)
            pthread_cond_wait(&server->saver_work, &server->mutex);
        fth_saving *saving = server->saving;
        if (!saving)
            break;
        pthread_mutex_unlock(&server->mutex);
        fth_status status = save(server, saving);
        if (status == FTH_DIVERGED) {
            fth_parameters_fail(server, status);
        } else if (status != FTH_OK) {
            fth_log_warning("the checkpoint of version %" PRId64 " could not be saved and will be tried again: %s",
                            saving->version, fth_error_message());
            fth_parameters_tell(
                server, "warning",
                json_pack("{s:I, s:s}", "step", (json_int_t)saving->version, "message", fth_error_message()));
        }
        free_saving(saving);
        pthread_mutex_lock(&server->mutex);
        server->saving = NULL;
        pthread_cond_broadcast(&server->changed);
    }
    pthread_mutex_unlock(&server->mutex);
    return NULL;
}

fth_status fth_parameters_start_saver(fth_parameters *server)
{
    if (fth_thread_start(&server->saver, "save", run_saver, server) != 0)
        return fth_fail(FTH_NO_MEMORY, "no thread to save checkpoints");
    server->saver_running = true;
    return FTH_OK;
}

void fth_parameters_stop_saver(fth_parameters *server)
{
    if (!server->saver_running)
        return;
    pthread_mutex_lock(&server->mutex);
    server->saver_ends = true;
    pthread_cond_signal(&server->saver_work);
    pthread_mutex_unlock(&server->mutex);
    pthread_join(server->saver, NULL);
    server->saver_running = false;
}

void fth_parameters_consider_saving(fth_parameters *server, bool now)
{
    const fth_parameters_options *options = &server->options;
    int64_t version = atomic_load(&server->version), since = version - server->saved_version;
    double age_s = fth_clock_seconds() - server->saved_at_s;
    fth_saving *saving = NULL;

    pthread_mutex_lock(&server->mutex);
    bool busy = server->saving != NULL, asked = server->save_asked;
    pthread_mutex_unlock(&server->mutex);
    if (busy || server->step_gradients > 0 || since == 0)
        return;
    bool due = now || asked || (options->checkpoint_every_s > 0 && age_s >= options->checkpoint_every_s) ||
               (options->checkpoint_every_versions > 0 && since >= options->checkpoint_every_versions) ||
               (server->wal && fth_wal_size_bytes(server->wal) >= options->max_log_bytes);
    if (!due)
        return;
    fth_status status = take_snapshot(server, &saving);
    if (status == FTH_OK && server->wal)
        status = fth_wal_rotate(server->wal, version);
    if (server->log_clip > 0)
        server->log_clip = -1;                /* each log says it by itself */
    server->saved_at_s = fth_clock_seconds(); /* also where it failed: not at once again */
    if (status != FTH_OK) {
        fth_log_warning("no checkpoint of version %" PRId64 ": %s", version, fth_error_message());
        free_saving(saving);
        return;
    }
    server->saved_version = version;
    pthread_mutex_lock(&server->mutex);
    server->saving = saving;
    server->save_asked = false;
    pthread_cond_signal(&server->saver_work);
    pthread_mutex_unlock(&server->mutex);
}

/* For the model file: the data set's facts, or what the server was told of the workers' images. */
static fth_status describe_model(const fth_parameters *server, fth_model_facts *facts)
{
    fth_status status = FTH_OK;
    if (server->dataset)
        FTH_TRY(fth_model_facts_of_data(server->dataset, facts));
    else
        *facts = (fth_model_facts){.channels = server->channels,
                                   .height = server->height,
                                   .width = server->width,
                                   .classes = server->classes,
                                   .normalization = server->normalization};
    facts->model = fth_format("%s", server->train->model);

out:
    return status;
}

fth_status fth_parameters_save_last(fth_parameters *server)
{
    fth_status status = FTH_OK;
    fth_model_facts facts = {0};
    fth_model_metadata metadata = {0};
    fth_saving *saving = NULL;
    fth_snapshot *model = NULL;
    char *path = NULL;
    int64_t version = atomic_load(&server->version);

    if (!server->engine || !server->record)
        return FTH_OK;
    if (server->wal)
        FTH_TRY(fth_wal_sync(server->wal));
    if (server->failure != FTH_OK)
        goto out;                      /* what was good is saved */
    if (server->step_gradients == 0) { /* else the log has more than a checkpoint could say */
        if (version > atomic_load(&server->metrics.checkpoint_version)) { /* one that was begun may have failed */
            FTH_TRY(take_snapshot(server, &saving));
            if (server->wal)
                FTH_TRY(fth_wal_rotate(server->wal, version));
            FTH_TRY(save(server, saving));
        }
    }
    FTH_TRY(fth_engine_lend_model(server->engine, version, &model));
    size_t count = 0;
    const fth_tensor_view *views = fth_snapshot_views(model, &count);
    FTH_TRY(describe_model(server, &facts));
    FTH_TRY(fth_model_facts_to_metadata(&facts, &metadata));
    path = fth_path_join(fth_record_folder(server->record), "last.safetensors");
    FTH_TRY(fth_model_file_save(path, views, count, metadata.entries, metadata.count));

out:
    fth_model_metadata_release(&metadata);
    fth_model_facts_release(&facts);
    fth_snapshot_free(model);
    free_saving(saving);
    free(path);
    return status;
}
