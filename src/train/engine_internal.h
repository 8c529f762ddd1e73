/* The inside of an engine, shared by the files that are about its computation and about its tensors. */
#ifndef FTH_TRAIN_ENGINE_INTERNAL_H
#define FTH_TRAIN_ENGINE_INTERNAL_H

#include "train/device_data.h"
#include "train/engine.h"
#include "train/plan_cache.h"
#include "train/train_internal.h"

struct fth_engine {
    fth_engine_options options;
    fth_device *device;
    const fth_backend *backend;
    fth_precision precision;
    fth_graph *graph;
    fth_value images, labels, loss;

    /* On the device. `accumulated` exists if several batches make an update; then it is what the update uses. */
    fth_vectors vectors;
    float *accumulated;
    float *state[FTH_MAX_OPTIMIZER_VECTORS];
    bool shares; /* parameters, buffers and state are not its own */
    size_t parameter_floats, buffer_floats;
    size_t trained_floats; /* at the beginning of the parameters; gradients and the optimizer's state have no more */

    const fth_optimizer *optimizer;
    int state_count;
    const fth_update_kernel *update;
    fth_update_arguments arguments;
    fth_loss_scale loss_scale; /* where there is an updater, that knows it better */
    fth_updater *updater;      /* where the back end has them, from the first step on */
    int64_t left_out;          /* updates, as the updater last reported */
    bool spoiled;              /* an update left a parameter that is not finite */

    fth_device_data *data; /* the data set on the device; NULL: it is not there */
    fth_plan_cache *plans;
    double *profile;
};

/* Vectors that other engines can have too (engine_share.c). */
fth_status fth_engine_require_host_memory(const fth_engine *engine);
void fth_engine_release_vectors(fth_engine *engine);

/* Runs the plan that fits `batch` and gives the mean loss and the number of right answers. Seed and step of `run` are
 * set here. */
fth_status fth_engine_run_batch(fth_engine *engine, const fth_batch *batch, fth_plan_mode mode, fth_run run,
                                fth_step_result *result);
/* FTH_DIVERGED if an update found the gradients so. What is queued may not be known yet. */
fth_status fth_engine_look_at_updates(fth_engine *engine);

/* "optimizer.momentum_buffer.fc.weight"; free() it. */
char *fth_engine_state_name(const char *vector, const char *parameter);

#endif
