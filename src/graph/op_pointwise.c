/* pointwise: an expression of inputs that are broadcast as in NumPy. Its gradients are expressions
 * of the same inputs and dy, summed by reduce where an input was repeated. */
#include <limits.h>

#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status check_expression(const fth_expression *expression, int input_count)
{
    if (expression->overfull)
        return fth_fail(FTH_UNSUPPORTED, "the expression has more than %d steps or %d numbers", FTH_EXPRESSION_STEPS,
                        FTH_EXPRESSION_NUMBERS);
    if (fth_expression_inputs(expression) >> input_count != 0)
        return fth_fail(FTH_INVALID, "the expression reads more inputs than the %d there are", input_count);
    return FTH_OK;
}

fth_status fth_rule_infer_expression(const fth_expression *expression, const fth_type *inputs, int input_count,
                                     fth_shape *shape)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_rule_check_count(input_count, 1, FTH_EXPRESSION_INPUTS));
    FTH_TRY(check_expression(expression, input_count));
    for (int i = 0; i < input_count; i++) {
        FTH_REQUIRE(inputs[i].dtype == FTH_F32 || inputs[i].dtype == FTH_I32, FTH_INVALID,
                    "input %d is of type %s; it must be F32 or I32", i, fth_dtype_name(inputs[i].dtype));
        const fth_shape before = *shape;
        FTH_REQUIRE(fth_shape_broadcast(shape, &inputs[i].shape), FTH_INVALID,
                    "shapes %s and %s do not fit together: dimensions, counted from the last, must be equal or 1",
                    FTH_SHAPE_TEXT(&before), FTH_SHAPE_TEXT(&inputs[i].shape));
    }
out:
    return status;
}

static fth_status infer(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_pointwise_attributes *a = attributes;
    fth_shape shape = {0};

    FTH_TRY(fth_rule_infer_expression(&a->expression, inputs, input_count, &shape));
    if (a->expands) {
        fth_shape wide = a->shape;
        FTH_REQUIRE(fth_shape_broadcast(&wide, &shape) && fth_shape_equal(&wide, &a->shape), FTH_INVALID,
                    "shape %s cannot be expanded to %s", FTH_SHAPE_TEXT(&shape), FTH_SHAPE_TEXT(&a->shape));
        shape = wide;
    }
    outputs[0] = (fth_type){.dtype = FTH_F32, .shape = shape};
out:
    return status;
}

/* ---- gradients ---- */

/* The axes of `shape` along which `input` was repeated, and those of them that it has itself, as
 * 1. */
static void find_repeated(const fth_shape *input, const fth_shape *shape, unsigned *axes, unsigned *kept)
{
    *axes = *kept = 0;
    for (int i = 1; i <= shape->rank; i++) {
        const int axis = shape->rank - i;
        if (i > input->rank)
            *axes |= 1u << axis;
        else if (input->dims[input->rank - i] != shape->dims[axis]) {
            *axes |= 1u << axis;
            *kept |= 1u << axis;
        }
    }
}

/* Leaves out the inputs that the expression does not read; gives how many are left. */
static int drop_unused(fth_expression *expression, fth_value *inputs, int count)
{
    const unsigned used = fth_expression_inputs(expression);
    int to[FTH_EXPRESSION_INPUTS] = {0}, left = 0;
    for (int i = 0; i < count; i++)
        if (used >> i & 1) {
            inputs[left] = inputs[i];
            to[i] = left++;
        }
    fth_expression_renumber(expression, to);
    return left;
}

/* The node of an earlier input's gradient, if it computes the same. */
static fth_value find_same(const fth_graph *graph, size_t from, const fth_op *op, const fth_expression *expression,
                           const fth_value *inputs, int count)
{
    for (size_t n = from; n < graph->node_count; n++) {
        const fth_node *node = graph->nodes[n];
        if (node->op != op || node->input_count != count ||
            !fth_expression_equal(&((const fth_pointwise_attributes *)node->attributes)->expression, expression))
            continue;
        bool same = true;
        for (int i = 0; i < count; i++)
            same = same && node->inputs[i] == inputs[i];
        if (same)
            return node->outputs[0];
    }
    return FTH_NO_VALUE;
}

/* Adds the node that computes `gradient` of `inputs`, summed to the shape of `of`. */
static fth_status add_gradient(fth_graph *graph, size_t first_node, fth_expression *gradient, fth_value *inputs,
                               int count, fth_value of, const fth_shape *shape, fth_value *result)
{
    fth_status status = FTH_OK;
    const fth_value_info *info = fth_graph_value(graph, of);
    const bool is_parameter = info->kind == FTH_VALUE_PARAMETER;
    unsigned axes, kept;

    FTH_REQUIRE(!gradient->overfull, FTH_UNSUPPORTED, "the gradient has more than %d steps or %d numbers",
                FTH_EXPRESSION_STEPS, FTH_EXPRESSION_NUMBERS);
    const fth_value dy = inputs[count - 1];
    count = drop_unused(gradient, inputs, count);
    find_repeated(&info->type.shape, shape, &axes, &kept);
    if (axes != 0) {
        const fth_reduce_attributes reduce = {.axes = axes, .kept = kept, .expression = *gradient};
        FTH_TRY(fth_graph_add_node(graph, &fth_op_reduce, &reduce, inputs, count, result));
        goto out;
    }
    if (gradient->result.kind == FTH_OPERAND_INPUT && !is_parameter) {
        *result = dy; /* itself; a parameter's is written to the place of its own */
        goto out;
    }
    *result = is_parameter ? FTH_NO_VALUE : find_same(graph, first_node, &fth_op_pointwise, gradient, inputs, count);
    if (*result != FTH_NO_VALUE)
        goto out;
    const fth_pointwise_attributes pointwise = {.expression = *gradient, .shape = *shape, .expands = true};
    FTH_TRY(fth_graph_add_node(graph, &fth_op_pointwise, &pointwise, inputs, count, result));
out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    fth_status status = FTH_OK;
    const fth_pointwise_attributes *a = node->attributes;
    const fth_shape shape = fth_graph_value(graph, node->outputs[0])->type.shape;
    const size_t first_node = graph->node_count;

    FTH_REQUIRE(node->input_count < FTH_EXPRESSION_INPUTS, FTH_UNSUPPORTED, "it has more than %d inputs",
                FTH_EXPRESSION_INPUTS - 1);
    for (int i = 0; i < node->input_count; i++) {
        fth_expression gradient;
        fth_value inputs[FTH_EXPRESSION_INPUTS];
        if (!fth_rule_wants(graph, node, i) ||
            !fth_expression_differentiate(&a->expression, i, node->input_count, &gradient))
            continue;
        for (int k = 0; k < node->input_count; k++)
            inputs[k] = node->inputs[k];
        inputs[node->input_count] = output_gradients[0];
        FTH_TRY(add_gradient(graph, first_node, &gradient, inputs, node->input_count + 1, node->inputs[i], &shape,
                             &input_gradients[i]));
    }
out:
    return status;
}

const fth_op fth_op_pointwise = {
    .name = "pointwise",
    .attributes_size = sizeof(fth_pointwise_attributes),
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

fth_status fth_op_add_pointwise(fth_graph *graph, const fth_expression *expression, const fth_value *inputs, int count,
                                const fth_shape *shape_or_null, fth_value *y)
{
    fth_pointwise_attributes attributes = {.expression = *expression, .expands = shape_or_null != NULL};
    if (shape_or_null)
        attributes.shape = *shape_or_null;
    fth_expression_prune(&attributes.expression);
    return fth_graph_add_node(graph, &fth_op_pointwise, &attributes, inputs, count, y);
}
