/* The engine: a model on a device. It owns the graph, the flat vectors and the plans, and knows how
 * to compute gradients, update, evaluate, and take tensors in; snapshot.h hands them out, and
 * engine_peers.h is about engines of several processes that train one model together. Strategies
 * (src/parallel) are written in these terms; when to do what is theirs and the trainer's business.
 * Not safe for several threads; but engines that share vectors may each be used by one
 * (Hogwild!). */
#ifndef FTH_TRAIN_ENGINE_H
#define FTH_TRAIN_ENGINE_H

#include "backend/plan.h"
#include "tensor/weights.h"
#include "train/model/confusion.h"
#include "train/train.h"

typedef struct fth_engine fth_engine;

typedef struct fth_step_result {
    double loss; /* mean over the batch */
    int64_t correct;
    int64_t samples;
    bool finished; /* the model's owner says that training is over: fth_strategy.ended_by */
} fth_step_result;

/* The vectors that several engines can have in common. On the device, which must be host memory. */
typedef struct fth_engine_vectors {
    float *parameters, *buffers, *state[FTH_MAX_OPTIMIZER_VECTORS];
} fth_engine_vectors;

/* How many floats each of them has. */
typedef struct fth_engine_sizes {
    size_t parameters, buffers;
    size_t trained;  /* parameters that gradients and the optimizer's vectors have */
    int state_count; /* of the optimizer's vectors */
} fth_engine_sizes;

typedef struct fth_engine_options {
    const fth_train_options *train;       /* model, optimizer, precision, seed, ...; outlives the engine */
    int channels, height, width;          /* of images */
    int longest;                          /* of text: no sample has more tokens */
    double mean_length, length_deviation; /* of text, where samples are drawn at random; 0: not known */
    fth_task task;
    int classes;
    int64_t training_samples; /* in an epoch: says where groups of accumulated batches end */
    bool evaluate_only;       /* no gradients, no optimizer state */
    bool weights_follow;      /* they are set before the first batch: none are made up */
    bool keep_layout;         /* with evaluate_only: parameters lie as in an engine that trains */
    /* Used instead of own vectors, as they are, and not freed; NULL: the engine has its own. */
    const fth_engine_vectors *shared;
    /* A set in memory from which images are made where a batch has recipes; on devices in host
     * memory. May be NULL. */
    const fth_dataset *dataset;
    uint64_t
        most_bytes; /* that the vectors, `copies` of the weights and a training plan may take; 0: as much as there is */
    int copies;     /* that the owner makes */
    const char *precision_before; /* what --precision auto chose when the run began; NULL: nothing yet */
} fth_engine_options;

/* The device must outlive the engine. Weights start as fth_graph_initialize() sets them.
 * FTH_NO_MEMORY before anything large is allocated if it needs more than options->most_bytes. */
fth_status fth_engine_create(const fth_engine_options *options, fth_device *device, fth_engine **engine);
void fth_engine_free(fth_engine *engine);

const fth_graph *fth_engine_graph(const fth_engine *engine);
fth_device *fth_engine_device(const fth_engine *engine);
const fth_engine_options *fth_engine_get_options(const fth_engine *engine);
fth_engine_sizes fth_engine_get_sizes(const fth_engine *engine);
uint64_t fth_engine_needed_bytes(const fth_engine *engine); /* of options->most_bytes; 0: that was not given */
double fth_engine_learning_rate(const fth_engine *engine);  /* as asked for, or the optimizer's default */

const char *fth_engine_precision(const fth_engine *engine); /* "bf16": what it computes in, whatever was asked for */

/* Puts the bytes of a data set that is in memory on the device, if that can make batches of them
 * and they fit; true if so: then loaders may be asked for recipes. FARTHING_DATA_ON_DEVICE=0 leaves
 * it on the host. */
fth_status fth_engine_keep_data(fth_engine *engine, const fth_dataset *dataset, bool *kept);

/* Builds the plan of a batch size ahead of its first use; of text, for as many tokens as that
 * many samples are likely to have at most. */
fth_status fth_engine_prepare(fth_engine *engine, int64_t batch, fth_plan_mode mode);

/* ---- training ---- */

/* A batch's place in its group of accumulated batches. The last group of an epoch may be short. */
typedef struct fth_group {
    bool first, last;
    float share;    /* of the group's samples */
    int64_t update; /* number of the update it ends in; 1 for the first */
} fth_group;
fth_group fth_engine_group(const fth_engine *engine, const fth_batch *batch);

/* How many updates `batches` make, counted from the start of epoch 0; and how many an epoch has. */
int64_t fth_engine_updates(const fth_engine *engine, int64_t batches);
int64_t fth_engine_updates_per_epoch(const fth_engine *engine);

/* Forward and backward: gradients, weighted by `share`, replace what the gradient vector held (with
 * --accumulate they are added up from the group's first batch on). An empty part has gradients of
 * zero, and takes part in what peers sum. FTH_DIVERGED if the loss is not a finite number. */
fth_status fth_engine_compute(fth_engine *engine, const fth_batch *batch, const fth_group *group,
                              fth_step_result *result);

/* Clips and applies the gradients of the group. `update` is 1 for the first. In f16 an update whose
 * gradients overflowed is left out. */
fth_status fth_engine_update(fth_engine *engine, double learning_rate, int64_t update);
/* FTH_DIVERGED if the parameters are no longer finite after an update, or the buffers after a
 * batch. Costs next to nothing. A device with memory of its own finds out in the steps that
 * follow. */
