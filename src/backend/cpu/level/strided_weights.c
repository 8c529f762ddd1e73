/* The gradient of the weights of 3×3 convolutions with stride 2. See strided_tile.h for the method:
 * transformed inputs and gradients of outputs are multiplied at the 36 points, and summed over the
 * rows of each point.
 *
 * Tiles are transformed in groups, by all threads together. The products are then added to blocks
 * of the result, STRIP channels × one panel of outputs at all points, which fit a core's L2 cache,
 * and are transformed back after the last group. All sums are taken in the same order for any
 * number of threads. Products are summed over at most CHAIN rows in registers before they are added
 * to the block: a single sum over all rows would be the largest source of error. */
#include <omp.h>

#include "backend/cpu/level/outer_products.h"
#include "backend/cpu/level/strided_level.h"
#include "backend/cpu/level/strided_tile.h"

enum { GROUP = 64, CHAIN = 64, STRIP = 48 };

/* Parts of a group that may be transformed by different threads. */
enum { QUARTERS = 4 };

/* Shared by all threads. */
typedef struct gradient {
    const strided_convolution *c;
    const void *x, *dy;
    strided_tiling tiles;
    float *v, *w;
    float *products; /* all blocks; with a single group, one block per thread */
    float *biases;   /* (QUARTERS, outputs) */
    float *dweight;
} gradient;

/* Tiles that are computed together. */
typedef struct group {
    int64_t count;
    bool first, last;
    strided_tile tiles[GROUP];
    int32_t rows[GROUP][ENTRIES];
    row_counts counts;
    int64_t begin[POINTS];     /* rows before each point's */
    int64_t x_count, dy_count; /* squares of the images, prefetched before they are read */
    const float *x[GROUP * MOST_SQUARES], *dy[GROUP];
} group;

static void find_group(const gradient *g, share of, group *found)
{
    found->count = of.end - of.begin;
    found->first = of.begin == 0;
    found->last = of.end == g->tiles.count;
    found->counts = (row_counts){0};
    for (int64_t t = 0; t < found->count; t++) {
        found->tiles[t] = tile_at(&g->tiles, of.begin + t);
        add_tile(&found->counts, &found->tiles[t], found->rows[t]);
    }
    found->x_count = found->dy_count = 0;
    for (int64_t t = 0; t < found->count; t++) {
        const strided_convolution *c = g->c;
        const int64_t *at = found->tiles[t].begin, image = found->tiles[t].image;
        found->x_count = add_squares(&c->x, g->x, c->bf16, image, 2 * at[0] - c->padding[0], 2 * at[1] - c->padding[1],
                                     2, found->x, found->x_count);
        found->dy_count = add_squares(&c->y, g->dy, c->bf16, image, at[0], at[1], 1, found->dy, found->dy_count);
    }
    for (int64_t p = 0, rows = 0; p < POINTS; p++) {
        found->begin[p] = rows;
        rows += rows_of(&found->counts, (int)p);
    }
}

/* ---- transforms ---- */

/* Transforms LANES channels of some tiles to (point, vector of channels, row, LANES). */
INLINE void transform_channels(const gradient *g, const group *tiles, int64_t channel, share of, const bool bf16)
{
    const strided_convolution *c = g->c;
    entries to = {.width = LANES};
    for (int p = 0; p < POINTS; p++)
        to.points[p] = g->v + tiles->begin[p] * c->x.planes + rows_of(&tiles->counts, p) * channel;
    for (int64_t t = of.begin; t < of.end; t++) {
        const strided_tile *tile = &tiles->tiles[t];
        to.at = tiles->rows[t];
        transform_entries(INPUTS, bf16, &c->x, g->x, tile, channel, 2 * tile->begin[0] - c->padding[0],
                          2 * tile->begin[1] - c->padding[1], &to);
    }
}

/* Transforms LANES outputs to (point, panel, row, VECTORS × LANES). Returns the sum of dy. */
INLINE vector transform_outputs(const gradient *g, const group *tiles, int64_t output, share of, const bool bf16)
{
    const strided_convolution *c = g->c;
    const int64_t panel = panel_begin(output, c->y.planes);
    vector sum = {0};
    entries to = {.width = panel_vectors(panel, c->y.planes) * LANES};
    for (int p = 0; p < POINTS; p++)
        to.points[p] = g->w + tiles->begin[p] * c->y.planes + rows_of(&tiles->counts, p) * panel + output - panel;
    for (int64_t t = of.begin; t < of.end; t++) {
        const strided_tile *tile = &tiles->tiles[t];
        to.at = tiles->rows[t];
        sum += transform_entries(FACTORS, bf16, &c->y, g->dy, tile, output, tile->begin[0], tile->begin[1], &to);
    }
    return sum;
}

