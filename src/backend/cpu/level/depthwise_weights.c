/* Depthwise convolutions, and others with few channels a group, grad_weights: dw[i][j] = sum of
 * dy[r][t] · x[r·s - p + i][t·s - p + j] over the batch and the map, for each pair of channels
 * of a group (depthwise_level.h: the second of them is part of j here).
 *
 * The sums of some rows and columns of the kernel stay in registers while a band of output rows
 * goes by, and are then added to the part's: sums of sums, which lose less than one running sum
 * over the batch. Parts of the batch are a function of the shapes alone and are added in order,
 * so that the result does not depend on the number of threads. */
#include <omp.h>

#include "backend/cpu/level/depthwise_level.h"

enum {
    MOST_SIZE = 7,    /* of a kernel */
    BAND_PIXELS = 64, /* at least, of a band's outputs, if the map has as many */
    MOST_BAND = 64,   /* rows */
    WANTED_TASKS = 64
};

/* Rows of a kernel of `columns` columns whose sums fit into the registers, with the inputs of a row
 * that the next output reads again, which compilers keep there. */
INLINE int most_rows(const int columns)
{
    const int rows = (REGISTERS - 4) / (2 * columns - 1);
    return rows < 1 ? 1 : rows > MOST_SIZE ? MOST_SIZE : rows;
}

typedef struct gradient {
    const blocked_convolution *c;
    int64_t blocks, taps, columns; /* taps of a group's channels: (kernel[0], columns) */
    int64_t band;                  /* output rows of a band */
    int64_t pieces;                /* of a map */
    int64_t parts;                 /* of batch × pieces */
    depthwise_rows x, dy;          /* as each thread's begin; dy's rows are copied only to be widened */
    float *sums;                   /* (parts, blocks, taps + 1, LANES); the last is the bias's */
    bool bias;
} gradient;

static gradient describe(const blocked_convolution *c)
{
    gradient g = {.c = c, .blocks = depthwise_blocks(c->channels), .columns = c->kernel[1] * c->group};
    g.taps = c->kernel[0] * g.columns;
    const int64_t maps = c->batch * g.blocks, stride = c->stride[1];
    g.band = depthwise_least((BAND_PIXELS + c->out_width - 1) / c->out_width, c->out_height);
    g.pieces = depthwise_least((WANTED_TASKS + maps - 1) / maps, (c->out_height + g.band - 1) / g.band);
    g.parts = depthwise_least(c->batch * g.pieces, (WANTED_TASKS + g.blocks - 1) / g.blocks);
    const int64_t last = (c->out_width - 1) * stride - c->padding[1] + c->kernel[1] - 1;
    g.x = (depthwise_rows){.height = c->height,
                           .width = c->width,
                           .group = c->group,
                           .before = c->padding[1],
                           .pitch = c->padding[1] + depthwise_most(c->width, last + 1),
                           .slots = depthwise_slots((g.band - 1) * c->stride[0] + c->kernel[0])};
    g.dy = (depthwise_rows){.height = c->out_height,
                            .width = c->out_width,
                            .group = 1,
                            .pitch = c->out_width,
                            .slots = depthwise_slots(g.band)};
    return g;
}

INLINE int64_t sums_floats(const gradient *g)
{
    return g->parts * g->blocks * (g->taps + 1) * LANES;
}

INLINE int64_t thread_floats(const gradient *g)
{
    return depthwise_rows_floats(&g->x) + depthwise_rows_floats(&g->dy);
}

int64_t AT_LEVEL(depthwise_grad_weights_floats)(const blocked_convolution *c, int threads)
{
    const gradient g = describe(c);
    return sums_floats(&g) + threads * thread_floats(&g);
}

/* ---- a band ---- */

typedef struct band {
    const gradient *g;
    int64_t rows;
    const float *dy[MOST_BAND];
    const float *x[2 * MOST_BAND + MOST_SIZE]; /* the input rows under the first tap of the first output row, and on */
} band;

/* sums[i][j] += sum over the band, for rows i from `row` on and columns j from `column` on of the
 * kernel: R of J. S: vectors of x from one output to the next; 0: any number. */
