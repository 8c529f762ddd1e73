/* The gradient of the weights of a Winograd convolution: F(3×3, 4×4) with the points of
 * winograd_tile.h. 6×6 inputs against 4×4 of dy, multiplied point by point and summed over all
 * tiles before the transform back.
 *
 * At each point that is a matrix product, channels × tiles by tiles × outputs, and all of them
 * together are large: for 512 channels and outputs 38 MB. So the result is made in blocks that stay
 * in a core's L2 cache while the tiles pass by: some of the channels, some of the outputs, and
 * where that is not enough a third of the points, two rows of them that share most of their
 * transform. Tiles are transformed GROUP at a time, and STRIP channels, into the order in which the
 * products read them (winograd_group.h). What other blocks have transformed as well is transformed
 * again, which costs less than to write it to memory and read it back. After the last group the
 * block is transformed along its rows of points, so that half of it goes to memory; the columns
 * follow when all blocks are made.
 *
 * Blocks are shared out to threads. If they do not come out even, the tiles are split into ranges
 * as well, and what comes of these is added up in their order: results depend on the number of
 * threads, never on which of them was faster.
 *
 * Sums over thousands of tiles would be the largest error of this pass. Products are therefore
 * summed up over at most CHAIN tiles in registers, and these sums added to the block. Root mean
 * square errors over that of a direct f32 convolution, which adds one product after the other, for
 * inputs behind a ReLU: 64 tiles 2.5 with one sum over all, 1.7 over 32, 1.4 over 16 at a time; 256
 * tiles 1.4 with one sum, 0.9 over 64, 0.7 over 32; 2048 tiles 1.8 with one sum, 0.4 over 64 or 32.
 * A shorter sum costs loads and stores of the block: with 32 instead of 64 the products take 8 %
 * longer, so few tiles get the shorter ones; and 32 tiles or less those over 8, as the transforms
 * are most of the time then. */
#include <omp.h>
#include <string.h>
#include <unistd.h>

#include "backend/cpu/level/winograd_group.h"
#include "backend/cpu/level/winograd_level.h"

enum { CHAIN = 64, SHORT_CHAIN = 32, FEW_TILES = 128, MOST_CACHE = 1 << 21 };
enum { SHORTEST_CHAIN = 8, FEWEST_TILES = 32 };

/* ---- how the result is cut up ---- */

typedef struct cutting {
    int64_t channels, outputs;             /* of a block; the last ones may have fewer */
    int64_t channel_blocks, output_blocks; /* how many there are */
    int parts;                             /* 1 or THIRDS */
    int64_t ranges;                        /* of tiles */
} cutting;

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* For a block and the group that is added to it. */
static int64_t block_floats(const cutting *cut)
{
    return POINTS / cut->parts * (cut->channels * cut->outputs + group_stride(STRIP) + group_stride(cut->outputs));
}

static int64_t count_blocks(cutting *cut, const winograd_correlation *forward)
{
    cut->channel_blocks = divide_up(forward->in.planes, cut->channels);
    cut->output_blocks = divide_up(forward->out.planes, cut->outputs);
    return cut->channel_blocks * cut->output_blocks * cut->parts;
}

/* False if there is nothing left to halve: less would leave the innermost product unfilled. */
static bool halve_block(cutting *cut)
{
    int64_t *larger = cut->channels > cut->outputs ? &cut->channels : &cut->outputs;
    if (*larger < 2 * VECTORS * LANES)
        return false;
    *larger = divide_up(*larger / LANES, 2) * LANES;
    return true;
}

/* Blocks that fit a cache of `bytes`, and as many as give all threads work. */
static cutting cut_blocks(const winograd_correlation *forward, int64_t groups, int threads, int64_t bytes)
{
    cutting cut = {.channels = forward->in.planes, .outputs = forward->out.planes, .parts = 1, .ranges = 1};
    const int64_t most = bytes / (int64_t)sizeof(float) / 8 * 7;
    if (block_floats(&cut) > most)
        cut.parts = THIRDS;
    while (block_floats(&cut) > most && halve_block(&cut))
        continue;
    if (count_blocks(&cut, forward) * groups < threads)
        cut.parts = THIRDS;
    while (count_blocks(&cut, forward) * groups < threads && halve_block(&cut))
        continue;
    return cut;
}

/* How many ranges leave the threads idle least. */
static int64_t choose_ranges(int64_t blocks, int64_t groups, int threads)
{
    int64_t chosen = 1;
    double best = 0; /* share of the threads' time in which they have work */
    for (int64_t ranges = 1; ranges <= groups && ranges <= 4 * (int64_t)threads; ranges++) {
        const int64_t tasks = blocks * ranges;
        const double busy = (double)tasks / (double)(divide_up(tasks, threads) * threads);
        if (busy > best + 0.05) {
            best = busy;
            chosen = ranges;
        }
    }
    return chosen;
}

