

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
#include "backend/cpu/winograd.h"

#if defined(__x86_64__) && !defined(__clang__)

#include <immintrin.h>
#include <omp.h>
#include <string.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,fma")
#pragma GCC optimize("O3")

#define INLINE static inline __attribute__((always_inline))

enum { LANES = WINOGRAD_LANES, POINTS = 36, TILE = 4, WINDOW = 6 };

/* Tiles at a time: a multiple of 12, what the products take at once. */
enum { BLOCK = 24 };

#define A  0.625F
#define B  1.5F
#define A2 (A * A)
#define B2 (B * B)

typedef __m512 vector;

INLINE vector constant(float value)
{
    return _mm512_set1_ps(value);
}

/* x * y + z */
INLINE vector multiply_add(float x, vector y, vector z)
{
    return _mm512_fmadd_ps(constant(x), y, z);
}

/* Floats from one point of a block of `planes` planes to the next: an odd number of cache lines, as powers of two would
 * put all 36 into the same few sets of the cache. */
INLINE int64_t point_stride(int64_t planes)
{
    return BLOCK * planes + LANES;
}

/* ---- the transforms of one line ---- */

/* Six inputs, in place: rows of the polynomials that vanish at all points but one. */
INLINE void transform_inputs(vector d[WINDOW])
{
    const vector even_b = multiply_add(-B2, d[2], d[4]), odd_b = multiply_add(-B2, d[1], d[3]);
    const vector even_a = multiply_add(-A2, d[2], d[4]), odd_a = multiply_add(-A2, d[1], d[3]);
    d[0] = multiply_add(A2 * B2, d[0], multiply_add(-(A2 + B2), d[2], d[4]));
    d[5] = multiply_add(A2 * B2, d[1], multiply_add(-(A2 + B2), d[3], d[5]));
    d[1] = multiply_add(A, odd_b, even_b);
    d[2] = multiply_add(-A, odd_b, even_b);
    d[3] = multiply_add(B, odd_a, even_a);
    d[4] = multiply_add(-B, odd_a, even_a);
}

/* Four numbers at the six points, not yet divided as `divisor` says. */
INLINE void evaluate_four(const vector g[4], vector at[WINDOW])
{
    const vector even_a = multiply_add(A2, g[2], g[0]), odd_a = multiply_add(A2, g[3], g[1]);
    const vector even_b = multiply_add(B2, g[2], g[0]), odd_b = multiply_add(B2, g[3], g[1]);
    at[0] = g[0];
    at[1] = multiply_add(A, odd_a, even_a);
    at[2] = multiply_add(-A, odd_a, even_a);
    at[3] = multiply_add(B, odd_b, even_b);
    at[4] = multiply_add(-B, odd_b, even_b);
    at[5] = g[3];
}

INLINE void evaluate_three(const vector g[3], vector at[WINDOW])
{
    const vector even_a = multiply_add(A2, g[2], g[0]), even_b = multiply_add(B2, g[2], g[0]);
    at[0] = g[0];
    at[1] = multiply_add(A, g[1], even_a);
    at[2] = multiply_add(-A, g[1], even_a);
    at[3] = multiply_add(B, g[1], even_b);
    at[4] = multiply_add(-B, g[1], even_b);
    at[5] = g[2];
}

/* 1 / product of the distances from point i to the other finite ones. */
INLINE float divisor(int i)
{
    return i == 0 ? 1 / (A2 * B2) : i <= 2 ? 1 / (2 * A2 * (A2 - B2)) : i <= 4 ? 1 / (2 * B2 * (B2 - A2)) : 1;
}

/* From the products at six points to `count` (4 or 3) outputs. */
INLINE void transform_products(const vector m[WINDOW], const int count, vector y[TILE])
{
    const vector sum_a = _mm512_add_ps(m[1], m[2]), sum_b = _mm512_add_ps(m[3], m[4]);
    const vector difference_a = _mm512_sub_ps(m[1], m[2]), difference_b = _mm512_sub_ps(m[3], m[4]);
    y[0] = _mm512_add_ps(m[0], _mm512_add_ps(sum_a, sum_b));
    y[1] = multiply_add(A, difference_a, _mm512_mul_ps(constant(B), difference_b));
    y[2] = multiply_add(A2, sum_a, _mm512_mul_ps(constant(B2), sum_b));
    if (count == 3) {
        y[2] = _mm512_add_ps(y[2], m[5]);
    } else {
        y[3] = multiply_add(A2 * A, difference_a, multiply_add(B2 * B, difference_b, m[5]));
    }
}

