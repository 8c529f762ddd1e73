/* The reference back end's table and its device: host memory, one thread. */
#include "backend/reference/reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- device ---- */

static fth_status reference_open(const fth_device_options *options, fth_device **device)
{
    fth_status status = FTH_OK;
    fth_device *opened = NULL;

    (void)options; /* one thread, whatever was asked */
    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    opened->backend = &fth_backend_plugin;
    opened->threads = 1;
    snprintf(opened->description, sizeof opened->description, "reference, plain C, 1 thread");
    *device = opened;
out:
    return status;
}

static void reference_close(fth_device *device)
{
    free(device);
}

/* ---- snapshots: not needed where memory is the host's; here so that their use is tested on any machine
 * ---- */

struct fth_device_snapshot {
    size_t size_bytes;
    unsigned char bytes[];
};

static fth_status snapshot_open(fth_device *device, size_t size_bytes, fth_device_snapshot **snapshot)
{
    (void)device;
    fth_status status = fth_allocate(1, sizeof **snapshot + size_bytes, snapshot);
    if (status == FTH_OK)
        (*snapshot)->size_bytes = size_bytes;
    return status;
}

static fth_status snapshot_take(fth_device_snapshot *snapshot, const fth_extent *extents, size_t count)
{
    for (size_t i = 0; i < count; i++)
        memcpy(snapshot->bytes + extents[i].at, extents[i].from, extents[i].size_bytes);
    return FTH_OK;
}

static fth_status snapshot_fetch(fth_device_snapshot *snapshot, void *to_host)
{
    memcpy(to_host, snapshot->bytes, snapshot->size_bytes);
    return FTH_OK;
}

static void snapshot_close(fth_device_snapshot *snapshot)
{
    free(snapshot);
}

static const fth_backend_snapshots snapshots = {
    .open = snapshot_open,
    .take = snapshot_take,
    .fetch = snapshot_fetch,
    .close = snapshot_close,
};

static fth_status check_precision(fth_device *device, fth_precision precision)
{
    (void)device;
    if (precision != FTH_PRECISION_F32)
        return fth_fail(FTH_UNSUPPORTED, "the reference back end computes in f32 only; use --precision f32");
    return FTH_OK;
}

/* ---- layouts ---- */

/* Being plain, a layout is no more than the type. */
static fth_status describe_plain(fth_plan *plan, fth_value value)
{
    const fth_type type = fth_plan_type(plan, value);
    const size_t size_bytes = (size_t)fth_shape_count(&type.shape) * fth_dtype_size_bytes(type.dtype);
    return fth_plan_set_layout(plan, fth_plan_value_of(plan, value), &type, sizeof type, size_bytes);
}

/* ---- the table ---- */

