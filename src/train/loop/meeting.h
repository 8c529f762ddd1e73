/* Finding the run, alone or with peers.
 *
 * Peers meet before any of them has a run. One looks for it, on its machine or in the store, and
 * shares what it found or why it found none (shared_run.h); the others follow. Where only the run
 * that was found says that it has peers, each process has found it by itself, and they meet
 * then. */
#ifndef FTH_TRAIN_MEETING_H
#define FTH_TRAIN_MEETING_H

#include "train/loop/run_parts.h"

/* Sets the parts' selection, and *strategy to its strategy. *found: this process found the run, and
 * not a peer. A run that is finished sets the outcome. */
fth_status fth_meeting_find_run(const fth_run_parts *parts, const fth_train_options *asked,
                                const fth_strategy *const *strategies, const fth_strategy **strategy, bool *found,
                                fth_train_outcome *outcome);

#endif
