/* reshape: another shape for the same elements in the same order; flatten is a case of it, and so
 * is its gradient. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status infer(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_reshape_attributes *attributes = attributes_pointer;

    FTH_TRY(fth_rule_check_count(input_count, 1, 1));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the input", 0));
    const fth_shape *from = &inputs[0].shape, *to = &attributes->shape;
    /* The first dimension may be the batch, of which nothing is known but that it must stay. */
    FTH_REQUIRE(to->rank >= 1 && to->rank <= FTH_MAX_RANK && from->dims[0] == to->dims[0] &&
                    fth_rule_features(from) == fth_rule_features(to),
                FTH_INVALID, "%s cannot become %s: the first dimension and the number of elements must stay",
                FTH_SHAPE_TEXT(from), FTH_SHAPE_TEXT(to));
    outputs[0] = (fth_type){FTH_F32, *to};

out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    fth_reshape_attributes back = {.shape = fth_graph_value(graph, node->inputs[0])->type.shape};
    return fth_graph_add_node(graph, &fth_op_reshape, &back, &output_gradients[0], 1, &input_gradients[0]);
}

const fth_op fth_op_reshape = {
    .name = "reshape",
    .attributes_size = sizeof(fth_reshape_attributes),
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

fth_status fth_op_add_flatten(fth_graph *graph, fth_value x, fth_value *y)
{
    const fth_value_info *input = fth_graph_value(graph, x);
    if (!input || input->type.shape.rank < 1)
        return fth_fail(FTH_INVALID, "flatten: the input is no value of this graph with a batch");
    fth_reshape_attributes attributes = {
        .shape = FTH_SHAPE(input->type.shape.dims[0], fth_rule_features(&input->type.shape))};
    return fth_graph_add_node(graph, &fth_op_reshape, &attributes, &x, 1, y);
}
