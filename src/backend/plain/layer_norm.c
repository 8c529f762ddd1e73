/* Layer norm over each row, with the dropout and the residual in front of it. */
#include "backend/plain/plain.h"

#include <math.h>

/* What dropout multiplies each number with. */
typedef struct drop_mask {
    bool drops;
    fth_random_key key;
    uint32_t threshold;
    float scale;
    uint64_t first; /* element */
} drop_mask;

static drop_mask mask_of(const plain_call *call, const fth_run *run)
{
    const fth_layer_norm_attributes *attributes = call->attributes;
    return (drop_mask){.drops = call->training && attributes->probability > 0,
                       .key = fth_dropout_key(run->seed, run->step, attributes->dropout),
                       .threshold = fth_dropout_threshold(attributes->probability),
                       .scale = 1 / (1 - attributes->probability),
                       .first = plain_first_element(&call->inputs[0], run)};
}

static float factor(const drop_mask *mask, int64_t element)
{
    if (!mask->drops)
        return 1;
    return fth_dropout_keeps(mask->key, mask->threshold, mask->first + (uint64_t)element) ? mask->scale : 0;
}

/* sum = dropout(x) + residual; y = (sum - mean) * inverse * scale + shift; statistics = mean,
 * inverse, with inverse = 1/sqrt(variance + epsilon) */
static fth_status run_layer_norm(const plain_call *call, const fth_run *run)
{
    const fth_layer_norm_attributes *attributes = call->attributes;
    const float *x = call->inputs[0].floats;                                      /* (R, F) */
    const float *scale = call->inputs[1].floats, *shift = call->inputs[2].floats; /* (F) */
    const float *residual = attributes->residual ? call->inputs[3].floats : NULL; /* (R, F) */
    float *y = call->outputs[0].floats, *sum = call->outputs[1].floats;           /* (R, F) */
    float *statistics = call->outputs[2].floats;                                  /* (R, 2) */
    const int64_t rows = call->inputs[0].shape.dims[0], features = call->inputs[0].shape.dims[1];
    const drop_mask mask = mask_of(call, run);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t row = r * features;
        double mean = 0, variance = 0;
        for (int64_t i = row; i < row + features; i++) {
            sum[i] = x[i] * factor(&mask, i) + (residual ? residual[i] : 0);
            mean += sum[i];
        }
        mean /= (double)features;
        for (int64_t i = row; i < row + features; i++)
            variance += (sum[i] - mean) * (sum[i] - mean);
        variance /= (double)features;
        const double inverse = 1 / sqrt(variance + attributes->epsilon);
        for (int64_t f = 0; f < features; f++)
            y[row + f] = (float)((sum[row + f] - mean) * inverse * scale[f] + shift[f]);
        statistics[2 * r] = (float)mean;
        statistics[2 * r + 1] = (float)inverse;
    }
    return FTH_OK;
}

/* With n = (sum - mean) * inverse and g = dy * scale:
 * dsum = inverse * (g - mean of g - n * mean of g n);  dscale = sum over rows of dy n;  dshift = sum over rows of
 * dy */
static fth_status run_grad(const plain_call *call, const fth_run *run)
{
    const float *sum = call->inputs[0].floats, *dy = call->inputs[1].floats; /* (R, F) */
    const float *scale = call->inputs[2].floats;                             /* (F) */
    const float *statistics = call->inputs[3].floats;                        /* (R, 2) */
    float *dx = call->outputs[0].floats, *dresidual = call->outputs[3].floats;
    float *dscale = call->outputs[1].floats, *dshift = call->outputs[2].floats;
    const int64_t rows = call->inputs[0].shape.dims[0], features = call->inputs[0].shape.dims[1];
    const drop_mask mask = mask_of(call, run);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t row = r * features;
        const double mean = statistics[2 * r], inverse = statistics[2 * r + 1];
        double gradient = 0, product = 0;
        for (int64_t f = 0; f < features; f++) {
            gradient += (double)dy[row + f] * scale[f];
            product += (double)dy[row + f] * scale[f] * (sum[row + f] - mean) * inverse;
        }
        for (int64_t f = 0; f < features; f++) {
            const double normalized = (sum[row + f] - mean) * inverse;
            const float dsum = (float)(inverse * ((double)dy[row + f] * scale[f] -
                                                  (gradient + normalized * product) / (double)features));
            dx[row + f] = dsum * factor(&mask, row + f);
            dresidual[row + f] = dsum;
        }
    }
    for (int64_t f = 0; f < features; f++) {
        double scale_sum = 0, shift_sum = 0;
        for (int64_t r = 0; r < rows; r++) {
            const double normalized = ((double)sum[r * features + f] - statistics[2 * r]) * statistics[2 * r + 1];
            scale_sum += dy[r * features + f] * normalized;
            shift_sum += dy[r * features + f];
        }
        dscale[f] = (float)scale_sum;
        dshift[f] = (float)shift_sum;
    }
    return FTH_OK;
}

const plain_kernel plain_layer_norm = {&fth_op_layer_norm, run_layer_norm, 0};
const plain_kernel plain_layer_norm_grad = {&fth_op_layer_norm_grad, run_grad, 0};
