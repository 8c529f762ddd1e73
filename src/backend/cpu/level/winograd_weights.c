/* The gradient of the weights of a Winograd convolution: F(3×3, 4×4) with the points of winograd_tile.h. 6×6 inputs against 4×4
 * of dy, multiplied point by point and summed over all tiles before the transform back.
 *
 * At each point that is a matrix product, channels × tiles by tiles × outputs, and all of them together are large: for 512
 * channels and outputs 38 MB. So the result is made in blocks that stay in a core's L2 cache while the tiles pass by: some of
 * the channels, some of the outputs, and where that is not enough a third of the points, two rows of them that share most of
 * their transform. Tiles are transformed GROUP at a time into the order in which the products read them. What other blocks
 * have transformed as well is transformed again, which costs less than to write it to memory and read it back. After the
 * last group the block is transformed along its rows of points, so that half of it goes to memory; the columns follow
 * when all blocks are made.
 *
 * Blocks are shared out to threads. If they do not come out even, the tiles are split into ranges as well, and what comes of these
 * is added up in their order: results depend on the number of threads, never on which of them was faster.
 *
 * Sums over thousands of tiles would be the largest error of this pass. Products are therefore summed up over at most CHAIN tiles in
 * registers, and these sums added to the block. Root mean square errors over that of a direct f32 convolution, which adds
 * one product after the other, for inputs behind a ReLU: 64 tiles 2.5 with one sum over all, 1.7 over 32, 1.4 over 16 at a
 * time; 256 tiles 1.4 with one sum, 0.9 over 64, 0.7 over 32; 2048 tiles 1.8 with one sum, 0.4 over 64 or 32. A
 * shorter sum costs loads and stores of the block: with 32 instead of 64 the products take 8 % longer, so few tiles get
 * the shorter ones. */
#include <omp.h>
#include <unistd.h>

#include "backend/cpu/level/winograd_level.h"
#include "backend/cpu/level/winograd_tile.h"

enum { GROUP = 64, CHAIN = 64, SHORT_CHAIN = 32, FEW_TILES = 128 };

/* What the innermost product computes at once, in 32 or in 16 registers: channels × vectors of outputs. */
#if VECTOR_BYTES == 64 || defined(__aarch64__)
enum { ROWS = 6, VECTORS = 4 };
#else
enum { ROWS = 6, VECTORS = 2 };
#endif

/* ---- how the result is cut up ---- */

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

static int64_t minimum(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t cache_floats(void)
{
    long bytes = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE)
    bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    if (bytes < 1 << 18) /* not known */
        bytes = 1 << 20;
    return bytes / (long)sizeof(float);
}

/* Floats from one point of a transformed group to the next. */
static int64_t group_stride(int64_t planes)
{
    return GROUP * planes + LANES;
}

/* For a block and the groups that it is made of. */
static int64_t block_floats(const cutting *cut)
{
    return POINTS / cut->parts *
           (cut->channels * cut->outputs + group_stride(cut->channels) + group_stride(cut->outputs));
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
    int64_t *larger = cut->channels >= cut->outputs ? &cut->channels : &cut->outputs;
    if (*larger < 2 * VECTORS * LANES)
        return false;
    *larger = divide_up(*larger / LANES, 2) * LANES;
    return true;
}

static cutting cut_up(const winograd_correlation *forward, const tiling *tiles, int threads)
{
    cutting cut = {.channels = forward->in.planes, .outputs = forward->out.planes, .parts = 1, .ranges = 1};
    const int64_t most = cache_floats() / 4 * 3, groups = divide_up(tiles->count, GROUP);
    if (block_floats(&cut) > most)
        cut.parts = THIRDS;
    while (block_floats(&cut) > most && halve_block(&cut))
        continue;
    if (count_blocks(&cut, forward) * groups < threads)
        cut.parts = THIRDS;
    while (count_blocks(&cut, forward) * groups < threads && halve_block(&cut))
        continue;
    const int64_t blocks = count_blocks(&cut, forward);
    double best = 0; /* share of the threads' time in which they have work */
    for (int64_t ranges = 1; ranges <= groups && ranges <= 4 * (int64_t)threads; ranges++) {
        const int64_t tasks = blocks * ranges;
        const double busy = (double)tasks / (double)(divide_up(tasks, threads) * threads);
        if (busy > best + 0.05) {
            best = busy;
            cut.ranges = ranges;
        }
    }
    return cut;
}

