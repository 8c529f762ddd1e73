/* The gradient of the weights of a Winograd convolution (winograd_correlate.c): F(3×3, 4×4) with the same six points. 6×6 inputs
 * against 4×4 of dy, multiplied point by point and summed over all tiles before the transform back. */
#include <omp.h>
#include <string.h>

#include "backend/cpu/level/winograd_level.h"
#include "backend/cpu/level/winograd_tile.h"

/* ---- matrix products ---- */

/* d[c][o] += sum over t of v[t][c] * w[t][o], for R rows of d and N vectors of columns. */
INLINE void accumulate_tile(const float *v, const float *w, float *d, int64_t count, int64_t rows, int64_t columns,
                            const int R, const int N)
{
    vector sum[16];
    for (int r = 0; r < R; r++) {
        for (int n = 0; n < N; n++)
            sum[r * N + n] = load(d + r * columns + n * LANES);
    }
    for (int64_t t = 0; t < count; t++) {
        vector g[4];
        for (int n = 0; n < N; n++)
            g[n] = load(w + t * columns + n * LANES);
        for (int r = 0; r < R; r++) {
            const vector x = broadcast(v[t * rows + r]);
            for (int n = 0; n < N; n++)
                sum[r * N + n] = sum[r * N + n] + x * g[n];
        }
    }
    for (int r = 0; r < R; r++) {
        for (int n = 0; n < N; n++)
            store(d + r * columns + n * LANES, sum[r * N + n]);
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
        for (int64_t r = 0; r < rows; r += LANES)
            accumulate_tile(v + r, w + n, d + r * columns + n, count, rows, columns, LANES, 1);
    }
}

/* ---- gradients of the outputs ---- */

/* A tile of dy at the points, to to[point * stride]; adds the tile's numbers to `bias`. */
INLINE void transform_gradient(const window *w, const reading how, float *to, int64_t stride, float *bias)
{
    vector half[WINDOW][TILE], sum = load(bias);
    for (int j = 0; j < TILE; j++) {
        vector line[TILE], at[WINDOW];
        for (int i = 0; i < TILE; i++) {
            line[i] = read_number(w, i, j, how);
            sum += line[i];
        }
        evaluate_four(line, at);
        for (int i = 0; i < WINDOW; i++)
            half[i][j] = at[i];
    }
    store(bias, sum);
    for (int i = 0; i < WINDOW; i++) {
        vector at[WINDOW];
        evaluate_four(half[i], at);
        for (int j = 0; j < WINDOW; j++)
            store(to + (i * WINDOW + j) * stride, at[j]);
    }
}

/* The gradients of a block's tiles to to[point][tile][output]; adds them up in `biases`. */
static void transform_gradients(const winograd_images *dy, const block *tiles, const winograd_source *source, float *to,
                                float *biases)
{
    const int64_t stride = point_stride(dy->planes);
    for (int64_t t = 0; t < tiles->count; t++) {
        const place *at = &tiles->places[t];
        for (int64_t o = 0; o < dy->planes; o += LANES) {
            window w;
            float *point = to + t * dy->planes + o;
            switch (find_window(dy, source, at->image, o, at->row, at->column, TILE, &w)) {
            case INSIDE: transform_gradient(&w, INSIDE, point, stride, biases + o); break;
            case BORDER: transform_gradient(&w, BORDER, point, stride, biases + o); break;
            default: transform_gradient(&w, POOLED, point, stride, biases + o); break; /* tiles begin at even places */
            }
        }
    }
}

/* ---- all of it ---- */

static int64_t sum_floats(int64_t channels, int64_t outputs)
{
    return POINTS * channels * outputs + outputs;
}

static int64_t gradient_floats(int64_t channels, int64_t outputs)
{
    return sum_floats(channels, outputs) + POINTS * (point_stride(channels) + point_stride(outputs));
}

int64_t AT_LEVEL(winograd_grad_weights_floats)(const winograd_correlation *forward, int threads)
{
    return threads * gradient_floats(forward->in.planes, forward->out.planes);
}

/* From the sums of all threads to dweight: lanes are outputs, which lie far apart there. */
static void finish_weights(const float *sums, int64_t each, int threads, int64_t channels, int64_t outputs,
                           float *dweight, float *dbias)
{
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < outputs; o += LANES) {
        for (int64_t c = 0; c < channels; c++) {
            vector half[3][WINDOW];
            for (int j = 0; j < WINDOW; j++) {
                vector line[WINDOW], y[TILE];
                for (int i = 0; i < WINDOW; i++) {
                    const float *from = sums + ((i * WINDOW + j) * channels + c) * outputs + o;
                    line[i] = load(from);
                    for (int t = 1; t < threads; t++)
                        line[i] += load(from + t * each);
                    line[i] *= divisor(i) * divisor(j);
                }
                transform_products(line, 3, y);
                for (int i = 0; i < 3; i++)
                    half[i][j] = y[i];
            }
            for (int i = 0; i < 3; i++) {
                vector y[TILE];
                transform_products(half[i], 3, y);
                for (int j = 0; j < 3; j++)
                    store_strided(dweight + (o * channels + c) * 9 + i * 3 + j, channels * 9, y[j]);
            }
        }
    }
    for (int64_t o = 0; dbias && o < outputs; o++) {
        dbias[o] = 0;
        for (int t = 0; t < threads; t++)
            dbias[o] += sums[t * each + POINTS * channels * outputs + o];
    }
}

void AT_LEVEL(winograd_grad_weights)(const winograd_correlation *forward, const float *x, const winograd_source *dy,
                                     float *scratch, float *dweight, float *dbias)
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
            transform_block(forward, &here, &(winograd_source){.values = x}, v);
            transform_gradients(&forward->out, &here, dy, w, biases);
            for (int64_t p = 0; p < POINTS; p++)
                accumulate(v + p * point_stride(channels), w + p * point_stride(outputs), sums + p * channels * outputs,
                           here.count, channels, outputs);
        }
    }
    finish_weights(scratch, each, threads, channels, outputs, dweight, dbias);
}
