/* The inside of an engine, shared by the files that are about its computation and about its
 * tensors. */
#ifndef FTH_TRAIN_ENGINE_INTERNAL_H
#define FTH_TRAIN_ENGINE_INTERNAL_H

#include "train/engine/device_data.h"
#include "train/engine/engine_peers.h"
#include "train/engine/model_vectors.h"
#include "train/engine/plan_cache.h"
#include "train/engine/text_input.h"
#include "train/train_internal.h"
#include "train/engine/weight_update.h"

struct fth_engine {
    fth_engine_options options;
    fth_device *device;
    const fth_backend *backend;
    fth_precision precision;
    fth_graph *graph;
    fth_value images;     /* FTH_NO_VALUE: it takes text */
    fth_value answers;    /* labels, or targets of tasks that have no classes */
    fth_text_input *text; /* NULL: it takes images */

    fth_model_vectors vectors;
    fth_weight_update *update; /* NULL: it only evaluates */
    fth_device_data *data;     /* the data set on the device; NULL: it is not there */
    fth_plan_cache *plans;
    bool synchronized; /* batch norm, with `peers` */
    fth_peers peers;   /* that have the other parts of training batches; without `sum`: none */
    double *profile;
    uint64_t needed_bytes; /* where options.most_bytes is given */
    fth_deadline deadline; /* of a batch; at_seconds 0: none */
    const fth_stop *stop;
};

/* Runs the plan that fits `batch` and gives the mean loss and the number of right answers. Seed and
 * step of `run` are set here. */
fth_status fth_engine_run_batch(fth_engine *engine, const fth_batch *batch, fth_plan_mode mode, fth_run run,
                                fth_step_result *result);
/* "optimizer.momentum_buffer.fc.weight"; free() it. */
char *fth_engine_state_name(const char *vector, const char *parameter);

#endif
