/* Computing what depends on no input and no parameter, once and here: masks, positions, tables of
 * indices. */
#ifndef FTH_EXPORTED_FOLD_H
#define FTH_EXPORTED_FOLD_H

#include "exported/program.h"

enum {
    FTH_FOLD_ELEMENTS = 16 << 20, /* of one tensor at most */
    FTH_FOLD_ALLOWANCE = 64 << 20 /* of a program's constants together: 8 bytes each, 16 of a view */
};

typedef struct fth_host_memory fth_host_memory; /* numbers that a tensor and its views share */
typedef struct fth_host_view fth_host_view;     /* where a view's numbers are in it */

/* A tensor of known numbers, row by row, rounded to its type. Integers are exact: results beyond
 * 2^53 are not folded. A tensor without `memory` owns its numbers alone (malloc). Others are what
 * these functions made: an operator that changes a view changes what it is a view of. */
typedef struct fth_host_tensor {
    int torch_dtype;
    fth_shape shape;
    double *numbers;
    fth_host_memory *memory;
    fth_host_view *view; /* NULL: `numbers` are the memory's */
} fth_host_tensor;

void fth_host_tensor_release(fth_host_tensor *tensor);
/* The data of a buffer or a constant; FTH_UNSUPPORTED where they are not known or too large. */
fth_status fth_host_tensor_of(const fth_exported_value *value, fth_host_tensor *tensor);
/* Reads a view's numbers again if an operator has changed its memory since. Call it before reading
 * `numbers` of a tensor that was folded earlier; fth_fold_node() does so for its tensors. */
void fth_host_tensor_refresh(const fth_host_tensor *tensor);

/* True of an operator that fth_fold_node() may know. */
bool fth_fold_knows(const char *target);
/* False for a tensor of which only the shape and the type matter, as in new_zeros(): it may be
 * unknown. */
bool fth_fold_reads(const char *target, const char *argument);
/* Computes a node. `tensors` has each tensor argument, those of lists one after another, NULL for
 * None and for what need not be known; `outputs` has room for the node's, and the caller releases
 * them. *allowance begins as FTH_FOLD_ALLOWANCE and is what the numbers of a program's constants
 * are taken from, so that a small file cannot take much memory. Nodes must come in the program's
 * order, because some change what others read. Not folded, and no failure: an operator, an argument
 * or a type that is not known here, a size that depends on the batch, or too many numbers. */
fth_status fth_fold_node(const fth_exported *program, const fth_exported_node *node,
                         const fth_host_tensor *const *tensors, int64_t *allowance, fth_host_tensor *outputs,
                         bool *folded);

#endif
