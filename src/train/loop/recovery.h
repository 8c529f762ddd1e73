/* Recovery: what a process of a run does when another one is lost.
 *
 *     training                          a peer is lost, in agree(), step() or drain(); or new ones
 *        |  ^                           wait to join
 *        v  |
 *     FORMING -------------> WAITING    too few peers (FTH_TIMEOUT every few seconds). The first of
 *        |  ^                   |       those that wait takes the run over and saves it once
 *        |  '-------------------'
 *        v
 *     SYNCHRONIZING                     all get the weights and position of the furthest, and the
 *        |  |                           loader reopens at that position
 *        |  '-> FORMING                 another peer was lost meanwhile
 *        v
 *     training                          the first of the group takes the run over (run_owner.h);
 *                                       another gives up the run, if it had it
 *
 * The start of training is the second half of this: the strategy has formed a group, and this
 * process synchronizes with it.
 *
 * A takeover goes on in the background while training continues: fth_recovery_follow_takeover() is
 * called between updates. The update in which a peer was lost counts as not made.
 *
 * One retry policy: after 100 losses without an update in between, the run ends with
 * FTH_PEER_LOST. Belongs to the training thread. */
#ifndef FTH_TRAIN_RECOVERY_H
#define FTH_TRAIN_RECOVERY_H

#include "train/loop/run_parts.h"

typedef struct fth_recovery fth_recovery;

/* The parts outlive it. */
fth_status fth_recovery_create(const fth_run_parts *parts, fth_recovery **recovery);
void fth_recovery_free(fth_recovery *recovery);

/* The start of training, with the group that the strategy has formed. The process that `found` the
 * run opens its record, unless another leads. *starts: its start is yet to be written. */
fth_status fth_recovery_begin(fth_recovery *recovery, bool found, bool *starts);

/* If `status` says that a peer was lost, and the strategy can do without it: forms a new group and
 * returns what came of that; else returns `status`. */
fth_status fth_recovery_recover(fth_recovery *recovery, fth_status status);
/* The run has ended: from now on FTH_TIMEOUT where there are too few peers, instead of waiting. */
void fth_recovery_stop_waiting(fth_recovery *recovery);
/* Forms a new group with peers that wait to join. */
fth_status fth_recovery_admit_peers(fth_recovery *recovery);

/* Continues a takeover. */
void fth_recovery_follow_takeover(fth_recovery *recovery);
/* Waits until the takeover is complete, at the end of the run or before a stop's deadline; at a
 * stop, running out of time is a warning. */
fth_status fth_recovery_take_over_at_end(fth_recovery *recovery);
void fth_recovery_take_over_at_stop(fth_recovery *recovery, const fth_stop_reason *reason);

/* Whether another process has the lease of a run that peers train together. They do not stop for
 * that before they have agreed on it. */
bool fth_recovery_is_fenced(const fth_recovery *recovery);
/* Records saves that have ended. A lease lost to another process is no failure where there are
 * peers. */
fth_status fth_recovery_collect_saves(fth_recovery *recovery);
/* Saves a checkpoint. */
fth_status fth_recovery_save(fth_recovery *recovery);
/* Whether a run was taken over and has no checkpoint by this process yet. */
bool fth_recovery_needs_checkpoint(const fth_recovery *recovery);
/* False, with a warning, while lost peers have parts of what a checkpoint holds. */
bool fth_recovery_can_save(const fth_recovery *recovery);

#endif
