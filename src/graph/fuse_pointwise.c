/* Fuses chains of pointwise nodes: a node whose result only one other reads becomes a part of
 * that. In the backward pass, sums of two gradients and what is reduced take such nodes, too.
 *
 * In the forward pass, what counts is how much memory the forward and the backward pass read and
 * write. A fused node saves its inner results in both; but each of its inputs gets a gradient of
 * its own, computed from all of them, where the gradient of an inner result served several. */
#include <stdlib.h>
#include <string.h>

#include "graph/graph_internal.h"
#include "graph/ops.h"

/* A pointwise node as it would be. */
typedef struct candidate {
    fth_expression expression;
    fth_value inputs[FTH_EXPRESSION_INPUTS];
    int count;
    const fth_shape *shape; /* of the result */
} candidate;

static candidate candidate_of(const fth_graph *graph, const fth_node *node)
{
    candidate c = {.count = node->input_count, .shape = &fth_graph_value(graph, node->outputs[0])->type.shape};
    memcpy(c.inputs, node->inputs, (size_t)node->input_count * sizeof c.inputs[0]);
    if (node->op == &fth_op_pointwise)
        c.expression = ((const fth_pointwise_attributes *)node->attributes)->expression;
    else if (node->op == &fth_op_reduce)
        c.expression = ((const fth_reduce_attributes *)node->attributes)->expression;
    else
        fth_expression_apply(&c.expression, FTH_FUNCTION_ADD, fth_expression_input(0), fth_expression_input(1),
                             FTH_NO_OPERAND);
    return c;
}

/* Elements, for a batch that is large enough to tell what is repeated in it from what is not. */
static double size_of(const fth_shape *shape)
{
    enum { BATCH = 32, TOKENS = 4096 };
    fth_shape resolved = fth_shape_with_batch(shape, BATCH);
    resolved = fth_shape_with_tokens(&resolved, TOKENS);
    return (double)fth_shape_count(&resolved);
}

/* What the inputs that the expression reads come to; dy has the size of the result. */
static double size_read(const fth_graph *graph, const candidate *c, const fth_expression *expression)
{
    const unsigned used = fth_expression_inputs(expression);
    double size = used >> c->count & 1 ? size_of(c->shape) : 0;
    for (int i = 0; i < c->count; i++)
        size += used >> i & 1 ? size_of(&fth_graph_value(graph, c->inputs[i])->type.shape) : 0;
    return size;
}

/* What the node and its gradients read and write; false if a gradient would be too long. */
static bool measure(const fth_graph *graph, const candidate *c, double *traffic)
{
    fth_expression gradients[FTH_EXPRESSION_INPUTS];
    int gradient_count = 0;
    *traffic = size_read(graph, c, &c->expression) + size_of(c->shape);
    for (int i = 0; i < c->count; i++) {
        const fth_value_info *input = fth_graph_value(graph, c->inputs[i]);
        fth_expression *gradient = &gradients[gradient_count];
        if (!input->needs_gradient || !fth_expression_differentiate(&c->expression, i, c->count, gradient))
            continue;
        if (gradient->overfull)
            return false;
        bool is_known = gradient->result.kind == FTH_OPERAND_INPUT; /* dy itself */
        for (int k = 0; k < gradient_count; k++)
            is_known = is_known || fth_expression_equal(&gradients[k], gradient);
        if (is_known && fth_shape_equal(&input->type.shape, c->shape))
            continue;
        gradient_count++;
        *traffic += size_read(graph, c, gradient) + size_of(&input->type.shape);
    }
    return true;
}

/* Makes `inner` a part of `outer`, which reads its result; false if that takes too many inputs or
 * steps. */
static bool merge(const candidate *inner, fth_value result, const candidate *outer, candidate *merged)
{
    fth_operand inner_inputs[FTH_EXPRESSION_INPUTS], outer_inputs[FTH_EXPRESSION_INPUTS];
    *merged = (candidate){.shape = outer->shape};
    for (int i = 0; i < inner->count + outer->count; i++) {
        const bool is_inner = i < inner->count;
        const fth_value value = is_inner ? inner->inputs[i] : outer->inputs[i - inner->count];
        int at = 0;
        if (value == result)
            continue;
        while (at < merged->count && merged->inputs[at] != value)
            at++;
        if (at == FTH_EXPRESSION_FUSED_INPUTS)
            return false;
        merged->inputs[at] = value;
        merged->count = at == merged->count ? at + 1 : merged->count;
        *(is_inner ? &inner_inputs[i] : &outer_inputs[i - inner->count]) = fth_expression_input(at);
    }
    const fth_operand inner_result = fth_expression_append(&merged->expression, &inner->expression, inner_inputs);
    for (int i = 0; i < outer->count; i++)
        if (outer->inputs[i] == result)
            outer_inputs[i] = inner_result;
    fth_expression_append(&merged->expression, &outer->expression, outer_inputs);
    fth_expression_prune(&merged->expression);
    return !merged->expression.overfull && merged->expression.step_count <= FTH_EXPRESSION_FUSED_STEPS;
}

/* Whether a node can take another's expression into its own. */
static bool takes_expressions(const fth_graph *graph, const fth_node *node)
{
    if (node->op == &fth_op_pointwise || !graph->differentiated)
        return node->op == &fth_op_pointwise;
    return node->op == &fth_op_reduce ||
           (node->op == &fth_op_add && !((const fth_add_attributes *)node->attributes)->relu);
}

