/* Training: options, the loop, and what it tells the world while it runs.
 *
 * engine.c    a model on a device: graph, flat vectors, plans, forward-backward, update, evaluation
 * optimizer.c, schedule.c    rules by name, in tables
 * trainer.c   the loop: position, meters, record, checkpoints, stopping
 *
 * How a step is carried out is the strategy's business (src/parallel): single, later hogwild, parameter server,
 * data parallel. */
#ifndef FTH_TRAIN_TRAIN_H
#define FTH_TRAIN_TRAIN_H

#include <jansson.h>

#include "backend/backend.h"
#include "base/options.h"
#include "data/data.h"
#include "model/model.h"
#include "record/record.h"
#include "store/store.h"
#include "train/confusion.h"
#include "train/train_options.h"

/* ---- strategies ---- */

typedef struct fth_engine fth_engine;

typedef struct fth_step_result {
    double loss; /* mean over the batch */
    int64_t correct;
    int64_t samples;
    bool finished; /* whoever owns the model says that training is over */
} fth_step_result;

typedef struct fth_strategy {
    const char *name, *summary;
    /* Steps are computed by workers with engines of their own: the trainer's engine, which is given to open(), holds
     * the weights and never computes gradients, and validation between epochs goes on beside training. */
    bool has_workers;
    /* Optional: reaches whoever is needed, and fails where they refuse, before a record of the run is made. open() then
     * has its state. From here on, whoever waits for others looks at `stop`, which lives longer, and then ends its
     * waiting: step() succeeds where the batch counts already, else it is FTH_INTERRUPTED. */
    fth_status (*connect)(fth_engine *engine, const fth_train_options *options, const fth_stop *stop, void **state);
    fth_status (*open)(fth_engine *engine, const fth_train_options *options, void **state);
    /* Optional, after open(): what the start's event says of who works: "workers" and their "worker_kind", or
     * "worker", "server" and "version". */
    void (*describe)(const void *state, json_t *event);
    /* Computes gradients of `batch` and, at the end of each group of `accumulate` batches, updates. A strategy with
     * several workers may only take the batch (a copy of it) and give the sum of what was finished meanwhile: `result`
     * is then of earlier batches, of samples 0 if none is done. */
    fth_status (*step)(void *state, const fth_batch *batch, double learning_rate, fth_step_result *result);
    /* Optional: waits until every batch taken is part of the weights, and gives what was not given yet. Called before
     * whatever looks at the weights: checkpoints, validation, the end. */
    fth_status (*drain)(void *state, fth_step_result *result);
    /* Optional: the next thing that happened and belongs into the record (an event with its name, and without a time),
     * or NULL. The caller owns it. */
    json_t *(*take_event)(void *state);
    void (*close)(void *state);
} fth_strategy;

/* ---- running ---- */

/* What a live display needs after a step. */
typedef struct fth_progress {
    int64_t epoch, epochs;    /* epochs 0: no limit */
    int64_t step, steps;      /* steps in all when known, else 0 */
    double loss, accuracy;    /* of training, over the latest steps (window.h), as samples_per_s */
    double samples_per_s;     /* NAN, as the others, before the first result */
    double elapsed_s, left_s; /* left NAN when unknown */
    bool evaluating;
} fth_progress;

/* How a run reports; every entry may be NULL. Called from the training thread. */
typedef struct fth_train_observer {
    void *context;
    void (*progress)(void *context, const fth_progress *progress); /* after every step: must be cheap */
    void (*event)(void *context, const json_t *event);             /* whatever goes into the record, as it goes */
    /* The machine goes, what could be saved is saved, and the training thread is in something that does not end in
     * time: ends the process with "resume me". From a thread of its own. Does not return. */
    void (*abandon)(void *context, const char *message);
} fth_train_observer;

typedef struct fth_train_outcome {
    bool already_finished; /* --resume found nothing left to do */
    bool interrupted;      /* stopped by request; the run can be resumed */
    bool fenced;           /* another machine has taken the run over */
    char *local_copy;      /* where the last checkpoint is, and why, if its store has not taken it; else NULL */
    char *run_folder, *id; /* NULL: no run came of it */
    json_t *end;           /* the "end" event: accuracy, loss, epochs, steps, seconds, samples_per_s, model, best */
} fth_train_outcome;

/* Trains as asked. `stop` is asked, from any thread, to finish the step, save and return with
 * interrupted set. On failure what was saved stays, and the record says what happened. */
fth_status fth_train(const fth_train_options *options, const fth_strategy *strategy, const fth_train_observer *observer,
                     fth_stop *stop, fth_train_outcome *outcome);
void fth_train_outcome_release(fth_train_outcome *outcome);

/* What fth_train() would do with these options. */
typedef struct fth_train_plan {
    fth_train_options options; /* whole, as the run would have them */
    enum { FTH_PLAN_BEGIN_RUN, FTH_PLAN_RESUME_RUN, FTH_PLAN_NOTHING_LEFT } action;
    char *id;       /* of the run to go on with, or the name of a new one; NULL: one will be made up */
    int64_t step;   /* where it would go on, as far as the record tells */
    json_t *stored; /* the configuration of that run; NULL: a new one */
    char *device, *data;
    int64_t training_samples, validation_samples, classes;
    int64_t parameters, batches_per_epoch;
    int64_t steps; /* in all; 0: not known ahead */
} fth_train_plan;

/* Finds the run, opens data and device, makes the model with its first weights and its plans, and leaves nothing
 * behind but downloads in the cache. A parameter server is not contacted. */
fth_status fth_train_check(const fth_train_options *options, const fth_strategy *strategy, fth_stop *stop,
                           fth_train_plan *plan);
void fth_train_plan_release(fth_train_plan *plan);

/* Writes the record of a run in a store into a run folder, for who reads records. `store` may be NULL. */
fth_status fth_train_fetch_record(const char *url, const fth_store_options *store, const char *folder);

/* Evaluates weights on a data set's validation part. */
typedef struct fth_evaluation {
    double loss, accuracy, seconds;
    int64_t samples;
} fth_evaluation;
/* *confusion, unless NULL, is what was taken for what; free it. */
fth_status fth_evaluate(const fth_train_options *options, fth_confusion **confusion, fth_evaluation *evaluation);

/* Measures training steps on random data in memory, for bench/: gives seconds per step. */
fth_status fth_benchmark(const fth_train_options *options, int channels, int height, int width, int classes,
                         double seconds, double *median_step_s);

#endif
