/* The forward pass of linear layers with many more features than outputs, as behind a flattened image: x (batch,
 * features), weight (outputs, features) -> y (batch, outputs), in AVX-512.
 *
 * oneDNN splits such a product by outputs only, which are too few for a second thread. Here threads share the features:
 * each adds up its part of every output, DEPTH features at a time, from weights turned around into cache; the parts are
 * added in order. Measured on Zen 4, 64 × 9216 to 128 (mnist-cnn's fc1), oneDNN's time and this one's: 2.2 and 1.8 ms
 * on one thread, 2.2 and 1.0 on two. */
#include "backend/cpu/long_linear.h"

#if defined(__x86_64__) && !defined(__clang__)

#include <immintrin.h>
#include <omp.h>
#include <string.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,fma")
#pragma GCC optimize("O3")

enum { LANES = 16, DEPTH = 128, ROWS = 6, PANEL = 4 * LANES };

typedef struct long_linear {
    int64_t batch, features, outputs;
    bool relu;
} long_linear;

/* Exchanges rows and columns: at each distance, the numbers whose row and column differ in that bit. */
static inline __attribute__((always_inline)) void transpose(__m512 rows[LANES])
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#pragma GCC unroll 4
    for (int distance = 1; distance < LANES; distance *= 2) {
        const __m512i bit = _mm512_set1_epi32(distance), second = _mm512_set1_epi32(LANES);
        const __mmask16 set = _mm512_test_epi32_mask(lane, bit);
        const __m512i low = _mm512_mask_add_epi32(lane, set, _mm512_xor_epi32(lane, bit), second);
        const __m512i high = _mm512_mask_add_epi32(_mm512_or_epi32(lane, bit), set, lane, second);
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) {
            if (i & distance)
                continue;
            const __m512 a = rows[i], b = rows[i | distance];
            rows[i] = _mm512_permutex2var_ps(a, low, b);
            rows[i | distance] = _mm512_permutex2var_ps(a, high, b);
        }
    }
}

/* `depth` features of all weights to to[panel][feature][output in the panel]. */
static void turn_weights(const long_linear *l, const float *weight, int64_t depth, float *to)
{
    for (int64_t o = 0; o < l->outputs; o += LANES) {
        const int64_t width = l->outputs - o / PANEL * PANEL < PANEL ? LANES : PANEL;
        float *panel = width == PANEL ? to + o / PANEL * PANEL * DEPTH + o % PANEL : to + o * DEPTH;
        for (int64_t k = 0; k < depth; k += LANES) {
            __m512 rows[LANES];
            const __mmask16 inside = depth - k < LANES ? (__mmask16)((1u << (depth - k)) - 1) : (__mmask16)0xffff;
            for (int i = 0; i < LANES; i++)
                rows[i] = _mm512_maskz_loadu_ps(inside, weight + (o + i) * l->features + k);
            transpose(rows);
            for (int i = 0; i < LANES; i++)
                _mm512_storeu_ps(panel + (k + i) * width, rows[i]);
        }
    }
}

/* sums[r][n] += sum over k of x[r][k] * panel[k][n]: R rows, N vectors, constants where inlined. */
static inline __attribute__((always_inline)) void multiply_tile(const long_linear *l, const float *x,
                                                                const float *panel, int64_t depth, float *sums,
                                                                const int R, const int N)
{
    __m512 sum[ROWS * 4];
    for (int r = 0; r < R; r++) {
        for (int n = 0; n < N; n++)
            sum[r * N + n] = _mm512_loadu_ps(sums + r * l->outputs + n * LANES);
    }
    for (int64_t k = 0; k < depth; k++) {
        __m512 w[4];
        for (int n = 0; n < N; n++)
            w[n] = _mm512_loadu_ps(panel + k * N * LANES + n * LANES);
        for (int r = 0; r < R; r++) {
            const __m512 value = _mm512_set1_ps(x[r * l->features + k]);
            for (int n = 0; n < N; n++)
                sum[r * N + n] = _mm512_fmadd_ps(value, w[n], sum[r * N + n]);
        }
    }
    for (int r = 0; r < R; r++) {
        for (int n = 0; n < N; n++)
            _mm512_storeu_ps(sums + r * l->outputs + n * LANES, sum[r * N + n]);
    }
}

static inline __attribute__((always_inline)) void
multiply_panel(const long_linear *l, const float *x, const float *panel, int64_t depth, float *sums, const int N)
{
    int64_t r = 0;
    for (; r + ROWS <= l->batch; r += ROWS)
        multiply_tile(l, x + r * l->features, panel, depth, sums + r * l->outputs, ROWS, N);
    for (; r + 2 <= l->batch; r += 2)
        multiply_tile(l, x + r * l->features, panel, depth, sums + r * l->outputs, 2, N);
    for (; r < l->batch; r++)
        multiply_tile(l, x + r * l->features, panel, depth, sums + r * l->outputs, 1, N);
}

