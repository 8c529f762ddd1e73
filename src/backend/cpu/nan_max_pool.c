/* Max pooling in the layouts that convolutions leave: blocks of channels, channels last, or plain. oneDNN's kernels pass
 * over NaN; here the first NaN of a window wins, as in PyTorch. The places of the maxima are
 * written as oneDNN writes them (the number of the cell in its window, a byte or four), so that its backward pass goes
 * on from there.
 *
 * Lanes are neighbouring channels, which lie together in blocks or last. On one Sapphire Rapids core, 64 images of
 * 16×10×10 by 2×2 take 27 µs (oneDNN 187), and 16 of 64×32×32 by 3×3, stride 2, 0.9 ms (oneDNN 2.0). */
#include "backend/cpu/nan_max_pool.h"

#include <string.h>

enum { LANES = 16 };

/* Strides are in elements, those of `where` are y's. */
typedef struct pooling {
    int32_t kernel[2], stride[2], padding[2];
    int32_t in[2], out[2];
    int32_t groups, channels; /* `channels` lie together; an image has `groups` of them, padding included */
    int64_t batch, x_image, x_group, x_row, x_column, y_image, y_group, y_row, y_column;
    bool bf16, wide; /* `wide`: four bytes for a place */
} pooling;
_Static_assert(sizeof(pooling) <= sizeof((cpu_call){0}.block), "a pooling travels in its call");

/* Cells of one window that are within the input. */
typedef struct window {
    int32_t begin[2], end[2]; /* in the window */
    int64_t corner[2];        /* the input's row and column of the window's first cell */
} window;

static window window_of(const pooling *p, int32_t row, int32_t column)
{
    const int32_t at[2] = {row, column};
    window w;
    for (int i = 0; i < 2; i++) {
        const int32_t corner = at[i] * p->stride[i] - p->padding[i];
        w.corner[i] = corner;
        w.begin[i] = corner < 0 ? -corner : 0;
        w.end[i] = p->in[i] - corner < p->kernel[i] ? p->in[i] - corner : p->kernel[i];
    }
    return w;
}

static inline int64_t item_bytes(const pooling *p)
{
    return p->bf16 ? sizeof(uint16_t) : sizeof(float);
}

static inline int64_t place_bytes(const pooling *p)
{
    return p->wide ? sizeof(int32_t) : 1;
}

static inline const char *corner_of(const pooling *p, const window *w, const char *x)
{
    return x + (w->corner[0] * p->x_row + w->corner[1] * p->x_column) * item_bytes(p);
}

static inline const char *cell_of(const pooling *p, const char *corner, int32_t i, int32_t j)
{
    return corner + (i * p->x_row + j * p->x_column) * item_bytes(p);
}

/* ---- 16 channels in AVX-512 ---- */

#if defined(__x86_64__) && !defined(__clang__)

#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl")
#pragma GCC optimize("O3")

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

static inline __attribute__((always_inline)) __m512 load(const char *at, bool bf16)
{
    if (!bf16)
        return _mm512_loadu_ps(at);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at)), 16));
}

/* A cell wins where it is larger or NaN, and never against a NaN. */
static inline __attribute__((always_inline)) void pool_cell(const pooling *p, const window *w, const char *x, char *y,
                                                            char *where, const bool bf16)
{
    const char *corner = corner_of(p, w, x);
    __m512 best = load(cell_of(p, corner, w->begin[0], w->begin[1]), bf16);
    __m512i places = _mm512_set1_epi32(w->begin[0] * p->kernel[1] + w->begin[1]);
    for (int32_t i = w->begin[0]; i < w->end[0]; i++) {
        for (int32_t j = w->begin[1]; j < w->end[1]; j++) {
            const __m512 value = load(cell_of(p, corner, i, j), bf16);
            const __mmask16 wins =
                _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(best, best, _CMP_ORD_Q), value, best, _CMP_NLE_UQ);
            best = _mm512_mask_mov_ps(best, wins, value);
            places = _mm512_mask_mov_epi32(places, wins, _mm512_set1_epi32(i * p->kernel[1] + j));
        }
    }
    if (bf16) /* it came from bf16: nothing is rounded */
        _mm256_storeu_si256((__m256i *)y, _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(best), 16)));
    else
        _mm512_storeu_ps(y, best);
    if (where && p->wide)
        _mm512_storeu_si512(where, places);
    else if (where)
        _mm_storeu_si128((__m128i *)where, _mm512_cvtepi32_epi8(places));
}

static void pool_row_avx512(const pooling *p, int32_t row, const char *x, char *y, char *where)
{
    for (int32_t column = 0; column < p->out[1]; column++) {
        const window w = window_of(p, row, column);
        for (int32_t c = 0; c < p->channels; c += LANES) {
            const int64_t at = column * p->y_column + c;
            const char *from = x + c * item_bytes(p);
            char *place = where ? where + at * place_bytes(p) : NULL;
            if (p->bf16)
                pool_cell(p, &w, from, y + at * item_bytes(p), place, true);
            else
                pool_cell(p, &w, from, y + at * item_bytes(p), place, false);
        }
    }
}

#pragma GCC pop_options

#else

static bool has_avx512(void)
{
    return false;
}

static void pool_row_avx512(const pooling *p, int32_t row, const char *x, char *y, char *where)
{
    (void)p, (void)row, (void)x, (void)y, (void)where;
}

#endif

/* ---- any number of channels on any machine ---- */

