/* Shared by the kernels for 3×3 convolutions with stride 2: the method, and its transforms of lines
 * and tiles.
 *
 * Along one axis, such a convolution is the sum of two with stride 1: every second input with the
 * outer taps, and the inputs between them with the middle tap. Four outputs of the former take 5
 * products by Winograd's method, F(4, 2), at the points ±a, ±b and infinity, and those of the
 * latter take 4: 9 instead of 12. Three outputs take 4, without infinity, and 3: 7 instead of 9. In
 * two dimensions both axes are treated so, and 4×4 outputs take 81 products instead of 144. The
 * gradients are the same sums in reverse.
 *
 * So a line of 9 entries stands for four outputs: 5 points, and 4 places where the middle tap is
 * multiplied directly. A tile has 9×9 entries. All places share the same weights, so the
 * transformed weights are 6×6 matrices: an entry's `point` is its own number, or 5 for a place.
 * Everything multiplied by one matrix forms the rows of one product: one per tile where both
 * coordinates are points, as many as the tile has outputs where both are places. A tile has 4 or 3
 * rows and columns of outputs, whichever divides the map best (7 = 4 + 3), or fewer where neither
 * does.
 *
 * Of the points with few digits, 7/16 and 11/8 keep the sums smallest. With 0, ±1, 1/2 and
 * infinity, errors are twice as large. */
#ifndef FTH_BACKEND_CPU_LEVEL_STRIDED_TILE_H
#define FTH_BACKEND_CPU_LEVEL_STRIDED_TILE_H

#include "backend/cpu/blocked_kernels.h"
#include "backend/cpu/level/winograd_tile.h"

/* Entries of a line: points before PLACE, then places. */
enum { LINE = 9, PLACE = 5, INFINITE = 4, ENTRIES = LINE * LINE };

#define P  0.4375F
#define Q  1.375F
#define P2 (P * P)
#define Q2 (Q * Q)

/* ---- the transforms of one line ---- */

/* Whether a line of `outputs` outputs has this entry. */
INLINE bool has_entry(int outputs, int entry)
{
    return entry >= PLACE ? entry - PLACE < outputs : entry != INFINITE || outputs == TILE;
}

INLINE int point_of(int entry)
{
    return entry < PLACE ? entry : PLACE;
}

/* Transforms five inputs of two taps to the points. The last input affects only infinity. */
INLINE void transform_pairs(const vector d[5], vector to[PLACE])
{
    const vector even_p = (1 / (2 * (P2 - Q2))) * times_plus(-Q2, d[0], d[2]);
    const vector even_q = (1 / (2 * (Q2 - P2))) * times_plus(-P2, d[0], d[2]);
    const vector odd_p = times_plus(-Q2, d[1], d[3]), odd_q = times_plus(-P2, d[1], d[3]);
    to[0] = times_plus(1 / (2 * P * (P2 - Q2)), odd_p, even_p);
    to[1] = times_plus(-1 / (2 * P * (P2 - Q2)), odd_p, even_p);
    to[2] = times_plus(1 / (2 * Q * (Q2 - P2)), odd_q, even_q);
    to[3] = times_plus(-1 / (2 * Q * (Q2 - P2)), odd_q, even_q);
    to[INFINITE] = times_plus(P2 * Q2, d[0], times_plus(-(P2 + Q2), d[2], d[4]));
}

/* Evaluates three numbers of a kernel at the points. */
INLINE void evaluate_taps(const vector g[3], vector to[WINDOW])
{
    to[0] = times_plus(P, g[2], g[0]);
    to[1] = times_plus(-P, g[2], g[0]);
    to[2] = times_plus(Q, g[2], g[0]);
    to[3] = times_plus(-Q, g[2], g[0]);
    to[INFINITE] = g[2];
    to[PLACE] = g[1];
}

