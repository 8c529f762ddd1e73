/* Batch normalization (Ioffe and Szegedy, 2015) with an optional residual and ReLU behind it. */
#include "backend/plain/plain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/batch_norm_sums.h"

enum { X, SCALE, SHIFT, RUNNING_MEAN, RUNNING_VARIANCE, RESIDUAL };
enum { Y, MEAN, VARIANCE };

/* Of this process's batch alone. */
static fth_channel_statistics find_statistics(const float *x, const fth_shape *shape, int64_t c)
{
    const int64_t batch = shape->dims[0], channels = shape->dims[1], plane = plain_plane(shape);
    const double count = (double)(batch * plane);
    double mean = 0, variance = 0;

    for (int64_t n = 0; n < batch; n++)
        for (int64_t i = 0; i < plane; i++)
            mean += x[(n * channels + c) * plane + i] / count;
    for (int64_t n = 0; n < batch; n++)
        for (int64_t i = 0; i < plane; i++) {
            double deviation = x[(n * channels + c) * plane + i] - mean;
            variance += deviation * deviation / count;
        }
    /* One value per channel has no unbiased variance; the biased one, zero, stands in for it. */
    return (fth_channel_statistics){mean, variance, count > 1 ? variance * count / (count - 1) : variance};
}

/* Of the batch that this process and its peers have together; free() them. */
static fth_status sum_with_peers(const float *x, const fth_shape *shape, const fth_run *run, double **result)
{
    fth_status status = FTH_OK;
    const int64_t batch = shape->dims[0], channels = shape->dims[1], plane = plain_plane(shape);
    double *sums = NULL;

    FTH_TRY(fth_allocate(fth_batch_norm_sum_count(channels), sizeof *sums, &sums));
    sums[0] = (double)(batch * plane);
    for (int64_t c = 0; c < channels; c++)
        for (int64_t n = 0; n < batch; n++)
            for (int64_t i = 0; i < plane; i++) {
                double value = x[(n * channels + c) * plane + i];
                sums[1 + c] += value;
                sums[1 + channels + c] += value * value;
            }
    FTH_TRY(fth_plan_sum_over_peers(run, sums, fth_batch_norm_sum_count(channels)));
    *result = sums;
    sums = NULL;
out:
    free(sums);
    return status;
}

/* y = [relu]((x - mean) / sqrt(variance + epsilon) * scale + shift [+ residual]), per channel */
static fth_status run_batch_norm(const plain_call *call, const fth_run *run)
{
    fth_status status = FTH_OK;
    const fth_batch_norm_attributes *attributes = call->attributes;
    const fth_shape *shape = &call->inputs[X].shape; /* (N, C, ...) */
    const float *x = call->inputs[X].floats;
    const float *residual = attributes->residual ? call->inputs[RESIDUAL].floats : NULL;
    float *y = call->outputs[Y].floats;
    const int64_t batch = shape->dims[0], channels = shape->dims[1], plane = plain_plane(shape);
    const bool by_batch = call->training && !attributes->fixed;
    double *sums = NULL;

    if (by_batch && call->synchronized)
        FTH_TRY(sum_with_peers(x, shape, run, &sums));
    for (int64_t c = 0; c < channels; c++) {
        float *running_mean = &call->inputs[RUNNING_MEAN].floats[c];
        float *running_variance = &call->inputs[RUNNING_VARIANCE].floats[c];
        double mean = *running_mean, variance = *running_variance;
        if (by_batch) {
            const fth_channel_statistics found =
                sums ? fth_batch_norm_statistics(sums, c, channels) : find_statistics(x, shape, c);
            mean = found.mean;
            variance = found.variance;
            fth_batch_norm_move(running_mean, found.mean, attributes->momentum);
            fth_batch_norm_move(running_variance, found.unbiased, attributes->momentum);
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
out:
    free(sums);
    return status;
}

enum { GRAD_X, GRAD_Y, GRAD_DY, GRAD_SCALE, GRAD_MEAN, GRAD_VARIANCE };
enum { GRAD_DX, GRAD_DSCALE, GRAD_DSHIFT, GRAD_DRESIDUAL };

/* With g = dy (zero where ReLU cut), xhat = (x - mean) / sd, all sums over the M elements of a channel:
 *     dshift = sum g;  dscale = sum g * xhat;  dresidual = g
 *     dx = scale / sd * (g - dshift / M - xhat * dscale / M)
 * In dx the sums are those of the whole batch, its parts at peers included; dshift and dscale are of this one's. Fixed
 * statistics do not depend on x: the sums are left out of dx. */
static fth_status run_batch_norm_grad(const plain_call *call, const fth_run *run)
{
    fth_status status = FTH_OK;
    const fth_batch_norm_attributes *attributes = call->attributes;
    const fth_shape *shape = &call->inputs[GRAD_X].shape; /* (N, C, ...) */
    const float *x = call->inputs[GRAD_X].floats, *y = call->inputs[GRAD_Y].floats;
    const float *dy = call->inputs[GRAD_DY].floats;
    const float *means = call->inputs[GRAD_MEAN].floats, *variances = call->inputs[GRAD_VARIANCE].floats;
    float *dx = call->outputs[GRAD_DX].floats, *dresidual = call->outputs[GRAD_DRESIDUAL].floats;
    const int64_t batch = shape->dims[0], channels = shape->dims[1], plane = plain_plane(shape);
    double *sums = NULL;

    FTH_TRY(fth_allocate(fth_batch_norm_sum_count(channels), sizeof *sums, &sums));
    double *dshift = sums + 1, *dscale = dshift + channels;
    sums[0] = (double)(batch * plane);
    for (int64_t c = 0; c < channels; c++) {
        const double inverse_sd = 1 / sqrt((double)variances[c] + attributes->epsilon);
        for (int64_t n = 0; n < batch; n++)
            for (int64_t i = 0; i < plane; i++) {
                int64_t at = (n * channels + c) * plane + i;
                float g = attributes->relu && y[at] <= 0 ? 0 : dy[at];
                dresidual[at] = g;
                dshift[c] += g;
                dscale[c] += g * (x[at] - (double)means[c]) * inverse_sd;
            }
        call->outputs[GRAD_DSCALE].floats[c] = (float)dscale[c];
        call->outputs[GRAD_DSHIFT].floats[c] = (float)dshift[c];
    }
    if (attributes->fixed)
        memset(sums + 1, 0, (size_t)channels * 2 * sizeof *sums);
    else if (call->synchronized)
        FTH_TRY(fth_plan_sum_over_peers(run, sums, fth_batch_norm_sum_count(channels)));
    for (int64_t c = 0; c < channels; c++) {
        const double inverse_sd = 1 / sqrt((double)variances[c] + attributes->epsilon);
        for (int64_t n = 0; n < batch; n++)
            for (int64_t i = 0; i < plane; i++) {
                int64_t at = (n * channels + c) * plane + i;
                double normalized = (x[at] - (double)means[c]) * inverse_sd;
                dx[at] = (float)(call->inputs[GRAD_SCALE].floats[c] * inverse_sd *
                                 (dresidual[at] - dshift[c] / sums[0] - normalized * dscale[c] / sums[0]));
            }
    }
out:
    free(sums);
    return status;
}

const plain_kernel plain_batch_norm = {&fth_op_batch_norm, run_batch_norm, 1u << RUNNING_MEAN | 1u << RUNNING_VARIANCE};
const plain_kernel plain_batch_norm_grad = {&fth_op_batch_norm_grad, run_batch_norm_grad, 0};
