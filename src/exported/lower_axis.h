/* A dimension of a view as one axis of its value, for rules of operators that work along one. */
#ifndef FTH_EXPORTED_LOWER_AXIS_H
#define FTH_EXPORTED_LOWER_AXIS_H

#include "exported/lowering.h"

typedef struct lowering_place {
    int axis; /* of the value */
    int atom; /* of the view: the first of the dimension's, in memory */
} lowering_place;

/* True if memory is in the order of the dimensions, the batch first, and nothing is expanded. */
bool lowering_is_plain(const fth_view *x);
/* Where a dimension is in a value that has the shape of the dimensions. */
lowering_place lowering_place_in_dims(const fth_view *x, int dim);
/* Brings dimension `dim` together as one axis of x's value, with the rest in the order of memory. */
fth_status lowering_as_axis(lowering *l, fth_view *x, int dim, lowering_place *where);
/* The same for a part of a dimension: what is behind it in memory is a part of the axis, *unit times
 * as long, so that the queries of a layer that computes queries, keys and values are columns. */
fth_status lowering_as_columns(lowering *l, fth_view *x, int dim, lowering_place *where, int64_t *unit);
/* A view like x with another value, in which dimension `dim` has `size`. */
fth_status lowering_resized(const fth_view *x, int dim, lowering_place where, int64_t size, fth_value value,
                            fth_view *y);

#endif