/* Every kernel, by op: a new one is a file that defines it, and its row here. */
#define KERNELS(ROW)                                                                                                   \
    ROW(convolution, reference)                                                                                        \
    ROW(convolution_grad_input, reference)                                                                             \
    ROW(convolution_grad_weights, reference)                                                                           \
    ROW(linear, reference)                                                                                             \
    ROW(linear_grad_input, reference)                                                                                  \
    ROW(linear_grad_weights, reference)                                                                                \
    ROW(batch_norm, plain)                                                                                             \
    ROW(batch_norm_grad, plain)                                                                                        \
    ROW(relu, reference)                                                                                               \
    ROW(relu_grad, reference)                                                                                          \
    ROW(gelu, plain)                                                                                                   \
    ROW(gelu_grad, plain)                                                                                              \
    ROW(add, reference)                                                                                                \
    ROW(max_pool, reference)                                                                                           \
    ROW(max_pool_grad, reference)                                                                                      \
    ROW(average_pool, plain)                                                                                           \
    ROW(average_pool_grad, plain)                                                                                      \
    ROW(adaptive_average_pool, plain)                                                                                  \
    ROW(adaptive_average_pool_grad, plain)                                                                             \
    ROW(resize, plain)                                                                                                 \
    ROW(resize_grad, plain)                                                                                            \
    ROW(concat, plain)                                                                                                 \
    ROW(slice, plain)                                                                                                  \
    ROW(pad, plain)                                                                                                    \
    ROW(permute, plain)                                                                                                \
    ROW(gather, plain)                                                                                                 \
    ROW(gather_grad, plain)                                                                                            \
    ROW(reshape, plain)                                                                                                \
    ROW(dropout, plain)                                                                                                \
    ROW(softmax_cross_entropy, plain)                                                                                  \
    ROW(softmax_cross_entropy_grad, plain)                                                                             \
    ROW(squared_error, plain)                                                                                          \
    ROW(squared_error_grad, plain)                                                                                     \
    ROW(sigmoid_cross_entropy, plain)                                                                                  \
    ROW(sigmoid_cross_entropy_grad, plain)                                                                             \
    ROW(embedding, plain)                                                                                              \
    ROW(embedding_grad, plain)                                                                                         \
    ROW(layer_norm, plain)                                                                                             \
    ROW(layer_norm_grad, plain)                                                                                        \
    ROW(qkv_linear, plain)                                                                                             \
    ROW(qkv_linear_grad_input, plain)                                                                                  \
    ROW(qkv_linear_grad_weights, plain)                                                                                \
    ROW(attention, plain)                                                                                              \
    ROW(attention_grad, plain)                                                                                         \
    ROW(first_tokens, plain)                                                                                           \
    ROW(first_tokens_grad, plain)                                                                                      \
    ROW(matrix_product, plain)                                                                                         \
    ROW(gelu_tanh, plain)                                                                                              \
    ROW(gelu_tanh_grad, plain)                                                                                         \
    ROW(tanh, plain)                                                                                                   \
    ROW(tanh_grad, plain)                                                                                              \
    ROW(softmax, plain)                                                                                                \
    ROW(softmax_grad, plain)                                                                                           \
    ROW(normalize, plain)                                                                                              \
    ROW(normalize_grad, plain)                                                                                         \
    ROW(dot_product_attention, plain)                                                                                  \
    ROW(recurrent, plain)                                                                                              \
    ROW(recurrent_grad, plain)                                                                                         \
    ROW(dot_product_attention_grad, plain)                                                                             \
    ROW(pointwise, plain)                                                                                              \
    ROW(reduce, plain)

#define PREPARE(name, folder)                                                                                          \
    static fth_status prepare_##name(fth_plan *plan, const fth_node *node)                                             \
    {                                                                                                                  \
        return prepare(plan, node, &folder##_##name);                                                                  \
    }                                                                                                                  \
    static const fth_kernel kernel_##name = {&fth_op_##name, prepare_##name};

static fth_status prepare(fth_plan *plan, const fth_node *node, const plain_kernel *kernel)
{
    fth_plan_value inputs[FTH_MAX_STEP_VALUES];
    for (int i = 0; i < node->input_count && i < FTH_MAX_STEP_VALUES; i++)
        inputs[i] = fth_plan_value_of(plan, node->inputs[i]);
    return plain_add_step(plan, node, kernel, inputs);
}

KERNELS(PREPARE)

static const fth_kernel *const kernels[] = {
#define ROW(name, folder) &kernel_##name,
    KERNELS(ROW)
#undef ROW
        NULL,
};

const fth_backend fth_backend_plugin = {
    .abi = FTH_BACKEND_ABI,
    .name = "reference",
    .host_memory = true,
    .open = reference_open,
    .close = reference_close,
    .enter = plain_enter,
    .allocate = plain_allocate,
    .release = plain_release,
    .copy_in = plain_copy,
    .copy_out = plain_copy,
    .fill_zero = plain_fill_zero,
    .synchronize = plain_synchronize,
    .add = plain_add_vectors,
    .norm = plain_norm,
    .updates = plain_updates,
    .kernels = kernels,
    .check_precision = check_precision,
    .describe_plain = describe_plain,
    .snapshots = &snapshots,
};
