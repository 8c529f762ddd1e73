/* Average pooling over H and W, and to a given size. */
#include "backend/plain/plain.h"

#include <string.h>

#include "backend/plain/window.h"

/* What the sum over a window is divided by. With count_padding the padding counts, but, as in
 * PyTorch, not what lies beyond it on the far side. */
static double divisor(const fth_pool_attributes *attributes, const int64_t size[2], const plain_window *at, int64_t oh,
                      int64_t ow)
{
    if (!attributes->count_padding)
        return (double)plain_window_area(at);
    const int64_t out[2] = {oh, ow};
    int64_t area = 1;
    for (int axis = 0; axis < 2; axis++) {
        int64_t begin = out[axis] * attributes->stride[axis] - attributes->padding[axis];
        int64_t end = begin + attributes->kernel[axis], limit = size[axis] + attributes->padding[axis];
        area *= (end > limit ? limit : end) - begin;
    }
    return (double)area;
}

static plain_window adaptive_window(const fth_shape *x, const fth_shape *y, int64_t oh, int64_t ow)
{
    plain_window at;
    const int64_t out[2] = {oh, ow};
    for (int axis = 0; axis < 2; axis++) {
        int64_t in_size = x->dims[2 + axis], out_size = y->dims[2 + axis];
        at.begin[axis] = out[axis] * in_size / out_size;                      /* floor(i * in / out) */
        at.end[axis] = ((out[axis] + 1) * in_size + out_size - 1) / out_size; /* ceil((i + 1) * in / out) */
    }
    return at;
}

/* The window under an output element of an average, and what its sum is divided by. `pool` is NULL
 * if adaptive. */
static plain_window average_window(const fth_pool_attributes *pool, const fth_shape *x, const fth_shape *y, int64_t oh,
                                   int64_t ow, double *count)
{
    plain_window at = pool != NULL ? plain_pool_window(pool, &x->dims[2], oh, ow) : adaptive_window(x, y, oh, ow);
    *count = pool != NULL ? divisor(pool, &x->dims[2], &at, oh, ow) : (double)plain_window_area(&at);
    return at;
}

/* y[n,c,oh,ow] = sum over the window of x[n,c,h,w] / count */
static fth_status average(const fth_pool_attributes *pool, const plain_tensor *x, const plain_tensor *y)
{
    for (int64_t n = 0; n < y->shape.dims[0]; n++)
        for (int64_t c = 0; c < y->shape.dims[1]; c++)
            for (int64_t oh = 0; oh < y->shape.dims[2]; oh++)
                for (int64_t ow = 0; ow < y->shape.dims[3]; ow++) {
                    double count, sum = 0;
                    plain_window at = average_window(pool, &x->shape, &y->shape, oh, ow, &count);
                    for (int64_t h = at.begin[0]; h < at.end[0]; h++)
                        for (int64_t w = at.begin[1]; w < at.end[1]; w++)
                            sum += x->floats[plain_at(&x->shape, n, c, h, w)];
                    y->floats[plain_at(&y->shape, n, c, oh, ow)] = (float)(sum / count);
                }
    return FTH_OK;
}

/* dx[n,c,h,w] += dy[n,c,oh,ow] / count for every (h, w) in the window of (oh, ow) */
static fth_status average_grad(const fth_pool_attributes *pool, const plain_tensor *dy, const plain_tensor *dx)
{
    memset(dx->floats, 0, (size_t)dx->count * sizeof(float));
    for (int64_t n = 0; n < dy->shape.dims[0]; n++)
        for (int64_t c = 0; c < dy->shape.dims[1]; c++)
            for (int64_t oh = 0; oh < dy->shape.dims[2]; oh++)
                for (int64_t ow = 0; ow < dy->shape.dims[3]; ow++) {
                    double count;
                    plain_window at = average_window(pool, &dx->shape, &dy->shape, oh, ow, &count);
                    float share = (float)(dy->floats[plain_at(&dy->shape, n, c, oh, ow)] / count);
                    for (int64_t h = at.begin[0]; h < at.end[0]; h++)
                        for (int64_t w = at.begin[1]; w < at.end[1]; w++)
                            dx->floats[plain_at(&dx->shape, n, c, h, w)] += share;
                }
    return FTH_OK;
}

static fth_status run_average_pool(const plain_call *call, const fth_run *run)
{
    (void)run;
    return average(call->attributes, &call->inputs[0], &call->outputs[0]);
}

static fth_status run_average_pool_grad(const plain_call *call, const fth_run *run)
{
    (void)run;
    return average_grad(call->attributes, &call->inputs[0], &call->outputs[0]);
}

static fth_status run_adaptive(const plain_call *call, const fth_run *run)
{
    (void)run;
    return average(NULL, &call->inputs[0], &call->outputs[0]);
}

static fth_status run_adaptive_grad(const plain_call *call, const fth_run *run)
{
    (void)run;
    return average_grad(NULL, &call->inputs[0], &call->outputs[0]);
}

const plain_kernel plain_average_pool = {&fth_op_average_pool, run_average_pool, 0};
const plain_kernel plain_average_pool_grad = {&fth_op_average_pool_grad, run_average_pool_grad, 0};
const plain_kernel plain_adaptive_average_pool = {&fth_op_adaptive_average_pool, run_adaptive, 0};
const plain_kernel plain_adaptive_average_pool_grad = {&fth_op_adaptive_average_pool_grad, run_adaptive_grad, 0};
