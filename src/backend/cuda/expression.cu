/* Expressions of inputs that are broadcast, element by element or reduced.
 *
 * A kernel interprets the program: a thread computes V neighbouring elements, each step for all of
 * them, so that the branch on the function is taken once for V. The result of the step before
 * stays in registers; slots are local memory, which a chain of functions does not touch.
 * Reductions add up in a fixed order, and in parts where there are few results, so that all
 * processors have work. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/expression_kernels.h"

namespace
{

enum { THREADS = 256, WARP = 32 };

/* ---- functions ---- */

__device__ __forceinline__ float logistic_f(float a)
{
    return 1 / (1 + expf(-a));
}

__device__ __forceinline__ float normal_cdf_f(float a)
{
    return 0.5f * erfcf(-a * 0.70710678118654752f);
}

__device__ __forceinline__ float normal_density_f(float a)
{
    return 0.39894228040143268f * expf(-0.5f * a * a);
}

__device__ __forceinline__ float softplus_f(float a, float beta, float threshold)
{
    return a * beta > threshold ? a : log1pf(expf(a * beta)) / beta;
}

__device__ __forceinline__ float mish_factor_f(float e)
{
    return e * (e + 2) / (e * (e + 2) + 2);
}

__device__ __forceinline__ float silu_slope_f(float a, float s)
{
    return s * (1 + a * (1 - s));
}

__device__ __forceinline__ float gelu_slope_f(float a)
{
    return normal_cdf_f(a) + a * normal_density_f(a);
}

__device__ __forceinline__ float gelu_tanh_slope_f(float a, float s)
{
    return s * (1 + a * (1 - s) * (1.5957691216f + 3 * 0.0713548163f * a * a));
}

#define fabs_f  fabsf
#define exp_f   expf
#define log_f   logf
#define sqrt_f  sqrtf
#define pow_f   powf
#define tanh_f  tanhf
#define expm1_f expm1f
#define log1p_f log1pf
#define erf_f   erff
#define sin_f   sinf
#define cos_f   cosf
#define floor_f floorf
#define ceil_f  ceilf
#define rint_f  rintf
#define trunc_f truncf

#define NUM(number) number##f
#define F(name)     name##_f

/* The V results of one function. */
template <int V>
__device__ __forceinline__ void apply(int function, const float *x, const float *y, const float *z, float *r)
{
    switch (function) {
#define ROW(NAME, name, arity, formula)                                                                                \
    case FTH_FUNCTION_##NAME:                                                                                          \
        _Pragma("unroll") for (int k = 0; k < V; k++)                                                                  \
        {                                                                                                              \
            const float a = x[k], b = y[k], c = z[k];                                                                  \
            (void)b;                                                                                                   \
            (void)c;                                                                                                   \
            r[k] = formula;                                                                                            \
        }                                                                                                              \
        break;
        FTH_FUNCTIONS(ROW)
#undef ROW
    default: break;
    }
}

/* ---- inputs ---- */

__device__ __forceinline__ float load_one(const void *from, int type, int64_t at)
{
    switch (type) {
    case CUDA_TYPE_F16: return to_float(((const __half *)from)[at]);
    case CUDA_TYPE_BF16: return to_float(((const __nv_bfloat16 *)from)[at]);
    case CUDA_TYPE_I32: return (float)((const int32_t *)from)[at];
    default: return ((const float *)from)[at];
    }
}

template <typename T, int V> __device__ __forceinline__ void load_some(const void *from, int64_t at, float *to)
{
    const Vec<T, V> v = load<T, V>((const T *)from + at);
#pragma unroll
    for (int k = 0; k < V; k++)
        to[k] = to_float(v.v[k]);
}

