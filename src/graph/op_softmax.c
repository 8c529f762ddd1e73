/* softmax over the last axis, or its logarithm, and the gradient. See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

/* Rows need an axis of known length. */
static fth_status check_last_axis(const fth_shape *x)
{
    if (x->dims[x->rank - 1] > 0)
        return FTH_OK;
    return fth_fail(FTH_INVALID, "the input has shape %s; its last axis must not be the batch", FTH_SHAPE_TEXT(x));
}

static fth_status infer(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_rule_infer_elementwise(attributes, inputs, input_count, outputs));
    FTH_TRY(check_last_axis(&inputs[0].shape));
out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    return fth_graph_add_node(graph, &fth_op_softmax_grad, node->attributes,
                              (fth_value[]){node->outputs[0], output_gradients[0]}, 2, &input_gradients[0]);
}

const fth_op fth_op_softmax = {
    .name = "softmax",
    .attributes_size = sizeof(fth_softmax_attributes),
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

static fth_status infer_grad(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_rule_infer_elementwise_grad(attributes, inputs, input_count, outputs));
    FTH_TRY(check_last_axis(&inputs[0].shape));
out:
    return status;
}

const fth_op fth_op_softmax_grad = {
    .name = "softmax_grad",
    .attributes_size = sizeof(fth_softmax_attributes),
    .output_count = 1,
    .infer = infer_grad,
};

fth_status fth_op_add_softmax(fth_graph *graph, bool log, fth_value x, fth_value *y)
{
    const fth_softmax_attributes attributes = {log};
    return fth_graph_add_node(graph, &fth_op_softmax, &attributes, &x, 1, y);
}
