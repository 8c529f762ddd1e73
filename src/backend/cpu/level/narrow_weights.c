/* The gradient of the weights of narrow convolutions (narrow.c).
 *
 * With the image as (rows, columns, channels), the C * KW taps of one kernel row are contiguous:
 * lanes are taps here, and each position of dy is broadcast. A stream is one such vector: kernel
 * row i, lanes from v * LANES on. */
#include <omp.h>
#include <string.h>

#include "backend/cpu/level/narrow_level.h"

enum { ROW_TILE_OUTPUTS = 6, ROW_TILE_STREAMS = REGISTERS == 32 ? 4 : 2 };

typedef struct accumulation {
    const float *image; /* padded, channels last */
    int64_t row;        /* floats in a row of it */
    int64_t channels;
    const float *dy; /* (outputs, out_height, out_width) */
    int64_t dy_plane, out_height, out_width;
} accumulation;

/* sums[o][s] += over positions dy[o] * stream s, for O outputs and S streams, which are constants
 * once inlined. */
INLINE void accumulate_tile(const accumulation *a, const float *dy, const int64_t *streams, float *sums,
                            int64_t output_stride, const int O, const int S)
{
    vector sum[ROW_TILE_OUTPUTS][ROW_TILE_STREAMS];
#pragma GCC unroll 6
    for (int o = 0; o < O; o++) {
#pragma GCC unroll 4
        for (int s = 0; s < S; s++)
            sum[o][s] = load(sums + o * output_stride + s * LANES);
    }
    for (int64_t r = 0; r < a->out_height; r++) {
        const float *image = a->image + r * a->row, *gradient = dy + r * a->out_width;
        for (int64_t w = 0; w < a->out_width; w++) {
            vector x[ROW_TILE_STREAMS];
#pragma GCC unroll 4
            for (int s = 0; s < S; s++)
                x[s] = load(image + streams[s]);
#pragma GCC unroll 6
            for (int o = 0; o < O; o++) {
                const vector g = broadcast(gradient[o * a->dy_plane]);
#pragma GCC unroll 4
                for (int s = 0; s < S; s++)
                    sum[o][s] = multiply_add(g, x[s], sum[o][s]);
            }
            image += a->channels;
            gradient++;
        }
    }
#pragma GCC unroll 6
    for (int o = 0; o < O; o++) {
#pragma GCC unroll 4
        for (int s = 0; s < S; s++)
            store(sums + o * output_stride + s * LANES, sum[o][s]);
    }
}

typedef void accumulate_function(const accumulation *, const float *dy, const int64_t *streams, float *sums,
                                 int64_t stride);

#define ACCUMULATE(O, S)                                                                                               \
    static void accumulate_##O##_##S(const accumulation *a, const float *dy, const int64_t *streams, float *sums,      \
                                     int64_t stride)                                                                   \
    {                                                                                                                  \
        accumulate_tile(a, dy, streams, sums, stride, O, S);                                                           \
    }
#if REGISTERS == 32
#define ACCUMULATE_ROW(O) ACCUMULATE(O, 1) ACCUMULATE(O, 2) ACCUMULATE(O, 3) ACCUMULATE(O, 4)
#define ACCUMULATE_NAMES(O)                                                                                            \
    {                                                                                                                  \
        accumulate_##O##_1, accumulate_##O##_2, accumulate_##O##_3, accumulate_##O##_4                                 \
    }
#else
#define ACCUMULATE_ROW(O) ACCUMULATE(O, 1) ACCUMULATE(O, 2)
#define ACCUMULATE_NAMES(O)                                                                                            \
    {                                                                                                                  \
        accumulate_##O##_1, accumulate_##O##_2                                                                         \
    }
#endif
/* clang-format off */
ACCUMULATE_ROW(1) ACCUMULATE_ROW(2) ACCUMULATE_ROW(3) ACCUMULATE_ROW(4) ACCUMULATE_ROW(5) ACCUMULATE_ROW(6)

static accumulate_function *const accumulate[ROW_TILE_OUTPUTS][ROW_TILE_STREAMS] = {
    ACCUMULATE_NAMES(1), ACCUMULATE_NAMES(2), ACCUMULATE_NAMES(3),
    ACCUMULATE_NAMES(4), ACCUMULATE_NAMES(5), ACCUMULATE_NAMES(6)};
/* clang-format on */

/* Vectors in one kernel row's taps. */
static inline int64_t row_vectors(const narrow *n)
{
    return (n->kernel_w * n->channels + LANES - 1) / LANES;
}

