/* Linear layers: y = x W^T + b, and the gradients of x, W and b. */
#include "backend/portable/portable.h"

typedef struct linear_call {
    portable_call call;
    int64_t batch, features, outputs;
    bool relu;
} linear_call;

enum { FIRST, SECOND, BIAS, PANEL, RESULT, BIAS_RESULT, VALUES };

/* y[n][o] = bias[o] + sum over f of x[n][f] * weight[o][f] */
static fth_status run_forward(const portable_call *call, const fth_run *run)
{
    const linear_call *c = (const linear_call *)call;
    (void)run;
    call->level->multiply_transposed(call->data[FIRST], call->data[SECOND], call->data[BIAS], c->batch, c->outputs,
                                     c->features, c->relu, call->data[RESULT]);
    return FTH_OK;
}

/* c (rows, columns) = a b, a panel of b (depth, columns) after the other. Rows of b may be a
 * multiple of a page apart, which the caches cannot hold many of: each panel is packed, and serves
 * all rows. */
static void multiply(const portable_call *call, int64_t rows, int64_t columns, int64_t depth, const float *a,
                     int64_t a_row, int64_t a_step, const float *b, float *c)
{
    const portable_level *level = call->level;
    const portable_segment all = {0, depth};
    for (int64_t column = 0; column < columns; column += level->panel_columns) {
        const int64_t width = columns - column < level->panel_columns ? columns - column : level->panel_columns;
        level->pack(b + column, depth, width, columns, call->data[PANEL]);
        level->multiply(&(portable_product){
            .rows = rows,
            .columns = width,
            .a = a,
            .a_rows = {rows, 0, a_row},
            .a_step = a_step,
            .segments = &all,
            .segment_count = 1,
            .b = call->data[PANEL],
            .b_step = level->panel_columns,
            .c = c + column,
            .c_rows = {rows, 0, columns},
        });
    }
}

/* dx[n][f] = sum over o of dy[n][o] * weight[o][f] */
static fth_status run_grad_input(const portable_call *call, const fth_run *run)
{
    const linear_call *c = (const linear_call *)call;
    (void)run;
    multiply(call, c->batch, c->features, c->outputs, call->data[FIRST], c->outputs, 1, call->data[SECOND],
             call->data[RESULT]);
    return FTH_OK;
}

/* dweight[o][f] = sum over n of dy[n][o] * x[n][f];  dbias[o] = sum over n of dy[n][o] */
static fth_status run_grad_weights(const portable_call *call, const fth_run *run)
{
    const linear_call *c = (const linear_call *)call;
    (void)run;
    multiply(call, c->outputs, c->features, c->batch, call->data[SECOND], 1, c->outputs, call->data[FIRST],
             call->data[RESULT]);
    portable_sum_columns(call->level, call->data[SECOND], c->batch, c->outputs, call->data[BIAS_RESULT]);
    return FTH_OK;
}

/* ---- preparing ---- */

static fth_status prepare(fth_plan *plan, const fth_node *node, linear_call *c, int64_t panel_rows)
{
    fth_status status = FTH_OK;
    fth_plan_value *values = c->call.values;

    c->call.value_count = VALUES;
    c->call.write_count = VALUES - PANEL;
    for (int i = 0; i < VALUES; i++)
        values[i] = FTH_NO_PLAN_VALUE;
    for (int i = 0; i < node->input_count; i++)
        FTH_TRY(portable_read(plan, node->inputs[i], false, &values[FIRST + i]));
    if (panel_rows > 0)
        FTH_TRY(
            portable_add_scratch(plan, (size_t)(panel_rows * portable_get_level(plan)->panel_columns), &values[PANEL]));
    for (int i = 0; i < node->output_count; i++)
        FTH_TRY(portable_begin_write(plan, node->outputs[i], false, &values[RESULT + i]));
    FTH_TRY(portable_add_call(plan, node, &c->call, sizeof *c));
out:
    return status;
}

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    const fth_linear_attributes *attributes = node->attributes;
    const fth_shape x = fth_plan_type(plan, node->inputs[0]).shape, y = fth_plan_type(plan, node->outputs[0]).shape;
    linear_call c = {{.run = run_forward}, x.dims[0], x.dims[1], y.dims[1], attributes->relu};
    return prepare(plan, node, &c, 0);
}

static fth_status prepare_grad_input(fth_plan *plan, const fth_node *node)
{
    const fth_shape dx = fth_plan_type(plan, node->outputs[0]).shape, dy = fth_plan_type(plan, node->inputs[0]).shape;
    linear_call c = {{.run = run_grad_input}, dx.dims[0], dx.dims[1], dy.dims[1], false};
    return prepare(plan, node, &c, c.outputs);
}

static fth_status prepare_grad_weights(fth_plan *plan, const fth_node *node)
{
    const fth_shape x = fth_plan_type(plan, node->inputs[0]).shape, dy = fth_plan_type(plan, node->inputs[1]).shape;
    linear_call c = {{.run = run_grad_weights}, x.dims[0], x.dims[1], dy.dims[1], false};
    return prepare(plan, node, &c, c.batch);
}

const fth_kernel portable_linear = {&fth_op_linear, prepare_forward};
const fth_kernel portable_linear_grad_input = {&fth_op_linear_grad_input, prepare_grad_input};
const fth_kernel portable_linear_grad_weights = {&fth_op_linear_grad_weights, prepare_grad_weights};
