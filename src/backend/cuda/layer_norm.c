/* Layer norm with the dropout and the sum before it, in one pass (layer_norm.cu). The gradient adds
 * two terms of what flows back on the way, and sums its result for the bias of the layer before,
 * where there is one (elementwise.c). */
#include "backend/cuda/kernel_list.h"
#include "backend/cuda/step.h"

enum { X, SCALE, SHIFT, RESIDUAL };

static cuda_row_norm describe(const fth_plan *plan, const fth_layer_norm_attributes *a, const cuda_layout *layout,
                              fth_value rows)
{
    cuda_row_norm norm = {.type = layout->type,
                          .rows = layout->n,
                          .features = layout->c,
                          .epsilon = a->epsilon,
                          .run = cuda_device_of(plan)->run_values,
                          .id = a->dropout,
                          .origin = cuda_row_origin_of(plan, rows)};
    if (fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN && a->probability > 0) {
        norm.threshold = fth_dropout_threshold(a->probability);
        norm.dropout_scale = 1 / (1 - a->probability);
    }
    return norm;
}

/* A vector of parameters, as it lies in the flat one. */
static fth_status read_vector(fth_plan *plan, fth_value value, fth_plan_value *as)
{
    const fth_shape shape = fth_plan_type(plan, value).shape;
    const cuda_layout plain = cuda_plain(&shape, CUDA_TYPE_F32);
    return cuda_read_as(plan, fth_plan_value_of(plan, value), &plain, as);
}

static cudaError_t run_forward(const cuda_call *call)
{
    cuda_row_norm norm = call->row_norm;
    norm.scale = call->data[2];
    norm.shift = call->data[3];
    return cuda_launch_layer_norm(&call->device->launch, &norm, call->data[0], call->data[1], call->data[4],
                                  call->data[5], call->data[6]);
}

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_layer_norm_attributes *a = node->attributes;
    const fth_value y = node->outputs[0], sum = node->outputs[1], statistics = node->outputs[2];
    const cuda_layout layout = cuda_standard(plan, y);
    const bool keeps_sum = fth_plan_is_used(plan, sum);
    fth_plan_value x, scale, shift, residual = FTH_NO_PLAN_VALUE, result, kept = FTH_NO_PLAN_VALUE,
                                    numbers = FTH_NO_PLAN_VALUE;
    FTH_TRY(cuda_read(plan, node->inputs[X], &x));
    FTH_TRY(read_vector(plan, node->inputs[SCALE], &scale));
    FTH_TRY(read_vector(plan, node->inputs[SHIFT], &shift));
    if (a->residual)
        FTH_TRY(cuda_read(plan, node->inputs[RESIDUAL], &residual));
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, y), &layout, &result));
    if (keeps_sum)
        FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, sum), &layout, &kept));
    fth_plan_may_overwrite(plan, keeps_sum ? kept : result, x);
    if (fth_plan_is_used(plan, statistics)) {
        FTH_TRY(cuda_fix_plain(plan, statistics));
        numbers = fth_plan_value_of(plan, statistics);
    }
    cuda_call call = {.run = run_forward,
                      .values = {x, residual, scale, shift, result, kept, numbers},
                      .value_count = 7,
                      .write_count = 3};
    call.row_norm = describe(plan, a, &layout, node->inputs[X]);
    FTH_TRY(cuda_add_call(plan, "layer_norm", &call));
    if (keeps_sum)
        FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, sum), kept));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, y), result));
out:
    return status;
}

static cudaError_t run_gradient(const cuda_call *call)
{
    cuda_row_norm norm = call->row_norm;
    norm.scale = call->data[3];
    return cuda_launch_layer_norm_grad(&call->device->launch, &norm, call->data[0], call->data[4], call->data[1],
                                       call->data[2], call->data[5], call->data[6], call->data[7], call->data[8],
                                       call->data[9], call->data[10]);
}

/* `gradient`, a vector of parameters', or none if it is not wanted. */
static fth_status write_vector(fth_plan *plan, fth_value gradient, fth_plan_value *as)
{
    *as = FTH_NO_PLAN_VALUE;
    if (!fth_plan_is_used(plan, gradient))
        return FTH_OK;
    *as = fth_plan_value_of(plan, gradient);
    return cuda_fix_plain(plan, gradient);
}

static fth_status prepare_gradient(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_value sum = node->inputs[0], dy = node->inputs[1], dx = node->outputs[0], dresidual = node->outputs[3];
    const cuda_layout layout = cuda_standard(plan, dx);
    const fth_node *taker = cuda_bias_taker(plan, dx);
    fth_value terms[2] = {dy, FTH_NO_VALUE};
    fth_plan_value kept, first, second = FTH_NO_PLAN_VALUE, scale,
                                statistics = fth_plan_value_of(plan, node->inputs[3]);
    fth_plan_value before, after = FTH_NO_PLAN_VALUE, dscale, dshift, dbias = FTH_NO_PLAN_VALUE, scratch;
    const bool two = cuda_is_deferred_sum(plan, dy, terms);
    FTH_TRY(cuda_read(plan, sum, &kept));
    FTH_TRY(cuda_read(plan, terms[0], &first));
    if (two)
        FTH_TRY(cuda_read(plan, terms[1], &second));
    FTH_TRY(read_vector(plan, node->inputs[2], &scale));
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, dx), &layout, &before));
    fth_plan_may_overwrite(plan, before, kept);
    if (fth_plan_is_used(plan, dresidual)) {
        FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, dresidual), &layout, &after));
        if (!two)
            fth_plan_may_overwrite(plan, after, first);
    }
    FTH_TRY(write_vector(plan, node->outputs[1], &dscale));
    FTH_TRY(write_vector(plan, node->outputs[2], &dshift));
    if (taker)
        FTH_TRY(write_vector(plan, taker->outputs[1], &dbias));
    FTH_TRY(cuda_add_scratch(plan, cuda_layer_norm_scratch_bytes(&cuda_device_of(plan)->launch, layout.n, layout.c),
                             &scratch));
    cuda_call call = {.run = run_gradient,
                      .values = {kept, first, second, scale, statistics, before, after, dscale, dshift, dbias, scratch},
                      .value_count = 11,
                      .write_count = 6};
    call.row_norm = describe(plan, node->attributes, &layout, sum);
    FTH_TRY(cuda_add_call(plan, taker ? "layer_norm_grad + bias_grad" : "layer_norm_grad", &call));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, dx), before));
    if (fth_plan_value_exists(after))
        FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, dresidual), after));
out:
    return status;
}

const fth_kernel cuda_layer_norm = {&fth_op_layer_norm, prepare_forward};
const fth_kernel cuda_layer_norm_grad = {&fth_op_layer_norm_grad, prepare_gradient};
