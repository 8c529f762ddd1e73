/* The translation of every op that forward graphs have: one row each, at the end. */
#include <math.h>
#include <stdlib.h>

#include "export/onnx_internal.h"

static void add_pair(fth_protobuf *node, const char *name, const int pair[2])
{
    fth_onnx_add_integers(node, name, (int64_t[]){pair[0], pair[1]}, 2);
}

/* Before and after each side are the same here. */
static void add_padding(fth_protobuf *node, const int padding[2])
{
    fth_onnx_add_integers(node, "pads", (int64_t[]){padding[0], padding[1], padding[0], padding[1]}, 4);
}

/* Ends a node whose result may still go through a ReLU. */
static void end_with_relu(fth_onnx_writer *writer, fth_protobuf *node, bool relu, const char *output)
{
    fth_onnx_name before = fth_onnx_make_name(writer, "before_relu");
    fth_onnx_end_node(writer, node, relu ? before.text : output);
    if (relu)
        fth_onnx_add_plain(writer, "Relu", before.text, NULL, output);
}

/* ---- ops ---- */

static fth_status write_convolution(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_convolution_attributes *a = node->attributes;
    const char *inputs[3];
    for (int i = 0; i < node->input_count; i++)
        inputs[i] = fth_onnx_input_name(writer, node, i);
    fth_protobuf conv = fth_onnx_begin_node("Conv", inputs, node->input_count);
    add_pair(&conv, "kernel_shape", a->kernel);
    add_pair(&conv, "strides", a->stride);
    add_padding(&conv, a->padding);
    add_pair(&conv, "dilations", a->dilation);
    fth_onnx_add_integer(&conv, "group", a->groups);
    end_with_relu(writer, &conv, a->relu, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

static fth_status write_linear(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_linear_attributes *a = node->attributes;
    const char *inputs[3];
    if (fth_graph_value(writer->graph, node->inputs[0])->type.shape.dims[0] == FTH_TOKENS)
        return fth_onnx_write_rows(writer, node, a->relu);
    for (int i = 0; i < node->input_count; i++)
        inputs[i] = fth_onnx_input_name(writer, node, i);
    fth_protobuf gemm = fth_onnx_begin_node("Gemm", inputs, node->input_count);
    fth_onnx_add_integer(&gemm, "transB", 1);
    end_with_relu(writer, &gemm, a->relu, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

static fth_status write_batch_norm(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_batch_norm_attributes *a = node->attributes;
    const char *inputs[5], *output = fth_onnx_output_name(writer, node);
    for (int i = 0; i < 5; i++) /* in ONNX's order: x, scale, shift, mean, variance */
        inputs[i] = fth_onnx_input_name(writer, node, i);
    fth_protobuf norm = fth_onnx_begin_node("BatchNormalization", inputs, 5);
    fth_onnx_add_float(&norm, "epsilon", a->epsilon);
    if (!a->residual) {
        end_with_relu(writer, &norm, a->relu, output);
        return FTH_OK;
    }
    fth_onnx_name normalized = fth_onnx_make_name(writer, "normalized");
    fth_onnx_end_node(writer, &norm, normalized.text);
    fth_protobuf sum =
        fth_onnx_begin_node("Add", (const char *[]){normalized.text, fth_onnx_input_name(writer, node, 5)}, 2);
    end_with_relu(writer, &sum, a->relu, output);
    return FTH_OK;
}

static fth_status write_tanh(fth_onnx_writer *writer, const fth_node *node)
{
    fth_onnx_add_plain(writer, "Tanh", fth_onnx_input_name(writer, node, 0), NULL, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

static fth_status write_relu(fth_onnx_writer *writer, const fth_node *node)
{
    fth_onnx_add_plain(writer, "Relu", fth_onnx_input_name(writer, node, 0), NULL, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

/* x/2 * (1 + erf(x / sqrt 2)): opset 17 has no Gelu yet. */
static fth_status write_gelu(fth_onnx_writer *writer, const fth_node *node)
{
    const char *x = fth_onnx_input_name(writer, node, 0);
    fth_onnx_name root = fth_onnx_add_number(writer, (float)(1 / sqrt(2))), one = fth_onnx_add_number(writer, 1);
    fth_onnx_name half = fth_onnx_add_number(writer, 0.5F);
    fth_onnx_name scaled = fth_onnx_make_name(writer, "gelu"), erf_of = fth_onnx_make_name(writer, "gelu"),
                  sum = fth_onnx_make_name(writer, "gelu");
    fth_onnx_name product = fth_onnx_make_name(writer, "gelu");
    fth_onnx_add_plain(writer, "Mul", x, root.text, scaled.text);
    fth_onnx_add_plain(writer, "Erf", scaled.text, NULL, erf_of.text);
    fth_onnx_add_plain(writer, "Add", erf_of.text, one.text, sum.text);
    fth_onnx_add_plain(writer, "Mul", x, sum.text, product.text);
    fth_onnx_add_plain(writer, "Mul", product.text, half.text, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

/* x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x³))) */
static fth_status write_gelu_tanh(fth_onnx_writer *writer, const fth_node *node)
{
    const char *x = fth_onnx_input_name(writer, node, 0);
    fth_onnx_name cubic = fth_onnx_add_number(writer, 0.044715F), one = fth_onnx_add_number(writer, 1);
    fth_onnx_name root = fth_onnx_add_number(writer, (float)sqrt(2 / 3.14159265358979323846));
    fth_onnx_name half = fth_onnx_add_number(writer, 0.5F), part[8];
    for (size_t i = 0; i < FTH_COUNT_OF(part); i++)
        part[i] = fth_onnx_make_name(writer, "gelu");
    fth_onnx_add_plain(writer, "Mul", x, x, part[0].text);
    fth_onnx_add_plain(writer, "Mul", part[0].text, cubic.text, part[1].text);
    fth_onnx_add_plain(writer, "Add", part[1].text, one.text, part[2].text);
    fth_onnx_add_plain(writer, "Mul", part[2].text, x, part[3].text); /* x + 0.044715 x³ */
    fth_onnx_add_plain(writer, "Mul", part[3].text, root.text, part[4].text);
    fth_onnx_add_plain(writer, "Tanh", part[4].text, NULL, part[5].text);
    fth_onnx_add_plain(writer, "Add", part[5].text, one.text, part[6].text);
    fth_onnx_add_plain(writer, "Mul", part[6].text, x, part[7].text);
    fth_onnx_add_plain(writer, "Mul", part[7].text, half.text, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

static fth_status write_max_pool(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_pool_attributes *a = node->attributes;
    fth_protobuf pool = fth_onnx_begin_node("MaxPool", (const char *[]){fth_onnx_input_name(writer, node, 0)}, 1);
    add_pair(&pool, "kernel_shape", a->kernel);
    add_pair(&pool, "strides", a->stride);
    add_padding(&pool, a->padding);
    fth_onnx_add_integer(&pool, "ceil_mode", a->ceil);
    fth_onnx_end_node(writer, &pool, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

static fth_status write_average_pool(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_pool_attributes *a = node->attributes;
    fth_protobuf pool = fth_onnx_begin_node("AveragePool", (const char *[]){fth_onnx_input_name(writer, node, 0)}, 1);
    add_pair(&pool, "kernel_shape", a->kernel);
    add_pair(&pool, "strides", a->stride);
    add_padding(&pool, a->padding);
    fth_onnx_add_integer(&pool, "count_include_pad", a->count_padding);
    fth_onnx_add_integer(&pool, "ceil_mode", a->ceil);
    fth_onnx_end_node(writer, &pool, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

/* The matrix (to, from) that averages `from` numbers to `to` of them, in PyTorch's windows; (from,
 * to) if transposed. */
static fth_status add_averaging_matrix(fth_onnx_writer *writer, int64_t from, int64_t to, bool transposed,
                                       fth_onnx_name *name)
{
    fth_status status = FTH_OK;
    float *matrix = NULL;
    FTH_TRY(fth_allocate((size_t)(from * to), sizeof *matrix, &matrix));
    for (int64_t i = 0; i < to; i++) {
        int64_t begin = i * from / to, end = ((i + 1) * from + to - 1) / to;
        for (int64_t j = begin; j < end; j++)
            matrix[transposed ? j * to + i : i * from + j] = 1 / (float)(end - begin);
    }
    int64_t dims[2] = {transposed ? from : to, transposed ? to : from};
    *name = fth_onnx_add_constant(writer, FTH_ONNX_FLOAT, dims, 2, matrix, (size_t)(from * to) * sizeof *matrix);

out:
    free(matrix);
    return status;
}

/* ONNX has no adaptive pooling. Where the sizes divide it is plain pooling; otherwise the windows
 * overlap, and averaging is a matrix along each side. */
static fth_status write_adaptive_average_pool(fth_onnx_writer *writer, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_adaptive_pool_attributes *a = node->attributes;
    const char *x = fth_onnx_input_name(writer, node, 0), *y = fth_onnx_output_name(writer, node);
    const int64_t *from = fth_graph_value(writer->graph, node->inputs[0])->type.shape.dims + 2;

    if (a->output[0] == 1 && a->output[1] == 1) {
        fth_onnx_add_plain(writer, "GlobalAveragePool", x, NULL, y);
    } else if (from[0] % a->output[0] == 0 && from[1] % a->output[1] == 0) {
        int kernel[2] = {(int)(from[0] / a->output[0]), (int)(from[1] / a->output[1])};
        fth_protobuf pool = fth_onnx_begin_node("AveragePool", &x, 1);
        add_pair(&pool, "kernel_shape", kernel);
        add_pair(&pool, "strides", kernel);
        fth_onnx_end_node(writer, &pool, y);
    } else {
        fth_onnx_name rows, columns, between = fth_onnx_make_name(writer, "pooled");
        FTH_TRY(add_averaging_matrix(writer, from[0], a->output[0], false, &rows));
        FTH_TRY(add_averaging_matrix(writer, from[1], a->output[1], true, &columns));
        fth_onnx_add_plain(writer, "MatMul", rows.text, x, between.text);
        fth_onnx_add_plain(writer, "MatMul", between.text, columns.text, y);
    }

out:
    return status;
}

static fth_status write_add(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_add_attributes *a = node->attributes;
    fth_protobuf sum = fth_onnx_begin_node(
        "Add", (const char *[]){fth_onnx_input_name(writer, node, 0), fth_onnx_input_name(writer, node, 1)}, 2);
    end_with_relu(writer, &sum, a->relu, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

const fth_onnx_op fth_onnx_op_list[] = {
    {&fth_op_convolution, write_convolution},
    {&fth_op_linear, write_linear},
    {&fth_op_batch_norm, write_batch_norm},
    {&fth_op_relu, write_relu},
    {&fth_op_gelu, write_gelu},
    {&fth_op_gelu_tanh, write_gelu_tanh},
    {&fth_op_tanh, write_tanh},
    {&fth_op_max_pool, write_max_pool},
    {&fth_op_average_pool, write_average_pool},
    {&fth_op_adaptive_average_pool, write_adaptive_average_pool},
    {&fth_op_add, write_add},
    {&fth_op_dropout, NULL},
    {NULL, NULL},
};
