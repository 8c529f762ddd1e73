/* Copies of strided tensors (backend/strided_copy.h), tile by tile; see strided_copy.c. */
#ifndef FTH_BACKEND_CPU_STRIDED_COPY_H
#define FTH_BACKEND_CPU_STRIDED_COPY_H

#include "backend/cpu/cpu_internal.h"
#include "backend/strided_copy.h"

/* counts[0] × counts[1] rows of `row` adjacent items. Neighbours in dimension 0 are near in the
 * source, those in dimension 1 in the result. */
typedef struct copy_tile {
    int64_t item; /* bytes: 2 or 4 */
    int64_t row;
    int64_t counts[2], from[2], to[2]; /* distances in bytes */
} copy_tile;

/* Rows along which a tile goes in dimension 0, and the bytes that it has at most, about. */
enum { COPY_TILE_ROWS = 64, COPY_TILE_BYTES = 1 << 16 };

typedef struct strided_copy_kernels {
    void (*copy)(const copy_tile *tile, const char *from, char *to);
} strided_copy_kernels;

/* A copy as a part of a step: from one value, or a number that is filled in. */
typedef struct cpu_copy_part {
    fth_strided_copy copy;
    fth_plan_value from; /* none: `filling`, as many bits of it as an item has */
    uint32_t filling;
} cpu_copy_part;

/* Strides of a layout; its channel padding is not a part of it. */
fth_strides cpu_strides_of(const cpu_format *layout);

/* Adds one step that writes all of `to` from `count` parts. */
fth_status cpu_add_copies(fth_plan *plan, const char *name, const cpu_copy_part *parts, int count, fth_plan_value to);

#endif
