/* Depthwise convolutions, and others with few channels a group, forward and grad_input. They
 * move many bytes for what they compute, so each number is read and written once; sums of ROWS ×
 * T neighbouring outputs are kept in registers while the taps go by.
 *
 * forward      y[r][t]  = sum over taps of x[r·s - p + i][t·s - p + j] · w[i][j] grad_input
 * dx[r][t] = sum of dy[(r + p - i) / s][(t + p - j) / s] · w[i][j]
 *
 * (with a sum over the group's channels, which are taps too, depthwise_level.h). In grad_input
 * only the taps count for which the divisions leave no rest. Which these are depends on r and t
 * modulo s alone, so it consists of s × s parts, each of them a correlation with some of the
 * kernel's taps, turned round, that writes each s-th output. */
#include <omp.h>

#include "backend/cpu/depthwise.h"
#include "backend/cpu/level/depthwise_level.h"

/* Output rows that are computed together. */
enum { ROWS = REGISTERS == 32 ? 2 : 1, MOST_TILE = 8, MOST_PARTS = 4 };

/* A correlation; arrays of two are rows and columns. Output k of an axis is at first + k · apart in
 * its map, and its first tap meets input corner + k · step. */
typedef struct part {
    int64_t taps[2], outputs[2], corner[2], step[2], first[2], apart[2];
    int64_t last_tap[2], tap_step[2]; /* tap i of the part is last_tap - i · tap_step of the kernel */
    int64_t weights;                  /* of its first tap, in floats from the block's first */
} part;

typedef struct pass {
    const blocked_convolution *c;
    int64_t blocks, in[2], out[2]; /* maps: height, width */
    int part_count;
    part parts[MOST_PARTS];
    int tile;            /* columns that are computed together */
    int64_t chunks;      /* of a map */
    depthwise_rows rows; /* as each thread's begin */
    bool backward;
    const float *weights; /* (blocks, taps, channels of a group, LANES), parts one behind the other */
    const float *bias;    /* or NULL */
    void *to;
    bool relu, streamed; /* streamed: results go past the caches */
} pass;

/* ---- describing a pass ---- */

/* One axis of the part that computes outputs `first`, first + s ... of grad_input. */
static void turn_axis(const pass *p, int axis, int64_t first, part *t)
{
    const int64_t stride = p->c->stride[axis], distance = first + p->c->padding[axis];
    const int64_t least = distance % stride, kernel = p->c->kernel[axis];
    t->taps[axis] = (kernel - least + stride - 1) / stride;
    t->last_tap[axis] = least + (t->taps[axis] - 1) * stride;
    t->tap_step[axis] = stride;
    t->outputs[axis] = (p->out[axis] - first + stride - 1) / stride;
    t->corner[axis] = (distance - t->last_tap[axis]) >> (stride - 1); /* the stride is 1 or 2 */
    t->step[axis] = 1;
    t->first[axis] = first;
    t->apart[axis] = stride;
}

static void find_parts(pass *p)
{
    const blocked_convolution *c = p->c;
    int64_t weights = 0;
    if (!p->backward) {
        part *only = &p->parts[p->part_count++];
        for (int axis = 0; axis < 2; axis++) {
            only->taps[axis] = c->kernel[axis];
            only->tap_step[axis] = -1;
            only->outputs[axis] = p->out[axis];
            only->corner[axis] = -c->padding[axis];
            only->step[axis] = c->stride[axis];
            only->apart[axis] = 1;
        }
        return;
    }
    for (int64_t row = 0; row < c->stride[0]; row++) {
        for (int64_t column = 0; column < c->stride[1]; column++) {
            part *t = &p->parts[p->part_count++];
            turn_axis(p, 0, row, t);
            turn_axis(p, 1, column, t);
            t->weights = weights;
            weights += t->taps[0] * t->taps[1] * c->group * LANES;
        }
    }
}

/* The tile that computes the fewest outputs beyond the row's end. */
static int choose_tile(int64_t outputs)
{
    static const int tiles[] = {8, 7, 4};
    int best = tiles[0];
    int64_t fewest = INT64_MAX;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        const int64_t computed = (outputs + tiles[i] - 1) / tiles[i] * tiles[i];
        if (computed < fewest) {
            fewest = computed;
            best = tiles[i];
        }
    }
    return best;
}

