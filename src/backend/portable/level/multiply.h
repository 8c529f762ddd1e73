/* Products of matrices, a block of c in registers at a time.
 *
 * A block is a few rows by up to PANEL_VECTORS vectors: as many accumulators as registers allow, so
 * that each vector of b that is loaded serves all rows and each element of a all vectors. */
#include "backend/portable/level/level.h"
#include "backend/vector/vector.h"

#if VECTOR_BYTES == 64 /* 32 registers */
enum { PANEL_VECTORS = 4, ROWS_OF_1 = 12, ROWS_OF_2 = 12, ROWS_OF_3 = 8, ROWS_OF_4 = 6, DOT_ROWS = 4, DOT_COLUMNS = 6 };
#else /* 16 */
enum { PANEL_VECTORS = 2, ROWS_OF_1 = 8, ROWS_OF_2 = 6, DOT_ROWS = 3, DOT_COLUMNS = 4 };
#endif

enum { PANEL_COLUMNS = PANEL_VECTORS * LANES, MAX_ROWS = 12 };

INLINE void store_rows(const portable_product *p, const vector *results, float *const *c, int64_t column, int rows,
                       int vectors, const bool whole)
{
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) {
            const int64_t count = whole ? LANES : p->columns - column - v * LANES;
            float *to = c[r] + column + v * LANES;
            vector result = results[r * vectors + v];
            if (p->accumulate)
                result += load_part(to, count);
            if (p->bias)
                result += load_part(p->bias + column + v * LANES, count);
            if (p->relu)
                result = cut_negative(result);
            store_part(to, result, count);
        }
}

static __attribute__((noinline)) void store_block(const portable_product *p, const vector *results, float *const *c,
                                                  int64_t column, int rows, int vectors)
{
    if (p->columns - column < vectors * LANES) {
        store_rows(p, results, c, column, rows, vectors, false);
    } else if (p->accumulate || p->bias || p->relu) {
        store_rows(p, results, c, column, rows, vectors, true);
    } else {
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vectors; v++)
                store(c[r] + column + v * LANES, results[r * vectors + v]);
    }
}

