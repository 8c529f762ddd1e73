/* What the Winograd kernels share: the points, the transforms of lines, tiles and how they are read. See winograd_correlate.c. */
#ifndef FTH_BACKEND_CPU_LEVEL_WINOGRAD_TILE_H
#define FTH_BACKEND_CPU_LEVEL_WINOGRAD_TILE_H

#include "backend/cpu/level/expected.h"
#include "backend/cpu/level/stored.h"
#include "backend/cpu/winograd.h"

enum { POINTS = 36, TILE = 4, WINDOW = 6 };

#define A  0.625F
#define B  1.5F
#define A2 (A * A)
#define B2 (B * B)

/* x * y + z */
INLINE vector times_plus(float x, vector y, vector z)
{
    return x * y + z;
}

/* ---- the transforms of one line ---- */

/* Six inputs, in place: rows of the polynomials that vanish at all points but one. */
INLINE void transform_inputs(vector d[WINDOW])
{
    const vector even_b = times_plus(-B2, d[2], d[4]), odd_b = times_plus(-B2, d[1], d[3]);
    const vector even_a = times_plus(-A2, d[2], d[4]), odd_a = times_plus(-A2, d[1], d[3]);
    d[0] = times_plus(A2 * B2, d[0], times_plus(-(A2 + B2), d[2], d[4]));
    d[5] = times_plus(A2 * B2, d[1], times_plus(-(A2 + B2), d[3], d[5]));
    d[1] = times_plus(A, odd_b, even_b);
    d[2] = times_plus(-A, odd_b, even_b);
    d[3] = times_plus(B, odd_a, even_a);
    d[4] = times_plus(-B, odd_a, even_a);
}

/* Four numbers at the six points, not yet multiplied by factor(). */
INLINE void evaluate_four(const vector g[4], vector at[WINDOW])
{
    const vector even_a = times_plus(A2, g[2], g[0]), odd_a = times_plus(A2, g[3], g[1]);
    const vector even_b = times_plus(B2, g[2], g[0]), odd_b = times_plus(B2, g[3], g[1]);
    at[0] = g[0];
    at[1] = times_plus(A, odd_a, even_a);
    at[2] = times_plus(-A, odd_a, even_a);
    at[3] = times_plus(B, odd_b, even_b);
    at[4] = times_plus(-B, odd_b, even_b);
    at[5] = g[3];
}

INLINE void evaluate_three(const vector g[3], vector at[WINDOW])
{
    const vector even_a = times_plus(A2, g[2], g[0]), even_b = times_plus(B2, g[2], g[0]);
    at[0] = g[0];
    at[1] = times_plus(A, g[1], even_a);
    at[2] = times_plus(-A, g[1], even_a);
    at[3] = times_plus(B, g[1], even_b);
    at[4] = times_plus(-B, g[1], even_b);
    at[5] = g[2];
}

/* 1 / product of the distances from point i to the other finite ones: the weights, or sums of products, are multiplied by it. */
INLINE float factor(int i)
{
    return i == 0 ? 1 / (A2 * B2) : i <= 2 ? 1 / (2 * A2 * (A2 - B2)) : i <= 4 ? 1 / (2 * B2 * (B2 - A2)) : 1;
}

/* From the products at six points to `count` (4 or 3) outputs. */
INLINE void transform_products(const vector m[WINDOW], const int count, vector y[TILE])
{
    const vector sum_a = m[1] + m[2], sum_b = m[3] + m[4];
    const vector difference_a = m[1] - m[2], difference_b = m[3] - m[4];
    y[0] = m[0] + (sum_a + sum_b);
    y[1] = times_plus(A, difference_a, B * difference_b);
    y[2] = times_plus(A2, sum_a, B2 * sum_b);
    if (count == 3)
        y[2] += m[5];
    else
        y[3] = times_plus(A2 * A, difference_a, times_plus(B2 * B, difference_b, m[5]));
}

/* ---- tiles ---- */

/* How many tiles of 4×4 cover the outputs, and where one of them lies. */
typedef struct tiling {
    int64_t rows, columns, count;
} tiling;

