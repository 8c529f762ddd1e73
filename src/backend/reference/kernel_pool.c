/* Pooling over H and W: maximum, average, and average to a given size. */
#include "backend/reference/reference.h"

#include <math.h>
#include <string.h>

/* Rows and columns [begin, end) of the input under one output element. */
typedef struct window {
    int64_t begin[2], end[2];
} window;

static int64_t window_area(const window *at)
{
    return (at->end[0] - at->begin[0]) * (at->end[1] - at->begin[1]);
}

/* The window of output (oh, ow), cut to the input's `size`. */
static window pool_window(const fth_pool_attributes *attributes, const int64_t size[2], int64_t oh, int64_t ow)
{
    window cut;
    const int64_t out[2] = {oh, ow};
    for (int axis = 0; axis < 2; axis++) {
        int64_t begin = out[axis] * attributes->stride[axis] - attributes->padding[axis];
        int64_t end = begin + attributes->kernel[axis];
        cut.begin[axis] = begin < 0 ? 0 : begin;
        cut.end[axis] = end > size[axis] ? size[axis] : end;
    }
    return cut;
}

/* ---- maximum ---- */

/* y[n,c,oh,ow] = max over the window of x[n,c,h,w];  where = h * W + w of the first maximum; NaN wins over numbers. */
static fth_status run_max_pool(const reference_call *call, const fth_run *run)
{
    (void)run;
    const reference_tensor *x = &call->inputs[0], *y = &call->outputs[0], *where = &call->outputs[1];
    const int64_t width = x->shape.dims[3];
    for (int64_t n = 0; n < y->shape.dims[0]; n++)
        for (int64_t c = 0; c < y->shape.dims[1]; c++)
            for (int64_t oh = 0; oh < y->shape.dims[2]; oh++)
                for (int64_t ow = 0; ow < y->shape.dims[3]; ow++) {
                    window at = pool_window(call->attributes, &x->shape.dims[2], oh, ow);
                    float best = -INFINITY;
                    int64_t best_at = at.begin[0] * width + at.begin[1];
                    for (int64_t h = at.begin[0]; h < at.end[0]; h++)
                        for (int64_t w = at.begin[1]; w < at.end[1]; w++) {
                            float value = x->floats[reference_at(&x->shape, n, c, h, w)];
                            if (value > best || (isnan(value) && !isnan(best))) {
                                best = value;
                                best_at = h * width + w;
                            }
                        }
                    y->floats[reference_at(&y->shape, n, c, oh, ow)] = best;
                    where->ints[reference_at(&y->shape, n, c, oh, ow)] = (int32_t)best_at;
                }
    return FTH_OK;
}

/* dx[n,c,where] += dy[n,c,oh,ow] */
static fth_status run_max_pool_grad(const reference_call *call, const fth_run *run)
{
    (void)run;
    const reference_tensor *dy = &call->inputs[0], *where = &call->inputs[1], *dx = &call->outputs[0];
    const int64_t plane = reference_plane(&dy->shape), x_plane = reference_plane(&dx->shape);
    memset(dx->floats, 0, (size_t)dx->count * sizeof(float));
    for (int64_t nc = 0; nc < dy->shape.dims[0] * dy->shape.dims[1]; nc++)
        for (int64_t i = 0; i < plane; i++)
            dx->floats[nc * x_plane + where->ints[nc * plane + i]] += dy->floats[nc * plane + i];
    return FTH_OK;
}

/* ---- average ---- */

/* What the sum over a window is divided by. With count_padding the padding counts, but, as in PyTorch, not what lies
 * beyond it on the far side. */
static double divisor(const fth_pool_attributes *attributes, const int64_t size[2], const window *at, int64_t oh,
                      int64_t ow)
{
    if (!attributes->count_padding)
        return (double)window_area(at);
    const int64_t out[2] = {oh, ow};
    int64_t area = 1;
    for (int axis = 0; axis < 2; axis++) {
        int64_t begin = out[axis] * attributes->stride[axis] - attributes->padding[axis];
        int64_t end = begin + attributes->kernel[axis], limit = size[axis] + attributes->padding[axis];
        area *= (end > limit ? limit : end) - begin;
    }
    return (double)area;
}

static window adaptive_window(const fth_shape *x, const fth_shape *y, int64_t oh, int64_t ow)
{
    window at;
    const int64_t out[2] = {oh, ow};
    for (int axis = 0; axis < 2; axis++) {
        int64_t in_size = x->dims[2 + axis], out_size = y->dims[2 + axis];
        at.begin[axis] = out[axis] * in_size / out_size;                      /* floor(i * in / out) */
        at.end[axis] = ((out[axis] + 1) * in_size + out_size - 1) / out_size; /* ceil((i + 1) * in / out) */
    }
    return at;
}

