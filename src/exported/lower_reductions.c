/* Sums, means and the like over dimensions. */
#include <math.h>

#include "exported/lowering.h"

/* ---- over dimensions ---- */

fth_status lowering_reduce(lowering *l, fth_reduction kind, unsigned dims, fth_view *x)
{
    fth_status status = FTH_OK;
    fth_value value;
    unsigned axes = 0;
    fth_atom_list lists[FTH_MAX_RANK];
    const bool image = x->rank == 4 && dims == 0xc && kind == FTH_REDUCE_MEAN;

    for (int d = 0; d < x->rank; d++)
        FTH_REQUIRE((dims >> d & 1) == 0 || !fth_view_dim(x, d).batch, FTH_UNSUPPORTED, "it reduces over the batch");
    if (image || x->rank == 4) { /* images keep their shape, and their layout */
        FTH_TRY(fth_view_arrange_plain(lowering_graph(l), x));
        axes = dims;
    } else { /* runs of memory that are reduced, and that are not */
        bool reduced[FTH_VIEW_ATOMS] = {false};
        int count = 0;
        for (int d = 0; d < x->rank; d++)
            for (int i = 0; i < x->dims[d].count; i++)
                reduced[x->dims[d].atoms[i]] = (dims >> d & 1) != 0;
        const fth_atom_list all = fth_view_others(x, 0);
        for (int i = 0; i < all.count; i++) {
            if (i == 0 || reduced[all.atoms[i]] != reduced[all.atoms[i - 1]]) {
                FTH_REQUIRE(count < FTH_MAX_RANK, FTH_UNSUPPORTED, "its dimensions are permuted in too many ways");
                axes |= reduced[all.atoms[i]] ? 1u << count : 0;
                lists[count++] = (fth_atom_list){0};
            }
            lists[count - 1].atoms[lists[count - 1].count++] = all.atoms[i];
        }
        FTH_TRY(fth_view_arrange(lowering_graph(l), x, lists, count));
    }
    if (image)
        FTH_TRY(fth_op_add_global_average_pool(lowering_graph(l), x->value, &value));
    else if (axes == 0) /* nothing to reduce: a mean of one */
        value = x->value;
    else
        FTH_TRY(fth_op_add_reduce(lowering_graph(l), kind, axes, true, x->value, &value));
    x->value = value;
    for (int d = 0; d < x->rank; d++)
        if ((dims >> d & 1) != 0)
            fth_view_drop(x, d);
out:
    return status;
}

static fth_status finish(lowering *l, fth_view *x, unsigned dims, bool keep)
{
    for (int d = x->rank - 1; d >= 0 && !keep; d--)
        if ((dims >> d & 1) != 0)
            fth_view_remove(x, d);
    lowering_set(l, 0, x);
    return FTH_OK;
}

static fth_status reduce_as(lowering *l, fth_reduction kind)
{
    fth_status status = FTH_OK;
    fth_view x;
    unsigned dims;
    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_TRY(lowering_dims(l, "dim", x.rank, &dims));
    FTH_TRY(lowering_reduce(l, kind, dims, &x));
    FTH_TRY(finish(l, &x, dims, lowering_bool(l, "keepdim", false)));
out:
    return status;
}

static fth_status mean(lowering *l)
{
    return reduce_as(l, FTH_REDUCE_MEAN);
}

static fth_status sum(lowering *l)
{
    return reduce_as(l, FTH_REDUCE_SUM);
}

static fth_status largest(lowering *l)
{
    return reduce_as(l, FTH_REDUCE_MAX);
}

static fth_status smallest(lowering *l)
{
    return reduce_as(l, FTH_REDUCE_MIN);
}

/* max and min: of two tensors, or over one dimension, where their places are not read. */
static fth_status extreme(lowering *l, fth_expression_function function, fth_reduction kind)
{
    fth_status status = FTH_OK;
    fth_view a, b, y;

    if (!lowering_lacks(l, "other")) {
        FTH_TRY(lowering_tensor(l, "self", &a));
        FTH_TRY(lowering_tensor(l, "other", &b));
        FTH_TRY(lowering_binary(l, function, &a, &b, &y));
        lowering_set(l, 0, &y);
        goto out;
    }
    for (size_t o = 1; o < lowering_node(l)->output_count; o++)
        FTH_REQUIRE(!lowering_is_read(l, o), FTH_UNSUPPORTED, "the places of its results are read");
    FTH_TRY(reduce_as(l, kind));
out:
    return status;
}

static fth_status max_of(lowering *l)
{
    return extreme(l, FTH_FUNCTION_MAX, FTH_REDUCE_MAX);
}

static fth_status min_of(lowering *l)
{
    return extreme(l, FTH_FUNCTION_MIN, FTH_REDUCE_MIN);
}

static fth_status apply(lowering *l, fth_expression_function function, double number, fth_view *x)
{
    fth_expression expression = {0};
    fth_expression_apply(&expression, function, fth_expression_input(0), fth_expression_number(&expression, number),
                         FTH_NO_OPERAND);
    return lowering_apply(l, &expression, x);
}

