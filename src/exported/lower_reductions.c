/* Sums and means, pooling, and changes of an image's size. */
#include <math.h>
#include <string.h>

#include "exported/lowering.h"

/* ---- over dimensions ---- */

/* Reduces x over dimensions, which are then of size 1. */
static fth_status reduce_view(lowering *l, fth_reduction kind, unsigned dims, fth_view *x)
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
    FTH_TRY(reduce_view(l, kind, dims, &x));
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
    FTH_TRY(reduce_view(l, order == INFINITY ? FTH_REDUCE_MAX : FTH_REDUCE_SUM, dims, &x));
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
    FTH_TRY(reduce_view(l, FTH_REDUCE_MEAN, dims, &mean_of_x));
    FTH_TRY(lowering_binary(l, FTH_FUNCTION_SUB, &x, &mean_of_x, &centered));
    FTH_TRY(apply(l, FTH_FUNCTION_SQUARE, 0, &centered));
    FTH_TRY(reduce_view(l, FTH_REDUCE_SUM, dims, &centered));
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

/* ---- pooling and resizing ---- */

enum { SPATIAL = 2 };

/* x as (N, C, H, W), with a height of 1 in front of a width alone. */
static fth_status image(lowering *l, const char *name, fth_view *x, bool *flat)
{
    fth_status status = FTH_OK;
    FTH_TRY(lowering_tensor(l, name, x));
    FTH_REQUIRE(x->rank == 3 || x->rank == 4, FTH_UNSUPPORTED, "its input has %d dimensions; it must be a batch",
                x->rank);
    *flat = x->rank == 3;
    if (*flat)
        FTH_TRY(fth_view_insert(x, 2));
    FTH_TRY(fth_view_arrange_plain(lowering_graph(l), x));
out:
    return status;
}

static fth_status image_result(lowering *l, fth_value value)
{
    fth_status status = FTH_OK;
    const fth_exported_value *output = lowering_output(l, 0);
    fth_view y;
    FTH_TRY(fth_view_create(value, output->rank, output->dims, &y));
    lowering_set(l, 0, &y);
out:
    return status;
}

static fth_status window(lowering *l, const char *name, bool flat, int64_t otherwise, int64_t of_height, int values[])
{
    fth_status status = FTH_OK;
    int64_t given[SPATIAL] = {of_height, otherwise};
    FTH_TRY(lowering_ints(l, name, otherwise, flat ? &given[1] : given, flat ? 1 : SPATIAL));
    for (int i = 0; i < SPATIAL; i++) {
        FTH_REQUIRE(given[i] >= 0 && given[i] <= INT32_MAX, FTH_UNSUPPORTED, "its argument %s is out of range", name);
        values[i] = (int)given[i];
    }
out:
    return status;
}

static fth_status pool(lowering *l, bool largest_of_window)
{
    fth_status status = FTH_OK;
    fth_view x;
    bool flat = false;
    int dilation[SPATIAL] = {1, 1};
    fth_value value;
    fth_pool_attributes attributes = {.ceil = lowering_bool(l, "ceil_mode", false),
                                      .count_padding = lowering_bool(l, "count_include_pad", true)};

    FTH_TRY(image(l, "self", &x, &flat));
    FTH_TRY(window(l, "kernel_size", flat, 1, 1, attributes.kernel));
    FTH_TRY(window(l, "stride", flat, 0, 1, attributes.stride));
    FTH_TRY(window(l, "padding", flat, 0, 0, attributes.padding));
    FTH_TRY(window(l, "dilation", flat, 1, 1, dilation));
    for (int i = 0; i < SPATIAL; i++)
        attributes.stride[i] = lowering_int_count(l, "stride") == 0 ? attributes.kernel[i] : attributes.stride[i];
    FTH_REQUIRE(dilation[0] == 1 && dilation[1] == 1, FTH_UNSUPPORTED, "pooling with dilation");
    FTH_REQUIRE(lowering_lacks(l, "divisor_override"), FTH_UNSUPPORTED, "pooling with a divisor of its own");
    FTH_TRY(largest_of_window ? fth_op_add_max_pool(lowering_graph(l), attributes, x.value, &value)
                              : fth_op_add_average_pool(lowering_graph(l), attributes, x.value, &value));
    FTH_TRY(image_result(l, value));
out:
    return status;
}

