/* ONNX files: the forward part of a graph as ModelProto.
 *
 * Nodes and small constants are made in memory first. Weights, which are most of the file, are
 * written straight from their views: the length of every part is known before the first byte is
 * written. */
#include <stdlib.h>
#include <string.h>

#include "export/export.h"
#include "export/onnx_internal.h"

/* Fields, from onnx.proto. */
enum {
    MODEL_IR_VERSION = 1,
    MODEL_PRODUCER,
    MODEL_PRODUCER_VERSION,
    MODEL_GRAPH = 7,
    MODEL_OPSET,
    MODEL_METADATA = 14
};
enum { OPSET_DOMAIN = 1, OPSET_VERSION };
enum { ENTRY_KEY = 1, ENTRY_VALUE };
enum { GRAPH_NAME = 2, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT };
enum { VALUE_NAME = 1, VALUE_TYPE, TYPE_TENSOR = 1, TENSOR_TYPE_ELEMENT = 1, TENSOR_TYPE_SHAPE, SHAPE_DIM = 1 };
enum { DIM_VALUE = 1, DIM_PARAM };
enum { TENSOR_DIMS = 1, TENSOR_DATA_TYPE, TENSOR_NAME = 8, TENSOR_RAW_DATA };
enum { IR_VERSION = 8, OPSET = 17 };

/* ---- nodes ---- */

static const fth_onnx_op *find_op(const fth_op *op)
{
    const fth_onnx_op *const lists[] = {fth_onnx_op_list, fth_onnx_arrange_ops, fth_onnx_pointwise_ops,
                                        fth_onnx_text_ops, fth_onnx_sequence_ops};
    for (size_t i = 0; i < FTH_COUNT_OF(lists); i++) {
        for (const fth_onnx_op *row = lists[i]; row->op; row++) {
            if (row->op == op)
                return row;
        }
    }
    return NULL;
}

/* True if one of its results is needed. */
static bool is_needed(const fth_node *node, const bool *needed)
{
    bool found = false;
    for (int i = 0; i < node->output_count; i++)
        found = found || needed[node->outputs[i]];
    return found;
}

/* Marks what the logits depend on: values, and with them the nodes that make them. A node's first
 * result is always there. */
static fth_status find_needed(const fth_graph *graph, bool **needed)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_allocate((size_t)fth_graph_value_count(graph), sizeof **needed, needed));
    (*needed)[fth_graph_logits(graph)] = true;
    for (int n = fth_graph_forward_node_count(graph) - 1; n >= 0; n--) {
        const fth_node *node = fth_graph_node(graph, n);
        if (!is_needed(node, *needed))
            continue;
        (*needed)[node->outputs[0]] = true;
        for (int i = 0; i < node->input_count; i++)
            (*needed)[node->inputs[i]] = true;
    }

out:
    return status;
}

static void name_value(fth_onnx_writer *writer, fth_value value)
{
    const fth_value_info *info = fth_graph_value(writer->graph, value);
    if (value == fth_graph_logits(writer->graph))
        writer->names[value] = fth_format("logits");
    else
        writer->names[value] =
            info->kind == FTH_VALUE_RESULT ? fth_format("result%d", value) : fth_format("%s", info->name);
}

static fth_status write_nodes(fth_onnx_writer *writer, const bool *needed)
{
    fth_status status = FTH_OK;
    const fth_graph *graph = writer->graph;
    for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
        const fth_value_info *info = fth_graph_value(graph, v);
        fth_onnx_name constant;
        if (!needed[v] || info->kind == FTH_VALUE_RESULT)
            continue;
        if (info->kind != FTH_VALUE_CONSTANT) {
            name_value(writer, v);
            continue;
        }
        FTH_TRY(fth_onnx_write_constant(writer, info, &constant));
        writer->names[v] = fth_format("%s", constant.text);
    }
    if (fth_onnx_is_text(graph))
        fth_onnx_begin_text(writer);
    for (int n = 0; n < fth_graph_forward_node_count(graph); n++) {
        const fth_node *node = fth_graph_node(graph, n);
        fth_value result = node->outputs[0];
        if (!needed[result])
            continue;
        const fth_onnx_op *row = find_op(node->op);
        FTH_REQUIRE(row, FTH_UNSUPPORTED, "%s has no translation to ONNX", node->op->name);
        if (!row->write) {
            FTH_REQUIRE(result != fth_graph_logits(graph), FTH_UNSUPPORTED, "a model that ends in %s", node->op->name);
            writer->names[result] = fth_format("%s", writer->names[node->inputs[0]]);
            continue;
        }
        for (int i = 0; i < node->output_count; i++)
            if (needed[node->outputs[i]])
                name_value(writer, node->outputs[i]);
        status = row->write(writer, node);
        if (status != FTH_OK)
            return fth_fail_within(status, "exporting %s", node->op->name);
    }

