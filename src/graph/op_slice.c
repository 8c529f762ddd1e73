/* slice: a part of an axis, and the gradient of concat and pad. See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status infer(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_slice_attributes *a = attributes_pointer;

    FTH_TRY(fth_rule_check_count(input_count, 1, 1));
    FTH_TRY(fth_rule_check_numbers(&inputs[0], "the input"));
    FTH_TRY(fth_rule_check_axis(&inputs[0], "the input", a->axis));
    FTH_REQUIRE(a->begin >= 0 && a->begin < a->end && a->end <= inputs[0].shape.dims[a->axis] && a->step >= 1,
                FTH_INVALID, "%lld to %lld by %lld is no part of axis %d of %s", (long long)a->begin, (long long)a->end,
                (long long)a->step, a->axis, FTH_SHAPE_TEXT(&inputs[0].shape));
    outputs[0] = inputs[0];
    outputs[0].shape.dims[a->axis] = (a->end - a->begin - 1) / a->step + 1;

out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    const fth_slice_attributes *a = node->attributes;
    const int64_t size = fth_graph_value(graph, node->inputs[0])->type.shape.dims[a->axis];
    const int64_t last = a->begin + (a->end - a->begin - 1) / a->step * a->step;
    const fth_pad_attributes pad = {
        .axis = a->axis, .before = a->begin, .after = size - 1 - last, .between = a->step - 1};
    return fth_op_add_pad(graph, pad, output_gradients[0], &input_gradients[0]);
}

const fth_op fth_op_slice = {
    .name = "slice",
    .attributes_size = sizeof(fth_slice_attributes),
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

fth_status fth_op_add_slice(fth_graph *graph, int axis, int64_t begin, int64_t end, int64_t step, fth_value x,
                            fth_value *y)
{
    const fth_slice_attributes attributes = {.axis = axis, .begin = begin, .end = end, .step = step};
    return fth_graph_add_node(graph, &fth_op_slice, &attributes, &x, 1, y);
}
