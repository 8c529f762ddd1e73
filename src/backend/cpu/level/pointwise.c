/* 1×1 convolutions: products of pixels × channels with channels × outputs.
 *
 *     forward      y  = x · wᵀ
 *     grad_input   dx = dy · w, and 0 at the pixels that a stride skips
 *
 * A tile stays in registers: the sums of up to ROWS pixels and a panel of VECTORS vectors of target
 * planes. Maps in blocks of LANES channels are already in the order in which a tile reads and
 * writes them, so tiles are computed in place; only pixels scattered by a stride, or by maps
 * smaller than a tile, are packed before or unpacked after. The weights are packed into panels once
 * for all pixels. A panel is divided into blocks of `depth_block` rows, which stay in a cache while
 * the pixels of a block of tiles go past. Those pixels stay in the L2 cache until all panels are
 * done. */
#include <omp.h>

#include "backend/cpu/level/pointwise_level.h"

#if REGISTERS == 32
enum { ROWS = 14, VECTORS = 2 };
#else
enum { ROWS = 6, VECTORS = 2 };
#endif
enum { WIDTH = VECTORS * LANES };

/* The size of a panel of weights. Multiplying 64-byte vectors takes long enough to fetch the
 * weights from the L2 cache, so all channels are summed at once. With narrower vectors, a panel
 * stays in the L1 cache, with room left for the pixels. */
#if VECTOR_BYTES == 64
enum { PANEL_BYTES = 256 << 10 };
#else
enum { PANEL_BYTES = 24 << 10 };
#endif

enum {
    BLOCK_BYTES = 384 << 10, /* of pixels: fits the L2 cache, with room for the next weights and the results */
    LEAST_TILES = 8,         /* in a block, so that weights are reused often enough */
    MOST_TILES = 128
};

/* ---- tiles ---- */

typedef struct tile {
    const float *from;   /* its first pixel */
    int64_t from_stride; /* from one block of LANES planes to the next */
    int64_t ahead;       /* distance to the next tile, which is prefetched meanwhile */
    const float *weights;
    int64_t depth;
    float *to;
    int64_t to_stride;
    const float *bias;  /* or NULL */
    const float *added; /* added to the sums, in the layout of `to`, which it may be; or NULL */
    bool relu;
} tile;

/* R pixels and N vectors; both are constants once inlined. */
INLINE void multiply_registers(const tile *t, const int R, const int N)
{
    const float *from = t->from, *next = t->from + t->ahead, *w = t->weights;
    const int64_t from_stride = t->from_stride, to_stride = t->to_stride;
    float *to = t->to;
    const bool relu = t->relu;
    vector sum[ROWS * VECTORS];
#pragma GCC unroll 2
    for (int n = 0; n < N; n++) {
        const vector begin = t->bias ? load(t->bias + n * LANES) : broadcast(0);
#pragma GCC unroll 14
        for (int r = 0; r < R; r++)
            sum[r * N + n] = begin;
    }
    if (VECTOR_BYTES == 64) { /* no gain with narrower vectors */
#pragma GCC unroll 28
        for (int i = 0; i < R * N; i++)
            __builtin_prefetch(to + i % N * to_stride + i / N * LANES, 1, 3);
    }
    if (t->added && (VECTOR_BYTES < 64 || t->added != to)) {
#pragma GCC unroll 28
        for (int i = 0; i < R * N; i++)
            __builtin_prefetch(t->added + i % N * to_stride + i / N * LANES, 0, 3);
    }
    for (int64_t k = 0; k < t->depth; k += LANES) {
#pragma GCC unroll 4
        for (int l = 0; l < LANES; l++) {
            vector u[VECTORS];
            __builtin_prefetch(next + l * LANES, 0, 3);
#pragma GCC unroll 2
            for (int n = 0; n < N; n++)
                u[n] = load(w + n * LANES);
            w += N * LANES;
#pragma GCC unroll 14
            for (int r = 0; r < R; r++) {
                const vector x = broadcast(from[r * LANES + l]);
#pragma GCC unroll 2
                for (int n = 0; n < N; n++)
                    sum[r * N + n] = multiply_add(x, u[n], sum[r * N + n]);
            }
        }
        from += from_stride;
        next += from_stride;
    }
    if (t->added) {
#pragma GCC unroll 28
        for (int i = 0; i < R * N; i++)
            sum[i] += load(t->added + i % N * to_stride + i / N * LANES);
    }
    if (relu) {
#pragma GCC unroll 28
        for (int i = 0; i < R * N; i++)
            sum[i] = cut_negative(sum[i]);
    }
#pragma GCC unroll 28
    for (int i = 0; i < R * N; i++)
        store(to + i % N * to_stride + i / N * LANES, sum[i]);
}

