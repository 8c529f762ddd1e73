/* Convolution and its gradients, as one walk over all pairs of an output element and a weight that
 * meet. */
#include "backend/reference/reference.h"

/* The six sizes of a convolution. x (N, C, H, W), weight (O, C/groups, KH, KW), y (N, O, OH,
 * OW). */
typedef struct geometry {
    const fth_convolution_attributes *attributes;
    const fth_shape *x, *weight, *y;
} geometry;

/* Where output row or column `out` meets tap `tap` in the input; may lie in the padding, outside
 * [0, size). */
static int64_t input_position(const geometry *g, int axis, int64_t out, int64_t tap)
{
    return out * g->attributes->stride[axis] - g->attributes->padding[axis] + tap * g->attributes->dilation[axis];
}

/* The first input channel that output channel `o` sees. */
static int64_t first_channel(const geometry *g, int64_t o)
{
    int64_t outputs_per_group = g->y->dims[1] / g->attributes->groups;
    return o / outputs_per_group * g->weight->dims[1];
}

/* y[n,o,oh,ow] = bias[o] + sum over c,kh,kw of x[n, first(o)+c, h, w] * weight[o,c,kh,kw] */
static fth_status run_convolution(const plain_call *call, const fth_run *run)
{
    (void)run;
    const plain_tensor *x = &call->inputs[0], *weight = &call->inputs[1], *y = &call->outputs[0];
    const float *bias = call->input_count > 2 ? call->inputs[2].floats : NULL;
    const geometry g = {call->attributes, &x->shape, &weight->shape, &y->shape};
    for (int64_t n = 0; n < g.y->dims[0]; n++)
        for (int64_t o = 0; o < g.y->dims[1]; o++)
            for (int64_t oh = 0; oh < g.y->dims[2]; oh++)
                for (int64_t ow = 0; ow < g.y->dims[3]; ow++) {
                    double sum = bias != NULL ? bias[o] : 0;
                    for (int64_t c = 0; c < g.weight->dims[1]; c++)
                        for (int64_t kh = 0; kh < g.weight->dims[2]; kh++)
                            for (int64_t kw = 0; kw < g.weight->dims[3]; kw++) {
                                int64_t h = input_position(&g, 0, oh, kh), w = input_position(&g, 1, ow, kw);
                                if (h < 0 || h >= g.x->dims[2] || w < 0 || w >= g.x->dims[3])
                                    continue;
                                sum += (double)x->floats[plain_at(g.x, n, first_channel(&g, o) + c, h, w)] *
                                       weight->floats[plain_at(g.weight, o, c, kh, kw)];
                            }
                    if (g.attributes->relu && sum < 0)
                        sum = 0;
                    y->floats[plain_at(g.y, n, o, oh, ow)] = (float)sum;
                }
    return FTH_OK;
}

/* dx[n,c,h,w] = sum over the outputs o,oh,ow and taps kh,kw that read it of dy[n,o,oh,ow] *
 * weight[o,c,kh,kw] */
static fth_status run_grad_input(const plain_call *call, const fth_run *run)
{
    (void)run;
    const plain_tensor *dy = &call->inputs[0], *weight = &call->inputs[1], *dx = &call->outputs[0];
    const geometry g = {call->attributes, &dx->shape, &weight->shape, &dy->shape};
    const int64_t outputs_per_group = g.y->dims[1] / g.attributes->groups;
    for (int64_t n = 0; n < g.x->dims[0]; n++)
        for (int64_t c = 0; c < g.x->dims[1]; c++)
            for (int64_t h = 0; h < g.x->dims[2]; h++)
                for (int64_t w = 0; w < g.x->dims[3]; w++) {
                    const int64_t group = c / g.weight->dims[1];
                    double sum = 0;
                    for (int64_t kh = 0; kh < g.weight->dims[2]; kh++)
                        for (int64_t kw = 0; kw < g.weight->dims[3]; kw++) {
                            /* the output position whose tap (kh, kw) is (h, w), if there is one */
                            int64_t oh = h - input_position(&g, 0, 0, kh), ow = w - input_position(&g, 1, 0, kw);
                            if (oh < 0 || oh % g.attributes->stride[0] != 0 || ow < 0 ||
                                ow % g.attributes->stride[1] != 0)
                                continue;
                            oh /= g.attributes->stride[0];
                            ow /= g.attributes->stride[1];
                            if (oh >= g.y->dims[2] || ow >= g.y->dims[3])
                                continue;
                            for (int64_t o = group * outputs_per_group; o < (group + 1) * outputs_per_group; o++)
                                sum += (double)dy->floats[plain_at(g.y, n, o, oh, ow)] *
                                       weight->floats[plain_at(g.weight, o, c % g.weight->dims[1], kh, kw)];
                        }
                    dx->floats[plain_at(g.x, n, c, h, w)] = (float)sum;
                }
    return FTH_OK;
}

/* dweight[o,c,kh,kw] = sum over n,oh,ow of x[n, first(o)+c, h, w] * dy[n,o,oh,ow];  dbias[o] = sum over n,oh,ow of
 * dy */
static fth_status run_grad_weights(const plain_call *call, const fth_run *run)
{
    (void)run;
    const plain_tensor *x = &call->inputs[0], *dy = &call->inputs[1];
    const plain_tensor *dweight = &call->outputs[0], *dbias = &call->outputs[1];
    const geometry g = {call->attributes, &x->shape, &dweight->shape, &dy->shape};
    for (int64_t o = 0; o < g.weight->dims[0]; o++) {
        for (int64_t c = 0; c < g.weight->dims[1]; c++)
            for (int64_t kh = 0; kh < g.weight->dims[2]; kh++)
                for (int64_t kw = 0; kw < g.weight->dims[3]; kw++) {
                    double sum = 0;
                    for (int64_t n = 0; n < g.y->dims[0]; n++)
                        for (int64_t oh = 0; oh < g.y->dims[2]; oh++)
                            for (int64_t ow = 0; ow < g.y->dims[3]; ow++) {
                                int64_t h = input_position(&g, 0, oh, kh), w = input_position(&g, 1, ow, kw);
                                if (h < 0 || h >= g.x->dims[2] || w < 0 || w >= g.x->dims[3])
                                    continue;
                                sum += (double)x->floats[plain_at(g.x, n, first_channel(&g, o) + c, h, w)] *
                                       dy->floats[plain_at(g.y, n, o, oh, ow)];
                            }
                    dweight->floats[plain_at(g.weight, o, c, kh, kw)] = (float)sum;
                }
        double sum = 0;
        for (int64_t n = 0; n < g.y->dims[0]; n++)
            for (int64_t oh = 0; oh < g.y->dims[2]; oh++)
                for (int64_t ow = 0; ow < g.y->dims[3]; ow++)
                    sum += dy->floats[plain_at(g.y, n, o, oh, ow)];
        dbias->floats[o] = (float)sum;
    }
    return FTH_OK;
}

const plain_kernel reference_convolution = {&fth_op_convolution, run_convolution, 0};
const plain_kernel reference_convolution_grad_input = {&fth_op_convolution_grad_input, run_grad_input, 0};
const plain_kernel reference_convolution_grad_weights = {&fth_op_convolution_grad_weights, run_grad_weights, 0};
