/* Sums of outer products of v (count, channels) and w (count, outputs), added to earlier ones: the
 * gradients of weights.
 *
 * v is stored as vectors of channels, each with all of its rows: (channels / LANES, rows, LANES),
 * `stride` floats from one vector to the next. w is stored in panels of VECTORS vectors of outputs
 * (panel, rows, VECTORS × LANES), and so is the result (panel, channels, VECTORS × LANES). At most
 * `chain` products are summed in registers. */
#ifndef FTH_BACKEND_CPU_LEVEL_OUTER_PRODUCTS_H
#define FTH_BACKEND_CPU_LEVEL_OUTER_PRODUCTS_H

#include "backend/cpu/level/expected.h"
#include "backend/vector/vector.h"

/* What the innermost loop computes at once: channels × vectors of outputs. */
enum { ROWS = 6, VECTORS = REGISTERS == 32 ? 4 : 2 };

static int64_t minimum(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Outputs are in panels of VECTORS vectors; the remainder is in panels of one. */
INLINE int64_t panel_vectors(int64_t begin, int64_t outputs)
{
    return begin + VECTORS * LANES <= outputs ? VECTORS : 1;
}

/* The first output of the panel that contains `output`. */
INLINE int64_t panel_begin(int64_t output, int64_t outputs)
{
    const int64_t begin = output / (VECTORS * LANES) * (VECTORS * LANES);
    return panel_vectors(begin, outputs) == VECTORS ? begin : output;
}

/* products[c][n] = (or +=) sum over t of v[t][c] * w[t][n], for R channels and N vectors of
 * outputs. The first S channels are in one vector, the others in the next. R, S and N are constants
 * once inlined. */
INLINE void multiply_registers(const float *v, int64_t stride, const float *w, float *products, int64_t count,
                               int64_t chain, bool add, const int R, const int S, const int N)
{
    for (int64_t begin = 0; begin == 0 || begin < count; begin += chain) { /* no products are zeros */
        const int64_t end = minimum(begin + chain, count);
        vector sum[ROWS * VECTORS];
#pragma GCC unroll 24
        for (int i = 0; i < R * N; i++) {
            sum[i] = (vector){0};
            if (LANES * 4 * (i + 1) % 64 == 0)
                __builtin_prefetch(products + i * LANES, 1, 3);
        }
        for (int64_t t = begin; t < end; t++) {
            vector g[VECTORS];
#pragma GCC unroll 4
            for (int n = 0; n < N; n++)
                g[n] = load(w + (t * N + n) * LANES);
#pragma GCC unroll 6
            for (int r = 0; r < R; r++) {
                const vector x = broadcast(v[t * LANES + r + (r < S ? 0 : stride - LANES)]);
#pragma GCC unroll 4
                for (int n = 0; n < N; n++)
                    sum[r * N + n] = multiply_add(x, g[n], sum[r * N + n]);
            }
        }
        if (add || begin > 0) {
#pragma GCC unroll 24
            for (int i = 0; i < R * N; i++)
                store(products + i * LANES, load(products + i * LANES) + sum[i]);
        } else {
#pragma GCC unroll 24
            for (int i = 0; i < R * N; i++)
                store(products + i * LANES, sum[i]);
        }
    }
}

/* A strip of `channels` channels, a multiple of 4, and N vectors of outputs. */
INLINE void multiply_panel(const float *v, int64_t stride, int64_t channels, const float *w, float *products,
                           int64_t count, int64_t chain, bool add, expected *next, const int N)
{
#define MULTIPLY(R, S) multiply_registers(from, stride, w, to, count, chain, add, R, S, N)
    for (int64_t c = 0, rows; c < channels; c += rows) {
        const float *from = v + c / LANES * stride + c % LANES;
        float *to = products + c * N * LANES;
        const int64_t left = channels - c, of_vector = LANES - c % LANES;
        rows = left >= ROWS && left != 8 ? ROWS : 4;
        expect(next);
        if (rows == 4 && of_vector >= 4)
            MULTIPLY(4, 4);
        else if (rows == 4)
            MULTIPLY(4, 2);
        else if (of_vector >= 6)
            MULTIPLY(6, 6);
        else if (of_vector == 4)
            MULTIPLY(6, 4);
        else
            MULTIPLY(6, 2);
    }
#undef MULTIPLY
}

#endif
