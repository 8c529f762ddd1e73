/* The arithmetic of Winograd convolution, F(4×4, 3×3), for layers whose transformed weights fit a core's L2 cache.
 *
 * An output tile of 4×4 comes from 6×6 inputs. Both are seen as products of polynomials, evaluated at the six points 0,
 * ±a, ±b and infinity (Lavin and Gray 2016), where 36 products do what takes 144: for each of the 36 points, a matrix
 * product of tiles × channels with channels × outputs. The points a = 5/8, b = 3/2, oneDNN's, keep the sums small:
 * errors are some 1e-6 of the largest number, against 3e-7 directly.
 *
 * What oneDNN does in passes over whole tensors is done here for `block` tiles at a time: transformed inputs, products
 * and transformed weights stay in the L2 cache of one core, and memory sees each image once. The gradient of the
 * weights is F(3×3, 4×4) with the same six points: 6×6 inputs against 4×4 of dy, summed over tiles before the
 * transform back. */
#include <omp.h>
#include <string.h>

#include "backend/cpu/level/winograd_level.h"
#include "backend/cpu/level/winograd_tile.h"

/* ---- matrix products ---- */

/* m[t][n] = sum over k of v[t][k] * u[k][n], for R rows and N vectors of columns, constants where inlined. */
INLINE void multiply_tile(const float *v, const float *u, float *m, int64_t depth, int64_t columns, const int R,
                          const int N)
{
    vector sum[24];
    for (int i = 0; i < R * N; i++)
        sum[i] = (vector){0};
    for (int64_t k = 0; k < depth; k++) {
        vector w[4];
        for (int n = 0; n < N; n++)
            w[n] = load(u + k * columns + n * LANES);
        for (int r = 0; r < R; r++) {
            const vector x = broadcast(v[r * depth + k]);
            for (int n = 0; n < N; n++)
                sum[r * N + n] = sum[r * N + n] + x * w[n];
        }
    }
    for (int r = 0; r < R; r++) {
        for (int n = 0; n < N; n++)
            store(m + r * columns + n * LANES, sum[r * N + n]);
    }
}

/* One point: `rows` is a multiple of 12, `columns` of 16. */
static void multiply(const float *v, const float *u, float *m, int64_t rows, int64_t depth, int64_t columns)
{
    int64_t n = 0;
    for (; n + 4 * LANES <= columns; n += 4 * LANES) {
        for (int64_t t = 0; t < rows; t += 6)
            multiply_tile(v + t * depth, u + n, m + t * columns + n, depth, columns, 6, 4);
    }
    for (; n + 2 * LANES <= columns; n += 2 * LANES) {
        for (int64_t t = 0; t < rows; t += 12)
            multiply_tile(v + t * depth, u + n, m + t * columns + n, depth, columns, 12, 2);
    }
    for (; n < columns; n += LANES) {
        for (int64_t t = 0; t < rows; t += 12)
            multiply_tile(v + t * depth, u + n, m + t * columns + n, depth, columns, 12, 1);
    }
}

/* ---- weights ---- */

/* To u[point][k][n]. */
static void transform_weights(const winograd_weights *weights, int64_t depth, int64_t columns, float *u)
{
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < depth; k++) {
        for (int64_t n = 0; n < columns; n += LANES) {
            const float *from = weights->values + n * weights->stride_n + k * weights->stride_k;
            vector g[3][3], lines[3][WINDOW];
            for (int i = 0; i < 9; i++)
                g[i / 3][i % 3] = load_strided(from + (weights->turned ? 8 - i : i), weights->stride_n);
            for (int i = 0; i < 3; i++)
                evaluate_three(g[i], lines[i]);
            for (int j = 0; j < WINDOW; j++) {
                vector column[WINDOW];
                evaluate_three((const vector[3]){lines[0][j], lines[1][j], lines[2][j]}, column);
                for (int i = 0; i < WINDOW; i++)
                    store(u + ((i * WINDOW + j) * depth + k) * columns + n, divisor(i) * divisor(j) * column[i]);
            }
        }
    }
}

/* ---- outputs ---- */

/* From m[point * stride] to a tile of outputs. */
INLINE void transform_tile(const winograd_correlation *c, const float *m, int64_t stride, vector bias,
                           vector y[TILE][TILE])
{
    vector half[TILE][WINDOW];
    for (int j = 0; j < WINDOW; j++) {
        vector line[WINDOW], column[TILE];
        for (int i = 0; i < WINDOW; i++)
            line[i] = load(m + (i * WINDOW + j) * stride);
        transform_products(line, TILE, column);
        for (int i = 0; i < TILE; i++)
            half[i][j] = column[i];
    }
    for (int i = 0; i < TILE; i++) {
        transform_products(half[i], TILE, y[i]);
        for (int j = 0; j < TILE; j++) {
            y[i][j] += bias;
            if (c->relu)
                y[i][j] = cut_negative(y[i][j]);
        }
    }
}

