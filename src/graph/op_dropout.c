/* dropout: which elements are kept is a pure function of (seed, step, id, element), so its gradient
 * is the same op. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status infer(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_dropout_attributes *attributes = attributes_pointer;
    FTH_TRY(fth_rule_check_count(input_count, 1, 1));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the input", 0));
    FTH_TRY(fth_rule_check_dropout(attributes->probability));
    outputs[0] = inputs[0];
out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    return fth_graph_add_node(graph, &fth_op_dropout, node->attributes, &output_gradients[0], 1, &input_gradients[0]);
}

const fth_op fth_op_dropout = {
    .name = "dropout",
    .attributes_size = sizeof(fth_dropout_attributes),
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

fth_status fth_op_add_dropout(fth_graph *graph, float probability, fth_value x, fth_value *y)
{
    const fth_dropout_attributes attributes = {.probability = probability, .id = fth_rule_next_dropout(graph)};
    return fth_graph_add_node(graph, &fth_op_dropout, &attributes, &x, 1, y);
}