out:
    return status;
}

/* ---- inputs and outputs ---- */

static void add_value(fth_protobuf *graph, int field, const char *name, int data_type, const fth_shape *shape)
{
    fth_protobuf value = {0}, type = {0}, tensor = {0}, dims = {0};
    for (int i = 0; i < shape->rank; i++) {
        fth_protobuf dim = {0};
        if (shape->dims[i] == FTH_BATCH)
            fth_protobuf_add_text(&dim, DIM_PARAM, "N");
        else if (shape->dims[i] == FTH_TOKENS)
            fth_protobuf_add_text(&dim, DIM_PARAM, "length");
        else if (shape->dims[i] >= 0) /* what is a multiple of the batch is left unknown */
            fth_protobuf_add_integer(&dim, DIM_VALUE, shape->dims[i]);
        fth_protobuf_add_message(&dims, SHAPE_DIM, &dim);
    }
    fth_protobuf_add_integer(&tensor, TENSOR_TYPE_ELEMENT, data_type);
    fth_protobuf_add_message(&tensor, TENSOR_TYPE_SHAPE, &dims);
    fth_protobuf_add_message(&type, TYPE_TENSOR, &tensor);
    fth_protobuf_add_text(&value, VALUE_NAME, name);
    fth_protobuf_add_message(&value, VALUE_TYPE, &type);
    fth_protobuf_add_message(graph, field, &value);
}

static void add_inputs_and_outputs(fth_protobuf *message, const fth_graph *graph, const bool *needed)
{
    static const char *const text_inputs[] = {"input_ids", "attention_mask", "token_type_ids"};
    const bool text = fth_onnx_is_text(graph);
    for (size_t i = 0; text && i < FTH_COUNT_OF(text_inputs); i++)
        add_value(message, GRAPH_INPUT, text_inputs[i], FTH_ONNX_INT64, &FTH_SHAPE(FTH_BATCH, FTH_TOKENS));
    for (fth_value v = 0; !text && v < fth_graph_value_count(graph); v++) {
        const fth_value_info *info = fth_graph_value(graph, v);
        if (needed[v] && info->kind == FTH_VALUE_INPUT)
            add_value(message, GRAPH_INPUT, info->name, info->type.dtype == FTH_I32 ? FTH_ONNX_INT64 : FTH_ONNX_FLOAT,
                      &info->type.shape);
    }
    add_value(message, GRAPH_OUTPUT, "logits", FTH_ONNX_FLOAT,
              &fth_graph_value(graph, fth_graph_logits(graph))->type.shape);
}

/* ---- weights ---- */

/* One initializer: the bytes before its data, and the data. */
typedef struct initializer {
    fth_protobuf head;
    const void *data;
    size_t size_bytes;
} initializer;

typedef struct initializers {
    initializer *items;
    size_t count, capacity;
    uint64_t size_bytes; /* of all, heads included */
} initializers;

static fth_status add_initializer(initializers *list, const fth_value_info *info, const fth_tensor_view *views,
                                  size_t view_count)
{
    fth_status status = FTH_OK;
    const fth_tensor_view *view = NULL;
    for (size_t i = 0; i < view_count && !view; i++)
        if (strcmp(views[i].name, info->name) == 0)
            view = &views[i];
    FTH_REQUIRE(view && view->dtype == FTH_F32 && fth_shape_equal(&view->shape, &info->type.shape), FTH_INVALID,
                "there are no weights for %s", info->name);
    FTH_TRY(fth_grow(&list->items, list->count, &list->capacity, sizeof *list->items));
    initializer *item = &list->items[list->count++];
    *item = (initializer){.data = view->data, .size_bytes = (size_t)fth_shape_count(&view->shape) * sizeof(float)};

    fth_protobuf tensor = {0};
    for (int i = 0; i < view->shape.rank; i++)
        fth_protobuf_add_integer(&tensor, TENSOR_DIMS, view->shape.dims[i]);
    fth_protobuf_add_integer(&tensor, TENSOR_DATA_TYPE, FTH_ONNX_FLOAT);
    fth_protobuf_add_text(&tensor, TENSOR_NAME, info->name);
    fth_protobuf_begin_bytes(&tensor, TENSOR_RAW_DATA, item->size_bytes);
    fth_protobuf_begin_bytes(&item->head, GRAPH_INITIALIZER, tensor.size_bytes + item->size_bytes);
    fth_protobuf_append(&item->head, tensor.bytes, tensor.size_bytes);
    item->head.failed = item->head.failed || tensor.failed;
    fth_protobuf_release(&tensor);
    FTH_TRY(fth_protobuf_check(&item->head));
    list->size_bytes += item->head.size_bytes + item->size_bytes;

out:
    return status;
}