/* V elements along the last axis, of which the first is at `at`; `stride`: 0 or, if V > 1, 1. */
template <int V>
__device__ __forceinline__ void load_input(const void *from, int type, int64_t at, int64_t stride, float *to)
{
    if (V == 1 || stride == 0) {
        const float x = load_one(from, type, at);
#pragma unroll
        for (int k = 0; k < V; k++)
            to[k] = x;
        return;
    }
    switch (type) {
    case CUDA_TYPE_F16: load_some<__half, V>(from, at, to); break;
    case CUDA_TYPE_BF16: load_some<__nv_bfloat16, V>(from, at, to); break;
    case CUDA_TYPE_I32: {
#pragma unroll
        for (int k = 0; k < V; k++)
            to[k] = load_one(from, type, at + k);
        break;
    }
    default: load_some<float, V>(from, at, to);
    }
}

/* Where the element of number `index` is in each input. */
__device__ __forceinline__ void locate(const cuda_axes &axes, int inputs, int64_t index, int64_t *offsets)
{
    for (int i = 0; i < inputs; i++)
        offsets[i] = 0;
    for (int axis = axes.rank - 1; axis > 0 && index > 0; axis--) {
        const int64_t size = axes.sizes[axis];
        const bool is_small = (index | size) >> 32 == 0; /* a division of 64 bits takes ten times as long */
        const int64_t rest = is_small ? (int64_t)((uint32_t)index / (uint32_t)size) : index / size;
        for (int i = 0; i < inputs; i++)
            offsets[i] += (index - rest * size) * axes.strides[i][axis];
        index = rest;
    }
    for (int i = 0; i < inputs && axes.rank > 0; i++)
        offsets[i] += index * axes.strides[i][0];
}

/* ---- the interpreter ---- */

/* An operand's V numbers: where they are, or copied to `buffer`. */
template <int V>
__device__ __forceinline__ void read_operand(const fth_program &program, int operand, float (*inputs)[V],
                                             float (*slots)[V], const float *last, float *to)
{
    const float *from = last;
    if (operand == FTH_PROGRAM_NONE)
        return;
    if (operand < FTH_PROGRAM_NUMBERS)
        from = inputs[operand];
    else if (operand >= FTH_PROGRAM_SLOTS && operand < FTH_PROGRAM_LAST)
        from = slots[operand - FTH_PROGRAM_SLOTS];
#pragma unroll
    for (int k = 0; k < V; k++)
        to[k] = operand >= FTH_PROGRAM_NUMBERS && operand < FTH_PROGRAM_SLOTS
                    ? program.numbers[operand - FTH_PROGRAM_NUMBERS]
                : operand == FTH_PROGRAM_LAST ? last[k]
                                              : from[k];
}

/* `strides`: along the axis that V elements follow. */
template <int V>
__device__ __forceinline__ void compute(const cuda_expression &e, const int64_t *offsets, const int64_t *strides,
                                        float *result)
{
    float inputs[FTH_EXPRESSION_INPUTS][V], slots[FTH_PROGRAM_MAX_SLOTS][V], last[V] = {0};
    for (int i = 0; i < e.input_count; i++)
        load_input<V>(e.inputs[i], e.types[i], offsets[i], strides[i], inputs[i]);
    if (e.program.step_count == 0)
        read_operand<V>(e.program, e.program.result, inputs, slots, last, last);
    for (int s = 0; s < e.program.step_count; s++) {
        const fth_program_step &step = e.program.steps[s];
        float a[V] = {0}, b[V] = {0}, c[V] = {0};
        read_operand<V>(e.program, step.operands[0], inputs, slots, last, a);
        read_operand<V>(e.program, step.operands[1], inputs, slots, last, b);
        read_operand<V>(e.program, step.operands[2], inputs, slots, last, c);
        apply<V>(step.function, a, b, c, last);
        if (step.slot != FTH_PROGRAM_NONE)
#pragma unroll
            for (int k = 0; k < V; k++)
                slots[step.slot][k] = last[k];
    }
#pragma unroll
    for (int k = 0; k < V; k++)
        result[k] = last[k];
}

