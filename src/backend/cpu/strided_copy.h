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
enum { COPY_TILE_ROWS = 256, COPY_TILE_BYTES = 1 << 16 };

typedef struct strided_copy_kernels {
    void (*copy)(const copy_tile *tile, const char *from, char *to);
    void (*fill)(const copy_tile *tile, uint32_t filling, char *to); /* two items of 2 bytes, or one of 4 */
} strided_copy_kernels;

/* A copy as a part of a step: from one value, or a number that is filled in. */
typedef struct cpu_copy_part {
    fth_strided_copy copy;
    fth_plan_value from; /* none: filled */
    uint32_t filling;    /* with this, or its lower half where items have 2 bytes */
} cpu_copy_part;

/* False of a layout of which oneDNN keeps the strides to itself, or that has blocks other than of
 * channels. Channel padding is not a part of the shape. */
bool cpu_get_strides(const cpu_format *layout, fth_strides *strides);

/* The one or two parts that copy a box: two where channels end within a block. False if blocks do
 * not allow it. */
bool cpu_make_parts(const fth_box *box, const fth_strides *from, const fth_strides *to, fth_plan_value source,
                    cpu_copy_part parts[2], int *count);

/* Whether a copy does what oneDNN's reorder does, and is faster. */
bool cpu_can_reorder(const cpu_format *from, const cpu_format *to);
fth_status cpu_add_reorder(fth_plan *plan, fth_plan_value from, fth_plan_value to);

/* Adds one step that writes all of `to` from `count` parts. */
fth_status cpu_add_copies(fth_plan *plan, const char *name, const cpu_copy_part *parts, int count, fth_plan_value to);

#endif
