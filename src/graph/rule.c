/* Checks and steps that the rules of several ops share. */
#include <limits.h>

#include "graph/graph_internal.h"
#include "graph/ops.h"

const char *fth_graph_shape_text(const fth_shape *shape, char *text, size_t size)
{
    fth_shape_format(shape, text, size);
    return text;
}

fth_status fth_rule_check_count(int input_count, int minimum, int maximum)
{
    if (input_count >= minimum && input_count <= maximum)
        return FTH_OK;
    if (minimum == maximum)
        return fth_fail(FTH_INVALID, "takes %s, not %d", FTH_COUNTED(minimum, "input"), input_count);
    if (maximum == INT_MAX)
        return fth_fail(FTH_INVALID, "takes at least %s, not %d", FTH_COUNTED(minimum, "input"), input_count);
    return fth_fail(FTH_INVALID, "takes %d to %d inputs, not %d", minimum, maximum, input_count);
}

fth_status fth_rule_check_float(const fth_type *type, const char *what, int rank)
{
    static const char *const expected[] = {"", "(C)", "(N, F)", "(N, M, K)", "(N, C, H, W)"};
    if (type->dtype != FTH_F32)
        return fth_fail(FTH_INVALID, "%s is of type %s; it must be F32", what, fth_dtype_name(type->dtype));
    if (rank == 0 ? type->shape.rank < 1 : type->shape.rank != rank)
        return fth_fail(FTH_INVALID, "%s has shape %s; it must be %s", what, FTH_SHAPE_TEXT(&type->shape),
                        rank == 0 ? "of at least one dimension" : expected[rank]);
    return FTH_OK;
}

fth_status fth_rule_check_numbers(const fth_type *type, const char *what)
{
    if (type->dtype != FTH_F32 && type->dtype != FTH_I32)
        return fth_fail(FTH_INVALID, "%s is of type %s; it must be F32 or I32", what, fth_dtype_name(type->dtype));
    if (type->shape.rank < 1)
        return fth_fail(FTH_INVALID, "%s has no dimension", what);
    return FTH_OK;
}

fth_status fth_rule_check_axis(const fth_type *type, const char *what, int axis)
{
    if (axis < 0 || axis >= type->shape.rank)
        return fth_fail(FTH_INVALID, "%s has shape %s, and no axis %d", what, FTH_SHAPE_TEXT(&type->shape), axis);
    if (type->shape.dims[axis] < 0)
        return fth_fail(FTH_INVALID, "axis %d of %s, of shape %s, is the batch's and must stay whole", axis, what,
                        FTH_SHAPE_TEXT(&type->shape));
    return FTH_OK;
}

fth_status fth_rule_check_integers(const fth_type *type, const char *what, int64_t count)
{
    if (type->dtype != FTH_I32 || type->shape.rank != 1)
        return fth_fail(FTH_INVALID, "%s have shape %s and type %s; they must be a vector of I32", what,
                        FTH_SHAPE_TEXT(&type->shape), fth_dtype_name(type->dtype));
    if (count != 0 && type->shape.dims[0] != count)
        return fth_fail(FTH_INVALID, "%s have shape %s; they must be %s", what, FTH_SHAPE_TEXT(&type->shape),
                        FTH_SHAPE_TEXT(&FTH_SHAPE(count)));
    return FTH_OK;
}

fth_status fth_rule_check_dropout(float probability)
{
    if (probability >= 0 && probability < 1)
        return FTH_OK;
    return fth_fail(FTH_INVALID, "the probability of dropout is %g; it must be at least 0 and below 1",
                    (double)probability);
}

fth_status fth_rule_check_shape(const fth_type *type, const char *what, const fth_shape *expected)
{
    if (type->dtype != FTH_F32)
        return fth_fail(FTH_INVALID, "%s is of type %s; it must be F32", what, fth_dtype_name(type->dtype));
    if (!fth_shape_equal(&type->shape, expected))
        return fth_fail(FTH_INVALID, "%s has shape %s; it must be %s", what, FTH_SHAPE_TEXT(&type->shape),
                        FTH_SHAPE_TEXT(expected));
    return FTH_OK;
}

