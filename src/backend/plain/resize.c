/* Images brought to another size, and the gradient. */
#include "backend/resize_place.h"

#include <string.h>

#include "backend/plain/plain.h"

/* The pixels of the input, up to four of them, that an output is made of. */
typedef struct sources {
    fth_resize_place row, column;
} sources;

static sources sources_of(const fth_resize_attributes *a, const fth_shape *x, int64_t oh, int64_t ow)
{
    const fth_resize_axis rows = fth_resize_axis_of(a, 0, x->dims[2]), columns = fth_resize_axis_of(a, 1, x->dims[3]);
    return (sources){fth_resize_place_of(&rows, (int)oh), fth_resize_place_of(&columns, (int)ow)};
}

/* The place of source i in the image of (n, c), and its weight; false if it is one of the
 * others. */
static bool get_source(const sources *s, const fth_shape *x, int64_t n, int64_t c, int i, int64_t *at, double *weight)
{
    const fth_resize_place *row = &s->row, *column = &s->column;
    const bool below = i / 2 == 1, right = i % 2 == 1;
    if ((below && row->second == row->first) || (right && column->second == column->first))
        return false;
    *weight = (below ? row->weight : 1 - (double)row->weight) * (right ? column->weight : 1 - (double)column->weight);
    *at = plain_at(x, n, c, below ? row->second : row->first, right ? column->second : column->first);
    return true;
}

/* y[n,c,oh,ow] = sum over the sources of weight * x[n,c,source] */
static fth_status run_resize(const plain_call *call, const fth_run *run)
{
    (void)run;
    const plain_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    for (int64_t n = 0; n < y->shape.dims[0]; n++)
        for (int64_t c = 0; c < y->shape.dims[1]; c++)
            for (int64_t oh = 0; oh < y->shape.dims[2]; oh++)
                for (int64_t ow = 0; ow < y->shape.dims[3]; ow++) {
                    const sources s = sources_of(call->attributes, &x->shape, oh, ow);
                    double sum = 0, weight;
                    int64_t at;
                    for (int i = 0; i < 4; i++)
                        if (get_source(&s, &x->shape, n, c, i, &at, &weight))
                            sum += weight * x->floats[at];
                    y->floats[plain_at(&y->shape, n, c, oh, ow)] = (float)sum;
                }
    return FTH_OK;
}

/* dx[n,c,source] += weight * dy[n,c,oh,ow] */
static fth_status run_resize_grad(const plain_call *call, const fth_run *run)
{
    (void)run;
    const plain_tensor *dy = &call->inputs[0], *dx = &call->outputs[0];
    memset(dx->floats, 0, (size_t)dx->count * sizeof(float));
    for (int64_t n = 0; n < dy->shape.dims[0]; n++)
        for (int64_t c = 0; c < dy->shape.dims[1]; c++)
            for (int64_t oh = 0; oh < dy->shape.dims[2]; oh++)
                for (int64_t ow = 0; ow < dy->shape.dims[3]; ow++) {
                    const sources s = sources_of(call->attributes, &dx->shape, oh, ow);
                    double weight;
                    int64_t at;
                    for (int i = 0; i < 4; i++)
                        if (get_source(&s, &dx->shape, n, c, i, &at, &weight))
                            dx->floats[at] += (float)(weight * dy->floats[plain_at(&dy->shape, n, c, oh, ow)]);
                }
    return FTH_OK;
}

const plain_kernel plain_resize = {&fth_op_resize, run_resize, 0};
const plain_kernel plain_resize_grad = {&fth_op_resize_grad, run_resize_grad, 0};