/* A core's L2 cache, in bytes. */
static int64_t cache_bytes(void)
{
    long bytes = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE)
    bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return bytes < 1 << 18 ? 1 << 20 : minimum(bytes, MOST_CACHE); /* smaller: not known */
}

/* Blocks suit the core's cache, which leaves every sum as it is. Ranges, which do not, are the same
 * whatever the cache is: those of MOST_CACHE, and where it is smaller, and blocks are more, the
 * threads are as busy. */
static cutting cut_up(const winograd_correlation *forward, const tiling *tiles, int threads)
{
    const int64_t groups = divide_up(tiles->count, GROUP);
    cutting most = cut_blocks(forward, groups, threads, MOST_CACHE);
    cutting cut = cut_blocks(forward, groups, threads, cache_bytes());
    cut.ranges = choose_ranges(count_blocks(&most, forward), groups, threads);
    count_blocks(&cut, forward);
    return cut;
}

/* ---- and back ---- */

/* What the blocks of a range are made into: (channels / LANES, outputs / LANES, row of points, 3,
 * LANES, LANES), so that the columns of LANES channels and outputs lie together; and behind all of
 * them the outputs' sums of dy. */
INLINE int64_t offset_of_row(const winograd_correlation *forward, int64_t channel, int64_t output, int row)
{
    const int64_t square = channel / LANES * (forward->out.planes / LANES) + output / LANES;
    return (square * WINDOW + row) * 3 * LANES * LANES;
}

static int64_t offset_of_biases(const winograd_correlation *forward)
{
    return WINDOW * 3 * forward->in.planes * forward->out.planes;
}

static int64_t range_floats(const winograd_correlation *forward)
{
    return offset_of_biases(forward) + forward->out.planes;
}

/* A row of points of one panel of N vectors, a constant, and LANES channels, from the block's c
 * on. */
INLINE void finish_row(const gradient *g, const block *b, int64_t begin, int64_t c, int r, const int N, float *sums)
{
    const int64_t stride = b->channels * b->outputs;
    const int row = row_of(b->part, r);
    const float *from = b->products + r * WINDOW * stride + begin * b->channels + c * N * LANES;
    const float scale = factor(row);
    for (int n = 0; n < N; n++) {
        float *to = sums + offset_of_row(g->forward, b->channel + c, b->output + begin + n * LANES, row);
        for (int l = 0; l < LANES; l++) {
            vector line[WINDOW], y[TILE];
            for (int i = 0; i < 3; i++)
                __builtin_prefetch(to + WINDOW * 3 * LANES * LANES + (i * LANES + l) * LANES, 1, 2);
            for (int i = 0; i < WINDOW; i++)
                line[i] = scale * factor(i) * load(from + i * stride + (l * N + n) * LANES);
            transform_products(line, 3, y);
            for (int i = 0; i < 3; i++)
                store(to + (i * LANES + l) * LANES, y[i]);
        }
    }
}

static void finish_rows(const gradient *g, const block *b, float *sums)
{
    for (int64_t begin = 0, vectors; begin < b->outputs; begin += vectors * LANES) {
        vectors = panel_vectors(begin, b->outputs);
        for (int64_t c = 0; c < b->channels; c += LANES) {
            for (int r = 0; r < row_count(b->part); r++) {
                if (vectors == VECTORS)
                    finish_row(g, b, begin, c, r, VECTORS, sums);
                else
                    finish_row(g, b, begin, c, r, 1, sums);
            }
        }
    }
}

/* From the rows of all ranges to dweight, for LANES channels and outputs. */
static void finish_columns(const gradient *g, const float *sums, int64_t ranges, int64_t channel, int64_t output,
                           float *dweight)
{
    vector taps[LANES * 9]; /* (channel, 3, 3), each of LANES outputs */
    for (int i = 0; i < LANES * 9; i++)
        __builtin_prefetch(dweight + ((output + i / 9) * g->forward->in.planes + channel) * 9 + i % 9 * LANES, 1, 3);
    for (int c = 0; c < LANES; c++) {
        for (int j = 0; j < 3; j++) {
            vector line[WINDOW], y[TILE];
            for (int row = 0; row < WINDOW; row++) {
                const float *from = sums + offset_of_row(g->forward, channel, output, row) + (j * LANES + c) * LANES;
                line[row] = load(from);
                for (int64_t range = 1; range < ranges; range++)
                    line[row] += load(from + range * range_floats(g->forward));
            }
            transform_products(line, 3, y);
            for (int i = 0; i < 3; i++)
                taps[c * 9 + i * 3 + j] = y[i];
        }
    }
    for (int i = 0; i < 9; i++) {
        transpose(taps + i * LANES);
        for (int o = 0; o < LANES; o++)
            store(dweight + ((output + o) * g->forward->in.planes + channel) * 9 + i * LANES, taps[i * LANES + o]);
    }
}

