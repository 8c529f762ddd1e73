/* Pixelwise convolutions: for each target pixel, and each tap of the kernel that reaches it from
 * inside the map, a product of images × channels with channels × outputs. Nothing is multiplied by
 * padding, which on small maps is most of a kernel: 3×3 on a 2×2 map has 16 such pairs of pixels
 * where a direct convolution computes 36.
 *
 *     forward        y[p]  = sum over pairs (p, q, tap) of x[q] · w[tap]
 *     grad_input     dx[q] = sum over pairs of dy[p] · w[tap]ᵀ
 *     grad_weights   dw[tap] = sum over pairs of dy[p]ᵀ · x[q]
 *
 * Products are computed in tiles of up to ROWS rows and WIDTH columns, whose sums stay in
 * registers. Operands are packed beforehand in the order in which tiles read them. Weights are
 * packed one panel of WIDTH columns per thread at a time: they come from memory once, and the panel
 * stays in the core's L2 cache. */
#include <omp.h>

#include "backend/cpu/blocked_kernels.h"
#include "backend/cpu/level/stored.h"
#include "backend/cpu/pixelwise.h"

enum { VECTORS = 2, WIDTH = VECTORS * LANES, ROWS = LANES == 16 ? 14 : 6 };

/* ---- pairs of pixels ---- */

/* A pixel of the other side, and the tap that joins it. */
typedef struct pair {
    int64_t pixel, tap;
} pair;

typedef struct pair_list {
    int count;
    pair pairs[PIXELWISE_MAX_TAPS];
} pair_list;

/* The row or column of x that output `at` reads through `tap`. */
INLINE int64_t reached(const blocked_convolution *c, int axis, int64_t at, int64_t tap)
{
    return at * c->stride[axis] - c->padding[axis] + tap * c->dilation[axis];
}

/* The pixels of x that output pixel p reads. */
static void find_inputs(const blocked_convolution *c, int64_t p, pair_list *m)
{
    m->count = 0;
    for (int64_t i = 0; i < c->kernel[0]; i++) {
        for (int64_t j = 0; j < c->kernel[1]; j++) {
            const int64_t row = reached(c, 0, p / c->out_width, i), column = reached(c, 1, p % c->out_width, j);
            if (row >= 0 && row < c->height && column >= 0 && column < c->width)
                m->pairs[m->count++] = (pair){row * c->width + column, i * c->kernel[1] + j};
        }
    }
}

/* The output along one axis that reads `at` through `tap`; -1: none. */
INLINE int64_t reader(const blocked_convolution *c, int axis, int64_t at, int64_t tap, int64_t outputs)
{
    const int64_t distance = at - reached(c, axis, 0, tap);
    return distance >= 0 && distance % c->stride[axis] == 0 && distance / c->stride[axis] < outputs
               ? distance / c->stride[axis]
               : -1;
}

/* The output pixels that read pixel q of x. */
static void find_outputs(const blocked_convolution *c, int64_t q, pair_list *m)
{
    m->count = 0;
    for (int64_t i = 0; i < c->kernel[0]; i++) {
        for (int64_t j = 0; j < c->kernel[1]; j++) {
            const int64_t row = reader(c, 0, q / c->width, i, c->out_height);
            const int64_t column = reader(c, 1, q % c->width, j, c->out_width);
            if (row >= 0 && column >= 0)
                m->pairs[m->count++] = (pair){row * c->out_width + column, i * c->kernel[1] + j};
        }
    }
}

/* ---- tiles ---- */

INLINE int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rows are divided into as few tiles as possible, of nearly equal size. */
INLINE int64_t tile_count(int64_t rows)
{
    return (rows + ROWS - 1) / ROWS;
}

INLINE int64_t tile_begin(int64_t rows, int64_t tile)
{
    return rows * tile / tile_count(rows);
}

/* sum[r][n] += sum over k of a[k][r] * b[k][n], for R rows and N vectors, which are constants once
 * inlined. */
INLINE void multiply(const float *a, const float *b, int64_t depth, vector *sum, const int R, const int N)
{
    for (int64_t k = 0; k < depth; k++) {
        vector w[VECTORS];
        for (int n = 0; n < N; n++)
            w[n] = load(b + k * N * LANES + n * LANES);
        for (int r = 0; r < R; r++) {
            const float x = a[k * R + r];
            for (int n = 0; n < N; n++)
                sum[r * N + n] += x * w[n];
        }
    }
}