fth_status fth_engine_check_update(fth_engine *engine);

/* Both in one call, which some back ends queue as one piece of work: the loss may then be known
 * before the update is made. For a batch in the middle of a group no update is made. */
fth_status fth_engine_step(fth_engine *engine, const fth_batch *batch, double learning_rate, fth_step_result *result);

/* The loss scale of f16 (clip_and_scale.h) is part of a run's state. */
fth_loss_scale fth_engine_get_loss_scale(fth_engine *engine);
/* Nothing for a precision that needs none, or for a scale of 0. */
void fth_engine_set_loss_scale(fth_engine *engine, fth_loss_scale scale);

/* Batches and the making of plans end between two steps, with FTH_TIMEOUT after the deadline, and
 * with FTH_INTERRUPTED when `stop` (may be NULL) is asked. */
void fth_engine_set_deadline(fth_engine *engine, fth_deadline deadline, const fth_stop *stop);

/* Seconds per step of the training plan of one batch size, added up while set; NULL: not
 * measured. */
void fth_engine_set_profile(fth_engine *engine, double *step_seconds);
/* As fth_engine_prepare() made it; NULL: it has not. */
const fth_plan *fth_engine_get_plan(const fth_engine *engine, int64_t batch, fth_plan_mode mode);

/* ---- evaluation ---- */

/* How many samples are evaluated at a time, where this process trains on batches of `trained`:
 * small ones would waste time. */
int64_t fth_engine_evaluation_batch(const fth_engine *engine, int64_t trained, int64_t samples);

/* Sums over samples that were evaluated. */
typedef struct fth_counts {
    double loss;
    int64_t correct, samples;
    bool done; /* the loader has no more */
} fth_counts;
typedef struct fth_counting {
    const fth_stop *stop; /* may be NULL */
    fth_deadline deadline;
    int64_t batches;          /* after which it returns; 0: at the end */
    fth_confusion *confusion; /* or NULL */
} fth_counting;
/* Evaluates the next batches that `loader` gives, adds them to *counts, and each sample to the
 * confusion matrix. FTH_INTERRUPTED when the stop is asked, FTH_TIMEOUT when the deadline passes
 * before. */
fth_status fth_engine_count(fth_engine *engine, fth_loader *loader, const fth_counting *how, fth_counts *counts);
/* FTH_INVALID if nothing was counted. */
fth_status fth_counts_average(const fth_counts *counts, double seconds, fth_evaluation *evaluation);
/* Evaluates all batches of `loader`, and adds each sample to `confusion` unless that is
 * NULL. FTH_INTERRUPTED when `stop` is asked, FTH_TIMEOUT when `deadline` passes before. */
fth_status fth_engine_evaluate(fth_engine *engine, fth_loader *loader, const fth_stop *stop, fth_deadline deadline,
                               fth_confusion *confusion, fth_evaluation *evaluation);

/* What the model makes of images, (count, channels, height, width), as the loader gives them:
 * (count, classes). */
fth_status fth_engine_predict(fth_engine *engine, const float *images, int64_t count, float *logits);
/* The same of texts. */
fth_status fth_engine_predict_text(fth_engine *engine, const fth_text_batch *text, int64_t count, float *logits);

/* ---- tensors in; out is snapshot.h ---- */

/* Replaces the weights and the optimizer's state by what a checkpoint has. Every name must be there
 * with its shape and no other; the message lists what is missing, unexpected or of another shape.
 * `origin` names the file. A tensor with numbers that are not finite is refused by name
 * (FTH_CORRUPT). */
fth_status fth_engine_load(fth_engine *engine, const fth_safetensors *tensors, const char *origin);

/* What came of reading weights. */
typedef struct fth_weights_report {
    int64_t batches;     /* what the file's num_batches_tracked say; 0 without any */
    char head_note[320]; /* "head replaced: fc.weight is (1000, 512) in the file, the data has 20 classes"; or "" */
} fth_weights_report;

/* Replaces the weights alone, whatever file they are from, under the same rules. With
 * `may_replace_head` the last linear layer keeps its initial values where it is for another number
 * of classes in the file, as do layers that fth_model_may_lack() allows to be missing; the report
 * says so. Of a file that holds more than this network, only its part stays in `weights`. Tensors
 * of other types become f32. `report` may be NULL. FTH_INVALID for numbers that are not finite. */
fth_status fth_engine_load_weights(fth_engine *engine, fth_weights *weights, bool may_replace_head, const char *origin,
                                   fth_weights_report *report);

/* Copies parameters and buffers between engines of one layout, on devices in host memory or of one
 * kind. */
fth_status fth_engine_copy_weights(fth_engine *from, fth_engine *to);

/* Moves the vectors, with what they hold, into other memory, which the engine then uses and does
 * not free: it must stay until the engine is freed. For devices whose memory is the host's;
 * FTH_UNSUPPORTED elsewhere. */
fth_status fth_engine_move_vectors(fth_engine *engine, const fth_engine_vectors *to);

/* FTH_DIVERGED, naming the first tensor and place, if a parameter or buffer is not finite. */
fth_status fth_engine_check_finite(fth_engine *engine);
/* Fails with FTH_DIVERGED and the message "<what> (<first weight that is not finite, or that all
 * are>)". */
fth_status fth_engine_fail_diverged(fth_engine *engine, const char *what);

#endif
