/* Convolutions of few channels (at most 16 on both sides, stride 1, f32) in AVX-512, on plain layouts.
 *
 * oneDNN's kernels put channels into vector lanes: with 3 or 6 of 16 lanes filled most of the work is padding, and
 * every neighbour pays for padded tensors. Here lanes are neighbouring columns of a row, and an image stays (C, H, W).
 * Measured on one Zen 4 core, 64 images, oneDNN's time over this one's (bench/RESULTS.md): 3 to 6 channels 5×5 on
 * 32×32: 2.3 forward, 2.2 grad_weights; 6 to 16 channels 5×5 on 14×14: 1.4 grad_input, 1.4 grad_weights.
 *
 * Two loops do all three passes. `correlate` gives out[m][r][w] = sum over k, i, j of in[k][r+i][w+j] *
 * weight[k][i][j][m]: forward it runs over x, for grad_input over dy with the kernel turned around; rows outside the
 * image are skipped, and columns outside are zeros in a padded copy, made only if there are any. `accumulate` gives
 * dw[o][c][i][j] = sum over r, w of dy[o][r][w] * x[c][r+i][w+j] from a copy of the image with channels last. */
#include "backend/cpu/narrow.h"

#if defined(__x86_64__) && !defined(__clang__)

#include <immintrin.h>
#include <omp.h>
#include <string.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,fma")
#pragma GCC optimize("O3")

enum { LANES = 16, MAX_CHANNELS = NARROW_MAX_CHANNELS, MAX_KERNEL = NARROW_MAX_KERNEL };

/* An image whose rows can be read from `before` columns left of the first, zeros outside. */
typedef struct padded {
    const float *origin; /* row 0, column -before */
    int64_t row, plane;  /* strides */
} padded;

static padded pad_columns(const float *image, int64_t planes, int64_t height, int64_t width, int64_t before,
                          float *copy)
{
    if (before == 0)
        return (padded){image, width, height * width};
    int64_t row = width + 2 * before;
    for (int64_t r = 0; r < planes * height; r++) {
        memset(copy + r * row, 0, (size_t)before * sizeof *copy);
        memcpy(copy + r * row + before, image + r * width, (size_t)width * sizeof *copy);
        memset(copy + r * row + before + width, 0, (size_t)before * sizeof *copy);
    }
    return (padded){copy, row, height * row};
}

typedef struct correlation {
    padded in;
    int64_t in_planes, in_height;
    const float *weight; /* [in_planes][kernel_h][kernel_w][outputs] */
    int64_t kernel_h, kernel_w;
    int64_t first_row; /* input row of output row 0, kernel row 0: minus the padding */
    const float *bias; /* or NULL */
    bool relu;
    float *out;
    int64_t outputs, out_height, out_width;
} correlation;

/* One row of all M outputs, V vectors of columns from `column` on. M and V are constants where this is inlined. */
static inline __attribute__((always_inline)) void correlate_row(const correlation *c, int64_t r, int64_t column,
                                                                __mmask16 last, const int M, const int V)
{
    __m512 sum[MAX_CHANNELS * 2];
    for (int m = 0; m < M; m++) {
        for (int v = 0; v < V; v++)
            sum[m * V + v] = _mm512_set1_ps(c->bias ? c->bias[m] : 0);
    }
    const int64_t top = r + c->first_row;
    const int64_t begin = top < 0 ? -top : 0;
    const int64_t end = c->in_height - top < c->kernel_h ? c->in_height - top : c->kernel_h;
    for (int64_t k = 0; k < c->in_planes; k++) {
        for (int64_t i = begin; i < end; i++) {
            const float *row = c->in.origin + k * c->in.plane + (top + i) * c->in.row + column;
            const float *weight = c->weight + (k * c->kernel_h + i) * c->kernel_w * M;
            for (int64_t j = 0; j < c->kernel_w; j++) {
                __m512 x[2];
                for (int v = 0; v < V; v++)
                    x[v] = v == V - 1 ? _mm512_maskz_loadu_ps(last, row + j + v * LANES)
                                      : _mm512_loadu_ps(row + j + v * LANES);
                for (int m = 0; m < M; m++) {
                    __m512 w = _mm512_set1_ps(weight[j * M + m]);
                    for (int v = 0; v < V; v++)
                        sum[m * V + v] = _mm512_fmadd_ps(x[v], w, sum[m * V + v]);
                }
            }
        }
    }
    for (int m = 0; m < M; m++) {
        float *out = c->out + (m * c->out_height + r) * c->out_width + column;
        for (int v = 0; v < V; v++) {
            __m512 s = sum[m * V + v];
            if (c->relu) /* max(0, NaN) is NaN in this order */
                s = _mm512_max_ps(_mm512_setzero_ps(), s);
            _mm512_mask_storeu_ps(out + v * LANES, v == V - 1 ? last : (__mmask16)0xffff, s);
        }
    }
}

