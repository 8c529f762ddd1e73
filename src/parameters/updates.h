/* Updates of the parameters: the step being made, which gradients are fit to be a part of it, and
 * the update itself.
 *
 * The applying thread's own, and before that the thread's that replays the log. */
#ifndef FTH_PARAMETERS_UPDATES_H
#define FTH_PARAMETERS_UPDATES_H

#include "parameters/metrics.h"
#include "parameters/model.h"
#include "parameters/position.h"
#include "parameters/record.h"

typedef struct fth_updates fth_updates;

/* `averaged`: new steps are the mean of their gradients by samples (sync), else their sum.
 * Everything outlives it. */
fth_status fth_updates_create(const fth_served_model *model, fth_served_position *position,
                              fth_parameters_metrics *metrics, fth_served_record *record, bool averaged,
                              fth_updates **updates);
void fth_updates_free(fth_updates *updates);
/* Once the weights to continue from are in place. FTH_DIVERGED if they are not finite. */
fth_status fth_updates_begin(fth_updates *updates);

/* How many gradients the step being made has. */
int64_t fth_updates_pending(const fth_updates *updates);
/* Whether it is averaged: what a step began as it stays, also where the server goes on with another
 * consistency. */
bool fth_updates_averaged(const fth_updates *updates);

/* How a gradient becomes a part of a step. */
typedef struct fth_update_how {
    bool averaged; /* the step's gradients, by their samples */
    bool steps;    /* it completes the step */
    double rate;   /* the learning rate of the step */
} fth_update_how;

/* Whether a gradient's numbers are fit to be applied like this. Changes nothing. */
fth_refusal fth_updates_check(fth_updates *updates, fth_gradient *gradient, const fth_update_how *how,
                              char message[FTH_MAX_REFUSAL]);
/* Adds the gradient to the step, and makes the step if the gradient completes it. */
fth_status fth_updates_add(fth_updates *updates, const fth_gradient *gradient, const fth_update_how *how);
/* Makes the step of what was added. The version moves on, also where the update would leave a
 * number that is not finite and is therefore left out. */
fth_status fth_updates_make_step(fth_updates *updates, double rate);

/* Scales a gradient down to a norm of `most`, if that is above 0 and its own is larger. From any
 * thread. */
void fth_gradient_clip(const fth_served_model *model, fth_parameters_metrics *metrics, fth_gradient *gradient,
                       double most);

#endif
