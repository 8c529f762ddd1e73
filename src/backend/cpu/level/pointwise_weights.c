/* The gradient of a 1×1 convolution's weights: dw (outputs, channels) = dyᵀ · x, summed over all
 * pixels.
 *
 * A tile of ROWS outputs and up to VECTORS vectors of channels stays in registers, and each pixel
 * adds a product to it. Both operands are read in place. Pixels are processed in chunks: a chunk's
 * vectors of channels stay in the L1 cache while they are multiplied by all outputs. The result is
 * computed in blocks, whose sums stay in the L2 cache until all chunks are done.
 *
 * Images in bf16 are converted chunk by chunk, to contiguous pixels in each block of channels.
 *
 * Threads share the blocks. If those do not divide evenly, the pixels are split into ranges as
 * well, and the ranges' sums are added in order: results depend on the number of threads requested,
 * never on timing. */
#include <omp.h>

#include "backend/cpu/level/pointwise_level.h"

/* ROWS divides a block of channels. */
#if VECTOR_BYTES == 64
enum { ROWS = 8, VECTORS = 3, CHUNK = 196 };
#elif REGISTERS == 32
enum { ROWS = 4, VECTORS = 4, CHUNK = 256 };
#else
enum { ROWS = 4, VECTORS = 3, CHUNK = 192 };
#endif

enum { MOST_CHANNELS = 144, MOST_OUTPUTS = 256 }; /* of a block: 144 KB of sums */

/* ---- tiles ---- */

/* Pixels that are contiguous in dy, and a stride apart in x. */
typedef struct run {
    int64_t x, dy; /* offsets in the first block of channels */
    int64_t count;
} run;

typedef struct chunk {
    int count;
    run runs[CHUNK];
} chunk;

typedef struct tile {
    const chunk *pixels;
    const float *x, *dy;
    int64_t x_stride;          /* from one block of channels to the next */
    int64_t step;              /* from one pixel of x to the next */
    int64_t x_ahead, dy_ahead; /* distances to what is prefetched meanwhile */
    float *sums;               /* (ROWS, vectors) */
    bool more;                 /* adds to `sums` */
} tile;

/* N vectors, a constant once inlined. */
INLINE void multiply_registers(const tile *t, const int N)
{
    const int64_t x_stride = t->x_stride, step = t->step, x_ahead = t->x_ahead, dy_ahead = t->dy_ahead;
    vector sum[ROWS * VECTORS];
#pragma GCC unroll 24
    for (int i = 0; i < ROWS * N; i++) {
        sum[i] = broadcast(0);
        if (t->more && LANES * 4 * (i + 1) % 64 == 0)
            __builtin_prefetch(t->sums + i * LANES, 1, 3);
    }
    for (int i = 0; i < t->pixels->count; i++) {
        const run *pixels = &t->pixels->runs[i];
        const float *x = t->x + pixels->x, *dy = t->dy + pixels->dy;
        for (int64_t p = 0; p < pixels->count; p++) {
            vector u[VECTORS];
#pragma GCC unroll 4
            for (int n = 0; n < N; n++)
                u[n] = load(x + n * x_stride);
            __builtin_prefetch(x + x_ahead, 0, 2);
            __builtin_prefetch(dy + dy_ahead, 0, 2);
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; r++) {
                const vector d = broadcast(dy[r]);
#pragma GCC unroll 4
                for (int n = 0; n < N; n++)
                    sum[r * N + n] = multiply_add(d, u[n], sum[r * N + n]);
            }
            x += step;
            dy += LANES;
        }
    }
#pragma GCC unroll 24
    for (int i = 0; i < ROWS * N; i++)
        store(t->sums + i * LANES, t->more ? load(t->sums + i * LANES) + sum[i] : sum[i]);
}

static void multiply_tile(const tile *t, int64_t vectors)
{
    switch (vectors) {
    case 1: multiply_registers(t, 1); break;
    case 2: multiply_registers(t, 2); break;
    case 3: multiply_registers(t, 3); break;
#if REGISTERS == 32 && VECTOR_BYTES < 64
    case 4: multiply_registers(t, 4); break;
#endif
    default: break;
    }
}

/* ---- division of the result ---- */

typedef struct cutting {
    int64_t channel_blocks, output_blocks, ranges;
} cutting;

/* Where part i of `count` begins, in whole vectors. */
INLINE int64_t part_begin(int64_t planes, int64_t i, int64_t count)
{
    return planes / LANES * i / count * LANES;
}

static cutting cut_up(const blocked_convolution *c, int threads)
{
    cutting cut = {divide_up(c->channels, MOST_CHANNELS), divide_up(c->outputs, MOST_OUTPUTS), 1};
    const int64_t blocks = cut.channel_blocks * cut.output_blocks;
    const int64_t pixels = c->batch * c->out_height * c->out_width;
    if (blocks % threads != 0 && blocks < 4 * (int64_t)threads)
        cut.ranges = least(threads, divide_up(pixels, CHUNK));
    return cut;
}

