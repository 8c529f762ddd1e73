/* Narrow convolutions (narrow.c) as correlations: the forward pass, and the gradient of the
 * input. */
#include <omp.h>
#include <string.h>

#include "backend/cpu/level/narrow_level.h"

/* ---- images ---- */

/* An image whose rows can be read from `before` columns left of the first, with zeros outside.
 * Vectors may read up to LANES numbers past the last row, whatever they are. */
typedef struct padded {
    const float *origin; /* row 0, column -before */
    int64_t row, plane;  /* strides */
} padded;

/* `behind`: floats that can be read after this image, those of the following images. */
static padded pad_columns(const float *image, int64_t planes, int64_t height, int64_t width, int64_t before,
                          int64_t behind, float *copy)
{
    if (before == 0 && behind >= LANES)
        return (padded){image, width, height * width};
    const int64_t row = width + 2 * before;
    for (int64_t r = 0; r < planes * height; r++) {
        float *to = copy + r * row;
        for (int64_t i = 0; i < before; i++)
            to[i] = to[before + width + i] = 0;
        memcpy(to + before, image + r * width, (size_t)width * sizeof *copy);
    }
    return (padded){copy, row, height * row};
}

/* ---- correlations ---- */

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

/* The kernel rows that overlap the image for output row `row`. */
typedef struct kernel_rows {
    int64_t begin, end;
} kernel_rows;

static inline kernel_rows rows_inside(const correlation *c, int64_t row)
{
    const int64_t top = row + c->first_row;
    return (kernel_rows){top < 0 ? -top : 0, smaller(c->in_height - top, c->kernel_h)};
}

INLINE vector finish(const correlation *c, vector sum)
{
    return c->relu ? cut_negative(sum) : sum;
}

/* ---- lanes are columns ---- */

enum { TILE_OUTPUTS = REGISTERS == 32 ? 12 : 6 };

/* What a vector of columns reads where the kernel row is outside the image. */
static const float no_row[LANES + NARROW_MAX_KERNEL];

/* A vector: `count` columns from `column` of `row` on. Vectors are numbered through all rows of the
 * image. */
typedef struct stretch {
    int64_t row, column, count;
} stretch;

static inline stretch find_stretch(const correlation *c, int64_t number)
{
    const int64_t each = (c->out_width + LANES - 1) / LANES, column = number % each * LANES;
    return (stretch){number / each, column, smaller(c->out_width - column, LANES)};
}

/* V vectors of M outputs from `first` on. M and V are constants once inlined. */
INLINE void correlate_tile(const correlation *c, const stretch *at, int64_t first, const int M, const int V)
{
    vector sum[TILE_OUTPUTS][2];
    kernel_rows all = rows_inside(c, at[0].row), inside[2] = {all, all};
    if (V > 1) {
        inside[1] = rows_inside(c, at[1].row);
        all.begin = smaller(all.begin, inside[1].begin);
        all.end = inside[1].end > all.end ? inside[1].end : all.end;
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; m++) {
#pragma GCC unroll 2
        for (int v = 0; v < V; v++)
            sum[m][v] = broadcast(c->bias ? c->bias[first + m] : 0);
    }
    for (int64_t k = 0; k < c->in_planes; k++) {
        for (int64_t i = all.begin; i < all.end; i++) {
            const float *row[2], *weight = c->weight + (k * c->kernel_h + i) * c->kernel_w * c->outputs + first;
            for (int v = 0; v < V; v++)
                row[v] =
                    i < inside[v].begin || i >= inside[v].end
                        ? no_row
                        : c->in.origin + k * c->in.plane + (at[v].row + c->first_row + i) * c->in.row + at[v].column;
            for (int64_t j = 0; j < c->kernel_w; j++) {
                vector x[2];
#pragma GCC unroll 2
                for (int v = 0; v < V; v++)
                    x[v] = load(row[v] + j);
#pragma GCC unroll 16
                for (int m = 0; m < M; m++) {
                    const vector w = broadcast(weight[m]);
#pragma GCC unroll 2
                    for (int v = 0; v < V; v++)
                        sum[m][v] = multiply_add(x[v], w, sum[m][v]);
                }
                weight += c->outputs;
            }
        }
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; m++) {
#pragma GCC unroll 2
        for (int v = 0; v < V; v++)
            store_part(c->out + ((first + m) * c->out_height + at[v].row) * c->out_width + at[v].column,
                       finish(c, sum[m][v]), at[v].count);
    }
}

