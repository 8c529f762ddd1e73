/* Convolutions in bf16 and the gradients of their inputs, as products over positions. See
 * kernels.c. */
#include <omp.h>

#include "backend/cpu/bf16/images.h"
#include "backend/cpu/bf16/kernels.h"

/* ---- weights as B ---- */

/* Weight n, channel k, tap t is at n * stride_n + k * stride_k + t. */
typedef struct weights {
    const float *values;
    int64_t columns; /* n is below this */
    int64_t stride_n, stride_k;
    int kernel_width;
} weights;

static int64_t tap_number(const images *m, const weights *w, int64_t tap)
{
    return (int64_t)m->axes[0].number[tap / m->axes[1].taps] * w->kernel_width +
           m->axes[1].number[tap % m->axes[1].taps];
}

/* Packs one tile number by number, where channels or columns do not fill it. */
static void pack_slowly(const images *m, const weights *w, int64_t depth, int64_t column, uint16_t *tile)
{
    _Alignas(LINE) float numbers[DEPTH][TILE] = {{0}};
    for (int64_t k = depth; k < smaller(depth + DEPTH, depth_of(m)); k++) {
        const float *from = w->values + k % m->channels * w->stride_k + tap_number(m, w, k / m->channels);
        for (int64_t n = column; n < smaller(column + TILE, w->columns); n++)
            numbers[k - depth][n - column] = from[n * w->stride_n];
    }
    pack_rows(numbers[0], TILE, tile);
}

/* Packs the panel of columns from `column` on. */
static void pack_panel(const images *m, const weights *w, int64_t column, uint16_t *panel)
{
    const int64_t depth = depth_of(m), tiles = tiles_of(depth), taps = m->axes[0].taps * m->axes[1].taps;
    const bool whole = m->channels % DEPTH == 0 && column + COLUMNS <= w->columns;
    _Alignas(LINE) float numbers[COLUMNS * DEPTH];
    if (!whole) {
        for (int64_t t = 0; t < 2 * tiles; t++)
            pack_slowly(m, w, t / 2 * DEPTH, column + t % 2 * TILE, panel + t * TILE_NUMBERS);
        return;
    }
    for (int64_t channel = 0; channel < m->channels; channel += DEPTH)
        for (int64_t tap = 0; tap < taps; tap++) {
            const float *from = w->values + column * w->stride_n + channel * w->stride_k + tap_number(m, w, tap);
            uint16_t *to = panel + (tap * m->channels + channel) / DEPTH * PANEL_STEP;
            for (int half = 0; half < 2; half++, from += TILE * w->stride_n, to += TILE_NUMBERS) {
                if (w->stride_k == 1) {
                    pack_columns(from, w->stride_n, to);
                } else if (w->stride_n == 1) {
                    pack_rows(from, w->stride_k, to);
                } else if (w->stride_n > w->stride_k) {
                    for (int n = 0; n < TILE; n++)
                        for (int k = 0; k < DEPTH; k++)
                            numbers[n * DEPTH + k] = from[n * w->stride_n + k * w->stride_k];
                    pack_columns(numbers, DEPTH, to);
                } else {
                    for (int k = 0; k < DEPTH; k++)
                        for (int n = 0; n < TILE; n++)
                            numbers[k * TILE + n] = from[n * w->stride_n + k * w->stride_k];
                    pack_rows(numbers, TILE, to);
                }
            }
        }
}

/* ---- products over positions ---- */

/* How threads share them: blocks of rows, and groups of panels for each. */
typedef struct division {
    int64_t rows, height, blocks; /* height: rows in a block, whole pairs of tiles */
    int64_t panels, group, groups;
} division;

static division divide(const images *m, int64_t columns, int threads)
{
    division d = {.rows = row_count(m), .panels = quotient_up(columns, COLUMNS)};
    const int64_t fitting = BLOCK_BYTES / (2 * (is_in_place(m) ? m->channels : gathered_stride(depth_of(m))));
    const int64_t most = quotient_up(d.rows, 2 * TILE);
    d.height = larger(fitting / (2 * TILE), 1) * (2 * TILE);
    d.blocks = smaller(most, larger(threads, quotient_up(d.rows, d.height)));
    if (d.blocks == 0)
        return d;
    d.height = up(quotient_up(d.rows, d.blocks), 2 * TILE);
    d.blocks = quotient_up(d.rows, d.height);
    d.groups = smaller(d.panels, quotient_up(threads, d.blocks));
    d.group = quotient_up(d.panels, d.groups);
    return d;
}

typedef struct product {
    const images *images;
    const uint16_t *source;
    const uint16_t *panels;
    int64_t columns; /* channels of the target */
    const float *bias;
    bool relu;
    uint16_t *target;
} product;

