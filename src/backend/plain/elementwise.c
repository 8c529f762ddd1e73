/* GELU, exact and by tanh; tanh; dropout. */
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

/* The argument of tanh in the approximation of GELU, and its derivative. */
static double gelu_argument(double x)
{
    return sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
}

static double gelu_slope(double x)
{
    return sqrt(2 / 3.14159265358979323846) * (1 + 3 * 0.044715 * x * x);
}

/* y = x * (1 + tanh(argument)) / 2 */
static fth_status run_gelu_tanh(const plain_call *call, const fth_run *run)
{
    (void)run;
    const float *x = call->inputs[0].floats;
    float *y = call->outputs[0].floats;
    for (int64_t i = 0; i < call->outputs[0].count; i++)
        y[i] = (float)(0.5 * x[i] * (1 + tanh(gelu_argument(x[i]))));
    return FTH_OK;
}

/* dx = dy * (1 + t + x * (1 - t²) * slope) / 2 with t = tanh(argument) */
static fth_status run_gelu_tanh_grad(const plain_call *call, const fth_run *run)
{
    (void)run;
    const float *x = call->inputs[0].floats, *dy = call->inputs[1].floats;
    float *dx = call->outputs[0].floats;
    for (int64_t i = 0; i < call->outputs[0].count; i++) {
        const double t = tanh(gelu_argument(x[i]));
        dx[i] = (float)(0.5 * dy[i] * (1 + t + x[i] * (1 - t * t) * gelu_slope(x[i])));
    }
    return FTH_OK;
}

static fth_status run_tanh(const plain_call *call, const fth_run *run)
{
    (void)run;
    for (int64_t i = 0; i < call->outputs[0].count; i++)
        call->outputs[0].floats[i] = (float)tanh(call->inputs[0].floats[i]);
    return FTH_OK;
}

/* dx = dy * (1 - y²) */
static fth_status run_tanh_grad(const plain_call *call, const fth_run *run)
{
    (void)run;
    const float *y = call->inputs[0].floats, *dy = call->inputs[1].floats;
    for (int64_t i = 0; i < call->outputs[0].count; i++)
        call->outputs[0].floats[i] = (float)(dy[i] * (1 - (double)y[i] * y[i]));
    return FTH_OK;
}

/* y = x / (1-p) where kept, else x * 0, which keeps NaN as PyTorch does; the same function of dy is
 * the gradient, as the mask comes from the position. */
static fth_status run_dropout(const plain_call *call, const fth_run *run)
{
    const fth_dropout_attributes *attributes = call->attributes;
    const float *x = call->inputs[0].floats;
    float *y = call->outputs[0].floats;
    const fth_random_key key = fth_dropout_key(run->seed, run->step, attributes->id);
    const uint32_t threshold = fth_dropout_threshold(attributes->probability);
    const float scale = 1 / (1 - attributes->probability);
    const uint64_t first = plain_first_element(&call->outputs[0], run);
    for (int64_t i = 0; i < call->outputs[0].count; i++)
        y[i] = !call->training ? x[i] : x[i] * (fth_dropout_keeps(key, threshold, first + (uint64_t)i) ? scale : 0);
    return FTH_OK;
}

const plain_kernel plain_gelu = {&fth_op_gelu, run_gelu, 0};
const plain_kernel plain_gelu_grad = {&fth_op_gelu_grad, run_gelu_grad, 0};
const plain_kernel plain_gelu_tanh = {&fth_op_gelu_tanh, run_gelu_tanh, 0};
const plain_kernel plain_gelu_tanh_grad = {&fth_op_gelu_tanh_grad, run_gelu_tanh_grad, 0};
const plain_kernel plain_tanh = {&fth_op_tanh, run_tanh, 0};
const plain_kernel plain_tanh_grad = {&fth_op_tanh_grad, run_tanh_grad, 0};
const plain_kernel plain_dropout = {&fth_op_dropout, run_dropout, 0};