typedef void correlate_function(const correlation *c, const stretch *at, int64_t first);

#define CORRELATE(M)                                                                                                   \
    static void correlate_##M##_1(const correlation *c, const stretch *at, int64_t first)                              \
    {                                                                                                                  \
        correlate_tile(c, at, first, M, 1);                                                                            \
    }                                                                                                                  \
    static void correlate_##M##_2(const correlation *c, const stretch *at, int64_t first)                              \
    {                                                                                                                  \
        correlate_tile(c, at, first, M, 2);                                                                            \
    }
#define CORRELATE_NAMES(M)                                                                                             \
    {                                                                                                                  \
        correlate_##M##_1, correlate_##M##_2                                                                           \
    }

/* clang-format off */
CORRELATE(1) CORRELATE(2) CORRELATE(3) CORRELATE(4) CORRELATE(5) CORRELATE(6)
#if REGISTERS == 32
CORRELATE(7) CORRELATE(8) CORRELATE(9) CORRELATE(10) CORRELATE(11) CORRELATE(12)
#endif

static correlate_function *const correlate[TILE_OUTPUTS][2] = {
    CORRELATE_NAMES(1), CORRELATE_NAMES(2), CORRELATE_NAMES(3), CORRELATE_NAMES(4), CORRELATE_NAMES(5), CORRELATE_NAMES(6),
#if REGISTERS == 32
    CORRELATE_NAMES(7), CORRELATE_NAMES(8), CORRELATE_NAMES(9), CORRELATE_NAMES(10), CORRELATE_NAMES(11), CORRELATE_NAMES(12),
#endif
};
/* clang-format on */

static void correlate_columns(const correlation *c)
{
    const int64_t count = c->out_height * ((c->out_width + LANES - 1) / LANES);
    const int64_t tile = tile_size(c->outputs, TILE_OUTPUTS);
    for (int64_t i = 0; i < count; i += 2) {
        const int64_t vectors = smaller(count - i, 2);
        const stretch at[2] = {find_stretch(c, i), find_stretch(c, i + vectors - 1)};
        for (int64_t m = 0; m < c->outputs; m += tile)
            correlate[smaller(c->outputs - m, tile) - 1][vectors - 1](c, at, m);
    }
}

/* ---- lanes are outputs ---- */

enum { TILE_POSITIONS = REGISTERS == 32 ? 12 : 6 };

/* P neighbours in a row from `column` on, by N vectors of outputs from `first` on, to
 * to[position][outputs]. P and N are constants once inlined. */
INLINE void correlate_positions(const correlation *c, int64_t row, int64_t column, int64_t first, float *to,
                                const int P, const int N)
{
    vector sum[TILE_POSITIONS][2];
    const kernel_rows inside = rows_inside(c, row);
#pragma GCC unroll 2
    for (int n = 0; n < N; n++) {
#pragma GCC unroll 16
        for (int p = 0; p < P; p++)
            sum[p][n] = c->bias ? load(c->bias + first + n * LANES) : (vector){0};
    }
    for (int64_t k = 0; k < c->in_planes; k++) {
        for (int64_t i = inside.begin; i < inside.end; i++) {
            const float *x = c->in.origin + k * c->in.plane + (row + c->first_row + i) * c->in.row + column;
            const float *weight = c->weight + (k * c->kernel_h + i) * c->kernel_w * c->outputs + first;
            for (int64_t j = 0; j < c->kernel_w; j++) {
                vector w[2];
#pragma GCC unroll 2
                for (int n = 0; n < N; n++)
                    w[n] = load(weight + n * LANES);
#pragma GCC unroll 16
                for (int p = 0; p < P; p++) {
                    const vector value = broadcast(x[j + p]);
#pragma GCC unroll 2
                    for (int n = 0; n < N; n++)
                        sum[p][n] = multiply_add(value, w[n], sum[p][n]);
                }
                weight += c->outputs;
            }
        }
    }
    to += (row * c->out_width + column) * c->outputs + first;
#pragma GCC unroll 16
    for (int p = 0; p < P; p++) {
#pragma GCC unroll 2
        for (int n = 0; n < N; n++)
            store(to + p * c->outputs + n * LANES, finish(c, sum[p][n]));
    }
}

