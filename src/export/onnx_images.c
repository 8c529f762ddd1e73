/* Pools, transposed convolutions and resizing in ONNX. */
#include <math.h>

#include "export/onnx_internal.h"

static void add_pair(fth_protobuf *node, const char *name, const int pair[2])
{
    fth_onnx_add_integers(node, name, (int64_t[]){pair[0], pair[1]}, 2);
}

/* Rows and columns before the map, then those after it. */
static void add_padding(fth_protobuf *node, const int64_t before[2], const int64_t after[2])
{
    fth_onnx_add_integers(node, "pads", (int64_t[]){before[0], before[1], after[0], after[1]}, 4);
}

/* ---- pools ---- */

/* A pool's padding on each side. Where windows reach beyond it, that is padding too: ceil_mode has
 * had several meanings. */
typedef struct pool_padding {
    int64_t before[2], after[2];
} pool_padding;

static pool_padding padding_of(const fth_onnx_writer *writer, const fth_node *node)
{
    const fth_pool_attributes *a = node->attributes;
    const int64_t *x = a->input_shape.dims + 2;
    const int64_t *y = fth_graph_value(writer->graph, node->outputs[0])->type.shape.dims + 2;
    pool_padding p;
    for (int i = 0; i < 2; i++) {
        const int64_t reached = (y[i] - 1) * a->stride[i] + a->kernel[i] - x[i] - a->padding[i];
        p.before[i] = a->padding[i];
        p.after[i] = reached > a->padding[i] ? reached : a->padding[i];
    }
    return p;
}

