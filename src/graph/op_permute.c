/* permute: axes in another order; the gradient puts them back. See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status infer(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_permute_attributes *a = attributes_pointer;
    unsigned seen = 0;

    FTH_TRY(fth_rule_check_count(input_count, 1, 1));
    FTH_TRY(fth_rule_check_numbers(&inputs[0], "the input"));
    outputs[0] = inputs[0];
    for (int i = 0; i < inputs[0].shape.rank; i++) {
        const int axis = a->axes[i];
        FTH_REQUIRE(axis >= 0 && axis < inputs[0].shape.rank && !(seen >> axis & 1), FTH_INVALID,
                    "the axes of %s cannot be put in an order with axis %d in place %d",
                    FTH_SHAPE_TEXT(&inputs[0].shape), axis, i);
        seen |= 1u << axis;
        outputs[0].shape.dims[i] = inputs[0].shape.dims[axis];
    }
    FTH_REQUIRE(inputs[0].shape.dims[0] >= 0 || a->axes[0] == 0, FTH_INVALID,
                "axis 0 of %s is the batch's and must stay first", FTH_SHAPE_TEXT(&inputs[0].shape));

out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    const fth_permute_attributes *a = node->attributes;
    int back[FTH_MAX_RANK];
    for (int i = 0; i < fth_graph_value(graph, node->inputs[0])->type.shape.rank; i++)
        back[a->axes[i]] = i;
    return fth_op_add_permute(graph, back, output_gradients[0], &input_gradients[0]);
}

const fth_op fth_op_permute = {
    .name = "permute",
    .attributes_size = sizeof(fth_permute_attributes),
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

fth_status fth_op_add_permute(fth_graph *graph, const int *axes, fth_value x, fth_value *y)
{
    fth_permute_attributes attributes = {{0}};
    const fth_value_info *input = fth_graph_value(graph, x);
    for (int i = 0; input && i < input->type.shape.rank; i++)
        attributes.axes[i] = axes[i];
    return fth_graph_add_node(graph, &fth_op_permute, &attributes, &x, 1, y);
}
