/* Training: options, the loop, and what it reports while it runs.
 *
 *     engine      a model on a device: graph, flat vectors, plans, forward-backward, update, evaluation
 *     optimizers, schedules    rules by name, in tables
 *     trainer.c   the loop, over these objects:
 *         selection   which run, and with which options
 *         setup       its device, data set, engine and first weights
 *         position    where training is: batches, sums, meters
 *         strategy session     updates, through the strategy
 *         validator   validation and the best model
 *         saver       checkpoints
 *         reporter    events, the record, progress
 *         spending    money and the budget
 *         watchdog    stops in time, whatever the training thread does
 *
 * How a step is carried out is up to the strategy: strategy.h, and src/parallel for those there
 * are. */
#ifndef FTH_TRAIN_TRAIN_H
#define FTH_TRAIN_TRAIN_H

#include <jansson.h>

#include "backend/backend.h"
#include "base/options.h"
#include "data/data.h"
#include "model/model.h"
#include "record/record.h"
#include "store/store.h"
#include "train/model/confusion.h"
#include "train/train_options.h"

/* ---- running ---- */

/* What a live display needs after a step. */
typedef struct fth_progress {
    int64_t epoch, epochs;    /* epochs 0: no limit */
    int64_t step, steps;      /* steps in all when known, else 0 */
    double loss, accuracy;    /* of training, over the latest steps (recent_average.h), as samples_per_s */
    double samples_per_s;     /* NAN, as the others, before the first result */
    double elapsed_s, left_s; /* left NAN when unknown */
    bool evaluating;
} fth_progress;

/* How a run reports; every entry may be NULL. Called from the training thread. */
typedef struct fth_train_observer {
    void *context;
    void (*progress)(void *context, const fth_progress *progress); /* after every step: must be cheap */
    void (*event)(void *context, const json_t *event);             /* whatever goes into the record, as it goes */
    /* The machine goes, what could be saved is saved, and the training thread is in something that
     * does not end in time: ends the process with "resume me". From a thread of its own. Does not
     * return. */
    void (*abandon)(void *context, const char *message);
} fth_train_observer;

typedef struct fth_train_outcome {
    bool already_finished; /* --resume found nothing left to do */
    bool interrupted;      /* stopped by request; the run can be resumed */
    bool fenced;           /* another machine has taken the run over */
    bool left;             /* this machine was being preempted, and its peers continue the run without it */
    bool follows;          /* a peer has the run's record and models, and says how it went */
    char *local_copy;      /* where the last checkpoint is, and why, if its store has not taken it; else NULL */
    char *run_folder, *id; /* NULL: no run came of it */
    json_t *end;           /* the "end" event: accuracy, loss, epochs, steps, seconds, samples_per_s, model, best */
} fth_train_outcome;

typedef struct fth_strategy fth_strategy; /* strategy.h */

/* Trains as asked, with the strategy that the options name, or those of the run that is resumed:
 * one of `strategies`, which ends with NULL. `stop` is asked, from any thread, to finish the step,
 * save and return with interrupted set. On failure what was saved stays, and the record says what
 * happened. */
fth_status fth_train(const fth_train_options *options, const fth_strategy *const *strategies,
                     const fth_train_observer *observer, fth_stop *stop, fth_train_outcome *outcome);
/* Finds the run that --resume means, before anything else looks at the options. Where they say
 * nothing of which run it is, that is the newest unfinished one, else the newest: its id or folder
 * becomes `resume`. Where that run lives in a store, *options become what it was started with,
 * --checkpoints included, under what was given. Otherwise they stay. */
fth_status fth_train_find_resumed(fth_train_options *options);
void fth_train_outcome_release(fth_train_outcome *outcome);

/* What fth_train() would do with these options. */
typedef struct fth_train_plan {
    fth_train_options options; /* whole, as the run would have them */
    enum { FTH_PLAN_BEGIN_RUN, FTH_PLAN_RESUME_RUN, FTH_PLAN_NOTHING_LEFT } action;
    char *id;       /* of the run to go on with, or the name of a new one; NULL: one will be made up */
    int64_t step;   /* where it would go on, as far as the record tells */
    json_t *stored; /* the configuration of that run; NULL: a new one */
    char *device, *data;
    bool text; /* samples are texts; else images */
    int64_t training_samples, validation_samples, classes;
    int64_t parameters, batches_per_epoch;
    int64_t steps; /* in all; 0: not known ahead */
} fth_train_plan;

/* Finds the run, opens data and device, makes the model with its first weights and its plans, and
 * leaves nothing behind but downloads in the cache. A parameter server is not contacted. */
fth_status fth_train_check(const fth_train_options *options, const fth_strategy *const *strategies, fth_stop *stop,
                           fth_train_plan *plan);
void fth_train_plan_release(fth_train_plan *plan);

/* Writes the record of a run in a store into a run folder, for who reads records. `store` may be
 * NULL. */
fth_status fth_train_fetch_record(const char *url, const fth_store_options *store, const char *folder);

/* Evaluates weights on a data set's validation part. */
typedef struct fth_evaluation {
    double loss, accuracy, seconds;
    int64_t samples;
} fth_evaluation;
/* *confusion, unless NULL, is what was taken for what; free it. It is NULL where labels are not
 * classes; and the accuracy is NAN where they are numbers. */
fth_status fth_evaluate(const fth_train_options *options, fth_confusion **confusion, fth_evaluation *evaluation);

/* Measures training steps on random data in memory, for bench/. With `times_file`, which may be
 * NULL, writes the times of layers to that file. */
typedef struct fth_benchmark_result {
    double median_step_s;
    char device[160]; /* in words */
} fth_benchmark_result;
fth_status fth_benchmark(const fth_train_options *options, int channels, int height, int width, int classes,
                         double seconds, const char *times_file, fth_benchmark_result *result);

#endif
