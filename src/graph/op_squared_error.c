/* squared_error: a loss, where gradients begin. See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    return fth_rule_build_loss_gradient(graph, node, &fth_op_squared_error_grad, output_gradients, input_gradients);
}

const fth_op fth_op_squared_error = {
    .name = "squared_error",
    .output_count = 1,
    .infer = fth_rule_infer_loss,
    .build_gradient = build_gradient,
};

const fth_op fth_op_squared_error_grad = {
    .name = "squared_error_grad",
    .output_count = 1,
    .infer = fth_rule_infer_loss_grad,
};

fth_status fth_op_add_squared_error(fth_graph *graph, fth_value outputs, fth_value targets, fth_value *loss)
{
    return fth_graph_add_node(graph, &fth_op_squared_error, NULL, (fth_value[]){outputs, targets}, 2, loss);
}
