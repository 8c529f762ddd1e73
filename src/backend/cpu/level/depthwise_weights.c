/* Depthwise convolutions, grad_weights: dw[i][j] = sum of dy[r][t] · x[r·s - p + i][t·s - p + j]
 * over the batch and the map, for each channel.
 *
 * The sums of ROWS rows of the kernel stay in registers while a band of output rows goes by, and
 * are then added to the part's: sums of sums, which lose less than one running sum over the
 * batch. Parts of the batch are a function of the shapes alone and are added in order, so that
 * the result does not depend on the number of threads. */
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
    int64_t blocks, taps;
    int64_t band;         /* output rows of a band */
    int64_t pieces;       /* of a map */
    int64_t parts;        /* of batch × pieces */
    depthwise_rows x, dy; /* as each thread's begin; dy's rows are copied only to be widened */
    float *sums;          /* (parts, blocks, taps + 1, LANES); the last is the bias's */
    bool bias;
} gradient;

static gradient describe(const blocked_convolution *c)
{
    gradient g = {.c = c, .blocks = depthwise_blocks(c->channels), .taps = c->kernel[0] * c->kernel[1]};
    const int64_t maps = c->batch * g.blocks, stride = c->stride[1];
    g.band = depthwise_least((BAND_PIXELS + c->out_width - 1) / c->out_width, c->out_height);
    g.pieces = depthwise_least((WANTED_TASKS + maps - 1) / maps, (c->out_height + g.band - 1) / g.band);
    g.parts = depthwise_least(c->batch * g.pieces, (WANTED_TASKS + g.blocks - 1) / g.blocks);
    const int64_t last = (c->out_width - 1) * stride - c->padding[1] + c->kernel[1] - 1;
    g.x = (depthwise_rows){.height = c->height,
                           .width = c->width,
                           .before = c->padding[1],
                           .pitch = c->padding[1] + depthwise_most(c->width, last + 1),
                           .slots = depthwise_slots((g.band - 1) * c->stride[0] + c->kernel[0])};
    g.dy = (depthwise_rows){
        .height = c->out_height, .width = c->out_width, .pitch = c->out_width, .slots = depthwise_slots(g.band)};
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

/* sums[i][j] += sum over the band, for rows i from `first` on of the kernel: R of J columns. */
INLINE void add_rows(const band *b, int64_t first, float *sums, const int R, const int J, const int S)
{
    vector sum[REGISTERS];
    const int64_t width = b->g->c->out_width, stride = b->g->c->stride[0];
#pragma GCC unroll 32
    for (int k = 0; k < R * J; k++)
        sum[k] = broadcast(0);
    for (int64_t r = 0; r < b->rows; r++) {
        const float *dy = b->dy[r], *const *x = b->x + r * stride + first;
        const float *from[MOST_SIZE];
        for (int i = 0; i < R; i++)
            from[i] = x[i];
        for (int64_t t = 0; t < width; t++) {
            const vector d = load(dy + t * LANES);
#pragma GCC unroll 7
            for (int i = 0; i < R; i++) {
#pragma GCC unroll 7
                for (int j = 0; j < J; j++)
                    sum[i * J + j] = multiply_add(load(from[i] + (t * S + j) * LANES), d, sum[i * J + j]);
            }
        }
    }
#pragma GCC unroll 32
    for (int k = 0; k < R * J; k++) {
        float *to = sums + (first * J + k) * LANES;
        store(to, load(to) + sum[k]);
    }
}

INLINE void add_kernel(const band *b, float *sums, const int J, const int S)
{
    const int64_t rows = b->g->c->kernel[0];
    const int most = most_rows(J);
    int64_t i = 0;
    for (; i + most <= rows; i += most)
        add_rows(b, i, sums, most, J, S);
    switch (rows - i) {
    case 6: add_rows(b, i, sums, most > 6 ? 6 : 1, J, S); break;
    case 5: add_rows(b, i, sums, most > 5 ? 5 : 1, J, S); break;
    case 4: add_rows(b, i, sums, most > 4 ? 4 : 1, J, S); break;
    case 3: add_rows(b, i, sums, most > 3 ? 3 : 1, J, S); break;
    case 2: add_rows(b, i, sums, most > 2 ? 2 : 1, J, S); break;
    case 1: add_rows(b, i, sums, 1, J, S); break;
    default: break;
    }
}

static void add_columns_3(const band *b, float *sums)
{
    if (b->g->c->stride[1] == 1)
        add_kernel(b, sums, 3, 1);
    else
        add_kernel(b, sums, 3, 2);
}

static void add_columns_5(const band *b, float *sums)
{
    if (b->g->c->stride[1] == 1)
        add_kernel(b, sums, 5, 1);
    else
        add_kernel(b, sums, 5, 2);
}

static void add_columns_7(const band *b, float *sums)
{
    if (b->g->c->stride[1] == 1)
        add_kernel(b, sums, 7, 1);
    else
        add_kernel(b, sums, 7, 2);
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
        b.x[i] = depthwise_row(x, top + i) - c->padding[1] * LANES;
    if (c->bf16)
        depthwise_copy_rows(dy, begin + rows);
    for (int64_t r = 0; r < rows; r++)
        b.dy[r] = c->bf16 ? depthwise_row(dy, begin + r)
                          : (const float *)dy->from.numbers + dy->plane + (begin + r) * c->out_width * LANES;
    switch (c->kernel[1]) {
    case 3: add_columns_3(&b, sums); break;
    case 5: add_columns_5(&b, sums); break;
    default: add_columns_7(&b, sums); break;
    }
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
    const int64_t count = g->c->channels - block * LANES;
    for (int64_t tap = 0; tap < g->taps; tap++)
        store_strided_part(dweight + block * LANES * g->taps + tap, g->taps, add_up(g, block, tap), count);
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
