/* Finding a run in a store, and taking it over.
 *
 *     the record is read -> the run ended, and no more is asked of it: nothing to do, no lease
 *                        -> the lease is taken, the record read as its last owner left it, and it
 *                           becomes a local run folder, like that of a run of this machine
 *
 * A run is announced by its run.json in the store, before its first step; "id" and "created_s" say
 * which run it is, to every machine. It has begun when it took a step, as the store knows or this
 * machine's copy of the record, which is ahead of the store's where a process was killed in its
 * first seconds.
 *
 *     begun      a command with another configuration is refused, naming the first option that
 *                differs
 *     announced  the same command begins it again, under its id and creation time; another command
 *                replaces it */
#ifndef FTH_TRAIN_RUN_TAKEOVER_H
#define FTH_TRAIN_RUN_TAKEOVER_H

#include "train/run/run_selection.h"
#include "train/run/run_store.h"

/* Where to begin; waits for the lease. `selection` has its options (fth_run_selection_prepare).
 * `standby`: waits for a run, and takes over its limits. FTH_INTERRUPTED if `stop` is asked. */
fth_status fth_stored_run_find(fth_run_store *run, fth_stop *stop, bool standby, fth_run_selection *selection);
/* The same to look at only: without a lease, and the local record is a copy in `folder`, made if
 * there is a run. */
fth_status fth_stored_run_look(fth_run_store *run, bool standby, const char *folder, fth_run_selection *selection);

#endif
