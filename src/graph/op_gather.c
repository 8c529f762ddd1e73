/* gather: entries of an axis by constant indices, and its gradient.
 *
 * The indices are known when the gradient is built, so its node is given them sorted by the entry
 * they name: each entry is one sum, in a fixed order, and no two sums write the same number. See
 * ops.h. */
#include <stdlib.h>

#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status infer(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_gather_attributes *a = attributes_pointer;

    FTH_TRY(fth_rule_check_count(input_count, 2, 2));
    FTH_TRY(fth_rule_check_numbers(&inputs[0], "the input"));
    FTH_TRY(fth_rule_check_axis(&inputs[0], "the input", a->axis));
    FTH_TRY(fth_rule_check_integers(&inputs[1], "the indices", 0));
    outputs[0] = inputs[0];
    outputs[0].shape.dims[a->axis] = inputs[1].shape.dims[0];

out:
    return status;
}

/* order: the numbers 0 to count - 1, by their index, and ends: behind those of each index. */
static void sort_indices(const int32_t *indices, int64_t count, int64_t size, int32_t *order, int32_t *ends)
{
    for (int64_t i = 0; i < size; i++)
        ends[i] = 0;
    for (int64_t k = 0; k < count; k++)
        ends[indices[k]]++;
    for (int64_t i = 0, before = 0; i < size; i++) {
        before += ends[i];
        ends[i] = (int32_t)(before - ends[i]); /* where the next goes */
    }
    for (int64_t k = 0; k < count; k++)
        order[ends[indices[k]]++] = (int32_t)k;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    fth_status status = FTH_OK;
    const fth_gather_attributes *a = node->attributes;
    const fth_value_info *indices = fth_graph_value(graph, node->inputs[1]);
    const int64_t count = indices->type.shape.dims[0];
    int32_t *order = NULL, *ends = NULL;
    fth_value inputs[3] = {output_gradients[0]};

    FTH_TRY(fth_allocate((size_t)count, sizeof *order, &order));
    FTH_TRY(fth_allocate((size_t)a->size, sizeof *ends, &ends));
    sort_indices(indices->data, count, a->size, order, ends);
    FTH_TRY(fth_op_add_constant(graph, (fth_type){FTH_I32, FTH_SHAPE(count)}, order, &inputs[1]));
    FTH_TRY(fth_op_add_constant(graph, (fth_type){FTH_I32, FTH_SHAPE(a->size)}, ends, &inputs[2]));
    FTH_TRY(fth_graph_add_node(graph, &fth_op_gather_grad, a, inputs, 3, &input_gradients[0]));

out:
    free(order);
    free(ends);
    return status;
}

const fth_op fth_op_gather = {
    .name = "gather",
    .attributes_size = sizeof(fth_gather_attributes),
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

static fth_status infer_grad(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_gather_attributes *a = attributes_pointer;

    FTH_TRY(fth_rule_check_count(input_count, 3, 3));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the output's gradient", 0));
    FTH_TRY(fth_rule_check_axis(&inputs[0], "the output's gradient", a->axis));
    FTH_TRY(fth_rule_check_integers(&inputs[1], "the order", inputs[0].shape.dims[a->axis]));
    FTH_TRY(fth_rule_check_integers(&inputs[2], "the ends", a->size));
    outputs[0] = inputs[0];
    outputs[0].shape.dims[a->axis] = a->size;

out:
    return status;
}

const fth_op fth_op_gather_grad = {
    .name = "gather_grad",
    .attributes_size = sizeof(fth_gather_attributes),
    .output_count = 1,
    .infer = infer_grad,
};

/* Kernels trust the indices: they are checked here, once. */
fth_status fth_op_add_gather(fth_graph *graph, int axis, fth_value x, fth_value indices, fth_value *y)
{
    fth_status status = FTH_OK;
    const fth_value_info *input = fth_graph_value(graph, x), *given = fth_graph_value(graph, indices);
    fth_gather_attributes attributes = {.axis = axis};

    FTH_REQUIRE(input && given, FTH_INVALID, "gather: an input is no value of this graph");
    FTH_REQUIRE(given->kind == FTH_VALUE_CONSTANT, FTH_INVALID, "gather: the indices are not a constant");
    if (fth_rule_check_axis(&input->type, "the input", axis) == FTH_OK)
        attributes.size = input->type.shape.dims[axis];
    FTH_TRY(fth_graph_add_node(graph, &fth_op_gather, &attributes, (fth_value[]){x, indices}, 2, y));
    for (int64_t k = 0; k < given->type.shape.dims[0]; k++) {
        const int32_t index = ((const int32_t *)given->data)[k];
        FTH_REQUIRE(index >= 0 && index < attributes.size, FTH_INVALID, "gather: index %d in an axis of %s", index,
                    FTH_COUNTED(attributes.size, "entry"));
    }

out:
    return status;
}
