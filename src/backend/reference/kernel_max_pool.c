/* Maximum pooling over H and W. */
#include "backend/reference/reference.h"

#include <math.h>
#include <string.h>

#include "backend/plain/window.h"

/* y[n,c,oh,ow] = max over the window of x[n,c,h,w];  where = h * W + w of the first maximum; NaN wins over
 * numbers. */
static fth_status run_max_pool(const plain_call *call, const fth_run *run)
{
    (void)run;
    const plain_tensor *x = &call->inputs[0], *y = &call->outputs[0], *where = &call->outputs[1];
    const int64_t width = x->shape.dims[3];
    for (int64_t n = 0; n < y->shape.dims[0]; n++)
        for (int64_t c = 0; c < y->shape.dims[1]; c++)
            for (int64_t oh = 0; oh < y->shape.dims[2]; oh++)
                for (int64_t ow = 0; ow < y->shape.dims[3]; ow++) {
                    plain_window at = plain_pool_window(call->attributes, &x->shape.dims[2], oh, ow);
                    float best = -INFINITY;
                    int64_t best_at = at.begin[0] * width + at.begin[1];
                    for (int64_t h = at.begin[0]; h < at.end[0]; h++)
                        for (int64_t w = at.begin[1]; w < at.end[1]; w++) {
                            float value = x->floats[plain_at(&x->shape, n, c, h, w)];
                            if (value > best || (isnan(value) && !isnan(best))) {
                                best = value;
                                best_at = h * width + w;
                            }
                        }
                    y->floats[plain_at(&y->shape, n, c, oh, ow)] = best;
                    where->ints[plain_at(&y->shape, n, c, oh, ow)] = (int32_t)best_at;
                }
    return FTH_OK;
}

/* dx[n,c,where] += dy[n,c,oh,ow] */
static fth_status run_max_pool_grad(const plain_call *call, const fth_run *run)
{
    (void)run;
    const plain_tensor *dy = &call->inputs[0], *where = &call->inputs[1], *dx = &call->outputs[0];
    const int64_t plane = plain_plane(&dy->shape), x_plane = plain_plane(&dx->shape);
    memset(dx->floats, 0, (size_t)dx->count * sizeof(float));
    for (int64_t nc = 0; nc < dy->shape.dims[0] * dy->shape.dims[1]; nc++)
        for (int64_t i = 0; i < plane; i++)
            dx->floats[nc * x_plane + where->ints[nc * plane + i]] += dy->floats[nc * plane + i];
    return FTH_OK;
}

const plain_kernel reference_max_pool = {&fth_op_max_pool, run_max_pool, 0};
const plain_kernel reference_max_pool_grad = {&fth_op_max_pool_grad, run_max_pool_grad, 0};
