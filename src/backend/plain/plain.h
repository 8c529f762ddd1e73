/* Kernels in plain C on plain row-major tensors in host memory, for back ends that have nothing
 * better for an op.
 *
 * Each is one function whose loops mirror the op's formula: floats are stored as f32 and summed in
 * double. The reference back end is made of these and its own of the same kind; the portable one
 * and the CPU's take them for what need not be fast.
 *
 * A kernel is a row { op, run }. plain_add_step() serves all of them: it describes the node's
 * outputs as plain tensors and adds one step, which calls `run` with the addresses and types of the
 * node's inputs and outputs. */
#ifndef FTH_BACKEND_PLAIN_PLAIN_H
#define FTH_BACKEND_PLAIN_PLAIN_H

#include "backend/kernel.h"

/* A node's input or output: `data` is row-major, with the batch filled in in `shape`. */
typedef struct plain_tensor {
    fth_plan_value value;
    fth_dtype dtype;
    fth_shape shape;
    int64_t graph_rows; /* fth_plan_graph_rows() */
    int64_t count;
    union {
        void *data;
        float *floats;
        int32_t *ints;
    };
} plain_tensor;

typedef struct plain_call plain_call;

typedef fth_status (*plain_run)(const plain_call *call, const fth_run *run);

/* One node of one plan: a step's state. */
struct plain_call {
    plain_run run;
    const void *attributes;      /* the op's own struct (ops.h) */
    bool training, synchronized; /* as fth_plan_options says */
    int input_count, output_count;
    plain_tensor inputs[FTH_MAX_STEP_VALUES], outputs[FTH_MAX_STEP_VALUES];
};

typedef struct plain_kernel {
    const fth_op *op;
    plain_run run;
    unsigned updated_inputs; /* bit i: training writes input i in place (running statistics) */
} plain_kernel;

/* `inputs` are plan values that hold the node's inputs in plain layout. Outputs that have no layout
 * yet get the back end's describe_plain(). */
fth_status plain_add_step(fth_plan *plan, const fth_node *node, const plain_kernel *kernel,
                          const fth_plan_value *inputs);

/* (n, c, h, w) of an image tensor as one index. */
static inline int64_t plain_at(const fth_shape *shape, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return ((n * shape->dims[1] + c) * shape->dims[2] + h) * shape->dims[3] + w;
}

/* Elements behind each (n, c): H*W of an image, 1 of a feature. */
static inline int64_t plain_plane(const fth_shape *shape)
{
    int64_t plane = 1;
    for (int i = 2; i < shape->rank; i++)
        plane *= shape->dims[i];
    return plane;
}

/* FTH_INVALID unless all of `count` ids are of rows of a table, which has `rows`. */
fth_status plain_check_ids(const int32_t *ids, int64_t count, int64_t rows);

/* Number of a tensor's first element in the whole batch, by which dropout goes. */
static inline uint64_t plain_first_element(const plain_tensor *tensor, const fth_run *run)
{
    return fth_run_first_row(run, tensor->graph_rows) * (uint64_t)(tensor->count / tensor->shape.dims[0]);
}

extern const plain_kernel plain_batch_norm, plain_batch_norm_grad;
extern const plain_kernel plain_gelu, plain_gelu_grad, plain_dropout;
extern const plain_kernel plain_gelu_tanh, plain_gelu_tanh_grad, plain_tanh, plain_tanh_grad;
extern const plain_kernel plain_average_pool, plain_average_pool_grad;
extern const plain_kernel plain_adaptive_average_pool, plain_adaptive_average_pool_grad;
extern const plain_kernel plain_resize, plain_resize_grad;
extern const plain_kernel plain_concat, plain_slice, plain_pad, plain_permute, plain_reshape;
extern const plain_kernel plain_gather, plain_gather_grad;
extern const plain_kernel plain_softmax_cross_entropy, plain_softmax_cross_entropy_grad;
extern const plain_kernel plain_squared_error, plain_squared_error_grad;
extern const plain_kernel plain_sigmoid_cross_entropy, plain_sigmoid_cross_entropy_grad;
extern const plain_kernel plain_embedding, plain_embedding_grad;
extern const plain_kernel plain_layer_norm, plain_layer_norm_grad;
extern const plain_kernel plain_qkv_linear, plain_qkv_linear_grad_input, plain_qkv_linear_grad_weights;
extern const plain_kernel plain_attention, plain_attention_grad;
extern const plain_kernel plain_first_tokens, plain_first_tokens_grad;
extern const plain_kernel plain_matrix_product;
extern const plain_kernel plain_softmax, plain_softmax_grad;
extern const plain_kernel plain_normalize, plain_normalize_grad;
extern const plain_kernel plain_dot_product_attention, plain_dot_product_attention_grad;
extern const plain_kernel plain_recurrent, plain_recurrent_grad;
extern const plain_kernel plain_pointwise, plain_reduce;

/* ---- what a back end's table needs where device memory is the host's and work is done when a call returns
 * ---- */

void plain_enter(fth_device *device, int threads);
fth_status plain_allocate(fth_device *device, size_t size_bytes, void **memory);
void plain_release(fth_device *device, void *memory);
fth_status plain_copy(fth_device *device, void *to, const void *from, size_t size_bytes);
fth_status plain_fill_zero(fth_device *device, void *memory, size_t size_bytes);
fth_status plain_synchronize(fth_device *device, fth_deadline deadline);

extern const fth_update_kernel plain_updates[];
fth_status plain_add_vectors(fth_device *device, float *to, const float *from, size_t count);
fth_status plain_norm(fth_device *device, const float *values, size_t count, double *norm);

#endif