/* One run of products: `depth` steps through a[] and b[]. */
typedef struct stretch {
    const float *a, *b;
} stretch;

INLINE void multiply_all(const stretch *stretches, int count, int64_t depth, bool more, float *to, const int R,
                         const int N)
{
    vector sum[ROWS * VECTORS];
    for (int i = 0; i < R * N; i++)
        sum[i] = more ? load(to + i * LANES) : broadcast(0);
    for (int s = 0; s < count; s++)
        multiply(stretches[s].a, stretches[s].b, depth, sum, R, N);
    for (int i = 0; i < R * N; i++)
        store(to + i * LANES, sum[i]);
}

/* Writes a tile's sums to to[row][n], or adds them if `more`. */
static void multiply_tile(const stretch *stretches, int count, int64_t depth, bool more, float *to, int rows,
                          int vectors)
{
#define CASE(R)                                                                                                        \
    case R:                                                                                                            \
        if (vectors == 2)                                                                                              \
            multiply_all(stretches, count, depth, more, to, R, 2);                                                     \
        else                                                                                                           \
            multiply_all(stretches, count, depth, more, to, R, 1);                                                     \
        break;
    switch (rows) {
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
        CASE(5)
        CASE(6)
#if VECTOR_BYTES == 64
        CASE(7)
        CASE(8)
        CASE(9)
        CASE(10)
        CASE(11)
        CASE(12)
        CASE(13)
        CASE(14)
#endif
    default: break;
    }
#undef CASE
}

/* ---- packing ---- */

/* spread() scatters LANES groups of `count` consecutive numbers, `distance` apart, so that the i-th
 * numbers of all groups are at to[i * stride]; gather() does the reverse. */
INLINE void spread(const float *from, int64_t distance, int64_t count, float *to, int64_t stride)
{
    int64_t i = 0;
    for (; count - i > LANES / 4; i += LANES) {
        const int64_t width = least(LANES, count - i);
        vector rows[LANES];
        for (int lane = 0; lane < LANES; lane++)
            rows[lane] = load_part(from + lane * distance + i, width);
        transpose(rows);
        for (int lane = 0; lane < width; lane++)
            store(to + (i + lane) * stride, rows[lane]);
    }
    for (; i < count; i++)
        store(to + i * stride, load_strided(from + i, distance));
}

INLINE void gather(const stored *from, int64_t at, int64_t stride, int64_t count, float *to, int64_t distance)
{
    int64_t i = 0;
    for (; count - i > LANES / 4; i += LANES) {
        const int64_t width = least(LANES, count - i);
        vector rows[LANES];
        for (int lane = 0; lane < LANES; lane++)
            rows[lane] = lane < width ? load_stored(from, at + (i + lane) * stride) : broadcast(0);
        transpose(rows);
        for (int lane = 0; lane < LANES; lane++)
            store_part(to + lane * distance + i, rows[lane], width);
    }
    for (; i < count; i++)
        store_strided(to + i, distance, load_stored(from, at + i * stride));
}

/* Packs images of `planes` channels and `pixels` pixels to to[tile][pixel][channel][image of the
 * tile]; one pixel of one tile. */
static void pack_images(const stored *from, int64_t planes, int64_t pixels, int64_t pixel, int64_t begin, int64_t rows,
                        float *to)
{
    const int64_t at = begin * planes * pixels + pixel * LANES;
    to += begin * planes * pixels + pixel * planes * rows;
    for (int64_t k = 0; k < planes; k += LANES)
        gather(from, at + k * pixels, planes * pixels, rows, to + k * rows, rows);
}

/* Packs w[(n * channels + k) * taps + tap], for `vectors` vectors of outputs n and a block of
 * channels k, to to[tap][k][n]. */
static void pack_forward_weights(const float *w, int64_t channels, int64_t taps, int64_t k, int vectors, float *to)
{
    for (int v = 0; v < vectors; v++) {
        const float *from = w + (v * LANES * channels + k) * taps;
        for (int64_t j = 0; j < LANES * taps; j += LANES) {
            vector rows[LANES];
            for (int lane = 0; lane < LANES; lane++)
                rows[lane] = load(from + lane * channels * taps + j);
            transpose(rows);
            for (int lane = 0; lane < LANES; lane++) {
                const int64_t tap = (j + lane) % taps, row = k + (j + lane) / taps;
                store(to + ((tap * channels + row) * vectors + v) * LANES, rows[lane]);
            }
        }
    }
}

