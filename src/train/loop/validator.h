/* Validation, and the best model so far: of the weights as they are, while training waits; or of a
 * copy of them, alongside training.
 *
 * Alongside training it has a thread, an engine and a device with one OpenMP thread of its own. One
 * at a time:
 *
 *     epoch ends -> state.pending is set, the weights are copied, the thread starts
 *                   -> done       its epoch is recorded, the copy kept if it is the best,
 *                                 state.pending set back
 *                   -> cancelled  (a stop, a failure) state.pending stays: a resumed run validates
 *                                 then, with the weights of the checkpoint
 *
 * There is no checkpoint meanwhile, except the one of a stop, which cancels it. So whatever a run
 * is resumed from, an epoch's event was either written before that checkpoint, or is undone by the
 * resume, or is still pending.
 *
 * Belongs to the training thread. */
#ifndef FTH_TRAIN_VALIDATOR_H
#define FTH_TRAIN_VALIDATOR_H

#include "train/save/saver.h"
#include "train/setup/setup.h"

typedef struct fth_validator fth_validator;

/* What it points to outlives the validator. */
typedef struct fth_validator_options {
    const fth_setup *setup;
    fth_position *position;
    fth_reporter *reporter;
    const fth_stop *stop; /* may be NULL */
} fth_validator_options;

fth_status fth_validator_create(const fth_validator_options *options, fth_validator **validator);
void fth_validator_free(fth_validator *validator); /* cancels */
/* The saver that keeps the best model, in that file; NULL: a peer does. Both outlive the validator,
 * or are set to NULL first. */
void fth_validator_set_saver(fth_validator *validator, fth_saver *saver, const char *best_path);

/* Shares validation among peers: each evaluates the setup's part, and all get the whole result. A
 * stop or deadline of one ends it in all. All zero: alone. */
void fth_validator_set_peers(fth_validator *validator, fth_peers peers);

/* Validates the current weights, and keeps them if they are the best. FTH_INTERRUPTED if a stop is
 * asked for meanwhile, FTH_TIMEOUT when the deadline passes. */
fth_status fth_validator_validate(fth_validator *validator, fth_deadline deadline);
/* Keeps the current weights if they were validated last and are the best: the previous best model
 * was lost with the peer that had it. */
fth_status fth_validator_keep_best(fth_validator *validator);
/* Records the epoch that ended, with its validation if one is due. With `alongside`, the validation
 * starts here and the epoch is recorded when it is done. */
fth_status fth_validator_finish_epoch(fth_validator *validator, bool alongside);
/* True within an epoch if --validate-every asks for a validation now, which has not been made. */
bool fth_validator_is_due(const fth_validator *validator);
/* Makes it: fth_validator_validate() without a deadline, and records it. */
fth_status fth_validator_validate_within_epoch(fth_validator *validator);
/* Records a validation that is done, and starts one that an earlier process left. With `wait`,
 * waits for it; FTH_INTERRUPTED if a stop is asked for meanwhile. */
fth_status fth_validator_follow(fth_validator *validator, bool wait);
/* Ends a validation alongside training at once. */
void fth_validator_cancel(fth_validator *validator);

#endif
