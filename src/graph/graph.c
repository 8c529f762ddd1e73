/* Building and reading graphs: see graph.h. */
#include "graph/graph.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph_internal.h"
#include "graph/ops.h"

fth_status fth_graph_create(fth_graph **graph)
{
    fth_status status = fth_allocate(1, sizeof **graph, graph);
    if (status == FTH_OK)
        (*graph)->logits = (*graph)->loss = FTH_NO_VALUE;
    return status;
}

static void free_value(fth_value_info *value)
{
    if (!value)
        return;
    free((char *)value->name);
    free((void *)value->data);
    free(value);
}

static void free_node(fth_node *node)
{
    if (!node)
        return;
    free((void *)node->attributes);
    free((void *)node->inputs);
    free((void *)node->outputs);
    free(node);
}

void fth_graph_free(fth_graph *graph)
{
    if (!graph)
        return;
    for (size_t i = 0; i < graph->value_count; i++)
        free_value(graph->values[i]);
    for (size_t i = 0; i < graph->node_count; i++)
        free_node(graph->nodes[i]);
    for (size_t i = 0; i < graph->counter_count; i++)
        free(graph->counters[i]);
    free(graph->values);
    free(graph->nodes);
    free(graph->counters);
    free(graph->blocks);
    fth_graph_free_file_tensors(graph);
    free(graph);
}

/* ---- building ---- */

static fth_status copy_text(const char *text, char **copy)
{
    size_t size = strlen(text) + 1;
    fth_status status = fth_allocate(size, 1, copy);
    if (status == FTH_OK)
        memcpy(*copy, text, size);
    return status;
}

fth_status fth_graph_check_new_name(const fth_graph *graph, const char *name)
{
    if (!name || !*name)
        return fth_fail(FTH_INVALID, "an input, parameter or buffer needs a name");
    if (fth_graph_find(graph, name) != FTH_NO_VALUE)
        return fth_fail(FTH_INVALID, "the graph has two values named \"%s\"", name);
    for (size_t i = 0; i < graph->counter_count; i++)
        if (strcmp(graph->counters[i], name) == 0)
            return fth_fail(FTH_INVALID, "the graph has a counter and a value named \"%s\"", name);
    if (fth_graph_find_file_tensor(graph, name))
        return fth_fail(FTH_INVALID, "the graph has two tensors named \"%s\"", name);
    return FTH_OK;
}

/* Every element must be addressable, also after a plan multiplies by the batch. */
static fth_status check_shape(const fth_shape *shape, bool batch_allowed)
{
    const int64_t most = INT64_C(1) << 40;
    if (shape->rank < 0 || shape->rank > FTH_MAX_RANK)
        return fth_fail(FTH_INVALID, "a shape has %d dimensions; at most %d are possible", shape->rank, FTH_MAX_RANK);
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) {
        int64_t dim = shape->dims[i];
        if (i == 0 && batch_allowed && dim < 0)
            dim = dim == FTH_TOKENS ? 1 : fth_rows_per_sample(dim);
        if (dim < 1)
            return fth_fail(FTH_INVALID, "dimension %d of a shape is %lld; it must be at least 1", i, (long long)dim);
        if (dim > most / count)
            return fth_fail(FTH_INVALID, "shape %s has too many elements", FTH_SHAPE_TEXT(shape));
        count *= dim;
    }
    return FTH_OK;
}

static fth_status append_value(fth_graph *graph, fth_value_info info, fth_value *value)
{
    fth_status status = FTH_OK;
    fth_value_info *copy = NULL;
    char *name = NULL;

    FTH_TRY(fth_grow(&graph->values, graph->value_count, &graph->value_capacity, sizeof *graph->values));
    FTH_TRY(copy_text(info.name, &name));
    FTH_TRY(fth_allocate(1, sizeof *copy, &copy));
    info.name = name;
    info.gradient = info.gradient_of = FTH_NO_VALUE;
    *copy = info;
    *value = (fth_value)graph->value_count;
    graph->values[graph->value_count++] = copy;
    return FTH_OK;

out:
    free(name);
    return status;
}

