/* pad: zeros before and after along axis 1. See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status infer(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_pad_attributes *attributes = attributes_pointer;
    int64_t *channels = &outputs[0].shape.dims[1];

    FTH_TRY(fth_rule_check_count(input_count, 1, 1));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the input", 0));
    FTH_REQUIRE(inputs[0].shape.rank >= 2 && attributes->before >= 0 && attributes->after >= 0, FTH_INVALID,
                "%lld and %lld zeros cannot be put around axis 1 of %s", (long long)attributes->before,
                (long long)attributes->after, FTH_SHAPE_TEXT(&inputs[0].shape));
    outputs[0] = inputs[0];
    FTH_REQUIRE(!__builtin_add_overflow(*channels, attributes->before, channels) &&
                    !__builtin_add_overflow(*channels, attributes->after, channels),
                FTH_INVALID, "the result is too large");

out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    const fth_pad_attributes *attributes = node->attributes;
    const int64_t channels = fth_graph_value(graph, node->inputs[0])->type.shape.dims[1];
    const fth_slice_attributes slice = {attributes->before, attributes->before + channels};
    return fth_graph_add_node(graph, &fth_op_slice, &slice, &output_gradients[0], 1, &input_gradients[0]);
}

const fth_op fth_op_pad = {
    .name = "pad",
    .attributes_size = sizeof(fth_pad_attributes),
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

fth_status fth_op_add_pad(fth_graph *graph, fth_pad_attributes attributes, fth_value x, fth_value *y)
{
    return fth_graph_add_node(graph, &fth_op_pad, &attributes, &x, 1, y);
}
