/* Convolutions in bf16 with sums in f32 as products of matrices (vector/tiles.h): forward, the gradient of the input and that
 * of the weights.
 *
 * A row of A is a position of the map that is written; the depth runs over the taps of the kernel and the channels of each. Images
 * have their channels last, so that a row consists of runs of memory: they are gathered for a block of positions that the cache
 * holds, or read where they lie if the kernel has one tap. The gradient of the input is such a product too. With a stride, only every
 * so many taps meet a given position: positions are taken in phases, one for each remainder, whose taps are the same.
 *
 * For the gradient of the weights the depth runs over positions, of which a block at a time is packed: dy turned around, as many
 * outputs as the cache holds, and x for each tap, a panel at a time. Sums are kept in f32 from block to block, with one tap in the
 * gradient itself.
 *
 * Weights are read from the flat vector in f32 and packed by each product for itself: no copy of them lives from one step to the
 * next. oneDNN can do all this too, but not on AMX in virtual machines that hide the CPUID leaf with the sizes of the tiles (cpu.c). */
#include <omp.h>
#include <string.h>

#include "backend/cpu/bf16.h"
#include "backend/vector/tiles.h"

enum {
    BLOCK_BYTES = 768 << 10, /* of A, for the second-level cache */
    LINE = 64                /* of the cache */
};

static int64_t quotient_up(int64_t number, int64_t unit)
{
    return (number + unit - 1) / unit;
}

static int64_t up(int64_t number, int64_t unit)
{
    return quotient_up(number, unit) * unit;
}