fth_status fth_onnx_write_max_pool(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_pool_attributes *a = node->attributes;
    const pool_padding p = padding_of(writer, node);
    fth_protobuf pool = fth_onnx_begin_node("MaxPool", (const char *[]){fth_onnx_input_name(writer, node, 0)}, 1);
    add_pair(&pool, "kernel_shape", a->kernel);
    add_pair(&pool, "strides", a->stride);
    add_padding(&pool, p.before, p.after);
    fth_onnx_end_node(writer, &pool, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

/* The input with its padding as zeros that count like any other number. */
static fth_onnx_name add_zeros(fth_onnx_writer *writer, const fth_node *node, const int padding[2])
{
    const int64_t pads[] = {0, 0, padding[0], padding[1], 0, 0, padding[0], padding[1]}, count = 8;
    const fth_onnx_name amounts = fth_onnx_add_constant(writer, FTH_ONNX_INT64, &count, 1, pads, sizeof pads);
    const fth_onnx_name padded = fth_onnx_make_name(writer, "padded");
    fth_onnx_add_plain(writer, "Pad", fth_onnx_input_name(writer, node, 0), amounts.text, padded.text);
    return padded;
}

fth_status fth_onnx_write_average_pool(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_pool_attributes *a = node->attributes;
    pool_padding p = padding_of(writer, node);
    fth_onnx_name padded;
    const char *x = fth_onnx_input_name(writer, node, 0);
    /* Padding counts, but not what windows reach beyond it. */
    const bool counts_some = a->ceil && a->count_padding;
    if (counts_some && (a->padding[0] > 0 || a->padding[1] > 0)) {
        padded = add_zeros(writer, node, a->padding);
        x = padded.text;
        for (int i = 0; i < 2; i++) {
            p.before[i] = 0;
            p.after[i] -= a->padding[i];
        }
    }
    fth_protobuf pool = fth_onnx_begin_node("AveragePool", &x, 1);
    add_pair(&pool, "kernel_shape", a->kernel);
    add_pair(&pool, "strides", a->stride);
    add_padding(&pool, p.before, p.after);
    fth_onnx_add_integer(&pool, "count_include_pad", a->count_padding && !counts_some);
    fth_onnx_end_node(writer, &pool, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

/* ---- transposed convolution ---- */

fth_status fth_onnx_write_transposed_convolution(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_convolution_attributes *a = node->attributes;
    const int64_t *x = fth_graph_value(writer->graph, node->inputs[0])->type.shape.dims + 2;
    const int64_t padding[2] = {a->padding[0], a->padding[1]};
    int output_padding[2];
    for (int i = 0; i < 2; i++) {
        const int64_t least = (x[i] - 1) * a->stride[i] + (int64_t)a->dilation[i] * (a->kernel[i] - 1) + 1;
        output_padding[i] = (int)(a->input_shape.dims[2 + i] - (least - 2 * padding[i]));
    }
    fth_protobuf convolution = fth_onnx_begin_node(
        "ConvTranspose", (const char *[]){fth_onnx_input_name(writer, node, 0), fth_onnx_input_name(writer, node, 1)},
        2);
    add_pair(&convolution, "kernel_shape", a->kernel);
    add_pair(&convolution, "strides", a->stride);
    add_padding(&convolution, padding, padding);
    add_pair(&convolution, "output_padding", output_padding);
    add_pair(&convolution, "dilations", a->dilation);
    fth_onnx_add_integer(&convolution, "group", a->groups);
    fth_onnx_end_node(writer, &convolution, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

/* ---- resize ---- */

/* True if the output has the size that ONNX computes from the scale factors. */
static bool factors_decide(const fth_resize_attributes *a)
{
    const int out[2] = {a->height, a->width};
    for (int i = 0; i < 2; i++)
        if (!(a->scale_factors[i] > 0) ||
            floor((double)((float)a->input_shape.dims[2 + i] * (float)a->scale_factors[i])) != out[i])
            return false;
    return !a->align_corners;
}

/* The output's shape: as many images and channels as x, and its own height and width. */
static fth_onnx_name add_sizes(fth_onnx_writer *writer, const char *x, const fth_resize_attributes *a)
{
    const int64_t sizes[] = {a->height, a->width}, count = 2;
    const fth_onnx_name last = fth_onnx_add_constant(writer, FTH_ONNX_INT64, &count, 1, sizes, sizeof sizes);
    const fth_onnx_name first = fth_onnx_make_name(writer, "sizes"), all = fth_onnx_make_name(writer, "sizes");
    fth_protobuf shape = fth_onnx_begin_node("Shape", &x, 1);
    fth_onnx_add_integer(&shape, "end", 2);
    fth_onnx_end_node(writer, &shape, first.text);
    fth_protobuf concat = fth_onnx_begin_node("Concat", (const char *[]){first.text, last.text}, 2);
    fth_onnx_add_integer(&concat, "axis", 0);
    fth_onnx_end_node(writer, &concat, all.text);
    return all;
}

fth_status fth_onnx_write_resize(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_resize_attributes *a = node->attributes;
    const char *x = fth_onnx_input_name(writer, node, 0);
    const char *inputs[4] = {x, "", "", ""}; /* x, a region, factors, sizes */
    fth_onnx_name amounts;
    if (factors_decide(a)) {
        const float factors[] = {1, 1, (float)a->scale_factors[0], (float)a->scale_factors[1]};
        const int64_t count = 4;
        amounts = fth_onnx_add_constant(writer, FTH_ONNX_FLOAT, &count, 1, factors, sizeof factors);
        inputs[2] = amounts.text;
    } else {
        amounts = add_sizes(writer, x, a);
        inputs[3] = amounts.text;
    }
    fth_protobuf resize = fth_onnx_begin_node("Resize", inputs, inputs[2][0] != '\0' ? 3 : 4);
    fth_onnx_add_text(&resize, "mode", a->bilinear ? "linear" : "nearest");
    fth_onnx_add_text(&resize, "coordinate_transformation_mode",
                      a->align_corners ? "align_corners"
                      : a->bilinear    ? "half_pixel"
                                       : "asymmetric");
    if (!a->bilinear)
        fth_onnx_add_text(&resize, "nearest_mode", "floor");
    fth_onnx_end_node(writer, &resize, fth_onnx_output_name(writer, node));
    return FTH_OK;
}