typedef void positions_function(const correlation *c, int64_t row, int64_t column, int64_t first, float *to);

#define POSITIONS(P)                                                                                                   \
    static void positions_##P##_1(const correlation *c, int64_t row, int64_t column, int64_t first, float *to)         \
    {                                                                                                                  \
        correlate_positions(c, row, column, first, to, P, 1);                                                          \
    }                                                                                                                  \
    static void positions_##P##_2(const correlation *c, int64_t row, int64_t column, int64_t first, float *to)         \
    {                                                                                                                  \
        correlate_positions(c, row, column, first, to, P, 2);                                                          \
    }
#define POSITIONS_NAMES(P)                                                                                             \
    {                                                                                                                  \
        positions_##P##_1, positions_##P##_2                                                                           \
    }

/* clang-format off */
POSITIONS(1) POSITIONS(2) POSITIONS(3) POSITIONS(4) POSITIONS(5) POSITIONS(6)
#if REGISTERS == 32
POSITIONS(7) POSITIONS(8) POSITIONS(9) POSITIONS(10) POSITIONS(11) POSITIONS(12)
#endif

static positions_function *const positions[TILE_POSITIONS][2] = {
    POSITIONS_NAMES(1), POSITIONS_NAMES(2), POSITIONS_NAMES(3), POSITIONS_NAMES(4), POSITIONS_NAMES(5), POSITIONS_NAMES(6),
#if REGISTERS == 32
    POSITIONS_NAMES(7), POSITIONS_NAMES(8), POSITIONS_NAMES(9), POSITIONS_NAMES(10), POSITIONS_NAMES(11), POSITIONS_NAMES(12),
#endif
};
/* clang-format on */

/* (count, planes) to (planes, count); planes are whole vectors. */
static void copy_planes_first(const float *from, int64_t count, int64_t planes, float *to)
{
    for (int64_t at = 0; at < count; at += LANES) {
        const int64_t left = smaller(count - at, LANES);
        for (int64_t m = 0; m < planes; m += LANES) {
            vector square[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                square[i] = i < left ? load(from + (at + i) * planes + m) : (vector){0};
            transpose(square);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                store_part(to + (m + i) * count + at, square[i], left);
        }
    }
}

/* `scratch` holds the whole result. */
static void correlate_outputs(const correlation *c, float *scratch)
{
    const int64_t tile = tile_size(c->out_width, TILE_POSITIONS);
    for (int64_t first = 0; first < c->outputs; first += 2 * LANES) {
        const int64_t vectors = smaller((c->outputs - first) / LANES, 2);
        for (int64_t row = 0; row < c->out_height; row++) {
            for (int64_t column = 0; column < c->out_width; column += tile)
                positions[smaller(c->out_width - column, tile) - 1][vectors - 1](c, row, column, first, scratch);
        }
    }
    copy_planes_first(scratch, c->out_height * c->out_width, c->outputs, c->out);
}

/* ---- correlations of a batch ---- */

static inline int64_t padded_floats(int64_t planes, int64_t height, int64_t width, int64_t before)
{
    return planes * height * (width + 2 * before) + LANES;
}

static inline bool lanes_are_outputs(int64_t outputs, int64_t out_width)
{
    return outputs % LANES == 0 && out_width % LANES != 0;
}

/* A thread's scratch. */
static inline int64_t correlation_floats(const correlation *c, int64_t in_width, int64_t before)
{
    return padded_floats(c->in_planes, c->in_height, in_width, before) +
           (lanes_are_outputs(c->outputs, c->out_width) ? c->outputs * c->out_height * c->out_width : 0);
}

/* `like` lacks only the images. `in` is padded by `before` columns of zeros on both sides. */
static void correlate_batch(const correlation *like, int64_t batch, const float *in, int64_t in_width, int64_t before,
                            float *scratch, float *out)
{
    const int64_t each = correlation_floats(like, in_width, before);
    const int64_t in_floats = like->in_planes * like->in_height * in_width,
                  out_floats = like->outputs * like->out_height * like->out_width;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < batch; i++) {
        float *copy = scratch + omp_get_thread_num() * each;
        correlation c = *like;
        c.in = pad_columns(in + i * in_floats, c.in_planes, c.in_height, in_width, before, (batch - 1 - i) * in_floats,
                           copy);
        c.out = out + i * out_floats;
        if (lanes_are_outputs(c.outputs, c.out_width))
            correlate_outputs(&c, copy + padded_floats(c.in_planes, c.in_height, in_width, before));
        else
            correlate_columns(&c);
    }
}

