/* Updates that leave only finite numbers behind: for a service that applies gradients it has not
 * computed itself.
 *
 * The guard keeps bounds on the magnitudes of the weights and of the optimizer's state, and moves
 * them with every update (fth_optimizer.bound). While the bounds rule an overflow out, which in
 * ordinary training is always, an update costs nothing more. Otherwise the vectors are measured,
 * and if that does not settle it, the update is made on trial and taken back unless everything
 * stayed finite. */
#ifndef FTH_TRAIN_UPDATE_GUARD_H
#define FTH_TRAIN_UPDATE_GUARD_H

#include "train/engine/server_support.h"

/* What is below it does not overflow in f32, with room to spare for rounding. */
#define FTH_UPDATE_LIMIT 1e37

typedef struct fth_update_guard fth_update_guard;

typedef struct fth_guarded_update {
    double learning_rate;
    int64_t update; /* 1 for the first */
    double largest; /* no gradient is larger in magnitude */
    /* Where the gradients are, and what they are multiplied by; NULL: in the engine's own vector,
     * as they are. */
    const fth_gradient_piece *pieces;
    size_t count;
    float scale;
} fth_guarded_update;

/* The engine outlives the guard. FTH_DIVERGED if its weights or state are already not finite. */
fth_status fth_update_guard_create(fth_engine *engine, fth_update_guard **guard);
void fth_update_guard_free(fth_update_guard *guard);

/* True if the bounds alone show that the update leaves everything finite. */
bool fth_update_guard_allows(const fth_update_guard *guard, const fth_guarded_update *update);
/* Whether it would; changes nothing. */
fth_status fth_update_guard_try(fth_update_guard *guard, const fth_guarded_update *update, bool *finite);
/* Makes the update. *finite is false where it would have left a number that is not finite: then
 * nothing has changed. */
fth_status fth_update_guard_apply(fth_update_guard *guard, const fth_guarded_update *update, bool *finite);

#endif
