/* Ops that move elements and compute nothing: concat, slice, pad, reshape. */
#include "backend/reference/reference.h"

#include <string.h>

/* y[:, offset : offset + Ci] = x_i, one after another along axis 1 */
static fth_status run_concat(const reference_call *call, const fth_run *run)
{
    (void)run;
    const reference_tensor *y = &call->outputs[0];
    const int64_t plane = reference_plane(&y->shape);
    int64_t offset = 0;
    for (int i = 0; i < call->input_count; i++) {
        const reference_tensor *x = &call->inputs[i];
        const int64_t channels = x->shape.dims[1];
        for (int64_t n = 0; n < y->shape.dims[0]; n++)
            memcpy(&y->floats[(n * y->shape.dims[1] + offset) * plane], &x->floats[n * channels * plane],
                   (size_t)(channels * plane) * sizeof(float));
        offset += channels;
    }
    return FTH_OK;
}

/* y = x[:, begin:end] */
static fth_status run_slice(const reference_call *call, const fth_run *run)
{
    (void)run;
    const fth_slice_attributes *attributes = call->attributes;
    const reference_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const int64_t plane = reference_plane(&y->shape), channels = attributes->end - attributes->begin;
    for (int64_t n = 0; n < y->shape.dims[0]; n++)
        memcpy(&y->floats[n * channels * plane], &x->floats[(n * x->shape.dims[1] + attributes->begin) * plane],
               (size_t)(channels * plane) * sizeof(float));
    return FTH_OK;
}

/* y[:, before : before + C] = x, and 0 elsewhere */
static fth_status run_pad(const reference_call *call, const fth_run *run)
{
    (void)run;
    const fth_pad_attributes *attributes = call->attributes;
    const reference_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const int64_t plane = reference_plane(&y->shape), channels = x->shape.dims[1];
    memset(y->floats, 0, (size_t)y->count * sizeof(float));
    for (int64_t n = 0; n < y->shape.dims[0]; n++)
        memcpy(&y->floats[(n * y->shape.dims[1] + attributes->before) * plane], &x->floats[n * channels * plane],
               (size_t)(channels * plane) * sizeof(float));
    return FTH_OK;
}

static fth_status run_reshape(const reference_call *call, const fth_run *run)
{
    (void)run;
    memcpy(call->outputs[0].floats, call->inputs[0].floats, (size_t)call->outputs[0].count * sizeof(float));
    return FTH_OK;
}

const reference_kernel reference_concat = {{&fth_op_concat, reference_prepare}, run_concat, 0};
const reference_kernel reference_slice = {{&fth_op_slice, reference_prepare}, run_slice, 0};
const reference_kernel reference_pad = {{&fth_op_pad, reference_prepare}, run_pad, 0};
const reference_kernel reference_reshape = {{&fth_op_reshape, reference_prepare}, run_reshape, 0};