/* ---- tiles ---- */

/* How many tiles of 4×4 cover the outputs, and where one of them lies. */
typedef struct tiling {
    int64_t rows, columns, count;
} tiling;

typedef struct place {
    int64_t image, row, column; /* of the tile's first output */
} place;

static tiling tile_up(const winograd_images *out)
{
    tiling t = {.rows = (out->height + TILE - 1) / TILE, .columns = (out->width + TILE - 1) / TILE};
    t.count = out->batch * t.rows * t.columns;
    return t;
}

/* Up to BLOCK tiles that are computed together. */
typedef struct block {
    int64_t count;
    place places[BLOCK];
} block;

static void find_block(const tiling *tiles, int64_t first, block *found)
{
    const int64_t each = tiles->rows * tiles->columns;
    found->count = tiles->count - first < BLOCK ? tiles->count - first : BLOCK;
    for (int64_t t = 0; t < found->count; t++) {
        const int64_t tile = first + t;
        found->places[t] = (place){tile / each, tile % each / tiles->columns * TILE, tile % tiles->columns * TILE};
    }
}

/* A part of 16 planes of an image, from which rows and columns outside the image read as zeros. */
typedef struct window {
    const float *from;      /* its first number, perhaps outside */
    int64_t stride;         /* floats in a row of the image */
    uint32_t rows, columns; /* bits: those inside */
} window;

static uint32_t bits_inside(int64_t first, int64_t size)
{
    uint32_t bits = 0;
    for (int i = 0; i < WINDOW; i++)
        bits |= (uint32_t)(first + i >= 0 && first + i < size) << i;
    return bits;
}

INLINE vector read(const window *w, int i, int j, const bool inside)
{
    const float *from = w->from + i * w->stride + j * LANES;
    return inside ? _mm512_loadu_ps(from)
                  : _mm512_maskz_loadu_ps((__mmask16) - (int)(w->rows >> i & w->columns >> j & 1), from);
}

/* Floats from the first of all to (row, column) of 16 planes, from `plane` on, of an image. */
INLINE int64_t offset_of(const winograd_images *images, int64_t image, int64_t plane, int64_t row, int64_t column)
{
    return (((image * images->planes + plane) / LANES * images->height + row) * images->width + column) * LANES;
}

static window window_of(const winograd_images *images, const float *values, int64_t image, int64_t plane, int64_t row,
                        int64_t column)
{
    return (window){.from = values + offset_of(images, image, plane, row, column),
                    .stride = images->width * LANES,
                    .rows = bits_inside(row, images->height),
                    .columns = bits_inside(column, images->width)};
}

/* 6×6 inputs, transformed, to to[point * stride]. */
INLINE void transform_window(const window *w, const bool inside, float *to, int64_t stride)
{
    vector half[WINDOW][WINDOW];
    for (int j = 0; j < WINDOW; j++) {
        vector line[WINDOW];
        for (int i = 0; i < WINDOW; i++)
            line[i] = read(w, i, j, inside);
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
            _mm512_storeu_ps(to + (i * WINDOW + j) * stride, line[j]);
    }
}

/* The inputs of a block's tiles to to[point][tile][plane]. */
static void transform_block(const winograd_correlation *c, const block *tiles, const float *values, float *to)
{
    const uint32_t all = (1u << WINDOW) - 1;
    for (int64_t t = 0; t < tiles->count; t++) {
        const place *at = &tiles->places[t];
        for (int64_t k = 0; k < c->in.planes; k += LANES) {
            const window w =
                window_of(&c->in, values, at->image, k, at->row + c->begin_row, at->column + c->begin_column);
            float *point = to + t * c->in.planes + k;
            if ((w.rows & w.columns) == all)
                transform_window(&w, true, point, point_stride(c->in.planes));
            else
                transform_window(&w, false, point, point_stride(c->in.planes));
        }
    }
}

/* ---- matrix products ---- */

