/* Keeping a run's record in its store up to date.
 *
 * A thread puts this owner's events when it is poked (checkpoints, epochs, notices) and every ten
 * seconds while there are new ones. Objects are put whole, so an owner's events are cut into parts
 * of a megabyte: what is re-sent stays small however long the run is. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "train/run/run_store_internal.h"

#define LOOK_EVERY_S 10.0

enum { PART_BYTES = 1 << 20 };

/* ---- events ---- */

static fth_status put_part(fth_run_store *run, const char *events, size_t end)
{
    fth_status status = FTH_OK;
    char key[64];
    if (run->mirror.part == 0)
        snprintf(key, sizeof key, "events/%06" PRId64 ".jsonl", run->owner);
    else
        snprintf(key, sizeof key, "events/%06" PRId64 "-%04" PRId64 ".jsonl", run->owner, run->mirror.part);
    fth_store_progress progress = {.context = run, .moved = fth_run_store_may_go_on};
    FTH_TRY(fth_run_store_guard(run));
    FTH_TRY(fth_store_put(run->store, key, events + run->mirror.part_begin, end - run->mirror.part_begin,
                          &(fth_store_put_options){.content_type = "application/x-ndjson", .progress = &progress}, NULL,
                          NULL));
    run->mirror.stored = end;
    if (end - run->mirror.part_begin >= PART_BYTES) {
        run->mirror.part_begin = end;
        run->mirror.part++;
    }

out:
    return status;
}

/* Where the part that begins at `begin` ends: after the line that makes it a megabyte, or with what
 * there is. */
static size_t end_of_part(const char *events, size_t begin, size_t end)
{
    if (end - begin <= PART_BYTES)
        return end;
    const char *line_end = memchr(events + begin + PART_BYTES - 1, '\n', end - begin - PART_BYTES + 1);
    return line_end ? (size_t)(line_end - events) + 1 : end;
}

fth_status fth_run_store_flush(fth_run_store *run)
{
    fth_status status = FTH_OK;
    const void *events = NULL;
    size_t size = 0;
    char *path = NULL;

    pthread_mutex_lock(&run->mirror.mutex);
    if (!run->mirror.folder)
        goto out;
    path = fth_path_join(run->mirror.folder, "events.jsonl");
    FTH_TRY(fth_file_map(path, &events, &size));
    size_t end = size;
    while (end > 0 && ((const char *)events)[end - 1] != '\n')
        end--;                       /* a line that is being written comes next time */
    while (end > run->mirror.stored) /* several parts where the store was away for long */
        FTH_TRY(put_part(run, events, end_of_part(events, run->mirror.part_begin, end)));

out:
    pthread_mutex_unlock(&run->mirror.mutex);
    fth_file_unmap(events, size);
    free(path);
    return status;
}

/* ---- the thread ---- */

static void *mirror(void *context)
{
    fth_run_store *run = context;
    bool failing = false;
    pthread_mutex_lock(&run->mutex);
    while (!run->ending) {
        if (!run->poked) {
            struct timespec until = fth_deadline_timespec(fth_deadline_in(LOOK_EVERY_S));
            pthread_cond_clockwait(&run->changed, &run->mutex, CLOCK_MONOTONIC, &until);
        }
        if (run->ending)
            break;
        run->poked = false;
        pthread_mutex_unlock(&run->mutex);
        fth_status status = fth_run_store_flush(run);
        if (status != FTH_OK && status != FTH_PEER_LOST && !failing) /* once, until it works again */
            fth_log_warning("the run's events are not stored for now: %s", fth_error_message());
        failing = status != FTH_OK;
        pthread_mutex_lock(&run->mutex);
    }
    pthread_mutex_unlock(&run->mutex);
    return NULL;
}

fth_status fth_run_store_begin(fth_run_store *run, const char *folder, size_t stored_bytes)
{
    pthread_mutex_lock(&run->mirror.mutex);
    run->mirror.folder = fth_format("%s", folder);
    run->mirror.part_begin = run->mirror.stored = stored_bytes;
    pthread_mutex_unlock(&run->mirror.mutex);
    pthread_mutex_lock(&run->mutex);
    run->ending = false; /* no thread yet: the record of an earlier try may have been discarded */
    bool running = run->running = fth_thread_start(&run->thread, "mirror", mirror, run) == 0;
    pthread_mutex_unlock(&run->mutex);
    return running ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no thread could be started to store the run's events");
}

bool fth_run_store_is_mirrored(fth_run_store *run)
{
    pthread_mutex_lock(&run->mirror.mutex);
    bool mirrored = run->mirror.folder != NULL;
    pthread_mutex_unlock(&run->mirror.mutex);
    return mirrored;
}

void fth_run_mirror_stop(fth_run_store *run)
{
    pthread_mutex_lock(&run->mutex);
    bool running = run->running;
    run->ending = true;
    run->running = false; /* one thread joins it, should two stop it */
    pthread_cond_signal(&run->changed);
    pthread_mutex_unlock(&run->mutex);
    if (running)
        pthread_join(run->thread, NULL);
}

void fth_run_mirror_end(fth_run_store *run)
{
    fth_run_mirror_stop(run);
    pthread_mutex_lock(&run->mirror.mutex);
    free(run->mirror.folder);
    run->mirror.folder = NULL;
    pthread_mutex_unlock(&run->mirror.mutex);
}

void fth_run_store_poke(fth_run_store *run)
{
    pthread_mutex_lock(&run->mutex);
    run->poked = true;
    pthread_cond_signal(&run->changed);
    pthread_mutex_unlock(&run->mutex);
}

/* ---- run.json ---- */

fth_status fth_run_store_put_run(fth_run_store *run, bool is_new)
{
    fth_status status = FTH_OK;
    json_t *json = NULL;
    char *text = NULL;

    FTH_TRY(fth_record_read_run(run->mirror.folder, &json));
    json_object_set_new(json, "owner", json_integer(run->owner)); /* so that no two owners' are the same version */
    text = json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    FTH_REQUIRE(text, FTH_NO_MEMORY, "no memory for run.json");
    FTH_TRY(fth_run_store_put_as_owner(run, "run.json", text, strlen(text), is_new));

out:
    json_decref(json);
    free(text);
    return status;
}
