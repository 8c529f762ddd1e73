/* Max pooling in the layouts that convolutions write: blocks of channels, channels last, or plain.
 * oneDNN's kernels skip NaN; here the first NaN of a window wins, as in PyTorch. The places of the
 * maxima are written as oneDNN writes them (the number of the cell in its window, as one or four
 * bytes), so its backward pass can be used.
 *
 * Lanes are adjacent channels, which are contiguous in blocks or channels last. On one Sapphire
 * Rapids core, 64 images of 16×10×10 by 2×2 take 27 µs (oneDNN 187), and 16 of 64×32×32 by 3×3,
 * stride 2, 0.9 ms (oneDNN 2.0). */
#include "backend/cpu/nan_max_pool.h"

/* Values: x, places of the maxima or none, y. */
static fth_status run_pool(const cpu_call *call, const fth_run *run)
{
    (void)run;
    nan_max_pool p;
    CPU_GET_BLOCK(call, &p);
    const char *x = call->data[0];
    char *where = call->data[1], *y = call->data[2];
    const nan_max_pool_kernels *kernels = call->kernels;
    const int64_t item = nan_max_pool_item_bytes(&p), place = nan_max_pool_place_bytes(&p);
#pragma omp parallel for collapse(3) schedule(static) if (p.batch * p.groups * p.channels * p.in[0] * p.in[1] > 1 << 15)
    for (int64_t n = 0; n < p.batch; n++) {
        for (int32_t g = 0; g < p.groups; g++) {
            for (int32_t row = 0; row < p.out[0]; row++) {
                const int64_t to = n * p.y_image + g * p.y_group + row * p.y_row;
                kernels->pool_row(&p, row, x + (n * p.x_image + g * p.x_group) * item, y + to * item,
                                  where ? where + to * place : NULL);
            }
        }
    }
    return FTH_OK;
}

static nan_max_pool describe(const fth_pool_attributes *a, const cpu_format *x, const cpu_format *y, bool wide)
{
    const int64_t *from = x->strides, *to = y->strides;
    /* Padded blocks of channels; or channels last, which are one group; or plain, where each
     * channel is a group. */
    const int64_t block = x->block > 1 ? x->block : from[1] == 1 ? x->dims[1] : 1;
    nan_max_pool p = {.groups = (int32_t)(x->padded_dims[1] / block),
                      .channels = (int32_t)block,
                      .batch = x->dims[0],
                      .x_image = from[0],
                      .x_group = from[1],
                      .x_row = from[2],
                      .x_column = from[3],
                      .y_image = to[0],
                      .y_group = to[1],
                      .y_row = to[2],
                      .y_column = to[3],
                      .bf16 = x->data_type == dnnl_bf16,
                      .wide = wide};
    for (int i = 0; i < 2; i++) {
        p.kernel[i] = a->kernel[i];
        p.stride[i] = a->stride[i];
        p.padding[i] = a->padding[i];
        p.in[i] = (int32_t)x->dims[2 + i];
        p.out[i] = (int32_t)y->dims[2 + i];
    }
    return p;
}

fth_status cpu_nan_max_pool(fth_plan *plan, const fth_node *node, const cpu_format *y, const cpu_format *where)
{
    fth_status status = FTH_OK;
    const cpu_format x = *cpu_layout(plan, fth_plan_value_of(plan, node->inputs[0]));
    fth_plan_value target;
    if (where)
        FTH_TRY(cpu_set_layout(plan, fth_plan_value_of(plan, node->outputs[1]), where));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), y, &target));
    cpu_call call = {.run = run_pool,
                     .kernels = cpu_level_of(plan)->nan_max_pool,
                     .values = {fth_plan_value_of(plan, node->inputs[0]),
                                where ? fth_plan_value_of(plan, node->outputs[1]) : FTH_NO_PLAN_VALUE, target},
                     .value_count = 3,
                     .write_count = 2};
    const nan_max_pool p = describe(node->attributes, &x, y, where && where->data_type != dnnl_u8);
    CPU_SET_BLOCK(&call, &p);
    FTH_TRY(cpu_add_call(plan, "max_pool", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), target));
out:
    return status;
}
