/* Static graphs: values, the ops between them, and their gradients.
 *
 * A graph describes a model once, without a device and without a batch size: shapes begin with
 * FTH_BATCH, a multiple of it or FTH_TOKENS, but those of what depends on no input are fixed. The
 * model builds the forward part with the fth_op_* functions of ops.h; fth_graph_differentiate()
 * appends the backward part as ordinary nodes, so that a back end sees one list to run in order. A
 * plan (backend/plan.h) binds the list to a back end, a batch and a mode.
 *
 *     create -> inputs, parameters, ops -> set_loss -> differentiate -> [plans]
 *
 * Parameters get their place in the flat vectors from the order in which the backward pass finishes
 * their gradients: what is final first comes first. */
#ifndef FTH_GRAPH_GRAPH_H
#define FTH_GRAPH_GRAPH_H

#include "base/base.h"
#include "tensor/tensor.h"

typedef struct fth_graph fth_graph;

/* A value's number in its graph. */
typedef int fth_value;
#define FTH_NO_VALUE (-1)

typedef enum fth_value_kind {
    FTH_VALUE_INPUT,     /* filled before each run: images, labels */
    FTH_VALUE_PARAMETER, /* in the flat parameter vector */
    FTH_VALUE_BUFFER,    /* state that is not trained, in the flat buffer vector: running statistics */
    FTH_VALUE_CONSTANT,  /* the same numbers in every run, a part of the graph: masks, indices */
    FTH_VALUE_RESULT     /* computed by a node */
} fth_value_kind;

typedef struct fth_initializer {
    enum { FTH_INIT_CONSTANT, FTH_INIT_UNIFORM, FTH_INIT_NORMAL } kind;
    double amount; /* the constant; the bound of U(-bound, bound); the standard deviation */
} fth_initializer;

typedef struct fth_type {
    fth_dtype dtype;
    fth_shape shape;
} fth_type;

typedef struct fth_value_info {
    fth_value_kind kind;
    const char *name; /* "" for results and constants */
    fth_type type;
    int producer;          /* node that computes it, -1 for others */
    bool needs_gradient;   /* a trainable parameter, or depends on one */
    fth_initializer init;  /* parameters and buffers */
    const void *data;      /* constants: row-major, little-endian, aligned to FTH_ALIGNMENT */
    size_t offset;         /* parameters and buffers: first float in the flat vector (after differentiate) */
    fth_value gradient;    /* parameters: the result that ends up in the gradient vector, or FTH_NO_VALUE */
    fth_value gradient_of; /* results: the parameter whose gradient this is, or FTH_NO_VALUE */
} fth_value_info;

typedef struct fth_op fth_op;

typedef struct fth_node {
    const fth_op *op;
    const void *attributes; /* the op's own struct (ops.h) */
    int input_count, output_count;
    const fth_value *inputs;
    const fth_value *outputs;
} fth_node;

/* One kind of computation. The rules live in src/graph/op_<name>.c, the kernels in each back
 * end. */
struct fth_op {
    const char *name;
    size_t attributes_size;
    int output_count;

    /* Checks the inputs and fills in `outputs`; the message of a failure names what does not
     * fit. */
    fth_status (*infer)(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs);

    /* Appends the nodes that carry gradients from outputs to inputs. output_gradients[i] is
     * FTH_NO_VALUE where nothing flows back. Sets input_gradients[i] for each input that needs one;
     * others are left alone. NULL for ops that only occur in backward parts. */
    fth_status (*build_gradient)(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients);
};

fth_status fth_graph_create(fth_graph **graph);
void fth_graph_free(fth_graph *graph);

/* Building. Names are copied. A failure leaves the graph fit only for freeing. */
fth_status fth_graph_add_input(fth_graph *graph, const char *name, fth_dtype dtype, fth_shape shape, fth_value *value);
fth_status fth_graph_add_parameter(fth_graph *graph, const char *name, fth_shape shape, fth_initializer init,
                                   fth_value *value);
fth_status fth_graph_add_buffer(fth_graph *graph, const char *name, fth_shape shape, fth_initializer init,
                                fth_value *value);
/* Gives a parameter or buffer another initializer. */
fth_status fth_graph_set_initializer(fth_graph *graph, fth_value value, fth_initializer init);
/* `attributes` is copied; `outputs` has room for op->output_count. */
fth_status fth_graph_add_node(fth_graph *graph, const fth_op *op, const void *attributes, const fth_value *inputs,
                              int input_count, fth_value *outputs);