/* Room for what taps read on both sides of a row, and for the rows that are read together. */
static void find_room(pass *p)
{
    int64_t left = 0, right = p->in[1], top = INT64_MAX, bottom = INT64_MIN;
    for (int i = 0; i < p->part_count; i++) {
        const part *t = &p->parts[i];
        const int64_t columns = (t->outputs[1] + p->tile - 1) / p->tile * p->tile;
        left = depthwise_least(left, t->corner[1]);
        right = depthwise_most(right, t->corner[1] + (columns - 1) * t->step[1] + t->taps[1]);
        top = depthwise_least(top, t->corner[0]);
        bottom = depthwise_most(bottom, t->corner[0] + (ROWS - 1) * t->step[0] + t->taps[0]);
    }
    p->rows.height = p->in[0];
    p->rows.width = p->in[1];
    p->rows.before = -left;
    p->rows.pitch = right - left;
    p->rows.group = p->c->group;
    p->rows.slots = depthwise_slots(bottom - top);
}

static pass describe(const blocked_convolution *c, bool backward, int threads)
{
    pass p = {.c = c, .backward = backward, .blocks = depthwise_blocks(c->channels)};
    const int64_t x[2] = {c->height, c->width}, y[2] = {c->out_height, c->out_width};
    for (int axis = 0; axis < 2; axis++) {
        p.in[axis] = backward ? y[axis] : x[axis];
        p.out[axis] = backward ? x[axis] : y[axis];
    }
    find_parts(&p);
    p.tile = choose_tile(p.parts[0].outputs[1]);
    find_room(&p);
    const int64_t maps = c->batch * p.blocks, wanted = 4 * (int64_t)threads;
    p.chunks = depthwise_least((p.parts[0].outputs[0] + 3) / 4, (wanted + maps - 1) / maps);
    return p;
}

INLINE int64_t taps_of(const pass *p)
{
    return (int64_t)p->c->kernel[0] * p->c->kernel[1] * p->c->group;
}

INLINE int64_t weights_floats(const pass *p)
{
    return p->blocks * taps_of(p) * LANES;
}

static int64_t pass_floats(const blocked_convolution *c, bool backward, int threads)
{
    const pass p = describe(c, backward, threads);
    return weights_floats(&p) + threads * depthwise_rows_floats(&p.rows);
}

/* ---- computing ---- */

/* Up to ROWS rows of a part's outputs, in one block of channels. */
typedef struct row_call {
    const pass *p;
    const part *t;
    const float *from[2 + DEPTHWISE_MAX_KERNEL]; /* the input rows, at the first tap of output column 0 */
    const float *weights;
    vector bias;
    int64_t to, next_row, next_column; /* the place of the first output, and the distance to others */
} row_call;

typedef enum way { CACHED, STREAMED, ROUNDED } way;

INLINE void write_tile(const row_call *r, int64_t first, const vector *sum, int64_t left, const way how, const int R,
                       const int T)
{
#pragma GCC unroll 2
    for (int k = 0; k < R; k++) {
        const int64_t to = r->to + k * r->next_row + first * r->next_column;
#pragma GCC unroll 8
        for (int t = 0; t < T; t++) {
            if (t >= left)
                continue;
            if (how == STREAMED)
                store_past_caches((float *)r->p->to + to + t * r->next_column, sum[k * T + t]);
            else
                store_rounded(r->p->to, to + t * r->next_column, sum[k * T + t], how == ROUNDED);
        }
    }
}

INLINE void write_sums(const row_call *r, int64_t first, vector *sum, int64_t left, const int R, const int T)
{
    if (r->p->relu) {
#pragma GCC unroll 16
        for (int k = 0; k < R * T; k++)
            sum[k] = cut_negative(sum[k]);
    }
    if (r->p->c->bf16)
        write_tile(r, first, sum, left, ROUNDED, R, T);
    else if (r->p->streamed)
        write_tile(r, first, sum, left, STREAMED, R, T);
    else if (left >= T)
        write_tile(r, first, sum, T, CACHED, R, T);
    else
        write_tile(r, first, sum, left, CACHED, R, T);
}

/* T outputs of R rows from column `first` on, S vectors of the input apart, by rows of J taps; 0:
 * of any number. What lies beyond the row's end is computed, but not written. */
INLINE void compute_tile(const row_call *r, int64_t first, const int R, const int T, const int S, const int J)
{
    const int64_t rows = r->t->taps[0], columns = J ? J : r->t->taps[1] * r->p->c->group;
    vector sum[ROWS * MOST_TILE];
#pragma GCC unroll 16
    for (int k = 0; k < R * T; k++)
        sum[k] = r->bias;
    for (int64_t i = 0; i < rows; i++) {
        const float *weights = r->weights + i * columns * LANES, *in[ROWS];
        for (int k = 0; k < R; k++)
            in[k] = r->from[i + k * r->t->step[0]] + first * S * LANES;
#pragma GCC unroll 7
        for (int64_t j = 0; j < columns; j++) {
            const vector w = load(weights + j * LANES);
#pragma GCC unroll 2
            for (int k = 0; k < R; k++) {
#pragma GCC unroll 8
                for (int t = 0; t < T; t++)
                    sum[k * T + t] = multiply_add(load(in[k] + (t * S + j) * LANES), w, sum[k * T + t]);
            }
        }
    }
    write_sums(r, first, sum, r->t->outputs[1] - first, R, T);
}