/* The strides along an axis, or 0 where there is none. */
__device__ __forceinline__ void strides_along(const cuda_axes &axes, int inputs, int axis, int64_t *strides)
{
    for (int i = 0; i < inputs; i++)
        strides[i] = axis >= 0 ? axes.strides[i][axis] : 0;
}

template <typename T, int V>
__global__ void __launch_bounds__(THREADS) pointwise_kernel(const __grid_constant__ cuda_expression e, T *y)
{
    int64_t offsets[FTH_EXPRESSION_INPUTS], strides[FTH_EXPRESSION_INPUTS];
    strides_along(e.axes, e.input_count, e.axes.rank - 1, strides);
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V; i < e.axes.count;
         i += (int64_t)gridDim.x * THREADS * V) {
        const bool is_padding = e.logical != e.channels && i % e.channels >= e.logical; /* V is 1 */
        float result[V] = {0};
        if (!is_padding) {
            locate(e.axes, e.input_count, i, offsets);
            compute<V>(e, offsets, strides, result);
        }
        Vec<T, V> out;
#pragma unroll
        for (int k = 0; k < V; k++)
            out.v[k] = from_float<T>(result[k]);
        store<T, V>(y + i, out);
    }
}

/* ---- reductions ---- */

__device__ __forceinline__ float start_of(int reduction)
{
    return reduction == FTH_REDUCE_MAX ? -INFINITY : reduction == FTH_REDUCE_MIN ? INFINITY : 0;
}

__device__ __forceinline__ float combine(int reduction, float a, float b)
{
    switch (reduction) {
    case FTH_REDUCE_MAX: return a != a || a > b ? a : b;
    case FTH_REDUCE_MIN: return a != a || a < b ? a : b;
    default: return a + b;
    }
}

__device__ __forceinline__ float finish(const cuda_expression &e, float sum)
{
    return e.reduction == FTH_REDUCE_MEAN ? sum / (float)e.reduced.count : sum;
}

/* A block has `lanes` results, and THREADS / lanes threads for each; blockIdx.y is the part of
 * what is reduced. With one part, `y` gets the results, otherwise `parts` (gridDim.y, results)
 * what each part comes to. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    reduce_kernel(const __grid_constant__ cuda_expression e, int lanes, int64_t part_size, float *parts, T *y)
{
    __shared__ float sums[THREADS];
    const int lane = threadIdx.x % lanes, row = threadIdx.x / lanes, rows = THREADS / lanes;
    const int64_t at = (int64_t)blockIdx.x * lanes + lane, begin = blockIdx.y * part_size;
    const int64_t end = begin + part_size < e.reduced.count ? begin + part_size : e.reduced.count;
    const bool is_there = at < e.axes.count && (e.logical == e.channels || at % e.channels < e.logical);
    int64_t origin[FTH_EXPRESSION_INPUTS], offsets[FTH_EXPRESSION_INPUTS], strides[FTH_EXPRESSION_INPUTS] = {0};
    float sum = start_of(e.reduction);
    if (is_there)
        locate(e.axes, e.input_count, at, origin);
    for (int64_t k = begin + row; k < end && is_there; k += rows) {
        float next[1];
        locate(e.reduced, e.input_count, k, offsets);
        for (int i = 0; i < e.input_count; i++)
            offsets[i] += origin[i];
        compute<1>(e, offsets, strides, next);
        sum = combine(e.reduction, sum, next[0]);
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = rows / 2; half > 0; half /= 2) {
        if (row < half)
            sums[threadIdx.x] = combine(e.reduction, sums[threadIdx.x], sums[threadIdx.x + half * lanes]);
        __syncthreads();
    }
    if (row == 0 && at < e.axes.count) {
        if (gridDim.y > 1)
            parts[blockIdx.y * e.axes.count + at] = sums[lane];
        else
            y[at] = from_float<T>(is_there ? finish(e, sums[lane]) : 0);
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    reduce_parts_kernel(const __grid_constant__ cuda_expression e, int part_count, const float *parts, T *y)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= e.axes.count)
        return;
    float sum = start_of(e.reduction);
    for (int p = 0; p < part_count; p++)
        sum = combine(e.reduction, sum, parts[p * e.axes.count + at]);
    y[at] = from_float<T>(e.logical == e.channels || at % e.channels < e.logical ? finish(e, sum) : 0);
}

/* Neighbouring threads take neighbouring results where those are what lies side by side in memory,
 * and otherwise neighbouring numbers of one result. */
