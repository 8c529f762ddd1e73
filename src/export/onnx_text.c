/* Ops of text in ONNX, where sequences are padded to one length: a value (T, F) is (N, length, F)
 * there.
 *
 * The inputs are those that transformers' models have: input_ids, attention_mask and
 * token_type_ids, (N, length) INT64. Positions count from 0 in each sequence. Attention adds a
 * large negative number to the scores of what the mask leaves out. */
#include <math.h>
#include <stdlib.h>

#include "export/onnx_internal.h"

static const float left_out = -1e30F; /* whose exponential is 0, also beside scores of any size */

bool fth_onnx_is_text(const fth_graph *graph)
{
    return fth_graph_find(graph, "tokens") != FTH_NO_VALUE;
}

static void name_input(fth_onnx_writer *writer, const char *input, const char *name)
{
    fth_value value = fth_graph_find(writer->graph, input);
    if (value != FTH_NO_VALUE) {
        free(writer->names[value]);
        writer->names[value] = fth_format("%s", name);
    }
}

static fth_onnx_name add_integers(fth_onnx_writer *writer, const int64_t *values, int64_t count)
{
    return fth_onnx_add_constant(writer, FTH_ONNX_INT64, &count, 1, values, (size_t)count * sizeof *values);
}

static fth_onnx_name add_scalar(fth_onnx_writer *writer, int64_t value)
{
    return fth_onnx_add_constant(writer, FTH_ONNX_INT64, NULL, 0, &value, sizeof value);
}

/* position_ids: 0, 1, ... for the length that this batch has. */
static void add_positions(fth_onnx_writer *writer)
{
    fth_onnx_name zero = add_scalar(writer, 0), one = add_scalar(writer, 1);
    fth_onnx_name shape = fth_onnx_make_name(writer, "shape"), length = fth_onnx_make_name(writer, "length");
    fth_onnx_add_plain(writer, "Shape", "input_ids", NULL, shape.text);
    fth_onnx_add_plain(writer, "Gather", shape.text, one.text, length.text);
    fth_protobuf range = fth_onnx_begin_node("Range", (const char *[]){zero.text, length.text, one.text}, 3);
    fth_onnx_end_node(writer, &range, "position_ids");
}

/* mask (N, 1, 1, length): 0, or the large negative number. */
static void add_mask(fth_onnx_writer *writer)
{
    fth_onnx_name one = fth_onnx_add_number(writer, 1), large = fth_onnx_add_number(writer, left_out);
    fth_onnx_name axes = add_integers(writer, (int64_t[]){1, 2}, 2);
    fth_onnx_name numbers = fth_onnx_make_name(writer, "mask"), outside = fth_onnx_make_name(writer, "mask");
    fth_onnx_name flat = fth_onnx_make_name(writer, "mask");
    fth_protobuf cast = fth_onnx_begin_node("Cast", (const char *[]){"attention_mask"}, 1);
    fth_onnx_add_integer(&cast, "to", FTH_ONNX_FLOAT);
    fth_onnx_end_node(writer, &cast, numbers.text);
    fth_onnx_add_plain(writer, "Sub", one.text, numbers.text, outside.text);
    fth_onnx_add_plain(writer, "Mul", outside.text, large.text, flat.text);
    fth_onnx_add_plain(writer, "Unsqueeze", flat.text, axes.text, "mask");
}

void fth_onnx_begin_text(fth_onnx_writer *writer)
{
    name_input(writer, "tokens", "input_ids");
    name_input(writer, "segments", "token_type_ids");
    name_input(writer, "positions", "position_ids");
    name_input(writer, "ends", "mask");
    add_positions(writer);
    add_mask(writer);
}

/* ---- ops ---- */

