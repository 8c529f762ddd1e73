/* 3×3 convolutions with stride 2: forward, and back to the inputs' gradients. See strided_tile.h
 * for the method.
 *
 * Tiles are computed in groups, as in winograd_correlate.c: inputs are transformed (v), multiplied
 * by the transformed weights (u) at all points (m), and outputs are transformed and written. Here v
 * and m are more than twice as large, so the products go panel by panel of outputs, and each panel
 * is written before the next one overwrites its m: m stays in a core's L2 cache. u is stored panel
 * by panel too; with a single group, only one panel of u is in memory at a time. */
#include <omp.h>

#include "backend/cpu/level/products.h"
#include "backend/cpu/level/strided_level.h"
#include "backend/cpu/level/strided_tile.h"
#include "backend/cpu/level/winograd_kernel.h"

/* Tiles in a group, if u (144 bytes for each pair of channels) fits a cache that cores share, or if
 * it does not. */
enum { FEW_TILES = 24, MOST_TILES = 128 };

/* ---- weights ---- */

/* Evaluates one vector of kernels at all points. */
INLINE void transform_kernel(const vector kernel[9], bool turned, vector at[POINTS])
{
    transform_square(kernel, turned, evaluate_taps, at);
}

/* Floats in one panel of transformed weights. */
INLINE int64_t panel_floats(int64_t depth)
{
    return POINTS * weights_stride(depth, PANEL_COLUMNS);
}

/* Transforms the thread's share of the panel that begins at output n. */
static void transform_panel(const winograd_weights *weights, int64_t depth, int64_t columns, int64_t n, float *u,
                            int part, int parts)
{
    winograd_weights panel = *weights;
    panel.values += n * weights->stride_n;
    transform_weights(&panel, depth, panel_columns(columns, n), transform_kernel, u, part, parts);
}

/* ---- groups ---- */

/* Shared by all groups of a pass; and a thread's memory. */
typedef struct strided_pass {
    const strided_convolution *c;
    bool back; /* from gradients of outputs to those of inputs */
    const winograd_weights *weights;
    const void *in;
    void *out;
    const float *bias;
    strided_tiling tiles;
    int64_t depth, columns;
    bool fresh; /* there is only one group: each panel of u is transformed when needed, over the previous one */
    bool split; /* threads share panels, so m holds all of them; else one */
    float *u, *v, *m;
} strided_pass;

/* Tiles that are computed together. */
typedef struct tile_group {
    int64_t count;
    strided_tile tiles[MOST_TILES];
    int32_t rows[MOST_TILES][ENTRIES], inputs[MOST_TILES][ENTRIES]; /* rows, and their offsets in v */
    row_counts counts;
    int64_t padded[POINTS]; /* each point's rows: those of the tiles, padded with zeros to a multiple of ROWS */
    int64_t begin[POINTS];  /* rows before each point's */
    int64_t all;
    int64_t in_count, out_count; /* squares of the images, prefetched before they are read or written */
    const float *in[MOST_TILES * MOST_SQUARES], *out[MOST_TILES * MOST_SQUARES];
} tile_group;

/* v of a point begins an odd number of cache lines after that of the previous point. */
INLINE float *v_of(const strided_pass *pass, const tile_group *group, int p)
{
    return pass->v + group->begin[p] * pass->depth + p * 16;
}

/* m of a point, for the panel that begins at output n. */
INLINE float *m_of(const strided_pass *pass, const tile_group *group, int64_t n, int p)
{
    return pass->m + (pass->split ? n * group->all : 0) + group->begin[p] * panel_columns(pass->columns, n);
}