/* The square root of the sum of squares, the sum of magnitudes, the largest magnitude. */
static fth_status norm(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x;
    unsigned dims;
    const double order = lowering_number(l, lowering_lacks(l, "ord") ? "p" : "ord", 2);

    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_TRY(lowering_dims(l, "dim", x.rank, &dims));
    FTH_REQUIRE(order == 2 || order == 1 || order == INFINITY, FTH_UNSUPPORTED, "a norm of the order %g", order);
    FTH_TRY(apply(l, order == 2 ? FTH_FUNCTION_SQUARE : FTH_FUNCTION_ABS, 0, &x));
    FTH_TRY(lowering_reduce(l, order == INFINITY ? FTH_REDUCE_MAX : FTH_REDUCE_SUM, dims, &x));
    if (order == 2)
        FTH_TRY(apply(l, FTH_FUNCTION_SQRT, 0, &x));
    FTH_TRY(finish(l, &x, dims, lowering_bool(l, "keepdim", false)));
out:
    return status;
}

static fth_status variance_of(lowering *l, bool root)
{
    fth_status status = FTH_OK;
    fth_view x, mean_of_x, centered;
    unsigned dims;
    double count = 1;
    const double correction =
        lowering_lacks(l, "correction") ? lowering_bool(l, "unbiased", true) : lowering_number(l, "correction", 1);

    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_TRY(lowering_dims(l, "dim", x.rank, &dims));
    for (int d = 0; d < x.rank; d++)
        count *= (dims >> d & 1) != 0 ? (double)fth_view_dim(&x, d).factor : 1;
    mean_of_x = x;
    FTH_TRY(lowering_reduce(l, FTH_REDUCE_MEAN, dims, &mean_of_x));
    FTH_TRY(lowering_binary(l, FTH_FUNCTION_SUB, &x, &mean_of_x, &centered));
    FTH_TRY(apply(l, FTH_FUNCTION_SQUARE, 0, &centered));
    FTH_TRY(lowering_reduce(l, FTH_REDUCE_SUM, dims, &centered));
    FTH_TRY(apply(l, FTH_FUNCTION_DIV, count - correction, &centered));
    if (root)
        FTH_TRY(apply(l, FTH_FUNCTION_SQRT, 0, &centered));
    FTH_TRY(finish(l, &centered, dims, lowering_bool(l, "keepdim", false)));
out:
    return status;
}

static fth_status variance(lowering *l)
{
    return variance_of(l, false);
}

static fth_status deviation(lowering *l)
{
    return variance_of(l, true);
}

/* log(sum(exp(x - m))) + m, with the largest number m */
static fth_status log_of_sum(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x, most, centered, y;
    unsigned dims;

    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_TRY(lowering_dims(l, "dim", x.rank, &dims));
    most = x;
    FTH_TRY(lowering_reduce(l, FTH_REDUCE_MAX, dims, &most));
    FTH_TRY(lowering_binary(l, FTH_FUNCTION_SUB, &x, &most, &centered));
    FTH_TRY(apply(l, FTH_FUNCTION_EXP, 0, &centered));
    FTH_TRY(lowering_reduce(l, FTH_REDUCE_SUM, dims, &centered));
    FTH_TRY(apply(l, FTH_FUNCTION_LOG, 0, &centered));
    FTH_TRY(lowering_binary(l, FTH_FUNCTION_ADD, &centered, &most, &y));
    FTH_TRY(finish(l, &y, dims, lowering_bool(l, "keepdim", false)));
out:
    return status;
}

/* v * (g / norm of v), over all dimensions but one */
static fth_status weight_norm(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view v, g, size, factor, y;
    const int64_t given = lowering_int(l, "dim", 0);

    FTH_TRY(lowering_tensor(l, "v", &v));
    FTH_TRY(lowering_tensor(l, "g", &g));
    unsigned dims = (1u << v.rank) - 1;
    if (given >= 0 && given < v.rank) /* -1: over all */
        dims &= ~(1u << given);
    size = v;
    FTH_TRY(apply(l, FTH_FUNCTION_SQUARE, 0, &size));
    FTH_TRY(lowering_reduce(l, FTH_REDUCE_SUM, dims, &size));
    FTH_TRY(apply(l, FTH_FUNCTION_SQRT, 0, &size));
    FTH_TRY(lowering_binary(l, FTH_FUNCTION_DIV, &g, &size, &factor));
    FTH_TRY(lowering_binary(l, FTH_FUNCTION_MUL, &v, &factor, &y));
    lowering_set(l, 0, &y);
out:
    return status;
}

const lowering_row lowering_reductions[] = {
    {"mean", mean},
    {"sum", sum},
    {"amax", largest},
    {"amin", smallest},
    {"linalg_vector_norm", norm},
    {"norm", norm},
    {"var", variance},
    {"std", deviation},
    {"max", max_of},
    {"min", min_of},
    {"logsumexp", log_of_sum},
    {"_weight_norm", weight_norm},
    {NULL, NULL},
};