static inline __attribute__((always_inline)) void correlate_rows(const correlation *c, const int M)
{
    for (int64_t r = 0; r < c->out_height; r++) {
        int64_t column = 0;
        for (int64_t left = c->out_width; left > 0;) {
            /* Two vectors at once share each weight, if the sums fit the registers. */
            int64_t take =
                M <= 12 && left > LANES ? (left < 2 * LANES ? left : 2 * LANES) : (left < LANES ? left : LANES);
            __mmask16 last = (__mmask16)(0xffffu >> ((LANES - take % LANES) % LANES));
            if (take > LANES)
                correlate_row(c, r, column, last, M, 2);
            else
                correlate_row(c, r, column, last, M, 1);
            column += take;
            left -= take;
        }
    }
}

#define CORRELATE(M)                                                                                                   \
    static void correlate_##M(const correlation *c)                                                                    \
    {                                                                                                                  \
        correlate_rows(c, M);                                                                                          \
    }
/* clang-format off */
CORRELATE(1) CORRELATE(2) CORRELATE(3) CORRELATE(4) CORRELATE(5) CORRELATE(6) CORRELATE(7) CORRELATE(8)
CORRELATE(9) CORRELATE(10) CORRELATE(11) CORRELATE(12) CORRELATE(13) CORRELATE(14) CORRELATE(15) CORRELATE(16)
    /* clang-format on */

    static void (*const correlate[MAX_CHANNELS + 1])(const correlation *) = {
        NULL,         correlate_1,  correlate_2,  correlate_3,  correlate_4,  correlate_5,
        correlate_6,  correlate_7,  correlate_8,  correlate_9,  correlate_10, correlate_11,
        correlate_12, correlate_13, correlate_14, correlate_15, correlate_16};

/* ---- gradient of the weights ----
 *
 * With the image as (rows, columns, channels), the C * KW taps of one kernel row lie side by side in memory: lanes are
 * taps here, and each position of dy is broadcast. A stream is one such vector: kernel row i, lanes from v * 16 on. */

enum { MAX_TILE_OUTPUTS = 6, MAX_TILE_STREAMS = 5 };

typedef struct accumulation {
    const float *image; /* padded, channels last */
    int64_t row;        /* floats in a row of it */
    int64_t channels;
    const float *dy; /* (outputs, out_height, out_width) */
    int64_t dy_plane, out_height, out_width;
} accumulation;

