/* One group of tiles of the gradient of the weights: transforms, and products added to a block. See
 * winograd_weights.c. */
#ifndef FTH_BACKEND_CPU_LEVEL_WINOGRAD_GROUP_H
#define FTH_BACKEND_CPU_LEVEL_WINOGRAD_GROUP_H

#include "backend/cpu/level/outer_products.h"
#include "backend/cpu/level/winograd_tile.h"

/* Tiles that are transformed together, and channels: a multiple of ROWS and of LANES. */
enum { GROUP = 64, STRIP = 48 };

/* A third of the points: two rows that share most of their transform. Or a block has all six
 * rows. */
enum { THIRDS = 3, WHOLE = THIRDS };

INLINE int row_count(const int part)
{
    return part == WHOLE ? WINDOW : WINDOW / THIRDS;
}

/* Row i of the part among the six. */
INLINE int row_of(const int part, int i)
{
    return part == WHOLE ? i : part == 0 ? 5 * i : 2 * part - 1 + i;
}

/* What all blocks have in common. */
typedef struct gradient {
    const winograd_correlation *forward;
    winograd_source x, dy;
    tiling tiles;
    int64_t chain; /* tiles whose products are summed up in registers */
} gradient;

/* Some of the channels, outputs and points, and the memory in which they are computed. */
typedef struct block {
    int part;
    int64_t channel, channels, output, outputs;
    float *v;        /* transformed inputs of a strip (point, vector of channels, tile, LANES) */
    float *w;        /* transformed gradients (point, panel of outputs, tile, VECTORS × LANES) */
    float *products; /* (point, panel, channel, VECTORS × LANES) */
} block;

/* Tiles whose products are added to a block, after those of other groups unless they are the
 * first. */
typedef struct group {
    place places[GROUP];
    const float *x[GROUP];          /* where they lie in the first planes of the block's inputs */
    int64_t count, counts[CLASSES]; /* tiles; those with products at points of a class */
    bool add;
} group;

/* Floats from one point of transformed `planes` of a group to the next. */
INLINE int64_t group_stride(int64_t planes)
{
    return GROUP * planes + LANES;
}

/* ---- products ---- */

/* The strip of `channels` from the block's channel c on, at all points. */
static void multiply_strip(const gradient *g, const block *b, int64_t c, int64_t channels, const group *tiles,
                           expected *next)
{
    for (int p = 0; p < row_count(b->part) * WINDOW; p++) {
        const int64_t count = tiles->counts[class_of(&g->tiles, row_of(b->part, p / WINDOW), p % WINDOW)];
        const float *v = b->v + p * group_stride(STRIP), *w = b->w + p * group_stride(b->outputs);
        float *products = b->products + p * b->channels * b->outputs;
        int64_t n = 0;
        for (; panel_vectors(n, b->outputs) == VECTORS; n += VECTORS * LANES)
            multiply_panel(v, GROUP * LANES, channels, w + n * GROUP, products + n * b->channels + c * VECTORS * LANES,
                           count, g->chain, tiles->add, next, VECTORS);
        for (; n < b->outputs; n += LANES)
            multiply_panel(v, GROUP * LANES, channels, w + n * GROUP, products + n * b->channels + c * LANES, count,
                           g->chain, tiles->add, next, 1);
    }
}

/* ---- transforms ---- */

/* The inputs of a tile at the part's points: point (row_of(part, i), j) to to[its class] + (i *
 * WINDOW + j) * stride. */
INLINE void transform_input(const window *w, const reading how, const int part, float *const to[CLASSES],
                            int64_t stride, const tile_size size)
{
    const window_rows rows = find_rows(w, how, WINDOW);
    vector half[WINDOW][WINDOW];
#pragma GCC unroll 6
    for (int j = 0; j < WINDOW; j++) {
        vector line[WINDOW] = {{0}};
        if (j < size.columns + 2)
            read_column(w, &rows, j, how, WINDOW, line);
        transform_input_line(size.rows, line);
        for (int i = 0; i < row_count(part); i++)
            half[i][j] = line[row_of(part, i)];
    }
#pragma GCC unroll 6
    for (int i = 0; i < row_count(part); i++) {
        const int row = row_of(part, i);
        if (!needs_point(size.rows, row))
            continue;
        transform_input_line(size.columns, half[i]);
        for (int j = 0; j < WINDOW; j++) {
            if (needs_point(size.columns, j))
                store(to[class_of(size.map, row, j)] + (i * WINDOW + j) * stride, half[i][j]);
        }
    }
}

