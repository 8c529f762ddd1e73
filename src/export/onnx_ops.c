/* The translation of every op that forward graphs have: one row each, at the end. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "export/onnx_internal.h"

/* Fields of NodeProto, AttributeProto and TensorProto, and the numbers of types, from onnx.proto. */
enum { GRAPH_NODE = 1, GRAPH_INITIALIZER = 5 };
enum { NODE_INPUT = 1, NODE_OUTPUT, NODE_NAME, NODE_OP_TYPE, NODE_ATTRIBUTE };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_FLOAT, ATTRIBUTE_INTEGER, ATTRIBUTE_INTEGERS = 8, ATTRIBUTE_TYPE = 20 };
enum { TYPE_FLOAT = 1, TYPE_INTEGER = 2, TYPE_INTEGERS = 7 };
enum { TENSOR_DIMS = 1, TENSOR_DATA_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW_DATA = 9 };
enum { DATA_FLOAT = 1, DATA_INT64 = 7 };

/* ---- pieces ---- */

/* A node with its inputs; attributes are added to it, then the output, which ends it. */
static fth_protobuf begin_node(const char *op_type, const char *const *inputs, int input_count)
{
    fth_protobuf node = {0};
    for (int i = 0; i < input_count; i++)
        fth_protobuf_add_text(&node, NODE_INPUT, inputs[i]);
    fth_protobuf_add_text(&node, NODE_OP_TYPE, op_type);
    return node;
}

static void end_node(fth_onnx_writer *writer, fth_protobuf *node, const char *output)
{
    fth_protobuf_add_text(node, NODE_OUTPUT, output);
    fth_protobuf_add_text(node, NODE_NAME, output); /* each value has one node that makes it */
    fth_protobuf_add_message(&writer->nodes, GRAPH_NODE, node);
}

static void add_plain(fth_onnx_writer *writer, const char *op_type, const char *a, const char *b, const char *output)
{
    fth_protobuf node = begin_node(op_type, (const char *[]){a, b}, b ? 2 : 1);
    end_node(writer, &node, output);
}

static void add_integer(fth_protobuf *node, const char *name, int64_t value)
{
    fth_protobuf attribute = {0};
    fth_protobuf_add_text(&attribute, ATTRIBUTE_NAME, name);
    fth_protobuf_add_integer(&attribute, ATTRIBUTE_INTEGER, value);
    fth_protobuf_add_integer(&attribute, ATTRIBUTE_TYPE, TYPE_INTEGER);
    fth_protobuf_add_message(node, NODE_ATTRIBUTE, &attribute);
}

static void add_float(fth_protobuf *node, const char *name, float value)
{
    fth_protobuf attribute = {0};
    fth_protobuf_add_text(&attribute, ATTRIBUTE_NAME, name);
    fth_protobuf_add_float(&attribute, ATTRIBUTE_FLOAT, value);
    fth_protobuf_add_integer(&attribute, ATTRIBUTE_TYPE, TYPE_FLOAT);
    fth_protobuf_add_message(node, NODE_ATTRIBUTE, &attribute);
}

static void add_integers(fth_protobuf *node, const char *name, const int64_t *values, size_t count)
{
    fth_protobuf attribute = {0};
    fth_protobuf_add_text(&attribute, ATTRIBUTE_NAME, name);
    for (size_t i = 0; i < count; i++)
        fth_protobuf_add_integer(&attribute, ATTRIBUTE_INTEGERS, values[i]);
    fth_protobuf_add_integer(&attribute, ATTRIBUTE_TYPE, TYPE_INTEGERS);
    fth_protobuf_add_message(node, NODE_ATTRIBUTE, &attribute);
}

static void add_pair(fth_protobuf *node, const char *name, const int pair[2])
{
    add_integers(node, name, (int64_t[]){pair[0], pair[1]}, 2);
}

/* Before and after each side are the same here. */
static void add_padding(fth_protobuf *node, const int padding[2])
{
    add_integers(node, "pads", (int64_t[]){padding[0], padding[1], padding[0], padding[1]}, 4);
}

typedef struct made_name {
    char text[32];
} made_name;

static made_name make_name(fth_onnx_writer *writer, const char *what)
{
    made_name name;
    snprintf(name.text, sizeof name.text, "%s%d", what, writer->made_count++);
    return name;
}

static made_name add_constant(fth_onnx_writer *writer, int data_type, const int64_t *dims, size_t rank,
                              const void *values, size_t size_bytes)
{
    fth_protobuf tensor = {0};
    made_name name = make_name(writer, "constant");
    for (size_t i = 0; i < rank; i++)
        fth_protobuf_add_integer(&tensor, TENSOR_DIMS, dims[i]);
    fth_protobuf_add_integer(&tensor, TENSOR_DATA_TYPE, data_type);
    fth_protobuf_add_text(&tensor, TENSOR_NAME, name.text);
    fth_protobuf_begin_bytes(&tensor, TENSOR_RAW_DATA, size_bytes);
    fth_protobuf_append(&tensor, values, size_bytes);
    fth_protobuf_add_message(&writer->constants, GRAPH_INITIALIZER, &tensor);
    return name;
}

