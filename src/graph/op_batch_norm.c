/* batch_norm, with its fused residual and ReLU, and its gradient. See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

enum { X, SCALE, SHIFT, RUNNING_MEAN, RUNNING_VAR, RESIDUAL };
enum { Y, MEAN, VARIANCE, MASK };

static fth_status infer(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    static const char *const names[] = {"the input", "the scale", "the shift", "the running mean",
                                        "the running variance"};
    fth_status status = FTH_OK;
    const fth_batch_norm_attributes *attributes = attributes_pointer;
    int expected = attributes->residual ? RESIDUAL + 1 : RESIDUAL;

    FTH_TRY(fth_rule_check_count(input_count, expected, expected));
    FTH_REQUIRE(attributes->epsilon > 0, FTH_INVALID, "epsilon is %g; it must be above 0", (double)attributes->epsilon);
    FTH_REQUIRE(attributes->momentum >= 0 && attributes->momentum <= 1, FTH_INVALID,
                "momentum is %g; it must lie between 0 and 1", (double)attributes->momentum);
    const fth_shape *x = &inputs[X].shape;
    FTH_REQUIRE(inputs[X].dtype == FTH_F32 && (x->rank == 2 || x->rank == 4), FTH_INVALID,
                "the input has shape %s; it must be F32 (N, C, H, W) or (N, C)", FTH_SHAPE_TEXT(x));
    fth_shape channels = FTH_SHAPE(x->dims[1]);
    for (int i = SCALE; i <= RUNNING_VAR; i++)
        FTH_TRY(fth_rule_check_shape(&inputs[i], names[i], &channels));
    if (attributes->residual)
        FTH_TRY(fth_rule_check_shape(&inputs[RESIDUAL], "the residual", x));
    outputs[Y] = inputs[X];
    outputs[MEAN] = outputs[VARIANCE] = (fth_type){FTH_F32, channels};
    outputs[MASK] = (fth_type){FTH_U8, *x};

out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    fth_status status = FTH_OK;
    const fth_batch_norm_attributes *attributes = node->attributes;
    const fth_value *in = node->inputs, *out_values = node->outputs;
    fth_value dy = output_gradients[Y], gradients[4];

    FTH_REQUIRE(dy != FTH_NO_VALUE, FTH_UNSUPPORTED, "only the normalized output has a gradient");
    const fth_value mean = attributes->fixed ? in[RUNNING_MEAN] : out_values[MEAN];
    const fth_value variance = attributes->fixed ? in[RUNNING_VAR] : out_values[VARIANCE];
    FTH_TRY(fth_graph_add_node(graph, &fth_op_batch_norm_grad, attributes,
                               (fth_value[]){in[X], out_values[Y], dy, in[SCALE], mean, variance, out_values[MASK]}, 7,
                               gradients));
    input_gradients[X] = gradients[0];
    input_gradients[SCALE] = gradients[1];
    input_gradients[SHIFT] = gradients[2];
    if (attributes->residual)
        input_gradients[RESIDUAL] = attributes->relu ? gradients[3] : dy;

out:
    return status;
}

const fth_op fth_op_batch_norm = {
    .name = "batch_norm",
    .attributes_size = sizeof(fth_batch_norm_attributes),
    .output_count = 4,
    .infer = infer,
    .build_gradient = build_gradient,
};

static fth_status infer_grad(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    (void)attributes;

    FTH_TRY(fth_rule_check_count(input_count, 7, 7));
    const fth_shape *x = &inputs[0].shape;
    FTH_REQUIRE(inputs[0].dtype == FTH_F32 && (x->rank == 2 || x->rank == 4), FTH_INVALID,
                "the input has shape %s; it must be F32 (N, C, H, W) or (N, C)", FTH_SHAPE_TEXT(x));
    fth_shape channels = FTH_SHAPE(x->dims[1]);
    FTH_TRY(fth_rule_check_shape(&inputs[1], "the output", x));
    FTH_TRY(fth_rule_check_shape(&inputs[2], "the output's gradient", x));
    FTH_TRY(fth_rule_check_shape(&inputs[3], "the scale", &channels));
    FTH_TRY(fth_rule_check_shape(&inputs[4], "the mean", &channels));
    FTH_TRY(fth_rule_check_shape(&inputs[5], "the variance", &channels));
    FTH_REQUIRE(inputs[6].dtype == FTH_U8 && fth_shape_equal(&inputs[6].shape, x), FTH_INVALID,
                "the mask has shape %s; it must be U8 %s", FTH_SHAPE_TEXT(&inputs[6].shape), FTH_SHAPE_TEXT(x));
    outputs[0] = outputs[3] = inputs[0];
    outputs[1] = outputs[2] = (fth_type){FTH_F32, channels};

out:
    return status;
}

const fth_op fth_op_batch_norm_grad = {
    .name = "batch_norm_grad",
    .attributes_size = sizeof(fth_batch_norm_attributes),
    .output_count = 4,
    .infer = infer_grad,
};

fth_status fth_op_add_batch_norm(fth_graph *graph, fth_batch_norm_attributes attributes, fth_value x, fth_value scale,
                                 fth_value shift, fth_value running_mean, fth_value running_var,
                                 fth_value residual_or_none, fth_value *y)
{
    fth_value outputs[4];
    attributes.residual = residual_or_none != FTH_NO_VALUE;
    fth_status status = fth_graph_add_node(graph, &fth_op_batch_norm, &attributes,
                                           (fth_value[]){x, scale, shift, running_mean, running_var, residual_or_none},
                                           attributes.residual ? RESIDUAL + 1 : RESIDUAL, outputs);
    if (status == FTH_OK)
        *y = outputs[Y];
    return status;
}