/* The window under an output element of an average, and what its sum is divided by. `pool` is NULL if adaptive. */
static window average_window(const fth_pool_attributes *pool, const fth_shape *x, const fth_shape *y, int64_t oh,
                             int64_t ow, double *count)
{
    window at = pool != NULL ? pool_window(pool, &x->dims[2], oh, ow) : adaptive_window(x, y, oh, ow);
    *count = pool != NULL ? divisor(pool, &x->dims[2], &at, oh, ow) : (double)window_area(&at);
    return at;
}

/* y[n,c,oh,ow] = sum over the window of x[n,c,h,w] / count */
static fth_status average(const fth_pool_attributes *pool, const reference_tensor *x, const reference_tensor *y)
{
    for (int64_t n = 0; n < y->shape.dims[0]; n++)
        for (int64_t c = 0; c < y->shape.dims[1]; c++)
            for (int64_t oh = 0; oh < y->shape.dims[2]; oh++)
                for (int64_t ow = 0; ow < y->shape.dims[3]; ow++) {
                    double count, sum = 0;
                    window at = average_window(pool, &x->shape, &y->shape, oh, ow, &count);
                    for (int64_t h = at.begin[0]; h < at.end[0]; h++)
                        for (int64_t w = at.begin[1]; w < at.end[1]; w++)
                            sum += x->floats[reference_at(&x->shape, n, c, h, w)];
                    y->floats[reference_at(&y->shape, n, c, oh, ow)] = (float)(sum / count);
                }
    return FTH_OK;
}

/* dx[n,c,h,w] += dy[n,c,oh,ow] / count for every (h, w) in the window of (oh, ow) */
static fth_status average_grad(const fth_pool_attributes *pool, const reference_tensor *dy, const reference_tensor *dx)
{
    memset(dx->floats, 0, (size_t)dx->count * sizeof(float));
    for (int64_t n = 0; n < dy->shape.dims[0]; n++)
        for (int64_t c = 0; c < dy->shape.dims[1]; c++)
            for (int64_t oh = 0; oh < dy->shape.dims[2]; oh++)
                for (int64_t ow = 0; ow < dy->shape.dims[3]; ow++) {
                    double count;
                    window at = average_window(pool, &dx->shape, &dy->shape, oh, ow, &count);
                    float share = (float)(dy->floats[reference_at(&dy->shape, n, c, oh, ow)] / count);
                    for (int64_t h = at.begin[0]; h < at.end[0]; h++)
                        for (int64_t w = at.begin[1]; w < at.end[1]; w++)
                            dx->floats[reference_at(&dx->shape, n, c, h, w)] += share;
                }
    return FTH_OK;
}

static fth_status run_average_pool(const reference_call *call, const fth_run *run)
{
    (void)run;
    return average(call->attributes, &call->inputs[0], &call->outputs[0]);
}

static fth_status run_average_pool_grad(const reference_call *call, const fth_run *run)
{
    (void)run;
    return average_grad(call->attributes, &call->inputs[0], &call->outputs[0]);
}

static fth_status run_adaptive(const reference_call *call, const fth_run *run)
{
    (void)run;
    return average(NULL, &call->inputs[0], &call->outputs[0]);
}

static fth_status run_adaptive_grad(const reference_call *call, const fth_run *run)
{
    (void)run;
    return average_grad(NULL, &call->inputs[0], &call->outputs[0]);
}

const reference_kernel reference_max_pool = {{&fth_op_max_pool, reference_prepare}, run_max_pool, 0};
const reference_kernel reference_max_pool_grad = {{&fth_op_max_pool_grad, reference_prepare}, run_max_pool_grad, 0};
const reference_kernel reference_average_pool = {{&fth_op_average_pool, reference_prepare}, run_average_pool, 0};
const reference_kernel reference_average_pool_grad = {
    {&fth_op_average_pool_grad, reference_prepare}, run_average_pool_grad, 0};
const reference_kernel reference_adaptive_average_pool = {
    {&fth_op_adaptive_average_pool, reference_prepare}, run_adaptive, 0};
const reference_kernel reference_adaptive_average_pool_grad = {
    {&fth_op_adaptive_average_pool_grad, reference_prepare}, run_adaptive_grad, 0};
