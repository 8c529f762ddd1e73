/* Autodiff: appends the backward part, then lays out the flat vectors.
 *
 * Forward nodes are visited last to first. When a node's turn comes, every reader of its outputs
 * has been visited, so their gradients are complete; its rule then appends nodes for its inputs. A
 * value that several nodes read gets one gradient from each; they are summed as they come, by add
 * nodes. Only values that depend on a parameter have gradients, so nothing is computed for the
 * images.
 *
 * A block (graph.h) is computed again when its last node's turn comes: its nodes are appended once
 * more, with the same attributes and so the same dropout, and the rules get to see these copies
 * instead. Then nobody reads what the first ones computed but the block's readers, and memory plans
 * let it go. */
#include <assert.h>
#include <stdlib.h>

#include "graph/graph_internal.h"
#include "graph/ops.h"

enum { FLOATS_PER_VIEW_UNIT = 16 }; /* FTH_ALIGNMENT bytes */

static fth_status accumulate(fth_graph *graph, fth_value *sum, fth_value more)
{
    if (*sum == FTH_NO_VALUE) {
        *sum = more;
        return FTH_OK;
    }
    return fth_op_add_add(graph, false, *sum, more, sum);
}

/* Appends the nodes of a block again. copies[i] becomes the copy of node first + i. */
static fth_status compute_again(fth_graph *graph, const fth_graph_block *block, const fth_node **copies)
{
    fth_status status = FTH_OK;
    fth_value *again = NULL;  /* by value: its copy, or itself outside of the block */
    fth_value *values = NULL; /* a copy's inputs, then its outputs */
    const size_t value_count = graph->value_count;

    FTH_TRY(fth_allocate(value_count, sizeof *again, &again));
    for (size_t i = 0; i < value_count; i++)
        again[i] = (fth_value)i;
    for (size_t n = block->first; n < block->end; n++) {
        const fth_node *node = graph->nodes[n];
        FTH_REQUIRE(node->op != &fth_op_batch_norm, FTH_UNSUPPORTED,
                    "%s changes running statistics, so it cannot be computed again for its gradient", node->op->name);
        free(values);
        values = NULL;
        FTH_TRY(fth_allocate((size_t)(node->input_count + node->output_count), sizeof *values, &values));
        fth_value *outputs = values + node->input_count;
        for (int i = 0; i < node->input_count; i++)
            values[i] = again[node->inputs[i]];
        FTH_TRY(fth_graph_add_node(graph, node->op, node->attributes, values, node->input_count, outputs));
        for (int i = 0; i < node->output_count; i++)
            again[node->outputs[i]] = outputs[i];
        copies[n - block->first] = graph->nodes[graph->node_count - 1];
    }

out:
    free(again);
    free(values);
    return status;
}

/* `seen` is the node as the rule gets to see it: itself, or its copy. */
static fth_status visit(fth_graph *graph, const fth_node *node, const fth_node *seen, fth_value *gradients)
{
    fth_status status = FTH_OK;
    fth_value *output_gradients = NULL, *input_gradients = NULL;
    bool reached = false;

    FTH_TRY(fth_allocate((size_t)node->output_count, sizeof *output_gradients, &output_gradients));
    for (int i = 0; i < node->output_count; i++) {
        output_gradients[i] = gradients[node->outputs[i]];
        reached = reached || output_gradients[i] != FTH_NO_VALUE || node->outputs[i] == graph->loss;
    }
    if (!reached || !fth_graph_value(graph, node->outputs[0])->needs_gradient)
        goto out;
    FTH_REQUIRE(node->op->build_gradient, FTH_UNSUPPORTED, "%s has no gradient", node->op->name);

    FTH_TRY(fth_allocate((size_t)node->input_count, sizeof *input_gradients, &input_gradients));
    for (int i = 0; i < node->input_count; i++)
        input_gradients[i] = FTH_NO_VALUE;
    status = node->op->build_gradient(graph, seen, output_gradients, input_gradients);
    if (status != FTH_OK) {
        status = fth_fail_within(status, "gradient of %s", node->op->name);
        goto out;
    }
    for (int i = 0; i < node->input_count; i++)
        if (input_gradients[i] != FTH_NO_VALUE && fth_rule_wants(graph, node, i))
            FTH_TRY(accumulate(graph, &gradients[node->inputs[i]], input_gradients[i]));

out:
    free(output_gradients);
    free(input_gradients);
    return status;
}

static fth_status record_parameter_gradients(fth_graph *graph, const fth_value *gradients, size_t value_count)
{
    for (size_t i = 0; i < value_count; i++) {
        fth_value_info *parameter = graph->values[i];
        if (parameter->kind != FTH_VALUE_PARAMETER || gradients[i] == FTH_NO_VALUE)
            continue;
        fth_value_info *gradient = fth_graph_value_to_change(graph, gradients[i]);
        /* The flat vector has one place for each parameter, so one result cannot serve two. */
        if (gradient->gradient_of != FTH_NO_VALUE)
            return fth_fail(FTH_UNSUPPORTED, "parameters %s and %s have the very same gradient: use one of them",
                            fth_graph_value(graph, gradient->gradient_of)->name, parameter->name);
        if (!fth_shape_equal(&gradient->type.shape, &parameter->type.shape))
            return fth_fail(FTH_INVALID, "parameter %s has shape %s, but its gradient has %s", parameter->name,
                            FTH_SHAPE_TEXT(&parameter->type.shape), FTH_SHAPE_TEXT(&gradient->type.shape));
        parameter->gradient = gradients[i];
        gradient->gradient_of = (fth_value)i;
    }
    return FTH_OK;
}

