/* Attention of one head of one sequence.
 *
 * Queries, keys and values are first gathered into scratch as f32, keys and values turned around as
 * well where a product needs it. Then queries are taken a block at a time: their scores with the
 * keys that one of them sees, the exponentials, and the products with the values; so there is never
 * more than one block of scores. */
#include <math.h>

#include "backend/portable/level/level.h"
#include "backend/vector/vector.h"
#include "graph/ops.h"

/* Queries of a block at most: a multiple of the rows that a product takes at a time. */
enum { ROW_UNIT = 6, QUERY_BLOCK = 11 * ROW_UNIT };

/* Queries of each block but the last, so that all are about as large. */
static int64_t block_rows(int64_t length)
{
    const int64_t blocks = (length + QUERY_BLOCK - 1) / QUERY_BLOCK;
    const int64_t units = (length + blocks * ROW_UNIT - 1) / (blocks * ROW_UNIT);
    return units * ROW_UNIT;
}

/* ---- rows of f32 or bf16 ---- */

typedef uint16_t halves __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef uint32_t unsigned_vector __attribute__((vector_size(VECTOR_BYTES)));
typedef halves unaligned_halves __attribute__((aligned(2), may_alias));

INLINE vector load_either(const void *from, int64_t at, int64_t count, bool bf16)
{
    return bf16 ? load_bf16_part((const uint16_t *)from + at, count) : load_part((const float *)from + at, count);
}

INLINE void store_either(void *to, int64_t at, vector v, int64_t count, bool bf16)
{
    if (bf16)
        store_bf16_part((uint16_t *)to + at, v, count);
    else
        store_part((float *)to + at, v, count);
}

INLINE void gather(const void *from, int64_t stride, int64_t count, int64_t size, const bool bf16, float *to,
                   int64_t step)
{
    for (int64_t r = 0; r < count; r++) {
        int64_t f = 0;
        for (; f + LANES <= size; f += LANES)
            store(to + r * step + f, load_either(from, r * stride + f, LANES, bf16));
        if (f < size)
            store(to + r * step + f, load_either(from, r * stride + f, size - f, bf16));
    }
}

/* `count` rows of `size` as rows of f32 that are `step` apart, filled up with zeros to whole
 * vectors. */
static void gather_rows(const void *from, int64_t stride, int64_t count, int64_t size, bool bf16, float *to,
                        int64_t step)
{
    if (bf16)
        gather(from, stride, count, size, true, to, step);
    else
        gather(from, stride, count, size, false, to, step);
}

INLINE void scatter(const float *from, int64_t step, const float *factors, int64_t count, int64_t size, const bool bf16,
                    void *to, int64_t stride)
{
    for (int64_t r = 0; r < count; r++) {
        const float factor = factors ? factors[r] : 1;
        int64_t f = 0;
        for (; f + LANES <= size; f += LANES)
            store_either(to, r * stride + f, load(from + r * step + f) * factor, LANES, bf16);
        if (f < size)
            store_either(to, r * stride + f, load(from + r * step + f) * factor, size - f, bf16);
    }
}

/* The way back: row r times factors[r], unless that is NULL. */
static void scatter_rows(const float *from, int64_t step, const float *factors, int64_t count, int64_t size, bool bf16,
                         void *to, int64_t stride)
{
    if (bf16)
        scatter(from, step, factors, count, size, true, to, stride);
    else
        scatter(from, step, factors, count, size, false, to, stride);
}