static int64_t tiles_of(int64_t depth)
{
    return quotient_up(depth, DEPTH);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- positions and taps ---- */

/* One dimension of a product: position i reads the source at i * step + offset[t] for each tap t, and writes the target at
 * i * spread + begin. */
typedef struct axis {
    int64_t source, target, positions; /* sizes */
    int64_t step, spread, begin;
    int taps;
    bool dense;                                                 /* offsets follow each other */
    int32_t offset[BF16_MOST_KERNEL], number[BF16_MOST_KERNEL]; /* number: in the kernel */
} axis;

typedef struct images {
    int64_t batch, channels; /* of the source */
    axis axes[2];
} images;

static void add_tap(axis *a, int64_t offset, int number)
{
    a->dense = a->taps == 0 || (a->dense && offset == a->offset[a->taps - 1] + 1);
    a->offset[a->taps] = (int32_t)offset;
    a->number[a->taps++] = number;
}

static images forward_images(const bf16_product *c)
{
    images m = {.batch = c->batch, .channels = c->channels};
    for (int i = 0; i < 2; i++) {
        axis *a = &m.axes[i];
        *a = (axis){.source = c->in[i],
                    .target = c->out[i],
                    .positions = c->out[i],
                    .step = c->stride[i],
                    .spread = 1,
                    .dense = true};
        for (int k = 0; k < c->kernel[i]; k++)
            add_tap(a, (int64_t)k * c->dilation[i] - c->padding[i], k);
    }
    return m;
}

/* The gradient of the input at rows and columns whose remainders by the stride are `phase`. Taps are in descending order, so that
 * offsets ascend. */
static images backward_images(const bf16_product *c, const int phase[2])
{
    images m = {.batch = c->batch, .channels = c->outputs};
    for (int i = 0; i < 2; i++) {
        axis *a = &m.axes[i];
        *a = (axis){.source = c->out[i],
                    .target = c->in[i],
                    .positions = larger(0, (c->in[i] - phase[i] + c->stride[i] - 1) / c->stride[i]),
                    .step = 1,
                    .spread = c->stride[i],
                    .begin = phase[i],
                    .dense = true};
        for (int k = c->kernel[i] - 1; k >= 0; k--) {
            const int64_t reach = (int64_t)phase[i] + c->padding[i] - (int64_t)k * c->dilation[i];
            if (reach % c->stride[i] == 0)
                add_tap(a, reach / c->stride[i], k);
        }
    }
    return m;
}

static int64_t row_count(const images *m)
{
    return m->batch * m->axes[0].positions * m->axes[1].positions;
}

static int64_t depth_of(const images *m)
{
    return m->axes[0].taps * m->axes[1].taps * m->channels;
}

/* Rows lie in the source as the product wants them. */
static bool is_in_place(const images *m)
{
    bool same = m->channels % DEPTH == 0;
    for (int i = 0; i < 2; i++) {
        const axis *a = &m->axes[i];
        same = same && a->taps == 1 && a->offset[0] == 0 && a->step == 1 && a->positions == a->source;
    }
    return same;
}

typedef struct position {
    int64_t image, at[2];
} position;

static position position_of(const images *m, int64_t row)
{
    const int64_t columns = m->axes[1].positions, area = m->axes[0].positions * columns;
    return (position){row / area, {row % area / columns, row % columns}};
}

static void next_position(const images *m, position *p)
{
    if (++p->at[1] < m->axes[1].positions)
        return;
    p->at[1] = 0;
    if (++p->at[0] < m->axes[0].positions)
        return;
    p->at[0] = 0;
    p->image++;
}

/* The pixel of the target that is written. */
static int64_t target_of(const images *m, const position *p)
{
    const axis *y = &m->axes[0], *x = &m->axes[1];
    return (p->image * y->target + p->at[0] * y->spread + y->begin) * x->target + p->at[1] * x->spread + x->begin;
}

/* Index of the source's row or column that a tap reads; -1: outside. */
static int64_t source_of(const axis *a, int64_t i, int tap)
{
    const int64_t at = i * a->step + a->offset[tap];
    return at >= 0 && at < a->source ? at : -1;
}

/* What one row of taps reads: a run for each tap, or one of all. */
static void gather_taps(const images *m, const uint16_t *line, int64_t column, uint16_t *to)
{
    const axis *x = &m->axes[1];
    const int64_t channels = m->channels;
    if (!x->dense) {
        for (int t = 0; t < x->taps; t++, to += channels) {
            const int64_t at = source_of(x, column, t);
            if (at >= 0)
                copy_numbers(to, line + at * channels, channels);
            else
                zero_numbers(to, channels);
        }
        return;
    }
    const int64_t first = column * x->step + x->offset[0];
    const int64_t begin = smaller(x->taps, larger(0, -first)), end = larger(begin, smaller(x->taps, x->source - first));
    zero_numbers(to, begin * channels);
    copy_numbers(to + begin * channels, line + (first + begin) * channels, (end - begin) * channels);
    zero_numbers(to + end * channels, (x->taps - end) * channels);
}

/* Rows [begin, end) of A, `stride` numbers apart, filled up with zeros to whole tiles of depth. */
static void gather(const images *m, const uint16_t *source, int64_t begin, int64_t end, int64_t stride, uint16_t *to)
{
    const axis *y = &m->axes[0], *x = &m->axes[1];
    const int64_t depth = depth_of(m), run = x->taps * m->channels;
    position p = position_of(m, begin);
    for (int64_t r = begin; r < end; r++, to += stride, next_position(m, &p)) {
        for (int t = 0; t < y->taps; t++) {
            const int64_t at = source_of(y, p.at[0], t);
            if (at >= 0)
                gather_taps(m, source + (p.image * y->source + at) * x->source * m->channels, p.at[1], to + t * run);
            else
                zero_numbers(to + t * run, run);
        }
        zero_numbers(to + depth, tiles_of(depth) * DEPTH - depth);
    }
}

/* Distance of gathered rows in numbers: an odd number of cache lines, so that the rows of a tile do not compete for the same few
 * places of the cache. */
static int64_t gathered_stride(int64_t depth)
{
    return (tiles_of(depth) | 1) * DEPTH;
}

/* ---- weights as B ---- */

/* Weight n, channel k, tap t is at n * stride_n + k * stride_k + t. */
typedef struct weights {
    const float *values;
    int64_t columns; /* n counts them */
    int64_t stride_n, stride_k;
    int kernel_width;
} weights;

static int64_t tap_number(const images *m, const weights *w, int64_t tap)
{
    return (int64_t)m->axes[0].number[tap / m->axes[1].taps] * w->kernel_width +
           m->axes[1].number[tap % m->axes[1].taps];
}

/* One tile, number by number: where channels or columns do not fill it. */
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

/* The panel of columns from `column` on. */
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

/* How threads share them: blocks of rows, each by groups of panels. */
typedef struct division {
    int64_t rows, height, blocks; /* height: rows of a block, whole pairs of tiles */
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

/* Rows [begin, end) of the target, panels [first, last). */
static void multiply_rows(const product *p, int64_t begin, int64_t end, int64_t first, int64_t last, uint16_t *gathered)
{
    _Alignas(LINE) float c[2 * TILE * COLUMNS];
    const images *m = p->images;
    const int64_t tiles = tiles_of(depth_of(m));
    const bool in_place = is_in_place(m) && (end - begin) % TILE == 0;
    const int64_t stride = in_place ? m->channels : gathered_stride(depth_of(m));
    const uint16_t *a = in_place ? p->source + begin * stride : gathered;
    if (!in_place)
        gather(m, p->source, begin, end, stride, gathered);
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

static void forward(const bf16_product *c, const uint16_t *x, const float *weight, const float *bias, int threads,
                    void *scratch, uint16_t *y)
{
    const images m = forward_images(c);
    const int64_t taps = (int64_t)c->kernel[0] * c->kernel[1];
    const weights w = {.values = weight,
                       .columns = c->outputs,
                       .stride_n = c->channels * taps,
                       .stride_k = taps,
                       .kernel_width = c->kernel[1]};
    product p = {.images = &m, .source = x, .columns = c->outputs, .bias = bias, .relu = c->relu, .target = y};
    multiply(&p, &w, threads, scratch);
}

static size_t forward_bytes(const bf16_product *c, int threads)
{
    const images m = forward_images(c);
    return multiply_bytes(&m, c->outputs, threads);
}

static void grad_input(const bf16_product *c, const uint16_t *dy, const float *weight, int threads, void *scratch,
                       uint16_t *dx)
{
    const int64_t taps = (int64_t)c->kernel[0] * c->kernel[1];
    const weights w = {.values = weight,
                       .columns = c->channels,
                       .stride_n = taps,
                       .stride_k = c->channels * taps,
                       .kernel_width = c->kernel[1]};
    for (int i = 0; i < c->stride[0] * c->stride[1]; i++) {
        const images m = backward_images(c, (int[2]){i / c->stride[1], i % c->stride[1]});
        product p = {.images = &m, .source = dy, .columns = c->channels, .target = dx};
        multiply(&p, &w, threads, scratch);
    }
}

static size_t grad_input_bytes(const bf16_product *c, int threads)
{
    size_t most = 0;
    for (int i = 0; i < c->stride[0] * c->stride[1]; i++) {
        const images m = backward_images(c, (int[2]){i / c->stride[1], i % c->stride[1]});
        const size_t bytes = multiply_bytes(&m, c->channels, threads);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* ---- gradient of the weights ---- */

enum { BLOCK_SUMS = 2 * TILE * COLUMNS, MOST_POSITIONS = 1024, FEW_POSITIONS = 512, WIDE_STRIP = 16 };

/* Positions are taken in blocks and outputs in strips: dy of a block and a strip, turned around, is what the cache holds. Threads
 * share the strips, or slices of the positions, each with sums of its own, and groups of panels. */
typedef struct gradient {
    images images;
    int64_t depth, panels, group, groups;         /* depth: taps times channels, the columns of the product */
    int64_t outputs, output_tiles, strip, strips; /* strip: in tiles, an even number */
    int64_t rows, height, blocks, slices, slice;  /* height: positions of a block; slice: in blocks */
    bool gathered;                                /* rows are gathered before they are packed */
    bool direct; /* sums are kept in the gradient itself, which is laid out like them */
} gradient;

static int64_t sums_of_slice(const gradient *g)
{
    return g->panels * quotient_up(g->output_tiles, 2) * BLOCK_SUMS;
}

static void divide_outputs(gradient *g, int threads)
{
    const int64_t pairs = quotient_up(g->output_tiles, 2), fitting = BLOCK_BYTES / (2 * TILE * g->height) / 2;
    g->strips = quotient_up(pairs, larger(1, fitting));
    if (g->output_tiles >= WIDE_STRIP * threads)
        g->strips = smaller(pairs, up(g->strips, threads));
    g->strip = 2 * quotient_up(pairs, g->strips);
    g->strips = quotient_up(g->output_tiles, g->strip);
}

static gradient plan_gradient(const bf16_product *c, int threads)
{
    gradient g = {.images = forward_images(c), .outputs = c->outputs};
    g.output_tiles = quotient_up(c->outputs, TILE);
    g.depth = depth_of(&g.images);
    g.panels = quotient_up(g.depth, COLUMNS);
    g.rows = row_count(&g.images);
    g.gathered = c->channels % COLUMNS != 0;
    const int64_t fitting = BLOCK_BYTES / (2 * TILE * g.output_tiles);
    g.blocks = quotient_up(g.rows, larger(smaller(fitting, MOST_POSITIONS), FEW_POSITIONS));
    g.height = up(quotient_up(g.rows, g.blocks), DEPTH);
    g.blocks = quotient_up(g.rows, g.height);
    divide_outputs(&g, threads);
    g.slices = smaller(g.blocks, quotient_up(threads, g.strips));
    g.slices = larger(1, smaller(g.slices, (16 << 20) / (sums_of_slice(&g) * (int64_t)sizeof(float))));
    g.slice = quotient_up(g.blocks, g.slices);
    g.slices = quotient_up(g.blocks, g.slice);
    g.groups = smaller(g.panels, quotient_up(threads, g.slices * g.strips));
    g.group = quotient_up(g.panels, g.groups);
    g.groups = quotient_up(g.panels, g.group);
    g.direct = g.slices == 1 && g.depth == c->channels && g.depth % COLUMNS == 0 && c->outputs % TILE == 0;
    return g;
}

/* Scratch of one thread: dy turned around, a panel of x, and gathered rows or one row of zeros. */
typedef struct gradient_scratch {
    uint16_t *turned, *panel, *rows;
} gradient_scratch;

static size_t turned_numbers(const gradient *g)
{
    return (size_t)(g->height * g->strip * TILE);
}

static size_t panel_numbers(const gradient *g)
{
    return (size_t)(g->height * COLUMNS);
}

static size_t row_numbers(const gradient *g)
{
    return (size_t)(g->gathered ? g->height * gathered_stride(g->depth) : g->images.channels);
}

static size_t thread_bytes(const gradient *g)
{
    return (turned_numbers(g) + panel_numbers(g) + row_numbers(g)) * sizeof(uint16_t);
}

static gradient_scratch scratch_of_thread(const gradient *g, char *memory)
{
    gradient_scratch s = {.turned = (uint16_t *)(memory + (size_t)omp_get_thread_num() * thread_bytes(g))};
    s.panel = s.turned + turned_numbers(g);
    s.rows = s.panel + panel_numbers(g);
    if (!g->gathered)
        zero_numbers(s.rows, g->images.channels);
    return s;
}

/* What one thread adds at a time: positions [begin, end), tiles of outputs [output, last_output), panels [first, last). */
typedef struct part {
    int64_t begin, end, output, last_output, first, last;
    bool resumed; /* sums of earlier positions are there */
} part;

/* Tiles of dyᵀ, and sums over the positions. */
static void turn_outputs(const gradient *g, const uint16_t *dy, const part *p, uint16_t *turned, float *sums)
{
    const int64_t tiles = tiles_of(p->end - p->begin);
    float unused[TILE];
    for (int64_t o = p->output; o < p->last_output; o++)
        for (int64_t t = 0; t < tiles; t++, turned += TILE_NUMBERS) {
            const int64_t at = p->begin + t * DEPTH;
            pack_turned(dy + at * g->outputs + o * TILE, p->end - at, g->outputs - o * TILE, g->outputs, turned,
                        sums ? sums + o * TILE : memset(unused, 0, sizeof unused));
        }
}

/* Addresses of what one tap reads for positions [begin, end), up to whole tiles of depth. */
static void find_rows(const gradient *g, const uint16_t *x, int64_t tap, int64_t begin, int64_t end,
                      const gradient_scratch *s, const uint16_t **rows)
{
    const images *m = &g->images;
    const axis *v = &m->axes[0], *h = &m->axes[1];
    position p = position_of(m, begin);
    for (int64_t r = begin; r < end; r++, next_position(m, &p)) {
        const int64_t row = source_of(v, p.at[0], (int)(tap / h->taps)),
                      column = source_of(h, p.at[1], (int)(tap % h->taps));
        rows[r - begin] =
            row < 0 || column < 0 ? s->rows : x + ((p.image * v->source + row) * h->source + column) * m->channels;
    }
}

/* Where the sums of two tiles of outputs and a panel are, and the distance of their rows in numbers. */
static float *sums_at(const gradient *g, float *sums, int64_t output, int64_t panel, int64_t *stride)
{
    *stride = g->direct ? g->depth : COLUMNS;
    return g->direct ? sums + output * TILE * g->depth + panel * COLUMNS
                     : sums + (panel * quotient_up(g->output_tiles, 2) + output / 2) * BLOCK_SUMS;
}

/* Adds a part to the sums of its panels and outputs. */
static void add_part(const gradient *g, const uint16_t *x, const uint16_t *dy, const part *p, const gradient_scratch *s,
                     float *sums, float *output_sums)
{
    const uint16_t *rows[MOST_POSITIONS];
    const int64_t count = p->end - p->begin, tiles = tiles_of(count), stride = gathered_stride(g->depth);
    int64_t known = -1; /* the tap whose rows were found */
    turn_outputs(g, dy, p, s->turned, output_sums);
    if (g->gathered) {
        gather(&g->images, x, p->begin, p->end, stride, s->rows);
        for (int64_t r = count; r < tiles * DEPTH; r++)
            zero_numbers(s->rows + r * stride, stride);
        for (int64_t r = 0; r < tiles * DEPTH; r++)
            rows[r] = s->rows + r * stride;
    }
    for (int64_t panel = p->first; panel < p->last; panel++) {
        const int64_t column = panel * COLUMNS, tap = column / g->images.channels;
        if (!g->gathered && tap != known) {
            find_rows(g, x, tap, p->begin, p->end, s, rows);
            for (int64_t r = count; r < tiles * DEPTH; r++)
                rows[r] = s->rows;
            known = tap;
        }
        for (int64_t t = 0; t < tiles; t++)
            pack_addressed(rows + t * DEPTH, g->gathered ? column : column % g->images.channels,
                           s->panel + t * PANEL_STEP);
        for (int64_t o = p->output; o < p->last_output; o += 2) {
            const uint16_t *turned = s->turned + (o - p->output) * tiles * TILE_NUMBERS;
            const a_block block = {.first = turned,
                                   .second = o + 1 < p->last_output ? turned + tiles * TILE_NUMBERS : NULL,
                                   .step = TILE_NUMBERS,
                                   .stride = LINE};
            int64_t distance;
            float *c = sums_at(g, sums, o, panel, &distance);
            multiply_block(&block, s->panel, tiles, p->resumed, c, distance * (int64_t)sizeof *c);
        }
    }
}

/* The gradient of one output's weights from the sums of all slices. */
static void finish_output(const gradient *g, const float *sums, int64_t output, float *dweight)
{
    const int64_t channels = g->images.channels, taps = g->depth / channels;
    for (int64_t panel = 0; panel < g->panels; panel++) {
        const float *c = sums + (panel * quotient_up(g->output_tiles, 2) + output / (2 * TILE)) * BLOCK_SUMS +
                         output % (2 * TILE) * COLUMNS;
        float total[COLUMNS];
        memcpy(total, c, sizeof total);
        for (int64_t s = 1; s < g->slices; s++)
            for (int i = 0; i < COLUMNS; i++)
                total[i] += c[s * sums_of_slice(g) + i];
        const int64_t column = panel * COLUMNS, count = smaller(COLUMNS, g->depth - column);
        int64_t tap = column / channels, channel = column % channels;
        for (int64_t i = 0; i < count; i++) {
            dweight[(output * channels + channel) * taps + tap] = total[i];
            if (++channel == channels) {
                channel = 0;
                tap++;
            }
        }
    }
}

/* Numbers in scratch before that of the threads. */
static int64_t sum_numbers(const gradient *g)
{
    return g->direct ? 0 : g->slices * sums_of_slice(g);
}

static size_t grad_weights_bytes(const bf16_product *c, int threads)
{
    const gradient g = plan_gradient(c, threads);
    return (size_t)(sum_numbers(&g) + g.slices * g.output_tiles * TILE) * sizeof(float) +
           (size_t)threads * thread_bytes(&g);
}

static void grad_weights(const bf16_product *c, const uint16_t *x, const uint16_t *dy, int threads, void *scratch,
                         float *dweight, float *dbias)
{
    const gradient g = plan_gradient(c, threads);
    float *sums = g.direct ? dweight : scratch, *output_sums = (float *)scratch + sum_numbers(&g);
    const int64_t output_count = g.output_tiles * TILE;
    char *memory = (char *)(output_sums + g.slices * output_count);
    memset(output_sums, 0, (size_t)(g.slices * output_count) * sizeof *output_sums);
#pragma omp parallel num_threads(threads)
    {
        const gradient_scratch s = scratch_of_thread(&g, memory);
        configure_tiles();
#pragma omp for schedule(static)
        for (int64_t i = 0; i < g.strips * g.slices * g.groups; i++) {
            const int64_t group = i % g.groups, slice = i / g.groups % g.slices, strip = i / g.groups / g.slices;
            part p = {.output = strip * g.strip, .first = group * g.group};
            p.last_output = smaller(p.output + g.strip, g.output_tiles);
            p.last = smaller(p.first + g.group, g.panels);
            for (int64_t b = slice * g.slice; b < smaller((slice + 1) * g.slice, g.blocks); b++) {
                p.begin = b * g.height;
                p.end = smaller(p.begin + g.height, g.rows);
                p.resumed = b > slice * g.slice;
                add_part(&g, x, dy, &p, &s, sums + slice * sums_of_slice(&g),
                         group == 0 ? output_sums + slice * output_count : NULL);
            }
        }
        release_tiles();
#pragma omp for schedule(static)
        for (int64_t o = 0; o < g.outputs; o++) {
            if (!g.direct)
                finish_output(&g, sums, o, dweight);
            if (!dbias)
                continue;
            dbias[o] = 0;
            for (int64_t i = 0; i < g.slices; i++)
                dbias[o] += output_sums[i * output_count + o];
        }
    }
}

const bf16_kernels bf16_kernels_amx = {.forward = forward,
                                       .forward_bytes = forward_bytes,
                                       .grad_input = grad_input,
                                       .grad_input_bytes = grad_input_bytes,
                                       .grad_weights = grad_weights,
                                       .grad_weights_bytes = grad_weights_bytes};