typedef struct place {
    int64_t image, row, column; /* of the tile's first output */
} place;

static inline tiling tile_up(const winograd_images *out)
{
    tiling t = {.rows = (out->height + TILE - 1) / TILE, .columns = (out->width + TILE - 1) / TILE};
    t.count = out->batch * t.rows * t.columns;
    return t;
}

INLINE place place_of(const tiling *tiles, int64_t tile)
{
    const int64_t each = tiles->rows * tiles->columns;
    return (place){tile / each, tile % each / tiles->columns * TILE, tile % tiles->columns * TILE};
}

/* Floats from the first of all to (row, column) of LANES planes, from `plane` on, of an image. */
INLINE int64_t offset_of(const winograd_images *images, int64_t image, int64_t plane, int64_t row, int64_t column)
{
    return (((image * images->planes + plane) / LANES * images->height + row) * images->width + column) * LANES;
}

/* Where that is, of images in bf16 or f32; and how much memory that takes, in floats. */
INLINE const float *address_of(const void *images, int64_t offset, bool bf16)
{
    return bf16 ? (const float *)((const uint16_t *)images + offset) : (const float *)images + offset;
}

INLINE int64_t floats_of(int64_t numbers, bool bf16)
{
    return bf16 ? numbers / 2 : numbers;
}

INLINE winograd_images pooled(const winograd_images *images)
{
    return (winograd_images){images->batch, images->planes, images->height / 2, images->width / 2};
}

/* ---- memory ---- */

/* The part of `count` things that is number `part` of `parts`: [begin, end). */
typedef struct share {
    int64_t begin, end;
} share;

INLINE share share_of(int64_t count, int64_t part, int64_t parts)
{
    return (share){count * part / parts, count * (part + 1) / parts};
}

/* ---- windows ---- */

/* A part of LANES planes of an image: rows and columns outside the image read as zeros. If the image is known by its
 * gradient after max pooling, what is described here is the part of that. */
typedef struct window {
    const void *from;       /* its first number, perhaps outside */
    const uint8_t *where;   /* as winograd_source says */
    int64_t stride;         /* numbers in a row of the image */
    uint32_t rows, columns; /* bits: those inside */
} window;

/* How a window can be read: a constant where it is inlined. ODD: it begins within the cells of the pooling. */
typedef enum reading { INSIDE, BORDER, INSIDE_BF16, BORDER_BF16, POOLED, POOLED_ODD } reading;

INLINE uint32_t bits_inside(int64_t first, int64_t size)
{
    uint32_t bits = 0;
    for (int i = 0; i < WINDOW; i++)
        bits |= (uint32_t)(first + i >= 0 && first + i < size) << i;
    return bits;
}

/* A window of `size` × `size` numbers at (row, column). */
INLINE reading find_window(const winograd_images *images, const winograd_source *source, bool bf16, int64_t image,
                           int64_t plane, int64_t row, int64_t column, const int size, window *found)
{
    const winograd_images cells = pooled(images), *read = source->where ? &cells : images;
    const uint32_t all = (1u << size) - 1;
    const reading how = row & 1 ? POOLED_ODD : POOLED;
    if (source->where) {
        row >>= 1;
        column >>= 1;
    }
    const int64_t offset = offset_of(read, image, plane, row, column);
    bf16 = bf16 && !source->where;
    *found = (window){.from = address_of(source->values, offset, bf16),
                      .where = source->where ? source->where + offset : NULL,
                      .stride = read->width * LANES,
                      .rows = bits_inside(row, read->height),
                      .columns = bits_inside(column, read->width)};
    if (source->where)
        return how;
    const bool inside = (found->rows & found->columns & all) == all;
    return bf16 ? (inside ? INSIDE_BF16 : BORDER_BF16) : inside ? INSIDE : BORDER;
}

/* What is read in place of rows outside. */
static const float outside[WINDOW * LANES];

