/* reshape: another shape for the same elements in the same order; flatten is a case of it, and so
 * is its gradient. See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

/* Elements of a sample, of a token, or of all where the size is fixed; 0 if there are too many. */
static int64_t count_each(const fth_shape *shape)
{
    int64_t count = shape->dims[0] == FTH_TOKENS ? 1
                    : shape->dims[0] < 0         ? fth_rows_per_sample(shape->dims[0])
                                                 : shape->dims[0];
    for (int i = 1; i < shape->rank; i++)
        if (__builtin_mul_overflow(count, shape->dims[i], &count))
            return 0;
    return count;
}

/* Whether a shape begins with tokens, samples or a fixed size, which must stay. */
static int64_t kind_of_rows(const fth_shape *shape)
{
    return shape->dims[0] >= 0 ? 0 : shape->dims[0] == FTH_TOKENS ? FTH_TOKENS : FTH_BATCH;
}

static fth_status infer(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_reshape_attributes *attributes = attributes_pointer;

    FTH_TRY(fth_rule_check_count(input_count, 1, 1));
    FTH_TRY(fth_rule_check_numbers(&inputs[0], "the input"));
    const fth_shape *from = &inputs[0].shape, *to = &attributes->shape;
    FTH_REQUIRE(to->rank >= 1 && to->rank <= FTH_MAX_RANK, FTH_INVALID, "a shape of %d dimensions", to->rank);
    FTH_REQUIRE(kind_of_rows(from) == kind_of_rows(to) && count_each(from) == count_each(to) && count_each(to) > 0,
                FTH_INVALID, "%s cannot become %s: the number of elements must stay, in each sample of a batch",
                FTH_SHAPE_TEXT(from), FTH_SHAPE_TEXT(to));
    outputs[0] = (fth_type){inputs[0].dtype, *to};

out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    fth_reshape_attributes back = {.shape = fth_graph_value(graph, node->inputs[0])->type.shape};
    return fth_graph_add_node(graph, &fth_op_reshape, &back, &output_gradients[0], 1, &input_gradients[0]);
}

const fth_op fth_op_reshape = {
    .name = "reshape",
    .attributes_size = sizeof(fth_reshape_attributes),
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

fth_status fth_op_add_flatten(fth_graph *graph, fth_value x, fth_value *y)
{
    const fth_value_info *input = fth_graph_value(graph, x);
    if (!input || input->type.shape.rank < 1)
        return fth_fail(FTH_INVALID, "flatten: the input is no value of this graph with a batch");
    return fth_op_add_reshape(graph, FTH_SHAPE(input->type.shape.dims[0], fth_rule_features(&input->type.shape)), x, y);
}

fth_status fth_op_add_reshape(fth_graph *graph, fth_shape shape, fth_value x, fth_value *y)
{
    const fth_reshape_attributes attributes = {shape};
    return fth_graph_add_node(graph, &fth_op_reshape, &attributes, &x, 1, y);
}
