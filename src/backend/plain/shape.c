/* Ops that move elements and compute nothing: concat, slice, pad, reshape. */
#include "backend/plain/plain.h"

#include <string.h>

/* y[:, offset : offset + Ci] = x_i, one after another along axis 1 */
static fth_status run_concat(const plain_call *call, const fth_run *run)
{
    (void)run;
    const plain_tensor *y = &call->outputs[0];
    const int64_t plane = plain_plane(&y->shape);
    int64_t offset = 0;
    for (int i = 0; i < call->input_count; i++) {
        const plain_tensor *x = &call->inputs[i];
        const int64_t channels = x->shape.dims[1];
        for (int64_t n = 0; n < y->shape.dims[0]; n++)
            memcpy(&y->floats[(n * y->shape.dims[1] + offset) * plane], &x->floats[n * channels * plane],
                   (size_t)(channels * plane) * sizeof(float));
        offset += channels;
    }
    return FTH_OK;
}

/* y = x[:, begin:end] */
static fth_status run_slice(const plain_call *call, const fth_run *run)
{
    (void)run;
    const fth_slice_attributes *attributes = call->attributes;
    const plain_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const int64_t plane = plain_plane(&y->shape), channels = attributes->end - attributes->begin;
    for (int64_t n = 0; n < y->shape.dims[0]; n++)
        memcpy(&y->floats[n * channels * plane], &x->floats[(n * x->shape.dims[1] + attributes->begin) * plane],
               (size_t)(channels * plane) * sizeof(float));
    return FTH_OK;
}

/* y[:, before : before + C] = x, and 0 elsewhere */
static fth_status run_pad(const plain_call *call, const fth_run *run)
{
    (void)run;
    const fth_pad_attributes *attributes = call->attributes;
    const plain_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const int64_t plane = plain_plane(&y->shape), channels = x->shape.dims[1];
    memset(y->floats, 0, (size_t)y->count * sizeof(float));
    for (int64_t n = 0; n < y->shape.dims[0]; n++)
        memcpy(&y->floats[(n * y->shape.dims[1] + attributes->before) * plane], &x->floats[n * channels * plane],
               (size_t)(channels * plane) * sizeof(float));
    return FTH_OK;
}

static fth_status run_reshape(const plain_call *call, const fth_run *run)
{
    (void)run;
    memcpy(call->outputs[0].floats, call->inputs[0].floats, (size_t)call->outputs[0].count * sizeof(float));
    return FTH_OK;
}

const plain_kernel plain_concat = {&fth_op_concat, run_concat, 0};
const plain_kernel plain_slice = {&fth_op_slice, run_slice, 0};
const plain_kernel plain_pad = {&fth_op_pad, run_pad, 0};
const plain_kernel plain_reshape = {&fth_op_reshape, run_reshape, 0};
