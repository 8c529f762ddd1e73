/* fold.c owns tensors and finds a node's rule; rules are rows of the tables in fold_functions.c
 * (number by number), fold_views.c, fold_copies.c and fold_sums.c. */
#ifndef FTH_EXPORTED_FOLD_INTERNAL_H
#define FTH_EXPORTED_FOLD_INTERNAL_H

#include "exported/fold.h"

/* A node being computed. */
typedef struct fold {
    const fth_exported *program;
    const fth_exported_node *node;
    const fth_host_tensor *const *tensors;
    int64_t *allowance;
    fth_host_tensor *outputs;
    char name[64];     /* "add" of "aten.add_.Tensor" */
    bool in_place;     /* that operator changes its first argument */
    fth_status status; /* a failure, as for lack of memory */
} fold;

/* False: not folded, or failed if the status says so. */
typedef bool fold_rule(fold *f);

typedef struct fold_row {
    const char *name;
    fold_rule *rule;
} fold_row;

extern const fold_row fold_functions[], fold_views[], fold_copies[], fold_sums[]; /* end with NULL */

/* Does the table of functions have `name`? Its rule looks the name up again. */
bool fold_has_function(const char *name);
bool fold_function(fold *f);

/* ---- arguments ---- */

/* A tensor, also of a list; NULL for anything else. */
const fth_host_tensor *fold_tensor(const fold *f, const char *name);
const fth_host_tensor *fold_tensor_of(const fold *f, const char *name, size_t index);
size_t fold_list_count(const fold *f, const char *name);
bool fold_has(const fold *f, const char *name); /* and not None */
/* A number of any kind; false if it is none, or depends on the batch. */
bool fold_number(const fold *f, const char *name, double *number);
/* The same where it may be left out. */
bool fold_number_or(const fold *f, const char *name, double otherwise, double *number);
bool fold_int_or(const fold *f, const char *name, int64_t otherwise, int64_t *number);
/* Whole numbers of a list, or one; *count is 0 where they are left out. */
bool fold_ints(const fold *f, const char *name, int64_t *numbers, size_t room, size_t *count);
/* A dimension, counted from the end if it is negative. */
bool fold_dim_or(const fold *f, const char *name, int64_t otherwise, int rank, int *dim);
bool fold_wrap_dim(int64_t number, int rank, int *dim);

/* ---- results ---- */

/* The shape that the program gives an output; false if it depends on the batch or is too large. */
bool fold_output_shape(const fold *f, size_t index, fth_shape *shape);
/* Zeroed numbers for an output, or in place of the first argument; NULL where there is no memory,
 * or no allowance left. free() them unless they are given to fold_set(). */
double *fold_allocate(fold *f, const fth_shape *shape);
/* Makes numbers the output, rounded to its type; takes them in any case. */
bool fold_set(fold *f, size_t index, double *numbers);
/* Makes the output a view: its number at (i, j, ...) is that of `source` at offset + i *
 * strides[0] + ..., counted row by row. */
bool fold_set_view(fold *f, size_t index, const fth_host_tensor *source, int64_t offset, const int64_t *strides);
/* The same as `source`, in the output's shape: a view where `source` has the output's type. */
bool fold_set_same(fold *f, size_t index, const fth_host_tensor *source);

/* ---- walking ---- */

/* The places of a shape's numbers in up to three tensors, in order. */
typedef struct fold_walk {
    fth_shape shape;
    int64_t index[FTH_MAX_RANK];
    int64_t strides[3][FTH_MAX_RANK], places[3];
} fold_walk;

void fold_strides(const fth_shape *shape, int64_t *strides); /* row by row */
/* `tensor` as it is broadcast to the walk's shape; false if it does not fit. */
bool fold_broadcast(fold_walk *walk, int which, const fth_shape *tensor);
void fold_next(fold_walk *walk);

#endif
