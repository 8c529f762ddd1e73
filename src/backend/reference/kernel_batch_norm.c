/* Batch normalization (Ioffe and Szegedy, 2015) with an optional residual and ReLU behind it. */
#include "backend/reference/reference.h"

#include <math.h>

enum { X, SCALE, SHIFT, RUNNING_MEAN, RUNNING_VARIANCE, RESIDUAL };
enum { Y, MEAN, VARIANCE };

/* y = [relu]((x - mean) / sqrt(variance + epsilon) * scale + shift [+ residual]), per channel */
static fth_status run_batch_norm(const reference_call *call, const fth_run *run)
{
    (void)run;
    const fth_batch_norm_attributes *attributes = call->attributes;
    const fth_shape *shape = &call->inputs[X].shape; /* (N, C, ...) */
    const float *x = call->inputs[X].floats;
    const float *residual = attributes->residual ? call->inputs[RESIDUAL].floats : NULL;
    float *y = call->outputs[Y].floats;
    const int64_t batch = shape->dims[0], channels = shape->dims[1], plane = reference_plane(shape);
    const double count = (double)(batch * plane);

    for (int64_t c = 0; c < channels; c++) {
        float *running_mean = &call->inputs[RUNNING_MEAN].floats[c];
        float *running_variance = &call->inputs[RUNNING_VARIANCE].floats[c];
        double mean = *running_mean, variance = *running_variance;
        if (call->training && !attributes->fixed) {
            mean = variance = 0;
            for (int64_t n = 0; n < batch; n++)
                for (int64_t i = 0; i < plane; i++)
                    mean += x[(n * channels + c) * plane + i] / count;
            for (int64_t n = 0; n < batch; n++)
                for (int64_t i = 0; i < plane; i++) {
                    double deviation = x[(n * channels + c) * plane + i] - mean;
                    variance += deviation * deviation / count;
                }
            /* One value per channel has no unbiased variance; the biased one, zero, stands in for it. */
            double unbiased = count > 1 ? variance * count / (count - 1) : variance;
            *running_mean = (float)(*running_mean + attributes->momentum * (mean - *running_mean));
            *running_variance = (float)(*running_variance + attributes->momentum * (unbiased - *running_variance));
        }
        call->outputs[MEAN].floats[c] = (float)mean;
        call->outputs[VARIANCE].floats[c] = (float)variance;

        const double factor = call->inputs[SCALE].floats[c] / sqrt(variance + attributes->epsilon);
        for (int64_t n = 0; n < batch; n++)
            for (int64_t i = 0; i < plane; i++) {
                int64_t at = (n * channels + c) * plane + i;
                double value = (x[at] - mean) * factor + call->inputs[SHIFT].floats[c];
                if (residual != NULL)
                    value += residual[at];
                y[at] = (float)(attributes->relu && value < 0 ? 0 : value);
            }
    }
    return FTH_OK;
}

enum { GRAD_X, GRAD_Y, GRAD_DY, GRAD_SCALE, GRAD_MEAN, GRAD_VARIANCE };
enum { GRAD_DX, GRAD_DSCALE, GRAD_DSHIFT, GRAD_DRESIDUAL };

/* With g = dy (zero where ReLU cut), xhat = (x - mean) / sd, all sums over the M elements of a channel:
 *     dshift = sum g;  dscale = sum g * xhat;  dresidual = g
 *     dx = scale / sd * (g - dshift / M - xhat * dscale / M) */
static fth_status run_batch_norm_grad(const reference_call *call, const fth_run *run)
{
    (void)run;
    const fth_batch_norm_attributes *attributes = call->attributes;
    const fth_shape *shape = &call->inputs[GRAD_X].shape; /* (N, C, ...) */
    const float *x = call->inputs[GRAD_X].floats, *y = call->inputs[GRAD_Y].floats;
    const float *dy = call->inputs[GRAD_DY].floats;
    float *dx = call->outputs[GRAD_DX].floats, *dresidual = call->outputs[GRAD_DRESIDUAL].floats;
    const int64_t batch = shape->dims[0], channels = shape->dims[1], plane = reference_plane(shape);
    const double count = (double)(batch * plane);

    for (int64_t c = 0; c < channels; c++) {
        const double mean = call->inputs[GRAD_MEAN].floats[c];
        const double inverse_sd = 1 / sqrt((double)call->inputs[GRAD_VARIANCE].floats[c] + attributes->epsilon);
        double dscale = 0, dshift = 0;
        for (int64_t n = 0; n < batch; n++)
            for (int64_t i = 0; i < plane; i++) {
                int64_t at = (n * channels + c) * plane + i;
                float g = attributes->relu && y[at] <= 0 ? 0 : dy[at];
                dresidual[at] = g;
                dshift += g;
                dscale += g * (x[at] - mean) * inverse_sd;
            }
        call->outputs[GRAD_DSCALE].floats[c] = (float)dscale;
        call->outputs[GRAD_DSHIFT].floats[c] = (float)dshift;
        for (int64_t n = 0; n < batch; n++)
            for (int64_t i = 0; i < plane; i++) {
                int64_t at = (n * channels + c) * plane + i;
                double normalized = (x[at] - mean) * inverse_sd;
                dx[at] = (float)(call->inputs[GRAD_SCALE].floats[c] * inverse_sd *
                                 (dresidual[at] - dshift / count - normalized * dscale / count));
            }
    }
    return FTH_OK;
}

const reference_kernel reference_batch_norm = {
    {&fth_op_batch_norm, reference_prepare}, run_batch_norm, 1u << RUNNING_MEAN | 1u << RUNNING_VARIANCE};
const reference_kernel reference_batch_norm_grad = {
    {&fth_op_batch_norm_grad, reference_prepare}, run_batch_norm_grad, 0};
