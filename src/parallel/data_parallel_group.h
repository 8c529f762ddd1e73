/* The workers that train one model together, as one of them sees them: what started this process,
 * its membership in the run, and the collective of the present group.
 *
 *     open (the rendezvous is reached) -> find_run, share_run -> form -> sums ...
 *                                                                 ^        |
 *                                                                 '--------' one is lost, or waits
 *                                                                            to join
 *
 * A process that was started by hand is alone: its group has one member and needs no rendezvous.
 *
 * Belongs to the training thread, but for fth_worker_group_collective(), which the thread that
 * exchanges gradients may use between two calls of form(). */
#ifndef FTH_PARALLEL_DATA_PARALLEL_GROUP_H
#define FTH_PARALLEL_DATA_PARALLEL_GROUP_H

#include <jansson.h>

#include "backend/backend.h"
#include "cluster/launcher.h"
#include "cluster/membership.h"
#include "collective/collective.h"
#include "train/train_options.h"

typedef struct fth_worker_group fth_worker_group;

/* Reaches the rendezvous, or starts it where this process has it. `launched` is what the launcher
 * says; it is taken over. The options must outlive the group; `stop` may be NULL. */
fth_status fth_worker_group_open(fth_launched *launched, const fth_train_options *options, fth_stop *stop,
                                 fth_worker_group **group);
/* Leaves the group first, so that the others see this process end and not as lost. */
void fth_worker_group_close(fth_worker_group *group);

/* How many processors each of the workers of this machine has to itself. */
int fth_worker_group_processors(const fth_worker_group *group);

/* The name of this process's machine. */
const char *fth_worker_group_node(const fth_worker_group *group);
/* See membership.h; alone: *run is NULL. */
fth_status fth_worker_group_find_run(fth_worker_group *group, json_t **run);
fth_status fth_worker_group_share_run(fth_worker_group *group, const json_t *run);
/* What it found its data and model to be: those that form a group must have found the same. */
fth_status fth_worker_group_announce(fth_worker_group *group, const json_t *found);

/* Waits for a group with this process and connects to its members. `memory` holds the gradients, or
 * is NULL. FTH_PEER_LOST if a member cannot be reached: try again. FTH_TIMEOUT while there are
 * fewer nodes than the least number; FTH_INTERRUPTED when a stop is asked. */
fth_status fth_worker_group_form(fth_worker_group *group, const fth_shared_memory *memory);

/* All members end, or stop, and each leaves when it has done its part: from now on that is no
 * reason for the others to fail. */
void fth_worker_group_set_finishing(fth_worker_group *group);
/* Ends calls of the collective that are under way, in this process. */
void fth_worker_group_abort(fth_worker_group *group, const char *reason);

/* Of the present group. */
const fth_group_view *fth_worker_group_view(const fth_worker_group *group);
fth_collective *fth_worker_group_collective(const fth_worker_group *group);
/* "rank 2 on b.example (process 4711)" */
const char *fth_worker_group_name(const fth_worker_group *group, int rank);

/* The devices of the present group's members, which end with it: what they wait for is aborted as
 * the collective's calls are. NULL before they are closed. */
void fth_worker_group_set_devices(fth_worker_group *group, const fth_backend_collectives *collectives,
                                  fth_device_group *devices);

/* What became of a call of the collective: whatever keeps members from reaching each other is
 * FTH_PEER_LOST, and has the rendezvous' reason where that knows more. */
fth_status fth_worker_group_translate_status(fth_worker_group *group, fth_status status);

/* See membership.h. */
void fth_worker_group_report(fth_worker_group *group, int64_t step, const char *activity);
bool fth_worker_group_is_ending(const fth_worker_group *group);
fth_status fth_worker_group_leave(fth_worker_group *group, const char *reason);

#endif