INLINE void add_taps(const band *b, int64_t row, int64_t column, float *sums, const int R, const int J, const int S)
{
    vector sum[REGISTERS];
    const int64_t width = b->g->c->out_width, stride = b->g->c->stride[0], columns = b->g->columns;
    const int64_t step = (S ? S : b->g->c->stride[1] * b->g->c->group) * LANES;
#pragma GCC unroll 32
    for (int k = 0; k < R * J; k++)
        sum[k] = broadcast(0);
    for (int64_t r = 0; r < b->rows; r++) {
        const float *dy = b->dy[r], *const *x = b->x + r * stride + row;
        const float *from[MOST_SIZE];
        for (int i = 0; i < R; i++)
            from[i] = x[i] + column * LANES;
        for (int64_t t = 0; t < width; t++) {
            const vector d = load(dy + t * LANES);
#pragma GCC unroll 7
            for (int i = 0; i < R; i++) {
#pragma GCC unroll 12
                for (int j = 0; j < J; j++)
                    sum[i * J + j] = multiply_add(load(from[i] + t * step + j * LANES), d, sum[i * J + j]);
            }
        }
    }
#pragma GCC unroll 7
    for (int i = 0; i < R; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < J; j++) {
            float *to = sums + ((row + i) * columns + column + j) * LANES;
            store(to, load(to) + sum[i * J + j]);
        }
    }
}

/* A kernel of J columns, all of them at once. */
INLINE void add_kernel(const band *b, float *sums, const int J, const int S)
{
    const int64_t rows = b->g->c->kernel[0];
    const int most = most_rows(J);
    int64_t i = 0;
    for (; i + most <= rows; i += most)
        add_taps(b, i, 0, sums, most, J, S);
    for (; i + 2 <= rows && most > 2; i += 2)
        add_taps(b, i, 0, sums, 2, J, S);
    for (; i < rows; i++)
        add_taps(b, i, 0, sums, 1, J, S);
}

#define DEFINE_KERNEL(J)                                                                                               \
    static void add_kernel_##J(const band *b, float *sums)                                                             \
    {                                                                                                                  \
        if (b->g->c->stride[1] == 1)                                                                                   \
            add_kernel(b, sums, J, 1);                                                                                 \
        else                                                                                                           \
            add_kernel(b, sums, J, 2);                                                                                 \
    }
DEFINE_KERNEL(3)
DEFINE_KERNEL(5)
DEFINE_KERNEL(7)

/* A row at a time, and some of its columns: 6 or 12, of which there are a multiple. */
static void add_groups(const band *b, float *sums)
{
    for (int64_t i = 0; i < b->g->c->kernel[0]; i++) {
        int64_t j = 0;
        for (; j + 12 <= b->g->columns; j += 12)
            add_taps(b, i, j, sums, 1, 12, 0);
        for (; j < b->g->columns; j += 6)
            add_taps(b, i, j, sums, 1, 6, 0);
    }
}

