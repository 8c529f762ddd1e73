/* Where training is: how many batches were consumed, what they added up to, and how long that took.
 *
 * fth_train_state is everything a checkpoint restores besides tensors. The rest of fth_position
 * follows from it, the data and the options. A plain value that belongs to the training thread; no
 * other thread reads it. */
#ifndef FTH_TRAIN_POSITION_H
#define FTH_TRAIN_POSITION_H

#include "train/train_internal.h"

/* Where the time went. */
typedef struct fth_meters {
    double read_s; /* opening the data set, before elapsed_s begins */
    double data_wait_s, decode_s, fetch_s, compute_s, checkpoint_s, evaluate_s;
    double accelerator_s; /* the device's own time, if it is one */
} fth_meters;

/* A finished epoch, for its event. */
typedef struct fth_epoch_facts {
    int64_t epoch; /* 1 for the first; 0: none */
    int64_t step, batches, samples_so_far;
    double loss; /* sum over the samples */
    int64_t correct, samples;
    double seconds;
    fth_meters meters; /* of this epoch alone */
} fth_epoch_facts;

typedef struct fth_train_state {
    int64_t batches; /* consumed since the start of epoch 0 */
    int64_t samples;
    double epoch_loss; /* sum over the samples of the epoch so far */
    int64_t epoch_correct, epoch_samples;
    double elapsed_s;
    fth_meters meters;
    double epoch_elapsed_s; /* when the epoch began */
    fth_meters epoch_meters;
    double best_loss, best_accuracy; /* of validation; best_step -1: none yet */
    int64_t best_step;
    double validation_loss, validation_accuracy; /* the last; validation_step -1: none yet */
    int64_t validation_step;
    int64_t workers;       /* at the start of the run, for --batch-per-worker and --scale-lr; 0: unknown */
    int64_t counter_start; /* what num_batches_tracked said in --weights */
    double loss_scale;     /* of f16; 0: none */
    int64_t loss_scale_updates;
    fth_epoch_facts pending; /* an epoch whose validation alongside training is not done; epoch 0: none */
} fth_train_state;

typedef struct fth_position {
    fth_train_state state;
    int64_t step;    /* updates done: follows from state.batches */
    int64_t changes; /* grows with all that a checkpoint saves: updates, validations, ends of epochs */
    int64_t batches_per_epoch, steps_per_epoch; /* of this data and batch size */
    int64_t total_steps;                        /* 0: not known ahead */
    double learning_rate;                       /* of the update being made */
    double clock_origin_s;                      /* state.elapsed_s is the clock since then */
} fth_position;

/* The start of a run on `samples` training samples per epoch. FTH_INVALID if --epochs cannot be
 * counted in steps, or the schedule needs an end that no option gives. */
fth_status fth_position_begin(const fth_engine *engine, const fth_train_options *options, const fth_schedule *schedule,
                              int64_t samples, fth_position *position);
/* Counts in batches of options->batch from now on; what was consumed does not change. */
fth_status fth_position_set_batch(fth_position *position, const fth_engine *engine, const fth_train_options *options,
                                  const fth_schedule *schedule, int64_t samples);
/* Starts the clock, after the time that was restored. */
void fth_position_start_clock(fth_position *position);
/* Updates state.elapsed_s and returns it. */
double fth_position_elapsed(fth_position *position);
double fth_position_epoch(const fth_position *position); /* passes over the data, with a fraction */

/* Adds a strategy's result, which may cover several batches or none. */
void fth_position_add_result(fth_position *position, const fth_step_result *result);
void fth_position_set_validation(fth_position *position, const fth_evaluation *evaluation, int64_t step);
fth_epoch_facts fth_position_describe_epoch(fth_position *position); /* the one that ends now */
void fth_position_begin_epoch(fth_position *position);               /* sets the sums of the epoch back */

/* What a checkpoint holds besides tensors; json_decref() it. Doubles survive exactly, with 17
 * digits (JSON_REAL_PRECISION), so a resumed run continues the same sums. */
fth_status fth_position_save(fth_position *position, fth_engine *engine, json_t **json);
/* FTH_CORRUPT, naming the member, if `json` is not a valid state. */
fth_status fth_position_restore(fth_position *position, fth_engine *engine, const json_t *json);

#endif