/* Results are numbered in the order in which nodes compute them, so that the order of the
 * gradients' numbers is the order in which they are finished. Parameters without one come last, as
 * they were created. */
static int compare_finish(const void *a, const void *b)
{
    const fth_value_info *left = *(fth_value_info *const *)a, *right = *(fth_value_info *const *)b;
    unsigned left_at = (unsigned)left->gradient, right_at = (unsigned)right->gradient; /* FTH_NO_VALUE: the largest */
    if (left_at != right_at)
        return left_at < right_at ? -1 : 1;
    return left->offset < right->offset ? -1 : left->offset > right->offset;
}

static void place(fth_value_info *value, size_t *end)
{
    value->offset = *end;
    *end += fth_align_up((size_t)fth_shape_count(&value->type.shape), FLOATS_PER_VIEW_UNIT);
}

static fth_status lay_out(fth_graph *graph)
{
    fth_status status = FTH_OK;
    fth_value_info **parameters = NULL;
    size_t count = 0;

    FTH_TRY(fth_allocate(graph->value_count, sizeof *parameters, &parameters));
    for (size_t i = 0; i < graph->value_count; i++) {
        fth_value_info *value = graph->values[i];
        if (value->kind == FTH_VALUE_PARAMETER) {
            value->offset = i; /* for the comparison, until it gets its place */
            parameters[count++] = value;
        } else if (value->kind == FTH_VALUE_BUFFER) {
            place(value, &graph->buffer_floats);
        }
    }
    qsort(parameters, count, sizeof *parameters, compare_finish);
    for (size_t i = 0; i < count; i++) {
        place(parameters[i], &graph->parameter_floats);
        if (parameters[i]->gradient != FTH_NO_VALUE)
            graph->trained_floats = graph->parameter_floats;
    }

out:
    free(parameters);
    return status;
}

/* True if gradients flow into the block: else nothing of it is needed again. */
static bool is_reached(const fth_graph *graph, const fth_graph_block *block, const fth_value *gradients)
{
    for (size_t n = block->first; n < block->end; n++) {
        const fth_node *node = graph->nodes[n];
        for (int i = 0; i < node->output_count; i++) {
            if (gradients[node->outputs[i]] != FTH_NO_VALUE)
                return true;
        }
    }
    return false;
}

/* Visits the nodes of a block, on copies of them. */
static fth_status visit_block(fth_graph *graph, const fth_graph_block *block, fth_value *gradients)
{
    fth_status status = FTH_OK;
    const fth_node **copies = NULL;

    FTH_TRY(fth_allocate(block->end - block->first, sizeof *copies, &copies));
    FTH_TRY(compute_again(graph, block, copies));
    for (size_t n = block->end; n-- > block->first;)
        FTH_TRY(visit(graph, graph->nodes[n], copies[n - block->first], gradients));

out:
    free(copies);
    return status;
}

static fth_status visit_all(fth_graph *graph, fth_value *gradients)
{
    fth_status status = FTH_OK;
    size_t blocks = graph->block_count;

    assert(blocks == 0 || graph->blocks[blocks - 1].end > 0); /* all are ended */
    for (size_t n = graph->forward_node_count; n > 0;) {
        const fth_graph_block *block = blocks > 0 ? &graph->blocks[blocks - 1] : NULL;
        if (block && block->end == n && block->first < n && is_reached(graph, block, gradients)) {
            FTH_TRY(visit_block(graph, block, gradients));
            n = block->first;
        } else {
            n--;
            FTH_TRY(visit(graph, graph->nodes[n], graph->nodes[n], gradients));
        }
        while (blocks > 0 && graph->blocks[blocks - 1].end > n)
            blocks--;
    }

out:
    return status;
}

/* Parameters may have been set aside since the nodes were added. */
static void find_what_needs_gradients(fth_graph *graph)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        const fth_node *node = graph->nodes[n];
        bool needed = false;
        for (int i = 0; i < node->input_count; i++)
            needed = needed || fth_rule_wants(graph, node, i);
        for (int i = 0; i < node->output_count; i++)
            fth_graph_value_to_change(graph, node->outputs[i])->needs_gradient = needed;
    }
}

fth_status fth_graph_differentiate(fth_graph *graph)
{
    fth_status status = FTH_OK;
    fth_value *gradients = NULL; /* of each forward value */
    const fth_value_info *loss = fth_graph_value(graph, graph->loss);
    size_t value_count = graph->value_count;

    FTH_REQUIRE(!graph->differentiated, FTH_INVALID, "the graph is differentiated already");
    FTH_REQUIRE(loss && loss->producer >= 0 && fth_graph_value(graph, graph->logits), FTH_INVALID,
                "the graph has no loss: call fth_graph_set_outputs first");
    find_what_needs_gradients(graph);
    FTH_REQUIRE(loss->needs_gradient, FTH_INVALID, "the loss depends on no parameter: there is nothing to train");

    graph->forward_node_count = graph->node_count;
    graph->differentiated = true;
    FTH_TRY(fth_allocate(value_count, sizeof *gradients, &gradients));
    for (size_t i = 0; i < value_count; i++)
        gradients[i] = FTH_NO_VALUE;
    FTH_TRY(visit_all(graph, gradients));
    FTH_TRY(record_parameter_gradients(graph, gradients, value_count));
    FTH_TRY(fth_graph_fuse_gradients(graph));
    FTH_TRY(lay_out(graph));

out:
    free(gradients);
    return status;
}