/* Adds one image to `sums` [o][i][v][LANES]. */
static void accumulate_image(const narrow *n, const accumulation *a, float *sums)
{
    const int64_t vectors = row_vectors(n), stream_count = n->kernel_h * vectors;
    const int64_t output_tile = tile_size(n->outputs, ROW_TILE_OUTPUTS),
                  stream_tile = tile_size(stream_count, ROW_TILE_STREAMS);
    int64_t streams[NARROW_MAX_KERNEL * NARROW_MAX_KERNEL * NARROW_MAX_CHANNELS / LANES];
    for (int64_t i = 0; i < n->kernel_h; i++) {
        for (int64_t v = 0; v < vectors; v++)
            streams[i * vectors + v] = i * a->row + v * LANES;
    }
    for (int64_t o = 0; o < n->outputs; o += output_tile) {
        const int64_t outputs = smaller(n->outputs - o, output_tile);
        for (int64_t s = 0; s < stream_count; s += stream_tile) {
            const int64_t count = smaller(stream_count - s, stream_tile);
            accumulate[outputs - 1][count - 1](a, a->dy + o * a->dy_plane, streams + s,
                                               sums + (o * stream_count + s) * LANES, stream_count * LANES);
        }
    }
}

/* (C, H, W) to padded (H, W, C). */
static void copy_channels_last(const narrow *n, const float *image, float *copy)
{
    const int64_t row = (n->width + 2 * n->padding_w) * n->channels;
    if (n->padding_h || n->padding_w)
        memset(copy, 0, (size_t)((n->height + 2 * n->padding_h) * row) * sizeof *copy);
    for (int64_t h = 0; h < n->height; h++) {
        float *to = copy + (h + n->padding_h) * row + n->padding_w * n->channels;
        for (int64_t c = 0; c < n->channels; c++) {
            const float *from = image + (c * n->height + h) * n->width;
            for (int64_t w = 0; w < n->width; w++)
                to[w * n->channels + c] = from[w];
        }
    }
}

static inline int64_t channels_last_floats(const narrow *n)
{
    return (n->height + 2 * n->padding_h) * (n->width + 2 * n->padding_w) * n->channels +
           LANES; /* the last vectors may read past the end */
}

static inline int64_t sum_floats_of(const narrow *n)
{
    return n->outputs * n->kernel_h * row_vectors(n) * LANES + NARROW_MAX_CHANNELS; /* the last are for the biases */
}

static float sum_plane(const float *values, int64_t count)
{
    vector sum = {0};
    for (int64_t at = 0; at < count; at += LANES)
        sum += load_part(values + at, count - at);
    return sum_lanes(sum);
}

int64_t AT_LEVEL(narrow_grad_weights_floats)(const narrow *n, int threads)
{
    return threads * (sum_floats_of(n) + channels_last_floats(n));
}

/* Each thread sums its images; the threads' sums are added in order. */
void AT_LEVEL(narrow_grad_weights)(const narrow *n, const float *x, const float *dy, int threads, float *scratch,
                                   float *dweight, float *dbias)
{
    const int64_t dy_plane = n->out_height * n->out_width, vectors = row_vectors(n);
    const int64_t sum_floats = sum_floats_of(n), each = sum_floats + channels_last_floats(n);
    threads = (int)smaller(threads, n->batch);
#pragma omp parallel for schedule(static, 1) num_threads(threads)
    for (int t = 0; t < threads; t++) {
        float *sums = scratch + t * each, *biases = sums + sum_floats - NARROW_MAX_CHANNELS, *copy = sums + sum_floats;
        memset(sums, 0, (size_t)each * sizeof *sums);
        for (int64_t i = n->batch * t / threads; i < n->batch * (t + 1) / threads; i++) {
            const accumulation a = {.image = copy,
                                    .row = (n->width + 2 * n->padding_w) * n->channels,
                                    .channels = n->channels,
                                    .dy = dy + i * n->outputs * dy_plane,
                                    .dy_plane = dy_plane,
                                    .out_height = n->out_height,
                                    .out_width = n->out_width};
            copy_channels_last(n, x + i * n->channels * n->height * n->width, copy);
            accumulate_image(n, &a, sums);
            for (int64_t o = 0; dbias && o < n->outputs; o++)
                biases[o] += sum_plane(a.dy + o * dy_plane, dy_plane);
        }
    }
    /* [o][i][j][c] of every thread to [o][c][i][j]. */
    for (int64_t o = 0; o < n->outputs; o++) {
        for (int64_t c = 0; c < n->channels; c++) {
            for (int64_t i = 0; i < n->kernel_h; i++) {
                for (int64_t j = 0; j < n->kernel_w; j++) {
                    const float *sum = scratch + (o * n->kernel_h + i) * vectors * LANES + j * n->channels + c;
                    float total = 0;
                    for (int t = 0; t < threads; t++)
                        total += sum[t * each];
                    dweight[((o * n->channels + c) * n->kernel_h + i) * n->kernel_w + j] = total;
                }
            }
        }
        float bias = 0;
        for (int t = 0; t < threads; t++)
            bias += scratch[t * each + sum_floats - NARROW_MAX_CHANNELS + o];
        if (dbias)
            dbias[o] = bias;
    }
}
