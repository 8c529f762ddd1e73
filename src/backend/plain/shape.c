/* Ops that move elements and compute nothing: concat, slice, pad, permute, gather, reshape.
 *
 * Each walks the elements of its output in order and says where each comes from. Floats and
 * integers have four bytes alike. */
#include "backend/plain/plain.h"

#include <string.h>

enum { ITEM = 4 };

static void copy_items(const plain_tensor *y, int64_t to, const plain_tensor *x, int64_t from, int64_t count)
{
    memcpy((char *)y->data + to * ITEM, (const char *)x->data + from * ITEM, (size_t)(count * ITEM));
}

/* A tensor as (outer, dims[axis], inner). */
typedef struct parts {
    int64_t outer, size, inner;
} parts;

static parts parts_of(const fth_shape *shape, int axis)
{
    parts p = {1, shape->dims[axis], 1};
    for (int i = 0; i < shape->rank; i++) {
        p.outer *= i < axis ? shape->dims[i] : 1;
        p.inner *= i > axis ? shape->dims[i] : 1;
    }
    return p;
}

/* Entry `from` of x's axis becomes entry `to` of y's. */
static void copy_entry(const plain_tensor *y, const plain_tensor *x, int axis, int64_t outer, int64_t to, int64_t from)
{
    const parts in = parts_of(&x->shape, axis), out = parts_of(&y->shape, axis);
    copy_items(y, (outer * out.size + to) * out.inner, x, (outer * in.size + from) * in.inner, in.inner);
}

/* y[offset : offset + size of x_i] = x_i, one after another */
static fth_status run_concat(const plain_call *call, const fth_run *run)
{
    (void)run;
    const int axis = ((const fth_concat_attributes *)call->attributes)->axis;
    const plain_tensor *y = &call->outputs[0];
    const parts out = parts_of(&y->shape, axis);
    int64_t offset = 0;
    for (int i = 0; i < call->input_count; i++) {
        const plain_tensor *x = &call->inputs[i];
        const parts in = parts_of(&x->shape, axis);
        for (int64_t n = 0; n < in.outer; n++)
            copy_items(y, (n * out.size + offset) * out.inner, x, n * in.size * in.inner, in.size * in.inner);
        offset += in.size;
    }
    return FTH_OK;
}

/* y[i] = x[begin + i * step] */
static fth_status run_slice(const plain_call *call, const fth_run *run)
{
    (void)run;
    const fth_slice_attributes *a = call->attributes;
    const plain_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const parts out = parts_of(&y->shape, a->axis);
    for (int64_t n = 0; n < out.outer; n++)
        for (int64_t i = 0; i < out.size; i++)
            copy_entry(y, x, a->axis, n, i, a->begin + i * a->step);
    return FTH_OK;
}

/* y[before + i * (between + 1)] = x[i], and the value elsewhere */
static fth_status run_pad(const plain_call *call, const fth_run *run)
{
    (void)run;
    const fth_pad_attributes *a = call->attributes;
    const plain_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const parts in = parts_of(&x->shape, a->axis);
    for (int64_t i = 0; i < y->count; i++) {
        if (y->dtype == FTH_I32)
            y->ints[i] = (int32_t)a->value;
        else
            y->floats[i] = a->value;
    }
    for (int64_t n = 0; n < in.outer; n++)
        for (int64_t i = 0; i < in.size; i++)
            copy_entry(y, x, a->axis, n, a->before + i * (a->between + 1), i);
    return FTH_OK;
}

/* y[i, j, ...] = x at the same place, axis by axis */
static fth_status run_permute(const plain_call *call, const fth_run *run)
{
    (void)run;
    const fth_permute_attributes *a = call->attributes;
    const plain_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const int rank = y->shape.rank;
    int64_t strides[FTH_MAX_RANK], steps[FTH_MAX_RANK], at[FTH_MAX_RANK] = {0}, from = 0;
    for (int i = rank - 1; i >= 0; i--)
        strides[i] = i == rank - 1 ? 1 : strides[i + 1] * x->shape.dims[i + 1];
    for (int i = 0; i < rank; i++)
        steps[i] = strides[a->axes[i]];
    for (int64_t to = 0; to < y->count; to++) {
        copy_items(y, to, x, from, 1);
        for (int i = rank - 1; i >= 0; i--) { /* the next place in y */
            from += steps[i];
            if (++at[i] < y->shape.dims[i])
                break;
            from -= at[i] * steps[i];
            at[i] = 0;
        }
    }
    return FTH_OK;
}

/* y[k] = x[indices[k]] */
static fth_status run_gather(const plain_call *call, const fth_run *run)
{
    (void)run;
    const fth_gather_attributes *a = call->attributes;
    const plain_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const parts out = parts_of(&y->shape, a->axis);
    for (int64_t n = 0; n < out.outer; n++)
        for (int64_t k = 0; k < out.size; k++)
            copy_entry(y, x, a->axis, n, k, call->inputs[1].ints[k]);
    return FTH_OK;
}

/* dx[i] = sum of dy[order[e]] over ends[i - 1] <= e < ends[i] */
static fth_status run_gather_grad(const plain_call *call, const fth_run *run)
{
    (void)run;
    const fth_gather_attributes *a = call->attributes;
    const plain_tensor *dy = &call->inputs[0], *dx = &call->outputs[0];
    const int32_t *order = call->inputs[1].ints, *ends = call->inputs[2].ints;
    const parts in = parts_of(&dy->shape, a->axis), out = parts_of(&dx->shape, a->axis);
    for (int64_t n = 0; n < out.outer; n++)
        for (int64_t i = 0; i < out.size; i++)
            for (int64_t j = 0; j < out.inner; j++) {
                double sum = 0;
                for (int32_t e = i == 0 ? 0 : ends[i - 1]; e < ends[i]; e++)
                    sum += dy->floats[(n * in.size + order[e]) * in.inner + j];
                dx->floats[(n * out.size + i) * out.inner + j] = (float)sum;
            }
    return FTH_OK;
}

static fth_status run_reshape(const plain_call *call, const fth_run *run)
{
    (void)run;
    copy_items(&call->outputs[0], 0, &call->inputs[0], 0, call->outputs[0].count);
    return FTH_OK;
}

const plain_kernel plain_concat = {&fth_op_concat, run_concat, 0};
const plain_kernel plain_slice = {&fth_op_slice, run_slice, 0};
const plain_kernel plain_pad = {&fth_op_pad, run_pad, 0};
const plain_kernel plain_permute = {&fth_op_permute, run_permute, 0};
const plain_kernel plain_gather = {&fth_op_gather, run_gather, 0};
const plain_kernel plain_gather_grad = {&fth_op_gather_grad, run_gather_grad, 0};
const plain_kernel plain_reshape = {&fth_op_reshape, run_reshape, 0};