/* ---- the file ---- */

static void describe_model(fth_protobuf *message, const fth_onnx_options *options)
{
    fth_protobuf_add_integer(message, MODEL_IR_VERSION, IR_VERSION);
    fth_protobuf_add_text(message, MODEL_PRODUCER, "farthing");
    fth_protobuf_add_text(message, MODEL_PRODUCER_VERSION, FTH_VERSION);
    fth_protobuf opset = {0};
    fth_protobuf_add_text(&opset, OPSET_DOMAIN, "");
    fth_protobuf_add_integer(&opset, OPSET_VERSION, OPSET);
    fth_protobuf_add_message(message, MODEL_OPSET, &opset);
    for (size_t i = 0; i < options->metadata_count; i++) {
        fth_protobuf entry = {0};
        fth_protobuf_add_text(&entry, ENTRY_KEY, options->metadata[i].key);
        fth_protobuf_add_text(&entry, ENTRY_VALUE, options->metadata[i].value);
        fth_protobuf_add_message(message, MODEL_METADATA, &entry);
    }
}

static fth_status write_file(const char *path, const fth_protobuf *model, const fth_protobuf *graph,
                             const initializers *weights)
{
    fth_status status = FTH_OK;
    fth_file *file = NULL;

    FTH_TRY(fth_file_create_output(path, &file));
    FTH_TRY(fth_file_write(file, model->bytes, model->size_bytes));
    FTH_TRY(fth_file_write(file, graph->bytes, graph->size_bytes));
    for (size_t i = 0; i < weights->count; i++) {
        const initializer *item = &weights->items[i];
        FTH_TRY(fth_file_write(file, item->head.bytes, item->head.size_bytes));
        FTH_TRY(fth_file_write(file, item->data, item->size_bytes));
    }
    FTH_TRY(fth_file_publish(file));

out:
    fth_file_free(file);
    return status;
}

fth_status fth_onnx_save(const char *path, const fth_graph *graph, const fth_tensor_view *views, size_t view_count,
                         const fth_onnx_options *options)
{
    fth_status status = FTH_OK;
    fth_onnx_writer writer = {.graph = graph};
    fth_protobuf model = {0}, body = {0};
    initializers weights = {0};
    bool *needed = NULL;
    int value_count = fth_graph_value_count(graph);

    FTH_TRY(fth_allocate((size_t)value_count, sizeof *writer.names, &writer.names));
    FTH_TRY(find_needed(graph, &needed));
    FTH_TRY(write_nodes(&writer, needed));
    FTH_TRY(fth_protobuf_check(&writer.nodes));
    FTH_TRY(fth_protobuf_check(&writer.constants));
    for (fth_value v = 0; v < value_count; v++) {
        const fth_value_info *info = fth_graph_value(graph, v);
        if (needed[v] && (info->kind == FTH_VALUE_PARAMETER || info->kind == FTH_VALUE_BUFFER))
            FTH_TRY(add_initializer(&weights, info, views, view_count));
    }

    fth_protobuf_append(&body, writer.nodes.bytes, writer.nodes.size_bytes);
    fth_protobuf_add_text(&body, GRAPH_NAME, options->name);
    add_inputs_and_outputs(&body, graph, needed);
    fth_protobuf_append(&body, writer.constants.bytes, writer.constants.size_bytes);
    describe_model(&model, options);
    uint64_t graph_bytes = body.size_bytes + weights.size_bytes;
    fth_protobuf_begin_bytes(&model, MODEL_GRAPH, graph_bytes);
    FTH_TRY(fth_protobuf_check(&body));
    FTH_TRY(fth_protobuf_check(&model));
    FTH_REQUIRE(graph_bytes + model.size_bytes <= INT32_MAX, FTH_UNSUPPORTED,
                "%s would be %.1f GB; an ONNX file cannot be larger than 2 GB: export to safetensors instead", path,
                (double)(graph_bytes + model.size_bytes) * 1e-9);
    FTH_TRY(write_file(path, &model, &body, &weights));

out:
    for (int v = 0; writer.names && v < value_count; v++)
        free(writer.names[v]);
    for (size_t i = 0; i < weights.count; i++)
        fth_protobuf_release(&weights.items[i].head);
    free(weights.items);
    free(writer.names);
    free(needed);
    fth_protobuf_release(&writer.nodes);
    fth_protobuf_release(&writer.constants);
    fth_protobuf_release(&body);
    fth_protobuf_release(&model);
    return status;
}
