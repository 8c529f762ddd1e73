/* Training: options, the loop, and what it reports while it runs.
 *
 *     engine      a model on a device: graph, flat vectors, plans, forward-backward, update,
 *                 evaluation
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
    int64_t step, steps;      /* total steps; 0: unknown */
    double loss, accuracy;    /* of training, over the latest steps (recent_average.h), as samples_per_s */
    double samples_per_s;     /* NAN before the first result */
    double elapsed_s, left_s; /* left NAN when unknown */
    bool evaluating;
} fth_progress;

/* How a run reports. Any function may be NULL. Called from the training thread. */
typedef struct fth_train_observer {
    void *context;
    void (*progress)(void *context, const fth_progress *progress); /* after every step: must be cheap */
    void (*event)(void *context, const json_t *event);             /* each event of the record, as it is written */
    /* The machine is being preempted, what could be saved is saved, and the training thread is in a
     * call that may not return in time: ends the process with the exit code for "resume me". Called
     * from a thread of its own. Does not return. */
    void (*abandon)(void *context, const char *message);
} fth_train_observer;

typedef struct fth_train_outcome {
    bool already_finished; /* --resume found nothing left to do */
    bool interrupted;      /* stopped by request; the run can be resumed */
    bool fenced;           /* another machine has taken the run over */
    bool left;             /* this machine is being preempted; its peers continue the run */
    bool follows;          /* a peer has the run's record and models, and reports the result */
    char *local_copy;      /* where the last checkpoint was left, and why, if the store did not take it; else NULL */
    char *run_folder, *id; /* NULL: no run came of it */
    json_t *end;           /* the "end" event: accuracy, loss, epochs, steps, seconds, samples_per_s, model, best */
} fth_train_outcome;

typedef struct fth_strategy fth_strategy; /* strategy.h */

/* Trains with the strategy that the options or the resumed run name: one of `strategies`, which
 * ends with NULL. Asking `stop`, from any thread, finishes the step, saves, and returns with
 * `interrupted` set. After a failure, what was saved stays, and the record has the reason. */
fth_status fth_train(const fth_train_options *options, const fth_strategy *const *strategies,
                     const fth_train_observer *observer, fth_stop *stop, fth_train_outcome *outcome);
/* Finds the run that --resume means, before anything else reads the options. If the options do not
 * identify a run, it is the newest unfinished one, else the newest; `resume` becomes its id or
 * folder. If that run lives in a store, *options become its stored options, --checkpoints included,
 * overridden by those given now. */
fth_status fth_train_find_resumed(fth_train_options *options);
void fth_train_outcome_release(fth_train_outcome *outcome);

/* What fth_train() would do with these options. */
typedef struct fth_train_plan {
    fth_train_options options; /* whole, as the run would have them */
    enum { FTH_PLAN_BEGIN_RUN, FTH_PLAN_RESUME_RUN, FTH_PLAN_NOTHING_LEFT } action;
    char *id;       /* of the run to continue, or the name of a new one; NULL: one will be made up */
    int64_t step;   /* where it would continue, according to the record */
    json_t *stored; /* the configuration of that run; NULL: a new one */
    char *device, *data;
    bool text; /* samples are texts; else images */
    int64_t training_samples, validation_samples, classes;
    int64_t parameters, batches_per_epoch;
    int64_t steps; /* in all; 0: not known ahead */
} fth_train_plan;

/* Finds the run, opens data and device, and builds the model with its first weights and plans.
 * Leaves nothing behind but downloads in the cache. A parameter server is not contacted. */
fth_status fth_train_check(const fth_train_options *options, const fth_strategy *const *strategies, fth_stop *stop,
                           fth_train_plan *plan);
void fth_train_plan_release(fth_train_plan *plan);

/* Copies the record of a run in a store into a run folder, for readers of records. `store` may be
 * NULL. */
fth_status fth_train_fetch_record(const char *url, const fth_store_options *store, const char *folder);

/* Evaluates weights on a data set's validation part. */
typedef struct fth_evaluation {
    double loss, accuracy, seconds;
    int64_t samples;
} fth_evaluation;
/* *confusion, unless `confusion` is NULL: how often each class was taken for which; free it. It is
 * NULL for labels that are not classes. The accuracy is NAN for labels that are numbers. */
fth_status fth_evaluate(const fth_train_options *options, fth_confusion **confusion, fth_evaluation *evaluation);

/* Measures training steps on random data in memory, for bench/. Writes the times of layers to
 * `times_file` unless that is NULL. */
typedef struct fth_benchmark_result {
    double median_step_s;
    char device[160]; /* in words */
} fth_benchmark_result;
fth_status fth_benchmark(const fth_train_options *options, int channels, int height, int width, int classes,
                         double seconds, const char *times_file, fth_benchmark_result *result);

#endif
