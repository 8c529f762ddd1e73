/* qkv_linear: the products of one input with three weights beside each other, and their gradients.
 * See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

/* Weights of one shape, (O, F). */
static fth_status check_weights(const fth_type *weights)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(weights[0].dtype == FTH_F32 && weights[0].shape.rank == 2, FTH_INVALID,
                "the query's weight has shape %s; it must be F32 (out, in)", FTH_SHAPE_TEXT(&weights[0].shape));
    FTH_TRY(fth_rule_check_shape(&weights[1], "the key's weight", &weights[0].shape));
    FTH_TRY(fth_rule_check_shape(&weights[2], "the value's weight", &weights[0].shape));
out:
    return status;
}

static fth_status infer(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    (void)attributes;

    FTH_TRY(fth_rule_check_count(input_count, 7, 7));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the input", 2));
    FTH_TRY(check_weights(&inputs[1]));
    const fth_shape *x = &inputs[0].shape, *weight = &inputs[1].shape;
    FTH_REQUIRE(weight->dims[1] == x->dims[1], FTH_INVALID, "the weights %s are for %s, but the input has %lld",
                FTH_SHAPE_TEXT(weight), FTH_COUNTED(weight->dims[1], "feature"), (long long)x->dims[1]);
    for (int i = 4; i < 7; i++)
        FTH_TRY(fth_rule_check_shape(&inputs[i], "a bias", &FTH_SHAPE(weight->dims[0])));
    outputs[0] = (fth_type){FTH_F32, FTH_SHAPE(x->dims[0], 3 * weight->dims[0])};

out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    fth_status status = FTH_OK;
    const fth_value dy = output_gradients[0], *in = node->inputs;
    bool wanted = false;

    for (int i = 1; i < 7; i++)
        wanted = wanted || fth_rule_wants(graph, node, i);
    if (wanted)
        FTH_TRY(fth_graph_add_node(graph, &fth_op_qkv_linear_grad_weights, NULL, (fth_value[]){in[0], dy}, 2,
                                   &input_gradients[1]));
    if (fth_rule_wants(graph, node, 0))
        FTH_TRY(fth_graph_add_node(graph, &fth_op_qkv_linear_grad_input, NULL, (fth_value[]){dy, in[1], in[2], in[3]},
                                   4, &input_gradients[0]));

out:
    return status;
}

const fth_op fth_op_qkv_linear = {
    .name = "qkv_linear",
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

static fth_status infer_grad_input(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    (void)attributes;

    FTH_TRY(fth_rule_check_count(input_count, 4, 4));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the output's gradient", 2));
    FTH_TRY(check_weights(&inputs[1]));
    const fth_shape *dy = &inputs[0].shape, *weight = &inputs[1].shape;
    FTH_TRY(fth_rule_check_shape(&inputs[0], "the output's gradient", &FTH_SHAPE(dy->dims[0], 3 * weight->dims[0])));
    outputs[0] = (fth_type){FTH_F32, FTH_SHAPE(dy->dims[0], weight->dims[1])};

out:
    return status;
}

const fth_op fth_op_qkv_linear_grad_input = {
    .name = "qkv_linear_grad_input",
    .output_count = 1,
    .infer = infer_grad_input,
};

static fth_status infer_grad_weights(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    (void)attributes;

    FTH_TRY(fth_rule_check_count(input_count, 2, 2));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the input", 2));
    FTH_TRY(fth_rule_check_float(&inputs[1], "the output's gradient", 2));
    const fth_shape *x = &inputs[0].shape, *dy = &inputs[1].shape;
    FTH_REQUIRE(x->dims[0] == dy->dims[0] && dy->dims[1] % 3 == 0, FTH_INVALID,
                "the input %s and the output's gradient %s do not belong together", FTH_SHAPE_TEXT(x),
                FTH_SHAPE_TEXT(dy));
    for (int i = 0; i < 3; i++) {
        outputs[i] = (fth_type){FTH_F32, FTH_SHAPE(dy->dims[1] / 3, x->dims[1])};
        outputs[3 + i] = (fth_type){FTH_F32, FTH_SHAPE(dy->dims[1] / 3)};
    }

out:
    return status;
}

const fth_op fth_op_qkv_linear_grad_weights = {
    .name = "qkv_linear_grad_weights",
    .output_count = 6,
    .infer = infer_grad_weights,
};

fth_status fth_op_add_qkv_linear(fth_graph *graph, fth_value x, const fth_value weights[3], const fth_value biases[3],
                                 fth_value *y)
{
    return fth_graph_add_node(graph, &fth_op_qkv_linear, NULL,
                              (fth_value[]){x, weights[0], weights[1], weights[2], biases[0], biases[1], biases[2]}, 7,
                              y);
}
