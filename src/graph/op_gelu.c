/* gelu: x · Φ(x), exact (erf), and its gradient. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status infer(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    (void)attributes;
    FTH_TRY(fth_rule_check_count(input_count, 1, 1));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the input", 0));
    outputs[0] = inputs[0];
out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    return fth_graph_add_node(graph, &fth_op_gelu_grad, NULL, (fth_value[]){node->inputs[0], output_gradients[0]}, 2,
                              &input_gradients[0]);
}

const fth_op fth_op_gelu = {
    .name = "gelu",
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

static fth_status infer_grad(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    (void)attributes;
    FTH_TRY(fth_rule_check_count(input_count, 2, 2));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the input", 0));
    FTH_TRY(fth_rule_check_shape(&inputs[1], "the output's gradient", &inputs[0].shape));
    outputs[0] = inputs[0];
out:
    return status;
}

const fth_op fth_op_gelu_grad = {
    .name = "gelu_grad",
    .output_count = 1,
    .infer = infer_grad,
};

fth_status fth_op_add_gelu(fth_graph *graph, fth_value x, fth_value *y)
{
    return fth_graph_add_node(graph, &fth_op_gelu, NULL, &x, 1, y);
}
