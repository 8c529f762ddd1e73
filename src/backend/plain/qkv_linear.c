/* Query, key and value: three linear layers of one input, whose results lie beside each other. */
#include "backend/plain/plain.h"

/* y[t, part O + o] = biases[part][o] + sum over f of x[t,f] * weights[part][o,f] */
static fth_status run_qkv_linear(const plain_call *call, const fth_run *run)
{
    (void)run;
    const float *x = call->inputs[0].floats; /* (T, F) */
    float *y = call->outputs[0].floats;      /* (T, 3 O) */
    const int64_t tokens = call->inputs[0].shape.dims[0];
    const int64_t features = call->inputs[1].shape.dims[1], outputs = call->inputs[1].shape.dims[0];
    for (int64_t t = 0; t < tokens; t++)
        for (int part = 0; part < 3; part++) {
            const float *weight = call->inputs[1 + part].floats, *bias = call->inputs[4 + part].floats;
            for (int64_t o = 0; o < outputs; o++) {
                double sum = bias[o];
                for (int64_t f = 0; f < features; f++)
                    sum += (double)x[t * features + f] * weight[o * features + f];
                y[(3 * t + part) * outputs + o] = (float)sum;
            }
        }
    return FTH_OK;
}

/* dx[t,f] = sum over parts and o of dy[t, part O + o] * weights[part][o,f] */
static fth_status run_grad_input(const plain_call *call, const fth_run *run)
{
    (void)run;
    const float *dy = call->inputs[0].floats; /* (T, 3 O) */
    float *dx = call->outputs[0].floats;      /* (T, F) */
    const int64_t tokens = call->inputs[0].shape.dims[0];
    const int64_t features = call->inputs[1].shape.dims[1], outputs = call->inputs[1].shape.dims[0];
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t f = 0; f < features; f++) {
            double sum = 0;
            for (int part = 0; part < 3; part++)
                for (int64_t o = 0; o < outputs; o++)
                    sum += (double)dy[(3 * t + part) * outputs + o] * call->inputs[1 + part].floats[o * features + f];
            dx[t * features + f] = (float)sum;
        }
    return FTH_OK;
}

/* dweights[part][o,f] = sum over t of dy[t, part O + o] * x[t,f];  dbiases[part][o] = sum over t of dy[t, part O +
 * o] */
static fth_status run_grad_weights(const plain_call *call, const fth_run *run)
{
    (void)run;
    const float *x = call->inputs[0].floats, *dy = call->inputs[1].floats; /* (T, F), (T, 3 O) */
    const int64_t tokens = call->inputs[0].shape.dims[0], features = call->inputs[0].shape.dims[1];
    const int64_t outputs = call->inputs[1].shape.dims[1] / 3;
    for (int part = 0; part < 3; part++)
        for (int64_t o = 0; o < outputs; o++) {
            const float *column = dy + part * outputs + o; /* of rows of 3 O */
            double bias_sum = 0;
            for (int64_t f = 0; f < features; f++) {
                double sum = 0;
                for (int64_t t = 0; t < tokens; t++)
                    sum += (double)column[3 * outputs * t] * x[t * features + f];
                call->outputs[part].floats[o * features + f] = (float)sum;
            }
            for (int64_t t = 0; t < tokens; t++)
                bias_sum += column[3 * outputs * t];
            call->outputs[3 + part].floats[o] = (float)bias_sum;
        }
    return FTH_OK;
}

const plain_kernel plain_qkv_linear = {&fth_op_qkv_linear, run_qkv_linear, 0};
const plain_kernel plain_qkv_linear_grad_input = {&fth_op_qkv_linear_grad_input, run_grad_input, 0};
const plain_kernel plain_qkv_linear_grad_weights = {&fth_op_qkv_linear_grad_weights, run_grad_weights, 0};
