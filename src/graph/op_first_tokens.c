/* first_tokens: the first row of each sequence of a packed batch, and its gradient. See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status infer(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    (void)attributes;

    FTH_TRY(fth_rule_check_count(input_count, 2, 2));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the input", 2));
    FTH_REQUIRE(inputs[0].shape.dims[0] == FTH_TOKENS, FTH_INVALID, "the input has shape %s; its rows must be tokens",
                FTH_SHAPE_TEXT(&inputs[0].shape));
    FTH_TRY(fth_rule_check_integers(&inputs[1], "the ends", 0));
    outputs[0] = (fth_type){FTH_F32, FTH_SHAPE(inputs[1].shape.dims[0], inputs[0].shape.dims[1])};

out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    return fth_graph_add_node(graph, &fth_op_first_tokens_grad, NULL,
                              (fth_value[]){output_gradients[0], node->inputs[1]}, 2, &input_gradients[0]);
}

const fth_op fth_op_first_tokens = {
    .name = "first_tokens",
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

static fth_status infer_grad(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    (void)attributes;

    FTH_TRY(fth_rule_check_count(input_count, 2, 2));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the output's gradient", 2));
    FTH_TRY(fth_rule_check_integers(&inputs[1], "the ends", inputs[0].shape.dims[0]));
    outputs[0] = (fth_type){FTH_F32, FTH_SHAPE(FTH_TOKENS, inputs[0].shape.dims[1])};

out:
    return status;
}

const fth_op fth_op_first_tokens_grad = {
    .name = "first_tokens_grad",
    .output_count = 1,
    .infer = infer_grad,
};

fth_status fth_op_add_first_tokens(fth_graph *graph, fth_value x, fth_value ends, fth_value *y)
{
    return fth_graph_add_node(graph, &fth_op_first_tokens, NULL, (fth_value[]){x, ends}, 2, y);
}
