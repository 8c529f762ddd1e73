/* Copies between tensors whose elements lie in different orders: what concat, slice, pad and
 * permute are to a back end.
 *
 * A box says which elements go where, axis by axis; with the strides of both tensors it becomes
 * nested loops over memory, sorted so that the last loop goes through what is adjacent in the
 * result, and with loops that continue one another merged. */
#ifndef FTH_BACKEND_STRIDED_COPY_H
#define FTH_BACKEND_STRIDED_COPY_H

#include "graph/ops.h"

/* Distances in elements. One axis may be in blocks: its entry i is at i / block * of_axis +
 * i % block. */
typedef struct fth_strides {
    fth_shape shape;
    int64_t of_axis[FTH_MAX_RANK];
    int blocked_axis;
    int64_t block; /* 1: no axis is in blocks */
} fth_strides;

/* Row-major. */
fth_strides fth_strides_plain(const fth_shape *shape);

/* Entries 0 to count - 1 of one axis, and the others whole. */
typedef struct fth_box {
    int axes[FTH_MAX_RANK]; /* axis i of the result is this one of the source */
    int axis;               /* of the result: the one that may not be whole; -1: all are */
    int64_t count, from_begin, from_step, to_begin, to_step;
} fth_box;

/* What `node`, a concat, slice, pad or permute, copies from its input `input`. */
fth_box fth_box_of(const fth_graph *graph, const fth_node *node, int input);
/* What a pad fills: entries before, after, and `between` times between those of x. False after the
 * last. */
bool fth_box_of_padding(const fth_graph *graph, const fth_node *pad, int number, fth_box *box);

enum { FTH_MAX_COPY_RANK = FTH_MAX_RANK + 1 };

typedef struct fth_strided_copy {
    int rank; /* 0: a single element */
    int64_t sizes[FTH_MAX_COPY_RANK], from[FTH_MAX_COPY_RANK], to[FTH_MAX_COPY_RANK];
    int64_t from_begin, to_begin;
} fth_strided_copy;

/* False if blocks do not allow it: they differ, or the box has a part of one and of others as
 * well. */
bool fth_strided_copy_make(const fth_box *box, const fth_strides *from, const fth_strides *to, fth_strided_copy *copy);

#endif