/* ---- blocks ---- */

typedef struct task {
    int64_t channel, channels, output, outputs; /* of the block */
    int64_t begin, end;                         /* of the pixels */
    float *sums;                                /* (panel, outputs / ROWS, ROWS, vectors of the panel) */
} task;

static void find_runs(const blocked_convolution *c, int64_t begin, int64_t end, chunk *found)
{
    const int64_t pixels = c->out_height * c->out_width, in_pixels = c->height * c->width;
    const bool strided = c->stride[0] > 1 || c->stride[1] > 1;
    found->count = 0;
    for (int64_t at = begin, count; at < end; at += count) {
        const int64_t image = at / pixels, pixel = at % pixels;
        count = least(end - at, strided ? c->out_width - pixel % c->out_width : pixels - pixel);
        found->runs[found->count++] = (run){.x = image * c->channels * in_pixels + input_pixel(c, pixel) * LANES,
                                            .dy = image * c->outputs * pixels + pixel * LANES,
                                            .count = count};
    }
}

INLINE int64_t panel_count(int64_t channels)
{
    return divide_up(channels / LANES, VECTORS);
}

/* A block's operands: its first channels and outputs, and the pixels from one block of LANES planes
 * to the next. */
typedef struct operands {
    const float *x, *dy;
    int64_t in_pixels, out_pixels, step;
} operands;

static void add_chunk(const task *b, const operands *of, const chunk *pixels, const run *next, bool more)
{
    const int64_t in_pixels = of->in_pixels, out_pixels = of->out_pixels;
    const int64_t panels = panel_count(b->channels);
    tile t = {.pixels = pixels, .x_stride = in_pixels * LANES, .step = of->step, .more = more};
    for (int64_t panel = 0; panel < panels; panel++) {
        const int64_t k = part_begin(b->channels, panel, panels);
        const int64_t width = part_begin(b->channels, panel + 1, panels) - k;
        const bool last = panel + 1 == panels;
        t.x = of->x + k * in_pixels;
        t.sums = b->sums + k * b->outputs;
        for (int64_t n = 0; n < b->outputs; n += ROWS) {
            const int64_t block = n / LANES * LANES, tile_number = n / ROWS;
            t.dy = of->dy + block * out_pixels + n % LANES;
            /* The first tiles each prefetch a vector of the next panel, or of the next chunk's
             * first panel. */
            t.x_ahead = tile_number * LANES >= width ? 0
                        : last ? next->x - pixels->runs[0].x + (tile_number * LANES - k) * in_pixels
                               : (width + tile_number * LANES) * in_pixels;
            t.dy_ahead = block + LANES < b->outputs ? LANES * out_pixels
                         : last                     ? next->dy - pixels->runs[0].dy - block * out_pixels
                                                    : -block * out_pixels;
            multiply_tile(&t, width / LANES);
            t.sums += ROWS * width;
        }
    }
}

/* Converts `channels` channels of a chunk's pixels, from `channel` on. Maps have `pixels` pixels;
 * those of the chunk are `step` apart. */
static void convert_chunk(const stored *from, const chunk *which, bool of_x, int64_t channel, int64_t channels,
                          int64_t pixels, int64_t step, float *to)
{
    for (int64_t k = 0; k < channels; k += LANES) {
        float *block = to + k * CHUNK;
        for (int i = 0; i < which->count; i++) {
            const run *r = &which->runs[i];
            int64_t at = (of_x ? r->x : r->dy) + (channel + k) * pixels;
            for (int64_t p = 0; p < r->count; p++, at += step, block += LANES)
                store(block, load_stored(from, at));
        }
    }
}

/* Copies a block's sums to their places in (outputs, channels). */
static void write_block(const blocked_convolution *c, const task *b, float *to)
{
    const int64_t panels = panel_count(b->channels);
    for (int64_t n = 0; n < b->outputs; n++) {
        for (int64_t panel = 0; panel < panels; panel++) {
            const int64_t k = part_begin(b->channels, panel, panels);
            const int64_t width = part_begin(b->channels, panel + 1, panels) - k;
            const float *from = b->sums + k * b->outputs + n * width;
            for (int64_t i = 0; i < width; i += LANES)
                store(to + (b->output + n) * c->channels + b->channel + k + i, load(from + i));
        }
    }
}