typedef struct gradient {
    const winograd_correlation *forward;
    winograd_source x, dy;
    tiling tiles;
    int64_t chain;
    cutting cut;
} gradient;

/* One range of tiles for one block. */
typedef struct task {
    int part;
    int64_t channel, channels, output, outputs;
    int64_t begin, end; /* tiles */
    float *v, *w; /* transformed inputs (point, tile, channel) and gradients (point, panel, tile, VECTORS × LANES) */
    float *products; /* (point, panel, channel, VECTORS × LANES) */
} task;

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

/* products[c][n] = or += sum over t of v[t][c] * w[t][n], for R channels and N vectors of outputs, constants where inlined. */
INLINE void multiply_tile(const float *v, int64_t channels, const float *w, float *products, int64_t count,
                          int64_t chain, bool add, const int R, const int N)
{
    for (int64_t begin = 0; begin < count; begin += chain) {
        const int64_t end = minimum(begin + chain, count);
        vector sum[ROWS * VECTORS];
        for (int i = 0; i < R * N; i++)
            sum[i] = (vector){0};
        for (int64_t t = begin; t < end; t++) {
            vector g[VECTORS];
            for (int n = 0; n < N; n++)
                g[n] = load(w + (t * N + n) * LANES);
            for (int r = 0; r < R; r++) {
                const vector x = broadcast(v[t * channels + r]);
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

/* `channels` is a multiple of 4. */
INLINE void multiply_panel(const float *v, int64_t channels, const float *w, float *products, int64_t count,
                           int64_t chain, bool add, const int N)
{
    int64_t c = 0;
    for (; channels - c >= ROWS && channels - c != 8; c += ROWS)
        multiply_tile(v + c, channels, w, products + c * N * LANES, count, chain, add, ROWS, N);
    for (; c < channels; c += 4)
        multiply_tile(v + c, channels, w, products + c * N * LANES, count, chain, add, 4, N);
}

/* All points of a group of `count` tiles. */
static void multiply_group(const task *b, int64_t count, int64_t chain, bool add)
{
    for (int64_t p = 0; p < row_count(b->part) * WINDOW; p++) {
        const float *v = b->v + p * group_stride(b->channels), *w = b->w + p * group_stride(b->outputs);
        float *products = b->products + p * b->channels * b->outputs;
        int64_t n = 0;
        for (; panel_vectors(n, b->outputs) == VECTORS; n += VECTORS * LANES)
            multiply_panel(v, b->channels, w + n * GROUP, products + n * b->channels, count, chain, add, VECTORS);
        for (; n < b->outputs; n += LANES)
            multiply_panel(v, b->channels, w + n * GROUP, products + n * b->channels, count, chain, add, 1);
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

/* The same of 4×4 of dy. */
INLINE void transform_gradient(const window *w, const reading how, const int part, float *to, int64_t stride)
{
    vector half[WINDOW][TILE];
#pragma GCC unroll 4
    for (int j = 0; j < TILE; j++) {
        vector line[TILE], at[WINDOW];
        for (int i = 0; i < TILE; i++)
            line[i] = read_number(w, i, j, how);
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
}

/* Moves on to the next LANES planes of the same image. */
INLINE void next_planes(window *w, const winograd_images *images, const winograd_source *source)
{
    const winograd_images cells = pooled(images), *read = source->where ? &cells : images;
    const int64_t floats = read->height * read->width * LANES;
    w->from += floats;
    if (source->where)
        w->where += floats;
}

INLINE void transform_group_inputs(const gradient *g, const task *b, int64_t first, int64_t count, const int part)
{
    const winograd_images *in = &g->forward->in;
    const int64_t stride = group_stride(b->channels);
    for (int64_t t = 0; t < count; t++) {
        const place at = place_of(&g->tiles, first + t);
        float *to = b->v + t * b->channels;
        window w;
        const reading how = find_window(in, &g->x, at.image, b->channel, at.row + g->forward->begin_row,
                                        at.column + g->forward->begin_column, WINDOW, &w);
        for (int64_t c = 0; c < b->channels; c += LANES, next_planes(&w, in, &g->x)) {
            if (how == INSIDE)
                transform_input(&w, INSIDE, part, to + c, stride);
            else
                transform_input(&w, BORDER, part, to + c, stride);
        }
    }
}

INLINE void transform_group_gradients(const gradient *g, const task *b, int64_t first, int64_t count, const int part)
{
    const winograd_images *out = &g->forward->out;
    const int64_t stride = group_stride(b->outputs);
    for (int64_t t = 0; t < count; t++) {
        const place at = place_of(&g->tiles, first + t);
        window w;
        const reading how = find_window(out, &g->dy, at.image, b->output, at.row, at.column, TILE, &w);
        for (int64_t o = 0; o < b->outputs; o += LANES, next_planes(&w, out, &g->dy)) {
            const int64_t begin = panel_begin(o, b->outputs);
            float *to = b->w + begin * GROUP + t * panel_vectors(begin, b->outputs) * LANES + (o - begin);
            switch (how) {
            case INSIDE: transform_gradient(&w, INSIDE, part, to, stride); break;
            case BORDER: transform_gradient(&w, BORDER, part, to, stride); break;
            default: transform_gradient(&w, POOLED, part, to, stride); break; /* tiles begin at even places */
            }
        }
    }
}

static void transform_group(const gradient *g, const task *b, int64_t first, int64_t count)
{
    switch (b->part) {
    case 0:
        transform_group_inputs(g, b, first, count, 0);
        transform_group_gradients(g, b, first, count, 0);
        break;
    case 1:
        transform_group_inputs(g, b, first, count, 1);
        transform_group_gradients(g, b, first, count, 1);
        break;
    case 2:
        transform_group_inputs(g, b, first, count, 2);
        transform_group_gradients(g, b, first, count, 2);
        break;
    default:
        transform_group_inputs(g, b, first, count, WHOLE);
        transform_group_gradients(g, b, first, count, WHOLE);
        break;
    }
}

/* ---- and back ---- */

/* What the blocks of a range are made into: (channels / LANES, outputs / LANES, row of points, 3, LANES, LANES), so that the
 * columns of LANES channels and outputs lie together; and behind all of them the outputs' sums of dy. */
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

static void finish_rows(const gradient *g, const task *b, float *sums)
{
    const int64_t stride = b->channels * b->outputs;
    for (int64_t begin = 0, vectors; begin < b->outputs; begin += vectors * LANES) {
        vectors = panel_vectors(begin, b->outputs);
        for (int64_t c = 0; c < b->channels; c += LANES) {
            for (int r = 0; r < row_count(b->part); r++) {
                const int row = row_of(b->part, r);
                const float *from = b->products + r * WINDOW * stride + (begin * b->channels + c * vectors * LANES);
                for (int64_t n = 0; n < LANES * vectors; n++) {
                    const int64_t output = b->output + begin + n % vectors * LANES;
                    float *to = sums + offset_of_row(g->forward, b->channel + c, output, row) + n / vectors * LANES;
                    vector line[WINDOW], y[TILE];
                    for (int i = 0; i < WINDOW; i++)
                        line[i] = divisor(row) * divisor(i) * load(from + i * stride + n * LANES);
                    transform_products(line, 3, y);
                    for (int i = 0; i < 3; i++)
                        store(to + i * LANES * LANES, y[i]);
                }
            }
        }
    }
}

/* From the rows of all ranges to dweight, for LANES channels and outputs. */
static void finish_columns(const gradient *g, const float *sums, int64_t channel, int64_t output, float *dweight)
{
    vector taps[LANES * 9]; /* (channel, 3, 3), each of LANES outputs */
    for (int c = 0; c < LANES; c++) {
        for (int j = 0; j < 3; j++) {
            vector line[WINDOW], y[TILE];
            for (int row = 0; row < WINDOW; row++) {
                const float *from = sums + offset_of_row(g->forward, channel, output, row) + (j * LANES + c) * LANES;
                line[row] = load(from);
                for (int64_t range = 1; range < g->cut.ranges; range++)
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

/* ---- biases ---- */

INLINE vector sum_of_tile(const window *w, const reading how)
{
    vector sum = {0};
    for (int i = 0; i < TILE * TILE; i++)
        sum += read_number(w, i / TILE, i % TILE, how);
    return sum;
}

/* Adds a group's gradients up, and these sums to `biases`. */
static void add_biases(const gradient *g, const task *b, int64_t first, int64_t count, bool add, float *biases)
{
    for (int64_t o = b->output; o < b->output + b->outputs; o += LANES) {
        vector sum = {0};
        for (int64_t t = 0; t < count; t++) {
            const place at = place_of(&g->tiles, first + t);
            window w;
            switch (find_window(&g->forward->out, &g->dy, at.image, o, at.row, at.column, TILE, &w)) {
            case INSIDE: sum += sum_of_tile(&w, INSIDE); break;
            case BORDER: sum += sum_of_tile(&w, BORDER); break;
            default: sum += sum_of_tile(&w, POOLED); break;
            }
        }
        store(biases + o, add ? load(biases + o) + sum : sum);
    }
}

static void finish_biases(const gradient *g, const float *sums, float *dbias)
{
    for (int64_t o = 0; o < g->forward->out.planes; o += LANES) {
        vector sum = {0};
        for (int64_t range = 0; range < g->cut.ranges; range++)
            sum += load(sums + range * range_floats(g->forward) + offset_of_biases(g->forward) + o);
        store(dbias + o, sum);
    }
}

/* ---- all of it ---- */

static int64_t count_tasks(const cutting *cut)
{
    return cut->channel_blocks * cut->output_blocks * cut->parts * cut->ranges;
}

static task find_task(const gradient *g, int64_t number, float *memory)
{
    const cutting *cut = &g->cut;
    const int64_t range = number % cut->ranges, block_number = number / cut->ranges;
    const int64_t groups = divide_up(g->tiles.count, GROUP);
    const int64_t channel = block_number / cut->parts / cut->output_blocks * cut->channels;
    const int64_t output = block_number / cut->parts % cut->output_blocks * cut->outputs;
    task b = {.part = cut->parts == 1 ? WHOLE : (int)(block_number % cut->parts),
              .channel = channel,
              .channels = minimum(cut->channels, g->forward->in.planes - channel),
              .output = output,
              .outputs = minimum(cut->outputs, g->forward->out.planes - output),
              .begin = groups * range / cut->ranges * GROUP,
              .end = minimum(groups * (range + 1) / cut->ranges * GROUP, g->tiles.count)};
    b.products = memory;
    b.v = b.products + POINTS / cut->parts * b.channels * b.outputs;
    b.w = b.v + POINTS / cut->parts * group_stride(b.channels);
    return b;
}

static void run_task(const gradient *g, const task *b, float *sums, bool biases)
{
    const bool makes_biases = biases && b->channel == 0 && (b->part == 0 || b->part == WHOLE);
    for (int64_t first = b->begin; first < b->end; first += GROUP) {
        const int64_t count = minimum(GROUP, b->end - first);
        const bool add = first > b->begin;
        transform_group(g, b, first, count);
        if (makes_biases)
            add_biases(g, b, first, count, add, sums + offset_of_biases(g->forward));
        multiply_group(b, count, g->chain, add);
    }
    finish_rows(g, b, sums);
}

int64_t AT_LEVEL(winograd_grad_weights_floats)(const winograd_correlation *forward, int threads)
{
    const tiling tiles = tile_up(&forward->out);
    const cutting cut = cut_up(forward, &tiles, threads);
    return cut.ranges * range_floats(forward) + threads * block_floats(&cut);
}

void AT_LEVEL(winograd_grad_weights)(const winograd_correlation *forward, const float *x, const winograd_source *dy,
                                     int threads, float *scratch, float *dweight, float *dbias)
{
    gradient g = {.forward = forward, .x = {.values = x}, .dy = *dy, .tiles = tile_up(&forward->out)};
    g.chain = g.tiles.count <= FEW_TILES ? SHORT_CHAIN : CHAIN;
    g.cut = cut_up(forward, &g.tiles, threads);
    float *blocks = scratch + g.cut.ranges * range_floats(forward);
    const int64_t channel_vectors = forward->in.planes / LANES, output_vectors = forward->out.planes / LANES;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static, 1)
        for (int64_t n = 0; n < count_tasks(&g.cut); n++) {
            const task b = find_task(&g, n, blocks + omp_get_thread_num() * block_floats(&g.cut));
            run_task(&g, &b, scratch + n % g.cut.ranges * range_floats(forward), dbias != NULL);
        }
#pragma omp for schedule(static)
        for (int64_t n = 0; n < channel_vectors * output_vectors; n++)
            finish_columns(&g, scratch, n / output_vectors * LANES, n % output_vectors * LANES, dweight);
    }
    if (dbias)
        finish_biases(&g, scratch, dbias);
}