static void multiply_tile(const tile *t, int64_t rows, int64_t vectors)
{
#define CASE(R)                                                                                                        \
    case R:                                                                                                            \
        if (vectors == 2)                                                                                              \
            multiply_registers(t, R, 2);                                                                               \
        else                                                                                                           \
            multiply_registers(t, R, 1);                                                                               \
        break;
    switch (rows) {
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
        CASE(5)
        CASE(6)
#if REGISTERS == 32
        CASE(7)
        CASE(8)
        CASE(9)
        CASE(10)
        CASE(11)
        CASE(12)
        CASE(13)
        CASE(14)
#endif
    default: break;
    }
#undef CASE
}

/* ---- products ---- */

/* One side of the product: images of `pixels` pixels. The product's rows are the pixels of the
 * smaller map. */
typedef struct side {
    int64_t planes, pixels;
    bool strided; /* the map of x, if there is a stride */
} side;

typedef struct product {
    const blocked_convolution *c;
    side source, target;
    bool backward;
    bool whole_images;                  /* no tile spans two images; else tiles may */
    bool packed;                        /* tiles read a packed copy */
    bool scattered;                     /* results go to scattered pixels, or to bf16 */
    int64_t tiles;                      /* in all, or in each image */
    int64_t block_tiles, blocks, parts; /* how threads share tiles and panels: see share_out() */
    stored values;
    const float *weights, *bias;
    stored added; /* added to the results, in their layout; or NULL */
    bool relu;
    void *out;
} product;

INLINE int64_t row_count(const product *p)
{
    return p->c->batch * p->c->out_height * p->c->out_width;
}

static int64_t tile_count(const product *p)
{
    return p->whole_images ? p->tiles * p->c->batch : p->tiles;
}

/* The first row of a tile: as few tiles as possible, of nearly equal size. */
static int64_t tile_begin(const product *p, int64_t t)
{
    if (!p->whole_images)
        return row_count(p) * t / p->tiles;
    const int64_t pixels = p->c->out_height * p->c->out_width;
    return t / p->tiles * pixels + pixels * (t % p->tiles) / p->tiles;
}

/* The offset of a row in the first block of LANES planes of one side. */
static int64_t row_offset(const product *p, const side *s, int64_t row)
{
    const int64_t pixels = p->c->out_height * p->c->out_width, image = row / pixels, pixel = row % pixels;
    return image * s->planes * s->pixels + (s->strided ? input_pixel(p->c, pixel) : pixel) * LANES;
}

INLINE int64_t panel_count(int64_t planes)
{
    return divide_up(planes, WIDTH);
}

INLINE int64_t panel_vectors(int64_t planes, int64_t panel)
{
    return least(VECTORS, (planes - panel * WIDTH) / LANES);
}

/* Rows in a block of a panel; blocks are of nearly equal size. */
static int64_t depth_block(int64_t depth)
{
    const int64_t most = PANEL_BYTES / (WIDTH * (int64_t)sizeof(float));
    return divide_up(divide_up(depth, divide_up(depth, most)), LANES) * LANES;
}

/* Threads share blocks of tiles, and if there are fewer blocks than threads, parts of the panels as
 * well. */
