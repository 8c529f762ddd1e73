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

struct fth_state_keeper {
    char *path;
    int lock;
    fth_served_jobs *jobs;
    fth_agents *agents;
    fth_dispatcher *dispatcher;
    uint64_t saved_changes; /* of the thread */
    bool complained;        /* that it cannot be written */
    pthread_t thread;
    bool running;

    pthread_mutex_t mutex; /* of all below */
    pthread_cond_t changed;
    bool nudged, stopping;
};

fth_status fth_state_keeper_open(const char *folder, fth_state_keeper **result)
{
    fth_status status = FTH_OK;
    fth_state_keeper *keeper = NULL;
    char *lock = fth_path_join(folder, "lock");

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *keeper, &keeper));
    keeper->lock = -1;
    pthread_mutex_init(&keeper->mutex, NULL);
    pthread_cond_init(&keeper->changed, NULL);
    FTH_REQUIRE(lock && (keeper->path = fth_path_join(folder, "coordinator.json")), FTH_NO_MEMORY,
                "no memory for the state");
    FTH_TRY(fth_folder_create(folder));
    keeper->lock = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    FTH_REQUIRE(keeper->lock >= 0, FTH_IO, "cannot open %s: %s; choose another folder with --state", lock,
                strerror(errno));
    FTH_REQUIRE(flock(keeper->lock, LOCK_EX | LOCK_NB) == 0, FTH_INVALID,
                "another coordinator keeps its state in %s; stop it, or choose another --port or --state", folder);
    *result = keeper;
    keeper = NULL;

out:
    free(lock);
    fth_state_keeper_close(keeper);
    return status;
}

void fth_state_keeper_load(fth_state_keeper *keeper, fth_served_jobs *jobs, fth_agents *agents,
                           fth_dispatcher *dispatcher)
{
    char *text = NULL, *aside = NULL;
    size_t size = 0;
    json_error_t error;

    keeper->jobs = jobs;
    keeper->agents = agents;
    keeper->dispatcher = dispatcher;
    if (!fth_file_exists(keeper->path))
        return;
    json_t *json = fth_file_read_all(keeper->path, MAX_FILE, &text, &size) == FTH_OK
                       ? json_loadb(text, size, JSON_REJECT_DUPLICATES, &error)
                       : NULL;
    if (json_integer_value(json_object_get(json, "format")) == FORMAT) {
        fth_dispatcher_load(dispatcher, json_object_get(json, "dispatcher"));
        fth_served_jobs_load(jobs, json_object_get(json, "jobs"));
        fth_agents_load(agents, json_object_get(json, "agents"));
    } else {
        aside = fth_format("%s.unreadable", keeper->path);
        bool moved = aside && rename(keeper->path, aside) == 0;
        fth_log_warning("cannot read the state in %s; beginning without it%s%s", keeper->path,
                        moved ? "; it is kept as " : "", moved ? aside : "");
    }
    json_decref(json);
    free(text);
    free(aside);
}

static void save(fth_state_keeper *keeper)
{
    uint64_t changes = fth_served_jobs_changes(keeper->jobs);
    if (changes == keeper->saved_changes)
        return;
    json_t *json =
        json_pack("{s:i, s:o, s:o, s:o}", "format", FORMAT, "dispatcher", fth_dispatcher_save(keeper->dispatcher),
                  "agents", fth_agents_save(keeper->agents), "jobs", fth_served_jobs_save(keeper->jobs));
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    fth_status status = text ? fth_file_write_all(keeper->path, text, strlen(text)) : FTH_NO_MEMORY;
    if (status == FTH_OK)
        keeper->saved_changes = changes;
    else if (!keeper->complained)
        fth_log_warning("cannot save the state: %s; a restart would not know the jobs", fth_error_message());
    keeper->complained = status != FTH_OK;
    free(text);
    json_decref(json);
}

static void *keep(void *context)
{
    fth_state_keeper *keeper = context;
    double saved_s = 0;
    for (bool stopping = false; !stopping;) {
        pthread_mutex_lock(&keeper->mutex);
        fth_deadline next = {saved_s + SAVE_EVERY_S};
        struct timespec at = fth_deadline_timespec(next);
        int outcome = 0;
        while (!keeper->stopping && !keeper->nudged && outcome == 0)
            outcome = pthread_cond_clockwait(&keeper->changed, &keeper->mutex, CLOCK_MONOTONIC, &at);
        stopping = keeper->stopping;
        if (keeper->nudged && !stopping) { /* several at once are one */
            at = fth_deadline_timespec(fth_deadline_in(SOON_S));
            pthread_cond_clockwait(&keeper->changed, &keeper->mutex, CLOCK_MONOTONIC, &at);
        }
        keeper->nudged = false;
        pthread_mutex_unlock(&keeper->mutex);
        save(keeper);
        saved_s = fth_clock_seconds();
    }
    return NULL;
}

fth_status fth_state_keeper_start(fth_state_keeper *keeper)
{
    int error = fth_thread_start(&keeper->thread, "batches-state", keep, keeper);
    if (error != 0)
        return fth_fail(FTH_NO_MEMORY, "cannot start a thread: %s", strerror(error));
    keeper->running = true;
    return FTH_OK;
}

void fth_state_keeper_nudge(fth_state_keeper *keeper)
{
    if (!keeper)
        return;
    pthread_mutex_lock(&keeper->mutex);
    keeper->nudged = true;
    pthread_cond_signal(&keeper->changed);
    pthread_mutex_unlock(&keeper->mutex);
}

void fth_state_keeper_close(fth_state_keeper *keeper)
{
    if (!keeper)
        return;
    if (keeper->running) {
        pthread_mutex_lock(&keeper->mutex);
        keeper->stopping = true;
        pthread_cond_signal(&keeper->changed);
        pthread_mutex_unlock(&keeper->mutex);
        pthread_join(keeper->thread, NULL);
    }
    if (keeper->lock >= 0)
        close(keeper->lock);
    pthread_cond_destroy(&keeper->changed);
    pthread_mutex_destroy(&keeper->mutex);
    free(keeper->path);
    free(keeper);
}