/* Both transforms. Called by all threads of a parallel region. */
static void transform_group(const gradient *g, const group *tiles)
{
    const int64_t channels = g->c->x.planes, planes = channels + g->c->y.planes;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < planes / LANES * QUARTERS; i++) {
        const int64_t plane = i / QUARTERS * LANES, output = plane - channels;
        const share of = share_of(tiles->count, i % QUARTERS, QUARTERS);
        if (output < 0 && g->c->bf16) {
            transform_channels(g, tiles, plane, of, true);
        } else if (output < 0) {
            transform_channels(g, tiles, plane, of, false);
        } else {
            const vector sum = g->c->bf16 ? transform_outputs(g, tiles, output, of, true)
                                          : transform_outputs(g, tiles, output, of, false);
            float *to = g->biases + i % QUARTERS * g->c->y.planes + output;
            store(to, tiles->first ? sum : load(to) + sum);
        }
    }
}

/* ---- blocks ---- */

/* Channels × a panel of outputs: (point, channel, VECTORS × LANES). */
typedef struct block {
    int64_t channel, channels, output, vectors;
    float *products;
} block;

static void multiply_block(const gradient *g, const group *tiles, const block *b, expected *x, expected *dy)
{
    const int64_t width = b->vectors * LANES;
    for (int p = 0; p < POINTS; p++) {
        const int64_t rows = rows_of(&tiles->counts, p);
        const float *v = g->v + tiles->begin[p] * g->c->x.planes + rows * b->channel;
        const float *w = g->w + tiles->begin[p] * g->c->y.planes + rows * b->output;
        float *to = b->products + p * b->channels * width;
        if (rows == 0 && tiles->first)
            memset(to, 0, (size_t)(b->channels * width) * sizeof *to);
        if (b->vectors == VECTORS)
            multiply_panel(v, rows * LANES, b->channels, w, to, rows, CHAIN, !tiles->first, p % 2 ? dy : x, VECTORS);
        else
            multiply_panel(v, rows * LANES, b->channels, w, to, rows, CHAIN, !tiles->first, p % 2 ? dy : x, 1);
    }
}

/* Transforms the sums at all points to dweight, for LANES channels and outputs; `from` points to
 * those of the first point. */
static void finish_square(const gradient *g, const float *from, int64_t point, int64_t row, int64_t channel,
                          int64_t output)
{
    vector taps[LANES * 9]; /* (channel, 3, 3), each of LANES outputs */
    float *to = g->dweight + (output * g->c->x.planes + channel) * 9;
    for (int c = 0; c < LANES; c++) {
        vector half[3][WINDOW];
        for (int j = 0; j < WINDOW; j++) {
            vector line[WINDOW], column[3];
            for (int i = 0; i < WINDOW; i++)
                line[i] = load(from + (i * WINDOW + j) * point + c * row);
            transform_taps(line, column);
            for (int i = 0; i < 3; i++)
                half[i][j] = column[i];
        }
        for (int i = 0; i < 3; i++)
            transform_taps(half[i], taps + c * 9 + i * 3);
    }
    for (int i = 0; i < 9; i++) {
        transpose(taps + i * LANES);
        for (int o = 0; o < LANES; o++)
            store(to + o * g->c->x.planes * 9 + i * LANES, taps[i * LANES + o]);
    }
}

static void finish_block(const gradient *g, const block *b)
{
    const int64_t width = b->vectors * LANES;
    for (int64_t c = 0; c < b->channels; c += LANES) {
        for (int64_t n = 0; n < width; n += LANES)
            finish_square(g, b->products + c * width + n, b->channels * width, width, b->channel + c, b->output + n);
    }
}

/* ---- the whole pass ---- */

/* How the work is divided. */
typedef struct cutting {
    int64_t groups, strip, strips, panels;
} cutting;

static cutting cut_up(const strided_convolution *c, int64_t tiles, int threads)
{
    const int64_t full = c->y.planes / (VECTORS * LANES);
    cutting cut = {.groups = (tiles + GROUP - 1) / GROUP, .strip = STRIP};
    cut.panels = full + (c->y.planes - full * VECTORS * LANES) / LANES;
    while (cut.strip > LANES && cut.panels * (c->x.planes / cut.strip) < 2 * threads)
        cut.strip -= LANES;
    cut.strips = (c->x.planes + cut.strip - 1) / cut.strip;
    return cut;
}