/* A batch norm's "num_batches_tracked": a count of training steps that exists only in files. */
fth_status fth_graph_add_counter(fth_graph *graph, const char *name);

/* A tensor that exists in model files alone: another name of a parameter or buffer ("lm_head.weight"
 * of a tied embedding), or a constant of the network that its module keeps as a buffer. */
typedef struct fth_file_tensor {
    const char *name;
    fth_value same_as; /* the parameter or buffer; FTH_NO_VALUE: a constant */
    fth_type type;     /* of a constant; */
    const void *data;  /* outlives the graph */
} fth_file_tensor;
fth_status fth_graph_add_file_tensor(fth_graph *graph, const fth_file_tensor *tensor);

/* Parameters are trained unless they are said not to be: then no gradient is computed for them, nor
 * for what only they and other such parameters lead to, and they lie behind the trained ones in the
 * flat vector. */
fth_status fth_graph_set_trainable(fth_graph *graph, fth_value parameter, bool trainable);

/* Batch norms whose scale and shift are not trained keep their running statistics, and use them in
 * training as well. */
void fth_graph_fix_statistics(fth_graph *graph);

/* Marks the nodes that are added between the two as a block: what they compute is not kept for the
 * gradients, but computed again from what the block reads, just before they are needed (gradient
 * checkpointing). Costs the block's forward pass once more and changes no number. Blocks do not
 * overlap, and have no op in them that changes buffers. */
fth_status fth_graph_begin_block(fth_graph *graph);
void fth_graph_end_block(fth_graph *graph);

/* Names the loss result ((2): mean loss, correct predictions) and the logits, which every plan
 * keeps readable. */
void fth_graph_set_outputs(fth_graph *graph, fth_value logits, fth_value loss);

/* Appends the backward part and lays out the flat vectors. Call once, after set_outputs. */
fth_status fth_graph_differentiate(fth_graph *graph);

/* Reading. */
int fth_graph_value_count(const fth_graph *graph);
const fth_value_info *fth_graph_value(const fth_graph *graph, fth_value value);
int fth_graph_node_count(const fth_graph *graph);
int fth_graph_forward_node_count(const fth_graph *graph); /* nodes before the backward part */
const fth_node *fth_graph_node(const fth_graph *graph, int index);
/* The layer whose parameters a node reads or computes gradients of, as in their names:
 * "layer1.0.conv1"; "" for a node without parameters. */
void fth_graph_node_layer(const fth_graph *graph, int index, char *layer, size_t size);
fth_value fth_graph_logits(const fth_graph *graph);
fth_value fth_graph_loss(const fth_graph *graph);
fth_value fth_graph_find(const fth_graph *graph, const char *name); /* an input, parameter or buffer; or FTH_NO_VALUE */
int fth_graph_counter_count(const fth_graph *graph);
const char *fth_graph_counter(const fth_graph *graph, int index);
int fth_graph_file_tensor_count(const fth_graph *graph);
const fth_file_tensor *fth_graph_file_tensor(const fth_graph *graph, int index);
/* By name; NULL if there is none. */
const fth_file_tensor *fth_graph_find_file_tensor(const fth_graph *graph, const char *name);

/* Length in floats of the flat vectors, each view padded to FTH_ALIGNMENT bytes; padding stays
 * zero. */
size_t fth_graph_parameter_floats(const fth_graph *graph);
/* The part of it that is trained, at its beginning: parameters that get a gradient. */
size_t fth_graph_trained_floats(const fth_graph *graph);
size_t fth_graph_buffer_floats(const fth_graph *graph);
/* How many trained numbers there are, padding not counted. */
int64_t fth_graph_trainable_count(const fth_graph *graph);

/* Fills host vectors with initial values: pure functions of (seed, parameter name, index). */
void fth_graph_initialize(const fth_graph *graph, uint64_t seed, float *parameters, float *buffers);

/* ---- memory plan: places areas with known lifetimes in one arena ---- */

typedef struct fth_area {
    size_t size_bytes;
    int first_step, last_step; /* inclusive; first > last means never used */
    size_t offset;             /* result */
} fth_area;

/* Sets every offset so that areas alive at the same time do not overlap; gives the arena's size. */
fth_status fth_memory_plan(fth_area *areas, size_t area_count, size_t *arena_bytes);

#endif