static void find_group(const strided_pass *pass, int64_t first, int64_t count, tile_group *found)
{
    found->count = count;
    found->counts = (row_counts){0};
    for (int64_t t = 0; t < count; t++) {
        found->tiles[t] = tile_at(&pass->tiles, first + t);
        add_tile(&found->counts, &found->tiles[t], found->rows[t]);
        for (int e = 0; e < ENTRIES; e++)
            found->inputs[t][e] = (int32_t)v_offset(pass->depth, found->rows[t][e], 0);
    }
    found->in_count = found->out_count = 0;
    for (int64_t t = 0; t < count; t++) {
        const strided_convolution *c = pass->c;
        const strided_tile *tile = &found->tiles[t];
        const int64_t *at = tile->begin, row = 2 * at[0] - c->padding[0], column = 2 * at[1] - c->padding[1];
        if (pass->back) {
            found->in_count =
                add_squares(&c->y, pass->in, c->bf16, tile->image, at[0], at[1], 1, found->in, found->in_count);
            found->out_count = add_squares(&c->x, pass->out, c->bf16, tile->image, row + 1, column + 1, 2, found->out,
                                           found->out_count);
        } else {
            found->in_count =
                add_squares(&c->x, pass->in, c->bf16, tile->image, row, column, 2, found->in, found->in_count);
            found->out_count =
                add_squares(&c->y, pass->out, c->bf16, tile->image, at[0], at[1], 1, found->out, found->out_count);
        }
    }
    found->all = 0;
    for (int p = 0; p < POINTS; p++) {
        found->padded[p] = (rows_of(&found->counts, p) + ROWS - 1) / ROWS * ROWS;
        found->begin[p] = found->all;
        found->all += found->padded[p];
    }
}

/* Pads the rows of each point with zeros. */
static void fill_rows(const strided_pass *pass, const tile_group *group, int64_t k)
{
    for (int p = 0; p < POINTS; p++) {
        for (int64_t t = rows_of(&group->counts, p); t < group->padded[p]; t++)
            store(v_of(pass, group, p) + v_offset(pass->depth, t, k), (vector){0});
    }
}

/* Transforms LANES planes of a tile, from k on. */
INLINE void transform_inputs_of(const strided_pass *pass, const strided_tile *tile, int64_t k, const entries *to,
                                const bool back, const bool bf16)
{
    const strided_convolution *c = pass->c;
    if (back)
        transform_entries(GRADIENTS, bf16, &c->y, pass->in, tile, k, tile->begin[0], tile->begin[1], to);
    else
        transform_entries(INPUTS, bf16, &c->x, pass->in, tile, k, 2 * tile->begin[0] - c->padding[0],
                          2 * tile->begin[1] - c->padding[1], to);
}

static void transform_group(const strided_pass *pass, const tile_group *group, int part, int parts)
{
    const share mine = share_of(pass->depth / LANES * group->count, part, parts);
    for (int64_t i = mine.begin; i < mine.end; i++) {
        const int64_t k = i / group->count * LANES, t = i % group->count;
        entries to = {.at = group->inputs[t], .width = 1};
        for (int p = 0; p < POINTS; p++)
            to.points[p] = v_of(pass, group, p) + k * ROWS;
        if (t == 0)
            fill_rows(pass, group, k);
        if (pass->back && pass->c->bf16)
            transform_inputs_of(pass, &group->tiles[t], k, &to, true, true);
        else if (pass->back)
            transform_inputs_of(pass, &group->tiles[t], k, &to, true, false);
        else if (pass->c->bf16)
            transform_inputs_of(pass, &group->tiles[t], k, &to, false, true);
        else
            transform_inputs_of(pass, &group->tiles[t], k, &to, false, false);
    }
}

/* Multiplies the panel that begins at n, at one point. */
static void multiply_point(const strided_pass *pass, const tile_group *group, int64_t n, int p,
                           const expectations *soon)
{
    const int64_t width = panel_columns(pass->columns, n);
    const product_sizes sizes = {group->padded[p], pass->depth, width};
    const float *u = pass->u + (pass->fresh ? 0 : n / PANEL_COLUMNS * panel_floats(pass->depth));
    if (sizes.rows > 0)
        multiply(&sizes, v_of(pass, group, p), u + p * weights_stride(pass->depth, width), m_of(pass, group, n, p), 0,
                 width, soon);
}

