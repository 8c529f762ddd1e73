/* Softmax over the last axis, and normalize: one row after the other. */
#include "backend/plain/plain.h"

#include <math.h>

static int64_t last_axis(const plain_tensor *tensor)
{
    return tensor->shape.dims[tensor->shape.rank - 1];
}

/* log y = x - max - log sum exp(x - max) */
static fth_status run_softmax(const plain_call *call, const fth_run *run)
{
    (void)run;
    const fth_softmax_attributes *a = call->attributes;
    const int64_t count = last_axis(&call->inputs[0]), rows = call->inputs[0].count / count;
    for (int64_t r = 0; r < rows; r++) {
        const float *x = call->inputs[0].floats + r * count;
        float *y = call->outputs[0].floats + r * count;
        double largest = x[0], sum = 0;
        for (int64_t i = 1; i < count; i++)
            largest = x[i] > largest ? x[i] : largest;
        for (int64_t i = 0; i < count; i++)
            sum += exp(x[i] - largest);
        for (int64_t i = 0; i < count; i++) {
            const double logarithm = x[i] - largest - log(sum);
            y[i] = (float)(a->log ? logarithm : exp(logarithm));
        }
    }
    return FTH_OK;
}

/* dx = y * (dy - sum of y * dy); of the logarithm dx = dy - exp(y) * sum of dy */
static fth_status run_softmax_grad(const plain_call *call, const fth_run *run)
{
    (void)run;
    const fth_softmax_attributes *a = call->attributes;
    const int64_t count = last_axis(&call->inputs[0]), rows = call->inputs[0].count / count;
    for (int64_t r = 0; r < rows; r++) {
        const float *y = call->inputs[0].floats + r * count, *dy = call->inputs[1].floats + r * count;
        float *dx = call->outputs[0].floats + r * count;
        double sum = 0;
        for (int64_t i = 0; i < count; i++)
            sum += a->log ? dy[i] : (double)dy[i] * y[i];
        for (int64_t i = 0; i < count; i++)
            dx[i] = (float)(a->log ? dy[i] - exp(y[i]) * sum : y[i] * (dy[i] - sum));
    }
    return FTH_OK;
}

static fth_status run_normalize(const plain_call *call, const fth_run *run)
{
    (void)run;
    const fth_normalize_attributes *a = call->attributes;
    const int64_t rows = call->inputs[0].shape.dims[0], features = call->inputs[0].shape.dims[1]; /* x (R, F) */
    float *inverses = call->outputs[1].floats;                                                    /* (R) */
    for (int64_t r = 0; r < rows; r++) {
        const float *x = call->inputs[0].floats + r * features;
        float *y = call->outputs[0].floats + r * features;
        double mean = 0, squares = 0;
        for (int64_t i = 0; i < features && !a->rms; i++)
            mean += x[i] / (double)features;
        for (int64_t i = 0; i < features; i++)
            squares += (x[i] - mean) * (x[i] - mean);
        const double inverse = 1 / sqrt(squares / (double)features + a->epsilon);
        for (int64_t i = 0; i < features; i++)
            y[i] = (float)((x[i] - mean) * inverse);
        inverses[r] = (float)inverse;
    }
    return FTH_OK;
}

/* dx = inverse * (dy - mean of dy - y * mean of y * dy); with rms without the mean of dy */
static fth_status run_normalize_grad(const plain_call *call, const fth_run *run)
{
    (void)run;
    const fth_normalize_attributes *a = call->attributes;
    const int64_t rows = call->inputs[0].shape.dims[0], features = call->inputs[0].shape.dims[1]; /* y (R, F) */
    for (int64_t r = 0; r < rows; r++) {
        const float *y = call->inputs[0].floats + r * features, *dy = call->inputs[1].floats + r * features;
        float *dx = call->outputs[0].floats + r * features;
        double mean = 0, product = 0;
        for (int64_t i = 0; i < features; i++) {
            mean += a->rms ? 0 : dy[i] / (double)features;
            product += (double)y[i] * dy[i] / (double)features;
        }
        for (int64_t i = 0; i < features; i++)
            dx[i] = (float)(call->inputs[2].floats[r] * (dy[i] - mean - y[i] * product));
    }
    return FTH_OK;
}

const plain_kernel plain_softmax = {&fth_op_softmax, run_softmax, 0};
const plain_kernel plain_softmax_grad = {&fth_op_softmax_grad, run_softmax_grad, 0};
const plain_kernel plain_normalize = {&fth_op_normalize, run_normalize, 0};
const plain_kernel plain_normalize_grad = {&fth_op_normalize_grad, run_normalize_grad, 0};
