/* Linear layers: y = x W^T + b, and the gradients of x, W and b. */
#include "backend/reference/reference.h"

/* y[n,o] = bias[o] + sum over f of x[n,f] * weight[o,f] */
static fth_status run_linear(const plain_call *call, const fth_run *run)
{
    (void)run;
    const fth_linear_attributes *attributes = call->attributes;
    const float *x = call->inputs[0].floats, *weight = call->inputs[1].floats; /* (N, F), (O, F) */
    const float *bias = call->input_count > 2 ? call->inputs[2].floats : NULL; /* (O) */
    float *y = call->outputs[0].floats;                                        /* (N, O) */
    const int64_t batch = call->inputs[0].shape.dims[0];
    const int64_t features = call->inputs[1].shape.dims[1], outputs = call->inputs[1].shape.dims[0];
    for (int64_t n = 0; n < batch; n++)
        for (int64_t o = 0; o < outputs; o++) {
            double sum = bias != NULL ? bias[o] : 0;
            for (int64_t f = 0; f < features; f++)
                sum += (double)x[n * features + f] * weight[o * features + f];
            y[n * outputs + o] = (float)(attributes->relu && sum < 0 ? 0 : sum);
        }
    return FTH_OK;
}

/* dx[n,f] = sum over o of dy[n,o] * weight[o,f] */
static fth_status run_grad_input(const plain_call *call, const fth_run *run)
{
    (void)run;
    const float *dy = call->inputs[0].floats, *weight = call->inputs[1].floats; /* (N, O), (O, F) */
    float *dx = call->outputs[0].floats;                                        /* (N, F) */
    const int64_t batch = call->inputs[0].shape.dims[0];
    const int64_t features = call->inputs[1].shape.dims[1], outputs = call->inputs[1].shape.dims[0];
    for (int64_t n = 0; n < batch; n++)
        for (int64_t f = 0; f < features; f++) {
            double sum = 0;
            for (int64_t o = 0; o < outputs; o++)
                sum += (double)dy[n * outputs + o] * weight[o * features + f];
            dx[n * features + f] = (float)sum;
        }
    return FTH_OK;
}

/* dweight[o,f] = sum over n of dy[n,o] * x[n,f];  dbias[o] = sum over n of dy[n,o] */
static fth_status run_grad_weights(const plain_call *call, const fth_run *run)
{
    (void)run;
    const float *x = call->inputs[0].floats, *dy = call->inputs[1].floats;      /* (N, F), (N, O) */
    float *dweight = call->outputs[0].floats, *dbias = call->outputs[1].floats; /* (O, F), (O) */
    const int64_t batch = call->inputs[0].shape.dims[0];
    const int64_t features = call->inputs[0].shape.dims[1], outputs = call->inputs[1].shape.dims[1];
    for (int64_t o = 0; o < outputs; o++) {
        for (int64_t f = 0; f < features; f++) {
            double sum = 0;
            for (int64_t n = 0; n < batch; n++)
                sum += (double)dy[n * outputs + o] * x[n * features + f];
            dweight[o * features + f] = (float)sum;
        }
        double sum = 0;
        for (int64_t n = 0; n < batch; n++)
            sum += dy[n * outputs + o];
        dbias[o] = (float)sum;
    }
    return FTH_OK;
}

const plain_kernel reference_linear = {&fth_op_linear, run_linear, 0};
const plain_kernel reference_linear_grad_input = {&fth_op_linear_grad_input, run_grad_input, 0};
const plain_kernel reference_linear_grad_weights = {&fth_op_linear_grad_weights, run_grad_weights, 0};