/* ---- outputs ---- */

/* Transforms a line of entries to four outputs, or to four pairs of inputs' gradients. */
INLINE void transform_back(const vector m[LINE], const bool back, vector to[2 * TILE])
{
    vector sums[TILE];
    transform_points(m, sums);
    for (int i = 0; i < TILE; i++) {
        if (back) {
            to[2 * i] = m[PLACE + i];
            to[2 * i + 1] = sums[i];
        } else {
            to[i] = sums[i] + m[PLACE + i];
        }
    }
}

/* Transforms and writes LANES planes of a tile, from n on. */
INLINE void write_entries(const strided_pass *pass, const strided_tile *tile, int64_t n, const entries *from,
                          const bool back, const bool bf16)
{
    const strided_convolution *c = pass->c;
    const winograd_images *images = back ? &c->x : &c->y;
    const int each = back ? 2 : 1;
    const int64_t row = back ? 2 * tile->begin[0] + 1 - c->padding[0] : tile->begin[0];
    const int64_t column = back ? 2 * tile->begin[1] + 1 - c->padding[1] : tile->begin[1];
    const share rows = numbers_inside(row, each * tile->lines[0], images->height),
                columns = numbers_inside(column, each * tile->lines[1], images->width);
    const vector bias = pass->bias ? load(pass->bias + n) : (vector){0};
    vector half[2 * TILE][LINE];
    for (int j = 0; j < LINE; j++) {
        vector line[LINE], to[2 * TILE];
#pragma GCC unroll 9
        for (int i = 0; i < LINE; i++)
            line[i] =
                has_entry(tile->lines[0], i) && has_entry(tile->lines[1], j) ? load(entry_at(from, i, j)) : (vector){0};
        transform_back(line, back, to);
        for (int i = 0; i < each * TILE; i++)
            half[i][j] = to[i];
    }
    for (int64_t i = rows.begin; i < rows.end; i++) {
        const int64_t at = offset_of(images, tile->image, n, row + i, column);
        vector y[2 * TILE];
        transform_back(half[i], back, y);
#pragma GCC unroll 8
        for (int j = 0; j < each * TILE; j++) {
            if (j < columns.begin || j >= columns.end)
                continue;
            if (!back) {
                y[j] += bias;
                if (c->relu)
                    y[j] = cut_negative(y[j]);
            }
            store_rounded(pass->out, at + j * LANES, y[j], bf16);
        }
    }
}

/* Writes one tile of the panel that begins at n. */
static void write_panel(const strided_pass *pass, const tile_group *group, int64_t n, int64_t t)
{
    const int64_t width = panel_columns(pass->columns, n);
    entries from = {.at = group->rows[t], .width = width};
    for (int64_t i = 0; i < width; i += LANES) {
        for (int p = 0; p < POINTS; p++)
            from.points[p] = m_of(pass, group, n, p) + i;
        if (pass->back && pass->c->bf16)
            write_entries(pass, &group->tiles[t], n + i, &from, true, true);
        else if (pass->back)
            write_entries(pass, &group->tiles[t], n + i, &from, true, false);
        else if (pass->c->bf16)
            write_entries(pass, &group->tiles[t], n + i, &from, false, true);
        else
            write_entries(pass, &group->tiles[t], n + i, &from, false, false);
    }
}

/* ---- the whole pass ---- */