static void share_out(product *p, int threads)
{
    const int64_t tiles = tile_count(p), tile_bytes = ROWS * p->source.planes * (int64_t)sizeof(float);
    const int64_t fitting = least(BLOCK_BYTES / tile_bytes, MOST_TILES);
    const int64_t most = fitting < LEAST_TILES ? LEAST_TILES : fitting;
    p->blocks = divide_up(divide_up(tiles, most), threads) * threads;
    if (p->blocks > tiles)
        p->blocks = tiles;
    p->block_tiles = divide_up(tiles, p->blocks);
    p->parts = least(divide_up(threads, p->blocks), panel_count(p->target.planes));
}

static product describe(const blocked_convolution *c, bool backward, int threads)
{
    const int64_t pixels = c->out_height * c->out_width;
    const bool strided = c->stride[0] > 1 || c->stride[1] > 1;
    const side input = {c->channels, c->height * c->width, strided}, output = {c->outputs, pixels, false};
    product p = {.c = c,
                 .source = backward ? output : input,
                 .target = backward ? input : output,
                 .backward = backward,
                 .whole_images = pixels * 2 >= ROWS,
                 .relu = c->relu && !backward};
    p.packed = p.source.strided || !p.whole_images || c->bf16;
    p.scattered = p.target.strided || !p.whole_images || c->bf16;
    p.tiles = divide_up(p.whole_images ? pixels : row_count(&p), ROWS);
    share_out(&p, threads);
    return p;
}

/* ---- scratch ---- */

static int64_t packed_floats(const product *p)
{
    return p->packed ? p->block_tiles * ROWS * p->source.planes : 0;
}

static int64_t thread_floats(const product *p)
{
    return packed_floats(p) + (p->scattered ? p->block_tiles * ROWS * WIDTH : 0);
}

static int64_t product_floats(const blocked_convolution *c, bool backward, int threads)
{
    const product p = describe(c, backward, threads);
    return c->channels * c->outputs + threads * thread_floats(&p);
}

/* ---- packing ---- */

/* Packs LANES rows of one panel. w is (outputs, channels). */
static void pack_weights(const product *p, const float *w, int64_t panel, int64_t k, float *to)
{
    const int64_t vectors = panel_vectors(p->target.planes, panel);
    to += panel * WIDTH * p->source.planes + k * vectors * LANES;
    for (int64_t v = 0; v < vectors; v++) {
        const int64_t plane = panel * WIDTH + v * LANES;
        vector rows[LANES];
        for (int64_t i = 0; i < LANES; i++)
            rows[i] = p->backward ? load(w + (k + i) * p->target.planes + plane)
                                  : load(w + (plane + i) * p->source.planes + k);
        if (!p->backward)
            transpose(rows);
        for (int64_t i = 0; i < LANES; i++)
            store(to + (i * vectors + v) * LANES, rows[i]);
    }
}

static void find_offsets(const product *p, const side *s, int64_t begin, int64_t rows, int64_t offsets[ROWS])
{
    for (int64_t r = 0; r < rows; r++)
        offsets[r] = row_offset(p, s, begin + r);
}

/* Packs a tile's pixels: contiguous in each block of planes. */
static void pack_tile(const product *p, int64_t begin, int64_t rows, float *to)
{
    int64_t offsets[ROWS];
    find_offsets(p, &p->source, begin, rows, offsets);
    for (int64_t k = 0; k < p->source.planes; k += LANES) {
        for (int64_t r = 0; r < rows; r++)
            store(to + (k * rows + r * LANES), load_stored(&p->values, offsets[r] + k * p->source.pixels));
    }
}

/* Where the input cell of output `at` ends along an axis: its own pixel and those after it that the
 * stride skips. */
INLINE int64_t cell_end(int64_t at, int64_t count, int64_t stride, int64_t size)
{
    return at + 1 == count ? size : (at + 1) * stride;
}

