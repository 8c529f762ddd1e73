/* What the kernels of depthwise convolutions, and of others with few channels a group, share: rows
 * of one block of channels of a map, as f32, with zeros on both sides, so that taps which reach
 * beyond the map need no case of their own.
 *
 * Rows are copied one after the other, each once, into slots that are used in turn. As the copy
 * stays in the L1 or L2 cache it costs little beside the reading of the map, and bf16 is widened
 * only once for all the taps.
 *
 * With several channels a group, each lane must meet all channels of its group. A pixel of a copy
 * is then as many vectors as a group has channels, the m-th with channel m of each group in all of
 * the group's lanes. For the kernels, these are so many more taps of a depthwise convolution. */
#ifndef FTH_BACKEND_CPU_LEVEL_DEPTHWISE_LEVEL_H
#define FTH_BACKEND_CPU_LEVEL_DEPTHWISE_LEVEL_H

#include "backend/cpu/blocked_kernels.h"
#include "backend/cpu/level/stored.h"

/* Blocks of channels; the last one may be padded. */
INLINE int64_t depthwise_blocks(int64_t channels)
{
    return (channels + LANES - 1) / LANES;
}

INLINE int64_t depthwise_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

INLINE int64_t depthwise_most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

typedef struct depthwise_rows {
    stored from;
    int64_t plane;         /* the place of the block's first number */
    int64_t height, width; /* of the map */
    int64_t group;         /* channels of a group: so many vectors are a pixel of a slot */
    int64_t before, pitch; /* pixels of a slot: zeros before the row, and in all */
    int64_t slots;         /* a power of two */
    int64_t end;           /* rows before this one were copied */
    float *floats;         /* the slots, and a row of zeros */
} depthwise_rows;

/* The least power of two that is not less than `rows`. */
INLINE int64_t depthwise_slots(int64_t rows)
{
    int64_t slots = 1;
    while (slots < rows)
        slots *= 2;
    return slots;
}

INLINE int64_t depthwise_rows_floats(const depthwise_rows *r)
{
    return (r->slots + 1) * r->pitch * r->group * LANES;
}

/* Writes the zeros, which stay. */
INLINE void depthwise_clear_rows(const depthwise_rows *r)
{
    memset(r->floats, 0, (size_t)depthwise_rows_floats(r) * sizeof(float));
}

INLINE void depthwise_copy_row(const depthwise_rows *r, int64_t row, const bool bf16, const int group)
{
    float *to = r->floats + ((row & (r->slots - 1)) * r->pitch + r->before) * group * LANES;
    const stored from = {r->from.numbers, bf16};
    const int64_t at = r->plane + row * r->width * LANES;
    for (int64_t i = 0; i < r->width; i++) {
        const vector v = load_stored(&from, at + i * LANES);
#pragma GCC unroll 16
        for (int m = 0; m < group; m++)
            store(to + (i * group + m) * LANES, repeat_lane(v, group, m));
    }
}

INLINE void depthwise_copy_row_of(const depthwise_rows *r, int64_t row, const bool bf16)
{
    switch (r->group) {
    case 1: depthwise_copy_row(r, row, bf16, 1); break;
    case 2: depthwise_copy_row(r, row, bf16, 2); break;
    case 4: depthwise_copy_row(r, row, bf16, 4); break;
#if VECTOR_BYTES > 16
    case 8: depthwise_copy_row(r, row, bf16, 8); break;
#endif
#if VECTOR_BYTES > 32
    case 16: depthwise_copy_row(r, row, bf16, 16); break;
#endif
    default: break;
    }
}

/* Copies the rows before `end` that are not there yet, as many as there are slots. */
INLINE void depthwise_copy_rows(depthwise_rows *r, int64_t end)
{
    for (int64_t row = depthwise_most(r->end, end - r->slots); row < end; row++) {
        if (r->from.bf16)
            depthwise_copy_row_of(r, row, true);
        else
            depthwise_copy_row_of(r, row, false);
    }
    r->end = depthwise_most(r->end, end);
}

/* The first pixel of a row; zeros for one outside the map. */
INLINE const float *depthwise_row(const depthwise_rows *r, int64_t row)
{
    const int64_t slot = row < 0 || row >= r->height ? r->slots : row & (r->slots - 1);
    return r->floats + (slot * r->pitch + r->before) * r->group * LANES;
}

int64_t AT_LEVEL(depthwise_grad_weights_floats)(const blocked_convolution *c, int threads);
void AT_LEVEL(depthwise_grad_weights)(const blocked_convolution *c, const void *x, const void *dy, int threads,
                                      float *scratch, float *dweight, float *dbias);

#endif