/* Adds features [begin, end) to `sums`. */
static void add_features(const long_linear *l, const float *x, const float *weight, int64_t begin, int64_t end,
                         float *turned, float *sums)
{
    for (int64_t k = begin; k < end; k += DEPTH) {
        const int64_t depth = end - k < DEPTH ? end - k : DEPTH;
        turn_weights(l, weight + k, depth, turned);
        int64_t o = 0;
        for (; o + PANEL <= l->outputs; o += PANEL)
            multiply_panel(l, x + k, turned + o * DEPTH, depth, sums + o, 4);
        for (; o < l->outputs; o += LANES)
            multiply_panel(l, x + k, turned + o * DEPTH, depth, sums + o, 1);
    }
}

static int64_t thread_floats(const long_linear *l)
{
    return (l->batch + DEPTH) * l->outputs;
}

/* Values: x, weight, bias or none, scratch, y. */
static fth_status run_forward(const cpu_call *call, const fth_run *run)
{
    (void)run;
    long_linear l;
    memcpy(&l, call->block, sizeof l);
    const float *x = call->data[0], *weight = call->data[1], *bias = call->data[2];
    float *scratch = call->data[3], *y = call->data[4];
    const int64_t blocks = (l.features + DEPTH - 1) / DEPTH;
    const int threads = omp_get_max_threads() < blocks ? omp_get_max_threads() : (int)blocks;
#pragma omp parallel for schedule(static, 1) num_threads(threads)
    for (int t = 0; t < threads; t++) {
        float *sums = scratch + t * thread_floats(&l), *turned = sums + l.batch * l.outputs;
        const int64_t begin = blocks * t / threads * DEPTH, end = blocks * (t + 1) / threads * DEPTH;
        memset(sums, 0, (size_t)(l.batch * l.outputs) * sizeof *sums);
        add_features(&l, x, weight, begin, end < l.features ? end : l.features, turned, sums);
    }
    for (int64_t i = 0; i < l.batch * l.outputs; i += LANES) {
        __m512 sum = bias ? _mm512_loadu_ps(bias + i % l.outputs) : _mm512_setzero_ps();
        for (int t = 0; t < threads; t++)
            sum = _mm512_add_ps(sum, _mm512_loadu_ps(scratch + t * thread_floats(&l) + i));
        if (l.relu) /* max(0, NaN) is NaN in this order */
            sum = _mm512_max_ps(_mm512_setzero_ps(), sum);
        _mm512_storeu_ps(y + i, sum);
    }
    return FTH_OK;
}

#pragma GCC pop_options

/* Shorter ones are as fast with oneDNN; wider ones have outputs enough for its threads. */
bool cpu_long_linear_fits(const fth_plan *plan, const fth_shape *x, const fth_shape *weight)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           cpu_compute_dtype(plan) == dnnl_f32 && x->dims[0] >= 16 && x->dims[1] >= 2048 &&
           weight->dims[0] % LANES == 0 && weight->dims[0] <= 256;
}

fth_status cpu_long_linear(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_linear_attributes *a = node->attributes;
    fth_shape x = fth_plan_type(plan, node->inputs[0]).shape, y = fth_plan_type(plan, node->outputs[0]).shape;
    const long_linear l = {.batch = x.dims[0], .features = x.dims[1], .outputs = y.dims[1], .relu = a->relu};
    const cpu_format layout = cpu_plain(&y, dnnl_f32);
    cpu_call call = {.run = run_forward, .value_count = 5, .write_count = 2};
    fth_plan_value target;
    _Static_assert(sizeof l <= sizeof call.block, "the call must hold the sizes");
    memcpy(call.block, &l, sizeof l);
    FTH_TRY(cpu_read_plain(plan, node->inputs[0], dnnl_f32, &call.values[0]));
    call.values[1] = fth_plan_value_of(plan, node->inputs[1]);
    call.values[2] = node->input_count > 2 ? fth_plan_value_of(plan, node->inputs[2]) : FTH_NO_PLAN_VALUE;
    FTH_TRY(cpu_add_scratch(plan, (size_t)(thread_floats(&l) * fth_plan_device(plan)->threads) * sizeof(float),
                            &call.values[3]));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &target));
    call.values[4] = target;
    FTH_TRY(cpu_add_call(plan, "linear long:avx512", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), target));
out:
    return status;
}

#else

bool cpu_long_linear_fits(const fth_plan *plan, const fth_shape *x, const fth_shape *weight)
{
    (void)plan, (void)x, (void)weight;
    return false;
}

fth_status cpu_long_linear(fth_plan *plan, const fth_node *node)
{
    (void)plan, (void)node;
    return fth_fail(FTH_UNSUPPORTED, "this build has no AVX-512 kernels");
}

#endif