INLINE void write_vector(const product *p, int64_t at, vector value)
{
    store_rounded(p->out, at, p->added.numbers ? value + load_stored(&p->added, at) : value, p->c->bf16);
}

/* Writes a row's result, and zeros to the pixels to its right and below it, up to the next
 * results. */
static void write_cell(const product *p, int64_t row, int64_t to, vector value)
{
    const blocked_convolution *c = p->c;
    const int64_t pixel = row % (c->out_height * c->out_width), i = pixel / c->out_width, j = pixel % c->out_width;
    const int64_t height = cell_end(i, c->out_height, c->stride[0], c->height) - i * c->stride[0];
    const int64_t width = cell_end(j, c->out_width, c->stride[1], c->width) - j * c->stride[1];
    if (p->added.numbers == p->out) { /* adding zeros changes nothing */
        write_vector(p, to, value);
        return;
    }
    for (int64_t y = 0; y < height; y++) {
        for (int64_t x = 0; x < width; x++)
            write_vector(p, to + (y * c->width + x) * LANES, x + y == 0 ? value : broadcast(0));
    }
}

static void scatter_tile(const product *p, const float *from, int64_t begin, int64_t rows, int64_t panel)
{
    int64_t offsets[ROWS];
    find_offsets(p, &p->target, begin, rows, offsets);
    for (int64_t n = 0; n < panel_vectors(p->target.planes, panel); n++) {
        const int64_t plane = (panel * WIDTH + n * LANES) * p->target.pixels;
        for (int64_t r = 0; r < rows; r++) {
            const vector value = load(from + (n * rows + r) * LANES);
            if (p->target.strided)
                write_cell(p, begin + r, offsets[r] + plane, value);
            else
                write_vector(p, offsets[r] + plane, value);
        }
    }
}

/* ---- blocks of tiles ---- */

typedef struct place {
    int64_t begin, rows; /* rows of the product */
    const float *from;
    float *to; /* in the first block of LANES planes; NULL if scattered */
} place;

typedef struct block {
    int64_t first_row, count;
    place places[MOST_TILES];
    float *packed, *sums; /* packed pixels, and sums to be scattered */
} block;

static void find_block(const product *p, int64_t first, int64_t end, float *memory, block *b)
{
    b->first_row = tile_begin(p, first);
    b->count = end - first;
    b->packed = memory;
    b->sums = memory + packed_floats(p);
    for (int64_t i = 0; i < b->count; i++) {
        const int64_t begin = tile_begin(p, first + i);
        b->places[i] = (place){.begin = begin,
                               .rows = tile_begin(p, first + i + 1) - begin,
                               .from = p->packed ? b->packed + (begin - b->first_row) * p->source.planes
                                                 : (const float *)p->values.numbers + row_offset(p, &p->source, begin),
                               .to = p->scattered ? NULL : (float *)p->out + row_offset(p, &p->target, begin)};
    }
}

/* A tile's sums that are to be scattered. */
INLINE float *tile_sums(const block *b, const place *at, int64_t vectors)
{
    return b->sums + (at->begin - b->first_row) * vectors * LANES;
}

