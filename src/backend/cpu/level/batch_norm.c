/* See batch_norm.h. Sums are taken in f32 over short runs, several at a time so that additions do
 * not wait for each other, and the runs are added in double. */
#include "backend/cpu/batch_norm.h"
#include "backend/vector/vector.h"

enum {
    TOGETHER = 4,
    AHEAD = 64 /* vectors: prefetch distance */,
    RUN = 256 * TOGETHER /* vectors summed in f32 */
};

typedef enum pass { ADD_VALUES, NORMALIZE, ADD_GRADIENTS, DIFFERENTIATE } pass;

/* What is the same for a whole row. `masked`: by ReLU; `more`: with a residual, or storing g;
 * `streamed`: the result is not read again soon. Constants once inlined. */
typedef struct kind {
    pass what;
    bool bf16, masked, more, streamed;
} kind;

typedef struct lane_numbers {
    vector mean, a, b, c;
} lane_numbers;

INLINE vector read(const void *from, int64_t at, int64_t count, const bool bf16)
{
    if (bf16)
        return load_bf16_part((const uint16_t *)from + at, count);
    return count == LANES ? load((const float *)from + at) : load_part((const float *)from + at, count);
}

INLINE void write(void *to, int64_t at, vector v, int64_t count, const bool bf16, const bool streamed)
{
    if (bf16)
        store_bf16_part((uint16_t *)to + at, v, count);
    else if (count == LANES && streamed)
        store_past_caches((float *)to + at, v);
    else if (count == LANES)
        store((float *)to + at, v);
    else
        store_part((float *)to + at, v, count);
}

INLINE vector zero_behind(vector v, int64_t count)
{
    return count == LANES ? v : (vector)((vector_mask)v & (LANE_NUMBERS < (int32_t)count));
}

/* Processes vector `v` of a row, which has `count` numbers: adds to the sums, or returns the
 * numbers to write. */
INLINE vector visit(const batch_norm_row *r, const lane_numbers *n, int64_t v, int64_t count, const kind k,
                    vector *first, vector *second)
{
    const int64_t at = r->at + v * r->stride;
    const vector d = read(r->x, at, count, k.bf16) - n->mean;
    if (k.what == ADD_VALUES) {
        const vector counted = zero_behind(d, count);
        *first += counted;
        *second = multiply_add(counted, counted, *second);
        return d;
    }
    if (k.what == NORMALIZE) {
        vector y = multiply_add(d, n->a, n->b);
        if (k.more)
            y += read(r->residual, at, count, k.bf16);
        if (k.masked) {
            r->mask[v] = (uint16_t)bits_of_lanes(~(y <= 0)); /* NaN passes */
            y = cut_negative(y);
        }
        return y;
    }
    vector g = read(r->dy, at, count, k.bf16);
    if (k.masked)
        g = keep_lanes(g, r->mask[v]);
    if (k.what == DIFFERENTIATE)
        return (g - n->b - d * n->c) * n->a;
    *first += g; /* 0 past `count` */
    *second = multiply_add(g, zero_behind(d, count), *second);
    return g;
}

INLINE bool writes(const kind k)
{
    return k.what == NORMALIZE || k.what == DIFFERENTIATE || (k.what == ADD_GRADIENTS && k.more);
}

INLINE void visit_one(const batch_norm_row *r, const lane_numbers *n, int64_t v, int64_t count, const kind k,
                      vector *first, vector *second)
{
    const vector result = visit(r, n, v, count, k, first, second);
    if (writes(k))
        write(r->out, r->at + v * r->stride, result, count, k.bf16, k.streamed);
}

/* Prefetches the operands of the vector AHEAD of `v`, in this row or the next. */
INLINE void prefetch_ahead(const batch_norm_row *r, int64_t v, const kind k)
{
    const int64_t left = v + AHEAD - r->vectors, item = k.bf16 ? 2 : 4;
    const int64_t at = (left < 0 ? r->at + (v + AHEAD) * r->stride : r->next + left * r->stride) * item;
    __builtin_prefetch((const char *)r->x + at, 0, 2);
    if (k.what == ADD_GRADIENTS || k.what == DIFFERENTIATE)
        __builtin_prefetch((const char *)r->dy + at, 0, 2);
    if (k.what == NORMALIZE && k.more)
        __builtin_prefetch((const char *)r->residual + at, 0, 2);
}

INLINE void add_lanes(double *to, const vector from[TOGETHER])
{
    const vector sum = (from[0] + from[1]) + (from[2] + from[3]);
    for (int l = 0; l < LANES; l++)
        to[l] += (double)sum[l];
}