static made_name add_number(fth_onnx_writer *writer, float value)
{
    return add_constant(writer, DATA_FLOAT, NULL, 0, &value, sizeof value);
}

static const char *input_name(const fth_onnx_writer *writer, const fth_node *node, int input)
{
    return writer->names[node->inputs[input]];
}

static const char *output_name(const fth_onnx_writer *writer, const fth_node *node)
{
    return writer->names[node->outputs[0]];
}

/* Ends a node whose result may still go through a ReLU. */
static void end_with_relu(fth_onnx_writer *writer, fth_protobuf *node, bool relu, const char *output)
{
    made_name before = make_name(writer, "before_relu");
    end_node(writer, node, relu ? before.text : output);
    if (relu)
        add_plain(writer, "Relu", before.text, NULL, output);
}

/* ---- ops ---- */

static fth_status write_convolution(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_convolution_attributes *a = node->attributes;
    const char *inputs[3];
    for (int i = 0; i < node->input_count; i++)
        inputs[i] = input_name(writer, node, i);
    fth_protobuf conv = begin_node("Conv", inputs, node->input_count);
    add_pair(&conv, "kernel_shape", a->kernel);
    add_pair(&conv, "strides", a->stride);
    add_padding(&conv, a->padding);
    add_pair(&conv, "dilations", a->dilation);
    add_integer(&conv, "group", a->groups);
    end_with_relu(writer, &conv, a->relu, output_name(writer, node));
    return FTH_OK;
}

static fth_status write_linear(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_linear_attributes *a = node->attributes;
    const char *inputs[3];
    for (int i = 0; i < node->input_count; i++)
        inputs[i] = input_name(writer, node, i);
    fth_protobuf gemm = begin_node("Gemm", inputs, node->input_count);
    add_integer(&gemm, "transB", 1);
    end_with_relu(writer, &gemm, a->relu, output_name(writer, node));
    return FTH_OK;
}

static fth_status write_batch_norm(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_batch_norm_attributes *a = node->attributes;
    const char *inputs[5], *output = output_name(writer, node);
    for (int i = 0; i < 5; i++) /* in ONNX's order: x, scale, shift, mean, variance */
        inputs[i] = input_name(writer, node, i);
    fth_protobuf norm = begin_node("BatchNormalization", inputs, 5);
    add_float(&norm, "epsilon", a->epsilon);
    if (!a->residual) {
        end_with_relu(writer, &norm, a->relu, output);
        return FTH_OK;
    }
    made_name normalized = make_name(writer, "normalized");
    end_node(writer, &norm, normalized.text);
    fth_protobuf sum = begin_node("Add", (const char *[]){normalized.text, input_name(writer, node, 5)}, 2);
    end_with_relu(writer, &sum, a->relu, output);
    return FTH_OK;
}

static fth_status write_relu(fth_onnx_writer *writer, const fth_node *node)
{
    add_plain(writer, "Relu", input_name(writer, node, 0), NULL, output_name(writer, node));
    return FTH_OK;
}

/* x/2 * (1 + erf(x / sqrt 2)): opset 17 has no Gelu yet. */
static fth_status write_gelu(fth_onnx_writer *writer, const fth_node *node)
{
    const char *x = input_name(writer, node, 0);
    made_name root = add_number(writer, (float)(1 / sqrt(2))), one = add_number(writer, 1);
    made_name half = add_number(writer, 0.5F);
    made_name scaled = make_name(writer, "gelu"), erf_of = make_name(writer, "gelu"), sum = make_name(writer, "gelu");
    made_name product = make_name(writer, "gelu");
    add_plain(writer, "Mul", x, root.text, scaled.text);
    add_plain(writer, "Erf", scaled.text, NULL, erf_of.text);
    add_plain(writer, "Add", erf_of.text, one.text, sum.text);
    add_plain(writer, "Mul", x, sum.text, product.text);
    add_plain(writer, "Mul", product.text, half.text, output_name(writer, node));
    return FTH_OK;
}

static fth_status write_max_pool(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_pool_attributes *a = node->attributes;
    fth_protobuf pool = begin_node("MaxPool", (const char *[]){input_name(writer, node, 0)}, 1);
    add_pair(&pool, "kernel_shape", a->kernel);
    add_pair(&pool, "strides", a->stride);
    add_padding(&pool, a->padding);
    end_node(writer, &pool, output_name(writer, node));
    return FTH_OK;
}

static fth_status write_average_pool(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_pool_attributes *a = node->attributes;
    fth_protobuf pool = begin_node("AveragePool", (const char *[]){input_name(writer, node, 0)}, 1);
    add_pair(&pool, "kernel_shape", a->kernel);
    add_pair(&pool, "strides", a->stride);
    add_padding(&pool, a->padding);
    add_integer(&pool, "count_include_pad", a->count_padding);
    end_node(writer, &pool, output_name(writer, node));
    return FTH_OK;
}

