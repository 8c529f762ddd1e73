/* The saver: keeps a run's state safe during training.
 *
 *     a checkpoint is due
 *       -> the flat vectors are copied into one of two snapshots. Training waits for this alone; on
 *          a GPU not even for this: the copy is made there, between two updates
 *       -> the writer's thread fetches it from a GPU, checks the numbers and publishes it
 *       -> the training thread collects the result between two updates, and records it
 *
 * While one save is under way and another waits, newer state replaces the one that waits. A save
 * that failed is a warning and is tried again at the next interval; only the last save of a process
 * is waited for, and where a store does not take it, a copy stays on this machine (publisher.h).
 *
 * A process whose peer saves the run (fth_peer_place.follows) has no saver: functions take NULL for
 * one that never has anything to save, and does nothing.
 *
 * Functions are the training thread's unless they say "any thread". Those that save or collect add
 * the time that training waited to the position's meters. */
#ifndef FTH_TRAIN_SAVER_H
#define FTH_TRAIN_SAVER_H

#include "train/loop/reporter.h"
#include "train/loop/stop_plan.h"
#include "train/save/publisher.h"

typedef struct fth_saver fth_saver;

/* What it points to outlives the saver, except for `folder`. */
typedef struct fth_saver_options {
    const fth_train_options *train;
    fth_engine *engine;
    fth_position *position;
    const fth_dataset *dataset; /* that model files describe */
    fth_reporter *reporter;
    fth_stop *stop;           /* may be NULL */
    fth_run_store *run_store; /* NULL: the run's folder is the store */
    const char *folder;       /* of the run, on this machine */
    const char *best_path;    /* the best model, in that folder */
    bool resumed;             /* the run has a record of earlier processes */
} fth_saver_options;

fth_status fth_saver_create(const fth_saver_options *options, fth_saver **saver);
/* Cancels what is being written. */
void fth_saver_free(fth_saver *saver);

/* ---- beginning ---- */

/* Loads the newest good checkpoint, if there is one, into the engine and the position. A copy that
 * an earlier process left on this machine goes to the store first. */
fth_status fth_saver_restore(fth_saver *saver, bool *restored);
/* After a restore: removes a best model that is not the one that the position knows, and forgets
 * one that is gone. */
void fth_saver_check_best(fth_saver *saver);
/* Intervals count from here. Warns where the disk is too small. */
void fth_saver_begin(fth_saver *saver);
/* Starts the writer, which makes room for the first snapshot, so that the first save does not have
 * to. */
fth_status fth_saver_start(fth_saver *saver);

/* ---- during training ---- */

bool fth_saver_is_unsaved(const fth_saver *saver); /* changed since the last save */
bool fth_saver_is_due(const fth_saver *saver);
/* Begins to save the state as it is. A failure is a warning, unless the state is not finite
 * (FTH_DIVERGED). */
fth_status fth_saver_save(fth_saver *saver);
/* Records saves that ended. `step_s`: what an update takes. FTH_DIVERGED if one found a weight that
 * is not finite, FTH_PEER_LOST if another machine has the run. */
fth_status fth_saver_collect(fth_saver *saver, double step_s);
double fth_saver_get_save_s(const fth_saver *saver); /* what a save takes to be written; 0: not known yet */

/* Writes a model file of `engine`'s weights, which are of `step`; num_batches_tracked counters say
 * `counter`. On a full disk old checkpoints make room. */
fth_status fth_saver_save_model(fth_saver *saver, fth_engine *engine, int64_t step, int64_t counter, const char *path);

/* ---- the last save ---- */

/* At the end of a run: saves what is unsaved and waits for it, however long it takes;
 * FTH_INTERRUPTED if a stop leaves no more time. A store that has not taken it within seconds, or
 * refuses it, leaves a copy here. */
fth_status fth_saver_finish(fth_saver *saver);
/* At a stop: saves as far as the time allows; a copy stays here where the store does not take
 * it. */
fth_status fth_saver_save_at_stop(fth_saver *saver, const fth_stop_reason *reason);
/* Whether the last checkpoint is still on its way to a store. */
bool fth_saver_is_closing(const fth_saver *saver);
/* Where the copy is that the store did not take, for people; NULL: there is none. free() it. Any
 * thread. */
char *fth_saver_describe_copy(const fth_saver *saver);

/* ---- for the watchdog: any thread ---- */

typedef struct fth_saver_state {
    fth_save_estimate estimate;
    int64_t stored_step; /* of the newest checkpoint that is stored, by this process or before; 0: none */
    int64_t copy_step;   /* of a copy on this machine; 0: none */
} fth_saver_state;
fth_saver_state fth_saver_look(fth_saver *saver);
void fth_saver_cancel(fth_saver *saver); /* what is being written now */
/* Publishes what was handed to the writer, and nothing besides checkpoints if the deadline is near
 * (not infinite). */
void fth_saver_flush(fth_saver *saver, fth_deadline deadline);

#endif