static fth_status append_named(fth_graph *graph, fth_value_info info, fth_value *value)
{
    fth_status status = FTH_OK;

    FTH_REQUIRE(!graph->differentiated, FTH_INVALID, "\"%s\" was added after the graph was differentiated",
                info.name ? info.name : "");
    FTH_TRY(fth_graph_check_new_name(graph, info.name));
    status = check_shape(&info.type.shape, info.kind == FTH_VALUE_INPUT);
    if (status != FTH_OK)
        return fth_fail_within(status, "%s", info.name);
    info.producer = -1;
    FTH_TRY(append_value(graph, info, value));

out:
    return status;
}

fth_status fth_graph_add_input(fth_graph *graph, const char *name, fth_dtype dtype, fth_shape shape, fth_value *value)
{
    return append_named(
        graph, (fth_value_info){.kind = FTH_VALUE_INPUT, .name = name, .type = {.dtype = dtype, .shape = shape}},
        value);
}

fth_status fth_graph_add_parameter(fth_graph *graph, const char *name, fth_shape shape, fth_initializer init,
                                   fth_value *value)
{
    return append_named(graph,
                        (fth_value_info){.kind = FTH_VALUE_PARAMETER,
                                         .name = name,
                                         .type = {.dtype = FTH_F32, .shape = shape},
                                         .needs_gradient = true,
                                         .init = init},
                        value);
}

fth_status fth_graph_add_buffer(fth_graph *graph, const char *name, fth_shape shape, fth_initializer init,
                                fth_value *value)
{
    return append_named(
        graph,
        (fth_value_info){
            .kind = FTH_VALUE_BUFFER, .name = name, .type = {.dtype = FTH_F32, .shape = shape}, .init = init},
        value);
}

/* Gradients bring constants of their own. */
fth_status fth_op_add_constant(fth_graph *graph, fth_type type, const void *data, fth_value *value)
{
    fth_status status = FTH_OK;
    void *copy = NULL;

    FTH_TRY(fth_rule_check_numbers(&type, "the constant"));
    FTH_TRY(check_shape(&type.shape, false));
    const size_t size_bytes = (size_t)fth_shape_count(&type.shape) * fth_dtype_size_bytes(type.dtype);
    FTH_TRY(fth_allocate_aligned(size_bytes, &copy));
    memcpy(copy, data, size_bytes);
    FTH_TRY(append_value(
        graph, (fth_value_info){.kind = FTH_VALUE_CONSTANT, .name = "", .type = type, .producer = -1, .data = copy},
        value));
    copy = NULL;

out:
    free(copy);
    return status;
}

