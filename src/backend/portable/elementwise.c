/* ReLU, addition and dropout. The first two take images in any order, and leave them in it. */
#include "backend/portable/portable.h"

typedef struct elementwise_call {
    portable_call call;
    int64_t count;
    int64_t row;        /* elements of one */
    int64_t graph_rows; /* fth_plan_graph_rows() */
    bool relu;
} elementwise_call;

static fth_status run_relu(const portable_call *call, const fth_run *run)
{
    (void)run;
    call->level->relu(call->data[0], call->data[1], ((const elementwise_call *)call)->count);
    return FTH_OK;
}

static fth_status run_relu_grad(const portable_call *call, const fth_run *run)
{
    (void)run;
    call->level->relu_gradient(call->data[0], call->data[1], call->data[2], ((const elementwise_call *)call)->count);
    return FTH_OK;
}

static fth_status run_add(const portable_call *call, const fth_run *run)
{
    const elementwise_call *c = (const elementwise_call *)call;
    (void)run;
    call->level->add(call->data[0], call->data[1], c->relu, call->data[2], c->count);
    return FTH_OK;
}

static fth_status run_dropout(const portable_call *call, const fth_run *run)
{
    const elementwise_call *c = (const elementwise_call *)call;
    const fth_dropout_attributes *attributes = call->attributes;
    call->level->drop(call->data[0], call->data[1], c->count, fth_run_first_row(run, c->graph_rows) * (uint64_t)c->row,
                      fth_dropout_key(run->seed, run->step, attributes->id),
                      fth_dropout_threshold(attributes->probability), 1 / (1 - attributes->probability));
    return FTH_OK;
}

/* ---- preparing ---- */

/* All inputs in one order, and the output in the place of the first or second if it can be. */
static fth_status prepare(fth_plan *plan, const fth_node *node, bool channels_last, elementwise_call *c)
{
    fth_status status = FTH_OK;
    const fth_shape shape = fth_plan_type(plan, node->outputs[0]).shape;
    const int out = node->input_count;
    fth_plan_value *values = c->call.values;

    c->count = fth_shape_count(&shape);
    c->row = c->count / shape.dims[0];
    c->graph_rows = fth_plan_graph_rows(plan, node->outputs[0]);
    c->call.value_count = out + 1;
    c->call.write_count = 1;
    for (int i = 0; i < out; i++)
        FTH_TRY(portable_read(plan, node->inputs[i], channels_last, &values[i]));
    FTH_TRY(portable_begin_write(plan, node->outputs[0], channels_last, &values[out]));
    for (int i = 0; i < out; i++)
        fth_plan_may_overwrite(plan, values[out], values[i]);
    FTH_TRY(portable_add_call(plan, node, &c->call, sizeof *c));
    FTH_TRY(portable_end_write(plan, node->outputs[0], values[out]));
out:
    return status;
}

static bool is_channels_last(const fth_plan *plan, fth_value value)
{
    return portable_get_layout(plan, fth_plan_value_of(plan, value))->channels_last;
}

static fth_status prepare_relu(fth_plan *plan, const fth_node *node)
{
    elementwise_call c = {.call = {.run = run_relu}};
    return prepare(plan, node, is_channels_last(plan, node->inputs[0]), &c);
}

/* Gradients take the order of the value they belong to: its other steps have it. */
static fth_status prepare_relu_grad(fth_plan *plan, const fth_node *node)
{
    elementwise_call c = {.call = {.run = run_relu_grad}};
    return prepare(plan, node, is_channels_last(plan, node->inputs[0]), &c);
}

static fth_status prepare_add(fth_plan *plan, const fth_node *node)
{
    const fth_add_attributes *attributes = node->attributes;
    elementwise_call c = {.call = {.run = run_add}, .relu = attributes->relu};
    return prepare(plan, node, is_channels_last(plan, node->inputs[0]) || is_channels_last(plan, node->inputs[1]), &c);
}

/* The mask goes by the element's place in the plain tensor. */
static fth_status prepare_dropout(fth_plan *plan, const fth_node *node)
{
    elementwise_call c = {.call = {.run = run_dropout}};
    if (fth_plan_get_options(plan).mode == FTH_PLAN_EVALUATE)
        return portable_add_plain(plan, node, &plain_dropout);
    return prepare(plan, node, false, &c);
}

const fth_kernel portable_relu = {&fth_op_relu, prepare_relu};
const fth_kernel portable_relu_grad = {&fth_op_relu_grad, prepare_relu_grad};
const fth_kernel portable_add = {&fth_op_add, prepare_add};
const fth_kernel portable_dropout = {&fth_op_dropout, prepare_dropout};
