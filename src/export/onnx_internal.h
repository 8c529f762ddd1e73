/* What the table of ops writes with. */
#ifndef FTH_EXPORT_ONNX_INTERNAL_H
#define FTH_EXPORT_ONNX_INTERNAL_H

#include "export/protobuf.h"
#include "graph/ops.h"

/* An ONNX graph in the making. Values are known by name: inputs, parameters and buffers by their
 * own, results by number. */
typedef struct fth_onnx_writer {
    const fth_graph *graph;
    char **names;           /* by value; NULL until it has one */
    fth_protobuf nodes;     /* fields of GraphProto */
    fth_protobuf constants; /* its small initializers: fields too */
    int made_count;         /* names made for what lies between */
} fth_onnx_writer;

/* How one op is said in ONNX; a NULL function: it leaves no trace in evaluation, its result is its
 * first input. */
typedef struct fth_onnx_op {
    const fth_op *op;
    fth_status (*write)(fth_onnx_writer *writer, const fth_node *node);
} fth_onnx_op;

extern const fth_onnx_op fth_onnx_op_list[];       /* ends with a NULL op */
extern const fth_onnx_op fth_onnx_arrange_ops[];   /* likewise: those that move elements (onnx_arrange.c) */
extern const fth_onnx_op fth_onnx_pointwise_ops[]; /* pointwise and reduce (onnx_pointwise.c) */
extern const fth_onnx_op fth_onnx_text_ops[];      /* and those of text (onnx_text.c) */
extern const fth_onnx_op fth_onnx_sequence_ops[];  /* attention, LSTM and the like (onnx_sequences.c) */

/* ---- onnx_text.c: sequences that are packed here are padded in ONNX ---- */

/* True of a graph whose inputs are tokens. */
bool fth_onnx_is_text(const fth_graph *graph);
/* Names the inputs of such a graph, and adds the nodes that make positions and the mask from
 * them. */
void fth_onnx_begin_text(fth_onnx_writer *writer);

/* A linear layer of every token; Gemm takes matrices alone. */
fth_status fth_onnx_write_rows(fth_onnx_writer *writer, const fth_node *node, bool relu);

/* ---- pieces (onnx_nodes.c) ---- */

enum { FTH_ONNX_FLOAT = 1, FTH_ONNX_INT64 = 7 }; /* types of data */

/* A name for what lies between, made up. */
typedef struct fth_onnx_name {
    char text[32];
} fth_onnx_name;
fth_onnx_name fth_onnx_make_name(fth_onnx_writer *writer, const char *what);

/* A node with its inputs; attributes are added to it, then the output, which ends it. */
fth_protobuf fth_onnx_begin_node(const char *op_type, const char *const *inputs, int input_count);
void fth_onnx_add_input(fth_protobuf *node, const char *name); /* one more */
void fth_onnx_add_integer(fth_protobuf *node, const char *name, int64_t value);
void fth_onnx_add_float(fth_protobuf *node, const char *name, float value);
void fth_onnx_add_integers(fth_protobuf *node, const char *name, const int64_t *values, size_t count);
void fth_onnx_add_text(fth_protobuf *node, const char *name, const char *value);
void fth_onnx_add_output(fth_protobuf *node, const char *name); /* one that is not the last */
void fth_onnx_end_node(fth_onnx_writer *writer, fth_protobuf *node, const char *output);
/* A node without attributes; `b` may be NULL. */
void fth_onnx_add_plain(fth_onnx_writer *writer, const char *op_type, const char *a, const char *b, const char *output);

/* Small initializers. */
fth_onnx_name fth_onnx_add_constant(fth_onnx_writer *writer, int data_type, const int64_t *dims, size_t rank,
                                    const void *values, size_t size_bytes);
fth_onnx_name fth_onnx_add_number(fth_onnx_writer *writer, float value);

/* The initializer of a constant of the graph (onnx_arrange.c). */
fth_status fth_onnx_write_constant(fth_onnx_writer *writer, const fth_value_info *value, fth_onnx_name *name);

const char *fth_onnx_input_name(const fth_onnx_writer *writer, const fth_node *node, int input);
const char *fth_onnx_output_name(const fth_onnx_writer *writer, const fth_node *node);

#endif
