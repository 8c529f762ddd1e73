/* The arithmetic of Winograd convolution, F(4×4, 3×3): outputs from inputs, forward and back.
 *
 * An output tile of 4×4 comes from 6×6 inputs. Both are seen as products of polynomials, evaluated
 * at the six points 0, ±a, ±b and infinity (Lavin and Gray 2016), where 36 products do what takes
 * 144: for each of the 36 points, a matrix product of tiles × channels with channels × outputs. The
 * points a = 5/8, b = 3/2, oneDNN's, keep the sums small: errors are some 1e-6 of the largest
 * number, against 3e-7 directly.
 *
 * Tiles are computed in groups: inputs transformed (v), products at all points (m), outputs
 * transformed and written. While the transformed weights (u) fit a core's L2 cache, groups are
 * small, so that v and m stay there too and memory sees each image once. Larger u are read from
 * memory for each group, which then has more tiles, so that the arithmetic takes longer than that.
 * Each thread has groups of its own; where there are too few tiles for that, all threads work on
 * one group, on parts of its channels, points and outputs. */
#include <omp.h>
#include <string.h>

#include "backend/cpu/level/winograd_kernel.h"
#include "backend/cpu/level/winograd_level.h"
#include "backend/cpu/level/winograd_tile.h"

enum { MOST_TILES = 192 };

/* Channels × outputs up to which transformed weights (144 bytes each) fit a core's L2 cache. */
enum { NEAR_PAIRS = 64 * 128 };

/* Channels up to which the roundings of the weights' transform matter beside those of the sums. */
enum { SHORT_DEPTH = 64 };

/* Tiles × planes of a group, in and out, up to which the L2 cache has room for what is read next,
 * 64 bytes each: 288 KB. */
enum { MOST_EXPECTED = 24 * (64 + 128) };

/* ---- weights ---- */

/* One vector of kernels at all points. */
INLINE void transform_kernel(const vector kernel[9], bool turned, vector at[POINTS])
{
    transform_square(kernel, turned, evaluate_three, at);
    for (int i = 0; i < WINDOW; i++) {
        for (int j = 0; j < WINDOW; j++)
            at[i * WINDOW + j] *= factor(i) * factor(j);
    }
}

typedef double vector_f64 __attribute__((vector_size(2 * VECTOR_BYTES)));

INLINE void evaluate_three_f64(const vector_f64 g[3], vector_f64 at[WINDOW])
{
    const vector_f64 even_a = (double)A2 * g[2] + g[0], even_b = (double)B2 * g[2] + g[0];
    at[0] = g[0];
    at[1] = even_a + (double)A * g[1];
    at[2] = even_a - (double)A * g[1];
    at[3] = even_b + (double)B * g[1];
    at[4] = even_b - (double)B * g[1];
    at[5] = g[2];
}

/* factor(i) * factor(j), rounded once. */
INLINE double factor_f64(int i, int j)
{
    static const double of[] = {1 / ((double)A2 * B2),
                                1 / (2 * (double)A2 * (A2 - B2)),
                                1 / (2 * (double)A2 * (A2 - B2)),
                                1 / (2 * (double)B2 * (B2 - A2)),
                                1 / (2 * (double)B2 * (B2 - A2)),
                                1};
    return of[i] * of[j];
}

/* As transform_kernel(), rounded once: a tenth less error where sums are short. */
INLINE void transform_kernel_f64(const vector kernel[9], bool turned, vector at[POINTS])
{
    vector_f64 lines[3][WINDOW];
    for (int i = 0; i < 3; i++) {
        vector_f64 g[3];
        for (int j = 0; j < 3; j++)
            g[j] = __builtin_convertvector(kernel[turned ? 8 - 3 * i - j : 3 * i + j], vector_f64);
        evaluate_three_f64(g, lines[i]);
    }
    for (int j = 0; j < WINDOW; j++) {
        vector_f64 column[WINDOW];
        evaluate_three_f64((const vector_f64[3]){lines[0][j], lines[1][j], lines[2][j]}, column);
        for (int i = 0; i < WINDOW; i++)
            at[i * WINDOW + j] = __builtin_convertvector(factor_f64(i, j) * column[i], vector);
    }
}

/* ---- outputs ---- */

/* From the products at point (i, j), m[its class] + (i * WINDOW + j) * stride, to the outputs of a
 * tile. */