static inline int64_t weight_floats(const narrow *n)
{
    return n->outputs * n->channels * n->kernel_h * n->kernel_w;
}

static inline correlation forward_correlation(const narrow *n)
{
    return (correlation){.in_planes = n->channels,
                         .in_height = n->height,
                         .kernel_h = n->kernel_h,
                         .kernel_w = n->kernel_w,
                         .first_row = -n->padding_h,
                         .relu = n->relu,
                         .outputs = n->outputs,
                         .out_height = n->out_height,
                         .out_width = n->out_width};
}

int64_t AT_LEVEL(narrow_forward_floats)(const narrow *n, int threads)
{
    const correlation c = forward_correlation(n);
    return weight_floats(n) + threads * correlation_floats(&c, n->width, n->padding_w);
}

void AT_LEVEL(narrow_forward)(const narrow *n, const float *x, const float *weight, const float *bias, float *scratch,
                              float *y)
{
    const int64_t taps = n->channels * n->kernel_h * n->kernel_w;
    float *transposed = scratch; /* [c][i][j][o] */
    for (int64_t o = 0; o < n->outputs; o++) {
        for (int64_t t = 0; t < taps; t++)
            transposed[t * n->outputs + o] = weight[o * taps + t];
    }
    correlation c = forward_correlation(n);
    c.weight = transposed;
    c.bias = bias;
    correlate_batch(&c, n->batch, x, n->width, n->padding_w, scratch + weight_floats(n), y);
}

/* dy is read as an image padded by kernel - 1 - padding, with the kernel rotated by 180°. */
static inline correlation backward_correlation(const narrow *n)
{
    return (correlation){.in_planes = n->outputs,
                         .in_height = n->out_height,
                         .kernel_h = n->kernel_h,
                         .kernel_w = n->kernel_w,
                         .first_row = -(n->kernel_h - 1 - n->padding_h),
                         .outputs = n->channels,
                         .out_height = n->height,
                         .out_width = n->width};
}

static inline int64_t columns_before(const narrow *n)
{
    return n->kernel_w - 1 - n->padding_w;
}

int64_t AT_LEVEL(narrow_grad_input_floats)(const narrow *n, int threads)
{
    const correlation c = backward_correlation(n);
    return weight_floats(n) + threads * correlation_floats(&c, n->out_width, columns_before(n));
}

void AT_LEVEL(narrow_grad_input)(const narrow *n, const float *dy, const float *weight, float *scratch, float *dx)
{
    float *rotated = scratch; /* [o][i][j][c] */
    for (int64_t o = 0; o < n->outputs; o++) {
        for (int64_t c = 0; c < n->channels; c++) {
            for (int64_t i = 0; i < n->kernel_h; i++) {
                for (int64_t j = 0; j < n->kernel_w; j++)
                    rotated[((o * n->kernel_h + i) * n->kernel_w + j) * n->channels + c] =
                        weight[((o * n->channels + c) * n->kernel_h + n->kernel_h - 1 - i) * n->kernel_w + n->kernel_w -
                               1 - j];
            }
        }
    }
    correlation c = backward_correlation(n);
    c.weight = rotated;
    correlate_batch(&c, n->batch, dy, n->out_width, columns_before(n), scratch + weight_floats(n), dx);
}