static inline float load_one(const char *at, bool bf16)
{
    uint32_t bits = 0;
    float value;
    if (bf16) {
        uint16_t half;
        memcpy(&half, at, sizeof half);
        bits = (uint32_t)half << 16;
    } else {
        memcpy(&bits, at, sizeof bits);
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline void store_one(char *at, float value, bool bf16)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t half = (uint16_t)(bits >> 16); /* it came from bf16: nothing is rounded */
    if (bf16)
        memcpy(at, &half, sizeof half);
    else
        memcpy(at, &bits, sizeof bits);
}

/* Up to 16 channels of one output. */
static inline __attribute__((always_inline)) void pool_few(const pooling *p, const window *w, const char *x, char *y,
                                                           char *where, int count, const bool bf16)
{
    const int64_t item = bf16 ? sizeof(uint16_t) : sizeof(float);
    const char *corner = corner_of(p, w, x);
    float best[LANES];
    int32_t places[LANES];
    for (int l = 0; l < count; l++) {
        best[l] = load_one(cell_of(p, corner, w->begin[0], w->begin[1]) + l * item, bf16);
        places[l] = w->begin[0] * p->kernel[1] + w->begin[1];
    }
    for (int32_t i = w->begin[0]; i < w->end[0]; i++) {
        for (int32_t j = w->begin[1]; j < w->end[1]; j++) {
            const char *cell = cell_of(p, corner, i, j);
            for (int l = 0; l < count; l++) {
                const float value = load_one(cell + l * item, bf16);
                const bool wins = ((value > best[l]) | (value != value)) & (best[l] == best[l]);
                best[l] = wins ? value : best[l];
                places[l] = wins ? i * p->kernel[1] + j : places[l];
            }
        }
    }
    for (int l = 0; l < count; l++) {
        store_one(y + l * item, best[l], bf16);
        if (where && p->wide)
            memcpy(where + l * (int64_t)sizeof places[l], &places[l], sizeof places[l]);
        else if (where)
            where[l] = (char)places[l];
    }
}

/* One row of outputs of one group of channels. */
CPU_VECTORIZED static void pool_row(const pooling *p, int32_t row, const char *x, char *y, char *where)
{
    for (int32_t column = 0; column < p->out[1]; column++) {
        const window w = window_of(p, row, column);
        for (int32_t c = 0; c < p->channels; c += LANES) {
            const int count = p->channels - c < LANES ? p->channels - c : LANES;
            const int64_t at = column * p->y_column + c;
            const char *from = x + c * item_bytes(p);
            char *place = where ? where + at * place_bytes(p) : NULL;
            if (p->bf16)
                pool_few(p, &w, from, y + at * item_bytes(p), place, count, true);
            else
                pool_few(p, &w, from, y + at * item_bytes(p), place, count, false);
        }
    }
}

/* Values: x, places of the maxima or none, y. */
static fth_status run_pool(const cpu_call *call, const fth_run *run)
{
    (void)run;
    pooling p;
    memcpy(&p, call->block, sizeof p);
    const char *x = call->data[0];
    char *where = call->data[1], *y = call->data[2];
    const bool vectors = p.channels % LANES == 0 && has_avx512();
#pragma omp parallel for collapse(3) schedule(static) if (p.batch * p.groups * p.channels * p.in[0] * p.in[1] > 1 << 15)
    for (int64_t n = 0; n < p.batch; n++) {
        for (int32_t g = 0; g < p.groups; g++) {
            for (int32_t row = 0; row < p.out[0]; row++) {
                const int64_t to = n * p.y_image + g * p.y_group + row * p.y_row;
                (vectors ? pool_row_avx512 : pool_row)(&p, row, x + (n * p.x_image + g * p.x_group) * item_bytes(&p),
                                                       y + to * item_bytes(&p),
                                                       where ? where + to * place_bytes(&p) : NULL);
            }
        }
    }
    return FTH_OK;
}

static pooling describe(const fth_pool_attributes *a, const cpu_format *x, const cpu_format *y, bool wide)
{
    const int64_t *from = x->strides, *to = y->strides;
    /* Blocks of channels, padded up; or channels last, which are one group; or plain, where each is its own. */
    const int64_t block = x->block > 1 ? x->block : from[1] == 1 ? x->dims[1] : 1;
    pooling p = {.groups = (int32_t)(x->padded_dims[1] / block),
                 .channels = (int32_t)block,
                 .batch = x->dims[0],
                 .x_image = from[0],
                 .x_group = from[1],
                 .x_row = from[2],
                 .x_column = from[3],
                 .y_image = to[0],
                 .y_group = to[1],
                 .y_row = to[2],
                 .y_column = to[3],
                 .bf16 = x->data_type == dnnl_bf16,
                 .wide = wide};
    for (int i = 0; i < 2; i++) {
        p.kernel[i] = a->kernel[i];
        p.stride[i] = a->stride[i];
        p.padding[i] = a->padding[i];
        p.in[i] = (int32_t)x->dims[2 + i];
        p.out[i] = (int32_t)y->dims[2 + i];
    }
    return p;
}

fth_status cpu_own_max_pool(fth_plan *plan, const fth_node *node, const cpu_format *y, const cpu_format *where)
{
    fth_status status = FTH_OK;
    const cpu_format x = *cpu_layout(plan, fth_plan_value_of(plan, node->inputs[0]));
    fth_plan_value target;
    if (where)
        FTH_TRY(cpu_set_layout(plan, fth_plan_value_of(plan, node->outputs[1]), where));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), y, &target));
    cpu_call call = {.run = run_pool,
                     .values = {fth_plan_value_of(plan, node->inputs[0]),
                                where ? fth_plan_value_of(plan, node->outputs[1]) : FTH_NO_PLAN_VALUE, target},
                     .value_count = 3,
                     .write_count = 2};
    const pooling p = describe(node->attributes, &x, y, where && where->data_type != dnnl_u8);
    memcpy(call.block, &p, sizeof p);
    FTH_TRY(cpu_add_call(plan, "max_pool", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), target));
out:
    return status;
}
