/* Publishing checkpoints: into the run's folder, or into the store that --checkpoints names.
 *
 * What belongs to a checkpoint is published in this order, so that whatever a resume starts from
 * has all it needs:
 *
 *     the run's events -> the best model -> tensors -> manifest -> what they replace is removed
 *
 * In a hurry, when the machine is being preempted, tensors and manifest go alone.
 *
 * Where a store does not take the last checkpoint, a copy stays on this machine:
 *
 *     the store takes the checkpoint in time   nothing is left here
 *     it does not                              <run folder>/checkpoints/ gets the checkpoint, under
 *                                              this owner's number
 *     next start here, with the lease:
 *         the run had no owner since           the copy moves to the store
 *         it had one                           the run has continued without the copy, which is
 *                                              removed
 *
 * Owners' numbers make this safe: the next owner has a higher one, and its events and checkpoints
 * say so.
 *
 * Functions are for one thread at a time unless they say "any thread". */
#ifndef FTH_TRAIN_PUBLISHER_H
#define FTH_TRAIN_PUBLISHER_H

#include "checkpoint/checkpoint.h"
#include "train/run/run_store.h"

typedef struct fth_publisher fth_publisher;

/* A checkpoint in memory. */
typedef struct fth_publication {
    int64_t step;
    const void *bytes; /* a safetensors file */
    size_t size_bytes;
    const json_t *state;
    const void *best; /* the best model that the state names; NULL: it is stored, or there is none */
    size_t best_bytes;
} fth_publication;

/* `folder` is the run's on this machine; `run_store`, which may be NULL, outlives the publisher.
 * FTH_INVALID if both are the same folder. */
fth_status fth_publisher_open(const fth_train_options *options, const char *folder, fth_run_store *run_store,
                              fth_publisher **publisher);
void fth_publisher_free(fth_publisher *publisher);

/* The newest good checkpoint; its tensors are NULL if there is none. See
 * fth_checkpoint_get_latest(). */
fth_status fth_publisher_load_latest(fth_publisher *publisher, const fth_stop *stop, fth_checkpoint *checkpoint);
const char *fth_publisher_url(const fth_publisher *publisher); /* of the checkpoints; a folder's path where it is one */
/* The manifest's URL or path, for people; free() it. */
char *fth_publisher_describe(const fth_publisher *publisher, int64_t step);

/* Publishes a checkpoint; `progress` can cancel it. FTH_PEER_LOST if another machine has the run.
 * Any thread, one at a time. */
fth_status fth_publisher_put(fth_publisher *publisher, const fth_publication *publication,
                             const fth_store_progress *progress);
/* Of the newest checkpoint that this process published; -1: none. Any thread. */
int64_t fth_publisher_stored_step(const fth_publisher *publisher);
/* From now on, publishes nothing but checkpoints themselves (or everything again). Any thread. */
void fth_publisher_set_hurry(fth_publisher *publisher, bool hurry);

/* ---- disks that are full ---- */

void fth_publisher_warn_of_space(const fth_publisher *publisher, uint64_t checkpoint_bytes);
/* After FTH_NO_SPACE for another file in the run's folder; see fth_checkpoint_make_room(). */
bool fth_publisher_make_room(const fth_publisher *publisher, bool *tried_again);

/* ---- the best model in the store ---- */

/* Whether the best model, of `step`, is yet to be put; false where the run's folder is the
 * store. */
bool fth_publisher_wants_best(const fth_publisher *publisher, int64_t step);
bool fth_publisher_has_best(const fth_publisher *publisher, int64_t step); /* asks the store; of any owner */

/* ---- the copy on this machine ---- */

bool fth_publisher_is_remote(const fth_publisher *publisher); /* whether a copy makes sense */
fth_status fth_publisher_save_copy(fth_publisher *publisher, const fth_publication *publication);
void fth_publisher_drop_copy(fth_publisher *publisher);          /* the store has taken it after all */
int64_t fth_publisher_copy_step(const fth_publisher *publisher); /* 0: there is no copy. Any thread. */
/* Where the copy is and what becomes of it, for people; NULL: there is none. free() it. Any
 * thread. */
char *fth_publisher_describe_copy(const fth_publisher *publisher);
/* Moves a copy that an earlier process left here to the store, unless the run has continued without
 * it. */
fth_status fth_publisher_move_copy(fth_publisher *publisher, const fth_stop *stop);

#endif
