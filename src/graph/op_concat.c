/* concat: inputs one after the other along an axis. See ops.h. */
#include <stdlib.h>

#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status infer(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const int axis = ((const fth_concat_attributes *)attributes_pointer)->axis;
    fth_shape shape;

    FTH_TRY(fth_rule_check_count(input_count, 1, FTH_MAX_CONCAT_INPUTS));
    FTH_TRY(fth_rule_check_numbers(&inputs[0], "the first input"));
    FTH_TRY(fth_rule_check_axis(&inputs[0], "the first input", axis));
    shape = inputs[0].shape;
    for (int i = 1; i < input_count; i++) {
        fth_shape expected = inputs[0].shape;
        FTH_REQUIRE(inputs[i].shape.rank == expected.rank, FTH_INVALID, "inputs %s and %s differ in rank",
                    FTH_SHAPE_TEXT(&expected), FTH_SHAPE_TEXT(&inputs[i].shape));
        FTH_TRY(fth_rule_check_axis(&inputs[i], "an input", axis));
        expected.dims[axis] = inputs[i].shape.dims[axis];
        FTH_REQUIRE(inputs[i].dtype == inputs[0].dtype && fth_shape_equal(&inputs[i].shape, &expected), FTH_INVALID,
                    "inputs %s and %s may differ only in axis %d", FTH_SHAPE_TEXT(&inputs[0].shape),
                    FTH_SHAPE_TEXT(&inputs[i].shape), axis);
        FTH_REQUIRE(!__builtin_add_overflow(shape.dims[axis], inputs[i].shape.dims[axis], &shape.dims[axis]),
                    FTH_INVALID, "the result is too large");
    }
    outputs[0] = (fth_type){inputs[0].dtype, shape};

out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    fth_status status = FTH_OK;
    const int axis = ((const fth_concat_attributes *)node->attributes)->axis;
    int64_t begin = 0, end = 0;

    for (int i = 0; i < node->input_count; i++) {
        begin = end;
        end += fth_graph_value(graph, node->inputs[i])->type.shape.dims[axis];
        if (fth_rule_wants(graph, node, i))
            FTH_TRY(fth_op_add_slice(graph, axis, begin, end, 1, output_gradients[0], &input_gradients[i]));
    }

out:
    return status;
}

const fth_op fth_op_concat = {
    .name = "concat",
    .attributes_size = sizeof(fth_concat_attributes),
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

/* Joins groups of inputs first, as long as there are too many for one node. */
fth_status fth_op_add_concat(fth_graph *graph, int axis, const fth_value *inputs, int input_count, fth_value *y)
{
    fth_status status = FTH_OK;
    const fth_concat_attributes attributes = {axis};
    const int groups = (input_count + FTH_MAX_CONCAT_INPUTS - 1) / FTH_MAX_CONCAT_INPUTS;
    fth_value *joined = NULL;

    if (input_count <= FTH_MAX_CONCAT_INPUTS)
        return fth_graph_add_node(graph, &fth_op_concat, &attributes, inputs, input_count, y);
    FTH_TRY(fth_allocate((size_t)groups, sizeof *joined, &joined));
    for (int g = 0; g < groups; g++) {
        const int first = g * FTH_MAX_CONCAT_INPUTS, left = input_count - first;
        FTH_TRY(fth_op_add_concat(graph, axis, inputs + first,
                                  left < FTH_MAX_CONCAT_INPUTS ? left : FTH_MAX_CONCAT_INPUTS, &joined[g]));
    }
    FTH_TRY(fth_op_add_concat(graph, axis, joined, groups, y));

out:
    free(joined);
    return status;
}
