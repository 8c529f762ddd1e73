/* A profile of one worker: how long its steps take on this machine, and when in a step which
 * gradients are final. Measured by training for a while as a run would, with its data, and
 * forgetting the weights: nothing is written. */
#ifndef FTH_TRAIN_WORKER_PROFILE_H
#define FTH_TRAIN_WORKER_PROFILE_H

#include "train/loop/strategy.h"

/* `seconds` after the step began, floats [0, ready_floats) of the gradient vector are final. */
typedef struct fth_ready_point {
    double seconds;
    size_t ready_floats;
} fth_ready_point;

/* One worker by itself. */
typedef struct fth_worker_profile {
    double compute_s; /* forward and backward pass of its batch; of the last one where batches are accumulated */
    double before_s;  /* batches accumulated before it, without an exchange */
    double update_s;  /* of all parameters */
    double data_s;    /* in which its loader makes the batches of a step; a step takes no less. 0: unknown */
    double jitter_s;  /* standard deviation of its steps: a group waits for its slowest */
    const fth_ready_point *timeline; /* ascending; the last has all floats */
    size_t timeline_count;
} fth_worker_profile;

/* What was measured. Release it in either case. */
typedef struct fth_profile_result {
    char *data, *device; /* as they describe themselves */
    char *model;
    int64_t training_samples;
    int64_t parameters;           /* trained */
    double learning_rate;         /* to begin with */
    double usd_per_hour;          /* this machine's; NAN: unknown */
    char *price_source;           /* ""; where unknown */
    fth_worker_profile *profiles; /* one for each batch that was asked for; they own their timelines */
    int64_t *steps;               /* that were measured for each of them */
    size_t count;
} fth_profile_result;

/* Trains with batches of each of these sizes, for `seconds` in all. `options` are those of a run of
 * one worker; what they say of resuming, saving and peers does not matter. FTH_INTERRUPTED if
 * `stop` is asked. */
fth_status fth_worker_profile_measure(const fth_train_options *options, const fth_strategy *strategy,
                                      const int64_t *batches, size_t count, double seconds, fth_stop *stop,
                                      fth_profile_result *result);
void fth_profile_result_release(fth_profile_result *result);

#endif