/* The reverse: transforms sums of products to three numbers of a kernel's gradient. */
INLINE void transform_taps(const vector m[WINDOW], vector to[3])
{
    to[0] = (m[0] + m[1]) + (m[2] + m[3]);
    to[1] = m[PLACE];
    to[2] = times_plus(P, m[0] - m[1], times_plus(Q, m[2] - m[3], m[INFINITE]));
}

/* Evaluates the gradients of four outputs at the points. */
INLINE void evaluate_outputs(const vector d[TILE], vector to[PLACE])
{
    const vector even_p = times_plus(P2, d[2], d[0]), odd_p = times_plus(P2, d[3], d[1]);
    const vector even_q = times_plus(Q2, d[2], d[0]), odd_q = times_plus(Q2, d[3], d[1]);
    to[0] = times_plus(P, odd_p, even_p);
    to[1] = times_plus(-P, odd_p, even_p);
    to[2] = times_plus(Q, odd_q, even_q);
    to[3] = times_plus(-Q, odd_q, even_q);
    to[INFINITE] = d[3];
}

/* Transforms the points to four sums of two taps. Infinity affects only the last. */
INLINE void transform_points(const vector m[PLACE], vector to[TILE])
{
    const vector sum_p = m[0] + m[1], difference_p = m[0] - m[1];
    const vector sum_q = m[2] + m[3], difference_q = m[2] - m[3];
    to[0] = sum_p + sum_q;
    to[1] = times_plus(P, difference_p, Q * difference_q);
    to[2] = times_plus(P2, sum_p, Q2 * sum_q);
    to[3] = times_plus(P2 * P, difference_p, times_plus(Q2 * Q, difference_q, m[INFINITE]));
}

/* What a transform reads: inputs, or gradients of outputs on the way to those of the inputs
 * (GRADIENTS) or of the weights (FACTORS). */
typedef enum role { INPUTS, GRADIENTS, FACTORS } role;

/* How many numbers a line of `outputs` outputs reads. */
INLINE int line_inputs(const role of, int outputs)
{
    return of == INPUTS ? 2 * outputs + 1 : of == GRADIENTS ? outputs + 1 : outputs;
}

/* Transforms the numbers of a line, followed by zeros, to its entries. */
INLINE void transform_line(const role of, const vector d[LINE], vector to[LINE])
{
    if (of == INPUTS)
        transform_pairs((const vector[5]){d[0], d[2], d[4], d[6], d[8]}, to);
    else if (of == GRADIENTS)
        transform_pairs(d, to);
    else
        evaluate_outputs(d, to);
    for (int i = 0; i < TILE; i++)
        to[PLACE + i] = d[of == INPUTS ? 2 * i + 1 : i];
}

/* ---- tiles ---- */

/* Output (i, j) sums x (2i + row - padding[0], 2j + column - padding[1]) over the kernel's rows and
 * columns. */
typedef struct strided_convolution {
    winograd_images x, y;
    int64_t padding[2]; /* at the top and at the left */
    bool relu, bf16;
} strided_convolution;

static inline strided_convolution describe_strided(const blocked_convolution *c)
{
    return (strided_convolution){.x = {c->batch, c->channels, c->height, c->width},
                                 .y = {c->batch, c->outputs, c->out_height, c->out_width},
                                 .padding = {c->padding[0], c->padding[1]},
                                 .relu = c->relu,
                                 .bf16 = c->bf16};
}

/* How tiles cover the outputs, or the inputs' gradients in pairs of rows and columns, which begin
 * at `first`. */
typedef struct strided_tiling {
    int64_t lines[2], first[2]; /* outputs or pairs along each axis */
    int64_t tiles[2];
    int64_t count;
} strided_tiling;

typedef struct strided_tile {
    int64_t image, begin[2];
    int lines[2];
} strided_tile;

static inline void count_tiles(strided_tiling *t, int64_t batch)
{
    for (int side = 0; side < 2; side++)
        t->tiles[side] = (t->lines[side] + TILE - 1) / TILE;
    t->count = batch * t->tiles[0] * t->tiles[1];
}