static fth_status write_embedding(fth_onnx_writer *writer, const fth_node *node)
{
    const int count = node->input_count / 2; /* ids, then tables */
    fth_onnx_name sum = {""};
    for (int i = 0; i < count; i++) {
        fth_onnx_name rows = fth_onnx_make_name(writer, "embedding"), next = fth_onnx_make_name(writer, "embedding");
        const bool last = i == count - 1;
        const char *output = last ? fth_onnx_output_name(writer, node) : next.text;
        fth_onnx_add_plain(writer, "Gather", fth_onnx_input_name(writer, node, count + i),
                           fth_onnx_input_name(writer, node, i), i == 0 && last ? output : rows.text);
        if (i == 0) {
            sum = rows;
            continue;
        }
        fth_onnx_add_plain(writer, "Add", sum.text, rows.text, output);
        sum = next;
    }
    return FTH_OK;
}

/* x · weightᵀ + bias */
static void add_rows(fth_onnx_writer *writer, const char *x, const char *weight, const char *bias, const char *output)
{
    fth_onnx_name turned = fth_onnx_make_name(writer, "turned"), product = fth_onnx_make_name(writer, "product");
    fth_protobuf transpose = fth_onnx_begin_node("Transpose", &weight, 1);
    fth_onnx_add_integers(&transpose, "perm", (int64_t[]){1, 0}, 2);
    fth_onnx_end_node(writer, &transpose, turned.text);
    fth_onnx_add_plain(writer, "MatMul", x, turned.text, bias ? product.text : output);
    if (bias)
        fth_onnx_add_plain(writer, "Add", product.text, bias, output);
}

fth_status fth_onnx_write_rows(fth_onnx_writer *writer, const fth_node *node, bool relu)
{
    fth_onnx_name before = fth_onnx_make_name(writer, "before_relu");
    const char *output = fth_onnx_output_name(writer, node);
    add_rows(writer, fth_onnx_input_name(writer, node, 0), fth_onnx_input_name(writer, node, 1),
             node->input_count > 2 ? fth_onnx_input_name(writer, node, 2) : NULL, relu ? before.text : output);
    if (relu)
        fth_onnx_add_plain(writer, "Relu", before.text, NULL, output);
    return FTH_OK;
}

