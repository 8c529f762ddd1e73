/* Products of packed matrices, m (rows, columns) = v (rows, depth) * u (depth, columns), blocked
 * for registers and caches.
 *
 * Registers hold ROWS rows of up to PANEL vectors of columns. u is stored in the order in which it
 * is read: blocks of `depth_block` rows, in panels of PANEL vectors. One panel of a block (up to 20
 * KB) stays in the L1 cache while all rows of v go past it, and the next one is prefetched
 * meanwhile. v is stored in groups of ROWS rows, m in panels; u_offset(), v_offset() and m_offset()
 * give the places of their elements. */
#ifndef FTH_BACKEND_CPU_LEVEL_PRODUCTS_H
#define FTH_BACKEND_CPU_LEVEL_PRODUCTS_H

#include "backend/cpu/level/expected.h"
#include "backend/vector/vector.h"

/* 16 registers hold 12 sums, 2 vectors of u and 1 number of v; 32 registers hold 24, 4 and 1. */
#if REGISTERS == 32
#define PANEL 4
#else
#define PANEL 2
#endif
enum { ROWS = 6, PANEL_COLUMNS = PANEL * LANES, MOST_DEPTH = 5120 / PANEL_COLUMNS };

/* How many rows of u ahead to prefetch, which matters for the first rows of v: 64 channels take 3 %
 * less time. */
enum { ROWS_AHEAD = 8 };

/* Rows of u whose products are summed up in registers before they are added to m. Rounding in these
 * sums is most of Winograd's error: 32 instead of 80 brings resnet18's gradients from 2.2 to 1.8
 * times the error of PyTorch's, and takes 1 to 2 % of the products' speed. */
enum { CHAIN_DEPTH = 32 };

typedef struct product_sizes {
    int64_t rows, depth, columns; /* multiples of ROWS, LANES and LANES */
} product_sizes;

/* Rows of u in a block; the last may have fewer. Blocks are of equal size, except for rounding up
 * to whole vectors. */
INLINE int64_t depth_block(int64_t depth)
{
    const int64_t blocks = (depth + MOST_DEPTH - 1) / MOST_DEPTH;
    return ((depth + blocks - 1) / blocks + LANES - 1) / LANES * LANES;
}

INLINE int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Columns of the panel that begins at column n. */
INLINE int64_t panel_columns(int64_t columns, int64_t n)
{
    return least(columns - n, PANEL_COLUMNS);
}

/* The offset of row k, column n, the first of a vector. */
INLINE int64_t u_offset(int64_t depth, int64_t columns, int64_t k, int64_t n)
{
    const int64_t most = depth_block(depth), first = k / most * most, panel = n / PANEL_COLUMNS * PANEL_COLUMNS;
    return first * columns + least(depth - first, most) * panel + (k - first) * panel_columns(columns, panel) + n -
           panel;
}

/* The offset of row t, column k, the first of a vector. */
INLINE int64_t v_offset(int64_t depth, int64_t t, int64_t k)
{
    return t / ROWS * ROWS * depth + k * ROWS + t % ROWS * LANES;
}

INLINE int64_t m_offset(int64_t rows, int64_t columns, int64_t t, int64_t n)
{
    const int64_t panel = n / PANEL_COLUMNS * PANEL_COLUMNS;
    return panel * rows + t * panel_columns(columns, panel) + n - panel;
}

/* R rows (a multiple of ROWS) of N vectors of columns, over `depth` rows of u; added to m unless
 * `first`. `group` is the distance between groups of rows in v. R, N and `first` are constants once
 * inlined. */