static void finish_biases(const gradient *g, const float *sums, int64_t ranges, float *dbias)
{
    for (int64_t o = 0; o < g->forward->out.planes; o += LANES) {
        vector sum = {0};
        for (int64_t range = 0; range < ranges; range++)
            sum += load(sums + range * range_floats(g->forward) + offset_of_biases(g->forward) + o);
        store(dbias + o, sum);
    }
}

/* ---- all of it ---- */

static int64_t count_tasks(const cutting *cut)
{
    return cut->channel_blocks * cut->output_blocks * cut->parts * cut->ranges;
}

/* One range of tiles for one block. */
typedef struct task {
    block block;
    int64_t begin, end; /* tiles */
} task;

static task find_task(const gradient *g, const cutting *cut, int64_t number, float *memory)
{
    const int64_t range = number % cut->ranges, block_number = number / cut->ranges;
    const int64_t groups = divide_up(g->tiles.count, GROUP);
    const int64_t channel = block_number / cut->parts / cut->output_blocks * cut->channels;
    const int64_t output = block_number / cut->parts % cut->output_blocks * cut->outputs;
    task t = {.block = {.part = cut->parts == 1 ? WHOLE : (int)(block_number % cut->parts),
                        .channel = channel,
                        .channels = minimum(cut->channels, g->forward->in.planes - channel),
                        .output = output,
                        .outputs = minimum(cut->outputs, g->forward->out.planes - output)},
              .begin = groups * range / cut->ranges * GROUP,
              .end = minimum(groups * (range + 1) / cut->ranges * GROUP, g->tiles.count)};
    block *b = &t.block;
    b->products = memory;
    b->v = b->products + POINTS / cut->parts * b->channels * b->outputs;
    b->w = b->v + POINTS / cut->parts * group_stride(STRIP);
    return t;
}

static void find_group(const gradient *g, const task *t, int64_t first, group *found)
{
    found->count = first < t->end ? minimum(GROUP, t->end - first) : 0;
    found->add = first > t->begin;
    memset(found->counts, 0, sizeof found->counts);
    for (int64_t i = 0; i < found->count; i++) {
        place at = place_of(&g->tiles, first + i);
        number_tile(&g->tiles, &at, found->counts);
        found->places[i] = at;
        found->x[i] = address_of(g->x.values, offset_of(&g->forward->in, at.image, t->block.channel, at.row, at.column),
                                 g->forward->bf16);
    }
}

static void run_task(const gradient *g, const task *t, float *sums, bool biases)
{
    const block *b = &t->block;
    float *sums_of_dy = biases && b->channel == 0 ? sums + offset_of_biases(g->forward) + b->output : NULL;
    group groups[2]; /* this and the next, in turns */
    int now = 0;
    find_group(g, t, t->begin, &groups[now]);
    for (int64_t first = t->begin; first < t->end; first += GROUP, now = !now) {
        find_group(g, t, first + GROUP, &groups[!now]);
        add_group(g, b, &groups[now], &groups[!now], sums_of_dy);
    }
    finish_rows(g, b, sums);
}

int64_t AT_LEVEL(winograd_grad_weights_floats)(const winograd_correlation *forward, int threads)
{
    const tiling tiles = tile_up(&forward->out);
    const cutting cut = cut_up(forward, &tiles, threads);
    return cut.ranges * range_floats(forward) + threads * block_floats(&cut);
}

void AT_LEVEL(winograd_grad_weights)(const winograd_correlation *forward, const void *x, const winograd_source *dy,
                                     int threads, float *scratch, float *dweight, float *dbias)
{
    gradient g = {.forward = forward, .x = {.values = x}, .dy = *dy, .tiles = tile_up(&forward->out)};
    g.chain = g.tiles.count <= FEWEST_TILES ? SHORTEST_CHAIN : g.tiles.count <= FEW_TILES ? SHORT_CHAIN : CHAIN;
    const cutting cut = cut_up(forward, &g.tiles, threads);
    float *blocks = scratch + cut.ranges * range_floats(forward);
    const int64_t channel_vectors = forward->in.planes / LANES, output_vectors = forward->out.planes / LANES;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static, 1)
        for (int64_t n = 0; n < count_tasks(&cut); n++) {
            const task t = find_task(&g, &cut, n, blocks + omp_get_thread_num() * block_floats(&cut));
            run_task(&g, &t, scratch + n % cut.ranges * range_floats(forward), dbias != NULL);
        }
#pragma omp for schedule(static)
        for (int64_t n = 0; n < channel_vectors * output_vectors; n++)
            finish_columns(&g, scratch, cut.ranges, n / output_vectors * LANES, n % output_vectors * LANES, dweight);
    }
    if (dbias)
        finish_biases(&g, scratch, cut.ranges, dbias);
}
