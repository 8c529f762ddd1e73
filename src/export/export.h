/* Models for other programs: ONNX files, made from the forward part of a graph.
 *
 * protobuf.c writes the few kinds of fields that ONNX needs, onnx_ops.c and onnx_text.c have a row
 * for every op, made of the pieces in onnx_nodes.c, and onnx.c puts the file together. */
#ifndef FTH_EXPORT_EXPORT_H
#define FTH_EXPORT_EXPORT_H

#include "graph/graph.h"

typedef struct fth_onnx_options {
    const char *name;                   /* of the model */
    const fth_metadata_entry *metadata; /* kept in the file: class names, normalization */
    size_t metadata_count;
} fth_onnx_options;

/* Writes the graph as it computes in evaluation, input "images" (N, C, H, W) and output "logits"
 * (N, classes), as ONNX of opset 17; of text, inputs "input_ids", "attention_mask" and
 * "token_type_ids" (N, length), padded. `views` are the parameters and buffers by name, f32. `path`
 * is the user's (base/output.h). FTH_UNSUPPORTED names an op that has no translation, and refuses
 * models above 2 GB, which a protobuf cannot hold. */
fth_status fth_onnx_save(const char *path, const fth_graph *graph, const fth_tensor_view *views, size_t view_count,
                         const fth_onnx_options *options);

#endif
