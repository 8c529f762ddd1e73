/* The thread that polls: it reads the board every few milliseconds while something changes there
 * and rarely otherwise, answers held requests of agents and workers, drops unneeded items, and
 * accounts for the cost of the cache. */
#ifndef FTH_BATCHES_COORDINATOR_WATCH_H
#define FTH_BATCHES_COORDINATOR_WATCH_H

#include "batches/coordinator/coordinator_agents.h"
#include "batches/coordinator/coordinator_local.h"
#include "batches/coordinator/worker_orders.h"

typedef struct fth_watcher fth_watcher;

typedef struct fth_watcher_options {
    fth_dispatcher *dispatcher;
    fth_served_jobs *jobs;
    fth_agents *agents;         /* or NULL */
    fth_worker_orders *workers; /* or NULL */
} fth_watcher_options;

fth_status fth_watcher_create(const fth_watcher_options *options, fth_watcher **watcher);
/* `local` (or NULL) outlives the thread. */
fth_status fth_watcher_start(fth_watcher *watcher, fth_local_clients *local);
void fth_watcher_wake(fth_watcher *watcher); /* looks now, because a client waits; any thread */
void fth_watcher_stop(fth_watcher *watcher); /* joins the thread, if it was started */
void fth_watcher_free(fth_watcher *watcher);

#endif