INLINE void turn_whole_square(const void *from, int64_t stride, const bool bf16, float *to, int64_t step)
{
    vector square[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        square[i] = load_either(from, i * stride, LANES, bf16);
    transpose(square);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        store(to + i * step, square[i]);
}

/* The same, turned around: to[f][r] is number f of row r, and 0 behind the last row, up to whole
 * vectors. */
static void gather_turned(const void *from, int64_t stride, int64_t count, int64_t size, bool bf16, float *to,
                          int64_t step)
{
    for (int64_t r = 0; r < count; r += LANES)
        for (int64_t f = 0; f < size; f += LANES) {
            const void *corner = (const char *)from + (r * stride + f) * (bf16 ? 2 : 4);
            float *target = to + f * step + r;
            if (count - r < LANES || size - f < LANES) {
                float part[LANES * LANES] = {0};
                gather_rows(corner, stride, count - r < LANES ? count - r : LANES, size - f < LANES ? size - f : LANES,
                            bf16, part, LANES);
                turn_whole_square(part, LANES, false, target, step);
            } else if (bf16) {
                turn_whole_square(corner, stride, true, target, step);
            } else {
                turn_whole_square(corner, stride, false, target, step);
            }
        }
}

/* c (rows, columns) = [c +] a b; element (r, k) of a is at r * a_row + k * a_step. */
static void product(const float *a, int64_t a_row, int64_t a_step, const float *b, int64_t b_step, float *c,
                    int64_t c_step, int64_t rows, int64_t columns, int64_t depth, bool accumulate)
{
    const portable_segment all = {0, depth};
    multiply(&(portable_product){.rows = rows,
                                 .columns = columns,
                                 .a = a,
                                 .a_rows = {rows, 0, a_row},
                                 .a_step = a_step,
                                 .segments = &all,
                                 .segment_count = 1,
                                 .b = b,
                                 .b_step = b_step,
                                 .b_panel = PANEL_COLUMNS,
                                 .c = c,
                                 .c_rows = {rows, 0, c_step},
                                 .accumulate = accumulate});
}

/* ---- the exponentials ---- */

static const float log2_e = 1.44269504f;

/* 2^x for x up to 127; 0 below -126. The polynomial is that of Cephes' exp2f: within 2e-7. */
INLINE vector power_of_2(vector x)
{
    const float magic = 0x1.8p23f; /* a sum with it is rounded to an integer, which its low bits then are */
    const vector shifted = x + magic;
    const vector fraction = x - (shifted - magic);
    const vector whole = (vector)(((unsigned_vector)shifted << 23) + 0x3f800000);
    vector sum = (vector){0} + 1.535336188e-4f;
    sum = sum * fraction + 1.339887440e-3f;
    sum = sum * fraction + 9.618437357e-3f;
    sum = sum * fraction + 5.550332471e-2f;
    sum = sum * fraction + 2.402264791e-1f;
    sum = sum * fraction + 6.931472029e-1f;
    sum = sum * fraction + 1;
    return (vector)(~(x < -126) & (vector_mask)(sum * whole));
}

/* Bits of dropout for the first `keys` keys of one query: 16 each. */
static void draw_row(const portable_head *a, int64_t query, int64_t keys, uint64_t *draws)
{
    const fth_random_key random = a->random;
    const uint64_t row = a->first_row + (uint64_t)query;
    const int heads = a->heads, head = a->head, count = ((int)keys + 3) / 4;
    for (int i = 0; i < count; i++)
        draws[i] = fth_attention_draw(random, row, heads, head, 4 * i);
}

/* What probabilities from `key` on are multiplied with: 1 where they are kept, else 0. */
INLINE vector kept_from(const uint64_t *draws, int64_t key, uint32_t threshold)
{
    const halves bits = *(const unaligned_halves *)((const char *)draws + 2 * key);
    const vector_mask keep = __builtin_convertvector(bits, unsigned_vector) >= threshold;
    return (vector)(keep & (vector_mask)((vector){0} + 1));
}

INLINE vector larger(vector a, vector b)
{
    return blend(a > b, a, b);
}

INLINE float largest_lane(vector v)
{
    if (LANES > 8)
        v = larger(v, swap_lanes(v, 8));
    if (LANES > 4)
        v = larger(v, swap_lanes(v, 4));
    v = larger(v, swap_lanes(v, 2));
    v = larger(v, swap_lanes(v, 1));
    return v[0];
}

INLINE int64_t whole_vectors(int64_t count)
{
    return (count + LANES - 1) / LANES * LANES;
}

INLINE int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* How many keys the queries before `end` see. */
INLINE int64_t seen_keys(const portable_head *a, int64_t end)
{
    return a->causal ? smaller(end, a->keys) : a->keys;
}

/* What is behind the first `count` up to `end`. */
INLINE void end_row(float *row, int64_t count, int64_t end, float value)
{
    for (int64_t j = count; j < end; j++)
        row[j] = value;
}

/* ---- scratch ---- */

/* Places in it, in floats; `step` and `value_step` are the distances of rows of features, and `wide`
 * that of rows of scores, which is no power of two, as the caches would have room for few of
 * those. */
typedef struct attention_scratch {
    int64_t step, value_step, wide;
    float *query, *dy;      /* (queries, a step) */
    float *key, *value;     /* (keys, a step) */
    float *turned_key;      /* (step, wide) */
    float *turned_value;    /* (value_step, wide) */
    float *dkey, *dvalue;   /* (keys, a step) */
    float *scores, *slopes; /* (QUERY_BLOCK, wide) */
    float *result;          /* (QUERY_BLOCK, a step) */
    float *row;             /* (wide) */
    uint64_t *draws;        /* (wide / 4) */
} attention_scratch;

static int64_t part_scratch(const portable_head *a, bool gradient, float *at, attention_scratch *s)
{
    const int64_t step = whole_vectors(a->size), value_step = whole_vectors(a->value_size);
    const int64_t wide = whole_vectors(a->keys) + LANES, widest = step > value_step ? step : value_step;
    const struct {
        float **place;
        int64_t floats;
        bool forward, gradient;
    } parts[] = {
        {&s->query, a->queries * step, true, true},     {&s->turned_key, step * wide, true, true},
        {&s->key, a->keys * step, false, true},         {&s->value, a->keys * value_step, true, false},
        {&s->dy, a->queries * value_step, false, true}, {&s->turned_value, value_step * wide, false, true},
        {&s->dkey, a->keys * step, false, true},        {&s->dvalue, a->keys * value_step, false, true},
        {&s->scores, QUERY_BLOCK * wide, true, true},   {&s->slopes, QUERY_BLOCK * wide, false, true},
        {&s->result, QUERY_BLOCK * widest, true, true}, {&s->row, wide, false, true},
    };
    int64_t end = 0;
    s->step = step;
    s->value_step = value_step;
    s->wide = wide;
    s->draws = (uint64_t *)at;
    end += wide / 2;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!(gradient ? parts[i].gradient : parts[i].forward))
            continue;
        *parts[i].place = at ? at + end : NULL;
        end += parts[i].floats;
    }
    return end;
}