/* m[t][n] = sum over k of v[t][k] * u[k][n], for R rows and N vectors of columns, constants where inlined. */
INLINE void multiply_tile(const float *v, const float *u, float *m, int64_t depth, int64_t columns, const int R,
                          const int N)
{
    vector sum[24];
    for (int i = 0; i < R * N; i++)
        sum[i] = _mm512_setzero_ps();
    for (int64_t k = 0; k < depth; k++) {
        vector w[4];
        for (int n = 0; n < N; n++)
            w[n] = _mm512_loadu_ps(u + k * columns + n * LANES);
        for (int r = 0; r < R; r++) {
            const vector x = constant(v[r * depth + k]);
            for (int n = 0; n < N; n++)
                sum[r * N + n] = _mm512_fmadd_ps(x, w[n], sum[r * N + n]);
        }
    }
    for (int r = 0; r < R; r++) {
        for (int n = 0; n < N; n++)
            _mm512_storeu_ps(m + r * columns + n * LANES, sum[r * N + n]);
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

/* d[c][o] += sum over t of v[t][c] * w[t][o], for R rows of d and N vectors of columns. */
INLINE void accumulate_tile(const float *v, const float *w, float *d, int64_t count, int64_t rows, int64_t columns,
                            const int R, const int N)
{
    vector sum[16];
    for (int r = 0; r < R; r++) {
        for (int n = 0; n < N; n++)
            sum[r * N + n] = _mm512_loadu_ps(d + r * columns + n * LANES);
    }
    for (int64_t t = 0; t < count; t++) {
        vector g[4];
        for (int n = 0; n < N; n++)
            g[n] = _mm512_loadu_ps(w + t * columns + n * LANES);
        for (int r = 0; r < R; r++) {
            const vector x = constant(v[t * rows + r]);
            for (int n = 0; n < N; n++)
                sum[r * N + n] = _mm512_fmadd_ps(x, g[n], sum[r * N + n]);
        }
    }
    for (int r = 0; r < R; r++) {
        for (int n = 0; n < N; n++)
            _mm512_storeu_ps(d + r * columns + n * LANES, sum[r * N + n]);
    }
}

static void accumulate(const float *v, const float *w, float *d, int64_t count, int64_t rows, int64_t columns)
{
    int64_t n = 0;
    for (; n + 4 * LANES <= columns; n += 4 * LANES) {
        for (int64_t r = 0; r < rows; r += 4)
            accumulate_tile(v + r, w + n, d + r * columns + n, count, rows, columns, 4, 4);
    }
    for (; n < columns; n += LANES) {
        for (int64_t r = 0; r < rows; r += 16)
            accumulate_tile(v + r, w + n, d + r * columns + n, count, rows, columns, 16, 1);
    }
}

/* ---- forward, and the gradient of the input ---- */

/* To u[point][k][n]. */
static void transform_weights(const winograd_weights *weights, int64_t depth, int64_t columns, float *u)
{
    const __m512i lanes = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                             _mm512_set1_epi32((int)weights->stride_n));
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < depth; k++) {
        for (int64_t n = 0; n < columns; n += LANES) {
            const float *from = weights->values + n * weights->stride_n + k * weights->stride_k;
            vector g[3][3], lines[3][WINDOW];
            for (int i = 0; i < 9; i++)
                g[i / 3][i % 3] = _mm512_i32gather_ps(lanes, from + (weights->turned ? 8 - i : i), 4);
            for (int i = 0; i < 3; i++)
                evaluate_three(g[i], lines[i]);
            for (int j = 0; j < WINDOW; j++) {
                vector column[WINDOW];
                evaluate_three((const vector[3]){lines[0][j], lines[1][j], lines[2][j]}, column);
                for (int i = 0; i < WINDOW; i++)
                    _mm512_storeu_ps(u + ((i * WINDOW + j) * depth + k) * columns + n,
                                     _mm512_mul_ps(constant(divisor(i) * divisor(j)), column[i]));
            }
        }
    }
}