/* The one node that reads `value`, if it takes expressions; NULL: there is none, or more. */
static fth_node *find_only_reader(const fth_graph *graph, fth_value value)
{
    fth_node *found = NULL;
    if (value == graph->logits || value == graph->loss || graph->values[value]->gradient_of != FTH_NO_VALUE)
        return NULL;
    for (size_t n = (size_t)graph->values[value]->producer + 1; n < graph->node_count; n++) {
        fth_node *node = graph->nodes[n];
        bool reads = false;
        for (int i = 0; i < node->input_count; i++)
            reads = reads || node->inputs[i] == value;
        if (reads && (found || !takes_expressions(graph, node)))
            return NULL;
        found = reads ? node : found;
    }
    return found;
}

/* The block that a node is in, or NULL. */
static const fth_graph_block *block_of(const fth_graph *graph, int node)
{
    for (size_t b = 0; b < graph->block_count; b++)
        if ((size_t)node >= graph->blocks[b].first && (size_t)node < graph->blocks[b].end)
            return &graph->blocks[b];
    return NULL;
}

/* Takes a node out of the graph. Its result stays as a number that nothing computes or reads. */
static void remove_node(fth_graph *graph, size_t at)
{
    fth_node *node = graph->nodes[at];
    graph->values[node->outputs[0]]->producer = -1;
    graph->values[node->outputs[0]]->needs_gradient = false;
    free((void *)node->attributes);
    free((void *)node->inputs);
    free((void *)node->outputs);
    free(node);
    graph->node_count--;
    memmove(graph->nodes + at, graph->nodes + at + 1, (graph->node_count - at) * sizeof(graph->nodes[0]));
    for (size_t n = at; n < graph->node_count; n++)
        for (int i = 0; i < graph->nodes[n]->output_count; i++)
            graph->values[graph->nodes[n]->outputs[i]]->producer = (int)n;
    for (size_t b = 0; b < graph->block_count; b++) {
        graph->blocks[b].first -= graph->blocks[b].first > at;
        graph->blocks[b].end -= graph->blocks[b].end > at;
    }
}

/* Gives a node another expression and other inputs. */
static fth_status replace_expression(fth_node *node, const candidate *whole)
{
    fth_status status = FTH_OK;
    fth_value *inputs = NULL;
    fth_pointwise_attributes *attributes = NULL;

    FTH_TRY(fth_allocate((size_t)whole->count, sizeof *inputs, &inputs));
    memcpy(inputs, whole->inputs, (size_t)whole->count * sizeof *inputs);
    if (node->op == &fth_op_reduce) {
        ((fth_reduce_attributes *)node->attributes)->expression = whole->expression; /* the graph's own copy */
    } else {
        FTH_TRY(fth_allocate(1, sizeof *attributes, &attributes));
        *attributes =
            (fth_pointwise_attributes){.expression = whole->expression, .expands = true, .shape = *whole->shape};
        free((void *)node->attributes);
        node->attributes = attributes;
        node->op = &fth_op_pointwise;
    }
    free((void *)node->inputs);
    node->inputs = inputs;
    node->input_count = whole->count;
    inputs = NULL;
out:
    free(inputs);
    return status;
}

/* Whether what a reduce would read has the shape that it reduces now. */
static bool covers(const fth_graph *graph, const candidate *whole, const fth_shape *shape)
{
    fth_shape own = {0};
    for (int i = 0; i < whole->count; i++)
        (void)fth_shape_broadcast(&own, &fth_graph_value(graph, whole->inputs[i])->type.shape);
    return fth_shape_equal(&own, shape);
}

/* Whether the reader of a node's result, of that shape, computes as many elements. */
static bool has_same_elements(const fth_graph *graph, const candidate *outer, const fth_node *reader,
                              const fth_shape *shape)
{
    return reader->op == &fth_op_reduce ? covers(graph, outer, shape) : fth_shape_equal(outer->shape, shape);
}

/* In the backward pass, a result that is neither written nor read is always a gain. */
static bool pays(const fth_graph *graph, const candidate *inner, const candidate *outer, const candidate *whole)
{
    double before_inner, before_outer, after;
    return graph->differentiated || (measure(graph, inner, &before_inner) && measure(graph, outer, &before_outer) &&
                                     measure(graph, whole, &after) && after <= before_inner + before_outer);
}

/* Merges node `at` into its reader if that is possible and pays. */
static fth_status try_node(fth_graph *graph, size_t at, bool *merged)
{
    fth_status status = FTH_OK;
    const fth_node *node = graph->nodes[at];
    const fth_value result = node->outputs[0];
    const fth_shape *shape = &fth_graph_value(graph, result)->type.shape;
    fth_node *reader = node->op == &fth_op_pointwise ? find_only_reader(graph, result) : NULL;
    candidate whole;

    *merged = false;
    if (!reader || block_of(graph, (int)at) != block_of(graph, fth_graph_value(graph, reader->outputs[0])->producer))
        goto out;
    const candidate inner = candidate_of(graph, node), outer = candidate_of(graph, reader);
    if (!has_same_elements(graph, &outer, reader, shape) || !merge(&inner, result, &outer, &whole) ||
        whole.count == 0 || (reader->op == &fth_op_reduce && !covers(graph, &whole, shape)) ||
        !pays(graph, &inner, &outer, &whole))
        goto out;
    FTH_TRY(replace_expression(reader, &whole));
    remove_node(graph, at);
    *merged = true;
out:
    return status;
}

static fth_status fuse(fth_graph *graph, size_t first)
{
    fth_status status = FTH_OK;
    for (size_t n = first; n < graph->node_count;) {
        bool merged;
        FTH_TRY(try_node(graph, n, &merged));
        n += !merged;
    }
out:
    return status;
}

fth_status fth_graph_fuse_pointwise(fth_graph *graph)
{
    if (graph->differentiated)
        return fth_fail(FTH_INVALID, "the graph is differentiated already");
    return fuse(graph, 0);
}

fth_status fth_graph_fuse_gradients(fth_graph *graph)
{
    return fuse(graph, graph->forward_node_count);
}
