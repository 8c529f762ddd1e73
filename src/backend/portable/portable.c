/* The portable back end's table and its device: host memory, one thread. */
#include <stdio.h>
#include <stdlib.h>

#include "backend/portable/portable.h"

static fth_status open_device(const fth_device_options *options, fth_device **device)
{
    fth_status status = FTH_OK;
    portable_device *opened = NULL;
    const portable_level *level;

    (void)options; /* one thread, whatever was asked */
    FTH_TRY(portable_choose_level(&level));
    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    opened->base.backend = &fth_backend_portable;
    opened->base.threads = 1;
    opened->level = level;
    snprintf(opened->base.description, sizeof opened->base.description, "CPU, portable, %s, 1 thread", level->name);
    *device = &opened->base;
out:
    return status;
}

const portable_level *portable_get_level(const fth_plan *plan)
{
    return ((const portable_device *)fth_plan_device(plan))->level;
}

static void close_device(fth_device *device)
{
    free(device);
}

static fth_status check_precision(fth_device *device, fth_precision precision)
{
    (void)device;
    if (precision != FTH_PRECISION_F32)
        return fth_fail(FTH_UNSUPPORTED, "the portable back end computes in f32 only; use --precision f32");
    return FTH_OK;
}

/* ---- ops that need not be fast ---- */

#define PLAIN_KERNELS(ROW)                                                                                             \
    ROW(gelu)                                                                                                          \
    ROW(gelu_grad)                                                                                                     \
    ROW(average_pool)                                                                                                  \
    ROW(average_pool_grad)                                                                                             \
    ROW(adaptive_average_pool)                                                                                         \
    ROW(adaptive_average_pool_grad)                                                                                    \
    ROW(resize)                                                                                                        \
    ROW(resize_grad)                                                                                                   \
    ROW(concat)                                                                                                        \
    ROW(slice)                                                                                                         \
    ROW(pad)                                                                                                           \
    ROW(permute)                                                                                                       \
    ROW(gather)                                                                                                        \
    ROW(gather_grad)                                                                                                   \
    ROW(softmax_cross_entropy)                                                                                         \
    ROW(softmax_cross_entropy_grad)                                                                                    \
    ROW(squared_error)                                                                                                 \
    ROW(squared_error_grad)                                                                                            \
    ROW(sigmoid_cross_entropy)                                                                                         \
    ROW(sigmoid_cross_entropy_grad)                                                                                    \
    ROW(embedding)                                                                                                     \
    ROW(embedding_grad)                                                                                                \
    ROW(layer_norm)                                                                                                    \
    ROW(layer_norm_grad)                                                                                               \
    ROW(qkv_linear)                                                                                                    \
    ROW(qkv_linear_grad_input)                                                                                         \
    ROW(qkv_linear_grad_weights)                                                                                       \
    ROW(first_tokens)                                                                                                  \
    ROW(first_tokens_grad)                                                                                             \
    ROW(matrix_product)                                                                                                \
    ROW(gelu_tanh)                                                                                                     \
    ROW(gelu_tanh_grad)                                                                                                \
    ROW(tanh)                                                                                                          \
    ROW(tanh_grad)                                                                                                     \
    ROW(softmax)                                                                                                       \
    ROW(softmax_grad)                                                                                                  \
    ROW(normalize)                                                                                                     \
    ROW(normalize_grad)                                                                                                \
    ROW(pointwise)                                                                                                     \
    ROW(reduce)

#define DEFINE(name)                                                                                                   \
    static fth_status prepare_##name(fth_plan *plan, const fth_node *node)                                             \
    {                                                                                                                  \
        return portable_add_plain(plan, node, &plain_##name);                                                          \
    }                                                                                                                  \
    static const fth_kernel kernel_##name = {&fth_op_##name, prepare_##name};
PLAIN_KERNELS(DEFINE)

static const fth_kernel *const kernels[] = {
#define ROW(name) &kernel_##name,
    PLAIN_KERNELS(ROW)
#undef ROW
#define ROW(name) &portable_##name,
        PORTABLE_KERNELS(ROW)
#undef ROW
            NULL,
};

const fth_backend fth_backend_portable = {
    .abi = FTH_BACKEND_ABI,
    .name = "portable",
    .host_memory = true,
    .open = open_device,
    .close = close_device,
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
    .describe_plain = portable_describe_plain,
};
