/* layer_norm, with the dropout and the residual in front of it, and its gradient. See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

enum { X, SCALE, SHIFT, RESIDUAL };
enum { Y, SUM, STATISTICS };

static fth_status check_attributes(const fth_layer_norm_attributes *attributes)
{
    if (attributes->epsilon > 0)
        return fth_rule_check_dropout(attributes->probability);
    return fth_fail(FTH_INVALID, "epsilon is %g; it must be above 0", (double)attributes->epsilon);
}

static fth_status infer(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_layer_norm_attributes *attributes = attributes_pointer;
    const int expected = attributes->residual ? RESIDUAL + 1 : RESIDUAL;

    FTH_TRY(fth_rule_check_count(input_count, expected, expected));
    FTH_TRY(check_attributes(attributes));
    FTH_TRY(fth_rule_check_float(&inputs[X], "the input", 2));
    const fth_shape *x = &inputs[X].shape;
    FTH_TRY(fth_rule_check_shape(&inputs[SCALE], "the scale", &FTH_SHAPE(x->dims[1])));
    FTH_TRY(fth_rule_check_shape(&inputs[SHIFT], "the shift", &FTH_SHAPE(x->dims[1])));
    if (attributes->residual)
        FTH_TRY(fth_rule_check_shape(&inputs[RESIDUAL], "the residual", x));
    outputs[Y] = outputs[SUM] = inputs[X];
    outputs[STATISTICS] = (fth_type){FTH_F32, FTH_SHAPE(x->dims[0], 2)};

out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    fth_status status = FTH_OK;
    const fth_layer_norm_attributes *attributes = node->attributes;
    const bool drops = attributes->probability > 0;
    const fth_value sum = drops || attributes->residual ? node->outputs[SUM] : node->inputs[X];
    fth_value gradients[4];

    FTH_REQUIRE(output_gradients[SUM] == FTH_NO_VALUE && output_gradients[STATISTICS] == FTH_NO_VALUE, FTH_UNSUPPORTED,
                "only the normalized output has a gradient");
    FTH_TRY(fth_graph_add_node(graph, &fth_op_layer_norm_grad, attributes,
                               (fth_value[]){sum, output_gradients[Y], node->inputs[SCALE], node->outputs[STATISTICS]},
                               4, gradients));
    input_gradients[X] = gradients[0];
    input_gradients[SCALE] = gradients[1];
    input_gradients[SHIFT] = gradients[2];
    if (attributes->residual)
        input_gradients[RESIDUAL] = drops ? gradients[3] : gradients[0];

out:
    return status;
}

const fth_op fth_op_layer_norm = {
    .name = "layer_norm",
    .attributes_size = sizeof(fth_layer_norm_attributes),
    .output_count = 3,
    .infer = infer,
    .build_gradient = build_gradient,
};

static fth_status infer_grad(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_rule_check_count(input_count, 4, 4));
    FTH_TRY(check_attributes(attributes));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the sum", 2));
    const fth_shape *sum = &inputs[0].shape, features = FTH_SHAPE(sum->dims[1]);
    FTH_TRY(fth_rule_check_shape(&inputs[1], "the output's gradient", sum));
    FTH_TRY(fth_rule_check_shape(&inputs[2], "the scale", &features));
    FTH_TRY(fth_rule_check_shape(&inputs[3], "the statistics", &FTH_SHAPE(sum->dims[0], 2)));
    outputs[0] = outputs[3] = inputs[0];
    outputs[1] = outputs[2] = (fth_type){FTH_F32, features};

out:
    return status;
}

const fth_op fth_op_layer_norm_grad = {
    .name = "layer_norm_grad",
    .attributes_size = sizeof(fth_layer_norm_attributes),
    .output_count = 4,
    .infer = infer_grad,
};

fth_status fth_op_add_layer_norm(fth_graph *graph, fth_layer_norm_attributes attributes, fth_value x, fth_value scale,
                                 fth_value shift, fth_value residual_or_none, fth_value *y)
{
    fth_value outputs[3];
    attributes.residual = residual_or_none != FTH_NO_VALUE;
    attributes.dropout = fth_rule_next_dropout(graph);
    fth_status status =
        fth_graph_add_node(graph, &fth_op_layer_norm, &attributes, (fth_value[]){x, scale, shift, residual_or_none},
                           attributes.residual ? RESIDUAL + 1 : RESIDUAL, outputs);
    if (status == FTH_OK)
        *y = outputs[Y];
    return status;
}