/* From m[point * stride] to the outputs of a tile, `to`; those beyond its `rows` and `columns` are dropped. */
INLINE void write_tile(const winograd_correlation *c, const float *m, int64_t stride, vector bias, int64_t rows,
                       int64_t columns, float *to)
{
    vector half[TILE][WINDOW];
    for (int j = 0; j < WINDOW; j++) {
        vector line[WINDOW], y[TILE];
        for (int i = 0; i < WINDOW; i++)
            line[i] = _mm512_loadu_ps(m + (i * WINDOW + j) * stride);
        transform_products(line, TILE, y);
        for (int i = 0; i < TILE; i++)
            half[i][j] = y[i];
    }
    for (int i = 0; i < TILE && i < rows; i++) {
        vector y[TILE];
        transform_products(half[i], TILE, y);
        for (int j = 0; j < TILE; j++) {
            y[j] = _mm512_add_ps(y[j], bias);
            if (c->relu) /* max(0, NaN) is NaN in this order */
                y[j] = _mm512_max_ps(_mm512_setzero_ps(), y[j]);
            if (j < columns)
                _mm512_storeu_ps(to + (i * c->out.width + j) * LANES, y[j]);
        }
    }
}

static void write_block(const winograd_correlation *c, const block *tiles, const float *m, const float *bias,
                        float *out)
{
    for (int64_t t = 0; t < tiles->count; t++) {
        const place *at = &tiles->places[t];
        for (int64_t n = 0; n < c->out.planes; n += LANES)
            write_tile(c, m + t * c->out.planes + n, point_stride(c->out.planes),
                       bias ? _mm512_loadu_ps(bias + n) : _mm512_setzero_ps(), c->out.height - at->row,
                       c->out.width - at->column, out + offset_of(&c->out, at->image, n, at->row, at->column));
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

static int64_t block_floats(const winograd_correlation *c)
{
    return POINTS * (point_stride(c->in.planes) + point_stride(c->out.planes));
}

int64_t winograd_correlate_floats(const winograd_correlation *c, int threads)
{
    return POINTS * c->in.planes * c->out.planes + threads * block_floats(c);
}

void winograd_correlate(const winograd_correlation *c, const float *in, const winograd_weights *weights,
                        const float *bias, float *scratch, float *out)
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
            expect_writes(&c->out, &here, out, p);
        }
        write_block(c, &here, m, bias, out);
    }
}

/* ---- the gradient of the weights ---- */

/* A tile of dy at the points, to to[point * stride]; adds the tile's numbers to `bias`. */
INLINE void transform_gradient(const window *w, const bool inside, float *to, int64_t stride, float *bias)
{
    vector half[WINDOW][TILE], sum = _mm512_loadu_ps(bias);
    for (int j = 0; j < TILE; j++) {
        vector line[TILE], at[WINDOW];
        for (int i = 0; i < TILE; i++) {
            line[i] = read(w, i, j, inside);
            sum = _mm512_add_ps(sum, line[i]);
        }
        evaluate_four(line, at);
        for (int i = 0; i < WINDOW; i++)
            half[i][j] = at[i];
    }
    _mm512_storeu_ps(bias, sum);
    for (int i = 0; i < WINDOW; i++) {
        vector at[WINDOW];
        evaluate_four(half[i], at);
        for (int j = 0; j < WINDOW; j++)
            _mm512_storeu_ps(to + (i * WINDOW + j) * stride, at[j]);
    }
}

/* The gradients of a block's tiles to to[point][tile][output]; adds them up in `biases`. */
static void transform_gradients(const winograd_images *dy, const block *tiles, const float *values, float *to,
                                float *biases)
{
    const uint32_t all = (1u << TILE) - 1;
    for (int64_t t = 0; t < tiles->count; t++) {
        const place *at = &tiles->places[t];
        for (int64_t o = 0; o < dy->planes; o += LANES) {
            const window w = window_of(dy, values, at->image, o, at->row, at->column);
            float *point = to + t * dy->planes + o;
            if ((w.rows & w.columns & all) == all)
                transform_gradient(&w, true, point, point_stride(dy->planes), biases + o);
            else
                transform_gradient(&w, false, point, point_stride(dy->planes), biases + o);
        }
    }
}

static int64_t sum_floats(int64_t channels, int64_t outputs)
{
    return POINTS * channels * outputs + outputs;
}

static int64_t gradient_floats(int64_t channels, int64_t outputs)
{
    return sum_floats(channels, outputs) + POINTS * (point_stride(channels) + point_stride(outputs));
}

