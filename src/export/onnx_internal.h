/* What the table of ops writes with. */
#ifndef FTH_EXPORT_ONNX_INTERNAL_H
#define FTH_EXPORT_ONNX_INTERNAL_H

#include "export/protobuf.h"
#include "graph/ops.h"

/* An ONNX graph in the making. Values are known by name: inputs, parameters and buffers by their own, results by
 * number. */
typedef struct fth_onnx_writer {
    const fth_graph *graph;
    char **names;           /* by value; NULL until it has one */
    fth_protobuf nodes;     /* fields of GraphProto */
    fth_protobuf constants; /* its small initializers: fields too */
    int made_count;         /* names made for what lies between */
} fth_onnx_writer;

/* How one op is said in ONNX; a NULL function: it leaves no trace in evaluation, its result is its first input. */
typedef struct fth_onnx_op {
    const fth_op *op;
    fth_status (*write)(fth_onnx_writer *writer, const fth_node *node);
} fth_onnx_op;

extern const fth_onnx_op fth_onnx_op_list[]; /* ends with a NULL op */

#endif
