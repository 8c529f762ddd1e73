/* See smooth_graph.h. */
#include "smooth_graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "graph/ops.h"

/* Takes the ReLU out of a node's attributes, where it has one. */
static bool drop_relu(const fth_op *op, void *attributes)
{
    bool none = false, *relu = &none;
    if (op == &fth_op_convolution)
        relu = &((fth_convolution_attributes *)attributes)->relu;
    else if (op == &fth_op_linear)
        relu = &((fth_linear_attributes *)attributes)->relu;
    else if (op == &fth_op_batch_norm)
        relu = &((fth_batch_norm_attributes *)attributes)->relu;
    else if (op == &fth_op_add)
        relu = &((fth_add_attributes *)attributes)->relu;
    bool had = *relu;
    *relu = false;
    return had;
}

enum { MAX_NODE_VALUES = 8, MAX_ATTRIBUTES = 256 };

/* The forward node in `copy`: GELU instead of a ReLU or behind a node that had one in it, an
 * average instead of a maximum. */
static fth_status copy_node(const fth_node *node, fth_graph *copy, fth_value *copies)
{
    fth_status status = FTH_OK;
    _Alignas(max_align_t) char attributes[MAX_ATTRIBUTES];
    fth_value inputs[MAX_NODE_VALUES], outputs[MAX_NODE_VALUES];
    const fth_op *op = node->op == &fth_op_max_pool ? &fth_op_average_pool
                       : node->op == &fth_op_relu   ? &fth_op_gelu
                                                    : node->op;
    FTH_REQUIRE(op->attributes_size <= sizeof attributes && op->output_count <= MAX_NODE_VALUES, FTH_UNSUPPORTED,
                "smooth_graph cannot copy %s", op->name);
    for (int i = 0; i < node->input_count; i++)
        inputs[i] = copies[node->inputs[i]];
    memcpy(attributes, node->attributes, op->attributes_size);
    if (op == &fth_op_average_pool)
        ((fth_pool_attributes *)attributes)->count_padding = true;
    bool active = drop_relu(op, attributes);
    FTH_TRY(fth_graph_add_node(copy, op, attributes, inputs, node->input_count, outputs));
    if (active)
        FTH_TRY(fth_op_add_gelu(copy, outputs[0], &outputs[0]));
    for (int i = 0; i < op->output_count; i++)
        copies[node->outputs[i]] = outputs[i];
out:
    return status;
}

fth_status smooth_graph_create(const fth_graph *graph, fth_graph **smooth)
{
    fth_status status = FTH_OK;
    fth_graph *copy = NULL;
    fth_value *copies = NULL;
    FTH_TRY(fth_allocate((size_t)fth_graph_value_count(graph), sizeof *copies, &copies));
    FTH_TRY(fth_graph_create(&copy));
    for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
        const fth_value_info *info = fth_graph_value(graph, v);
        if (info->kind == FTH_VALUE_INPUT)
            FTH_TRY(fth_graph_add_input(copy, info->name, info->type.dtype, info->type.shape, &copies[v]));
        else if (info->kind == FTH_VALUE_PARAMETER)
            FTH_TRY(fth_graph_add_parameter(copy, info->name, info->type.shape, info->init, &copies[v]));
        else if (info->kind == FTH_VALUE_BUFFER)
            FTH_TRY(fth_graph_add_buffer(copy, info->name, info->type.shape, info->init, &copies[v]));
    }
    for (int n = 0; n < fth_graph_forward_node_count(graph); n++)
        FTH_TRY(copy_node(fth_graph_node(graph, n), copy, copies));
    fth_graph_set_outputs(copy, copies[fth_graph_logits(graph)], copies[fth_graph_loss(graph)]);
    FTH_TRY(fth_graph_differentiate(copy));
    *smooth = copy;
    copy = NULL;
out:
    fth_graph_free(copy);
    free(copies);
    return status;
}