/* Packs w[(k * channels + n) * taps + tap], for `vectors` vectors of channels n and a block of
 * outputs k, to to[tap][k][n]. */
static void pack_backward_weights(const float *w, int64_t channels, int64_t outputs, int64_t taps, int64_t k,
                                  int vectors, float *to)
{
    for (int64_t row = k; row < k + LANES; row++) {
        for (int v = 0; v < vectors; v++)
            spread(w + (row * channels + v * LANES) * taps, taps, taps, to + (row * vectors + v) * LANES,
                   outputs * vectors * LANES);
    }
}

/* ---- forward and grad_input ---- */

/* target[p] = sum over pairs of source[q] · w[tap]. */
typedef struct side {
    int64_t planes, pixels;
} side;

typedef struct product {
    const blocked_convolution *c;
    side source, target;
    bool backward;
    stored values;
    const float *weight, *bias; /* the bias may be NULL */
    bool relu;
    void *out;
} product;

INLINE int64_t taps_of(const blocked_convolution *c)
{
    return (int64_t)c->kernel[0] * c->kernel[1];
}

/* Panels of the target's planes; the last one may have fewer vectors. */
INLINE int64_t panel_count(int64_t planes)
{
    return (planes + WIDTH - 1) / WIDTH;
}

INLINE int panel_vectors(int64_t planes, int64_t panel)
{
    return (int)least(VECTORS, (planes - panel * WIDTH) / LANES);
}

static int64_t panel_floats(const blocked_convolution *c, int64_t depth)
{
    return taps_of(c) * depth * WIDTH;
}

static int64_t product_floats(const blocked_convolution *c, side source, int threads)
{
    return c->batch * source.planes * source.pixels + threads * panel_floats(c, source.planes);
}

static void write_rows(const product *p, const float *sums, int64_t begin, int64_t rows, int64_t pixel, int64_t plane,
                       int vectors)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int n = 0; n < vectors; n++) {
            vector v = load(sums + (r * vectors + n) * LANES);
            if (p->bias)
                v += load(p->bias + plane + n * LANES);
            if (p->relu)
                v = cut_negative(v);
            store_rounded(p->out,
                          ((begin + r) * p->target.planes + plane + n * LANES) * p->target.pixels + pixel * LANES, v,
                          p->c->bf16);
        }
    }
}

/* One target pixel and one panel, for all images. */
static void make_pixel(const product *p, const float *images, const float *weights, int64_t panel, int64_t pixel)
{
    const int64_t depth = p->source.planes, batch = p->c->batch;
    const int vectors = panel_vectors(p->target.planes, panel);
    stretch stretches[PIXELWISE_MAX_TAPS];
    float sums[ROWS * WIDTH] __attribute__((aligned(64)));
    pair_list m;
    (p->backward ? find_outputs : find_inputs)(p->c, pixel, &m);
    for (int64_t tile = 0; tile < tile_count(batch); tile++) {
        const int64_t begin = tile_begin(batch, tile), rows = tile_begin(batch, tile + 1) - begin;
        const float *a = images + begin * depth * p->source.pixels;
        for (int i = 0; i < m.count; i++)
            stretches[i] =
                (stretch){a + m.pairs[i].pixel * depth * rows, weights + m.pairs[i].tap * depth * vectors * LANES};
        multiply_tile(stretches, m.count, depth, false, sums, (int)rows, vectors);
        write_rows(p, sums, begin, rows, pixel, panel * WIDTH, vectors);
    }
}

static void pack_weights(const product *p, int64_t panel, int64_t k, float *to)
{
    const blocked_convolution *c = p->c;
    const int64_t taps = taps_of(c);
    const int vectors = panel_vectors(p->target.planes, panel);
    if (p->backward)
        pack_backward_weights(p->weight + panel * WIDTH * taps, c->channels, c->outputs, taps, k, vectors, to);
    else
        pack_forward_weights(p->weight + panel * WIDTH * c->channels * taps, c->channels, taps, k, vectors, to);
}