/* The bias's gradient: sums of four neighbours, so that additions do not wait for one another. */
static void add_bias(const band *b, float *to)
{
    const int64_t width = b->g->c->out_width;
    vector sum[4] = {broadcast(0), broadcast(0), broadcast(0), broadcast(0)};
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t t = 0;
        for (; t + 4 <= width; t += 4) {
            for (int k = 0; k < 4; k++)
                sum[k] += load(b->dy[r] + (t + k) * LANES);
        }
        for (; t < width; t++)
            sum[0] += load(b->dy[r] + t * LANES);
    }
    store(to, load(to) + (sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* Output rows [begin, begin + rows) of the map that `x` and `dy` are at. */
static void add_band(const gradient *g, depthwise_rows *x, depthwise_rows *dy, int64_t begin, int64_t rows, float *sums)
{
    const blocked_convolution *c = g->c;
    const int64_t top = begin * c->stride[0] - c->padding[0], span = (rows - 1) * c->stride[0] + c->kernel[0];
    band b = {.g = g, .rows = rows};
    depthwise_copy_rows(x, depthwise_least(top + span, c->height));
    for (int64_t i = 0; i < span; i++)
        b.x[i] = depthwise_row(x, top + i) - c->padding[1] * c->group * LANES;
    if (c->bf16)
        depthwise_copy_rows(dy, begin + rows);
    for (int64_t r = 0; r < rows; r++)
        b.dy[r] = c->bf16 ? depthwise_row(dy, begin + r)
                          : (const float *)dy->from.numbers + dy->plane + (begin + r) * c->out_width * LANES;
    if (c->group > 1)
        add_groups(&b, sums);
    else
        (c->kernel[1] == 3 ? add_kernel_3 : c->kernel[1] == 5 ? add_kernel_5 : add_kernel_7)(&b, sums);
    if (g->bias)
        add_bias(&b, sums + g->taps * LANES);
}

/* ---- all ---- */

static void add_part(const gradient *g, depthwise_rows *x, depthwise_rows *dy, int64_t block, int64_t part)
{
    const blocked_convolution *c = g->c;
    const int64_t all = c->batch * g->pieces, bands = (c->out_height + g->band - 1) / g->band;
    float *sums = g->sums + (part * g->blocks + block) * (g->taps + 1) * LANES;
    memset(sums, 0, (size_t)((g->taps + 1) * LANES) * sizeof *sums);
    for (int64_t i = all * part / g->parts; i < all * (part + 1) / g->parts; i++) {
        const int64_t map = i / g->pieces * g->blocks + block, piece = i % g->pieces;
        x->plane = map * c->height * c->width * LANES;
        dy->plane = map * c->out_height * c->out_width * LANES;
        x->end = dy->end = 0;
        for (int64_t b = bands * piece / g->pieces; b < bands * (piece + 1) / g->pieces; b++)
            add_band(g, x, dy, b * g->band, depthwise_least(g->band, c->out_height - b * g->band), sums);
    }
}

/* The sum of the parts' sums of one tap, or of the bias. */
INLINE vector add_up(const gradient *g, int64_t block, int64_t tap)
{
    vector sum = broadcast(0);
    for (int64_t part = 0; part < g->parts; part++)
        sum += load(g->sums + ((part * g->blocks + block) * (g->taps + 1) + tap) * LANES);
    return sum;
}

static void write_block(const gradient *g, int64_t block, float *dweight, float *dbias)
{
    const int64_t count = g->c->channels - block * LANES, group = g->c->group, taps = g->taps / group;
    for (int64_t tap = 0; tap < g->taps; tap++) /* (tap of the kernel, channel) to (channel, tap of the kernel) */
        store_strided_part(dweight + block * LANES * g->taps + tap % group * taps + tap / group, g->taps,
                           add_up(g, block, tap), count);
    if (dbias)
        store_part(dbias + block * LANES, add_up(g, block, g->taps), count);
}

void AT_LEVEL(depthwise_grad_weights)(const blocked_convolution *c, const void *x, const void *dy, int threads,
                                      float *scratch, float *dweight, float *dbias)
{
    gradient g = describe(c);
    g.x.from = (stored){x, c->bf16};
    g.dy.from = (stored){dy, c->bf16};
    g.sums = scratch;
    g.bias = dbias != NULL;
#pragma omp parallel num_threads(threads)
    {
        depthwise_rows own_x = g.x, own_dy = g.dy;
        own_x.floats = scratch + sums_floats(&g) + omp_get_thread_num() * thread_floats(&g);
        own_dy.floats = own_x.floats + depthwise_rows_floats(&own_x);
        depthwise_clear_rows(&own_x);
#pragma omp for collapse(2) schedule(static)
        for (int64_t part = 0; part < g.parts; part++) {
            for (int64_t block = 0; block < g.blocks; block++)
                add_part(&g, &own_x, &own_dy, block, part);
        }
#pragma omp for schedule(static)
        for (int64_t block = 0; block < g.blocks; block++)
            write_block(&g, block, dweight, dbias);
    }
}