/* One block: `rows` of the `made_rows` that are computed exist. */
INLINE void multiply_block(const portable_product *p, const float *const *a, const float *b, float *const *c,
                           int64_t column, int rows, const int made_rows, const int vectors)
{
    vector sums[MAX_ROWS][PANEL_VECTORS];
    const int64_t a_step = p->a_step, b_step = p->b_step;
#pragma GCC unroll 16
    for (int r = 0; r < made_rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            sums[r][v] = (vector){0};
    for (int64_t s = 0; s < p->segment_count; s++) {
        int64_t at = p->segments[s].offset;
        for (int64_t k = p->segments[s].length; k > 0; k--) {
            vector row_of_b[PANEL_VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                row_of_b[v] = load(b + v * LANES);
#pragma GCC unroll 16
            for (int r = 0; r < made_rows; r++)
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++)
                    sums[r][v] += a[r][at] * row_of_b[v];
            at += a_step;
            b += b_step;
        }
    }
    vector results[MAX_ROWS * PANEL_VECTORS]; /* so that the sums themselves need no address */
#pragma GCC unroll 16
    for (int r = 0; r < made_rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            results[r * vectors + v] = sums[r][v];
    store_block(p, results, c, column, rows, vectors);
}

/* Where rows begin, one after the other. */
typedef struct row_cursor {
    int64_t line, row; /* of the next one */
} row_cursor;

INLINE int next_rows(const portable_product *p, row_cursor *at, int64_t left, int wanted, const float **a, float **c)
{
    const int count = left < wanted ? (int)left : wanted;
    for (int r = 0; r < count; r++) {
        a[r] = p->a + at->line * p->a_rows.line_step + at->row * p->a_rows.row_step;
        c[r] = p->c + at->line * p->c_rows.line_step + at->row * p->c_rows.row_step;
        if (++at->row == p->a_rows.line) {
            at->row = 0;
            at->line++;
        }
    }
    for (int r = count; r < wanted; r++) /* computed with the block, and not stored */
        a[r] = a[0];
    return count;
}

INLINE void multiply_panel(const portable_product *p, const float *b, int64_t column, const int made_rows,
                           const int vectors)
{
    row_cursor at = {0};
    for (int64_t left = p->rows; left > 0;) {
        const float *a[MAX_ROWS];
        float *c[MAX_ROWS];
        const int half = made_rows / 2, wanted = left <= half ? half : made_rows;
        const int count = next_rows(p, &at, left, wanted, a, c);
        if (wanted == half)
            multiply_block(p, a, b, c, column, count, half, vectors);
        else
            multiply_block(p, a, b, c, column, count, made_rows, vectors);
        left -= count;
    }
}

static void multiply(const portable_product *p)
{
    const float *b = p->b;
    for (int64_t column = 0; column < p->columns; column += PANEL_COLUMNS, b += p->b_panel) {
        const int64_t vectors = (p->columns - column + LANES - 1) / LANES;
        if (vectors == 1)
            multiply_panel(p, b, column, ROWS_OF_1, 1);
#if VECTOR_BYTES == 64
        else if (vectors == 2)
            multiply_panel(p, b, column, ROWS_OF_2, 2);
        else if (vectors == 3)
            multiply_panel(p, b, column, ROWS_OF_3, 3);
        else
            multiply_panel(p, b, column, ROWS_OF_4, 4);
#else
        else
            multiply_panel(p, b, column, ROWS_OF_2, 2);
#endif
    }
}

static void pack(const float *b, int64_t rows, int64_t columns, int64_t step, float *panels)
{
    for (int64_t column = 0; column < columns; column += PANEL_COLUMNS)
        for (int64_t r = 0; r < rows; r++, panels += PANEL_COLUMNS)
            for (int v = 0; v < PANEL_VECTORS; v++) {
                const int64_t left = columns - column - v * LANES;
                store(panels + v * LANES, left > 0 ? load_part(b + r * step + column + v * LANES, left) : (vector){0});
            }
}

/* ---- b transposed: sums run along the rows of both ---- */

/* Elements of a sum that are taken at a time, so that the rows of b stay in the first cache while
 * all of a passes. */
enum { DOT_LENGTH = 1024 };

INLINE void dot_block(const float *a, const float *b, int64_t stride, int64_t length, const int rows, const int columns,
                      float *c, int64_t c_stride)
{
    vector sums[DOT_ROWS][DOT_COLUMNS];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 6
        for (int j = 0; j < columns; j++)
            sums[i][j] = (vector){0};
    for (int64_t k = 0; k + LANES <= length; k += LANES) {
        vector of_a[DOT_ROWS];
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
            of_a[i] = load(a + i * stride + k);
#pragma GCC unroll 6
        for (int j = 0; j < columns; j++) {
            const vector of_b = load(b + j * stride + k);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++)
                sums[i][j] += of_a[i] * of_b;
        }
    }
    const int64_t done = length / LANES * LANES;
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 6
        for (int j = 0; j < columns; j++) {
            float sum = sum_lanes(sums[i][j]);
            for (int64_t k = done; k < length; k++)
                sum += a[i * stride + k] * b[j * stride + k];
            c[i * c_stride + j] += sum;
        }
}

static void multiply_transposed(const float *a, const float *b, const float *bias, int64_t rows, int64_t columns,
                                int64_t length, bool relu, float *c)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            c[i * columns + j] = bias ? bias[j] : 0;
    for (int64_t k = 0; k < length; k += DOT_LENGTH) {
        const int64_t part = length - k < DOT_LENGTH ? length - k : DOT_LENGTH;
        int64_t j = 0;
        for (; j + DOT_COLUMNS <= columns; j += DOT_COLUMNS) {
            int64_t i = 0;
            for (; i + DOT_ROWS <= rows; i += DOT_ROWS)
                dot_block(a + i * length + k, b + j * length + k, length, part, DOT_ROWS, DOT_COLUMNS,
                          c + i * columns + j, columns);
            for (; i < rows; i++)
                dot_block(a + i * length + k, b + j * length + k, length, part, 1, DOT_COLUMNS, c + i * columns + j,
                          columns);
        }
        for (; j < columns; j++) {
            int64_t i = 0;
            for (; i + DOT_ROWS <= rows; i += DOT_ROWS)
                dot_block(a + i * length + k, b + j * length + k, length, part, DOT_ROWS, 1, c + i * columns + j,
                          columns);
            for (; i < rows; i++)
                dot_block(a + i * length + k, b + j * length + k, length, part, 1, 1, c + i * columns + j, columns);
        }
    }
    for (int64_t i = 0; relu && i < rows * columns; i++)
        c[i] = c[i] < 0 ? 0 : c[i];
}
