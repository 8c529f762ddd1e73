/* What the Winograd kernels share: the points, the transforms of lines, tiles and how they are
 * read. See winograd_correlate.c.
 *
 * If a side of a map is not a multiple of 4, its last tiles have 1 to 3 outputs along that side. N
 * outputs need only N + 2 of the six points: 0, the finite ones up to point N, and infinity
 * (needs_point()). Leaving out the others saves a sixth of the products of 7×7 and 14×14 maps; on
 * one Zen 4 core their passes take 6 to 12 % less time. The weights at the remaining points are
 * those of whole tiles, factor() included. The transform of the inputs makes up for what the factor
 * would be with fewer points. */
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

/* Whether a line of so many outputs needs a point. */
INLINE bool needs_point(int outputs, int point)
{
    return point <= 1 || point <= outputs || point == WINDOW - 1;
}

/* transform_inputs() for fewer outputs than TILE: outputs + 2 inputs, at the points they need. Each
 * row is the polynomial that vanishes at the other remaining points, times the distances from its
 * own point to those left out. */
INLINE void transform_end_inputs(int outputs, vector d[WINDOW])
{
    const vector d1 = d[1], d2 = d[2], d3 = d[3];
    if (outputs == 3) { /* without -B */
        d[0] = times_plus(A2 * B2, d[0], times_plus(-A2 * B, d1, times_plus(-B2, d2, B * d3)));
        d[1] = (A + B) * times_plus(-A * B, d1, times_plus(A - B, d2, d3));
        d[2] = (B - A) * times_plus(A * B, d1, times_plus(-A - B, d2, d3));
        d[3] = 2 * B * times_plus(-A2, d1, d3);
        d[5] = times_plus(A2 * B, d1, times_plus(-A2, d2, times_plus(-B, d3, d[4])));
    } else if (outputs == 2) { /* without B and -B */
        d[0] = times_plus(A2 * B2, d[0], -B2 * d2);
        d[1] = (A2 - B2) * times_plus(A, d1, d2);
        d[2] = (A2 - B2) * times_plus(-A, d1, d2);
        d[5] = times_plus(-A2, d1, d3);
    } else { /* without -A, B and -B */
        d[0] = times_plus(A2 * B2, d[0], -A * B2 * d1);
        d[1] = 2 * A * (A2 - B2) * d1;
        d[5] = times_plus(-A, d1, d2);
    }
}

