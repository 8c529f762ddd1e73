/* ReLU and addition. */
#include "backend/reference/reference.h"

/* NaN passes through, as in PyTorch. */
static double relu(double x)
{
    return x < 0 ? 0 : x;
}

static fth_status run_relu(const plain_call *call, const fth_run *run)
{
    (void)run;
    const float *x = call->inputs[0].floats;
    float *y = call->outputs[0].floats;
    for (int64_t i = 0; i < call->outputs[0].count; i++)
        y[i] = (float)relu(x[i]);
    return FTH_OK;
}

static fth_status run_relu_grad(const plain_call *call, const fth_run *run)
{
    (void)run;
    const float *y = call->inputs[0].floats, *dy = call->inputs[1].floats;
    float *dx = call->outputs[0].floats;
    for (int64_t i = 0; i < call->outputs[0].count; i++)
        dx[i] = y[i] <= 0 ? 0 : dy[i]; /* NaN is not a negative number: its gradient passes */
    return FTH_OK;
}

static fth_status run_add(const plain_call *call, const fth_run *run)
{
    (void)run;
    const fth_add_attributes *attributes = call->attributes;
    const float *a = call->inputs[0].floats, *b = call->inputs[1].floats;
    float *y = call->outputs[0].floats;
    for (int64_t i = 0; i < call->outputs[0].count; i++) {
        double sum = (double)a[i] + b[i];
        y[i] = (float)(attributes->relu ? relu(sum) : sum);
    }
    return FTH_OK;
}

const plain_kernel reference_relu = {&fth_op_relu, run_relu, 0};
const plain_kernel reference_relu_grad = {&fth_op_relu_grad, run_relu_grad, 0};
const plain_kernel reference_add = {&fth_op_add, run_add, 0};