fth_status fth_graph_add_node(fth_graph *graph, const fth_op *op, const void *attributes, const fth_value *inputs,
                              int input_count, fth_value *outputs)
{
    fth_status status = FTH_OK;
    fth_type *input_types = NULL, *output_types = NULL;
    fth_value *input_copy = NULL, *output_copy = NULL;
    void *attribute_copy = NULL;
    fth_node *node = NULL;
    bool needs_gradient = false;

    assert(input_count >= 0 && op->output_count > 0);
    FTH_TRY(fth_grow(&graph->nodes, graph->node_count, &graph->node_capacity, sizeof *graph->nodes));
    FTH_TRY(fth_allocate((size_t)input_count, sizeof *input_types, &input_types));
    FTH_TRY(fth_allocate((size_t)op->output_count, sizeof *output_types, &output_types));
    FTH_TRY(fth_allocate((size_t)input_count, sizeof *input_copy, &input_copy));
    FTH_TRY(fth_allocate((size_t)op->output_count, sizeof *output_copy, &output_copy));
    FTH_TRY(fth_allocate(op->attributes_size, 1, &attribute_copy));
    FTH_TRY(fth_allocate(1, sizeof *node, &node));

    for (int i = 0; i < input_count; i++) {
        const fth_value_info *input = fth_graph_value(graph, inputs[i]);
        FTH_REQUIRE(input, FTH_INVALID, "%s: input %d is no value of this graph", op->name, i);
        input_types[i] = input->type;
        input_copy[i] = inputs[i];
        needs_gradient = needs_gradient || input->needs_gradient;
    }
    if (op->attributes_size > 0)
        memcpy(attribute_copy, attributes, op->attributes_size);

    status = op->infer(attribute_copy, input_types, input_count, output_types);
    for (int i = 0; i < op->output_count && status == FTH_OK; i++)
        status = check_shape(&output_types[i].shape, true);
    if (status != FTH_OK) {
        status = fth_fail_within(status, "%s", op->name);
        goto out;
    }
    for (int i = 0; i < op->output_count; i++)
        FTH_TRY(append_value(graph,
                             (fth_value_info){.kind = FTH_VALUE_RESULT,
                                              .name = "",
                                              .type = output_types[i],
                                              .producer = (int)graph->node_count,
                                              .needs_gradient = needs_gradient},
                             &output_copy[i]));
    memcpy(outputs, output_copy, (size_t)op->output_count * sizeof *outputs);
    *node = (fth_node){.op = op,
                       .attributes = attribute_copy,
                       .input_count = input_count,
                       .output_count = op->output_count,
                       .inputs = input_copy,
                       .outputs = output_copy};
    graph->nodes[graph->node_count++] = node;
    attribute_copy = NULL;
    input_copy = output_copy = NULL;
    node = NULL;

out:
    free(input_types);
    free(output_types);
    free(input_copy);
    free(output_copy);
    free(attribute_copy);
    free(node);
    return status;
}

fth_status fth_graph_add_counter(fth_graph *graph, const char *name)
{
    fth_status status = FTH_OK;
    char *copy = NULL;

    FTH_TRY(fth_graph_check_new_name(graph, name));
    FTH_TRY(fth_grow(&graph->counters, graph->counter_count, &graph->counter_capacity, sizeof *graph->counters));
    FTH_TRY(copy_text(name, &copy));
    graph->counters[graph->counter_count++] = copy;

out:
    return status;
}

fth_status fth_graph_set_initializer(fth_graph *graph, fth_value value, fth_initializer init)
{
    fth_value_info *info = fth_graph_value_to_change(graph, value);
    if (!info || (info->kind != FTH_VALUE_PARAMETER && info->kind != FTH_VALUE_BUFFER))
        return fth_fail(FTH_INVALID, "value %d is no parameter or buffer", value);
    info->init = init;
    return FTH_OK;
}

fth_status fth_graph_set_trainable(fth_graph *graph, fth_value parameter, bool trainable)
{
    fth_status status = FTH_OK;
    fth_value_info *info = fth_graph_value_to_change(graph, parameter);

    FTH_REQUIRE(info && info->kind == FTH_VALUE_PARAMETER, FTH_INVALID, "value %d is no parameter", parameter);
    FTH_REQUIRE(!graph->differentiated, FTH_INVALID, "what is trained was said after the graph was differentiated");
    info->needs_gradient = trainable;

out:
    return status;
}

void fth_graph_fix_statistics(fth_graph *graph)
{
    enum { SCALE = 1, SHIFT = 2 };
    for (size_t n = 0; n < graph->node_count; n++) {
        const fth_node *node = graph->nodes[n];
        if (node->op == &fth_op_batch_norm && !fth_rule_wants(graph, node, SCALE) &&
            !fth_rule_wants(graph, node, SHIFT))
            ((fth_batch_norm_attributes *)node->attributes)->fixed = true; /* the graph's own copy */
    }
}

fth_status fth_graph_begin_block(fth_graph *graph)
{
    fth_status status = fth_grow(&graph->blocks, graph->block_count, &graph->block_capacity, sizeof *graph->blocks);
    if (status == FTH_OK)
        graph->blocks[graph->block_count++] = (fth_graph_block){.first = graph->node_count};
    return status;
}