INLINE void transform_tile(const winograd_correlation *c, const float *const m[CLASSES], int64_t stride, vector bias,
                           vector y[TILE][TILE], const tile_size size)
{
    vector half[TILE][WINDOW];
    for (int j = 0; j < WINDOW; j++) {
        vector line[WINDOW], column[TILE];
        for (int i = 0; i < WINDOW; i++)
            line[i] = needs_point(size.columns, j) && needs_point(size.rows, i)
                          ? load(m[class_of(size.map, i, j)] + (i * WINDOW + j) * stride)
                          : (vector){0};
        transform_products(line, size.rows, column);
        for (int i = 0; i < TILE; i++)
            half[i][j] = column[i];
    }
    for (int i = 0; i < TILE; i++) {
        transform_products(half[i], size.columns, y[i]);
        for (int j = 0; j < TILE; j++) {
            y[i][j] += bias;
            if (c->relu)
                y[i][j] = cut_negative(y[i][j]);
        }
    }
}

/* Writes what lies within `rows` and `columns`, from `offset` on; `width` is the image's. The mask
 * may be of nothing. */
INLINE void write_tile(const vector y[TILE][TILE], int64_t width, int64_t rows, int64_t columns, void *to,
                       const stored *mask, int64_t offset)
{
    for (int i = 0; i < TILE && i < rows; i++) {
        for (int j = 0; j < TILE && j < columns; j++) {
            const int64_t at = offset + (i * width + j) * LANES;
            const vector value =
                mask->numbers ? (vector)(~(load_stored(mask, at) <= 0) & (vector_mask)y[i][j]) : y[i][j];
            store_rounded(to, at, value, mask->bf16);
        }
    }
}

/* The maxima of 2×2, of the pooled image that `width`, `rows` and `columns` describe. */
INLINE void write_maxima(const vector y[TILE][TILE], int64_t width, int64_t rows, int64_t columns, bool bf16,
                         const winograd_target *to, int64_t offset)
{
    for (int i = 0; i < TILE / 2 && i < rows; i++) {
        for (int j = 0; j < TILE / 2 && j < columns; j++) {
            vector best = y[2 * i][2 * j];
            vector_mask winner = {0};
            challenge(y[2 * i][2 * j + 1], 1, &best, &winner);
            challenge(y[2 * i + 1][2 * j], 2, &best, &winner);
            challenge(y[2 * i + 1][2 * j + 1], 3, &best, &winner);
            const int64_t at = offset + (i * width + j) * LANES;
            store_rounded(to->values, at, best, bf16);
            if (to->where)
                store_bytes_part(to->where + at, winner, LANES);
        }
    }
}

/* ---- groups ---- */

/* What all groups of a pass share, and the memory of one. */
typedef struct winograd_pass {
    const winograd_correlation *c;
    const winograd_source *in;
    const winograd_target *out;
    const float *bias;
    tiling tiles;
    const float *u;
    float *v, *m;
} winograd_pass;

/* Tiles that are computed together. */
typedef struct tile_group {
    int64_t count, counts[CLASSES]; /* tiles; those with products at points of a class */
    int64_t rows[CLASSES];          /* the latter, rounded up to a multiple of ROWS */
    place places[MOST_TILES];
    const float *in[MOST_TILES], *out[MOST_TILES],
        *mask[MOST_TILES]; /* the tiles in the first planes of these images */
} tile_group;

/* The products at a point of some class. */
INLINE product_sizes sizes_of(const winograd_pass *pass, const tile_group *group, int which)
{
    return (product_sizes){group->rows[which], pass->c->in.planes, pass->c->out.planes};
}

INLINE int class_of_point(const winograd_pass *pass, int64_t p)
{
    return class_of(&pass->tiles, (int)(p / WINDOW), (int)(p % WINDOW));
}

/* Floats from one point to the next in v (`planes` are inputs) or m (outputs); `rows` is the most
 * that a point has. */
INLINE int64_t group_stride(int64_t rows, int64_t planes)
{
    return rows * planes + 16;
}

static void find_group(const winograd_pass *pass, int64_t first, int64_t count, tile_group *found)
{
    found->count = count;
    memset(found->counts, 0, sizeof found->counts);
    for (int64_t t = 0; t < count; t++) {
        place at = place_of(&pass->tiles, first + t);
        const int64_t written = offset_of(&pass->c->out, at.image, 0, at.row, at.column);
        number_tile(&pass->tiles, &at, found->counts);
        found->places[t] = at;
        found->in[t] =
            address_of(pass->in->values, offset_of(&pass->c->in, at.image, 0, at.row, at.column), pass->c->bf16);
        found->out[t] = address_of(pass->out->values, written, pass->c->bf16);
        found->mask[t] = pass->out->mask ? address_of(pass->out->mask, written, pass->c->bf16) : NULL;
    }
    for (int which = 0; which < CLASSES; which++)
        found->rows[which] = (found->counts[which] + ROWS - 1) / ROWS * ROWS;
}