INLINE void multiply_registers(const float *v, int64_t group, const float *u, int64_t depth, float *m, const int R,
                               const int N, const int first)
{
    for (int64_t begin = 0; begin < depth; begin += CHAIN_DEPTH) {
        const int64_t end = least(begin + CHAIN_DEPTH, depth);
        vector sum[24];
#pragma GCC unroll 24
        for (int i = 0; i < R * N; i++) {
            sum[i] = (vector){0};
            if (!first && begin == 0 && LANES * 4 * (i + 1) % 64 == 0)
                __builtin_prefetch(m + i * LANES, 1, 3);
        }
        for (int64_t k = begin; k < end; k += LANES) {
#pragma GCC unroll 4
            for (int l = 0; l < LANES; l++) {
                vector w[PANEL];
#pragma GCC unroll 4
                for (int n = 0; n < N; n++) {
                    w[n] = load(u + n * LANES);
                    if (n * VECTOR_BYTES % 64 == 0)
                        __builtin_prefetch(u + (ROWS_AHEAD * N + n) * LANES, 0, 3);
                }
                u += N * LANES;
#pragma GCC unroll 12
                for (int r = 0; r < R; r++) {
                    const vector x = broadcast(v[r / ROWS * group + r % ROWS * LANES + l]);
#pragma GCC unroll 4
                    for (int n = 0; n < N; n++)
                        sum[r * N + n] = multiply_add(x, w[n], sum[r * N + n]);
                }
            }
            v += ROWS * LANES;
        }
#pragma GCC unroll 24
        for (int i = 0; i < R * N; i++)
            store(m + i * LANES, first && begin == 0 ? sum[i] : load(m + i * LANES) + sum[i]);
    }
}

/* What to prefetch meanwhile, once for every ROWS rows of a panel; each may be NULL. */
typedef struct expectations {
    expected *all[3];
} expectations;

/* All rows of one panel of N vectors of one block of u. With few columns, registers hold twice the
 * rows. */
INLINE void multiply_panel(const float *v, const float *u, float *m, int64_t rows, int64_t depth, int64_t block,
                           const expectations *soon, const int N, const int first)
{
    const int64_t group = ROWS * depth;
    const char *next = (const char *)(u + block * N * LANES);
    const int64_t bytes = block * N * VECTOR_BYTES, share = (bytes / rows + 63) / 64 * 64;
    int64_t prefetched = 0;
    for (int64_t t = 0, done; t < rows; t += done) {
        const bool twice = N <= PANEL / 2 && t + 2 * ROWS <= rows;
        done = twice ? 2 * ROWS : ROWS;
        for (const int64_t end = least(prefetched + done * share, bytes); prefetched < end; prefetched += 64)
            __builtin_prefetch(next + prefetched, 0, 2);
        for (int i = 0; i < 3; i++) {
            expect(soon->all[i]);
            if (twice)
                expect(soon->all[i]);
        }
        if (twice)
            multiply_registers(v + t * depth, group, u, block, m + t * N * LANES, 2 * ROWS, N, first);
        else
            multiply_registers(v + t * depth, group, u, block, m + t * N * LANES, ROWS, N, first);
    }
}

/* Computes columns [n_begin, n_end) of m: whole panels, of which the last may be narrower. */
static void multiply(const product_sizes *sizes, const float *v, const float *u, float *m, int64_t n_begin,
                     int64_t n_end, const expectations *soon)
{
    const int64_t rows = sizes->rows, depth = sizes->depth, columns = sizes->columns, most = depth_block(depth);
    for (int64_t k = 0; k < depth; k += most) {
        const int64_t block = least(depth - k, most);
        for (int64_t n = n_begin; n < n_end; n += PANEL_COLUMNS) {
            const float *from = v + v_offset(depth, 0, k), *panel = u + u_offset(depth, columns, k, n);
            float *to = m + m_offset(rows, columns, 0, n);
#define MULTIPLY(N)                                                                                                    \
    case N:                                                                                                            \
        if (k == 0)                                                                                                    \
            multiply_panel(from, panel, to, rows, depth, block, soon, N, 1);                                           \
        else                                                                                                           \
            multiply_panel(from, panel, to, rows, depth, block, soon, N, 0);                                           \
        break;
            switch (panel_columns(columns, n) / LANES) {
                MULTIPLY(1)
                MULTIPLY(2)
#if PANEL == 4
                MULTIPLY(3)
                MULTIPLY(4)
#endif
            }
#undef MULTIPLY
        }
    }
}

#endif
