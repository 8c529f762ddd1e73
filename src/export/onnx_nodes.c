/* The pieces that translations of ops are made of: see onnx_internal.h. */
#include <stdio.h>

#include "export/onnx_internal.h"

/* Fields of NodeProto, AttributeProto and TensorProto, and the numbers of types, from
 * onnx.proto. */
enum { GRAPH_NODE = 1, GRAPH_INITIALIZER = 5 };
enum { NODE_INPUT = 1, NODE_OUTPUT, NODE_NAME, NODE_OP_TYPE, NODE_ATTRIBUTE };
enum {
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_FLOAT,
    ATTRIBUTE_INTEGER,
    ATTRIBUTE_TEXT,
    ATTRIBUTE_INTEGERS = 8,
    ATTRIBUTE_TYPE = 20
};
enum { TYPE_FLOAT = 1, TYPE_INTEGER = 2, TYPE_TEXT = 3, TYPE_INTEGERS = 7 };
enum { TENSOR_DIMS = 1, TENSOR_DATA_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW_DATA = 9 };

fth_protobuf fth_onnx_begin_node(const char *op_type, const char *const *inputs, int input_count)
{
    fth_protobuf node = {0};
    for (int i = 0; i < input_count; i++)
        fth_protobuf_add_text(&node, NODE_INPUT, inputs[i]);
    fth_protobuf_add_text(&node, NODE_OP_TYPE, op_type);
    return node;
}

void fth_onnx_add_input(fth_protobuf *node, const char *name)
{
    fth_protobuf_add_text(node, NODE_INPUT, name);
}

void fth_onnx_add_output(fth_protobuf *node, const char *name)
{
    fth_protobuf_add_text(node, NODE_OUTPUT, name);
}

void fth_onnx_end_node(fth_onnx_writer *writer, fth_protobuf *node, const char *output)
{
    fth_protobuf_add_text(node, NODE_OUTPUT, output);
    fth_protobuf_add_text(node, NODE_NAME, output); /* each value has one node that makes it */
    fth_protobuf_add_message(&writer->nodes, GRAPH_NODE, node);
}

void fth_onnx_add_plain(fth_onnx_writer *writer, const char *op_type, const char *a, const char *b, const char *output)
{
    fth_protobuf node = fth_onnx_begin_node(op_type, (const char *[]){a, b}, b ? 2 : 1);
    fth_onnx_end_node(writer, &node, output);
}

void fth_onnx_add_integer(fth_protobuf *node, const char *name, int64_t value)
{
    fth_protobuf attribute = {0};
    fth_protobuf_add_text(&attribute, ATTRIBUTE_NAME, name);
    fth_protobuf_add_integer(&attribute, ATTRIBUTE_INTEGER, value);
    fth_protobuf_add_integer(&attribute, ATTRIBUTE_TYPE, TYPE_INTEGER);
    fth_protobuf_add_message(node, NODE_ATTRIBUTE, &attribute);
}

void fth_onnx_add_float(fth_protobuf *node, const char *name, float value)
{
    fth_protobuf attribute = {0};
    fth_protobuf_add_text(&attribute, ATTRIBUTE_NAME, name);
    fth_protobuf_add_float(&attribute, ATTRIBUTE_FLOAT, value);
    fth_protobuf_add_integer(&attribute, ATTRIBUTE_TYPE, TYPE_FLOAT);
    fth_protobuf_add_message(node, NODE_ATTRIBUTE, &attribute);
}

void fth_onnx_add_text(fth_protobuf *node, const char *name, const char *value)
{
    fth_protobuf attribute = {0};
    fth_protobuf_add_text(&attribute, ATTRIBUTE_NAME, name);
    fth_protobuf_add_text(&attribute, ATTRIBUTE_TEXT, value);
    fth_protobuf_add_integer(&attribute, ATTRIBUTE_TYPE, TYPE_TEXT);
    fth_protobuf_add_message(node, NODE_ATTRIBUTE, &attribute);
}

void fth_onnx_add_integers(fth_protobuf *node, const char *name, const int64_t *values, size_t count)
{
    fth_protobuf attribute = {0};
    fth_protobuf_add_text(&attribute, ATTRIBUTE_NAME, name);
    for (size_t i = 0; i < count; i++)
        fth_protobuf_add_integer(&attribute, ATTRIBUTE_INTEGERS, values[i]);
    fth_protobuf_add_integer(&attribute, ATTRIBUTE_TYPE, TYPE_INTEGERS);
    fth_protobuf_add_message(node, NODE_ATTRIBUTE, &attribute);
}

fth_onnx_name fth_onnx_make_name(fth_onnx_writer *writer, const char *what)
{
    fth_onnx_name name;
    snprintf(name.text, sizeof name.text, "%s%d", what, writer->made_count++);
    return name;
}

fth_onnx_name fth_onnx_add_constant(fth_onnx_writer *writer, int data_type, const int64_t *dims, size_t rank,
                                    const void *values, size_t size_bytes)
{
    fth_protobuf tensor = {0};
    fth_onnx_name name = fth_onnx_make_name(writer, "constant");
    for (size_t i = 0; i < rank; i++)
        fth_protobuf_add_integer(&tensor, TENSOR_DIMS, dims[i]);
    fth_protobuf_add_integer(&tensor, TENSOR_DATA_TYPE, data_type);
    fth_protobuf_add_text(&tensor, TENSOR_NAME, name.text);
    fth_protobuf_begin_bytes(&tensor, TENSOR_RAW_DATA, size_bytes);
    fth_protobuf_append(&tensor, values, size_bytes);
    fth_protobuf_add_message(&writer->constants, GRAPH_INITIALIZER, &tensor);
    return name;
}

fth_onnx_name fth_onnx_add_number(fth_onnx_writer *writer, float value)
{
    return fth_onnx_add_constant(writer, FTH_ONNX_FLOAT, NULL, 0, &value, sizeof value);
}

const char *fth_onnx_input_name(const fth_onnx_writer *writer, const fth_node *node, int input)
{
    return writer->names[node->inputs[input]];
}

const char *fth_onnx_output_name(const fth_onnx_writer *writer, const fth_node *node)
{
    return writer->names[node->outputs[0]];
}