static void transform_group(const winograd_pass *pass, const tile_group *group, int part, int parts)
{
    const product_sizes most = sizes_of(pass, group, 0);
    const int64_t depth = most.depth, stride = group_stride(most.rows, depth);
    const share mine = share_of(depth / LANES * group->count, part, parts);
    const int classes = count_classes(&pass->tiles);
    const share cleared = share_of(depth / LANES, part, parts);
    for (int64_t i = mine.begin; i < mine.end; i++) {
        const int64_t k = i / group->count * LANES;
        const place *at = &group->places[i % group->count];
        float *to[CLASSES] = {NULL};
        for (int which = 0; which < classes; which++)
            to[which] = pass->v + v_offset(depth, at->number[which], k);
        transform_tile_inputs(pass->c, pass->in, &pass->tiles, at, k, to, stride);
    }
    for (int64_t p = 0; p < POINTS; p++) {
        const int which = class_of_point(pass, p);
        for (int64_t row = group->counts[which]; row < group->rows[which]; row++) {
            for (int64_t k = cleared.begin; k < cleared.end; k++)
                store(pass->v + p * stride + v_offset(depth, row, k * LANES), (vector){0});
        }
    }
}

/* The tiles of a group in all planes of an image, to be prefetched in so many calls of expect(). */
static expected expect_tiles(const winograd_images *images, bool bf16, const float *const *tiles, int64_t count,
                             int64_t calls)
{
    const int64_t planes = images->planes / LANES;
    return (expected){.squares = tiles,
                      .count = count,
                      .planes = count > 0 ? planes : 0,
                      .plane = floats_of(images->height * images->width * LANES, bf16),
                      .row = floats_of(images->width * LANES, bf16),
                      .width = floats_of(TILE * LANES, bf16),
                      .most = count * planes / calls + 1};
}

/* `next` is the group after this one and may be empty. Threads that share a group get about the
 * same number of rows. */