/* For bf16: converts each chunk to `memory` before multiplying it. */
static void add_converted(const blocked_convolution *c, const task *b, const stored *x, const stored *dy, float *memory)
{
    const operands of = {memory, memory + CHUNK * MOST_CHANNELS, CHUNK, CHUNK, LANES};
    for (int64_t at = b->begin; at < b->end; at += CHUNK) {
        const int64_t count = least(CHUNK, b->end - at);
        const chunk beside = {1, {{0, 0, count}}};
        chunk pixels;
        find_runs(c, at, at + count, &pixels);
        convert_chunk(x, &pixels, true, b->channel, b->channels, c->height * c->width, c->stride[1] * LANES, memory);
        convert_chunk(dy, &pixels, false, b->output, b->outputs, c->out_height * c->out_width, LANES,
                      memory + CHUNK * MOST_CHANNELS);
        add_chunk(b, &of, &beside, beside.runs, at > b->begin);
    }
}

static void add_in_place(const blocked_convolution *c, const task *b, const float *x, const float *dy)
{
    const int64_t in_pixels = c->height * c->width, out_pixels = c->out_height * c->out_width;
    const operands of = {x + b->channel * in_pixels, dy + b->output * out_pixels, in_pixels, out_pixels,
                         c->stride[1] * LANES};
    chunk chunks[2];
    find_runs(c, b->begin, least(b->begin + CHUNK, b->end), &chunks[0]);
    for (int64_t at = b->begin, i = 0; at < b->end; at += CHUNK, i ^= 1) {
        const int64_t next = at + CHUNK;
        if (next < b->end)
            find_runs(c, next, least(next + CHUNK, b->end), &chunks[i ^ 1]);
        add_chunk(b, &of, &chunks[i], chunks[next < b->end ? i ^ 1 : i].runs, at > b->begin);
    }
}

static task find_task(const blocked_convolution *c, const cutting *cut, int64_t number, float *memory)
{
    const int64_t range = number % cut->ranges, k = number / cut->ranges / cut->output_blocks;
    const int64_t n = number / cut->ranges % cut->output_blocks, pixels = c->batch * c->out_height * c->out_width;
    const int64_t channel = part_begin(c->channels, k, cut->channel_blocks);
    const int64_t output = part_begin(c->outputs, n, cut->output_blocks);
    return (task){.channel = channel,
                  .channels = part_begin(c->channels, k + 1, cut->channel_blocks) - channel,
                  .output = output,
                  .outputs = part_begin(c->outputs, n + 1, cut->output_blocks) - output,
                  .begin = pixels * range / cut->ranges,
                  .end = pixels * (range + 1) / cut->ranges,
                  .sums = memory};
}

/* ---- biases ---- */

static void sum_biases(const blocked_convolution *c, const stored *dy, float *dbias)
{
    const int64_t pixels = c->out_height * c->out_width;
#pragma omp for schedule(static)
    for (int64_t n = 0; n < c->outputs; n += LANES) {
        vector sum = {0};
        for (int64_t i = 0; i < c->batch; i++) {
            vector part = {0};
            for (int64_t p = 0; p < pixels; p++)
                part += load_stored(dy, (i * c->outputs + n) * pixels + p * LANES);
            sum += part;
        }
        store(dbias + n, sum);
    }
}

/* ---- all of it ---- */

enum { BLOCK_FLOATS = MOST_CHANNELS * MOST_OUTPUTS, CONVERTED_FLOATS = CHUNK * (MOST_CHANNELS + MOST_OUTPUTS) };

static int64_t thread_floats(const blocked_convolution *c)
{
    return BLOCK_FLOATS + (c->bf16 ? CONVERTED_FLOATS : 0);
}

int64_t AT_LEVEL(pointwise_grad_weights_floats)(const blocked_convolution *c, int threads)
{
    const cutting cut = cut_up(c, threads);
    return threads * thread_floats(c) + (cut.ranges > 1 ? cut.ranges * c->channels * c->outputs : 0);
}

void AT_LEVEL(pointwise_grad_weights)(const blocked_convolution *c, const void *x, const void *dy, int threads,
                                      float *scratch, float *dweight, float *dbias)
{
    const cutting cut = cut_up(c, threads);
    const int64_t tasks = cut.channel_blocks * cut.output_blocks * cut.ranges, size = c->channels * c->outputs;
    const stored inputs = {x, c->bf16}, gradients = {dy, c->bf16};
    float *parts = cut.ranges > 1 ? scratch + threads * thread_floats(c) : dweight;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static, 1)
        for (int64_t i = 0; i < tasks; i++) {
            const task b = find_task(c, &cut, i, scratch + omp_get_thread_num() * thread_floats(c));
            if (c->bf16)
                add_converted(c, &b, &inputs, &gradients, b.sums + BLOCK_FLOATS);
            else
                add_in_place(c, &b, x, dy);
            write_block(c, &b, parts + i % cut.ranges * size);
        }
        if (cut.ranges > 1) {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < size; i += LANES) {
                vector sum = load(parts + i);
                for (int64_t range = 1; range < cut.ranges; range++)
                    sum += load(parts + range * size + i);
                store(dweight + i, sum);
            }
        }
        if (dbias)
            sum_biases(c, &gradients, dbias);
    }
}
