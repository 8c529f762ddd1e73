/* The inside of a graph, shared by the files of this folder.
 *
 * Values and nodes are allocated one by one, so that what fth_graph_value() and fth_graph_node()
 * lend stays where it is while gradient rules append to the graph they read. */
#ifndef FTH_GRAPH_GRAPH_INTERNAL_H
#define FTH_GRAPH_GRAPH_INTERNAL_H

#include "graph/expression.h"
#include "graph/graph.h"

/* Forward nodes [first, end) that are computed again for their gradients. */
typedef struct fth_graph_block {
    size_t first, end;
} fth_graph_block;

struct fth_graph {
    fth_value_info **values;
    size_t value_count, value_capacity;
    fth_node **nodes;
    size_t node_count, node_capacity;
    char **counters;
    size_t counter_count, counter_capacity;
    fth_file_tensor *file_tensors; /* names are owned */
    size_t file_tensor_count, file_tensor_capacity;
    fth_graph_block *blocks; /* in order; one that is not ended yet has no end */
    size_t block_count, block_capacity;

    fth_value logits, loss;
    bool differentiated;
    size_t forward_node_count; /* once differentiated */
    size_t parameter_floats, trained_floats, buffer_floats;
};

/* The value to change it; NULL if there is none of that number. */
fth_value_info *fth_graph_value_to_change(fth_graph *graph, fth_value value);

/* Fails unless `name` is new among values, counters and tensors of files. */
fth_status fth_graph_check_new_name(const fth_graph *graph, const char *name);
void fth_graph_free_file_tensors(fth_graph *graph);

/* ---- for the rules of ops ---- */

/* "(N, 3, 32, 32)", lent until the end of the enclosing block. */
#define FTH_SHAPE_TEXT(shape) (fth_graph_shape_text((shape), (char[128]){0}, 128))
const char *fth_graph_shape_text(const fth_shape *shape, char *text, size_t size);

fth_status fth_rule_check_count(int input_count, int minimum, int maximum);
/* Floats of that rank: 4 is images (N, C, H, W), 3 matrices (N, M, K), 2 features (N, F), 1 a
 * vector, 0 anything. */
fth_status fth_rule_check_float(const fth_type *type, const char *what, int rank);
/* Floats or integers of at least one dimension, for ops that move them and compute nothing. */
fth_status fth_rule_check_numbers(const fth_type *type, const char *what);
/* An axis of fixed size: any but one that begins with the batch or tokens. */
fth_status fth_rule_check_axis(const fth_type *type, const char *what, int axis);
/* A vector of I32: of `count`, or of any length where that is 0. */
fth_status fth_rule_check_integers(const fth_type *type, const char *what, int64_t count);
/* A probability of dropout. */
fth_status fth_rule_check_dropout(float probability);
fth_status fth_rule_check_shape(const fth_type *type, const char *what, const fth_shape *expected);
/* Elements after the first dimension. */
int64_t fth_rule_features(const fth_shape *shape);

/* True if the gradient of the node's input is wanted. */
bool fth_rule_wants(const fth_graph *graph, const fth_node *node, int input);

/* The id of the next op that drops: how many there are in the graph. */
uint32_t fth_rule_next_dropout(const fth_graph *graph);

/* The gradient in front of a fused ReLU whose result was y; dy itself if there is none. */
fth_status fth_rule_before_relu(fth_graph *graph, bool relu, fth_value y, fth_value dy, fth_value *before);

/* `infer` of an op that changes each number by itself, and of its gradient: (x or y, dy) -> dx. */
fth_status fth_rule_infer_elementwise(const void *attributes, const fth_type *inputs, int input_count,
                                      fth_type *outputs);
fth_status fth_rule_infer_elementwise_grad(const void *attributes, const fth_type *inputs, int input_count,
                                           fth_type *outputs);

/* Fuses pointwise nodes of the backward pass with those that read them (fuse_pointwise.c). */
fth_status fth_graph_fuse_gradients(fth_graph *graph);

/* Checks an expression and its inputs, and widens `shape` to what they are broadcast to
 * together. */
fth_status fth_rule_infer_expression(const fth_expression *expression, const fth_type *inputs, int input_count,
                                     fth_shape *shape);

/* `infer` of a loss of outputs (N, C) and targets (N, C), and of its gradient, (outputs, targets)
 * -> doutputs; and the gradient itself: nothing flows into a loss. */
fth_status fth_rule_infer_loss(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs);
fth_status fth_rule_infer_loss_grad(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs);
fth_status fth_rule_build_loss_gradient(fth_graph *graph, const fth_node *node, const fth_op *gradient,
                                        const fth_value *output_gradients, fth_value *input_gradients);

/* The gradient of an op of (x, weight, bias) with a fused ReLU or not: grad_weights (x, dy) ->
 * (dweight, dbias) and grad_input (dy, weight) -> dx, each only where it is wanted. */
fth_status fth_rule_build_weighted_gradient(fth_graph *graph, const fth_node *node, bool relu,
                                            const fth_op *grad_weights, const fth_op *grad_input,
                                            fth_value output_gradient, fth_value *input_gradients);

#endif