static int64_t attention_floats(const portable_head *a, bool gradient)
{
    attention_scratch s;
    return part_scratch(a, gradient, NULL, &s);
}

static void *element(const portable_head *a, void *data, int64_t at)
{
    return (char *)data + at * (a->bf16 ? 2 : 4);
}

/* ---- scores ---- */

/* Adds the mask to the first `keys` scores of a query, which are multiplied by the scale first.
 * Where there is none they stay as they are. Gives what is left to multiply them with. */
INLINE float mask_scores(const portable_head *a, int64_t query, int64_t keys, float *scores)
{
    const float *mask = a->mask ? a->mask + query * a->mask_step : NULL;
    if (!mask && a->scale > 0)
        return a->scale;
    for (int64_t j = 0; j < keys; j += LANES) {
        const vector added = mask ? load_part(mask + j, smaller(keys - j, LANES)) : (vector){0};
        store(scores + j, load(scores + j) * a->scale + added);
    }
    return 1;
}

/* ---- forward ---- */

/* Turns the first `keys` scores of one query, all that it sees, into exponentials, of which dropout
 * has left out some, and those behind them up to `end` into 0. Gives the factor that is left to
 * multiply them with, and the logarithm of their sum. */
static float soften_row(const portable_head *a, int64_t query, int64_t keys, int64_t end, float *scores,
                        uint64_t *draws, float *logarithm)
{
    const float scale = mask_scores(a, query, keys, scores);
    vector most = (vector){0} - INFINITY, total = {0};
    end_row(scores, keys, whole_vectors(keys), -INFINITY);
    for (int64_t j = 0; j < keys; j += LANES)
        most = larger(load(scores + j), most);
    const float largest = largest_lane(most);
    const float offset = largest == -INFINITY ? 0 : largest; /* no key is seen, or each score is NaN */
    for (int64_t j = 0; j < keys; j += LANES) {
        const vector p = power_of_2((load(scores + j) - offset) * (scale * log2_e));
        total += p;
        store(scores + j, p);
    }
    const float sum = sum_lanes(total);
    end_row(scores, whole_vectors(keys), end, 0);
    if (sum == 0) {
        *logarithm = INFINITY;
        return 0;
    }
    *logarithm = offset * scale + logf(sum);
    if (!a->drops)
        return 1 / sum;
    draw_row(a, query, keys, draws);
    for (int64_t j = 0; j < keys; j += LANES)
        store(scores + j, load(scores + j) * kept_from(draws, j, a->threshold));
    return a->kept / sum;
}

