/* Layers over images: convolutions, pooling, and changes of an image's size. Those over (N, C, L) are
 * layers over images of the height 1. */
#include <string.h>

#include "exported/lowering.h"

enum { SPATIAL = 2 };

/* ---- images ---- */

fth_status lowering_image(lowering *l, const char *name, int fewest_rank, fth_view *x)
{
    fth_status status = FTH_OK;
    FTH_TRY(lowering_tensor(l, name, x));
    FTH_REQUIRE(x->rank >= fewest_rank && x->rank <= 4, FTH_UNSUPPORTED,
                "its input has %d dimensions; it must be a batch", x->rank);
    while (x->rank < 4)
        FTH_TRY(fth_view_insert(x, 2));
    FTH_TRY(fth_view_arrange_plain(lowering_graph(l), x));
out:
    return status;
}

fth_status lowering_image_result(lowering *l, fth_value value, fth_view *y)
{
    fth_status status = FTH_OK;
    const fth_exported_value *output = lowering_output(l, 0);
    FTH_TRY(fth_view_create(value, output->rank, output->dims, y));
out:
    return status;
}

/* A weight (O, C, [H,] W) with all four dimensions. */
static fth_status weight_of_image(lowering *l, fth_value *weight)
{
    fth_status status = FTH_OK;
    FTH_TRY(lowering_required_state(l, "weight", weight));
    const fth_shape shape = fth_graph_value(lowering_graph(l), *weight)->type.shape;
    if (shape.rank == 3)
        FTH_TRY(fth_op_add_reshape(lowering_graph(l), FTH_SHAPE(shape.dims[0], shape.dims[1], 1, shape.dims[2]),
                                   *weight, weight));
out:
    return status;
}

/* Height and width of an argument: of layers over (N, C, L) it has the width alone, and `of_height` is
 * the height's. */
static fth_status pair(lowering *l, const char *name, int rank, int64_t otherwise, int64_t of_height,
                       int values[SPATIAL])
{
    fth_status status = FTH_OK;
    int64_t given[SPATIAL] = {of_height, otherwise};
    FTH_TRY(lowering_ints(l, name, otherwise, rank == 3 ? &given[1] : given, rank == 3 ? 1 : SPATIAL));
    for (int i = 0; i < SPATIAL; i++) {
        FTH_REQUIRE(given[i] >= 0 && given[i] <= INT32_MAX, FTH_UNSUPPORTED, "its argument %s is out of range", name);
        values[i] = (int)given[i];
    }
out:
    return status;
}

/* ---- convolutions ---- */

/* "same": as much padding as keeps the size; an odd one more behind than before. */
static fth_status pad_same(lowering *l, fth_convolution_attributes *attributes, fth_value weight, fth_value *x)
{
    fth_status status = FTH_OK;
    const fth_shape *kernel = &fth_graph_value(lowering_graph(l), weight)->type.shape;
    for (int i = 0; i < SPATIAL; i++) {
        const int64_t total = attributes->dilation[i] * (kernel->dims[2 + i] - 1), before = total / 2;
        if (total % 2 == 0)
            attributes->padding[i] = (int)before;
        else
            FTH_TRY(fth_op_add_pad(lowering_graph(l),
                                   (fth_pad_attributes){.axis = 2 + i, .before = before, .after = total - before}, *x,
                                   x));
    }
out:
    return status;
}

static fth_status convolution_attributes(lowering *l, int rank, fth_convolution_attributes *attributes)
{
    fth_status status = FTH_OK;
    *attributes = (fth_convolution_attributes){.groups = (int)lowering_int(l, "groups", 1)};
    FTH_TRY(pair(l, "stride", rank, 1, 1, attributes->stride));
    FTH_TRY(pair(l, "dilation", rank, 1, 1, attributes->dilation));
    if (!*lowering_text(l, "padding", ""))
        FTH_TRY(pair(l, "padding", rank, 0, 0, attributes->padding));
out:
    return status;
}

static fth_status convolution(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x, y;
    lowering_pending pending = {.kind = LOWERING_CONVOLUTION};

    FTH_TRY(lowering_tensor(l, "input", &x));
    FTH_TRY(convolution_attributes(l, x.rank, &pending.convolution));
    FTH_TRY(lowering_image(l, "input", 3, &x));
    FTH_TRY(weight_of_image(l, &pending.inputs[1]));
    FTH_TRY(lowering_state(l, "bias", &pending.inputs[2]));
    if (strcmp(lowering_text(l, "padding", ""), "same") == 0)
        FTH_TRY(pad_same(l, &pending.convolution, pending.inputs[1], &x.value));
    pending.inputs[0] = x.value;
    FTH_TRY(lowering_image_result(l, FTH_NO_VALUE, &y));
    FTH_TRY(lowering_set_pending(l, &pending, &y));
out:
    return status;
}

static fth_status transposed_convolution(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x, y, shift;
    fth_value weight, bias, result;
    fth_convolution_attributes attributes;
    int output_padding[SPATIAL];

    FTH_TRY(lowering_tensor(l, "input", &x));
    FTH_TRY(convolution_attributes(l, x.rank, &attributes));
    FTH_TRY(pair(l, "output_padding", x.rank, 0, 0, output_padding));
    FTH_TRY(lowering_image(l, "input", 3, &x));
    FTH_TRY(weight_of_image(l, &weight));
    FTH_TRY(lowering_state(l, "bias", &bias));
    FTH_TRY(fth_op_add_transposed_convolution(lowering_graph(l), attributes, output_padding, x.value, weight,
                                              FTH_NO_VALUE, &result));
    FTH_TRY(lowering_image_result(l, result, &y));
    if (bias != FTH_NO_VALUE) {
        FTH_TRY(lowering_along(l, bias, y.rank, 1, &shift));
        FTH_TRY(lowering_binary(l, FTH_FUNCTION_ADD, &y, &shift, &y));
    }
    lowering_set(l, 0, &y);
out:
    return status;
}