/* The same of its dy, whose sum is added to *sum. */
INLINE void transform_gradient(const window *w, const reading how, const int part, float *const to[CLASSES],
                               int64_t stride, vector *sum, const tile_size size)
{
    const window_rows rows = find_rows(w, how, TILE);
    vector half[WINDOW][TILE];
#pragma GCC unroll 4
    for (int j = 0; j < TILE; j++) {
        vector line[WINDOW], points[WINDOW];
        read_column(w, &rows, j, how, TILE, line);
        *sum += (line[0] + line[1]) + (line[2] + line[3]);
        evaluate_output_line(size.rows, line, points);
        for (int i = 0; i < row_count(part); i++)
            half[i][j] = points[row_of(part, i)];
    }
#pragma GCC unroll 6
    for (int i = 0; i < row_count(part); i++) {
        const int row = row_of(part, i);
        vector points[WINDOW];
        if (!needs_point(size.rows, row))
            continue;
        evaluate_output_line(size.columns, half[i], points);
        for (int j = 0; j < WINDOW; j++) {
            if (needs_point(size.columns, j))
                store(to[class_of(size.map, row, j)] + (i * WINDOW + j) * stride, points[j]);
        }
    }
}

/* Moves on to the next LANES planes of the same image. */
INLINE void next_planes(window *w, const winograd_images *images, const winograd_source *source, reading how)
{
    const winograd_images cells = pooled(images), *read = source->where ? &cells : images;
    const int64_t numbers = read->height * read->width * LANES;
    w->from = address_of(w->from, numbers, how == INSIDE_BF16 || how == BORDER_BF16);
    if (source->where)
        w->where += numbers;
}

/* The tiles' windows in one of the images. */
typedef struct windows {
    window at[GROUP];
    reading how[GROUP];
} windows;

/* Whole tiles, read in any way; x is never pooled, and tiles of dy begin at even rows and
 * columns. */
INLINE void transform_whole_input(const window *w, reading how, const int part, float *const to[CLASSES],
                                  int64_t stride, const tiling *map)
{
    const tile_size size = {TILE, TILE, map};
    switch (how) {
    case INSIDE: transform_input(w, INSIDE, part, to, stride, size); break;
    case BORDER: transform_input(w, BORDER, part, to, stride, size); break;
    case INSIDE_BF16: transform_input(w, INSIDE_BF16, part, to, stride, size); break;
    default: transform_input(w, BORDER_BF16, part, to, stride, size); break;
    }
}

INLINE void transform_whole_gradient(const window *w, reading how, const int part, float *const to[CLASSES],
                                     int64_t stride, const tiling *map, vector *sum)
{
    const tile_size size = {TILE, TILE, map};
    switch (how) {
    case INSIDE: transform_gradient(w, INSIDE, part, to, stride, sum, size); break;
    case INSIDE_BF16: transform_gradient(w, INSIDE_BF16, part, to, stride, sum, size); break;
    default: transform_gradient(w, POOLED, part, to, stride, sum, size); break; /* none is at a border */
    }
}

/* Tiles with fewer outputs, all of them at a border. `part` is not a constant here: one copy for
 * each would take three times as long to compile. */
static void transform_end_input(const window *w, bool bf16, int part, float *const to[CLASSES], int64_t stride,
                                tile_size size)
{
    if (bf16)
        transform_input(w, BORDER_BF16, part, to, stride, size);
    else
        transform_input(w, BORDER, part, to, stride, size);
}

static void transform_end_gradient(const window *w, reading how, int part, float *const to[CLASSES], int64_t stride,
                                   tile_size size, vector *sum)
{
    if (how == POOLED)
        transform_gradient(w, POOLED, part, to, stride, sum, size);
    else if (how == BORDER_BF16)
        transform_gradient(w, BORDER_BF16, part, to, stride, sum, size);
    else
        transform_gradient(w, BORDER, part, to, stride, sum, size);
}

INLINE void transform_inputs_of(const gradient *g, const block *b, int64_t c, int64_t channels, const group *tiles,
                                const int part)
{
    const winograd_images *in = &g->forward->in;
    const int64_t stride = group_stride(STRIP);
    const tiling *map = uneven(&g->tiles);
    const int classes = count_classes(&g->tiles);
    windows of;
    for (int64_t t = 0; t < tiles->count; t++) {
        const place at = tiles->places[t];
        of.how[t] = find_window(in, &g->x, g->forward->bf16, at.image, b->channel + c, at.row + g->forward->begin_row,
                                at.column + g->forward->begin_column, WINDOW, &of.at[t]);
    }
    for (int64_t k = 0; k < channels; k += LANES) {
        for (int64_t t = 0; t < tiles->count; t++) {
            const place *at = &tiles->places[t];
            const window *w = &of.at[t];
            float *to[CLASSES] = {NULL};
            for (int which = 0; which < classes; which++)
                to[which] = b->v + k * GROUP + at->number[which] * LANES;
            if (!map)
                transform_whole_input(w, of.how[t], part, to, stride, NULL);
            else if (is_whole(at))
                transform_whole_input(w, of.how[t], part, to, stride, map);
            else
                transform_end_input(w, g->forward->bf16, part, to, stride, (tile_size){at->rows, at->columns, map});
            next_planes(&of.at[t], in, &g->x, of.how[t]);
        }
    }
}