static int64_t count_panels(const strided_pass *pass)
{
    return (pass->columns + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
}

/* Computes whole panels, one after the other. */
static void compute_panels(const strided_pass *pass, const tile_group *group, const tile_group *next, share panels)
{
    const winograd_images *in = pass->back ? &pass->c->y : &pass->c->x, *out = pass->back ? &pass->c->x : &pass->c->y;
    const int64_t calls = group->all / ROWS * ((pass->depth + MOST_DEPTH - 1) / MOST_DEPTH);
    expected read = expect_squares(in, pass->c->bf16, next->in, next->in_count, (share){0, pass->depth},
                                   calls * count_panels(pass));
    for (int64_t i = panels.begin; i < panels.end; i++) {
        const int64_t n = i * PANEL_COLUMNS;
        if (pass->fresh)
            transform_panel(pass->weights, pass->depth, pass->columns, n, pass->u, 0, 1);
        expected written = expect_squares(out, pass->c->bf16, group->out, group->out_count,
                                          (share){n, n + panel_columns(pass->columns, n)}, calls);
        written.written = true;
        for (int p = 0; p < POINTS; p++)
            multiply_point(pass, group, n, p, &(expectations){{&written, &read}});
        for (int64_t t = 0; t < group->count; t++)
            write_panel(pass, group, n, t);
    }
}

/* Computes a share of all panels: threads share the points by their numbers of rows. */
static void compute_part(const strided_pass *pass, const tile_group *group, int part, int parts)
{
    const int64_t panels = count_panels(pass), all = group->all * panels;
    for (int64_t i = 0; i < POINTS * panels; i++) {
        const int p = (int)(i % POINTS);
        if ((i / POINTS * group->all + group->begin[p]) * parts / all == part)
            multiply_point(pass, group, i / POINTS * PANEL_COLUMNS, p, &(expectations){{NULL}});
    }
#pragma omp barrier
    const share mine = share_of(group->count * panels, part, parts);
    for (int64_t i = mine.begin; i < mine.end; i++)
        write_panel(pass, group, i / group->count * PANEL_COLUMNS, i % group->count);
}

/* One thread's part of a group that `parts` threads compute together. `next` is the group after it;
 * it may have no tiles. */
static void compute_group(const strided_pass *pass, const tile_group *group, const tile_group *next, int part,
                          int parts)
{
    transform_group(pass, group, part, parts);
    if (parts > 1) {
#pragma omp barrier
    }
    if (pass->split)
        compute_part(pass, group, part, parts);
    else
        compute_panels(pass, group, next, share_of(count_panels(pass), part, parts));
    if (parts > 1) {
#pragma omp barrier
    }
}

/* How threads divide a pass. */
typedef struct division {
    int64_t size;      /* tiles in a group; the last may have fewer */
    bool shared;       /* all threads work on one group at a time; else each has groups of its own */
    bool split, fresh; /* as in strided_pass */
    /* Floats of the panels of u that are kept, of a group's v, and of a thread's m or, if split, a
     * group's. */
    int64_t u, v, m;
} division;

static division divide(const strided_pass *pass, int threads)
{
    const int64_t tiles = pass->tiles.count, panels = count_panels(pass);
    const int64_t few = pass->depth * pass->columns <= CACHED_PAIRS ? FEW_TILES : MOST_TILES;
    division d = {.shared = threads > 1 && tiles < threads * few};
    const int64_t each = d.shared ? tiles : (tiles + threads - 1) / threads, most = d.shared ? MOST_TILES : few;
    const int64_t count = (each + most - 1) / most;
    d.size = (each + count - 1) / count;
    d.split = d.shared && panels % threads != 0 && panels < 4 * threads;
    d.fresh = count == 1 && !d.split && (d.shared || threads == 1);
    /* Every tile may be whole, and each point's rows are rounded up. */
    const int64_t rows = ENTRIES * d.size + POINTS * ROWS;
    d.u = panel_floats(pass->depth) * (d.fresh ? threads : panels);
    d.v = rows * pass->depth + POINTS * 16;
    d.m = rows * (d.split ? pass->columns : PANEL_COLUMNS);
    return d;
}

static strided_pass make_pass(const strided_convolution *c, bool back)
{
    return (strided_pass){.c = c,
                          .back = back,
                          .tiles = back ? tile_inputs(c) : tile_outputs(c),
                          .depth = back ? c->y.planes : c->x.planes,
                          .columns = back ? c->x.planes : c->y.planes};
}

static int64_t pass_floats(const blocked_convolution *c, bool back, int threads)
{
    const strided_convolution described = describe_strided(c);
    const strided_pass pass = make_pass(&described, back);
    int64_t most = 0;
    for (int count = 1; count <= threads; count++) { /* there may be fewer threads than planned */
        const division d = divide(&pass, count);
        const int64_t floats = d.u + (d.shared ? 1 : count) * d.v + (d.split ? 1 : count) * d.m;
        most = floats > most ? floats : most;
    }
    return most;
}

static void compute_pass(const strided_pass *whole, int most_threads, float *scratch)
{
#pragma omp parallel num_threads(most_threads)
    {
        const int threads = omp_get_num_threads(), thread = omp_get_thread_num();
        const division d = divide(whole, threads);
        const int64_t count = whole->tiles.count;
        strided_pass pass = *whole;
        pass.split = d.split;
        pass.fresh = d.fresh;
        pass.u = scratch + (d.fresh ? thread * panel_floats(pass.depth) : 0);
        pass.v = scratch + d.u + (d.shared ? 0 : thread) * d.v;
        pass.m = scratch + d.u + (d.shared ? 1 : threads) * d.v + (d.split ? 0 : thread) * d.m;
        for (int64_t i = 0; i < count_panels(&pass) && !d.fresh; i++)
            transform_panel(pass.weights, pass.depth, pass.columns, i * PANEL_COLUMNS,
                            pass.u + i * panel_floats(pass.depth), thread, threads);
        const share mine = d.shared ? (share){0, count} : share_of(count, thread, threads);
#pragma omp barrier
        tile_group groups[2]; /* this group and the next, alternating */
        int now = 0;
        find_group(&pass, mine.begin, least(mine.end - mine.begin, d.size), &groups[now]);
        for (int64_t first = mine.begin; first < mine.end; first += d.size, now = !now) {
            const int64_t next = least(first + d.size, mine.end);
            find_group(&pass, next, least(mine.end - next, d.size), &groups[!now]);
            compute_group(&pass, &groups[now], &groups[!now], d.shared ? thread : 0, d.shared ? threads : 1);
        }
    }
}

void AT_LEVEL(strided_forward)(const blocked_convolution *c, const void *x, const float *weight, const float *bias,
                               int threads, float *scratch, void *y)
{
    const strided_convolution described = describe_strided(c);
    const winograd_weights weights = {.values = weight, .stride_n = c->channels * 9, .stride_k = 9};
    strided_pass pass = make_pass(&described, false);
    pass.weights = &weights;
    pass.in = x;
    pass.out = y;
    pass.bias = bias;
    compute_pass(&pass, threads, scratch);
}

/* The kernel is rotated by 180°, with inputs and outputs exchanged. */
void AT_LEVEL(strided_grad_input)(const blocked_convolution *c, const void *dy, const float *weight, const void *added,
                                  int threads, float *scratch, void *dx)
{
    (void)added;
    const strided_convolution described = describe_strided(c);
    const winograd_weights weights = {.values = weight, .stride_n = 9, .stride_k = c->channels * 9, .turned = true};
    strided_pass pass = make_pass(&described, true);
    pass.weights = &weights;
    pass.in = dy;
    pass.out = dx;
    compute_pass(&pass, threads, scratch);
}

int64_t AT_LEVEL(strided_forward_floats)(const blocked_convolution *c, int threads)
{
    return pass_floats(c, false, threads);
}

int64_t AT_LEVEL(strided_grad_input_floats)(const blocked_convolution *c, int threads)
{
    return pass_floats(c, true, threads);
}