void fth_graph_end_block(fth_graph *graph)
{
    assert(graph->block_count > 0 && graph->blocks[graph->block_count - 1].end == 0);
    graph->blocks[graph->block_count - 1].end = graph->node_count;
}

void fth_graph_set_outputs(fth_graph *graph, fth_value logits, fth_value loss)
{
    graph->logits = logits;
    graph->loss = loss;
}

/* ---- reading ---- */

int fth_graph_value_count(const fth_graph *graph)
{
    return (int)graph->value_count;
}

const fth_value_info *fth_graph_value(const fth_graph *graph, fth_value value)
{
    return value >= 0 && (size_t)value < graph->value_count ? graph->values[value] : NULL;
}

fth_value_info *fth_graph_value_to_change(fth_graph *graph, fth_value value)
{
    return value >= 0 && (size_t)value < graph->value_count ? graph->values[value] : NULL;
}

int fth_graph_node_count(const fth_graph *graph)
{
    return (int)graph->node_count;
}

int fth_graph_forward_node_count(const fth_graph *graph)
{
    return (int)(graph->differentiated ? graph->forward_node_count : graph->node_count);
}

const fth_node *fth_graph_node(const fth_graph *graph, int index)
{
    return index >= 0 && (size_t)index < graph->node_count ? graph->nodes[index] : NULL;
}

fth_value fth_graph_logits(const fth_graph *graph)
{
    return graph->logits;
}

fth_value fth_graph_loss(const fth_graph *graph)
{
    return graph->loss;
}

/* "" for a value that is neither a parameter nor a parameter's gradient. */
static const char *parameter_name(const fth_graph *graph, fth_value value)
{
    const fth_value_info *info = fth_graph_value(graph, value);
    if (info->kind == FTH_VALUE_RESULT && info->gradient_of != FTH_NO_VALUE)
        info = fth_graph_value(graph, info->gradient_of);
    return info->kind == FTH_VALUE_PARAMETER ? info->name : "";
}

void fth_graph_node_layer(const fth_graph *graph, int index, char *layer, size_t size)
{
    const fth_node *node = fth_graph_node(graph, index);
    const char *name = "";
    for (int i = 0; i < node->input_count && !*name; i++)
        name = parameter_name(graph, node->inputs[i]);
    for (int i = 0; i < node->output_count && !*name; i++)
        name = parameter_name(graph, node->outputs[i]);
    const char *dot = strrchr(name, '.');
    snprintf(layer, size, "%.*s", dot ? (int)(dot - name) : (int)strlen(name), name);
}

fth_value fth_graph_find(const fth_graph *graph, const char *name)
{
    for (size_t i = 0; i < graph->value_count; i++)
        if (*name && strcmp(graph->values[i]->name, name) == 0)
            return (fth_value)i;
    return FTH_NO_VALUE;
}

int fth_graph_counter_count(const fth_graph *graph)
{
    return (int)graph->counter_count;
}

const char *fth_graph_counter(const fth_graph *graph, int index)
{
    return index >= 0 && (size_t)index < graph->counter_count ? graph->counters[index] : NULL;
}

size_t fth_graph_parameter_floats(const fth_graph *graph)
{
    return graph->parameter_floats;
}

size_t fth_graph_trained_floats(const fth_graph *graph)
{
    return graph->trained_floats;
}

size_t fth_graph_buffer_floats(const fth_graph *graph)
{
    return graph->buffer_floats;
}

int64_t fth_graph_trainable_count(const fth_graph *graph)
{
    int64_t count = 0;
    for (size_t i = 0; i < graph->value_count; i++) {
        const fth_value_info *value = graph->values[i];
        if (value->kind == FTH_VALUE_PARAMETER && value->needs_gradient)
            count += fth_shape_count(&value->type.shape);
    }
    return count;
}