/* The inputs of a strip, as multiply_strip() reads them. */
static void transform_strip(const gradient *g, const block *b, int64_t c, int64_t channels, const group *tiles)
{
    switch (b->part) {
    case 0: transform_inputs_of(g, b, c, channels, tiles, 0); break;
    case 1: transform_inputs_of(g, b, c, channels, tiles, 1); break;
    case 2: transform_inputs_of(g, b, c, channels, tiles, 2); break;
    default: transform_inputs_of(g, b, c, channels, tiles, WHOLE); break;
    }
}

INLINE void transform_gradients_of(const gradient *g, const block *b, const group *tiles, const int part, float *sums)
{
    const winograd_images *out = &g->forward->out;
    const int64_t stride = group_stride(b->outputs);
    const tiling *map = uneven(&g->tiles);
    const int classes = count_classes(&g->tiles);
    windows of;
    for (int64_t t = 0; t < tiles->count; t++) {
        const place at = tiles->places[t];
        of.how[t] = find_window(out, &g->dy, g->forward->bf16, at.image, b->output, at.row, at.column, TILE, &of.at[t]);
    }
    for (int64_t o = 0; o < b->outputs; o += LANES) {
        const int64_t begin = panel_begin(o, b->outputs), width = panel_vectors(begin, b->outputs) * LANES;
        vector sum = {0};
        for (int64_t t = 0; t < tiles->count; t++) {
            const place *at = &tiles->places[t];
            const window *w = &of.at[t];
            float *to[CLASSES] = {NULL};
            for (int which = 0; which < classes; which++)
                to[which] = b->w + begin * GROUP + at->number[which] * width + (o - begin);
            if (!map)
                transform_whole_gradient(w, of.how[t], part, to, stride, NULL, &sum);
            else if (is_whole(at))
                transform_whole_gradient(w, of.how[t], part, to, stride, map, &sum);
            else
                transform_end_gradient(w, of.how[t], part, to, stride, (tile_size){at->rows, at->columns, map}, &sum);
            next_planes(&of.at[t], out, &g->dy, of.how[t]);
        }
        if (sums)
            store(sums + o, tiles->add ? load(sums + o) + sum : sum);
    }
}

/* The gradients of the block's outputs. Their sums, for the biases, are added to `sums`, unless
 * that is NULL. */
static void transform_gradients(const gradient *g, const block *b, const group *tiles, float *sums)
{
    switch (b->part) {
    case 0: transform_gradients_of(g, b, tiles, 0, sums); break;
    case 1: transform_gradients_of(g, b, tiles, 1, NULL); break;
    case 2: transform_gradients_of(g, b, tiles, 2, NULL); break;
    default: transform_gradients_of(g, b, tiles, WHOLE, sums); break;
    }
}

/* The inputs of a strip from the block's channel c on, to be asked for while `multiplied` channels
 * are multiplied. (Asking for dy as well costs more than it saves: it is more than the L2 cache has
 * room for.) */
static expected expect_strip(const gradient *g, const block *b, int64_t c, const group *tiles, int64_t multiplied)
{
    const winograd_images *in = &g->forward->in;
    const bool bf16 = g->forward->bf16;
    const int64_t plane = floats_of(in->height * in->width * LANES, bf16),
                  planes = minimum(STRIP, b->channels - c) / LANES;
    const int64_t panels = (b->outputs / LANES + VECTORS - 1) / VECTORS;
    const int64_t calls = row_count(b->part) * WINDOW * panels * ((multiplied + ROWS - 1) / ROWS);
    return (expected){.squares = tiles->x,
                      .count = tiles->count,
                      .planes = tiles->count > 0 ? planes : 0,
                      .plane = plane,
                      .row = floats_of(in->width * LANES, bf16),
                      .width = floats_of(TILE * LANES, bf16),
                      .done = c / LANES * plane,
                      .most = tiles->count * planes / calls + 1};
}

/* Transforms a group and adds its products to the block. `next` is the group after it, perhaps of
 * no tiles. */
static void add_group(const gradient *g, const block *b, const group *tiles, const group *next, float *sums)
{
    transform_gradients(g, b, tiles, sums);
    for (int64_t c = 0; c < b->channels; c += STRIP) {
        const int64_t channels = minimum(STRIP, b->channels - c);
        expected soon = c + channels < b->channels ? expect_strip(g, b, c + channels, tiles, channels)
                                                   : expect_strip(g, b, 0, next, channels);
        transform_strip(g, b, c, channels, tiles);
        multiply_strip(g, b, c, channels, tiles, &soon);
    }
}

#endif