int64_t fth_rule_features(const fth_shape *shape)
{
    int64_t count = 1;
    for (int i = 1; i < shape->rank; i++)
        count *= shape->dims[i];
    return count;
}

bool fth_rule_wants(const fth_graph *graph, const fth_node *node, int input)
{
    return input < node->input_count && fth_graph_value(graph, node->inputs[input])->needs_gradient;
}

uint32_t fth_rule_next_dropout(const fth_graph *graph)
{
    uint32_t count = 0;
    for (int i = 0; i < fth_graph_node_count(graph); i++) {
        const fth_op *op = fth_graph_node(graph, i)->op;
        count += op == &fth_op_dropout || op == &fth_op_layer_norm || op == &fth_op_attention ||
                 op == &fth_op_dot_product_attention;
    }
    return count;
}

fth_status fth_rule_before_relu(fth_graph *graph, bool relu, fth_value y, fth_value dy, fth_value *before)
{
    *before = dy;
    if (!relu)
        return FTH_OK;
    return fth_graph_add_node(graph, &fth_op_relu_grad, NULL, (fth_value[]){y, dy}, 2, before);
}

fth_status fth_rule_infer_elementwise(const void *attributes, const fth_type *inputs, int input_count,
                                      fth_type *outputs)
{
    fth_status status = FTH_OK;
    (void)attributes;
    FTH_TRY(fth_rule_check_count(input_count, 1, 1));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the input", 0));
    outputs[0] = inputs[0];
out:
    return status;
}

fth_status fth_rule_infer_elementwise_grad(const void *attributes, const fth_type *inputs, int input_count,
                                           fth_type *outputs)
{
    fth_status status = FTH_OK;
    (void)attributes;
    FTH_TRY(fth_rule_check_count(input_count, 2, 2));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the first input", 0));
    FTH_TRY(fth_rule_check_shape(&inputs[1], "the output's gradient", &inputs[0].shape));
    outputs[0] = inputs[0];
out:
    return status;
}

fth_status fth_rule_infer_loss_grad(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    (void)attributes;
    FTH_TRY(fth_rule_check_count(input_count, 2, 2));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the network's output", 2));
    FTH_TRY(fth_rule_check_shape(&inputs[1], "the target", &inputs[0].shape));
    outputs[0] = inputs[0];
out:
    return status;
}

fth_status fth_rule_infer_loss(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_rule_infer_loss_grad(attributes, inputs, input_count, outputs));
    outputs[0].shape = FTH_SHAPE(2);
out:
    return status;
}

fth_status fth_rule_build_loss_gradient(fth_graph *graph, const fth_node *node, const fth_op *gradient,
                                        const fth_value *output_gradients, fth_value *input_gradients)
{
    if (output_gradients[0] != FTH_NO_VALUE)
        return fth_fail(FTH_UNSUPPORTED, "the loss may not be used by other ops");
    return fth_graph_add_node(graph, gradient, node->attributes, node->inputs, 2, &input_gradients[0]);
}

fth_status fth_rule_build_weighted_gradient(fth_graph *graph, const fth_node *node, bool relu,
                                            const fth_op *grad_weights, const fth_op *grad_input,
                                            fth_value output_gradient, fth_value *input_gradients)
{
    fth_status status = FTH_OK;
    fth_value dy = FTH_NO_VALUE, parameters[2];

    FTH_TRY(fth_rule_before_relu(graph, relu, node->outputs[0], output_gradient, &dy));
    if (fth_rule_wants(graph, node, 1) || fth_rule_wants(graph, node, 2)) {
        FTH_TRY(fth_graph_add_node(graph, grad_weights, node->attributes, (fth_value[]){node->inputs[0], dy}, 2,
                                   parameters));
        input_gradients[1] = parameters[0];
        if (node->input_count == 3)
            input_gradients[2] = parameters[1];
    }
    if (fth_rule_wants(graph, node, 0))
        FTH_TRY(fth_graph_add_node(graph, grad_input, node->attributes, (fth_value[]){dy, node->inputs[1]}, 2,
                                   &input_gradients[0]));

out:
    return status;
}