/* ---- pooling and resizing ---- */

static fth_status set_image(lowering *l, fth_value value)
{
    fth_view y;
    fth_status status = lowering_image_result(l, value, &y);
    if (status == FTH_OK)
        lowering_set(l, 0, &y);
    return status;
}

/* Height and width of the result. */
static fth_status size_of_result(const lowering *l, int size[SPATIAL])
{
    fth_status status = FTH_OK;
    const fth_exported_value *output = lowering_output(l, 0);
    FTH_REQUIRE(output->rank == 3 || output->rank == 4, FTH_UNSUPPORTED, "its result has %d dimensions", output->rank);
    size[0] = 1;
    for (int d = 2; d < output->rank; d++) {
        FTH_REQUIRE(output->dims[d].factor <= INT32_MAX, FTH_UNSUPPORTED, "its result is too large");
        size[d - output->rank + SPATIAL] = (int)output->dims[d].factor;
    }
out:
    return status;
}

static fth_status pool(lowering *l, bool largest_of_window)
{
    fth_status status = FTH_OK;
    fth_view x;
    int dilation[SPATIAL] = {1, 1};
    fth_value value;
    const int rank = lowering_output(l, 0)->rank;
    fth_pool_attributes attributes = {.ceil = lowering_bool(l, "ceil_mode", false),
                                      .count_padding = lowering_bool(l, "count_include_pad", true)};

    FTH_TRY(lowering_image(l, "self", 3, &x));
    FTH_TRY(pair(l, "kernel_size", rank, 1, 1, attributes.kernel));
    FTH_TRY(pair(l, "stride", rank, 0, 1, attributes.stride));
    FTH_TRY(pair(l, "padding", rank, 0, 0, attributes.padding));
    FTH_TRY(pair(l, "dilation", rank, 1, 1, dilation));
    for (int i = 0; i < SPATIAL; i++)
        attributes.stride[i] = lowering_int_count(l, "stride") == 0 ? attributes.kernel[i] : attributes.stride[i];
    FTH_REQUIRE(dilation[0] == 1 && dilation[1] == 1, FTH_UNSUPPORTED, "pooling with dilation");
    FTH_REQUIRE(lowering_lacks(l, "divisor_override"), FTH_UNSUPPORTED, "pooling with a divisor of its own");
    FTH_TRY(largest_of_window ? fth_op_add_max_pool(lowering_graph(l), attributes, x.value, &value)
                              : fth_op_add_average_pool(lowering_graph(l), attributes, x.value, &value));
    FTH_TRY(set_image(l, value));
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
    fth_value value;
    int size[SPATIAL];
    FTH_TRY(lowering_image(l, "self", 3, &x));
    FTH_TRY(size_of_result(l, size));
    FTH_TRY(fth_op_add_adaptive_average_pool(lowering_graph(l), size[0], size[1], x.value, &value));
    FTH_TRY(set_image(l, value));
out:
    return status;
}

static fth_status adaptive_max_pool(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x;
    FTH_TRY(lowering_image(l, "self", 3, &x));
    const fth_exported_value *output = lowering_output(l, 0);
    for (int d = 2; d < output->rank; d++)
        FTH_REQUIRE(output->dims[d].factor == 1, FTH_UNSUPPORTED, "adaptive max pooling to more than one pixel");
    FTH_TRY(lowering_reduce(l, FTH_REDUCE_MAX, 0xc, &x));
    FTH_TRY(set_image(l, x.value));
out:
    return status;
}

/* The factors that PyTorch was given instead of a size; 0: the sizes say them. */
static fth_status scale_factors(lowering *l, double factors[SPATIAL])
{
    static const char *const single[SPATIAL] = {"scales_h", "scales_w"};
    const fth_exported_argument *given = fth_exported_find_argument(lowering_node(l), "scale_factors");
    factors[0] = factors[1] = 0;
    if (given && given->kind == FTH_ARGUMENT_FLOATS && given->count <= SPATIAL)
        for (size_t i = 0; i < given->count; i++)
            factors[SPATIAL - given->count + i] = given->numbers[i];
    for (int i = 0; i < SPATIAL; i++)
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
    int size[SPATIAL];
    fth_value value;
    FTH_TRY(lowering_image(l, lowering_lacks(l, "input") ? "self" : "input", 3, &x));
    FTH_TRY(size_of_result(l, size));
    FTH_TRY(scale_factors(l, factors));
    FTH_TRY(fth_op_add_resize(lowering_graph(l),
                              (fth_resize_attributes){.height = size[0],
                                                      .width = size[1],
                                                      .bilinear = bilinear,
                                                      .align_corners = lowering_bool(l, "align_corners", false),
                                                      .scale_factors = {factors[0], factors[1]}},
                              x.value, &value));
    FTH_TRY(set_image(l, value));
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

const lowering_row lowering_images[] = {
    {"conv1d", convolution},
    {"conv2d", convolution},
    {"conv_transpose1d", transposed_convolution},
    {"conv_transpose2d", transposed_convolution},
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