static fth_status max_pool(lowering *l)
{
    return pool(l, true);
}

static fth_status average_pool(lowering *l)
{
    return pool(l, false);
}

static fth_status adaptive_average_pool(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x;
    bool flat = false;
    fth_value value;
    FTH_TRY(image(l, "self", &x, &flat));
    const fth_exported_value *output = lowering_output(l, 0);
    const int height = flat ? 1 : (int)output->dims[2].factor, width = (int)output->dims[output->rank - 1].factor;
    FTH_TRY(fth_op_add_adaptive_average_pool(lowering_graph(l), height, width, x.value, &value));
    FTH_TRY(image_result(l, value));
out:
    return status;
}

static fth_status adaptive_max_pool(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x;
    bool flat = false;
    FTH_TRY(image(l, "self", &x, &flat));
    const fth_exported_value *output = lowering_output(l, 0);
    for (int d = 2; d < output->rank; d++)
        FTH_REQUIRE(output->dims[d].factor == 1, FTH_UNSUPPORTED, "adaptive max pooling to more than one pixel");
    FTH_TRY(reduce_view(l, FTH_REDUCE_MAX, 0xc, &x));
    FTH_TRY(image_result(l, x.value));
out:
    return status;
}

/* The factors that PyTorch was given instead of a size; 0: the sizes say them. */
static fth_status scale_factors(lowering *l, bool flat, double factors[SPATIAL])
{
    static const char *const single[SPATIAL] = {"scales_h", "scales_w"};
    const fth_exported_argument *given = fth_exported_find_argument(lowering_node(l), "scale_factors");
    factors[0] = factors[1] = 0;
    if (given && given->kind == FTH_ARGUMENT_FLOATS && given->count == (flat ? 1 : SPATIAL))
        for (size_t i = 0; i < given->count; i++)
            factors[SPATIAL - given->count + i] = given->numbers[i];
    for (int i = 0; i < SPATIAL && !flat; i++)
        factors[i] = lowering_number(l, single[i], factors[i]);
    if (factors[0] < 0 || factors[1] < 0)
        return fth_fail(FTH_UNSUPPORTED, "its scale factor is negative");
    return FTH_OK;
}

static fth_status resize(lowering *l, bool bilinear)
{
    fth_status status = FTH_OK;
    fth_view x;
    double factors[SPATIAL];
    bool flat = false;
    fth_value value;
    FTH_TRY(image(l, lowering_lacks(l, "input") ? "self" : "input", &x, &flat));
    const fth_exported_value *output = lowering_output(l, 0);
    FTH_TRY(scale_factors(l, flat, factors));
    FTH_TRY(fth_op_add_resize(lowering_graph(l),
                              (fth_resize_attributes){.height = flat ? 1 : (int)output->dims[2].factor,
                                                      .width = (int)output->dims[output->rank - 1].factor,
                                                      .bilinear = bilinear,
                                                      .align_corners = lowering_bool(l, "align_corners", false),
                                                      .scale_factors = {factors[0], factors[1]}},
                              x.value, &value));
    FTH_TRY(image_result(l, value));
out:
    return status;
}

static fth_status nearest(lowering *l)
{
    return resize(l, false);
}

static fth_status bilinear(lowering *l)
{
    return resize(l, true);
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
    {"max_pool1d", max_pool},
    {"max_pool2d", max_pool},
    {"avg_pool1d", average_pool},
    {"avg_pool2d", average_pool},
    {"adaptive_avg_pool1d", adaptive_average_pool},
    {"adaptive_avg_pool2d", adaptive_average_pool},
    {"adaptive_max_pool1d", adaptive_max_pool},
    {"adaptive_max_pool2d", adaptive_max_pool},
    {"upsample_nearest1d", nearest},
    {"upsample_nearest2d", nearest},
    {"upsample_bilinear2d", bilinear},
    {NULL, NULL},
};
