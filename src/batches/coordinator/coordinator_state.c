/* See coordinator_state.h. */
#include "batches/coordinator/coordinator_state.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/process.h"

enum { FORMAT = 1, MAX_FILE = 64 << 20 };
static const double SAVE_EVERY_S = 1, SOON_S = 0.02;

struct fth_state_saver {
    char *path;
    int lock;
    fth_served_jobs *jobs;
    fth_agents *agents;
    fth_dispatcher *dispatcher;
    uint64_t saved_changes; /* of the thread */
    bool complained;        /* about a failed write */
    pthread_t thread;
    bool running;

    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t changed;
    bool nudged, stopping;
};

fth_status fth_state_saver_open(const char *folder, fth_state_saver **result)
{
    fth_status status = FTH_OK;
    fth_state_saver *saver = NULL;
    char *lock = fth_path_join(folder, "lock");

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *saver, &saver));
    saver->lock = -1;
    pthread_mutex_init(&saver->mutex, NULL);
    pthread_cond_init(&saver->changed, NULL);
    FTH_REQUIRE(lock && (saver->path = fth_path_join(folder, "coordinator.json")), FTH_NO_MEMORY,
                "no memory for the state");
    FTH_TRY(fth_folder_create(folder));
    saver->lock = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    FTH_REQUIRE(saver->lock >= 0, FTH_IO, "cannot open %s: %s; choose another folder with --state", lock,
                strerror(errno));
    FTH_REQUIRE(flock(saver->lock, LOCK_EX | LOCK_NB) == 0, FTH_INVALID,
                "another coordinator keeps its state in %s; stop it, or choose another --port or --state", folder);
    *result = saver;
    saver = NULL;

out:
    free(lock);
    fth_state_saver_close(saver);
    return status;
}

void fth_state_saver_load(fth_state_saver *saver, fth_served_jobs *jobs, fth_agents *agents, fth_dispatcher *dispatcher)
{
    char *text = NULL, *aside = NULL;
    size_t size = 0;
    json_error_t error;

    saver->jobs = jobs;
    saver->agents = agents;
    saver->dispatcher = dispatcher;
    if (!fth_file_exists(saver->path))
        return;
    json_t *json = fth_file_read_all(saver->path, MAX_FILE, &text, &size) == FTH_OK
                       ? json_loadb(text, size, JSON_REJECT_DUPLICATES, &error)
                       : NULL;
    if (json_integer_value(json_object_get(json, "format")) == FORMAT) {
        fth_dispatcher_load(dispatcher, json_object_get(json, "dispatcher"));
        fth_served_jobs_load(jobs, json_object_get(json, "jobs"));
        fth_agents_load(agents, json_object_get(json, "agents"));
    } else {
        aside = fth_format("%s.unreadable", saver->path);
        bool moved = aside && rename(saver->path, aside) == 0;
        fth_log_warning("cannot read the state in %s; starting without it%s%s", saver->path,
                        moved ? "; it is kept as " : "", moved ? aside : "");
    }
    json_decref(json);
    free(text);
    free(aside);
}

static void save(fth_state_saver *saver)
{
    uint64_t changes = fth_served_jobs_changes(saver->jobs);
    if (changes == saver->saved_changes)
        return;
    json_t *json =
        json_pack("{s:i, s:o, s:o, s:o}", "format", FORMAT, "dispatcher", fth_dispatcher_save(saver->dispatcher),
                  "agents", fth_agents_save(saver->agents), "jobs", fth_served_jobs_save(saver->jobs));
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    fth_status status = text ? fth_file_write_all(saver->path, text, strlen(text)) : FTH_NO_MEMORY;
    if (status == FTH_OK)
        saver->saved_changes = changes;
    else if (!saver->complained)
        fth_log_warning("cannot save the state: %s; the jobs would be lost in a restart", fth_error_message());
    saver->complained = status != FTH_OK;
    free(text);
    json_decref(json);
}

static void *run_saver(void *context)
{
    fth_state_saver *saver = context;
    double saved_s = 0;
    for (bool stopping = false; !stopping;) {
        pthread_mutex_lock(&saver->mutex);
        fth_deadline next = {saved_s + SAVE_EVERY_S};
        struct timespec at = fth_deadline_timespec(next);
        int outcome = 0;
        while (!saver->stopping && !saver->nudged && outcome == 0)
            outcome = pthread_cond_clockwait(&saver->changed, &saver->mutex, CLOCK_MONOTONIC, &at);
        stopping = saver->stopping;
        if (saver->nudged && !stopping) { /* several requests at once are saved together */
            at = fth_deadline_timespec(fth_deadline_in(SOON_S));
            pthread_cond_clockwait(&saver->changed, &saver->mutex, CLOCK_MONOTONIC, &at);
        }
        saver->nudged = false;
        pthread_mutex_unlock(&saver->mutex);
        save(saver);
        saved_s = fth_clock_seconds();
    }
    return NULL;
}

fth_status fth_state_saver_start(fth_state_saver *saver)
{
    int error = fth_thread_start(&saver->thread, "batches-state", run_saver, saver);
    if (error != 0)
        return fth_fail(FTH_NO_MEMORY, "cannot start a thread: %s", strerror(error));
    saver->running = true;
    return FTH_OK;
}

void fth_state_saver_nudge(fth_state_saver *saver)
{
    if (!saver)
        return;
    pthread_mutex_lock(&saver->mutex);
    saver->nudged = true;
    pthread_cond_signal(&saver->changed);
    pthread_mutex_unlock(&saver->mutex);
}

void fth_state_saver_close(fth_state_saver *saver)
{
    if (!saver)
        return;
    if (saver->running) {
        pthread_mutex_lock(&saver->mutex);
        saver->stopping = true;
        pthread_cond_signal(&saver->changed);
        pthread_mutex_unlock(&saver->mutex);
        pthread_join(saver->thread, NULL);
    }
    if (saver->lock >= 0)
        close(saver->lock);
    pthread_cond_destroy(&saver->changed);
    pthread_mutex_destroy(&saver->mutex);
    free(saver->path);
    free(saver);
}
