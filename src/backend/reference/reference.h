/* The inside of the reference back end: what its kernel files share.
 *
 * The reference is there to be read and believed. Every value is plain row-major, every op is one function
 * whose loops mirror its formula, floats are stored as f32 and summed in double, and there is one thread. The other
 * back ends are tested against it. Updates are the rules all back ends share, tested against formulas in double.
 *
 * A kernel is a row { op, run }. reference_prepare() serves all of them: it describes the node's outputs as plain
 * tensors and adds one step, which calls `run` with the addresses and types of the node's inputs and outputs. */
#ifndef FTH_BACKEND_REFERENCE_REFERENCE_H
#define FTH_BACKEND_REFERENCE_REFERENCE_H

#include "backend/kernel.h"

/* A node's input or output: `data` is row-major, with the batch filled in in `shape`. */
typedef struct reference_tensor {
    fth_plan_value value;
    fth_dtype dtype;
    fth_shape shape;
    int64_t count;
    union {
        void *data;
        float *floats;
        int32_t *ints;
    };
} reference_tensor;

typedef struct reference_call reference_call;

typedef fth_status (*reference_run)(const reference_call *call, const fth_run *run);

/* One node of one plan: a step's state. */
struct reference_call {
    reference_run run;
    const void *attributes;      /* the op's own struct (ops.h) */
    bool training, synchronized; /* as fth_plan_options says */
    int input_count, output_count;
    reference_tensor inputs[FTH_MAX_STEP_VALUES], outputs[FTH_MAX_STEP_VALUES];
};

typedef struct reference_kernel {
    fth_kernel kernel; /* first, so that the table of kernels can hold these */
    reference_run run;
    unsigned updated_inputs; /* bit i: training writes input i in place (running statistics) */
} reference_kernel;

fth_status reference_prepare(fth_plan *plan, const fth_node *node);

/* (n, c, h, w) of an image tensor as one index. */
static inline int64_t reference_at(const fth_shape *shape, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return ((n * shape->dims[1] + c) * shape->dims[2] + h) * shape->dims[3] + w;
}

/* Elements behind each (n, c): H*W of an image, 1 of a feature. */
static inline int64_t reference_plane(const fth_shape *shape)
{
    int64_t plane = 1;
    for (int i = 2; i < shape->rank; i++)
        plane *= shape->dims[i];
    return plane;
}

/* Every kernel; a new one is a file that defines reference_NAME for fth_op_NAME, and its row here. */
#define REFERENCE_KERNELS(ROW)                                                                                         \
    ROW(convolution)                                                                                                   \
    ROW(convolution_grad_input)                                                                                        \
    ROW(convolution_grad_weights)                                                                                      \
    ROW(linear)                                                                                                        \
    ROW(linear_grad_input)                                                                                             \
    ROW(linear_grad_weights)                                                                                           \
    ROW(batch_norm)                                                                                                    \
    ROW(batch_norm_grad)                                                                                               \
    ROW(relu)                                                                                                          \
    ROW(relu_grad)                                                                                                     \
    ROW(gelu)                                                                                                          \
    ROW(gelu_grad)                                                                                                     \
    ROW(add)                                                                                                           \
    ROW(max_pool)                                                                                                      \
    ROW(max_pool_grad)                                                                                                 \
    ROW(average_pool)                                                                                                  \
    ROW(average_pool_grad)                                                                                             \
    ROW(adaptive_average_pool)                                                                                         \
    ROW(adaptive_average_pool_grad)                                                                                    \
    ROW(concat)                                                                                                        \
    ROW(slice)                                                                                                         \
    ROW(pad)                                                                                                           \
    ROW(reshape)                                                                                                       \
    ROW(dropout)                                                                                                       \
    ROW(softmax_cross_entropy)                                                                                         \
    ROW(softmax_cross_entropy_grad)

#define REFERENCE_DECLARE(name) extern const reference_kernel reference_##name;
REFERENCE_KERNELS(REFERENCE_DECLARE)
#undef REFERENCE_DECLARE

/* updates.c */
extern const fth_update_kernel reference_updates[];
fth_status reference_add_vectors(fth_device *device, float *to, const float *from, size_t count);
fth_status reference_norm(fth_device *device, const float *values, size_t count, double *norm);

/* The plugin's one exported symbol. */
extern const fth_backend fth_backend_plugin;

#endif
