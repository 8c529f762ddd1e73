/* pad: entries of one value around, and between, those of an axis. See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status infer(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_pad_attributes *a = attributes_pointer;
    int64_t added;

    FTH_TRY(fth_rule_check_count(input_count, 1, 1));
    FTH_TRY(fth_rule_check_numbers(&inputs[0], "the input"));
    FTH_TRY(fth_rule_check_axis(&inputs[0], "the input", a->axis));
    FTH_REQUIRE(a->before >= 0 && a->after >= 0 && a->between >= 0, FTH_INVALID,
                "%lld, %lld and %lld entries cannot be put before, after and between those of axis %d of %s",
                (long long)a->before, (long long)a->after, (long long)a->between, a->axis,
                FTH_SHAPE_TEXT(&inputs[0].shape));
    outputs[0] = inputs[0];
    int64_t *size = &outputs[0].shape.dims[a->axis];
    FTH_REQUIRE(!__builtin_mul_overflow(*size - 1, a->between, &added) && !__builtin_add_overflow(*size, added, size) &&
                    !__builtin_add_overflow(*size, a->before, size) && !__builtin_add_overflow(*size, a->after, size),
                FTH_INVALID, "the result is too large");

out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    const fth_pad_attributes *a = node->attributes;
    const int64_t size = fth_graph_value(graph, node->inputs[0])->type.shape.dims[a->axis], step = a->between + 1;
    return fth_op_add_slice(graph, a->axis, a->before, a->before + (size - 1) * step + 1, step, output_gradients[0],
                            &input_gradients[0]);
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
