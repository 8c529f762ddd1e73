/* The first row of each sequence of a packed batch. */
#include "backend/plain/plain.h"

#include <string.h>

/* y[n] = x[where sequence n begins] */
static fth_status run_first_tokens(const plain_call *call, const fth_run *run)
{
    (void)run;
    const float *x = call->inputs[0].floats;    /* (T, F) */
    const int32_t *ends = call->inputs[1].ints; /* (N) */
    float *y = call->outputs[0].floats;         /* (N, F) */
    const int64_t features = call->outputs[0].shape.dims[1];
    for (int64_t n = 0; n < call->inputs[1].count; n++)
        memcpy(y + n * features, x + (n > 0 ? ends[n - 1] : 0) * features, (size_t)features * sizeof *y);
    return FTH_OK;
}

/* dx[where sequence n begins] = dy[n]; other rows are 0. */
static fth_status run_grad(const plain_call *call, const fth_run *run)
{
    (void)run;
    const float *dy = call->inputs[0].floats;   /* (N, F) */
    const int32_t *ends = call->inputs[1].ints; /* (N) */
    float *dx = call->outputs[0].floats;        /* (T, F) */
    const int64_t features = call->outputs[0].shape.dims[1];
    memset(dx, 0, (size_t)call->outputs[0].count * sizeof *dx);
    for (int64_t n = 0; n < call->inputs[1].count; n++)
        memcpy(dx + (n > 0 ? ends[n - 1] : 0) * features, dy + n * features, (size_t)features * sizeof *dx);
    return FTH_OK;
}

const plain_kernel plain_first_tokens = {&fth_op_first_tokens, run_first_tokens, 0};
const plain_kernel plain_first_tokens_grad = {&fth_op_first_tokens_grad, run_grad, 0};