static block find_block(const gradient *g, const cutting *cut, int64_t number)
{
    const int64_t planes = g->c->y.planes, full = planes / (VECTORS * LANES), panel = number / cut->strips;
    block b = {.channel = number % cut->strips * cut->strip};
    b.output = panel <= full ? panel * VECTORS * LANES : (full * VECTORS + panel - full) * LANES;
    b.vectors = panel_vectors(b.output, planes);
    b.channels = minimum(cut->strip, g->c->x.planes - b.channel);
    b.products = cut->groups == 1 ? g->products + omp_get_thread_num() * POINTS * cut->strip * VECTORS * LANES
                                  : g->products + POINTS * (b.output * g->c->x.planes + b.channel * b.vectors * LANES);
    return b;
}

/* A share of the planes, in whole vectors. */
static share share_of_planes(int64_t planes, int part, int parts)
{
    const share of = share_of(planes / LANES, part, parts);
    return (share){of.begin * LANES, of.end * LANES};
}

static int64_t transformed_floats(int64_t tiles, int64_t planes)
{
    return ENTRIES * minimum(tiles, GROUP) * planes;
}

static int64_t products_floats(const strided_convolution *c, int64_t tiles, int threads)
{
    return tiles <= GROUP ? threads * POINTS * (int64_t)(STRIP * VECTORS * LANES) : POINTS * c->x.planes * c->y.planes;
}

int64_t AT_LEVEL(strided_grad_weights_floats)(const blocked_convolution *blocked, int threads)
{
    const strided_convolution c = describe_strided(blocked);
    const int64_t tiles = tile_outputs(&c).count;
    return transformed_floats(tiles, c.x.planes + c.y.planes) + products_floats(&c, tiles, threads) +
           QUARTERS * c.y.planes;
}

void AT_LEVEL(strided_grad_weights)(const blocked_convolution *blocked, const void *x, const void *dy, int threads,
                                    float *scratch, float *dweight, float *dbias)
{
    const strided_convolution described = describe_strided(blocked), *c = &described;
    gradient g = {.c = c, .x = x, .dy = dy, .tiles = tile_outputs(c), .dweight = dweight};
    const int64_t tiles = g.tiles.count;
    const cutting cut = cut_up(c, tiles, threads);
    g.v = scratch;
    g.w = g.v + transformed_floats(tiles, c->x.planes);
    g.products = g.w + transformed_floats(tiles, c->y.planes);
    g.biases = g.products + products_floats(c, tiles, threads);
#pragma omp parallel num_threads(threads)
    {
        const int count = omp_get_num_threads(), thread = omp_get_thread_num();
        const int64_t blocks = cut.strips * cut.panels;
        const int64_t calls = (blocks + count - 1) / count * (POINTS / 2) * ((cut.strip + ROWS - 1) / ROWS);
        group groups[2]; /* this group and the next, alternating */
        find_group(&g, share_of(tiles, 0, cut.groups), &groups[0]);
        for (int64_t number = 0; number < cut.groups; number++) {
            const group *now = &groups[number % 2];
            group *next = &groups[(number + 1) % 2];
            find_group(&g, number + 1 < cut.groups ? share_of(tiles, number + 1, cut.groups) : (share){tiles, tiles},
                       next);
            transform_group(&g, now);
            expected x_soon = expect_squares(&c->x, c->bf16, next->x, next->x_count,
                                             share_of_planes(c->x.planes, thread, count), calls);
            expected dy_soon = expect_squares(&c->y, c->bf16, next->dy, next->dy_count,
                                              share_of_planes(c->y.planes, thread, count), calls);
#pragma omp for schedule(static)
            for (int64_t i = 0; i < blocks; i++) {
                const block b = find_block(&g, &cut, i);
                multiply_block(&g, now, &b, &x_soon, &dy_soon);
                if (now->last)
                    finish_block(&g, &b);
            }
        }
    }
    for (int64_t o = 0; dbias && o < c->y.planes; o += LANES) {
        vector sum = {0};
        for (int64_t i = 0; i < QUARTERS; i++)
            sum += load(g.biases + i * c->y.planes + o);
        store(dbias + o, sum);
    }
}