INLINE void compute_rows_by(const row_call *r, const int R, const int T, const int S, const int J)
{
    for (int64_t first = 0; first < r->t->outputs[1]; first += T)
        compute_tile(r, first, R, T, S, J);
}

#define ROWS_CASE(R, T, S, J)                                                                                          \
    case (S) << 8 | (J):                                                                                               \
        compute_rows_by(r, R, T, S, J);                                                                                \
        return;
#define ANY_CASE(R, T, S)                                                                                              \
    case S:                                                                                                            \
        compute_rows_by(r, R, T, S, 0);                                                                                \
        return;
#define DEFINE_ROWS(name, R, T)                                                                                        \
    static void name(const row_call *r)                                                                                \
    {                                                                                                                  \
        const int64_t group = r->p->c->group, step = r->t->step[1] * group;                                            \
        switch (step << 8 | (r->t->taps[1] * group)) {                                                                 \
            ROWS_CASE(R, T, 1, 1)                                                                                      \
            ROWS_CASE(R, T, 1, 2)                                                                                      \
            ROWS_CASE(R, T, 1, 3)                                                                                      \
            ROWS_CASE(R, T, 1, 4)                                                                                      \
            ROWS_CASE(R, T, 1, 5)                                                                                      \
            ROWS_CASE(R, T, 1, 7)                                                                                      \
            ROWS_CASE(R, T, 2, 3)                                                                                      \
            ROWS_CASE(R, T, 2, 5)                                                                                      \
            ROWS_CASE(R, T, 2, 7)                                                                                      \
        default: break;                                                                                                \
        }                                                                                                              \
        switch (step) {                                                                                                \
            ANY_CASE(R, T, 1)                                                                                          \
            ANY_CASE(R, T, 2)                                                                                          \
            ANY_CASE(R, T, 4)                                                                                          \
            ANY_CASE(R, T, 8)                                                                                          \
            ANY_CASE(R, T, 16)                                                                                         \
            ANY_CASE(R, T, 32)                                                                                         \
        default: break;                                                                                                \
        }                                                                                                              \
    }
DEFINE_ROWS(compute_row_8, 1, 8)
DEFINE_ROWS(compute_row_7, 1, 7)
DEFINE_ROWS(compute_row_4, 1, 4)
DEFINE_ROWS(compute_rows_8, ROWS, 8)
DEFINE_ROWS(compute_rows_7, ROWS, 7)
DEFINE_ROWS(compute_rows_4, ROWS, 4)

static void compute_rows(const row_call *r, int64_t rows)
{
    const int tile = r->p->tile;
    if (rows == ROWS)
        (tile == 8 ? compute_rows_8 : tile == 7 ? compute_rows_7 : compute_rows_4)(r);
    else
        (tile == 8 ? compute_row_8 : tile == 7 ? compute_row_7 : compute_row_4)(r);
}

/* Rows k to k + ROWS of one part of map `map`. */
static void compute_part(const pass *p, const part *t, depthwise_rows *rows, int64_t map, int64_t k, int64_t count,
                         row_call *r)
{
    const int64_t top = t->corner[0] + k * t->step[0], read = (count - 1) * t->step[0] + t->taps[0];
    depthwise_copy_rows(rows, depthwise_least(top + read, p->in[0]));
    for (int64_t i = 0; i < read; i++)
        r->from[i] = depthwise_row(rows, top + i) + t->corner[1] * p->c->group * LANES;
    r->t = t;
    r->next_row = t->apart[0] * p->out[1] * LANES;
    r->next_column = t->apart[1] * LANES;
    r->to = ((map * p->out[0] + t->first[0]) * p->out[1] + t->first[1]) * LANES + k * r->next_row;
    compute_rows(r, count);
}

