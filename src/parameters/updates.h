/* Updates of the parameters: the step under construction, which gradients may become part of it,
 * and the update itself. For the applying thread, and before it for the thread that replays the
 * log. */
#ifndef FTH_PARAMETERS_UPDATES_H
#define FTH_PARAMETERS_UPDATES_H

#include "parameters/parts.h"

typedef struct fth_updates fth_updates;

/* The parts outlive it. */
fth_status fth_updates_create(const fth_server_parts *parts, fth_updates **updates);
void fth_updates_free(fth_updates *updates);
/* Once the weights are restored. FTH_DIVERGED if they are not finite. */
fth_status fth_updates_begin(fth_updates *updates);

/* The number of gradients in the step. */
int64_t fth_updates_pending(const fth_updates *updates);
/* Whether the step averages its gradients. An unfinished step keeps this when the server restarts
 * with another consistency. */
bool fth_updates_averaged(const fth_updates *updates);

/* How a gradient becomes a part of a step. */
typedef struct fth_update_how {
    bool averaged; /* by the gradients' samples */
    bool steps;    /* it completes the step */
    double rate;   /* the learning rate of the step */
} fth_update_how;

/* Whether the gradient can be applied without making a number infinite. Changes nothing. */
fth_refusal fth_updates_check(fth_updates *updates, fth_gradient *gradient, const fth_update_how *how,
                              char message[FTH_MAX_REFUSAL]);
/* Adds the gradient to the step, and makes the step if that completes it. */
fth_status fth_updates_add(fth_updates *updates, const fth_gradient *gradient, const fth_update_how *how);
/* Makes the step. An update that would leave a number that is not finite is skipped, but the
 * version advances. */
fth_status fth_updates_make_step(fth_updates *updates, double rate);

/* Scales a gradient down to the norm `most`; 0: never. From any thread. */
void fth_gradient_clip(const fth_served_model *model, fth_parameters_metrics *metrics, fth_gradient *gradient,
                       double most);

#endif
