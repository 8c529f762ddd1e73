/* Autodiff: appends the backward part, then lays out the flat vectors.
 *
 * Forward nodes are visited last to first. When a node's turn comes, every reader of its outputs has been visited, so
 * their gradients are complete; its rule then appends nodes for its inputs. A value that several nodes read gets one
 * gradient from each; they are summed as they come, by add nodes. Only values that depend on a parameter have
 * gradients, so nothing is computed for the images. */
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

static fth_status visit(fth_graph *graph, const fth_node *node, fth_value *gradients)
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
    status = node->op->build_gradient(graph, node, output_gradients, input_gradients);
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

/* Results are numbered in the order in which nodes compute them, so that the order of the gradients' numbers is the
 * order in which they are finished. Parameters without one come last, as they were created. */
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
    for (size_t i = graph->forward_node_count; i-- > 0;)
        FTH_TRY(visit(graph, graph->nodes[i], gradients));
    FTH_TRY(record_parameter_gradients(graph, gradients, value_count));
    FTH_TRY(lay_out(graph));

out:
    free(gradients);
    return status;
}