/* The matrix (to, from) that averages `from` numbers to `to` of them, in PyTorch's windows; (from, to) if transposed.
 */
static fth_status add_averaging_matrix(fth_onnx_writer *writer, int64_t from, int64_t to, bool transposed,
                                       made_name *name)
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
    *name = add_constant(writer, DATA_FLOAT, dims, 2, matrix, (size_t)(from * to) * sizeof *matrix);

out:
    free(matrix);
    return status;
}

/* ONNX has no adaptive pooling. Where the sizes divide it is plain pooling; otherwise the windows overlap, and
 * averaging is a matrix along each side. */
static fth_status write_adaptive_average_pool(fth_onnx_writer *writer, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_adaptive_pool_attributes *a = node->attributes;
    const char *x = input_name(writer, node, 0), *y = output_name(writer, node);
    const int64_t *from = fth_graph_value(writer->graph, node->inputs[0])->type.shape.dims + 2;

    if (a->output[0] == 1 && a->output[1] == 1) {
        add_plain(writer, "GlobalAveragePool", x, NULL, y);
    } else if (from[0] % a->output[0] == 0 && from[1] % a->output[1] == 0) {
        int kernel[2] = {(int)(from[0] / a->output[0]), (int)(from[1] / a->output[1])};
        fth_protobuf pool = begin_node("AveragePool", &x, 1);
        add_pair(&pool, "kernel_shape", kernel);
        add_pair(&pool, "strides", kernel);
        end_node(writer, &pool, y);
    } else {
        made_name rows, columns, between = make_name(writer, "pooled");
        FTH_TRY(add_averaging_matrix(writer, from[0], a->output[0], false, &rows));
        FTH_TRY(add_averaging_matrix(writer, from[1], a->output[1], true, &columns));
        add_plain(writer, "MatMul", rows.text, x, between.text);
        add_plain(writer, "MatMul", between.text, columns.text, y);
    }

out:
    return status;
}

static fth_status write_add(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_add_attributes *a = node->attributes;
    fth_protobuf sum = begin_node("Add", (const char *[]){input_name(writer, node, 0), input_name(writer, node, 1)}, 2);
    end_with_relu(writer, &sum, a->relu, output_name(writer, node));
    return FTH_OK;
}

static fth_status write_concat(fth_onnx_writer *writer, const fth_node *node)
{
    fth_protobuf concat = begin_node("Concat", NULL, 0);
    for (int i = 0; i < node->input_count; i++)
        fth_protobuf_add_text(&concat, NODE_INPUT, input_name(writer, node, i));
    add_integer(&concat, "axis", 1);
    end_node(writer, &concat, output_name(writer, node));
    return FTH_OK;
}

/* ONNX's pads are those before each axis, then those after. */
static fth_status write_pad(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_pad_attributes *a = node->attributes;
    const int rank = fth_graph_value(writer->graph, node->inputs[0])->type.shape.rank;
    int64_t pads[2 * FTH_MAX_RANK] = {0}, count = 2 * (int64_t)rank;
    pads[1] = a->before;
    pads[rank + 1] = a->after;
    made_name amounts = add_constant(writer, DATA_INT64, &count, 1, pads, (size_t)count * sizeof *pads);
    add_plain(writer, "Pad", input_name(writer, node, 0), amounts.text, output_name(writer, node));
    return FTH_OK;
}

static fth_status write_reshape(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_reshape_attributes *a = node->attributes;
    const char *x = input_name(writer, node, 0);
    if (a->shape.rank == 2) {
        fth_protobuf flatten = begin_node("Flatten", &x, 1);
        add_integer(&flatten, "axis", 1);
        end_node(writer, &flatten, output_name(writer, node));
        return FTH_OK;
    }
    int64_t dims[FTH_MAX_RANK], rank = a->shape.rank;
    for (int64_t i = 0; i < rank; i++)
        dims[i] = i == 0 ? 0 : a->shape.dims[i]; /* 0: as the input's, the batch */
    made_name shape = add_constant(writer, DATA_INT64, &rank, 1, dims, (size_t)rank * sizeof *dims);
    add_plain(writer, "Reshape", x, shape.text, output_name(writer, node));
    return FTH_OK;
}

const fth_onnx_op fth_onnx_op_list[] = {
    {&fth_op_convolution, write_convolution},
    {&fth_op_linear, write_linear},
    {&fth_op_batch_norm, write_batch_norm},
    {&fth_op_relu, write_relu},
    {&fth_op_gelu, write_gelu},
    {&fth_op_max_pool, write_max_pool},
    {&fth_op_average_pool, write_average_pool},
    {&fth_op_adaptive_average_pool, write_adaptive_average_pool},
    {&fth_op_add, write_add},
    {&fth_op_concat, write_concat},
    {&fth_op_pad, write_pad},
    {&fth_op_reshape, write_reshape},
    {&fth_op_dropout, NULL},
    {NULL, NULL},
};
