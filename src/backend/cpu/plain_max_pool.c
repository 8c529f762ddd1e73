/* Max pooling by 2×2 of plain f32 images: what follows a narrow convolution. oneDNN's kernels for this layout move data
 * back and forth; on 64 images of 6×28×28 on one Zen 4 core they took 177 and 215 µs where these take a sixth
 * (bench/RESULTS.md). `where` holds one byte an output: which of the four won. */
#include "backend/cpu/plain_max_pool.h"
#include "backend/cpu/cpu_internal.h"

#if defined(__x86_64__) && !defined(__clang__)

#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,fma")

enum { LANES = 16 };

static inline __mmask16 first_lanes(int64_t count)
{
    return count >= LANES ? (__mmask16)0xffff : count <= 0 ? (__mmask16)0 : (__mmask16)((1u << count) - 1);
}

static inline __m512i even_lanes(void)
{
    return _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}

static inline __m512i odd_lanes(void)
{
    return _mm512_add_epi32(even_lanes(), _mm512_set1_epi32(1));
}

/* Takes over `value` where it is larger or NaN, and notes its index there. Nothing takes over from a NaN. */
static inline void challenge(__m512 value, int index, __m512 *best, __m512i *winner)
{
    const __mmask16 wins =
        _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(*best, *best, _CMP_ORD_Q), value, *best, _CMP_NLE_UQ);
    *best = _mm512_mask_mov_ps(*best, wins, value);
    *winner = _mm512_mask_mov_epi32(*winner, wins, _mm512_set1_epi32(index));
}

/* One row of outputs from two rows of inputs. The first maximum wins, and a NaN always does. */
static void pool_row(const float *top, const float *bottom, float *y, uint8_t *where, int64_t count)
{
    for (int64_t w = 0; w < count; w += LANES) {
        const int64_t left = 2 * (count - w);
        const __m512 t0 = _mm512_maskz_loadu_ps(first_lanes(left), top + 2 * w);
        const __m512 t1 = _mm512_maskz_loadu_ps(first_lanes(left - LANES), top + 2 * w + LANES);
        const __m512 b0 = _mm512_maskz_loadu_ps(first_lanes(left), bottom + 2 * w);
        const __m512 b1 = _mm512_maskz_loadu_ps(first_lanes(left - LANES), bottom + 2 * w + LANES);
        __m512 best = _mm512_permutex2var_ps(t0, even_lanes(), t1);
        __m512i winner = _mm512_setzero_si512();
        challenge(_mm512_permutex2var_ps(t0, odd_lanes(), t1), 1, &best, &winner);
        challenge(_mm512_permutex2var_ps(b0, even_lanes(), b1), 2, &best, &winner);
        challenge(_mm512_permutex2var_ps(b0, odd_lanes(), b1), 3, &best, &winner);
        _mm512_mask_storeu_ps(y + w, first_lanes(count - w), best);
        _mm512_mask_cvtepi32_storeu_epi8(where + w, first_lanes(count - w), winner);
    }
}

static inline void store_pairs(float *row, int64_t left, __m512 even, __m512 odd)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    _mm512_mask_storeu_ps(row, first_lanes(left), _mm512_permutex2var_ps(even, low, odd));
    _mm512_mask_storeu_ps(row + LANES, first_lanes(left - LANES), _mm512_permutex2var_ps(even, high, odd));
}

static void unpool_row(const float *dy, const uint8_t *where, float *top, float *bottom, int64_t count)
{
    for (int64_t w = 0; w < count; w += LANES) {
        const __mmask16 lanes = first_lanes(count - w);
        const __m512 gradient = _mm512_maskz_loadu_ps(lanes, dy + w);
        const __m512i winner = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(lanes, where + w));
        __m512 parts[4];
        for (int i = 0; i < 4; i++)
            parts[i] = _mm512_maskz_mov_ps(_mm512_cmpeq_epi32_mask(winner, _mm512_set1_epi32(i)), gradient);
        store_pairs(top + 2 * w, 2 * (count - w), parts[0], parts[1]);
        store_pairs(bottom + 2 * w, 2 * (count - w), parts[2], parts[3]);
    }
}