/* Computes rows [begin, end) of the target, for panels [first, last). */
static void multiply_rows(const product *p, int64_t begin, int64_t end, int64_t first, int64_t last, uint16_t *gathered)
{
    _Alignas(LINE) float c[2 * TILE * COLUMNS];
    const images *m = p->images;
    const int64_t tiles = tiles_of(depth_of(m));
    const bool in_place = is_in_place(m) && (end - begin) % TILE == 0;
    const int64_t stride = in_place ? m->channels : gathered_stride(depth_of(m));
    const uint16_t *a = in_place ? p->source + begin * stride : gathered;
    if (!in_place)
        bf16_gather(m, p->source, begin, end, stride, gathered);
    for (int64_t panel = first; panel < last; panel++) {
        const int64_t column = panel * COLUMNS, count = smaller(COLUMNS, p->columns - column);
        const bias_row bias = read_bias(p->bias ? p->bias + column : NULL, count);
        position at = position_of(m, begin);
        for (int64_t r = begin; r < end; r += 2 * TILE) {
            const uint16_t *rows = a + (r - begin) * stride;
            const a_block block = {.first = rows,
                                   .second = r + TILE < end ? rows + TILE * stride : NULL,
                                   .step = DEPTH,
                                   .stride = stride * (int64_t)sizeof *a};
            multiply_block(&block, p->panels + panel * tiles * PANEL_STEP, tiles, false, c, COLUMNS * sizeof *c);
            for (int64_t i = 0; i < smaller(2 * TILE, end - r); i++, next_position(m, &at))
                finish_row(c + i * COLUMNS, &bias, p->relu, count, p->target + target_of(m, &at) * p->columns + column);
        }
    }
}

static size_t panel_bytes(const images *m, int64_t columns)
{
    return (size_t)(tiles_of(depth_of(m)) * PANEL_STEP * quotient_up(columns, COLUMNS)) * sizeof(uint16_t);
}

static size_t gathered_bytes(const images *m, int64_t columns, int threads)
{
    return (size_t)(divide(m, columns, threads).height * gathered_stride(depth_of(m))) * sizeof(uint16_t);
}

static size_t multiply_bytes(const images *m, int64_t columns, int threads)
{
    return panel_bytes(m, columns) + (size_t)threads * gathered_bytes(m, columns, threads);
}

static void multiply(product *p, const weights *w, int threads, void *scratch)
{
    const images *m = p->images;
    const division d = divide(m, p->columns, threads);
    const int64_t step = tiles_of(depth_of(m)) * PANEL_STEP;
    uint16_t *panels = scratch;
    char *gathered = (char *)scratch + panel_bytes(m, p->columns);
    const size_t each = gathered_bytes(m, p->columns, threads);
    p->panels = panels;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < d.panels; i++)
            pack_panel(m, w, i * COLUMNS, panels + i * step);
        configure_tiles();
#pragma omp for schedule(static)
        for (int64_t i = 0; i < d.blocks * d.groups; i++) {
            const int64_t begin = i / d.groups * d.height, first = i % d.groups * d.group;
            multiply_rows(p, begin, smaller(begin + d.height, d.rows), first, smaller(first + d.group, d.panels),
                          (uint16_t *)(gathered + (size_t)omp_get_thread_num() * each));
        }
        release_tiles();
    }
}

void bf16_forward(const bf16_product *c, const uint16_t *x, const float *weight, const float *bias, int threads,
                  void *scratch, uint16_t *y)
{
    const images m = bf16_forward_images(c);
    const int64_t taps = (int64_t)c->kernel[0] * c->kernel[1];
    const weights w = {.values = weight,
                       .columns = c->outputs,
                       .stride_n = c->channels * taps,
                       .stride_k = taps,
                       .kernel_width = c->kernel[1]};
    product p = {.images = &m, .source = x, .columns = c->outputs, .bias = bias, .relu = c->relu, .target = y};
    multiply(&p, &w, threads, scratch);
}

size_t bf16_forward_bytes(const bf16_product *c, int threads)
{
    const images m = bf16_forward_images(c);
    return multiply_bytes(&m, c->outputs, threads);
}

void bf16_grad_input(const bf16_product *c, const uint16_t *dy, const float *weight, int threads, void *scratch,
                     uint16_t *dx)
{
    const int64_t taps = (int64_t)c->kernel[0] * c->kernel[1];
    const weights w = {.values = weight,
                       .columns = c->channels,
                       .stride_n = taps,
                       .stride_k = c->channels * taps,
                       .kernel_width = c->kernel[1]};
    for (int i = 0; i < c->stride[0] * c->stride[1]; i++) {
        const images m = bf16_backward_images(c, (int[2]){i / c->stride[1], i % c->stride[1]});
        product p = {.images = &m, .source = dy, .columns = c->channels, .target = dx};
        multiply(&p, &w, threads, scratch);
    }
}

size_t bf16_grad_input_bytes(const bf16_product *c, int threads)
{
    size_t most = 0;
    for (int i = 0; i < c->stride[0] * c->stride[1]; i++) {
        const images m = bf16_backward_images(c, (int[2]){i / c->stride[1], i % c->stride[1]});
        const size_t bytes = multiply_bytes(&m, c->channels, threads);
        most = bytes > most ? bytes : most;
    }
    return most;
}
