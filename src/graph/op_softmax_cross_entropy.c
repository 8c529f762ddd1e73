/* softmax_cross_entropy: the loss, where gradients begin. See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status check_attributes(const fth_cross_entropy_attributes *attributes)
{
    if (attributes->label_smoothing >= 0 && attributes->label_smoothing < 1)
        return FTH_OK;
    return fth_fail(FTH_INVALID, "label smoothing is %g; it must be at least 0 and below 1",
                    (double)attributes->label_smoothing);
}

/* (R, C) floats and (R) labels: what both ops take. */
static fth_status check_inputs(const fth_type *inputs, const char *what)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(inputs[0].dtype == FTH_F32 && inputs[0].shape.rank == 2, FTH_INVALID,
                "%s have shape %s; they must be F32 (rows, classes)", what, FTH_SHAPE_TEXT(&inputs[0].shape));
    FTH_REQUIRE(inputs[1].dtype == FTH_I32 && inputs[1].shape.rank == 1 &&
                    inputs[1].shape.dims[0] == inputs[0].shape.dims[0],
                FTH_INVALID, "the labels have shape %s and type %s; they must be I32, one for each row of %s",
                FTH_SHAPE_TEXT(&inputs[1].shape), fth_dtype_name(inputs[1].dtype), FTH_SHAPE_TEXT(&inputs[0].shape));
out:
    return status;
}

static fth_status infer(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_rule_check_count(input_count, 2, 2));
    FTH_TRY(check_attributes(attributes));
    FTH_TRY(check_inputs(inputs, "the logits"));
    outputs[0] = (fth_type){FTH_F32, FTH_SHAPE(2)};
    outputs[1] = inputs[0];
    outputs[2] = (fth_type){FTH_F32, FTH_SHAPE(1)};
out:
    return status;
}

/* The root of the backward part: no gradient comes in. */
static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    for (int i = 0; i < 3; i++)
        if (output_gradients[i] != FTH_NO_VALUE)
            return fth_fail(FTH_UNSUPPORTED, "the loss and the probabilities may not be used by other ops");
    return fth_graph_add_node(graph, &fth_op_softmax_cross_entropy_grad, node->attributes,
                              (fth_value[]){node->outputs[1], node->inputs[1], node->outputs[2]}, 3,
                              &input_gradients[0]);
}

const fth_op fth_op_softmax_cross_entropy = {
    .name = "softmax_cross_entropy",
    .attributes_size = sizeof(fth_cross_entropy_attributes),
    .output_count = 3,
    .infer = infer,
    .build_gradient = build_gradient,
};

static fth_status infer_grad(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_rule_check_count(input_count, 3, 3));
    FTH_TRY(check_attributes(attributes));
    FTH_TRY(check_inputs(inputs, "the probabilities"));
    FTH_TRY(fth_rule_check_shape(&inputs[2], "the count", &FTH_SHAPE(1)));
    outputs[0] = inputs[0];
out:
    return status;
}

const fth_op fth_op_softmax_cross_entropy_grad = {
    .name = "softmax_cross_entropy_grad",
    .attributes_size = sizeof(fth_cross_entropy_attributes),
    .output_count = 1,
    .infer = infer_grad,
};

fth_status fth_op_add_softmax_cross_entropy(fth_graph *graph, float label_smoothing, fth_value logits, fth_value labels,
                                            fth_value *loss)
{
    fth_cross_entropy_attributes attributes = {.label_smoothing = label_smoothing};
    fth_value outputs[3];
    fth_status status = fth_graph_add_node(graph, &fth_op_softmax_cross_entropy, &attributes,
                                           (fth_value[]){logits, labels}, 2, outputs);
    if (status == FTH_OK)
        *loss = outputs[0];
    return status;
}