int64_t winograd_grad_weights_floats(const winograd_correlation *forward, int threads)
{
    return threads * gradient_floats(forward->in.planes, forward->out.planes);
}

/* From the sums of all threads to dweight: lanes are outputs, which lie far apart there. */
static void finish_weights(const float *sums, int64_t each, int threads, int64_t channels, int64_t outputs,
                           float *dweight, float *dbias)
{
    const __m512i lanes = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                             _mm512_set1_epi32((int)channels * 9));
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < outputs; o += LANES) {
        for (int64_t c = 0; c < channels; c++) {
            vector half[3][WINDOW];
            for (int j = 0; j < WINDOW; j++) {
                vector line[WINDOW], y[TILE];
                for (int i = 0; i < WINDOW; i++) {
                    const float *from = sums + ((i * WINDOW + j) * channels + c) * outputs + o;
                    line[i] = _mm512_loadu_ps(from);
                    for (int t = 1; t < threads; t++)
                        line[i] = _mm512_add_ps(line[i], _mm512_loadu_ps(from + t * each));
                    line[i] = _mm512_mul_ps(constant(divisor(i) * divisor(j)), line[i]);
                }
                transform_products(line, 3, y);
                for (int i = 0; i < 3; i++)
                    half[i][j] = y[i];
            }
            for (int i = 0; i < 3; i++) {
                vector y[TILE];
                transform_products(half[i], 3, y);
                for (int j = 0; j < 3; j++)
                    _mm512_i32scatter_ps(dweight + (o * channels + c) * 9 + i * 3 + j, lanes, y[j], 4);
            }
        }
    }
    for (int64_t o = 0; dbias && o < outputs; o++) {
        dbias[o] = 0;
        for (int t = 0; t < threads; t++)
            dbias[o] += sums[t * each + POINTS * channels * outputs + o];
    }
}

void winograd_grad_weights(const winograd_correlation *forward, const float *x, const float *dy, float *scratch,
                           float *dweight, float *dbias)
{
    const int64_t channels = forward->in.planes, outputs = forward->out.planes;
    const int64_t each = gradient_floats(channels, outputs);
    const tiling tiles = tile_up(&forward->out);
    const int64_t blocks = (tiles.count + BLOCK - 1) / BLOCK;
    const int threads = omp_get_max_threads() < blocks ? omp_get_max_threads() : (int)blocks;
#pragma omp parallel for schedule(static, 1) num_threads(threads)
    for (int thread = 0; thread < threads; thread++) {
        float *sums = scratch + thread * each, *biases = sums + POINTS * channels * outputs;
        float *v = sums + sum_floats(channels, outputs), *w = v + POINTS * point_stride(channels);
        memset(sums, 0, (size_t)sum_floats(channels, outputs) * sizeof *sums);
        for (int64_t b = blocks * thread / threads; b < blocks * (thread + 1) / threads; b++) {
            block here;
            find_block(&tiles, b * BLOCK, &here);
            transform_block(forward, &here, x, v);
            transform_gradients(&forward->out, &here, dy, w, biases);
            for (int64_t p = 0; p < POINTS; p++)
                accumulate(v + p * point_stride(channels), w + p * point_stride(outputs), sums + p * channels * outputs,
                           here.count, channels, outputs);
        }
    }
    finish_weights(scratch, each, threads, channels, outputs, dweight, dbias);
}

#pragma GCC pop_options

bool winograd_is_supported(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

#else

bool winograd_is_supported(void)
{
    return false;
}

int64_t winograd_correlate_floats(const winograd_correlation *c, int threads)
{
    (void)c, (void)threads;
    return 0;
}

int64_t winograd_grad_weights_floats(const winograd_correlation *forward, int threads)
{
    (void)forward, (void)threads;
    return 0;
}

void winograd_correlate(const winograd_correlation *c, const float *in, const winograd_weights *weights,
                        const float *bias, float *scratch, float *out)
{
    (void)c, (void)in, (void)weights, (void)bias, (void)scratch, (void)out;
}

void winograd_grad_weights(const winograd_correlation *forward, const float *x, const float *dy, float *scratch,
                           float *dweight, float *dbias)
{
    (void)forward, (void)x, (void)dy, (void)scratch, (void)dweight, (void)dbias;
}

#endif