/* sums[o][s] += over positions dy[o] * stream s: O outputs, S streams, constants where inlined. */
static inline __attribute__((always_inline)) void accumulate_tile(const accumulation *a, const float *dy,
                                                                  const int64_t *streams, float *sums,
                                                                  int64_t output_stride, const int O, const int S)
{
    __m512 sum[MAX_TILE_OUTPUTS * MAX_TILE_STREAMS];
    for (int o = 0; o < O; o++) {
        for (int s = 0; s < S; s++)
            sum[o * S + s] = _mm512_loadu_ps(sums + o * output_stride + s * LANES);
    }
    for (int64_t r = 0; r < a->out_height; r++) {
        const float *image = a->image + r * a->row;
        const float *gradient = dy + r * a->out_width;
        for (int64_t w = 0; w < a->out_width; w++) {
            for (int s = 0; s < S; s++) {
                __m512 x = _mm512_loadu_ps(image + streams[s]);
                for (int o = 0; o < O; o++)
                    sum[o * S + s] = _mm512_fmadd_ps(_mm512_set1_ps(gradient[o * a->dy_plane]), x, sum[o * S + s]);
            }
            image += a->channels;
            gradient++;
        }
    }
    for (int o = 0; o < O; o++) {
        for (int s = 0; s < S; s++)
            _mm512_storeu_ps(sums + o * output_stride + s * LANES, sum[o * S + s]);
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
#define ACCUMULATE_ROW(O) ACCUMULATE(O, 1) ACCUMULATE(O, 2) ACCUMULATE(O, 3) ACCUMULATE(O, 4) ACCUMULATE(O, 5)
/* clang-format off */
ACCUMULATE_ROW(1) ACCUMULATE_ROW(2) ACCUMULATE_ROW(3) ACCUMULATE_ROW(4) ACCUMULATE_ROW(5) ACCUMULATE_ROW(6)
/* clang-format on */
#define ACCUMULATE_NAMES(O)                                                                                            \
    {                                                                                                                  \
        NULL, accumulate_##O##_1, accumulate_##O##_2, accumulate_##O##_3, accumulate_##O##_4, accumulate_##O##_5       \
    }

    static accumulate_function *const accumulate[MAX_TILE_OUTPUTS + 1][MAX_TILE_STREAMS + 1] = {{NULL},
                                                                                                ACCUMULATE_NAMES(1),
                                                                                                ACCUMULATE_NAMES(2),
                                                                                                ACCUMULATE_NAMES(3),
                                                                                                ACCUMULATE_NAMES(4),
                                                                                                ACCUMULATE_NAMES(5),
                                                                                                ACCUMULATE_NAMES(6)};

static inline int64_t tile_size(int64_t count, int64_t most)
{
    int64_t tiles = (count + most - 1) / most;
    return (count + tiles - 1) / tiles;
}

/* Vectors in one kernel row's taps. */
static inline int64_t row_vectors(const narrow *n)
{
    return (n->kernel_w * n->channels + LANES - 1) / LANES;
}

/* Adds one image to `sums` [o][i][v][LANES]. */
static void accumulate_image(const narrow *n, const accumulation *a, float *sums)
{
    const int64_t vectors = row_vectors(n), stream_count = n->kernel_h * vectors;
    const int64_t output_tile = tile_size(n->outputs, MAX_TILE_OUTPUTS),
                  stream_tile = tile_size(stream_count, MAX_TILE_STREAMS);
    int64_t streams[MAX_KERNEL * MAX_KERNEL]; /* at most 7 rows of 7 * 16 / 16 vectors */
    for (int64_t i = 0; i < n->kernel_h; i++) {
        for (int64_t v = 0; v < vectors; v++)
            streams[i * vectors + v] = i * a->row + v * LANES;
    }
    for (int64_t o = 0; o < n->outputs; o += output_tile) {
        const int64_t outputs = n->outputs - o < output_tile ? n->outputs - o : output_tile;
        for (int64_t s = 0; s < stream_count; s += stream_tile) {
            const int64_t count = stream_count - s < stream_tile ? stream_count - s : stream_tile;
            accumulate[outputs][count](a, a->dy + o * a->dy_plane, streams + s, sums + (o * stream_count + s) * LANES,
                                       stream_count * LANES);
        }
    }
}

/* (C, H, W) to padded (H, W, C). */
static void turn_channels_last(const narrow *n, const float *image, float *copy)
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
           LANES; /* vectors may read on */
}

static inline int64_t sum_floats_of(const narrow *n)
{
    return n->outputs * n->kernel_h * row_vectors(n) * LANES + LANES; /* the last ones for the biases */
}

static float sum_plane(const float *values, int64_t count)
{
    __m512 sum = _mm512_setzero_ps();
    for (int64_t at = 0; at < count; at += LANES) {
        int64_t left = count - at;
        sum = _mm512_add_ps(
            sum, _mm512_maskz_loadu_ps(left >= LANES ? (__mmask16)0xffff : (__mmask16)((1u << left) - 1), values + at));
    }
    return _mm512_reduce_add_ps(sum);
}

/* ---- the passes ---- */

/* Floats of an image with its columns padded. */
static int64_t padded_floats(const narrow *n)
{
    return n->channels * n->height * (n->width + 2 * n->padding_w) + LANES;
}

static int64_t weight_floats(const narrow *n)
{
    return n->outputs * n->channels * n->kernel_h * n->kernel_w;
}

int64_t narrow_forward_floats(const narrow *n, int threads)
{
    return weight_floats(n) + threads * padded_floats(n);
}

void narrow_forward(const narrow *n, const float *x, const float *weight, const float *bias, float *scratch, float *y)
{
    const int64_t taps = n->channels * n->kernel_h * n->kernel_w;
    float *turned = scratch; /* [c][i][j][o] */
    float *copies = scratch + taps * n->outputs;
    for (int64_t o = 0; o < n->outputs; o++) {
        for (int64_t t = 0; t < taps; t++)
            turned[t * n->outputs + o] = weight[o * taps + t];
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n->batch; i++) {
        const correlation c = {.in = pad_columns(x + i * n->channels * n->height * n->width, n->channels, n->height,
                                                 n->width, n->padding_w,
                                                 copies + omp_get_thread_num() * padded_floats(n)),
                               .in_planes = n->channels,
                               .in_height = n->height,
                               .weight = turned,
                               .kernel_h = n->kernel_h,
                               .kernel_w = n->kernel_w,
                               .first_row = -n->padding_h,
                               .bias = bias,
                               .relu = n->relu,
                               .out = y + i * n->outputs * n->out_height * n->out_width,
                               .outputs = n->outputs,
                               .out_height = n->out_height,
                               .out_width = n->out_width};
        correlate[n->outputs](&c);
    }
}

/* Columns of zeros on either side of dy. */
static int64_t columns_before(const narrow *n)
{
    return n->kernel_w - 1 - n->padding_w;
}

static int64_t padded_gradient_floats(const narrow *n)
{
    return n->outputs * n->out_height * (n->out_width + 2 * columns_before(n)) + LANES;
}

int64_t narrow_grad_input_floats(const narrow *n, int threads)
{
    return weight_floats(n) + threads * padded_gradient_floats(n);
}

/* dy is read as an image padded by kernel - 1 - padding, the kernel turned around. */
void narrow_grad_input(const narrow *n, const float *dy, const float *weight, float *scratch, float *dx)
{
    float *turned = scratch; /* [o][i][j][c] */
    float *copies = scratch + n->outputs * n->channels * n->kernel_h * n->kernel_w;
    for (int64_t o = 0; o < n->outputs; o++) {
        for (int64_t c = 0; c < n->channels; c++) {
            for (int64_t i = 0; i < n->kernel_h; i++) {
                for (int64_t j = 0; j < n->kernel_w; j++)
                    turned[((o * n->kernel_h + i) * n->kernel_w + j) * n->channels + c] =
                        weight[((o * n->channels + c) * n->kernel_h + n->kernel_h - 1 - i) * n->kernel_w + n->kernel_w -
                               1 - j];
            }
        }
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n->batch; i++) {
        const correlation c = {.in = pad_columns(dy + i * n->outputs * n->out_height * n->out_width, n->outputs,
                                                 n->out_height, n->out_width, columns_before(n),
                                                 copies + omp_get_thread_num() * padded_gradient_floats(n)),
                               .in_planes = n->outputs,
                               .in_height = n->out_height,
                               .weight = turned,
                               .kernel_h = n->kernel_h,
                               .kernel_w = n->kernel_w,
                               .first_row = -(n->kernel_h - 1 - n->padding_h),
                               .out = dx + i * n->channels * n->height * n->width,
                               .outputs = n->channels,
                               .out_height = n->height,
                               .out_width = n->width};
        correlate[n->channels](&c);
    }
}

int64_t narrow_grad_weights_floats(const narrow *n, int threads)
{
    return threads * (sum_floats_of(n) + channels_last_floats(n));
}

/* Each thread sums its images; the threads' sums are added in order. */
void narrow_grad_weights(const narrow *n, const float *x, const float *dy, float *scratch, float *dweight, float *dbias)
{
    const int64_t dy_plane = n->out_height * n->out_width, vectors = row_vectors(n);
    const int64_t sum_floats = sum_floats_of(n), each = sum_floats + channels_last_floats(n);
    const int threads = omp_get_max_threads() < n->batch ? omp_get_max_threads() : (int)n->batch;
#pragma omp parallel for schedule(static, 1) num_threads(threads)
    for (int t = 0; t < threads; t++) {
        float *sums = scratch + t * each, *biases = sums + sum_floats - LANES, *copy = sums + sum_floats;
        memset(sums, 0, (size_t)each * sizeof *sums);
        for (int64_t i = n->batch * t / threads; i < n->batch * (t + 1) / threads; i++) {
            const accumulation a = {.image = copy,
                                    .row = (n->width + 2 * n->padding_w) * n->channels,
                                    .channels = n->channels,
                                    .dy = dy + i * n->outputs * dy_plane,
                                    .dy_plane = dy_plane,
                                    .out_height = n->out_height,
                                    .out_width = n->out_width};
            turn_channels_last(n, x + i * n->channels * n->height * n->width, copy);
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
            bias += scratch[t * each + sum_floats - LANES + o];
        if (dbias)
            dbias[o] = bias;
    }
}

#pragma GCC pop_options

bool narrow_is_supported(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

#else

bool narrow_is_supported(void)
{
    return false;
}

int64_t narrow_forward_floats(const narrow *n, int threads)
{
    (void)n, (void)threads;
    return 0;
}

int64_t narrow_grad_input_floats(const narrow *n, int threads)
{
    (void)n, (void)threads;
    return 0;
}

int64_t narrow_grad_weights_floats(const narrow *n, int threads)
{
    (void)n, (void)threads;
    return 0;
}

void narrow_forward(const narrow *n, const float *x, const float *weight, const float *bias, float *scratch, float *y)
{
    (void)n, (void)x, (void)weight, (void)bias, (void)scratch, (void)y;
}

void narrow_grad_input(const narrow *n, const float *dy, const float *weight, float *scratch, float *dx)
{
    (void)n, (void)dy, (void)weight, (void)scratch, (void)dx;
}

void narrow_grad_weights(const narrow *n, const float *x, const float *dy, float *scratch, float *dweight, float *dbias)
{
    (void)n, (void)x, (void)dy, (void)scratch, (void)dweight, (void)dbias;
}

#endif