/* One chunk of one map. */
static void compute_chunk(const pass *p, depthwise_rows *rows, int64_t n, int64_t block, int64_t chunk)
{
    const int64_t map = n * p->blocks + block, height = p->parts[0].outputs[0];
    const int64_t end = height * (chunk + 1) / p->chunks;
    const float *weights = p->weights + block * taps_of(p) * LANES;
    row_call r = {.p = p};
    r.bias = p->bias ? load_part(p->bias + block * LANES, p->c->channels - block * LANES) : broadcast(0);
    rows->plane = map * p->in[0] * p->in[1] * LANES;
    rows->end = 0;
    for (int64_t k = height * chunk / p->chunks; k < end; k += ROWS) {
        for (int i = 0; i < p->part_count; i++) {
            const part *t = &p->parts[i];
            const int64_t count = depthwise_least(depthwise_least(ROWS, end - k), t->outputs[0] - k);
            r.weights = weights + t->weights;
            if (count == ROWS) {
                compute_part(p, t, rows, map, k, ROWS, &r);
                continue;
            }
            for (int64_t one = 0; one < count; one++)
                compute_part(p, t, rows, map, k + one, 1, &r);
        }
    }
}

/* The weights that join each lane of a block, as an output of the pass, to channel m of its
 * group, by tap (row, column) of the kernel; padding is 0. */
static void pack_tap(const pass *p, const float *w, int64_t block, int64_t tap, int64_t m, float *to)
{
    const int64_t taps = (int64_t)p->c->kernel[0] * p->c->kernel[1], group = p->c->group;
    for (int64_t lane = 0; lane < LANES; lane++) {
        const int64_t target = block * LANES + lane, source = target / group * group + m;
        const int64_t output = p->backward ? source : target, channel = (p->backward ? target : source) % group;
        to[lane] = target < p->c->channels ? w[(output * group + channel) * taps + tap] : 0;
    }
}

static void pack_weights(const pass *p, const float *w, int64_t block, float *to)
{
    const int64_t group = p->c->group;
    for (int k = 0; k < p->part_count; k++) {
        const part *t = &p->parts[k];
        float *packed = to + block * taps_of(p) * LANES + t->weights;
        for (int64_t i = 0; i < t->taps[0]; i++) {
            for (int64_t j = 0; j < t->taps[1]; j++) {
                const int64_t row = t->last_tap[0] - i * t->tap_step[0], column = t->last_tap[1] - j * t->tap_step[1];
                for (int64_t m = 0; m < group; m++)
                    pack_tap(p, w, block, row * p->c->kernel[1] + column, m,
                             packed + ((i * t->taps[1] + j) * group + m) * LANES);
            }
        }
    }
}

static void compute(pass *p, const float *w, int threads, float *scratch)
{
    /* What the caches cannot keep until it is read is written past them, which saves the reading of
     * the lines that are written. */
    enum { PAST_CACHES = 4 << 20 };
    const int64_t floats = p->c->batch * p->blocks * p->out[0] * p->out[1] * LANES;
    p->weights = scratch;
    p->streamed = p->part_count == 1 && floats >= PAST_CACHES && !p->c->bf16;
#pragma omp parallel num_threads(threads)
    {
        depthwise_rows rows = p->rows;
        rows.floats = scratch + weights_floats(p) + omp_get_thread_num() * depthwise_rows_floats(&rows);
        depthwise_clear_rows(&rows);
#pragma omp for schedule(static)
        for (int64_t block = 0; block < p->blocks; block++)
            pack_weights(p, w, block, scratch);
#pragma omp for collapse(3) schedule(static)
        for (int64_t n = 0; n < p->c->batch; n++) {
            for (int64_t block = 0; block < p->blocks; block++) {
                for (int64_t chunk = 0; chunk < p->chunks; chunk++)
                    compute_chunk(p, &rows, n, block, chunk);
            }
        }
        if (p->streamed)
            finish_stores();
    }
}

/* ---- the table ---- */

static int64_t forward_floats(const blocked_convolution *c, int threads)
{
    return pass_floats(c, false, threads);
}

static void forward(const blocked_convolution *c, const void *x, const float *weight, const float *bias, int threads,
                    float *scratch, void *y)
{
    pass p = describe(c, false, threads);
    p.rows.from = (stored){x, c->bf16};
    p.bias = bias;
    p.relu = c->relu;
    p.to = y;
    compute(&p, weight, threads, scratch);
}

static int64_t grad_input_floats(const blocked_convolution *c, int threads)
{
    return pass_floats(c, true, threads);
}

static void grad_input(const blocked_convolution *c, const void *dy, const float *weight, const void *added,
                       int threads, float *scratch, void *dx)
{
    (void)added;
    pass p = describe(c, true, threads);
    p.rows.from = (stored){dy, c->bf16};
    p.to = dx;
    compute(&p, weight, threads, scratch);
}

const blocked_kernels AT_LEVEL(depthwise) = {.forward = forward,
                                             .forward_floats = forward_floats,
                                             .grad_input = grad_input,
                                             .grad_input_floats = grad_input_floats,
                                             .grad_weights = AT_LEVEL(depthwise_grad_weights),
                                             .grad_weights_floats = AT_LEVEL(depthwise_grad_weights_floats)};
