/* GELU and dropout. */
#include "backend/plain/plain.h"

#include <math.h>

/* The standard normal distribution function. */
static double normal_cdf(double x)
{
    return 0.5 * (1 + erf(x / sqrt(2)));
}

/* y = x * cdf(x) */
static fth_status run_gelu(const plain_call *call, const fth_run *run)
{
    (void)run;
    const float *x = call->inputs[0].floats;
    float *y = call->outputs[0].floats;
    for (int64_t i = 0; i < call->outputs[0].count; i++)
        y[i] = (float)(x[i] * normal_cdf(x[i]));
    return FTH_OK;
}

/* dx = dy * (cdf(x) + x * density(x)) */
static fth_status run_gelu_grad(const plain_call *call, const fth_run *run)
{
    (void)run;
    const float *x = call->inputs[0].floats, *dy = call->inputs[1].floats;
    float *dx = call->outputs[0].floats;
    for (int64_t i = 0; i < call->outputs[0].count; i++) {
        double density = exp(-0.5 * x[i] * x[i]) / sqrt(2 * 3.14159265358979323846);
        dx[i] = (float)(dy[i] * (normal_cdf(x[i]) + x[i] * density));
    }
    return FTH_OK;
}

/* y = x / (1-p) where kept, else x * 0, which keeps NaN as PyTorch does; the same function of dy is the gradient, as the
 * mask comes from the position. */
static fth_status run_dropout(const plain_call *call, const fth_run *run)
{
    const fth_dropout_attributes *attributes = call->attributes;
    const float *x = call->inputs[0].floats;
    float *y = call->outputs[0].floats;
    const fth_random_key key = fth_dropout_key(run->seed, run->step, attributes->id);
    const uint32_t threshold = fth_dropout_threshold(attributes->probability);
    const float scale = 1 / (1 - attributes->probability);
    const uint64_t first = run->first_sample * (uint64_t)(call->outputs[0].count / call->outputs[0].shape.dims[0]);
    for (int64_t i = 0; i < call->outputs[0].count; i++)
        y[i] = !call->training ? x[i] : x[i] * (fth_dropout_keeps(key, threshold, first + (uint64_t)i) ? scale : 0);
    return FTH_OK;
}

const plain_kernel plain_gelu = {&fth_op_gelu, run_gelu, 0};
const plain_kernel plain_gelu_grad = {&fth_op_gelu_grad, run_gelu_grad, 0};
const plain_kernel plain_dropout = {&fth_op_dropout, run_dropout, 0};
