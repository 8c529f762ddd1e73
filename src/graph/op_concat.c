/* concat along axis 1, and slice, its inverse and gradient. See ops.h. */
#include <limits.h>

#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status infer(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    fth_shape shape;
    (void)attributes;

    FTH_TRY(fth_rule_check_count(input_count, 1, INT_MAX));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the first input", 0));
    shape = inputs[0].shape;
    FTH_REQUIRE(shape.rank >= 2, FTH_INVALID, "the first input has shape %s; it needs an axis 1 to join along",
                FTH_SHAPE_TEXT(&shape));
    for (int i = 1; i < input_count; i++) {
        fth_shape expected = inputs[0].shape;
        FTH_REQUIRE(inputs[i].shape.rank == expected.rank, FTH_INVALID, "inputs %s and %s differ in rank",
                    FTH_SHAPE_TEXT(&expected), FTH_SHAPE_TEXT(&inputs[i].shape));
        expected.dims[1] = inputs[i].shape.dims[1];
        FTH_REQUIRE(inputs[i].dtype == FTH_F32 && fth_shape_equal(&inputs[i].shape, &expected), FTH_INVALID,
                    "inputs %s and %s may differ only in axis 1", FTH_SHAPE_TEXT(&inputs[0].shape),
                    FTH_SHAPE_TEXT(&inputs[i].shape));
        FTH_REQUIRE(inputs[i].shape.dims[1] <= INT64_MAX - shape.dims[1], FTH_INVALID, "the result is too large");
        shape.dims[1] += inputs[i].shape.dims[1];
    }
    outputs[0] = (fth_type){FTH_F32, shape};

out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    fth_status status = FTH_OK;
    fth_slice_attributes slice = {0, 0};

    for (int i = 0; i < node->input_count; i++) {
        slice.begin = slice.end;
        slice.end += fth_graph_value(graph, node->inputs[i])->type.shape.dims[1];
        if (fth_rule_wants(graph, node, i))
            FTH_TRY(fth_graph_add_node(graph, &fth_op_slice, &slice, &output_gradients[0], 1, &input_gradients[i]));
    }

out:
    return status;
}

const fth_op fth_op_concat = {
    .name = "concat",
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

static fth_status infer_slice(const void *attributes_pointer, const fth_type *inputs, int input_count,
                              fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_slice_attributes *attributes = attributes_pointer;

    FTH_TRY(fth_rule_check_count(input_count, 1, 1));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the input", 0));
    FTH_REQUIRE(inputs[0].shape.rank >= 2 && attributes->begin >= 0 && attributes->begin < attributes->end &&
                    attributes->end <= inputs[0].shape.dims[1],
                FTH_INVALID, "%lld to %lld is no part of axis 1 of %s", (long long)attributes->begin,
                (long long)attributes->end, FTH_SHAPE_TEXT(&inputs[0].shape));
    outputs[0] = inputs[0];
    outputs[0].shape.dims[1] = attributes->end - attributes->begin;

out:
    return status;
}

const fth_op fth_op_slice = {
    .name = "slice",
    .attributes_size = sizeof(fth_slice_attributes),
    .output_count = 1,
    .infer = infer_slice,
};

fth_status fth_op_add_concat(fth_graph *graph, const fth_value *inputs, int input_count, fth_value *y)
{
    return fth_graph_add_node(graph, &fth_op_concat, NULL, inputs, input_count, y);
}
