/* Keeping a run's record in its store up to date.
 *
 * A thread puts this owner's events when it is poked (checkpoints, epochs, notices) and every ten seconds while there
 * are new ones. Objects are put whole, so an owner's events are cut into parts of a megabyte: what is re-sent stays
 * small however long the run is. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "train/run_store_internal.h"

#define LOOK_EVERY_S 10.0

enum { PART_BYTES = 1 << 20 };

/* Asked during a put and right before it takes effect: a machine that slept in between may have lost the run. */
static bool may_go_on(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    (void)done_bytes;
    (void)total_bytes;
    return fth_run_store_guard(context) != FTH_PEER_LOST;
}

/* ---- events ---- */

static fth_status put_part(fth_run_store *run, const char *events, size_t end)
{
    fth_status status = FTH_OK;
    char key[64];
    if (run->part == 0)
        snprintf(key, sizeof key, "events/%06" PRId64 ".jsonl", run->owner);
    else
        snprintf(key, sizeof key, "events/%06" PRId64 "-%04" PRId64 ".jsonl", run->owner, run->part);
    fth_store_progress progress = {.context = run, .moved = may_go_on};
    FTH_TRY(fth_run_store_guard(run));
    FTH_TRY(fth_store_put(run->store, key, events + run->part_begin, end - run->part_begin,
                          &(fth_store_put_options){.content_type = "application/x-ndjson", .progress = &progress}, NULL,
                          NULL));
    run->stored = end;
    if (end - run->part_begin >= PART_BYTES) {
        run->part_begin = end;
        run->part++;
    }

out:
    return status;
}

fth_status fth_run_store_flush(fth_run_store *run)
{
    fth_status status = FTH_OK;
    const void *events = NULL;
    size_t size = 0;
    if (!run->folder)
        return FTH_OK;
    char *path = fth_path_join(run->folder, "events.jsonl");

    pthread_mutex_lock(&run->uploading);
    FTH_TRY(fth_file_map(path, &events, &size));
    size_t end = size;
    while (end > 0 && ((const char *)events)[end - 1] != '\n')
        end--; /* a line that is being written comes next time */
    if (end > run->stored)
        FTH_TRY(put_part(run, events, end));

out:
    pthread_mutex_unlock(&run->uploading);
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
    run->folder = fth_format("%s", folder);
    run->part_begin = run->stored = stored_bytes;
    run->running = pthread_create(&run->thread, NULL, mirror, run) == 0;
    return run->running ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no thread could be started to store the run's events");
}

void fth_run_mirror_stop(fth_run_store *run)
{
    pthread_mutex_lock(&run->mutex);
    run->ending = true;
    pthread_cond_signal(&run->changed);
    pthread_mutex_unlock(&run->mutex);
    if (run->running)
        pthread_join(run->thread, NULL);
    run->running = false;
}

void fth_run_store_poke(fth_run_store *run)
{
    pthread_mutex_lock(&run->mutex);
    run->poked = true;
    pthread_cond_signal(&run->changed);
    pthread_mutex_unlock(&run->mutex);
}

/* ---- files ---- */

fth_status fth_run_store_put_run(fth_run_store *run, bool is_new)
{
    enum { MAX_RUN_BYTES = 4 << 20 };
    fth_status status = FTH_OK;
    char *path = fth_path_join(run->folder, "run.json"), *text = NULL;
    size_t size = 0;
    bool lost = false;
    bool conditional = is_new && run->lease;
    fth_store_progress progress = {.context = run, .moved = may_go_on};
    fth_store_put_options options = {.condition = conditional ? FTH_STORE_IF_ABSENT : FTH_STORE_ALWAYS,
                                     .content_type = "application/json",
                                     .progress = &progress};

    FTH_TRY(fth_file_read_all(path, MAX_RUN_BYTES, &text, &size));
    FTH_TRY(fth_run_store_guard(run));
    FTH_TRY(fth_store_put(run->store, "run.json", text, size, &options, &lost, NULL));
    if (lost)
        fth_run_store_set_lost(run);
    FTH_REQUIRE(!lost, FTH_PEER_LOST, "another machine has begun a run in %s meanwhile", fth_run_store_url(run));

out:
    free(text);
    free(path);
    return status;
}

static mirrored_file *find_file(fth_run_store *run, const char *key)
{
    for (int i = 0; i < FTH_MIRRORED_FILES; i++) {
        mirrored_file *file = &run->files[i];
        if (!*file->key)
            snprintf(file->key, sizeof file->key, "%s", key);
        if (strcmp(file->key, key) == 0)
            return file;
    }
    return NULL;
}

fth_status fth_run_store_put_file(fth_run_store *run, const char *key, const char *path, double seconds)
{
    fth_status status = FTH_OK;
    struct stat facts;
    pthread_mutex_lock(&run->uploading);
    mirrored_file *known = find_file(run, key);
    if (stat(path, &facts) != 0)
        goto out; /* there is none to put */
    double modified_s = (double)facts.st_mtim.tv_sec + 1e-9 * (double)facts.st_mtim.tv_nsec;
    if (known && known->size_bytes == facts.st_size && known->modified_s == modified_s)
        goto out;
    FTH_TRY(fth_run_store_guard(run));
    fth_store_progress progress = {.context = run, .moved = may_go_on};
    FTH_TRY(fth_store_put_file(run->store, key, path,
                               &(fth_store_put_options){.progress = &progress, .deadline_s = seconds}, NULL));
    if (known) {
        known->size_bytes = facts.st_size;
        known->modified_s = modified_s;
    }

out:
    pthread_mutex_unlock(&run->uploading);
    return status;
}
