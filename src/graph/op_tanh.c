/* tanh and its gradient, which reads the output. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    return fth_graph_add_node(graph, &fth_op_tanh_grad, NULL, (fth_value[]){node->outputs[0], output_gradients[0]}, 2,
                              &input_gradients[0]);
}

const fth_op fth_op_tanh = {
    .name = "tanh",
    .output_count = 1,
    .infer = fth_rule_infer_elementwise,
    .build_gradient = build_gradient,
};

const fth_op fth_op_tanh_grad = {
    .name = "tanh_grad",
    .output_count = 1,
    .infer = fth_rule_infer_elementwise_grad,
};

fth_status fth_op_add_tanh(fth_graph *graph, fth_value x, fth_value *y)
{
    return fth_graph_add_node(graph, &fth_op_tanh, NULL, &x, 1, y);
}