static void multiply_panel(const product *p, const block *b, int64_t panel)
{
    const float *added = p->added.numbers;
    const int64_t depth = p->source.planes, most = depth_block(depth);
    const int64_t vectors = panel_vectors(p->target.planes, panel);
    for (int64_t k = 0; k < depth; k += most) {
        tile t = {.depth = least(depth - k, most),
                  .weights = p->weights + panel * WIDTH * depth + k * vectors * LANES,
                  .bias = p->bias && k == 0 ? p->bias + panel * WIDTH : NULL,
                  .relu = p->relu && k + most >= depth};
        const char *next = (const char *)(t.weights + t.depth * vectors * LANES);
        const int64_t bytes = t.depth * vectors * VECTOR_BYTES, share = divide_up(bytes / 64, b->count) * 64;
        for (int64_t i = 0, prefetched = 0; i < b->count; i++) {
            const place *at = &b->places[i], *after = i + 1 < b->count ? at + 1 : at;
            for (const int64_t end = least(prefetched + share, bytes); prefetched < end; prefetched += 64)
                __builtin_prefetch(next + prefetched, 0, 2);
            t.from_stride = (p->packed ? at->rows : p->source.pixels) * LANES;
            t.from = at->from + k / LANES * t.from_stride;
            t.ahead = after->from - at->from;
            t.to = p->scattered ? tile_sums(b, at, vectors) : at->to + panel * WIDTH * p->target.pixels;
            t.to_stride = (p->scattered ? at->rows : p->target.pixels) * LANES;
            t.added = k > 0 ? t.to : added && !p->scattered ? added + (t.to - (float *)p->out) : NULL;
            multiply_tile(&t, at->rows, vectors);
        }
    }
}

static void make_block(const product *p, const block *b, int64_t panel_begin, int64_t panel_end)
{
    for (int64_t i = 0; p->packed && i < b->count; i++)
        pack_tile(p, b->places[i].begin, b->places[i].rows,
                  b->packed + (b->places[i].begin - b->first_row) * p->source.planes);
    for (int64_t panel = panel_begin; panel < panel_end; panel++) {
        multiply_panel(p, b, panel);
        for (int64_t i = 0; p->scattered && i < b->count; i++)
            scatter_tile(p, tile_sums(b, &b->places[i], panel_vectors(p->target.planes, panel)), b->places[i].begin,
                         b->places[i].rows, panel);
    }
}

static void multiply(product *p, const float *weight, int threads, float *scratch)
{
    const int64_t panels = panel_count(p->target.planes), tiles = tile_count(p), blocks = p->source.planes / LANES;
    float *memory = scratch + p->source.planes * p->target.planes;
    p->weights = scratch;
#pragma omp parallel num_threads(threads)
    {
        float *own = memory + omp_get_thread_num() * thread_floats(p);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < panels * blocks; i++) { /* in the order of the weights in memory */
            if (p->backward)
                pack_weights(p, weight, i % panels, i / panels * LANES, scratch);
            else
                pack_weights(p, weight, i / blocks, i % blocks * LANES, scratch);
        }
#pragma omp for collapse(2) schedule(static)
        for (int64_t i = 0; i < p->blocks; i++) {
            for (int64_t part = 0; part < p->parts; part++) {
                block b;
                find_block(p, tiles * i / p->blocks, tiles * (i + 1) / p->blocks, own, &b);
                make_block(p, &b, panels * part / p->parts, panels * (part + 1) / p->parts);
            }
        }
    }
}

static void forward(const blocked_convolution *c, const void *x, const float *weight, const float *bias, int threads,
                    float *scratch, void *y)
{
    product p = describe(c, false, threads);
    p.values = (stored){x, c->bf16};
    p.bias = bias;
    p.out = y;
    multiply(&p, weight, threads, scratch);
}

static int64_t forward_floats(const blocked_convolution *c, int threads)
{
    return product_floats(c, false, threads);
}

static void grad_input(const blocked_convolution *c, const void *dy, const float *weight, const void *added,
                       int threads, float *scratch, void *dx)
{
    product p = describe(c, true, threads);
    p.values = (stored){dy, c->bf16};
    p.added = (stored){added, c->bf16};
    p.out = dx;
    multiply(&p, weight, threads, scratch);
}

static int64_t grad_input_floats(const blocked_convolution *c, int threads)
{
    return product_floats(c, true, threads);
}

const blocked_kernels AT_LEVEL(pointwise) = {.forward = forward,
                                             .forward_floats = forward_floats,
                                             .grad_input = grad_input,
                                             .grad_input_floats = grad_input_floats,
                                             .grad_weights = AT_LEVEL(pointwise_grad_weights),
                                             .grad_weights_floats = AT_LEVEL(pointwise_grad_weights_floats)};