int lanes_of(const cuda_expression *e)
{
    const int last = e->reduced.rank - 1;
    for (int i = 0; i < e->input_count; i++)
        if (e->reduced.strides[i][last] == 1)
            return 1;
    return WARP;
}

int part_count_of(const cuda_launch *launch, const cuda_expression *e)
{
    const int lanes = lanes_of(e), rows = THREADS / lanes;
    const int64_t blocks = ceil_div(e->axes.count, lanes), wanted = 4 * (int64_t)launch->processors;
    const int64_t most = ceil_div(e->reduced.count, (int64_t)rows * 16); /* a thread adds up 16 numbers, at least */
    const int64_t parts = blocks >= wanted ? 1 : ceil_div(wanted, blocks);
    return (int)(parts < most ? parts : most);
}

/* Whether 4 elements can be computed at once: along the last axis, every input has them side by
 * side or repeats one. */
bool has_vectors(const cuda_expression *e)
{
    enum { V = 4 };
    const int last = e->axes.rank - 1;
    if (e->logical != e->channels || last < 0 || e->axes.sizes[last] % V != 0)
        return false;
    for (int i = 0; i < e->input_count; i++) {
        const int64_t *strides = e->axes.strides[i];
        if (strides[last] != 0 && strides[last] != 1)
            return false;
        for (int axis = 0; axis < last && strides[last] == 1; axis++)
            if (strides[axis] % V != 0)
                return false;
    }
    return true;
}

} // namespace

extern "C" {

cudaError_t cuda_launch_pointwise(const cuda_launch *launch, const cuda_expression *expression, void *y)
{
    const int64_t width = has_vectors(expression) ? 4 : 1, most = 16 * (int64_t)launch->processors;
    const int64_t blocks = ceil_div(expression->axes.count, THREADS * width);
    const unsigned grid = (unsigned)(blocks < most ? blocks : most);
    return with_type(expression->type, [&](auto zero) {
        using T = decltype(zero);
        if (width == 4)
            pointwise_kernel<T, 4><<<grid, THREADS, 0, launch->stream>>>(*expression, (T *)y);
        else
            pointwise_kernel<T, 1><<<grid, THREADS, 0, launch->stream>>>(*expression, (T *)y);
        return cudaGetLastError();
    });
}

size_t cuda_reduce_floats(const cuda_launch *launch, const cuda_expression *expression)
{
    const int parts = part_count_of(launch, expression);
    return parts > 1 ? (size_t)parts * (size_t)expression->axes.count : 0;
}

cudaError_t cuda_launch_reduce(const cuda_launch *launch, const cuda_expression *expression, float *scratch, void *y)
{
    const int lanes = lanes_of(expression), parts = part_count_of(launch, expression);
    const int64_t part_size = ceil_div(expression->reduced.count, parts), count = expression->axes.count;
    const dim3 grid((unsigned)ceil_div(count, lanes), (unsigned)parts);
    return with_type(expression->type, [&](auto zero) {
        using T = decltype(zero);
        reduce_kernel<T><<<grid, THREADS, 0, launch->stream>>>(*expression, lanes, part_size, scratch, (T *)y);
        if (parts > 1)
            reduce_parts_kernel<T><<<(unsigned)ceil_div(count, THREADS), THREADS, 0, launch->stream>>>(
                *expression, parts, scratch, (T *)y);
        return cudaGetLastError();
    });
}

} // extern "C"