/* Where the rows of a window begin. They are found before numbers are read: a branch for each number would often be mispredicted. */
typedef struct window_rows {
    const void *from[WINDOW];
    const uint8_t *where[WINDOW];
} window_rows;

/* Of `count` numbers, a constant, in each column. */
INLINE window_rows find_rows(const window *w, const reading how, const int count)
{
    const bool bf16 = how == INSIDE_BF16 || how == BORDER_BF16, always = how == INSIDE || how == INSIDE_BF16;
    const int most = how == POOLED ? count / 2 : how == POOLED_ODD ? count / 2 + 1 : count;
    window_rows rows = {0};
#pragma GCC unroll 6
    for (int i = 0; i < most; i++) {
        const bool in = always || (w->rows >> i & 1);
        rows.from[i] = in ? address_of(w->from, i * w->stride, bf16) : outside;
        if (how == POOLED || how == POOLED_ODD)
            rows.where[i] = in ? w->where + i * w->stride : (const uint8_t *)outside;
    }
    return rows;
}

/* The first `count` numbers of column j. */
INLINE void read_column(const window *w, const window_rows *rows, int j, const reading how, const int count,
                        vector to[WINDOW])
{
    const bool cells = how == POOLED || how == POOLED_ODD;
    const int odd = how == POOLED_ODD, column = cells ? (j + odd) / 2 : j;
    if (how != INSIDE && how != INSIDE_BF16 && !(w->columns >> column & 1)) {
#pragma GCC unroll 6
        for (int i = 0; i < count; i++)
            to[i] = (vector){0};
        return;
    }
#pragma GCC unroll 6
    for (int i = 0; i < count; i++) {
        const int row = cells ? (i + odd) / 2 : i;
        if (how == INSIDE_BF16 || how == BORDER_BF16) {
            to[i] = load_bf16_part((const uint16_t *)rows->from[row] + column * LANES, LANES);
            continue;
        }
        to[i] = load((const float *)rows->from[row] + column * LANES);
        if (cells) {
            const vector_mask where = load_bytes_part(rows->where[row] + column * LANES, LANES);
            to[i] = (vector)((where == (i + odd) % 2 * 2 + (j + odd) % 2) & (vector_mask)to[i]);
        }
    }
}

/* 6×6 inputs, transformed, to to[point * stride]. */
INLINE void transform_window(const window *w, const reading how, float *to, int64_t stride)
{
    const window_rows rows = find_rows(w, how, WINDOW);
    vector half[WINDOW][WINDOW];
#pragma GCC unroll 6
    for (int j = 0; j < WINDOW; j++) {
        vector line[WINDOW];
        read_column(w, &rows, j, how, WINDOW, line);
        transform_inputs(line);
        for (int i = 0; i < WINDOW; i++)
            half[i][j] = line[i];
    }
    for (int i = 0; i < WINDOW; i++) {
        vector line[WINDOW];
        for (int j = 0; j < WINDOW; j++)
            line[j] = half[i][j];
        transform_inputs(line);
        for (int j = 0; j < WINDOW; j++)
            store(to + (i * WINDOW + j) * stride, line[j]);
    }
}

/* The inputs of LANES planes, from `plane` on, of the tile at `at`, transformed, to to[point * stride]. */
static inline void transform_tile_inputs(const winograd_correlation *c, const winograd_source *source, const place *at,
                                         int64_t plane, float *to, int64_t stride)
{
    window w;
    const reading how = find_window(&c->in, source, c->bf16, at->image, plane, at->row + c->begin_row,
                                    at->column + c->begin_column, WINDOW, &w);
    switch (how) {
    case INSIDE: transform_window(&w, INSIDE, to, stride); break;
    case BORDER: transform_window(&w, BORDER, to, stride); break;
    case INSIDE_BF16: transform_window(&w, INSIDE_BF16, to, stride); break;
    case BORDER_BF16: transform_window(&w, BORDER_BF16, to, stride); break;
    case POOLED: transform_window(&w, POOLED, to, stride); break;
    case POOLED_ODD: transform_window(&w, POOLED_ODD, to, stride); break;
    }
}

#endif