/* A line of inputs for any number of outputs. */
INLINE void transform_input_line(int outputs, vector d[WINDOW])
{
    if (outputs == TILE)
        transform_inputs(d);
    else
        transform_end_inputs(outputs, d);
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

/* The same for `outputs` numbers followed by zeros. */
INLINE void evaluate_output_line(int outputs, const vector g[TILE], vector at[WINDOW])
{
    evaluate_four(g, at);
    if (outputs == 3)
        at[5] = g[2];
    else if (outputs == 2)
        at[5] = g[1];
    else if (outputs == 1)
        at[5] = g[0];
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

/* 1 / product of the distances from point i to the other finite ones: the weights, or sums of
 * products, are multiplied by it. */
INLINE float factor(int i)
{
    return i == 0 ? 1 / (A2 * B2) : i <= 2 ? 1 / (2 * A2 * (A2 - B2)) : i <= 4 ? 1 / (2 * B2 * (B2 - A2)) : 1;
}

/* From the products at six points to so many outputs. Products at points they do not need must be
 * 0. */
INLINE void transform_products(const vector m[WINDOW], const int outputs, vector y[TILE])
{
    const vector sum_a = m[1] + m[2], sum_b = m[3] + m[4];
    const vector difference_a = m[1] - m[2], difference_b = m[3] - m[4];
    y[0] = m[0] + (sum_a + sum_b);
    y[1] = times_plus(A, difference_a, B * difference_b);
    y[2] = times_plus(A2, sum_a, B2 * sum_b);
    y[3] = (vector){0};
    if (outputs == TILE)
        y[3] = times_plus(A2 * A, difference_a, times_plus(B2 * B, difference_b, m[5]));
    else if (outputs == 3)
        y[2] += m[5];
    else if (outputs == 2)
        y[1] += m[5];
    else
        y[0] += m[5];
}

/* ---- tiles ---- */

/* The tiles that cover a map of outputs. Those in the last row and column have 1 to TILE outputs a
 * side. */
typedef struct tiling {
    int64_t rows, columns, count;
    int last_rows, last_columns;
} tiling;

static inline tiling tile_up(const winograd_images *out)
{
    tiling t = {.rows = (out->height + TILE - 1) / TILE, .columns = (out->width + TILE - 1) / TILE};
    t.count = out->batch * t.rows * t.columns;
    t.last_rows = (int)(out->height - (t.rows - 1) * TILE);
    t.last_columns = (int)(out->width - (t.columns - 1) * TILE);
    return t;
}

/* Points fall into four classes by which tiles have products there: all tiles, or all but those
 * with fewer than TILE outputs in a row (ENDS_OF_ROWS), in a column (ENDS_OF_COLUMNS), or in
 * either. */
enum { ENDS_OF_ROWS = 1, ENDS_OF_COLUMNS = 2, CLASSES = 4 };

/* The class of point (i, j); 0 if `map` is NULL, which means that all tiles have TILE × TILE
 * outputs. */
INLINE int class_of(const tiling *map, int i, int j)
{
    if (!map)
        return 0;
    return (needs_point(map->last_columns, j) ? 0 : ENDS_OF_ROWS) |
           (needs_point(map->last_rows, i) ? 0 : ENDS_OF_COLUMNS);
}

/* The map if its tiles have different sizes, else NULL. */
INLINE const tiling *uneven(const tiling *map)
{
    return map->last_rows == TILE && map->last_columns == TILE ? NULL : map;
}

INLINE int count_classes(const tiling *map)
{
    return uneven(map) ? CLASSES : 1;
}

/* A tile of a group. */
typedef struct place {
    int64_t image, row, column; /* of its first output */
    int rows, columns;          /* of outputs */
    int16_t number[CLASSES];    /* its index among the group's tiles that have products at points of a class */
} place;

INLINE place place_of(const tiling *tiles, int64_t tile)
{
    const int64_t each = tiles->rows * tiles->columns, i = tile % each / tiles->columns, j = tile % tiles->columns;
    return (place){.image = tile / each,
                   .row = i * TILE,
                   .column = j * TILE,
                   .rows = i + 1 < tiles->rows ? TILE : tiles->last_rows,
                   .columns = j + 1 < tiles->columns ? TILE : tiles->last_columns};
}

/* The outputs of a tile, and the map for class_of(). Constant where inlined, except for tiles with
 * fewer outputs. */
typedef struct tile_size {
    int rows, columns; /* of outputs */
    const tiling *map; /* NULL if all of its tiles are whole */
} tile_size;

INLINE bool is_whole(const place *at)
{
    return at->rows == TILE && at->columns == TILE;
}

/* Calls function(..., size) with the size of the tile at `at` of a map. */
#define CALL_WITH_SIZE(map, at, function, ...)                                                                         \
    do {                                                                                                               \
        if (!uneven(map))                                                                                              \
            function(__VA_ARGS__, (tile_size){TILE, TILE, NULL});                                                      \
        else if (is_whole(at))                                                                                         \
            function(__VA_ARGS__, (tile_size){TILE, TILE, map});                                                       \
        else                                                                                                           \
            function(__VA_ARGS__, (tile_size){(at)->rows, (at)->columns, map});                                        \
    } while (0)

/* Numbers the next tile of a group. `counts` is the number of tiles so far. */
INLINE void number_tile(const tiling *map, place *at, int64_t counts[CLASSES])
{
    for (int which = 0; which < count_classes(map); which++) {
        const bool dropped =
            (which & ENDS_OF_ROWS && at->columns < TILE) || (which & ENDS_OF_COLUMNS && at->rows < TILE);
        at->number[which] = (int16_t)counts[which];
        counts[which] += !dropped;
    }
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

/* A part of LANES planes of an image: rows and columns outside the image read as zeros. If the
 * image is known by its gradient after max pooling, what is described here is the part of that. */
typedef struct window {
    const void *from;       /* its first number, perhaps outside */
    const uint8_t *where;   /* as winograd_source says */
    int64_t stride;         /* numbers in a row of the image */
    uint32_t rows, columns; /* bits: those inside */
} window;

/* How a window can be read: a constant where it is inlined. ODD: it begins within the cells of the
 * pooling. */
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

/* Where the rows of a window begin. They are found before numbers are read: a branch for each
 * number would often be mispredicted. */
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

/* Transforms the inputs of a tile; point (i, j) goes to to[its class] + (i * WINDOW + j) *
 * stride. */
INLINE void transform_window(const window *w, const reading how, float *const to[CLASSES], int64_t stride,
                             const tile_size size)
{
    const window_rows rows = find_rows(w, how, WINDOW);
    float *const targets[CLASSES] = {to[0], to[1], to[2], to[3]}; /* a copy that stores cannot alias */
    vector half[WINDOW][WINDOW];
#pragma GCC unroll 6
    for (int j = 0; j < WINDOW; j++) {
        vector line[WINDOW] = {{0}};
        if (j < size.columns + 2)
            read_column(w, &rows, j, how, WINDOW, line);
        transform_input_line(size.rows, line);
        for (int i = 0; i < WINDOW; i++)
            half[i][j] = line[i];
    }
    for (int i = 0; i < WINDOW; i++) {
        vector line[WINDOW];
        if (!needs_point(size.rows, i))
            continue;
        for (int j = 0; j < WINDOW; j++)
            line[j] = half[i][j];
        transform_input_line(size.columns, line);
        for (int j = 0; j < WINDOW; j++) {
            if (needs_point(size.columns, j))
                store(targets[class_of(size.map, i, j)] + (i * WINDOW + j) * stride, line[j]);
        }
    }
}

INLINE void transform_any_window(const window *w, reading how, float *const to[CLASSES], int64_t stride,
                                 const tile_size size)
{
    switch (how) {
    case INSIDE: transform_window(w, INSIDE, to, stride, size); break;
    case BORDER: transform_window(w, BORDER, to, stride, size); break;
    case INSIDE_BF16: transform_window(w, INSIDE_BF16, to, stride, size); break;
    case BORDER_BF16: transform_window(w, BORDER_BF16, to, stride, size); break;
    case POOLED: transform_window(w, POOLED, to, stride, size); break;
    case POOLED_ODD: transform_window(w, POOLED_ODD, to, stride, size); break;
    }
}

/* The inputs of LANES planes, from `plane` on, of one tile. */
static inline void transform_tile_inputs(const winograd_correlation *c, const winograd_source *source,
                                         const tiling *map, const place *at, int64_t plane, float *const to[CLASSES],
                                         int64_t stride)
{
    window w;
    const reading how = find_window(&c->in, source, c->bf16, at->image, plane, at->row + c->begin_row,
                                    at->column + c->begin_column, WINDOW, &w);
    CALL_WITH_SIZE(map, at, transform_any_window, &w, how, to, stride);
}

#endif
