/* Optimizers: what the trainer knows of each. The arithmetic of an update is a rule of backend/update_rules.h, of which
 * each back end makes one fused loop over flat vectors. */
#ifndef FTH_TRAIN_OPTIMIZER_H
#define FTH_TRAIN_OPTIMIZER_H

#include "train/engine.h"

/* No number of a vector is larger in magnitude than its bound. */
typedef struct fth_update_bounds {
    double parameter, state[FTH_MAX_OPTIMIZER_VECTORS];
} fth_update_bounds;

typedef struct fth_optimizer {
    const char *name, *summary;
    double default_lr;
    bool takes_nesterov; /* --nesterov */
    /* Vectors beside the parameters, by PyTorch's names; NULL-terminated. A rule has all of them or none. */
    const char *vectors[FTH_MAX_OPTIMIZER_VECTORS + 1];
    /* The rule of backend/update_rules.h that these options ask for; NULL: the one of the optimizer's name. */
    const char *(*choose_rule)(const fth_train_options *options);
    /* Moves the bounds to what holds after an update by gradients of at most `largest`, and gives the largest magnitude
     * that its arithmetic can meet on the way. */
    double (*bound)(const fth_update_arguments *arguments, double largest, fth_update_bounds *bounds);
} fth_optimizer;

/* Every optimizer; a new one is its file, optimizers/NAME.c, and its row here. Its arithmetic, where no rule of
 * backend/update_rules.h does it already, is a header and a row there, and no back end is edited. */
#define FTH_OPTIMIZERS(ROW)                                                                                            \
    ROW(sgd)                                                                                                           \
    ROW(adamw)

#define FTH_DECLARE(name) extern const fth_optimizer fth_optimizer_##name;
FTH_OPTIMIZERS(FTH_DECLARE)
#undef FTH_DECLARE

fth_status fth_optimizer_find(const char *name, const fth_optimizer **optimizer);
/* They are the choices of --optimizer. */
fth_choice fth_optimizer_choice(size_t index);

#endif