static fth_status write_qkv_linear(fth_onnx_writer *writer, const fth_node *node)
{
    fth_onnx_name parts[3];
    for (int i = 0; i < 3; i++) {
        parts[i] = fth_onnx_make_name(writer, "part");
        add_rows(writer, fth_onnx_input_name(writer, node, 0), fth_onnx_input_name(writer, node, 1 + i),
                 fth_onnx_input_name(writer, node, 4 + i), parts[i].text);
    }
    fth_protobuf concat =
        fth_onnx_begin_node("Concat", (const char *[]){parts[0].text, parts[1].text, parts[2].text}, 3);
    fth_onnx_add_integer(&concat, "axis", -1);
    fth_onnx_end_node(writer, &concat, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

static fth_status write_layer_norm(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_layer_norm_attributes *a = node->attributes;
    const char *x = fth_onnx_input_name(writer, node, 0);
    fth_onnx_name sum = fth_onnx_make_name(writer, "sum");
    if (a->residual)
        fth_onnx_add_plain(writer, "Add", x, fth_onnx_input_name(writer, node, 3), sum.text);
    fth_protobuf norm =
        fth_onnx_begin_node("LayerNormalization",
                            (const char *[]){a->residual ? sum.text : x, fth_onnx_input_name(writer, node, 1),
                                             fth_onnx_input_name(writer, node, 2)},
                            3);
    fth_onnx_add_integer(&norm, "axis", -1);
    fth_onnx_add_float(&norm, "epsilon", a->epsilon);
    fth_onnx_end_node(writer, &norm, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

/* One of query, key and value, (N, length, H D), with its heads in front. */
static fth_onnx_name add_heads(fth_onnx_writer *writer, const char *qkv, int part, int64_t width, int64_t heads,
                               const int64_t order[4])
{
    fth_onnx_name begin = add_integers(writer, (int64_t[]){part * width}, 1),
                  axis = add_integers(writer, (int64_t[]){2}, 1);
    fth_onnx_name end = add_integers(writer, (int64_t[]){(part + 1) * width}, 1);
    fth_onnx_name shape = add_integers(writer, (int64_t[]){0, 0, heads, width / heads}, 4);
    fth_onnx_name cut = fth_onnx_make_name(writer, "heads"), parted = fth_onnx_make_name(writer, "heads");
    fth_onnx_name turned = fth_onnx_make_name(writer, "heads");
    fth_protobuf slice = fth_onnx_begin_node("Slice", (const char *[]){qkv, begin.text, end.text, axis.text}, 4);
    fth_onnx_end_node(writer, &slice, cut.text);
    fth_onnx_add_plain(writer, "Reshape", cut.text, shape.text, parted.text);
    fth_protobuf transpose = fth_onnx_begin_node("Transpose", (const char *[]){parted.text}, 1);
    fth_onnx_add_integers(&transpose, "perm", order, 4);
    fth_onnx_end_node(writer, &transpose, turned.text);
    return turned;
}

static fth_status write_attention(fth_onnx_writer *writer, const fth_node *node)
{
    static const int64_t in_front[] = {0, 2, 1, 3}, transposed[] = {0, 2, 3, 1};
    const fth_attention_attributes *a = node->attributes;
    const char *qkv = fth_onnx_input_name(writer, node, 0);
    const int64_t width = fth_graph_value(writer->graph, node->inputs[0])->type.shape.dims[1] / 3;
    fth_onnx_name query = add_heads(writer, qkv, 0, width, a->heads, in_front);
    fth_onnx_name key = add_heads(writer, qkv, 1, width, a->heads, transposed);
    fth_onnx_name value = add_heads(writer, qkv, 2, width, a->heads, in_front);
    fth_onnx_name scale = fth_onnx_add_number(writer, (float)(1 / sqrt((double)(width / a->heads)))), part[6];
    fth_onnx_name shape = add_integers(writer, (int64_t[]){0, 0, width}, 3);
    for (size_t i = 0; i < FTH_COUNT_OF(part); i++)
        part[i] = fth_onnx_make_name(writer, "attention");
    fth_onnx_add_plain(writer, "MatMul", query.text, key.text, part[0].text);
    fth_onnx_add_plain(writer, "Mul", part[0].text, scale.text, part[1].text);
    fth_onnx_add_plain(writer, "Add", part[1].text, fth_onnx_input_name(writer, node, 1), part[2].text);
    fth_protobuf softmax = fth_onnx_begin_node("Softmax", (const char *[]){part[2].text}, 1);
    fth_onnx_add_integer(&softmax, "axis", -1);
    fth_onnx_end_node(writer, &softmax, part[3].text);
    fth_onnx_add_plain(writer, "MatMul", part[3].text, value.text, part[4].text);
    fth_protobuf transpose = fth_onnx_begin_node("Transpose", (const char *[]){part[4].text}, 1);
    fth_onnx_add_integers(&transpose, "perm", in_front, 4);
    fth_onnx_end_node(writer, &transpose, part[5].text);
    fth_onnx_add_plain(writer, "Reshape", part[5].text, shape.text, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

static fth_status write_first_tokens(fth_onnx_writer *writer, const fth_node *node)
{
    fth_onnx_name zero = add_scalar(writer, 0);
    fth_protobuf gather =
        fth_onnx_begin_node("Gather", (const char *[]){fth_onnx_input_name(writer, node, 0), zero.text}, 2);
    fth_onnx_add_integer(&gather, "axis", 1);
    fth_onnx_end_node(writer, &gather, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

const fth_onnx_op fth_onnx_text_ops[] = {
    {&fth_op_embedding, write_embedding},       {&fth_op_qkv_linear, write_qkv_linear},
    {&fth_op_attention, write_attention},       {&fth_op_layer_norm, write_layer_norm},
    {&fth_op_first_tokens, write_first_tokens}, {NULL, NULL},
};