static void attend(const portable_head *a, float *scratch)
{
    const int64_t block = block_rows(a->queries);
    attention_scratch s;
    part_scratch(a, false, scratch, &s);
    /* Queries are read once, element by element: as good where they are. */
    const float *query = a->bf16 ? s.query : a->query;
    const int64_t query_step = a->bf16 ? s.step : a->query_stride, used = seen_keys(a, a->queries);
    if (a->bf16)
        gather_rows(a->query, a->query_stride, a->queries, a->size, true, s.query, s.step);
    gather_turned(a->key, a->key_stride, used, a->size, a->bf16, s.turned_key, s.wide);
    gather_rows(a->value, a->value_stride, used, a->value_size, a->bf16, s.value, s.value_step);
    for (int64_t begin = 0; begin < a->queries; begin += block) {
        const int64_t rows = smaller(a->queries - begin, block), keys = seen_keys(a, begin + rows);
        float factors[QUERY_BLOCK];
        product(query + begin * query_step, query_step, 1, s.turned_key, s.wide, s.scores, s.wide, rows,
                whole_vectors(keys), a->size, false);
        for (int64_t r = 0; r < rows; r++)
            factors[r] = soften_row(a, begin + r, seen_keys(a, begin + r + 1), whole_vectors(keys),
                                    s.scores + r * s.wide, s.draws, a->statistics + (begin + r) * a->heads);
        product(s.scores, s.wide, 1, s.value, s.value_step, s.result, s.value_step, rows, s.value_step, keys, false);
        scatter_rows(s.result, s.value_step, factors, rows, a->value_size, a->bf16,
                     element(a, a->y, begin * a->y_stride), a->y_stride);
    }
}

/* ---- gradient ---- */

/* Adds the slopes of a query's masked scores to the mask's gradient. */
static void add_mask_gradient(const portable_head *a, int64_t query, int64_t keys, const float *slopes)
{
    float *to = a->dmask + query * a->mask_step;
    for (int64_t j = 0; j < keys; j += LANES) {
        const int64_t count = smaller(keys - j, LANES);
        store_part(to + j, load_part(to + j, count) + load_part(slopes + j, count), count);
    }
}

/* scores -> probabilities behind dropout, slopes (gradients of those) -> gradients of the scores:
 * of the first `keys`, all that the query sees; those behind them up to `end` become 0. */
