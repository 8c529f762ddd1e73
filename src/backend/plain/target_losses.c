/* The losses of outputs and targets of one shape: squared error, sigmoid cross-entropy. */
#include "backend/plain/plain.h"

#include <math.h>

/* loss = mean of (output - target)² */
static fth_status run_squared_error(const plain_call *call, const fth_run *run)
{
    (void)run;
    const float *outputs = call->inputs[0].floats, *targets = call->inputs[1].floats; /* (N, C) */
    float *loss = call->outputs[0].floats;                                            /* (2) */
    double total = 0;
    for (int64_t i = 0; i < call->inputs[0].count; i++)
        total += ((double)outputs[i] - targets[i]) * ((double)outputs[i] - targets[i]);
    loss[0] = (float)(total / (double)call->inputs[0].count);
    loss[1] = 0;
    return FTH_OK;
}

/* doutputs = 2 * (output - target) * gradient_scale / (N C) */
static fth_status run_squared_error_grad(const plain_call *call, const fth_run *run)
{
    const float *outputs = call->inputs[0].floats, *targets = call->inputs[1].floats;
    const double scale = 2 * (double)run->gradient_scale / (double)call->inputs[0].count;
    for (int64_t i = 0; i < call->inputs[0].count; i++)
        call->outputs[0].floats[i] = (float)(((double)outputs[i] - targets[i]) * scale);
    return FTH_OK;
}

/* loss = mean of -target * log(sigmoid(z)) - (1 - target) * log(1 - sigmoid(z))
 *      = mean of max(z, 0) - z * target + log(1 + exp(-|z|)) */
static fth_status run_sigmoid_cross_entropy(const plain_call *call, const fth_run *run)
{
    (void)run;
    const float *logits = call->inputs[0].floats, *targets = call->inputs[1].floats; /* (N, C) */
    float *loss = call->outputs[0].floats;                                           /* (2) */
    const int64_t batch = call->inputs[0].shape.dims[0], labels = call->inputs[0].shape.dims[1];
    double total = 0;
    int64_t correct = 0;
    for (int64_t n = 0; n < batch; n++) {
        bool right = true;
        for (int64_t i = n * labels; i < (n + 1) * labels; i++) {
            const double z = logits[i];
            total += (z < 0 ? 0 : z) - z * targets[i] + log1p(exp(-fabs(z))); /* a NaN stays */
            right = right && (z > 0) == (targets[i] > 0.5f);
        }
        correct += right;
    }
    loss[0] = (float)(total / (double)call->inputs[0].count);
    loss[1] = (float)correct;
    return FTH_OK;
}

/* dlogits = (sigmoid(z) - target) * gradient_scale / (N C) */
static fth_status run_sigmoid_cross_entropy_grad(const plain_call *call, const fth_run *run)
{
    const float *logits = call->inputs[0].floats, *targets = call->inputs[1].floats;
    const double scale = (double)run->gradient_scale / (double)call->inputs[0].count;
    for (int64_t i = 0; i < call->inputs[0].count; i++)
        call->outputs[0].floats[i] = (float)((1 / (1 + exp(-(double)logits[i])) - targets[i]) * scale);
    return FTH_OK;
}

const plain_kernel plain_squared_error = {&fth_op_squared_error, run_squared_error, 0};
const plain_kernel plain_squared_error_grad = {&fth_op_squared_error_grad, run_squared_error_grad, 0};
const plain_kernel plain_sigmoid_cross_entropy = {&fth_op_sigmoid_cross_entropy, run_sigmoid_cross_entropy, 0};
const plain_kernel plain_sigmoid_cross_entropy_grad = {&fth_op_sigmoid_cross_entropy_grad,
                                                       run_sigmoid_cross_entropy_grad, 0};
