/* reduce: the sum, mean, largest or smallest number along any axes, of a value or of an
 * expression. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

static const char *const names[] = {"sum", "mean", "max", "min"};

static fth_status infer(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_reduce_attributes *a = attributes;
    fth_shape whole = {0}, left = {0};

    FTH_TRY(fth_rule_infer_expression(&a->expression, inputs, input_count, &whole));
    FTH_REQUIRE(a->axes != 0 && a->axes >> whole.rank == 0 && (a->kept & ~a->axes) == 0, FTH_INVALID,
                "axes 0x%x of shape %s cannot be reduced", a->axes, FTH_SHAPE_TEXT(&whole));
    FTH_REQUIRE((a->axes & 1) == 0 || whole.dims[0] > 0 || a->reduction == FTH_REDUCE_SUM, FTH_UNSUPPORTED,
                "the %s of shape %s over the batch depends on how the batch is split; only sums do not",
                names[a->reduction], FTH_SHAPE_TEXT(&whole));
    for (int i = 0; i < whole.rank; i++)
        if ((a->axes >> i & 1) == 0 || (a->kept >> i & 1) != 0)
            left.dims[left.rank++] = a->axes >> i & 1 ? 1 : whole.dims[i];
    outputs[0] = (fth_type){.dtype = FTH_F32, .shape = left};
out:
    return status;
}

/* `value` with the axes that were reduced and dropped put back as 1; the first ones need not be, as
 * broadcasting adds them. */
static fth_status restore_axes(fth_graph *graph, const fth_reduce_attributes *a, const fth_shape *whole,
                               fth_value value, fth_value *restored)
{
    fth_reshape_attributes reshape = {.shape = *whole};
    *restored = value;
    const unsigned dropped = a->axes & ~a->kept;
    if ((dropped & (dropped + 1)) == 0)
        return FTH_OK;
    for (int i = 0; i < whole->rank; i++)
        if (a->axes >> i & 1)
            reshape.shape.dims[i] = 1;
    return fth_graph_add_node(graph, &fth_op_reshape, &reshape, &value, 1, restored);
}

/* dy / how many numbers are the extreme one, where x is. */
static fth_status spread_over_ties(fth_graph *graph, const fth_reduce_attributes *a, fth_value x, fth_value y,
                                   fth_value dy, fth_value *dx)
{
    fth_status status = FTH_OK;
    const fth_operand in[] = {fth_expression_input(0), fth_expression_input(1), fth_expression_input(2),
                              fth_expression_input(3)};
    fth_reduce_attributes count = {.axes = a->axes, .kept = a->axes};
    fth_expression spread = {0};
    fth_value ties;

    fth_expression_apply(&count.expression, FTH_FUNCTION_EQ, in[0], in[1], FTH_NO_OPERAND);
    FTH_TRY(fth_graph_add_node(graph, &fth_op_reduce, &count, (fth_value[]){x, y}, 2, &ties));
    const fth_operand is_tie = fth_expression_apply(&spread, FTH_FUNCTION_EQ, in[0], in[1], FTH_NO_OPERAND);
    const fth_operand masked = fth_expression_apply(&spread, FTH_FUNCTION_MUL, is_tie, in[2], FTH_NO_OPERAND);
    fth_expression_apply(&spread, FTH_FUNCTION_DIV, masked, in[3], FTH_NO_OPERAND);
    FTH_TRY(fth_op_add_pointwise(graph, &spread, (fth_value[]){x, y, dy, ties}, 4, NULL, dx));
out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    fth_status status = FTH_OK;
    const fth_reduce_attributes *a = node->attributes;
    const fth_shape whole = fth_graph_value(graph, node->inputs[0])->type.shape;
    fth_value dy, y;

    FTH_REQUIRE(a->expression.step_count == 0 && node->input_count == 1, FTH_UNSUPPORTED,
                "the gradient of a reduced expression is not known");
    FTH_TRY(restore_axes(graph, a, &whole, output_gradients[0], &dy));
    if (a->reduction == FTH_REDUCE_MAX || a->reduction == FTH_REDUCE_MIN) {
        FTH_TRY(restore_axes(graph, a, &whole, node->outputs[0], &y));
        FTH_TRY(spread_over_ties(graph, a, node->inputs[0], y, dy, &input_gradients[0]));
        goto out;
    }
    fth_expression share = {0};
    int64_t count = 1;
    for (int i = 0; i < whole.rank; i++)
        count *= a->axes >> i & 1 ? whole.dims[i] : 1;
    if (a->reduction == FTH_REDUCE_MEAN)
        fth_expression_apply(&share, FTH_FUNCTION_DIV, fth_expression_input(0),
                             fth_expression_number(&share, (double)count), FTH_NO_OPERAND);
    FTH_TRY(fth_op_add_pointwise(graph, &share, &dy, 1, &whole, &input_gradients[0]));
out:
    return status;
}

const fth_op fth_op_reduce = {
    .name = "reduce",
    .attributes_size = sizeof(fth_reduce_attributes),
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

fth_status fth_op_add_reduce(fth_graph *graph, fth_reduction reduction, unsigned axes, bool keep, fth_value x,
                             fth_value *y)
{
    const fth_reduce_attributes attributes = {.reduction = reduction, .axes = axes, .kept = keep ? axes : 0};
    return fth_graph_add_node(graph, &fth_op_reduce, &attributes, &x, 1, y);
}
