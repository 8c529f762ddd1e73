/* linear: y = x · weightᵀ + bias, and its gradients. See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status infer(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    (void)attributes;

    FTH_TRY(fth_rule_check_count(input_count, 2, 3));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the input", 2));
    const fth_shape *x = &inputs[0].shape, *weight = &inputs[1].shape;
    FTH_REQUIRE(inputs[1].dtype == FTH_F32 && weight->rank == 2, FTH_INVALID,
                "the weight has shape %s; it must be F32 (out, in)", FTH_SHAPE_TEXT(weight));
    FTH_REQUIRE(weight->dims[1] == x->dims[1], FTH_INVALID, "the weight %s is for %s, but the input has %lld",
                FTH_SHAPE_TEXT(weight), FTH_COUNTED(weight->dims[1], "feature"), (long long)x->dims[1]);
    if (input_count == 3)
        FTH_TRY(fth_rule_check_shape(&inputs[2], "the bias", &FTH_SHAPE(weight->dims[0])));
    outputs[0] = (fth_type){FTH_F32, FTH_SHAPE(x->dims[0], weight->dims[0])};

out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    const fth_linear_attributes *attributes = node->attributes;
    return fth_rule_build_weighted_gradient(graph, node, attributes->relu, &fth_op_linear_grad_weights,
                                            &fth_op_linear_grad_input, output_gradients[0], input_gradients);
}

const fth_op fth_op_linear = {
    .name = "linear",
    .attributes_size = sizeof(fth_linear_attributes),
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

static fth_status infer_grad_input(const void *attributes_pointer, const fth_type *inputs, int input_count,
                                   fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_linear_attributes *attributes = attributes_pointer;
    fth_type forward[2], y;

    FTH_TRY(fth_rule_check_count(input_count, 2, 2));
    forward[0] = (fth_type){FTH_F32, attributes->input_shape};
    forward[1] = inputs[1];
    FTH_TRY(infer(attributes, forward, 2, &y));
    FTH_TRY(fth_rule_check_shape(&inputs[0], "the output's gradient", &y.shape));
    outputs[0] = forward[0];

out:
    return status;
}

const fth_op fth_op_linear_grad_input = {
    .name = "linear_grad_input",
    .attributes_size = sizeof(fth_linear_attributes),
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
    FTH_REQUIRE(x->dims[0] == dy->dims[0], FTH_INVALID,
                "the input %s and the output's gradient %s differ in their batch", FTH_SHAPE_TEXT(x),
                FTH_SHAPE_TEXT(dy));
    outputs[0] = (fth_type){FTH_F32, FTH_SHAPE(dy->dims[1], x->dims[1])};
    outputs[1] = (fth_type){FTH_F32, FTH_SHAPE(dy->dims[1])};

out:
    return status;
}

const fth_op fth_op_linear_grad_weights = {
    .name = "linear_grad_weights",
    .attributes_size = sizeof(fth_linear_attributes),
    .output_count = 2,
    .infer = infer_grad_weights,
};

fth_status fth_op_add_linear(fth_graph *graph, bool relu, fth_value x, fth_value weight, fth_value bias_or_none,
                             fth_value *y)
{
    fth_linear_attributes attributes = {.relu = relu};
    const fth_value_info *input = fth_graph_value(graph, x);
    if (input)
        attributes.input_shape = input->type.shape;
    return fth_graph_add_node(graph, &fth_op_linear, &attributes, (fth_value[]){x, weight, bias_or_none},
                              bias_or_none == FTH_NO_VALUE ? 2 : 3, y);
}