/* A tiling of the outputs. */
static inline strided_tiling tile_outputs(const strided_convolution *c)
{
    strided_tiling t = {.lines = {c->y.height, c->y.width}};
    count_tiles(&t, c->y.batch);
    return t;
}

/* A tiling of the inputs. Pair i consists of input 2i + 1 - padding, which output i reaches by the
 * middle tap, and the next one, which outputs i and i + 1 reach by the outer taps. */
static inline strided_tiling tile_inputs(const strided_convolution *c)
{
    strided_tiling t = {0};
    for (int side = 0; side < 2; side++) {
        const int64_t padding = c->padding[side], size = side == 0 ? c->x.height : c->x.width;
        t.first[side] = padding == 0 ? -1 : (padding - 1) / 2;
        t.lines[side] = (size + padding - 2 * t.first[side]) / 2;
    }
    count_tiles(&t, c->x.batch);
    return t;
}

static inline strided_tile tile_at(const strided_tiling *t, int64_t number)
{
    const int64_t each = t->tiles[0] * t->tiles[1], index[2] = {number % each / t->tiles[1], number % t->tiles[1]};
    strided_tile tile = {.image = number / each};
    for (int side = 0; side < 2; side++) {
        const share lines = share_of(t->lines[side], index[side], t->tiles[side]);
        tile.begin[side] = t->first[side] + lines.begin;
        tile.lines[side] = (int)(lines.end - lines.begin);
    }
    return tile;
}

/* ---- groups of tiles ---- */

/* Counts the rows of the products. Entries are of three kinds, by how many rows they give: finite
 * points, infinity, and places. */
typedef struct row_counts {
    int64_t of[3][3];
} row_counts;

INLINE int kind_of(int entry)
{
    return entry >= PLACE ? 2 : entry == INFINITE;
}

INLINE int64_t count_lines(int kind, int outputs)
{
    return kind == 2 ? outputs : kind == 1 ? outputs == TILE : 1;
}

INLINE int64_t rows_of(const row_counts *counts, int point)
{
    return counts->of[kind_of(point / WINDOW)][kind_of(point % WINDOW)];
}

/* Adds a tile, and sets `rows` to the rows of its entries, as far as it has them. */
static inline void add_tile(row_counts *counts, const strided_tile *tile, int32_t rows[ENTRIES])
{
    for (int i = 0; i < LINE; i++) {
        for (int j = 0; j < LINE; j++) {
            const int64_t columns = count_lines(kind_of(j), tile->lines[1]);
            const int64_t before = (i < PLACE ? 0 : i - PLACE) * columns + (j < PLACE ? 0 : j - PLACE);
            rows[i * LINE + j] = (int32_t)(counts->of[kind_of(i)][kind_of(j)] + before);
        }
    }
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++)
            counts->of[i][j] += count_lines(i, tile->lines[0]) * count_lines(j, tile->lines[1]);
    }
}

/* ---- reading ---- */

/* The addresses of a tile's entries: at[entry] * width floats after the first row of their
 * point. */
typedef struct entries {
    float *points[POINTS];
    const int32_t *at;
    int64_t width;
} entries;

INLINE float *entry_at(const entries *e, int i, int j)
{
    return e->points[point_of(i) * WINDOW + point_of(j)] + e->at[i * LINE + j] * e->width;
}

/* Reads `count` numbers of a row of pixels from `offset` on; numbers outside [begin, end) are
 * zeros. */
INLINE void read_line(const void *images, int64_t offset, int begin, int end, const bool bf16, const int count,
                      vector d[LINE])
{
    if (begin == 0 && end == count) {
        for (int j = 0; j < count; j++)
            d[j] = load_stored(&(stored){images, bf16}, offset + j * LANES);
        return;
    }
    for (int j = 0; j < count; j++) {
        const bool in = j >= begin && j < end;
        d[j] = load_stored(&(stored){in ? images : outside, bf16}, in ? offset + j * LANES : 0);
    }
}

