/* Query, key and value as one product. Their weights are consecutive in the flat vector, so they
 * form one weight with three times the outputs, accessed through a value that shares their memory;
 * the same goes for biases and gradients. Where they are not consecutive (some are not trained, or
 * a part's numbers do not fill whole cache lines), they are copied together first, and gradients
 * are copied apart afterwards. */
#include <string.h>

#include "backend/cpu/linear.h"

enum { PARTS = 3 };

/* Sizes: floats of a part. Values: the parts, then the whole. */
static fth_status run_join(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const int64_t count = call->sizes[0];
    for (int i = 0; i < PARTS; i++)
        memcpy((float *)call->data[PARTS] + i * count, call->data[i], (size_t)count * sizeof(float));
    return FTH_OK;
}

/* Sizes: floats of a part. Values: the whole, then the parts; unused ones are none. */
static fth_status run_split(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const int64_t count = call->sizes[0];
    for (int i = 0; i < PARTS; i++) {
        if (call->data[1 + i])
            memcpy(call->data[1 + i], (const float *)call->data[0] + i * count, (size_t)count * sizeof(float));
    }
    return FTH_OK;
}

/* Whether three parameters are consecutive in the flat vector without a gap; their gradients, if
 * any, then are too. */
static bool are_neighbours(const fth_graph *graph, const fth_value parameters[PARTS])
{
    for (int i = 0; i < PARTS; i++)
        if (parameters[i] == FTH_NO_VALUE)
            return false;
    for (int i = 1; i < PARTS; i++) {
        const fth_value_info *before = fth_graph_value(graph, parameters[i - 1]);
        if (before->kind != FTH_VALUE_PARAMETER || fth_graph_value(graph, parameters[i])->kind != FTH_VALUE_PARAMETER ||
            fth_graph_value(graph, parameters[i])->offset !=
                before->offset + (size_t)fth_shape_count(&before->type.shape))
            return false;
    }
    return true;
}

/* The shape of three weights or biases joined. */
static fth_shape joined(const fth_plan *plan, fth_value part)
{
    fth_shape shape = fth_plan_type(plan, part).shape;
    shape.dims[0] *= PARTS;
    return shape;
}

/* A value for all three; if `shares`, it shares the memory of the first. */
static fth_status add_whole(fth_plan *plan, fth_value first, bool shares, fth_plan_value *whole)
{
    fth_status status = FTH_OK;
    const fth_shape shape = joined(plan, first);
    const cpu_format plain = cpu_plain(&shape, dnnl_f32);
    FTH_TRY(fth_plan_add_value(plan, whole));
    FTH_TRY(cpu_set_layout(plan, *whole, &plain));
    if (shares)
        fth_plan_set_view(plan, *whole, fth_plan_value_of(plan, first));
out:
    return status;
}

static fth_status join(fth_plan *plan, const fth_value parts[PARTS], fth_plan_value *whole)
{
    fth_status status = FTH_OK;
    const bool shares = are_neighbours(fth_plan_graph(plan), parts);
    FTH_TRY(add_whole(plan, parts[0], shares, whole));
    if (shares)
        goto out;
    const fth_shape part = fth_plan_type(plan, parts[0]).shape;
    cpu_call call = {.run = run_join, .value_count = PARTS + 1, .write_count = 1, .sizes = {fth_shape_count(&part)}};
    for (int i = 0; i < PARTS; i++)
        FTH_TRY(cpu_read_plain(plan, parts[i], dnnl_f32, &call.values[i]));
    call.values[PARTS] = *whole;
    FTH_TRY(cpu_add_call(plan, "qkv_linear join", &call));
out:
    return status;
}

/* Where a product writes the gradients of all three; end_gradients() copies them to their
 * places. */