static void multiply_group(const winograd_pass *pass, const tile_group *group, const tile_group *next, int part,
                           int parts)
{
    const product_sizes most = sizes_of(pass, group, 0);
    const int64_t depth = most.depth, columns = most.columns, width = parts > 1 ? PANEL_COLUMNS : columns;
    const int64_t panels = (columns + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
    const bool bf16 = pass->c->bf16, alone = parts == 1,
               small = alone && most.rows * (depth + columns) <= MOST_EXPECTED;
    int64_t rows = 0, begin = 0;
    for (int64_t p = 0; p < POINTS; p++)
        rows += group->rows[class_of_point(pass, p)];
    const int64_t calls = rows / ROWS * panels * ((depth + MOST_DEPTH - 1) / MOST_DEPTH);
    const int64_t all = rows * (alone ? 1 : panels);
    expected read = expect_tiles(&pass->c->in, bf16, next->in, small && !pass->in->where ? next->count : 0, calls);
    expected written = expect_tiles(&pass->c->out, bf16, group->out, alone && !pass->c->pool ? group->count : 0, calls);
    expected mask = expect_tiles(&pass->c->out, bf16, group->mask, small && pass->out->mask ? group->count : 0, calls);
    written.written = true;
    for (int64_t p = 0; p < POINTS; p++) {
        const product_sizes sizes = sizes_of(pass, group, class_of_point(pass, p));
        for (int64_t n = 0; n < columns && sizes.rows > 0; n += width, begin += sizes.rows) {
            if (begin * parts / all == part)
                multiply(&sizes, pass->v + p * group_stride(most.rows, depth),
                         pass->u + p * weights_stride(depth, columns), pass->m + p * group_stride(most.rows, columns),
                         n, least(n + width, columns), &(expectations){{&written, &mask, &read}});
        }
    }
}

/* LANES outputs of a tile, from n on. */
INLINE void make_outputs(const winograd_pass *pass, const place *at, int64_t n, const float *const m[CLASSES],
                         int64_t stride, const tile_size size)
{
    const winograd_correlation *c = pass->c;
    const winograd_images half = pooled(&c->out);
    vector y[TILE][TILE];
    transform_tile(c, m, stride, pass->bias ? load(pass->bias + n) : (vector){0}, y, size);
    if (!c->pool) {
        const int64_t offset = offset_of(&c->out, at->image, n, at->row, at->column);
        write_tile(y, c->out.width, size.rows, size.columns, pass->out->values, &(stored){pass->out->mask, c->bf16},
                   offset);
    } else {
        const int64_t offset = offset_of(&half, at->image, n, at->row / 2, at->column / 2);
        write_maxima(y, half.width, size.rows / 2, size.columns / 2, c->bf16, pass->out, offset);
    }
}

static void write_group(const winograd_pass *pass, const tile_group *group, int part, int parts)
{
    const product_sizes most = sizes_of(pass, group, 0);
    const int64_t stride = group_stride(most.rows, most.columns);
    const share mine = share_of(most.columns / LANES * group->count, part, parts);
    const int classes = count_classes(&pass->tiles);
    for (int64_t i = mine.begin; i < mine.end; i++) {
        const int64_t n = i / group->count * LANES;
        const place *at = &group->places[i % group->count];
        const float *from[CLASSES] = {NULL};
        for (int which = 0; which < classes; which++)
            from[which] = pass->m + m_offset(group->rows[which], most.columns, at->number[which], n);
        CALL_WITH_SIZE(&pass->tiles, at, make_outputs, pass, at, n, from, stride);
    }
}

/* One thread's part of a group, which all `parts` threads compute together. */
static void compute_group(const winograd_pass *pass, const tile_group *group, const tile_group *next, int part,
                          int parts)
{
    transform_group(pass, group, part, parts);
    if (parts > 1) {
#pragma omp barrier
    }
    multiply_group(pass, group, next, part, parts);
    if (parts > 1) {
#pragma omp barrier
    }
    write_group(pass, group, part, parts);
}

/* The groups of `size` tiles, the last perhaps less, in which these are computed. */
static void compute_tiles(const winograd_pass *pass, share tiles, int64_t size, int part, int parts)
{
    tile_group groups[2]; /* this and the next, in turns */
    int now = 0;
    find_group(pass, tiles.begin, least(tiles.end - tiles.begin, size), &groups[now]);
    for (int64_t first = tiles.begin; first < tiles.end; first += size, now = !now) {
        const int64_t next = least(first + size, tiles.end);
        find_group(pass, next, least(tiles.end - next, size), &groups[!now]);
        compute_group(pass, &groups[now], &groups[!now], part, parts);
    }
}

/* ---- all of it ---- */

/* How a number of threads divide tiles. */
typedef struct grouping {
    int64_t size; /* tiles in a group, the last perhaps less */
    bool shared;  /* by all threads, one group after the other; else each thread has groups of its own tiles */
} grouping;

static grouping choose_groups(const winograd_correlation *c, int threads)
{
    const int64_t pairs = c->in.planes * c->out.planes, tiles = tile_up(&c->out).count;
    const int64_t most = pairs <= NEAR_PAIRS ? 24 : pairs <= CACHED_PAIRS ? 96 : MOST_TILES;
    const bool shared = threads > 1 && most > 24 && tiles < threads * most / 2;
    const int64_t each = shared ? tiles : (tiles + threads - 1) / threads, count = (each + most - 1) / most;
    return (grouping){(each + count - 1) / count, shared};
}

static int64_t group_floats(const winograd_correlation *c, int64_t size)
{
    const int64_t rows = (size + ROWS - 1) / ROWS * ROWS;
    return POINTS * (group_stride(rows, c->in.planes) + group_stride(rows, c->out.planes));
}

int64_t AT_LEVEL(winograd_correlate_floats)(const winograd_correlation *c, int threads)
{
    int64_t most = 0;
    for (int count = 1; count <= threads; count++) { /* there may be fewer threads than planned */
        const grouping groups = choose_groups(c, count);
        const int64_t floats = (groups.shared ? 1 : count) * group_floats(c, groups.size);
        most = floats > most ? floats : most;
    }
    return POINTS * weights_stride(c->in.planes, c->out.planes) + most;
}

void AT_LEVEL(winograd_correlate)(const winograd_correlation *c, const winograd_source *in,
                                  const winograd_weights *weights, const float *bias, float *scratch,
                                  const winograd_target *out)
{
    const int64_t depth = c->in.planes, columns = c->out.planes;
#pragma omp parallel
    {
        const int threads = omp_get_num_threads(), thread = omp_get_thread_num();
        const grouping groups = choose_groups(c, threads);
        winograd_pass pass = {c, in, out, bias, .tiles = tile_up(&c->out), .u = scratch};
        if (depth <= SHORT_DEPTH)
            transform_weights(weights, depth, columns, transform_kernel_f64, scratch, thread, threads);
        else
            transform_weights(weights, depth, columns, transform_kernel, scratch, thread, threads);
        pass.v = scratch + POINTS * weights_stride(depth, columns);
        if (!groups.shared)
            pass.v += thread * group_floats(c, groups.size);
        pass.m = pass.v + POINTS * group_stride((groups.size + ROWS - 1) / ROWS * ROWS, depth);
#pragma omp barrier
        const int parts = groups.shared ? threads : 1, part = groups.shared ? thread : 0;
        const share mine = groups.shared ? (share){0, pass.tiles.count} : share_of(pass.tiles.count, thread, threads);
        compute_tiles(&pass, mine, groups.size, part, parts);
    }
}
