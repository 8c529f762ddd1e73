/* Copies and transposes tiles of strided tensors. See ../strided_copy.h. */
#include "backend/cpu/strided_copy.h"
#include "backend/vector/vector.h"

/* ---- rows ---- */

enum { SHORT_ROW = 512 }; /* bytes */

/* Goes along dimension 0 inside, where the source is read in order: a tile is narrow enough that
 * the lines of the result which it touches stay in the nearest cache until they are full. */
INLINE void copy_rows(const copy_tile *t, const char *from, char *to, const int64_t bytes)
{
    for (int64_t j = 0; j < t->counts[1]; j++) {
        const char *f = from + j * t->from[1];
        char *g = to + j * t->to[1];
        for (int64_t i = 0; i < t->counts[0]; i++)
            memcpy(g + i * t->to[0], f + i * t->from[0], (size_t)bytes);
    }
}

/* A row that is too short for a call of memcpy(); of an even number of bytes. */
INLINE void copy_short_row(const char *from, char *to, int64_t bytes)
{
    int64_t k = 0;
    for (; k + VECTOR_BYTES <= bytes; k += VECTOR_BYTES)
        store((float *)(to + k), load((const float *)(from + k)));
    if (bytes - k >= 4)
        store_part((float *)(to + k), load_part((const float *)(from + k), (bytes - k) / 4), (bytes - k) / 4);
    if (bytes % 4 != 0)
        memcpy(to + bytes - 2, from + bytes - 2, 2);
}

INLINE void copy_short_rows(const copy_tile *t, const char *from, char *to, int64_t bytes)
{
    for (int64_t j = 0; j < t->counts[1]; j++) {
        const char *f = from + j * t->from[1];
        char *g = to + j * t->to[1];
        for (int64_t i = 0; i < t->counts[0]; i++)
            copy_short_row(f + i * t->from[0], g + i * t->to[0], bytes);
    }
}

static void fill(const copy_tile *t, uint32_t filling, char *to)
{
    const int64_t bytes = t->row * t->item;
    const vector items = (vector)((vector_mask){0} + (int32_t)filling);
    for (int64_t i = 0; i < t->counts[0]; i++)
        for (int64_t j = 0; j < t->counts[1]; j++) {
            char *g = to + i * t->to[0] + j * t->to[1];
            int64_t k = 0;
            for (; k + VECTOR_BYTES <= bytes; k += VECTOR_BYTES)
                store((float *)(g + k), items);
            if (bytes - k >= 4)
                store_part((float *)(g + k), items, (bytes - k) / 4);
            if (bytes % 4 != 0)
                memcpy(g + bytes - 2, &filling, 2);
        }
}

/* ---- single items ---- */

INLINE vector load_items(const char *from, int64_t count, const int64_t item)
{
    if (item == 4)
        return count >= LANES ? load((const float *)from) : load_part((const float *)from, count);
    return load_bf16_part((const uint16_t *)from, count);
}

INLINE void store_items(char *to, vector v, int64_t count, const int64_t item)
{
    if (item == 2)
        store_bf16_bits_part((uint16_t *)to, v, count);
    else if (count >= LANES)
        store((float *)to, v);
    else
        store_part((float *)to, v, count);
}

/* `rows` × `columns` items, at most LANES of each: the source's rows become columns. */
INLINE void transpose_block(const copy_tile *t, const char *from, char *to, int64_t rows, int64_t columns,
                            const int64_t item)
{
    vector block[LANES];
#pragma GCC unroll 16
    for (int64_t r = 0; r < LANES; r++)
        block[r] = r < rows ? load_items(from + r * t->from[1], columns, item) : (vector){0};
    transpose(block);
#pragma GCC unroll 16
    for (int64_t c = 0; c < LANES; c++) {
        if (c < columns)
            store_items(to + c * t->to[0], block[c], rows, item);
    }
}

INLINE int64_t at_most(int64_t count, int64_t most)
{
    return count < most ? count : most;
}

INLINE void transpose_tile(const copy_tile *t, const char *from, char *to, const int64_t item)
{
    for (int64_t j = 0; j < t->counts[1]; j += LANES) {
        const int64_t rows = at_most(t->counts[1] - j, LANES);
        const char *f = from + j * t->from[1];
        char *g = to + j * item;
        int64_t i = 0;
        for (; rows == LANES && i + LANES <= t->counts[0]; i += LANES)
            transpose_block(t, f + i * item, g + i * t->to[0], LANES, LANES, item);
        for (; i < t->counts[0]; i += LANES)
            transpose_block(t, f + i * item, g + i * t->to[0], rows, at_most(t->counts[0] - i, LANES), item);
    }
}

/* Neither is adjacent on both sides. */
INLINE void copy_items(const copy_tile *t, const char *from, char *to, const int64_t item)
{
    for (int64_t i = 0; i < t->counts[0]; i++) {
        const char *f = from + i * t->from[0];
        char *g = to + i * t->to[0];
        for (int64_t j = 0; j < t->counts[1]; j++)
            memcpy(g + j * t->to[1], f + j * t->from[1], (size_t)item);
    }
}

INLINE void copy_single(const copy_tile *t, const char *from, char *to, const int64_t item)
{
    if (t->from[0] == item && t->to[1] == item)
        transpose_tile(t, from, to, item);
    else
        copy_items(t, from, to, item);
}

static void copy(const copy_tile *t, const char *from, char *to)
{
    const int64_t bytes = t->row * t->item;
    if (t->row == 1) {
        if (t->item == 4)
            copy_single(t, from, to, 4);
        else
            copy_single(t, from, to, 2);
        return;
    }
    switch (bytes) { /* blocks of channels */
    case 16: copy_rows(t, from, to, 16); break;
    case 32: copy_rows(t, from, to, 32); break;
    case 64: copy_rows(t, from, to, 64); break;
    default:
        if (bytes < SHORT_ROW)
            copy_short_rows(t, from, to, bytes);
        else
            copy_rows(t, from, to, bytes);
    }
}

const strided_copy_kernels AT_LEVEL(strided_copy) = {.copy = copy, .fill = fill};
