/* normalize: layer norm without scale and shift, or RMS norm, and the gradient. See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

enum { Y, INVERSE };

static fth_status check(const fth_normalize_attributes *attributes, const fth_type *x)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(attributes->epsilon >= 0, FTH_INVALID, "epsilon is %g; it must be at least 0",
                (double)attributes->epsilon);
    FTH_TRY(fth_rule_check_float(x, "the input", 2));
    FTH_REQUIRE(x->shape.dims[1] > 0, FTH_INVALID, "the input has shape %s; rows must have a fixed length",
                FTH_SHAPE_TEXT(&x->shape));
out:
    return status;
}

static fth_status infer(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_rule_check_count(input_count, 1, 1));
    FTH_TRY(check(attributes, &inputs[0]));
    outputs[Y] = inputs[0];
    outputs[INVERSE] = (fth_type){FTH_F32, FTH_SHAPE(inputs[0].shape.dims[0])};
out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    if (output_gradients[INVERSE] != FTH_NO_VALUE)
        return fth_fail(FTH_UNSUPPORTED, "only the normalized output has a gradient");
    return fth_graph_add_node(graph, &fth_op_normalize_grad, node->attributes,
                              (fth_value[]){node->outputs[Y], output_gradients[Y], node->outputs[INVERSE]}, 3,
                              &input_gradients[0]);
}

const fth_op fth_op_normalize = {
    .name = "normalize",
    .attributes_size = sizeof(fth_normalize_attributes),
    .output_count = 2,
    .infer = infer,
    .build_gradient = build_gradient,
};

static fth_status infer_grad(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_rule_check_count(input_count, 3, 3));
    FTH_TRY(check(attributes, &inputs[0]));
    FTH_TRY(fth_rule_check_shape(&inputs[1], "the output's gradient", &inputs[0].shape));
    FTH_TRY(fth_rule_check_shape(&inputs[2], "the inverse", &FTH_SHAPE(inputs[0].shape.dims[0])));
    outputs[0] = inputs[0];
out:
    return status;
}

const fth_op fth_op_normalize_grad = {
    .name = "normalize_grad",
    .attributes_size = sizeof(fth_normalize_attributes),
    .output_count = 1,
    .infer = infer_grad,
};

fth_status fth_op_add_normalize(fth_graph *graph, float epsilon, bool rms, fth_value x, fth_value *y)
{
    const fth_normalize_attributes attributes = {epsilon, rms};
    fth_value outputs[2];
    fth_status status = fth_graph_add_node(graph, &fth_op_normalize, &attributes, &x, 1, outputs);
    if (status == FTH_OK)
        *y = outputs[Y];
    return status;
}
