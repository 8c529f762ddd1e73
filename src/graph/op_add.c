/* add: the sum of two values of one shape; the output's gradient goes to both as it is. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status infer(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    (void)attributes;
    FTH_TRY(fth_rule_check_count(input_count, 2, 2));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the first input", 0));
    FTH_TRY(fth_rule_check_shape(&inputs[1], "the second input", &inputs[0].shape));
    outputs[0] = inputs[0];
out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    fth_status status = FTH_OK;
    const fth_add_attributes *attributes = node->attributes;
    fth_value dy = FTH_NO_VALUE;
    FTH_TRY(fth_rule_before_relu(graph, attributes->relu, node->outputs[0], output_gradients[0], &dy));
    input_gradients[0] = input_gradients[1] = dy;
out:
    return status;
}

const fth_op fth_op_add = {
    .name = "add",
    .attributes_size = sizeof(fth_add_attributes),
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

fth_status fth_op_add_add(fth_graph *graph, bool relu, fth_value a, fth_value b, fth_value *y)
{
    fth_add_attributes attributes = {.relu = relu};
    return fth_graph_add_node(graph, &fth_op_add, &attributes, (fth_value[]){a, b}, 2, y);
}
