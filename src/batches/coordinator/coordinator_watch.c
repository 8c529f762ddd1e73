/* See coordinator_watch.h. */
#include "batches/coordinator/coordinator_watch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"

static const double SHORTEST_S = 0.004, MAX_S = 0.1, HELD_S = 0.01, TIDY_EVERY_S = 1;

struct fth_watcher {
    fth_watcher_options with;
    fth_local_clients *local; /* or NULL */
    pthread_t thread;
    bool running;

    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t changed;
    bool woken, stopping;
};

fth_status fth_watcher_create(const fth_watcher_options *options, fth_watcher **result)
{
    fth_watcher *watcher = NULL;
    fth_status status = fth_allocate(1, sizeof *watcher, &watcher);
    *result = watcher;
    if (status != FTH_OK)
        return status;
    watcher->with = *options;
    pthread_mutex_init(&watcher->mutex, NULL);
    pthread_cond_init(&watcher->changed, NULL);
    return FTH_OK;
}

void fth_watcher_wake(fth_watcher *watcher)
{
    pthread_mutex_lock(&watcher->mutex);
    watcher->woken = true;
    pthread_cond_signal(&watcher->changed);
    pthread_mutex_unlock(&watcher->mutex);
}

/* Waits for `seconds`, or until woken; false: the thread ends. */
static bool rest(fth_watcher *watcher, double seconds, bool *woken)
{
    struct timespec at = fth_deadline_timespec(fth_deadline_in(seconds));
    pthread_mutex_lock(&watcher->mutex);
    int outcome = 0;
    while (!watcher->woken && !watcher->stopping && outcome == 0)
        outcome = pthread_cond_clockwait(&watcher->changed, &watcher->mutex, CLOCK_MONOTONIC, &at);
    *woken = watcher->woken;
    watcher->woken = false;
    bool more = !watcher->stopping;
    pthread_mutex_unlock(&watcher->mutex);
    return more;
}

static void *watch(void *context)
{
    fth_watcher *watcher = context;
    const fth_watcher_options *with = &watcher->with;
    double interval_s = SHORTEST_S, tidied_s = 0;
    bool woken = false;
    while (rest(watcher, interval_s, &woken)) {
        bool moved = watcher->local && fth_local_clients_look(watcher->local);
        bool held = with->agents && fth_agents_tick(with->agents);
        held = (with->workers && fth_worker_orders_tick(with->workers)) || held;
        double now = fth_clock_seconds();
        if (now - tidied_s >= TIDY_EVERY_S) {
            fth_served_jobs_tick(with->jobs, fth_dispatcher_tidy(with->dispatcher));
            tidied_s = now;
        }
        interval_s = moved || woken ? SHORTEST_S : interval_s * 2;
        if (interval_s > MAX_S)
            interval_s = MAX_S;
        if (held && interval_s > HELD_S)
            interval_s = HELD_S;
    }
    return NULL;
}

fth_status fth_watcher_start(fth_watcher *watcher, fth_local_clients *local)
{
    watcher->local = local;
    int error = fth_thread_start(&watcher->thread, "batches-watch", watch, watcher);
    if (error != 0)
        return fth_fail(FTH_NO_MEMORY, "cannot start a thread: %s", strerror(error));
    watcher->running = true;
    return FTH_OK;
}

void fth_watcher_stop(fth_watcher *watcher)
{
    if (!watcher || !watcher->running)
        return;
    pthread_mutex_lock(&watcher->mutex);
    watcher->stopping = true;
    pthread_cond_signal(&watcher->changed);
    pthread_mutex_unlock(&watcher->mutex);
    pthread_join(watcher->thread, NULL);
    watcher->running = false;
}

void fth_watcher_free(fth_watcher *watcher)
{
    if (!watcher)
        return;
    fth_watcher_stop(watcher);
    pthread_cond_destroy(&watcher->changed);
    pthread_mutex_destroy(&watcher->mutex);
    free(watcher);
}
