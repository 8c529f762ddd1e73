/* One group of tiles of the gradient of the weights: transforms, and products added to a block. See winograd_weights.c. */
#ifndef FTH_BACKEND_CPU_LEVEL_WINOGRAD_GROUP_H
#define FTH_BACKEND_CPU_LEVEL_WINOGRAD_GROUP_H

#include "backend/cpu/level/winograd_tile.h"

/* Tiles that are transformed together, and channels: a multiple of ROWS and of LANES. */
enum { GROUP = 64, STRIP = 48 };

/* What the innermost product computes at once: channels × vectors of outputs. */
enum { ROWS = 6, VECTORS = REGISTERS == 32 ? 4 : 2 };

/* A third of the points: two rows that share most of their transform. Or a block has all six rows. */
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

static int64_t minimum(int64_t a, int64_t b)
{
    return a < b ? a : b;
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

/* Tiles whose products are added to a block, after those of other groups unless they are the first. */
typedef struct group {
    place places[GROUP];
    const float *x[GROUP]; /* where they lie in the first planes of the block's inputs */
    int64_t count;
    bool add;
} group;

/* Floats from one point of transformed `planes` of a group to the next. */
INLINE int64_t group_stride(int64_t planes)
{
    return GROUP * planes + LANES;
}

/* ---- products ---- */

/* Outputs come in panels of VECTORS vectors; what remains, in panels of one. */
INLINE int64_t panel_vectors(int64_t begin, int64_t outputs)
{
    return begin + VECTORS * LANES <= outputs ? VECTORS : 1;
}

/* The first output of the panel that has `output`. */
INLINE int64_t panel_begin(int64_t output, int64_t outputs)
{
    const int64_t begin = output / (VECTORS * LANES) * (VECTORS * LANES);
    return panel_vectors(begin, outputs) == VECTORS ? begin : output;
}

/* products[c][n] = or += sum over t of v[t][c] * w[t][n], for R channels and N vectors of outputs. The first S channels are of one
 * vector, the others of the next. R, S and N are constants. */
INLINE void multiply_registers(const float *v, const float *w, float *products, int64_t count, int64_t chain, bool add,
                               const int R, const int S, const int N)
{
    for (int64_t begin = 0; begin < count; begin += chain) {
        const int64_t end = minimum(begin + chain, count);
        vector sum[ROWS * VECTORS];
        for (int i = 0; i < R * N; i++) {
            sum[i] = (vector){0};
            if (LANES * 4 * (i + 1) % 64 == 0)
                __builtin_prefetch(products + i * LANES, 1, 3);
        }
        for (int64_t t = begin; t < end; t++) {
            vector g[VECTORS];
            for (int n = 0; n < N; n++)
                g[n] = load(w + (t * N + n) * LANES);
            for (int r = 0; r < R; r++) {
                const vector x = broadcast(v[t * LANES + r + (r < S ? 0 : (GROUP - 1) * LANES)]);
                for (int n = 0; n < N; n++)
                    sum[r * N + n] = multiply_add(x, g[n], sum[r * N + n]);
            }
        }
        if (add || begin > 0) {
            for (int i = 0; i < R * N; i++)
                store(products + i * LANES, load(products + i * LANES) + sum[i]);
        } else {
            for (int i = 0; i < R * N; i++)
                store(products + i * LANES, sum[i]);
        }
    }
}

/* A strip of `channels`, a multiple of 4, and N vectors of outputs. */
INLINE void multiply_panel(const float *v, int64_t channels, const float *w, float *products, int64_t count,
                           int64_t chain, bool add, expected *next, const int N)
{
#define MULTIPLY(R, S) multiply_registers(from, w, to, count, chain, add, R, S, N)
    for (int64_t c = 0, rows; c < channels; c += rows) {
        const float *from = v + c / LANES * LANES * GROUP + c % LANES;
        float *to = products + c * N * LANES;
        const int64_t left = channels - c, of_vector = LANES - c % LANES;
        rows = left >= ROWS && left != 8 ? ROWS : 4;
        expect(next);
        if (rows == 4 && of_vector >= 4)
            MULTIPLY(4, 4);
        else if (rows == 4)
            MULTIPLY(4, 2);
        else if (of_vector >= 6)
            MULTIPLY(6, 6);
        else if (of_vector == 4)
            MULTIPLY(6, 4);
        else
            MULTIPLY(6, 2);
    }
#undef MULTIPLY
}

/* The strip of `channels` from the block's channel c on, at all points. */
static void multiply_strip(const block *b, int64_t c, int64_t channels, const group *tiles, int64_t chain,
                           expected *next)
{
    for (int64_t p = 0; p < row_count(b->part) * WINDOW; p++) {
        const float *v = b->v + p * group_stride(STRIP), *w = b->w + p * group_stride(b->outputs);
        float *products = b->products + p * b->channels * b->outputs;
        int64_t n = 0;
        for (; panel_vectors(n, b->outputs) == VECTORS; n += VECTORS * LANES)
            multiply_panel(v, channels, w + n * GROUP, products + n * b->channels + c * VECTORS * LANES, tiles->count,
                           chain, tiles->add, next, VECTORS);
        for (; n < b->outputs; n += LANES)
            multiply_panel(v, channels, w + n * GROUP, products + n * b->channels + c * LANES, tiles->count, chain,
                           tiles->add, next, 1);
    }
}

/* ---- transforms ---- */

/* The part's points of 6×6 inputs, to to[point * stride]. */
INLINE void transform_input(const window *w, const reading how, const int part, float *to, int64_t stride)
{
    vector half[WINDOW][WINDOW];
#pragma GCC unroll 6
    for (int j = 0; j < WINDOW; j++) {
        vector line[WINDOW];
        for (int i = 0; i < WINDOW; i++)
            line[i] = read_number(w, i, j, how);
        transform_inputs(line);
        for (int i = 0; i < row_count(part); i++)
            half[i][j] = line[row_of(part, i)];
    }
#pragma GCC unroll 6
    for (int i = 0; i < row_count(part); i++) {
        transform_inputs(half[i]);
        for (int j = 0; j < WINDOW; j++)
            store(to + (i * WINDOW + j) * stride, half[i][j]);
    }
}

/* The same of 4×4 of dy, whose sum is returned. */
INLINE vector transform_gradient(const window *w, const reading how, const int part, float *to, int64_t stride)
{
    vector half[WINDOW][TILE], sum = {0};
#pragma GCC unroll 4
    for (int j = 0; j < TILE; j++) {
        vector line[TILE], at[WINDOW];
        for (int i = 0; i < TILE; i++)
            line[i] = read_number(w, i, j, how);
        sum += (line[0] + line[1]) + (line[2] + line[3]);
        evaluate_four(line, at);
        for (int i = 0; i < row_count(part); i++)
            half[i][j] = at[row_of(part, i)];
    }
#pragma GCC unroll 6
    for (int i = 0; i < row_count(part); i++) {
        vector at[WINDOW];
        evaluate_four(half[i], at);
        for (int j = 0; j < WINDOW; j++)
            store(to + (i * WINDOW + j) * stride, at[j]);
    }
    return sum;
}

/* Moves on to the next LANES planes of the same image. */
INLINE void next_planes(window *w, const winograd_images *images, const winograd_source *source)
{
    const winograd_images cells = pooled(images), *read = source->where ? &cells : images;
    const int64_t floats = read->height * read->width * LANES;
    if (w->halves)
        w->halves += floats;
    else
        w->from += floats;
    if (source->where)
        w->where += floats;
}

/* The tiles' windows in one of the images. */
typedef struct windows {
    window at[GROUP];
    reading how[GROUP];
} windows;

INLINE void transform_inputs_of(const gradient *g, const block *b, int64_t c, int64_t channels, const group *tiles,
                                const int part)
{
    const winograd_images *in = &g->forward->in;
    windows of;
    for (int64_t t = 0; t < tiles->count; t++) {
        const place at = tiles->places[t];
        of.how[t] = find_window(in, &g->x, g->forward->bf16, at.image, b->channel + c, at.row + g->forward->begin_row,
                                at.column + g->forward->begin_column, WINDOW, &of.at[t]);
    }
    for (int64_t k = 0; k < channels; k += LANES) {
        for (int64_t t = 0; t < tiles->count; t++) {
            float *to = b->v + k * GROUP + t * LANES;
            window_memory memory;
            reading how = of.how[t];
            const window w = widen_window(&of.at[t], &how, WINDOW, memory);
            if (how == INSIDE)
                transform_input(&w, INSIDE, part, to, group_stride(STRIP));
            else
                transform_input(&w, BORDER, part, to, group_stride(STRIP));
            next_planes(&of.at[t], in, &g->x);
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
    windows of;
    for (int64_t t = 0; t < tiles->count; t++) {
        const place at = tiles->places[t];
        of.how[t] = find_window(out, &g->dy, g->forward->bf16, at.image, b->output, at.row, at.column, TILE, &of.at[t]);
    }
    for (int64_t o = 0; o < b->outputs; o += LANES) {
        const int64_t begin = panel_begin(o, b->outputs), width = panel_vectors(begin, b->outputs) * LANES;
        vector sum = {0};
        for (int64_t t = 0; t < tiles->count; t++) {
            float *to = b->w + begin * GROUP + t * width + (o - begin);
            window_memory memory;
            reading how = of.how[t];
            const window w = widen_window(&of.at[t], &how, TILE, memory);
            switch (how) {
            case INSIDE: sum += transform_gradient(&w, INSIDE, part, to, stride); break;
            case BORDER: sum += transform_gradient(&w, BORDER, part, to, stride); break;
            default: sum += transform_gradient(&w, POOLED, part, to, stride); break; /* tiles begin at even places */
            }
            next_planes(&of.at[t], out, &g->dy);
        }
        if (sums)
            store(sums + o, tiles->add ? load(sums + o) + sum : sum);
    }
}

/* The gradients of the block's outputs. Their sums, for the biases, are added to `sums`, unless that is NULL. */
static void transform_gradients(const gradient *g, const block *b, const group *tiles, float *sums)
{
    switch (b->part) {
    case 0: transform_gradients_of(g, b, tiles, 0, sums); break;
    case 1: transform_gradients_of(g, b, tiles, 1, NULL); break;
    case 2: transform_gradients_of(g, b, tiles, 2, NULL); break;
    default: transform_gradients_of(g, b, tiles, WHOLE, sums); break;
    }
}

/* The inputs of a strip from the block's channel c on, to be asked for while `multiplied` channels are multiplied. (Asking for dy
 * as well costs more than it saves: it is more than the L2 cache has room for.) */
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

/* Transforms a group and adds its products to the block. `next` is the group after it, perhaps of no tiles. */
static void add_group(const gradient *g, const block *b, const group *tiles, const group *next, float *sums)
{
    transform_gradients(g, b, tiles, sums);
    for (int64_t c = 0; c < b->channels; c += STRIP) {
        const int64_t channels = minimum(STRIP, b->channels - c);
        expected soon = c + channels < b->channels ? expect_strip(g, b, c + channels, tiles, channels)
                                                   : expect_strip(g, b, 0, next, channels);
        transform_strip(g, b, c, channels, tiles);
        multiply_strip(b, c, channels, tiles, g->chain, &soon);
    }
}

#endif
