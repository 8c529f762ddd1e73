/* 2×2 max pooling of plain f32 images, as after a narrow convolution. oneDNN's kernels for this
 * layout move data back and forth: on 64 images of 6×28×28 on one Zen 4 core they took 177 and 215
 * µs, and these take a sixth of that (bench/RESULTS.md). `where` has one byte per output: which of
 * the four cells won. */
#include "backend/cpu/plain_max_pool.h"
#include "backend/cpu/cpu_internal.h"

/* Sizes: planes, input height and width, output height and width. Values: x, where, y. */
static fth_status run_pool(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const plain_max_pool_kernels *kernels = call->kernels;
    const float *x = call->data[0];
    uint8_t *where = call->data[1];
    float *y = call->data[2];
    const int64_t height = call->sizes[1], width = call->sizes[2], out_height = call->sizes[3],
                  out_width = call->sizes[4];
#pragma omp parallel for schedule(static) if (call->sizes[0] * height * width > 1 << 15)
    for (int64_t p = 0; p < call->sizes[0]; p++) {
        for (int64_t r = 0; r < out_height; r++) {
            const float *top = x + (p * height + 2 * r) * width;
            kernels->pool_row(top, top + width, y + (p * out_height + r) * out_width,
                              where + (p * out_height + r) * out_width, out_width);
        }
    }
    return FTH_OK;
}

/* Values: dy, where, dx. */
static fth_status run_unpool(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const plain_max_pool_kernels *kernels = call->kernels;
    const float *dy = call->data[0];
    const uint8_t *where = call->data[1];
    float *dx = call->data[2];
    const int64_t height = call->sizes[1], width = call->sizes[2], out_height = call->sizes[3],
                  out_width = call->sizes[4];
#pragma omp parallel for schedule(static) if (call->sizes[0] * height * width > 1 << 15)
    for (int64_t p = 0; p < call->sizes[0]; p++) {
        float *plane = dx + p * height * width;
        for (int64_t r = 0; r < out_height; r++) {
            float *top = plane + 2 * r * width;
            kernels->unpool_row(dy + (p * out_height + r) * out_width, where + (p * out_height + r) * out_width, top,
                                top + width, out_width);
            if (width % 2) /* not covered by any window */
                top[width - 1] = top[2 * width - 1] = 0;
        }
        for (int64_t w = 0; height % 2 && w < width; w++)
            plane[(height - 1) * width + w] = 0;
    }
    return FTH_OK;
}

bool cpu_plain_max_pool_fits(const fth_pool_attributes *a, const cpu_format *x)
{
    return x->data_type == dnnl_f32 && a->kernel[0] == 2 && a->kernel[1] == 2 && a->stride[0] == 2 &&
           a->stride[1] == 2 && a->padding[0] == 0 && a->padding[1] == 0 && !a->ceil && cpu_is_plain(x);
}

bool cpu_plain_max_pool_made(const cpu_format *where)
{
    return where->ndims == 1;
}

fth_status cpu_plain_max_pool(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    fth_shape x = fth_plan_type(plan, node->inputs[0]).shape, y = fth_plan_type(plan, node->outputs[0]).shape;
    const cpu_format layout = cpu_plain(&y, dnnl_f32);
    fth_shape bytes = FTH_SHAPE(fth_shape_count(&y));
    const cpu_format where = cpu_plain(&bytes, dnnl_u8);
    fth_plan_value target;
    FTH_TRY(cpu_set_layout(plan, fth_plan_value_of(plan, node->outputs[1]), &where));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &target));
    const cpu_call call = {
        .run = run_pool,
        .kernels = cpu_level_of(plan)->plain_max_pool,
        .values = {fth_plan_value_of(plan, node->inputs[0]), fth_plan_value_of(plan, node->outputs[1]), target},
        .value_count = 3,
        .write_count = 2,
        .sizes = {x.dims[0] * x.dims[1], x.dims[2], x.dims[3], y.dims[2], y.dims[3]}};
    FTH_TRY(cpu_add_call(plan, "max_pool plain", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), target));
out:
    return status;
}

fth_status cpu_plain_max_pool_grad(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    fth_shape x = fth_plan_type(plan, node->outputs[0]).shape, y = fth_plan_type(plan, node->inputs[0]).shape;
    const cpu_format layout = cpu_plain(&x, dnnl_f32);
    fth_plan_value dy, target;
    FTH_TRY(cpu_read_plain(plan, node->inputs[0], dnnl_f32, &dy));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &target));
    const cpu_call call = {.run = run_unpool,
                           .kernels = cpu_level_of(plan)->plain_max_pool,
                           .values = {dy, fth_plan_value_of(plan, node->inputs[1]), target},
                           .value_count = 3,
                           .write_count = 1,
                           .sizes = {x.dims[0] * x.dims[1], x.dims[2], x.dims[3], y.dims[2], y.dims[3]}};
    FTH_TRY(cpu_add_call(plan, "max_pool_grad plain", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), target));
out:
    return status;
}
