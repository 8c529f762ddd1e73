/* The weights of convolutions by Winograd's method: 3×3 kernels at 36 points, packed for
 * products.h. */
#ifndef FTH_BACKEND_CPU_LEVEL_WINOGRAD_KERNEL_H
#define FTH_BACKEND_CPU_LEVEL_WINOGRAD_KERNEL_H

#include "backend/cpu/level/products.h"
#include "backend/cpu/level/winograd_tile.h"

/* Channels × outputs up to which transformed weights (144 bytes each) fit a cache that cores
 * share. */
enum { CACHED_PAIRS = 256 * 256 };

/* One vector of kernels at all points: a constant where it is inlined. */
typedef void kernel_transform(const vector kernel[9], bool turned, vector at[POINTS]);

/* Three numbers, a row or column of a kernel, at the points of one side. */
typedef void three_transform(const vector g[3], vector at[WINDOW]);

INLINE void transform_square(const vector kernel[9], bool turned, three_transform *transform, vector at[POINTS])
{
    vector lines[3][WINDOW];
    for (int i = 0; i < 3; i++) {
        vector g[3];
        for (int j = 0; j < 3; j++)
            g[j] = kernel[turned ? 8 - 3 * i - j : 3 * i + j];
        transform(g, lines[i]);
    }
    for (int j = 0; j < WINDOW; j++) {
        vector column[WINDOW];
        transform((const vector[3]){lines[0][j], lines[1][j], lines[2][j]}, column);
        for (int i = 0; i < WINDOW; i++)
            at[i * WINDOW + j] = column[i];
    }
}

/* Floats of u from one point to the next: an odd number of cache lines, as powers of two would put
 * all 36 into the same few sets of the cache. */
INLINE int64_t weights_stride(int64_t depth, int64_t columns)
{
    return depth * columns + 16;
}

/* Kernels of LANES inputs, from k on, and LANES outputs, from n on: to[9 * input + i] has number i
 * of all outputs. */
INLINE void read_kernels(const winograd_weights *weights, int64_t n, int64_t k, vector to[9 * LANES])
{
    const float *from = weights->values + n * weights->stride_n + k * weights->stride_k;
    if (weights->stride_k == 9) {
        for (int c = 0; c < 9; c++) {
            vector rows[LANES];
            for (int l = 0; l < LANES; l++)
                rows[l] = load(from + l * weights->stride_n + c * LANES);
            transpose(rows);
            for (int l = 0; l < LANES; l++)
                to[c * LANES + l] = rows[l];
        }
        return;
    }
    for (int l = 0; l < LANES; l++) {
        const float *row = from + l * weights->stride_k;
        for (int first = 0; first < 9; first += LANES) {
            const int count = first + LANES < 9 ? LANES : 9 - first;
            vector taps[LANES];
            for (int i = 0; i < LANES && count > 1; i++)
                taps[i] = load_part(row + i * weights->stride_n + first, count);
            if (count > 1)
                transpose(taps);
            else
                taps[0] = load_strided(row + first, weights->stride_n);
            for (int i = 0; i < count; i++)
                to[9 * l + first + i] = taps[i];
        }
    }
}

/* To u, the thread's share: squares of LANES inputs and a panel of outputs, in the order in which
 * they lie. What is too large for any cache is written past them, which takes half the time: 2.9
 * instead of 6 ms for 512 × 512. */
INLINE void transform_weights(const winograd_weights *weights, int64_t depth, int64_t columns,
                              kernel_transform *transform, float *u, int part, int parts)
{
    const int64_t stride = weights_stride(depth, columns), blocks = depth / LANES;
    const bool past_caches = depth * columns > CACHED_PAIRS && PANEL * VECTOR_BYTES >= 64;
    const share mine = share_of(blocks * ((columns + PANEL_COLUMNS - 1) / PANEL_COLUMNS), part, parts);
    for (int64_t i = mine.begin; i < mine.end; i++) {
        const int64_t k = i % blocks * LANES, panel = i / blocks * PANEL_COLUMNS;
        const int count = (int)(panel_columns(columns, panel) / LANES);
        vector kernels[PANEL][9 * LANES], at[PANEL][POINTS];
        for (int n = 0; n < count; n++)
            read_kernels(weights, panel + n * LANES, k, kernels[n]);
        for (int l = 0; l < LANES; l++) {
            float *to = u + u_offset(depth, columns, k + l, panel);
            for (int n = 0; n < count; n++)
                transform(kernels[n] + 9 * l, weights->turned, at[n]);
            for (int p = 0; p < POINTS; p++) {
                for (int n = 0; n < count; n++) {
                    if (past_caches)
                        store_past_caches(to + p * stride + n * LANES, at[n][p]);
                    else
                        store(to + p * stride + n * LANES, at[n][p]);
                }
            }
        }
    }
    finish_stores();
}

#endif