static void make_product(const product *p, int threads, float *scratch)
{
    const blocked_convolution *c = p->c;
    const int64_t tiles = tile_count(c->batch), panels = panel_count(p->target.planes);
    float *images = scratch, *packed = scratch + c->batch * p->source.planes * p->source.pixels;
#pragma omp parallel num_threads(threads)
    {
        const int64_t stride = panel_floats(c, p->source.planes), at_once = omp_get_num_threads();
#pragma omp for collapse(2) schedule(static)
        for (int64_t tile = 0; tile < tiles; tile++) {
            for (int64_t pixel = 0; pixel < p->source.pixels; pixel++) {
                const int64_t begin = tile_begin(c->batch, tile);
                pack_images(&p->values, p->source.planes, p->source.pixels, pixel, begin,
                            tile_begin(c->batch, tile + 1) - begin, images);
            }
        }
        for (int64_t first = 0; first < panels; first += at_once) {
            const int64_t count = least(at_once, panels - first);
#pragma omp for collapse(2) schedule(static)
            for (int64_t i = 0; i < count; i++) {
                for (int64_t k = 0; k < p->source.planes; k += LANES)
                    pack_weights(p, first + i, k, packed + i * stride);
            }
#pragma omp for collapse(2) schedule(static)
            for (int64_t i = 0; i < count; i++) {
                for (int64_t pixel = 0; pixel < p->target.pixels; pixel++)
                    make_pixel(p, images, packed + i * stride, first + i, pixel);
            }
        }
    }
}

INLINE side input_side(const blocked_convolution *c)
{
    return (side){c->channels, c->height * c->width};
}

INLINE side output_side(const blocked_convolution *c)
{
    return (side){c->outputs, c->out_height * c->out_width};
}

static int64_t forward_floats(const blocked_convolution *c, int threads)
{
    return product_floats(c, input_side(c), threads);
}

static void forward(const blocked_convolution *c, const void *x, const float *weight, const float *bias, int threads,
                    float *scratch, void *y)
{
    const product p = {.c = c,
                       .source = input_side(c),
                       .target = output_side(c),
                       .values = {x, c->bf16},
                       .weight = weight,
                       .bias = bias,
                       .relu = c->relu,
                       .out = y};
    make_product(&p, threads, scratch);
}

static int64_t grad_input_floats(const blocked_convolution *c, int threads)
{
    return product_floats(c, output_side(c), threads);
}

static void grad_input(const blocked_convolution *c, const void *dy, const float *weight, const void *added,
                       int threads, float *scratch, void *dx)
{
    (void)added;
    const product p = {.c = c,
                       .source = output_side(c),
                       .target = input_side(c),
                       .backward = true,
                       .values = {dy, c->bf16},
                       .weight = weight,
                       .out = dx};
    make_product(&p, threads, scratch);
}

/* ---- grad_weights ---- */

/* Rows are outputs, columns are channels, and the depth runs over the images. */

static int64_t grad_weights_floats(const blocked_convolution *c, int threads)
{
    return c->batch * (c->channels * c->height * c->width + c->outputs * c->out_height * c->out_width) +
           threads * taps_of(c) * ROWS * WIDTH;
}

/* Packs one pixel of x and one panel of channels to to[image][channel]. */
static void pack_columns(const blocked_convolution *c, const stored *x, int64_t panel, int64_t pixel, float *to)
{
    const int64_t pixels = c->height * c->width;
    const int vectors = panel_vectors(c->channels, panel);
    for (int64_t i = 0; i < c->batch; i++) {
        for (int n = 0; n < vectors; n++)
            store(to + (i * vectors + n) * LANES,
                  load_stored(x, (i * c->channels + panel * WIDTH + n * LANES) * pixels + pixel * LANES));
    }
}

/* Packs one pixel of dy and `rows` outputs to to[image][output]. */
static void pack_rows(const blocked_convolution *c, const stored *dy, int64_t begin, int64_t rows, int64_t pixel,
                      float *to)
{
    const int64_t pixels = c->out_height * c->out_width;
    for (int64_t i = 0; i < c->batch; i++) {
        const int64_t image = i * c->outputs * pixels + pixel * LANES;
        for (int64_t k = begin, count; k < begin + rows; k += count) {
            count = least(begin + rows - k, LANES - k % LANES);
            store_part(to + i * rows + k - begin,
                       load_stored_part(dy, image + k / LANES * LANES * pixels + k % LANES, count), count);
        }
    }
}