/* Which of `count` numbers from `first` on are within [0, size). */
INLINE share numbers_inside(int64_t first, int count, int64_t size)
{
    const int64_t end = size - first;
    return (share){first < 0 ? -first : 0, end < count ? end : count};
}

/* Transforms LANES planes of a tile, from `plane` on, to its entries. Its first number is at (row,
 * column). Returns the sum of the numbers read, for FACTORS. */
INLINE vector transform_entries(const role of, const bool bf16, const winograd_images *images, const void *numbers,
                                const strided_tile *tile, int64_t plane, int64_t row, int64_t column, const entries *to)
{
    const int most = line_inputs(of, TILE);
    const int rows = line_inputs(of, tile->lines[0]), columns = line_inputs(of, tile->lines[1]);
    const share in_rows = numbers_inside(row, rows, images->height),
                in_columns = numbers_inside(column, columns, images->width);
    vector half[LINE][LINE], sum = {0};
    for (int i = 0; i < most; i++) {
        if (i < in_rows.begin || i >= in_rows.end) {
            for (int j = 0; j < LINE; j++)
                half[i][j] = (vector){0};
            continue;
        }
        vector d[LINE];
        read_line(numbers, offset_of(images, tile->image, plane, row + i, column), (int)in_columns.begin,
                  (int)in_columns.end, bf16, most, d);
        for (int j = 0; of == FACTORS && j < most; j++)
            sum += d[j];
        transform_line(of, d, half[i]);
    }
    for (int j = 0; j < LINE; j++) {
        if (!has_entry(tile->lines[1], j))
            continue;
        vector d[LINE], line[LINE];
        for (int i = 0; i < most; i++)
            d[i] = half[i][j];
        transform_line(of, d, line);
#pragma GCC unroll 9
        for (int i = 0; i < LINE; i++) {
            if (has_entry(tile->lines[0], i))
                store(entry_at(to, i, j), line[i]);
        }
    }
    return sum;
}

/* ---- prefetching ---- */

/* Squares that cover a tile, at most. */
enum { MOST_SQUARES = 4 };

/* Adds the `squares` × `squares` squares of a tile from (row, column) on, or a little before to
 * stay within the image. Returns their new count. */
static inline int64_t add_squares(const winograd_images *images, const void *numbers, bool bf16, int64_t image,
                                  int64_t row, int64_t column, int squares, const float **to, int64_t count)
{
    const int64_t side = EXPECTED_SIDE * squares, last_row = images->height - side, last_column = images->width - side;
    row = row > last_row ? last_row : row;
    column = column > last_column ? last_column : column;
    for (int i = 0; i < squares * squares; i++) {
        const int64_t offset = offset_of(images, image, 0, (row < 0 ? 0 : row) + i / squares * EXPECTED_SIDE,
                                         (column < 0 ? 0 : column) + i % squares * EXPECTED_SIDE);
        to[count++] = address_of(numbers, offset, bf16);
    }
    return count;
}

/* Prefetches all of them in some of the planes, over `calls` calls of expect(). */
static inline expected expect_squares(const winograd_images *images, bool bf16, const float *const *squares,
                                      int64_t count, share planes, int64_t calls)
{
    const int64_t vectors = (planes.end - planes.begin) / LANES, plane = images->height * images->width;
    return (expected){.squares = squares,
                      .count = count,
                      .planes = count > 0 ? vectors : 0,
                      .plane = floats_of(plane * LANES, bf16),
                      .row = floats_of(images->width * LANES, bf16),
                      .width = floats_of(EXPECTED_SIDE * LANES, bf16),
                      .done = floats_of(plane * planes.begin, bf16),
                      .most = count * vectors / calls + 1};
}

#endif
