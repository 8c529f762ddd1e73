/* Keeping a run: its record, its checkpoints and models, and its copy in a store with the lease. A
 * process that trains alone keeps its run. Of several that train one run together, the one that
 * leads does, and the others write nothing; when it is lost or leaves, another takes over:
 *
 *     create -> find_run ---> open (restore) -> begin ............ the run is kept
 *            '-> (a peer found it) -> follows -> take_over -> look: opens the run's record, takes
 *                                        ^                    its lease, in the background where
 *                                        |                    that is in a store
 *                                        |                      |                     | has it
 *                                        |                      v                     v
 *                                        '------- give_up <- waits for the lease   the run is kept
 *                                                    ^                                |
 *                                                    '--------------------------------'
 *
 * A process that leads most of the nodes of its last group takes the lease of the former leader at
 * once (spot.h): if that one is only cut off, it finds out at its next renewal, and all that it
 * writes meanwhile carries its number or a condition (run_store.h). One that leads fewer may be the
 * one that is cut off: it waits until the lease lapses, and gives up that wait when it joins the
 * others again. The trainer says which (fth_peer_place.present).
 *
 * Belongs to the training thread. */
#ifndef FTH_TRAIN_RUN_OWNER_H
#define FTH_TRAIN_RUN_OWNER_H

#include "train/loop/deadline_watchdog.h"
#include "train/setup/setup.h"

typedef struct fth_run_owner fth_run_owner;

struct fth_run_parts; /* train/loop/run_parts.h */

/* The parts outlive it; the setup is open before fth_run_owner_open(). */
fth_status fth_run_owner_create(const struct fth_run_parts *parts, fth_run_owner **owner);
/* A lease that was not given up stays until it lapses. */
void fth_run_owner_free(fth_run_owner *owner);

/* Lent; NULL where the run is not kept here, as the paths. */
fth_saver *fth_run_owner_get_saver(const fth_run_owner *owner);
fth_run_store *fth_run_owner_get_store(const fth_run_owner *owner); /* NULL also where it lives in its folder alone */
const char *fth_run_owner_last_path(const fth_run_owner *owner);    /* model files in the run's folder */
const char *fth_run_owner_best_path(const fth_run_owner *owner);

/* ---- the beginning ---- */

/* Names this process's machine for its peers, one of which may take over. Before the run is found;
 * without it there are none. */
fth_status fth_run_owner_set_node(fth_run_owner *owner, const char *node);
/* Finds the run in its store, waiting for the lease, or as run_selection.h says. */
fth_status fth_run_owner_find_run(fth_run_owner *owner, const fth_train_options *asked);
/* Opens the record, and what saves the run. */
fth_status fth_run_owner_open(fth_run_owner *owner);
/* Brings a run that is continued to where it stopped. */
fth_status fth_run_owner_restore(fth_run_owner *owner);
/* From now on the record is in the store too, where there is one. */
fth_status fth_run_owner_begin_store(fth_run_owner *owner);
/* The first event of this process; training begins at the position. */
void fth_run_owner_write_start(fth_run_owner *owner, const fth_start_facts *facts);

/* ---- change of leader ---- */

/* This process is to keep the run, which a peer kept before, since `reason`. `leads`: no other
 * process can lead the run now, so the lease of the former leader is taken at once; may change with
 * later calls. `restores`: no peer has its weights and position any more, and they become those of
 * the newest checkpoint, if there is one. */
void fth_run_owner_take_over(fth_run_owner *owner, const char *reason, bool leads, bool restores);
bool fth_run_owner_is_taking_over(const fth_run_owner *owner);
/* Goes on with it until the deadline at most; what stands in the way is a warning, and tried again
 * later. True if the run has come to be kept here: then the start is written with `facts`, and a
 * checkpoint is due. */
bool fth_run_owner_look(fth_run_owner *owner, const fth_start_facts *facts, fth_deadline deadline);
/* A peer keeps the run from now on, or may do so. A lease that is held is given up in order, a wait
 * for it ends. */
void fth_run_owner_give_up(fth_run_owner *owner);
/* Whether another process has the lease: what is kept here is not the run any more. */
bool fth_run_owner_is_lost(const fth_run_owner *owner);
/* Which one, for people. */
fth_stop_reason fth_run_owner_why_lost(const fth_run_owner *owner);

/* ---- the end ---- */

/* The last events, and then the run is free for the next owner. */
fth_status fth_run_owner_leave(fth_run_owner *owner);
/* A run that never took a step leaves nothing behind, here or in a store; of any other run nothing
 * is touched. */
void fth_run_owner_discard_unbegun(fth_run_owner *owner);

#endif