/* Whether vector v of a bf16 row is the first of two that fill VECTOR_BYTES. */
INLINE bool begins_pair(const batch_norm_row *r, int64_t v)
{
    return (uintptr_t)((const uint16_t *)r->out + r->at + v * LANES) % VECTOR_BYTES == 0;
}

INLINE void write_together(const batch_norm_row *r, int64_t v, const vector results[TOGETHER], const kind k)
{
#pragma GCC unroll 4
    for (int i = 0; i < TOGETHER; i++) {
        const int64_t at = r->at + (v + i) * r->stride;
        if (!k.bf16 || !k.streamed)
            write(r->out, at, results[i], LANES, k.bf16, k.streamed);
        else if (i % 2 == 0)
            store_bf16_past_caches((uint16_t *)r->out + at, results[i], results[i + 1]);
    }
}

INLINE void visit_row(batch_norm_row *row, const kind k)
{
    /* A copy that no store can alias stays in registers. In f32, which waits for memory, it gains
     * nothing. */
    const batch_norm_row here = *row, *r = k.bf16 ? &here : row;
    const lane_numbers n = {load(r->mean), load(r->a), load(r->b), load(r->c)};
    const int64_t full = r->lanes < LANES ? 0 : r->last < LANES ? r->vectors - 1 : r->vectors;
    for (int64_t begin = 0; begin < r->vectors; begin += RUN) {
        const int64_t end = begin + RUN < r->vectors ? begin + RUN : r->vectors;
        vector first[TOGETHER] = {{0}}, second[TOGETHER] = {{0}};
        int64_t v = begin;
        if (k.bf16 && k.streamed && !begins_pair(r, v))
            visit_one(r, &n, v++, LANES, k, &first[0], &second[0]);
        for (; v + TOGETHER <= end && v + TOGETHER <= full; v += TOGETHER) {
            vector results[TOGETHER];
#pragma GCC unroll 4
            for (int i = 0; i < TOGETHER; i++) {
                prefetch_ahead(r, v + i, k);
                results[i] = visit(r, &n, v + i, LANES, k, &first[i], &second[i]);
            }
            if (writes(k))
                write_together(r, v, results, k);
        }
        for (; v < end; v++)
            visit_one(r, &n, v, v == r->vectors - 1 ? r->last : r->lanes, k, &first[0], &second[0]);
        if (k.what == ADD_VALUES || k.what == ADD_GRADIENTS) {
            add_lanes(row->first, first);
            add_lanes(row->second, second);
        }
    }
}

static bool can_be_streamed(const batch_norm_row *r)
{
    const int64_t item = r->bf16 ? sizeof(uint16_t) : sizeof(float);
    const uintptr_t begin = (uintptr_t)r->out + (uintptr_t)(r->at * item);
    return r->streamed && r->lanes == LANES && r->last == LANES && begin % (uintptr_t)(LANES * item) == 0 &&
           (r->bf16 ? r->stride == LANES : r->stride % LANES == 0);
}

/* Compiles a separate loop for each kind. */
INLINE void choose_type(batch_norm_row *r, const pass what, const bool masked, const bool more)
{
    const bool streamed = (what == NORMALIZE || what == DIFFERENTIATE) && can_be_streamed(r);
    if (r->bf16 && streamed)
        visit_row(r, (kind){what, .bf16 = true, .masked = masked, .more = more, .streamed = true});
    else if (r->bf16)
        visit_row(r, (kind){what, .bf16 = true, .masked = masked, .more = more});
    else if (streamed)
        visit_row(r, (kind){what, .masked = masked, .more = more, .streamed = true});
    else
        visit_row(r, (kind){what, .masked = masked, .more = more});
    if (streamed)
        finish_stores();
}

INLINE void choose_kind(batch_norm_row *r, const pass what, bool more)
{
    if (r->mask && more)
        choose_type(r, what, true, true);
    else if (r->mask)
        choose_type(r, what, true, false);
    else if (more)
        choose_type(r, what, false, true);
    else
        choose_type(r, what, false, false);
}

static void add_values(batch_norm_row *r)
{
    choose_type(r, ADD_VALUES, false, false);
}

static void normalize(batch_norm_row *r)
{
    choose_kind(r, NORMALIZE, r->residual);
}

static void add_gradients(batch_norm_row *r)
{
    choose_kind(r, ADD_GRADIENTS, r->out);
}

static void differentiate(batch_norm_row *r)
{
    choose_kind(r, DIFFERENTIATE, false);
}

const batch_norm_kernels AT_LEVEL(batch_norm) = {
    .add_values = add_values, .normalize = normalize, .add_gradients = add_gradients, .differentiate = differentiate};
