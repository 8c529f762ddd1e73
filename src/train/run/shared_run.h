/* What a process that finds a run tells its peers about it, so that all of them train that run, and
 * one of them has its folder, its lease and its record.
 *
 *     {"id", "identity", "configuration": {option: value}, "lease_group",
 *      "run": {run.json of a run that is continued},
 *      "finished": true and "end": {its last event}; or
 *      "failed": {"status", "message"} where it found none}
 *
 * Addresses in it have no secrets (base/address.h): every process has those from its own command
 * line. */
#ifndef FTH_TRAIN_SHARED_RUN_H
#define FTH_TRAIN_SHARED_RUN_H

#include "train/run/run_selection.h"

/* Describes what was found, and gives a new run the id that it will have. `end` is the last event
 * of a run that is finished, else NULL. json_decref() it. */
fth_status fth_shared_run_describe(fth_run_selection *selection, json_t *end, json_t **run);
/* Describes why none was found: `status` and the message of this thread. */
json_t *fth_shared_run_describe_failure(fth_status status);

/* The selection of a process that a peer has told `run`: its options, but for those that say where
 * and how this process runs. Fails as the peer did if that found none. */
fth_status fth_shared_run_follow(const fth_train_options *asked, const json_t *run, fth_run_selection *selection);

#endif