/* Writes what lies within `rows` and `columns`; `width` is the image's. `mask` may be NULL. */
INLINE void write_tile(const vector y[TILE][TILE], int64_t width, int64_t rows, int64_t columns, float *to,
                       const float *mask)
{
    for (int i = 0; i < TILE && i < rows; i++) {
        for (int j = 0; j < TILE && j < columns; j++) {
            const int64_t at = (i * width + j) * LANES;
            store(to + at, mask ? (vector)(~(load(mask + at) <= 0) & (vector_mask)y[i][j]) : y[i][j]);
        }
    }
}

/* The maxima of 2×2, of the pooled image that `width`, `rows` and `columns` describe. `where` may be NULL. */
INLINE void write_maxima(const vector y[TILE][TILE], int64_t width, int64_t rows, int64_t columns, float *to,
                         uint8_t *where)
{
    for (int i = 0; i < TILE / 2 && i < rows; i++) {
        for (int j = 0; j < TILE / 2 && j < columns; j++) {
            vector best = y[2 * i][2 * j];
            vector_mask winner = {0};
            challenge(y[2 * i][2 * j + 1], 1, &best, &winner);
            challenge(y[2 * i + 1][2 * j], 2, &best, &winner);
            challenge(y[2 * i + 1][2 * j + 1], 3, &best, &winner);
            store(to + (i * width + j) * LANES, best);
            if (where)
                store_bytes_part(where + (i * width + j) * LANES, winner, LANES);
        }
    }
}

static void write_block(const winograd_correlation *c, const block *tiles, const float *m, const float *bias,
                        const winograd_target *out)
{
    const winograd_images half = pooled(&c->out);
    for (int64_t t = 0; t < tiles->count; t++) {
        const place *at = &tiles->places[t];
        for (int64_t n = 0; n < c->out.planes; n += LANES) {
            vector y[TILE][TILE];
            transform_tile(c, m + t * c->out.planes + n, point_stride(c->out.planes),
                           bias ? load(bias + n) : (vector){0}, y);
            if (!c->pool) {
                const int64_t offset = offset_of(&c->out, at->image, n, at->row, at->column);
                write_tile(y, c->out.width, c->out.height - at->row, c->out.width - at->column, out->values + offset,
                           out->mask ? out->mask + offset : NULL);
            } else {
                const int64_t offset = offset_of(&half, at->image, n, at->row / 2, at->column / 2);
                write_maxima(y, half.width, half.height - at->row / 2, half.width - at->column / 2,
                             out->values + offset, out->where ? out->where + offset : NULL);
            }
        }
    }
}

/* Asks for the memory that a block is to be written to, one of POINTS parts of it. Left to the stores, its lines come
 * from memory one after the other: measured on mnist-cnn's second convolution, a tenth of the pass. */
static void expect_writes(const winograd_images *images, const block *tiles, float *out, int64_t part)
{
    const int64_t plane_blocks = images->planes / LANES, count = tiles->count * plane_blocks;
    for (int64_t i = count * part / POINTS; i < count * (part + 1) / POINTS; i++) {
        const place *at = &tiles->places[i / plane_blocks];
        const float *to = out + offset_of(images, at->image, i % plane_blocks * LANES, at->row, at->column);
        for (int r = 0; r < TILE; r++) {
            for (int j = 0; j < TILE; j++)
                __builtin_prefetch(to + (r * images->width + j) * LANES, 1, 2);
        }
    }
}

/* ---- all of it ---- */

static int64_t block_floats(const winograd_correlation *c)
{
    return POINTS * (point_stride(c->in.planes) + point_stride(c->out.planes));
}

int64_t AT_LEVEL(winograd_correlate_floats)(const winograd_correlation *c, int threads)
{
    return POINTS * c->in.planes * c->out.planes + threads * block_floats(c);
}

void AT_LEVEL(winograd_correlate)(const winograd_correlation *c, const winograd_source *in,
                                  const winograd_weights *weights, const float *bias, float *scratch,
                                  const winograd_target *out)
{
    const int64_t depth = c->in.planes, columns = c->out.planes;
    const tiling tiles = tile_up(&c->out);
    float *u = scratch, *blocks = scratch + POINTS * depth * columns;
    transform_weights(weights, depth, columns, u);
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < tiles.count; first += BLOCK) {
        float *v = blocks + omp_get_thread_num() * block_floats(c), *m = v + POINTS * point_stride(depth);
        block here;
        find_block(&tiles, first, &here);
        const int64_t rows = (here.count + 11) / 12 * 12;
        transform_block(c, &here, in, v);
        for (int64_t p = 0; p < POINTS; p++) {
            float *point = v + p * point_stride(depth);
            memset(point + here.count * depth, 0, (size_t)((rows - here.count) * depth) * sizeof *point);
            multiply(point, u + p * depth * columns, m + p * point_stride(columns), rows, depth, columns);
            if (!c->pool)
                expect_writes(&c->out, &here, out->values, p);
        }
        write_block(c, &here, m, bias, out);
    }
}