/* Sizes: planes, input height and width, output height and width. Values: x, where, y. */
static fth_status run_pool(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const float *x = call->data[0];
    uint8_t *where = call->data[1];
    float *y = call->data[2];
    const int64_t height = call->sizes[1], width = call->sizes[2], out_height = call->sizes[3],
                  out_width = call->sizes[4];
#pragma omp parallel for schedule(static) if (call->sizes[0] * height * width > 1 << 15)
    for (int64_t p = 0; p < call->sizes[0]; p++) {
        for (int64_t r = 0; r < out_height; r++) {
            const float *top = x + (p * height + 2 * r) * width;
            pool_row(top, top + width, y + (p * out_height + r) * out_width, where + (p * out_height + r) * out_width,
                     out_width);
        }
    }
    return FTH_OK;
}

/* Values: dy, where, dx. */
static fth_status run_unpool(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const float *dy = call->data[0];
    const uint8_t *where = call->data[1];
    float *dx = call->data[2];
    const int64_t height = call->sizes[1], width = call->sizes[2], out_height = call->sizes[3],
                  out_width = call->sizes[4];
#pragma omp parallel for schedule(static) if (call->sizes[0] * height * width > 1 << 15)
    for (int64_t p = 0; p < call->sizes[0]; p++) {
        float *plane = dx + p * height * width;
        for (int64_t r = 0; r < out_height; r++) {
            float *top = plane + 2 * r * width;
            unpool_row(dy + (p * out_height + r) * out_width, where + (p * out_height + r) * out_width, top,
                       top + width, out_width);
            if (width % 2) /* what no window covers */
                top[width - 1] = top[2 * width - 1] = 0;
        }
        for (int64_t w = 0; height % 2 && w < width; w++)
            plane[(height - 1) * width + w] = 0;
    }
    return FTH_OK;
}

#pragma GCC pop_options

bool cpu_plain_max_pool_fits(const fth_pool_attributes *a, const cpu_format *x)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && x->data_type == dnnl_f32 && a->kernel[0] == 2 && a->kernel[1] == 2 &&
           a->stride[0] == 2 && a->stride[1] == 2 && a->padding[0] == 0 && a->padding[1] == 0 && cpu_is_plain(x);
}

bool cpu_plain_max_pool_made(const cpu_format *where)
{
    return where->ndims == 1;
}

fth_status cpu_plain_max_pool(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    fth_shape x = fth_plan_type(plan, node->inputs[0]).shape, y = fth_plan_type(plan, node->outputs[0]).shape;
    const cpu_format layout = cpu_plain(&y, dnnl_f32);
    fth_shape bytes = FTH_SHAPE(fth_shape_count(&y));
    const cpu_format where = cpu_plain(&bytes, dnnl_u8);
    fth_plan_value target;
    FTH_TRY(cpu_set_layout(plan, fth_plan_value_of(plan, node->outputs[1]), &where));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &target));
    const cpu_call call = {
        .run = run_pool,
        .values = {fth_plan_value_of(plan, node->inputs[0]), fth_plan_value_of(plan, node->outputs[1]), target},
        .value_count = 3,
        .write_count = 2,
        .sizes = {x.dims[0] * x.dims[1], x.dims[2], x.dims[3], y.dims[2], y.dims[3]}};
    FTH_TRY(cpu_add_call(plan, "max_pool plain", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), target));
out:
    return status;
}

fth_status cpu_plain_max_pool_grad(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    fth_shape x = fth_plan_type(plan, node->outputs[0]).shape, y = fth_plan_type(plan, node->inputs[0]).shape;
    const cpu_format layout = cpu_plain(&x, dnnl_f32);
    fth_plan_value dy, target;
    FTH_TRY(cpu_read_plain(plan, node->inputs[0], dnnl_f32, &dy));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &target));
    const cpu_call call = {.run = run_unpool,
                           .values = {dy, fth_plan_value_of(plan, node->inputs[1]), target},
                           .value_count = 3,
                           .write_count = 1,
                           .sizes = {x.dims[0] * x.dims[1], x.dims[2], x.dims[3], y.dims[2], y.dims[3]}};
    FTH_TRY(cpu_add_call(plan, "max_pool_grad plain", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), target));
out:
    return status;
}

#else

bool cpu_plain_max_pool_fits(const fth_pool_attributes *a, const cpu_format *x)
{
    (void)a, (void)x;
    return false;
}

bool cpu_plain_max_pool_made(const cpu_format *where)
{
    (void)where;
    return false;
}

fth_status cpu_plain_max_pool(fth_plan *plan, const fth_node *node)
{
    (void)plan, (void)node;
    return fth_fail(FTH_UNSUPPORTED, "this build has no AVX-512 kernels");
}

fth_status cpu_plain_max_pool_grad(fth_plan *plan, const fth_node *node)
{
    return cpu_plain_max_pool(plan, node);
}

#endif