static fth_status begin_gradients(fth_plan *plan, const fth_value gradients[PARTS], bool *shares, fth_plan_value *whole)
{
    const fth_graph *graph = fth_plan_graph(plan);
    fth_value parameters[PARTS];
    for (int i = 0; i < PARTS; i++)
        parameters[i] = fth_graph_value(graph, gradients[i])->gradient_of;
    *shares = are_neighbours(graph, parameters);
    return add_whole(plan, gradients[0], *shares, whole);
}

static fth_status end_gradients(fth_plan *plan, const fth_value gradients[PARTS], bool shares, fth_plan_value whole)
{
    fth_status status = FTH_OK;
    const fth_shape part = fth_plan_type(plan, gradients[0]).shape;
    cpu_call call = {
        .run = run_split, .value_count = PARTS + 1, .write_count = PARTS, .sizes = {fth_shape_count(&part)}};
    if (shares)
        goto out;
    call.values[0] = whole;
    for (int i = 0; i < PARTS; i++) {
        call.values[1 + i] = FTH_NO_PLAN_VALUE;
        if (!fth_plan_is_used(plan, gradients[i]))
            continue;
        FTH_TRY(cpu_fix_plain(plan, gradients[i]));
        call.values[1 + i] = fth_plan_value_of(plan, gradients[i]);
    }
    FTH_TRY(cpu_add_call(plan, "qkv_linear split", &call));
out:
    return status;
}

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const cpu_linear_shapes shapes = {.x = fth_plan_type(plan, node->inputs[0]).shape,
                                      .weight = joined(plan, node->inputs[1]),
                                      .y = fth_plan_type(plan, node->outputs[0]).shape};
    fth_plan_value weight, bias;
    FTH_TRY(join(plan, &node->inputs[1], &weight));
    FTH_TRY(join(plan, &node->inputs[1 + PARTS], &bias));
    FTH_TRY(cpu_add_linear(plan, &shapes, fth_plan_value_of(plan, node->inputs[0]), weight, bias, false,
                           fth_plan_value_of(plan, node->outputs[0])));
out:
    return status;
}

static fth_status prepare_grad_input(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const cpu_linear_shapes shapes = {.x = fth_plan_type(plan, node->outputs[0]).shape,
                                      .weight = joined(plan, node->inputs[1]),
                                      .y = fth_plan_type(plan, node->inputs[0]).shape};
    fth_plan_value weight;
    FTH_TRY(join(plan, &node->inputs[1], &weight));
    FTH_TRY(cpu_add_linear_grad_input(plan, &shapes, fth_plan_value_of(plan, node->inputs[0]), weight,
                                      fth_plan_value_of(plan, node->outputs[0])));
out:
    return status;
}

static fth_status prepare_grad_weights(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_value *weights = &node->outputs[0], *biases = &node->outputs[PARTS];
    const cpu_linear_shapes shapes = {.x = fth_plan_type(plan, node->inputs[0]).shape,
                                      .weight = joined(plan, weights[0]),
                                      .y = fth_plan_type(plan, node->inputs[1]).shape};
    fth_plan_value weight, bias;
    bool weights_shared, biases_shared;
    FTH_TRY(begin_gradients(plan, weights, &weights_shared, &weight));
    FTH_TRY(begin_gradients(plan, biases, &biases_shared, &bias));
    FTH_TRY(cpu_add_linear_grad_weights(plan, &shapes, fth_plan_value_of(plan, node->inputs[0]),
                                        fth_plan_value_of(plan, node->inputs[1]), weight, bias));
    FTH_TRY(end_gradients(plan, weights, weights_shared, weight));
    FTH_TRY(end_gradients(plan, biases, biases_shared, bias));
out:
    return status;
}

const fth_kernel cpu_qkv_linear = {&fth_op_qkv_linear, prepare_forward};
const fth_kernel cpu_qkv_linear_grad_input = {&fth_op_qkv_linear_grad_input, prepare_grad_input};
const fth_kernel cpu_qkv_linear_grad_weights = {&fth_op_qkv_linear_grad_weights, prepare_grad_weights};
