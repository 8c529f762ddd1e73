/* Gradients of the weights of convolutions in bf16. See kernels.c. */
#include <omp.h>
#include <string.h>

#include "backend/cpu/bf16/images.h"
#include "backend/cpu/bf16/kernels.h"

enum { BLOCK_SUMS = 2 * TILE * COLUMNS, MOST_POSITIONS = 1024, FEW_POSITIONS = 512, WIDE_STRIP = 16 };

/* Positions are divided into blocks and outputs into strips: dy of a block and a strip, transposed,
 * fits the cache. Threads share the strips, or slices of the positions, each with its own sums, and
 * groups of panels. */
typedef struct gradient {
    images images;
    int64_t depth, panels, group, groups;         /* depth: taps times channels, the columns of the product */
    int64_t outputs, output_tiles, strip, strips; /* strip: in tiles, an even number */
    int64_t rows, height, blocks, slices, slice;  /* height: positions of a block; slice: in blocks */
    bool gathered;                                /* rows are gathered before packing */
    bool direct;                                  /* sums are kept in the gradient itself, which has the same layout */
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
    gradient g = {.images = bf16_forward_images(c), .outputs = c->outputs};
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

/* One thread's scratch: dy transposed, a panel of x, and gathered rows or one row of zeros. */
typedef struct gradient_scratch {
    uint16_t *transposed, *panel, *rows;
} gradient_scratch;

static size_t transposed_numbers(const gradient *g)
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
    return (transposed_numbers(g) + panel_numbers(g) + row_numbers(g)) * sizeof(uint16_t);
}

static gradient_scratch scratch_of_thread(const gradient *g, char *memory)
{
    gradient_scratch s = {.transposed = (uint16_t *)(memory + (size_t)omp_get_thread_num() * thread_bytes(g))};
    s.panel = s.transposed + transposed_numbers(g);
    s.rows = s.panel + panel_numbers(g);
    if (!g->gathered)
        zero_numbers(s.rows, g->images.channels);
    return s;
}

/* One thread's unit of work: positions [begin, end), tiles of outputs [output, last_output), panels
 * [first, last). */
typedef struct part {
    int64_t begin, end, output, last_output, first, last;
    bool resumed; /* adds to the sums of earlier positions */
} part;

/* Packs tiles of dyᵀ, and sums dy over the positions. */
static void transpose_outputs(const gradient *g, const uint16_t *dy, const part *p, uint16_t *transposed, float *sums)
{
    const int64_t tiles = tiles_of(p->end - p->begin);
    float unused[TILE];
    for (int64_t o = p->output; o < p->last_output; o++)
        for (int64_t t = 0; t < tiles; t++, transposed += TILE_NUMBERS) {
            const int64_t at = p->begin + t * DEPTH;
            pack_transposed(dy + at * g->outputs + o * TILE, p->end - at, g->outputs - o * TILE, g->outputs, transposed,
                            sums ? sums + o * TILE : memset(unused, 0, sizeof unused));
        }
}

/* Addresses of what one tap reads for positions [begin, end). */
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

/* The sums of two tiles of outputs and a panel, and the distance between their rows in numbers. */
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
    int64_t known = -1; /* the tap that `rows` belongs to */
    transpose_outputs(g, dy, p, s->transposed, output_sums);
    if (g->gathered) {
        bf16_gather(&g->images, x, p->begin, p->end, stride, s->rows);
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
            const uint16_t *transposed = s->transposed + (o - p->output) * tiles * TILE_NUMBERS;
            const a_block block = {.first = transposed,
                                   .second = o + 1 < p->last_output ? transposed + tiles * TILE_NUMBERS : NULL,
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

/* Floats in scratch before the threads' parts. */
static int64_t sum_numbers(const gradient *g)
{
    return g->direct ? 0 : g->slices * sums_of_slice(g);
}

size_t bf16_grad_weights_bytes(const bf16_product *c, int threads)
{
    const gradient g = plan_gradient(c, threads);
    return (size_t)(sum_numbers(&g) + g.slices * g.output_tiles * TILE) * sizeof(float) +
           (size_t)threads * thread_bytes(&g);
}

void bf16_grad_weights(const bf16_product *c, const uint16_t *x, const uint16_t *dy, int threads, void *scratch,
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