static void differentiate_row(const portable_head *a, int64_t query, int64_t keys, int64_t end, float *scores,
                              float *slopes, float *row, uint64_t *draws)
{
    const float scale = mask_scores(a, query, keys, scores) * log2_e;
    const float offset = a->statistics[query * a->heads] * log2_e, factor = a->dmask ? 1 : a->scale;
    vector sums = {0};
    end_row(scores, keys, whole_vectors(keys), -INFINITY);
    end_row(slopes, keys, whole_vectors(keys), 0);
    if (a->drops)
        draw_row(a, query, keys, draws);
    for (int64_t j = 0; j < keys; j += LANES) {
        const vector p = power_of_2(load(scores + j) * scale - offset);
        vector slope = load(slopes + j), dropped = p;
        if (a->drops) {
            const vector kept = kept_from(draws, j, a->threshold) * a->kept;
            slope *= kept;
            dropped *= kept;
        }
        sums += p * slope;
        store(row + j, p);
        store(scores + j, dropped);
        store(slopes + j, slope);
    }
    const float shared = sum_lanes(sums);
    for (int64_t j = 0; j < keys; j += LANES)
        store(slopes + j, load(row + j) * (load(slopes + j) - shared) * factor);
    if (a->dmask) {
        add_mask_gradient(a, query, keys, slopes);
        for (int64_t j = 0; j < keys; j += LANES)
            store(slopes + j, load(slopes + j) * a->scale);
    }
    end_row(scores, whole_vectors(keys), end, 0);
    end_row(slopes, whole_vectors(keys), end, 0);
}

/* Blocks go from the last query to the first: the first of them sees all keys that any query
 * sees, so it sets what the others add to. */
static void attend_gradient(const portable_head *a, float *scratch)
{
    const int64_t block = block_rows(a->queries), used = seen_keys(a, a->queries);
    attention_scratch s;
    part_scratch(a, true, scratch, &s);
    gather_rows(a->query, a->query_stride, a->queries, a->size, a->bf16, s.query, s.step);
    gather_rows(a->key, a->key_stride, used, a->size, a->bf16, s.key, s.step);
    gather_turned(a->key, a->key_stride, used, a->size, a->bf16, s.turned_key, s.wide);
    gather_turned(a->value, a->value_stride, used, a->value_size, a->bf16, s.turned_value, s.wide);
    gather_rows(a->dy, a->y_stride, a->queries, a->value_size, a->bf16, s.dy, s.value_step);
    end_row(s.dkey, used * s.step, a->keys * s.step, 0);
    end_row(s.dvalue, used * s.value_step, a->keys * s.value_step, 0);
    for (int64_t begin = (a->queries - 1) / block * block; begin >= 0; begin -= block) {
        const int64_t rows = smaller(a->queries - begin, block), keys = seen_keys(a, begin + rows);
        const float *query = s.query + begin * s.step, *dy = s.dy + begin * s.value_step;
        const bool adds = begin + rows < a->queries;
        product(query, s.step, 1, s.turned_key, s.wide, s.scores, s.wide, rows, whole_vectors(keys), a->size, false);
        product(dy, s.value_step, 1, s.turned_value, s.wide, s.slopes, s.wide, rows, whole_vectors(keys), a->value_size,
                false);
        for (int64_t r = 0; r < rows; r++)
            differentiate_row(a, begin + r, seen_keys(a, begin + r + 1), whole_vectors(keys), s.scores + r * s.wide,
                              s.slopes + r * s.wide, s.row, s.draws);
        product(s.slopes, s.wide, 1, s.key, s.step, s.result, s.step, rows, s.step, keys, false);
        scatter_rows(s.result, s.step, NULL, rows, a->size, a->bf16, element(a, a->dquery, begin * a->query_stride),
                     a->query_stride);
        product(s.slopes, 1, s.wide, query, s.step, s.dkey, s.step, keys, s.step, rows, adds);
        product(s.scores, 1, s.wide, dy, s.value_step, s.dvalue, s.value_step, keys, s.value_step, rows, adds);
    }
    scatter_rows(s.dkey, s.step, NULL, a->keys, a->size, a->bf16, a->dkey, a->key_stride);
    scatter_rows(s.dvalue, s.value_step, NULL, a->keys, a->value_size, a->bf16, a->dvalue, a->value_stride);
}
