/* The first row of each sequence, and its gradient: copies of rows. */
#include <string.h>

#include "backend/cpu/rows.h"

/* Sizes: sequences, bytes of a row, rows of tokens. Values: x or dy, ends, y or dx. */
static fth_status run_forward(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const int32_t *ends = call->data[1];
    const size_t row_bytes = (size_t)call->sizes[1];
    for (int64_t n = 0; n < call->sizes[0]; n++)
        memcpy((char *)call->data[2] + (size_t)n * row_bytes,
               (const char *)call->data[0] + (n ? (size_t)ends[n - 1] : 0) * row_bytes, row_bytes);
    return FTH_OK;
}

/* Zero bits are the number 0 in f32 and in bf16. */
static fth_status run_gradient(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const int32_t *ends = call->data[1];
    const size_t row_bytes = (size_t)call->sizes[1];
    const int64_t tokens = call->sizes[2];
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < tokens; t++)
        memset((char *)call->data[2] + (size_t)t * row_bytes, 0, row_bytes);
    for (int64_t n = 0; n < call->sizes[0]; n++)
        memcpy((char *)call->data[2] + (n ? (size_t)ends[n - 1] : 0) * row_bytes,
               (const char *)call->data[0] + (size_t)n * row_bytes, row_bytes);
    return FTH_OK;
}

static fth_status prepare(fth_plan *plan, const fth_node *node,
                          fth_status (*run)(const cpu_call *call, const fth_run *run))
{
    fth_status status = FTH_OK;
    const fth_shape from = fth_plan_type(plan, node->inputs[0]).shape, to = fth_plan_type(plan, node->outputs[0]).shape;
    const size_t item = cpu_compute_dtype(plan) == dnnl_bf16 ? sizeof(uint16_t) : sizeof(float);
    cpu_call call = {.run = run,
                     .value_count = 3,
                     .write_count = 1,
                     .sizes = {fth_plan_type(plan, node->inputs[1]).shape.dims[0], from.dims[1] * (int64_t)item,
                               run == run_gradient ? to.dims[0] : from.dims[0]}};
    FTH_TRY(cpu_read_rows(plan, node->inputs[0], &call.values[0]));
    FTH_TRY(cpu_read_plain(plan, node->inputs[1], dnnl_s32, &call.values[1]));
    FTH_TRY(cpu_begin_rows(plan, node->outputs[0], &call.values[2]));
    FTH_TRY(cpu_add_call(plan, node->op->name, &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), call.values[2]));
out:
    return status;
}

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    return prepare(plan, node, run_forward);
}

static fth_status prepare_gradient(fth_plan *plan, const fth_node *node)
{
    return prepare(plan, node, run_gradient);
}

const fth_kernel cpu_first_tokens = {&fth_op_first_tokens, prepare_forward};
const fth_kernel cpu_first_tokens_grad = {&fth_op_first_tokens_grad, prepare_gradient};
