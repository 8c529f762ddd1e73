/* What programs that make one training step of a model share: parameters and inputs from files, and
 * results into one. */
#ifndef FTH_TESTS_MODEL_STEP_H
#define FTH_TESTS_MODEL_STEP_H

#include "backend/plan.h"
#include "model/model.h"

typedef struct model_step {
    fth_weights *weights;
    fth_safetensors *batch;
    const void *mapping; /* of the batch */
    size_t mapping_bytes;
    fth_graph *graph;
    fth_device *device;
    fth_vectors vectors;
    float *logits; /* of the last run */
    float loss[2];
} model_step;

/* The files; the graph and the device are for the caller to make. */
fth_status model_step_open(const char *weights, const char *batch, model_step *step);
/* Vectors for the graph, with the parameters of the weights; fails if one is missing or has another
 * shape. */
fth_status model_step_load(const char *weights, model_step *step);
/* One run of a plan. Inputs are copied from the batch; `finish`, which may be NULL, completes what
 * it does not fill. */
fth_status model_step_run(model_step *step, fth_plan_options options, void (*finish)(model_step *, fth_plan *));
/* The gradients under the names of their parameters, and `outputs`, as a safetensors file. */
fth_status model_step_write(const model_step *step, const char *path, const fth_tensor_view *outputs, size_t count);
void model_step_close(model_step *step);

#endif