/* The gradients of a tile of outputs and a panel of channels; `sums` is scratch for them. */
static void make_weights(const blocked_convolution *c, const float *columns, const float *rows_packed, int64_t panel,
                         int64_t tile, float *sums, float *dweight)
{
    const int64_t taps = taps_of(c), pixels = c->height * c->width, out_pixels = c->out_height * c->out_width;
    const int64_t begin = tile_begin(c->outputs, tile), rows = tile_begin(c->outputs, tile + 1) - begin;
    const int vectors = panel_vectors(c->channels, panel);
    const float *a = rows_packed + begin * c->batch * out_pixels;
    const float *b = columns + panel * WIDTH * c->batch * pixels;
    for (int64_t tap = 0; tap < taps; tap++) {
        float *to = sums + tap * rows * vectors * LANES;
        stretch stretches[PIXELWISE_MAX_TAPS];
        int count = 0;
        bool more = false;
        for (int64_t p = 0; p < out_pixels; p++) {
            const int64_t row = reached(c, 0, p / c->out_width, tap / c->kernel[1]);
            const int64_t column = reached(c, 1, p % c->out_width, tap % c->kernel[1]);
            if (row < 0 || row >= c->height || column < 0 || column >= c->width)
                continue;
            stretches[count++] =
                (stretch){a + p * c->batch * rows, b + (row * c->width + column) * c->batch * vectors * LANES};
            if (count == PIXELWISE_MAX_TAPS) {
                multiply_tile(stretches, count, c->batch, more, to, (int)rows, vectors);
                more = true;
                count = 0;
            }
        }
        multiply_tile(stretches, count, c->batch, more, to, (int)rows, vectors);
    }
    for (int64_t r = 0; r < rows; r++) {
        float *to = dweight + ((begin + r) * c->channels + panel * WIDTH) * taps;
        const stored packed = {.numbers = sums};
        for (int n = 0; n < vectors; n++)
            gather(&packed, (r * vectors + n) * LANES, rows * vectors * LANES, taps, to + n * LANES * taps, taps);
    }
}

static void sum_bias(const blocked_convolution *c, const stored *dy, float *dbias)
{
    const int64_t pixels = c->out_height * c->out_width;
#pragma omp for schedule(static)
    for (int64_t k = 0; k < c->outputs; k += LANES) {
        vector sum = {0};
        for (int64_t i = 0; i < c->batch; i++) {
            for (int64_t p = 0; p < pixels; p++)
                sum += load_stored(dy, (i * c->outputs + k) * pixels + p * LANES);
        }
        store(dbias + k, sum);
    }
}

static void grad_weights(const blocked_convolution *c, const void *x, const void *dy, int threads, float *scratch,
                         float *dweight, float *dbias)
{
    const stored inputs = {x, c->bf16}, gradients = {dy, c->bf16};
    const int64_t pixels = c->height * c->width, out_pixels = c->out_height * c->out_width, taps = taps_of(c);
    const int64_t panels = panel_count(c->channels), tiles = tile_count(c->outputs);
    float *columns = scratch, *rows = columns + c->batch * c->channels * pixels;
    float *sums = rows + c->batch * c->outputs * out_pixels;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for collapse(2) schedule(static) nowait
        for (int64_t panel = 0; panel < panels; panel++) {
            for (int64_t q = 0; q < pixels; q++)
                pack_columns(c, &inputs, panel, q,
                             columns + panel * WIDTH * c->batch * pixels +
                                 q * c->batch * panel_vectors(c->channels, panel) * LANES);
        }
#pragma omp for collapse(2) schedule(static) nowait
        for (int64_t tile = 0; tile < tiles; tile++) {
            for (int64_t p = 0; p < out_pixels; p++) {
                const int64_t begin = tile_begin(c->outputs, tile), count = tile_begin(c->outputs, tile + 1) - begin;
                pack_rows(c, &gradients, begin, count, p, rows + begin * c->batch * out_pixels + p * c->batch * count);
            }
        }
        if (dbias)
            sum_bias(c, &gradients, dbias);
#pragma omp barrier
#pragma omp for collapse(2) schedule(static)
        for (int64_t tile = 0; tile < tiles; tile++) {
            for (int64_t panel = 0; panel < panels; panel++)
                make_weights(c, columns, rows, panel, tile, sums + omp_get_thread_num() * taps * ROWS * WIDTH, dweight);
        }
    }
}

const blocked_kernels AT_LEVEL(pixelwise) = {.forward = forward,
                                             .forward_floats = forward_floats,
                                             .grad_input = grad_input,
                                             .grad_input_floats = grad_input_floats,
                                             .grad_weights = grad_weights,
                                             .grad_weights_floats = grad_weights_floats};
