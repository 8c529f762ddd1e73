/* Layer norm over rows, with the dropout and the sum before it, and its gradient.
 *
 * A warp has a row, in registers: it is read once and written once. The gradient's sums over
 * columns (of scale, of shift and, where asked for, of the bias before the norm) stay in registers
 * while a warp goes from row to row; a block leaves one partial sum per column, and a second launch
 * adds these up in their order. Rows too long for registers go through plainer kernels with a block
 * for each row. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/random.cuh"
#include "backend/cuda/text_kernels.h"

namespace
{

enum { THREADS = 256, WARPS = THREADS / 32, MOST_COLUMNS_OF_LANE = 32, SUMS = 3 };

__device__ float block_sum(float x)
{
    __shared__ float sums[WARPS];
    x = warp_sum(x);
    __syncthreads(); /* it may be called again */
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = x;
    __syncthreads();
    float total = 0;
    for (int i = 0; i < WARPS; i++)
        total += sums[i];
    return total;
}

/* The elements of a dropout, numbered through the whole batch. */
struct Mask {
    uint64_t key, before;
    uint32_t threshold;
    float scale;

    __device__ Mask(const cuda_row_norm &n)
        : key(dropout_key(n.run, n.id)), before(first_row(n.run, n.origin) * (uint64_t)n.features),
          threshold(n.threshold), scale(n.dropout_scale)
    {
    }

    __device__ __forceinline__ float factor(uint64_t element) const
    {
        element += before;
        const uint64_t bits = random_bits(key, element >> 1);
        return (uint32_t)(bits >> (32 * (element & 1))) >= threshold ? scale : 0;
    }

    /* Of V neighbours. */
    template <int V> __device__ __forceinline__ void factors(uint64_t element, float (&f)[V]) const
    {
        if (V % 2 != 0 || ((element + before) & 1)) {
#pragma unroll
            for (int k = 0; k < V; k++)
                f[k] = factor(element + k);
            return;
        }
#pragma unroll
        for (int k = 0; k < V; k += 2) {
            const uint64_t bits = random_bits(key, (element + before + k) >> 1);
            f[k] = (uint32_t)bits >= threshold ? scale : 0;
            f[k + (V > 1)] = (uint32_t)(bits >> 32) >= threshold ? scale : 0;
        }
    }
};

/* ---- forward ---- */

/* K vectors of V columns in each lane. */
template <typename T, int V, int K, bool DROP>
__global__ void __launch_bounds__(THREADS)
    forward_kernel(cuda_row_norm n, const T *x, const T *residual, T *y, T *sum, float2 *statistics)
{
    const int lane = threadIdx.x % 32, vectors = (int)n.features / V;
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= n.rows)
        return;
    const int64_t first = row * n.features;
    Vec<T, V> in[K], other[K];
    float s[K][V], total = 0;
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int v = k * 32 + lane;
        if (v < vectors) {
            in[k] = load<T, V>(x + first + (int64_t)v * V);
            if (residual)
                other[k] = load<T, V>(residual + first + (int64_t)v * V);
        }
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int v = k * 32 + lane;
#pragma unroll
        for (int i = 0; i < V; i++)
            s[k][i] = v < vectors ? to_float(in[k].v[i]) : 0;
        if (v >= vectors)
            continue;
        if (DROP) {
            float f[V];
            const Mask mask(n);
            mask.factors<V>((uint64_t)(first + (int64_t)v * V), f);
#pragma unroll
            for (int i = 0; i < V; i++)
                s[k][i] *= f[i];
        }
#pragma unroll
        for (int i = 0; i < V; i++) {
            if (residual)
                s[k][i] += to_float(other[k].v[i]);
            if (DROP || residual) { /* what the gradient will see */
                in[k].v[i] = from_float<T>(s[k][i]);
                s[k][i] = to_float(in[k].v[i]);
            }
            total += s[k][i];
        }
        if (sum)
            store<T, V>(sum + first + (int64_t)v * V, in[k]);
    }
    const float mean = warp_sum(total) / (float)n.features;
    float squares = 0;
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int i = 0; i < V; i++) {
            const float d = s[k][i] - mean;
            squares += k * 32 + lane < vectors ? d * d : 0;
        }
    const float inverse = rsqrtf(warp_sum(squares) / (float)n.features + n.epsilon);
    if (statistics && lane == 0)
        statistics[row] = make_float2(mean, inverse);
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int v = k * 32 + lane;
        if (v >= vectors)
            continue;
        const Vec<float, V> scale = load<float, V>(n.scale + v * V), shift = load<float, V>(n.shift + v * V);
#pragma unroll
        for (int i = 0; i < V; i++)
            in[k].v[i] = from_float<T>((s[k][i] - mean) * inverse * scale.v[i] + shift.v[i]);
        store<T, V>(y + first + (int64_t)v * V, in[k]);
    }
}

/* Any length: the sums of a row are read again for each pass. */
template <typename T, bool DROP>
__global__ void __launch_bounds__(THREADS)
    long_forward_kernel(cuda_row_norm n, const T *x, const T *residual, T *y, T *sum, float2 *statistics)
{
    const int64_t first = (int64_t)blockIdx.x * n.features;
    auto value = [&](int64_t c) {
        float s = to_float(x[first + c]);
        if (DROP)
            s *= Mask(n).factor((uint64_t)(first + c));
        if (residual)
            s += to_float(residual[first + c]);
        return to_float(from_float<T>(s));
    };
    float total = 0, squares = 0;
    for (int64_t c = threadIdx.x; c < n.features; c += THREADS)
        total += value(c);
    const float mean = block_sum(total) / (float)n.features;
    for (int64_t c = threadIdx.x; c < n.features; c += THREADS) {
        const float d = value(c) - mean;
        squares += d * d;
    }
    const float inverse = rsqrtf(block_sum(squares) / (float)n.features + n.epsilon);
    if (statistics && threadIdx.x == 0)
        statistics[blockIdx.x] = make_float2(mean, inverse);
    for (int64_t c = threadIdx.x; c < n.features; c += THREADS) {
        const float s = value(c);
        if (sum)
            sum[first + c] = from_float<T>(s); /* may lie where x does */
        y[first + c] = from_float<T>((s - mean) * inverse * n.scale[c] + n.shift[c]);
    }
}

/* ---- gradient ---- */

/* Adds the lanes' sums over the block's warps into scratch (blocks, SUMS, features). */
template <int V, int K>
__device__ void leave_sums(const cuda_row_norm &n, const float (&sums)[K][V], int which, float *scratch)
{
    __shared__ float shared[WARPS][32 * MOST_COLUMNS_OF_LANE / 4];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, vectors = (int)n.features / V;
    float *to = scratch + ((int64_t)blockIdx.x * SUMS + which) * n.features;
    constexpr int AT_ONCE = 32 * MOST_COLUMNS_OF_LANE / 4 / (32 * V); /* vectors of a lane */
#pragma unroll
    for (int k = 0; k < K; k += AT_ONCE) {
        __syncthreads();
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
#pragma unroll
            for (int i = 0; i < V; i++)
                if (k + j < K)
                    shared[warp][(j * 32 + lane) * V + i] = sums[k + j < K ? k + j : 0][i];
        __syncthreads();
        for (int c = threadIdx.x; c < AT_ONCE * 32 * V; c += THREADS) {
            float total = 0;
            for (int w = 0; w < WARPS; w++)
                total += shared[w][c];
            const int64_t column = (int64_t)k * 32 * V + c;
            if (k + c / (32 * V) < K && column < (int64_t)vectors * V)
                to[column] = total;
        }
    }
}

template <typename T, int V, int K, bool DROP>
__global__ void __launch_bounds__(THREADS)
    gradient_kernel(cuda_row_norm n, const T *sum, const float2 *statistics, const T *dy, const T *dy2, T *dx,
                    T *dresidual, bool dbias, float *scratch)
{
    const int lane = threadIdx.x % 32, vectors = (int)n.features / V;
    float dscale[K][V], dshift[K][V], dx_sums[K][V];
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int i = 0; i < V; i++)
            dscale[k][i] = dshift[k][i] = dx_sums[k][i] = 0;
    const Mask mask(n);
    for (int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; row < n.rows;
         row += (int64_t)gridDim.x * WARPS) {
        const int64_t first = row * n.features;
        Vec<T, V> s[K], g[K], g2[K];
#pragma unroll
        for (int k = 0; k < K; k++) {
            const int v = k * 32 + lane;
            if (v < vectors) {
                s[k] = load<T, V>(sum + first + (int64_t)v * V);
                g[k] = load<T, V>(dy + first + (int64_t)v * V);
                if (dy2)
                    g2[k] = load<T, V>(dy2 + first + (int64_t)v * V);
            }
        }
        const float2 of_row = statistics[row]; /* mean, 1 / deviation */
        float normalized[K][V], a[K][V], sum_a = 0, sum_ax = 0;
#pragma unroll
        for (int k = 0; k < K; k++) {
            const int v = k * 32 + lane;
            if (v >= vectors)
                continue;
            const Vec<float, V> scale = load<float, V>(n.scale + v * V);
#pragma unroll
            for (int i = 0; i < V; i++) {
                const float d = to_float(g[k].v[i]) + (dy2 ? to_float(g2[k].v[i]) : 0);
                normalized[k][i] = (to_float(s[k].v[i]) - of_row.x) * of_row.y;
                dshift[k][i] += d;
                dscale[k][i] += d * normalized[k][i];
                a[k][i] = __fmul_rn(d, scale.v[i]); /* the same number in sum_a: where all cancels, nothing is left */
                sum_a += a[k][i];
                sum_ax += a[k][i] * normalized[k][i];
            }
        }
        sum_a = warp_sum(sum_a) / (float)n.features;
        sum_ax = warp_sum(sum_ax) / (float)n.features;
#pragma unroll
        for (int k = 0; k < K; k++) {
            const int v = k * 32 + lane;
            if (v >= vectors)
                continue;
            float f[V];
            if (DROP)
                mask.factors<V>((uint64_t)(first + (int64_t)v * V), f);
            Vec<T, V> before, after;
#pragma unroll
            for (int i = 0; i < V; i++) {
                const float d = of_row.y * (a[k][i] - sum_a - normalized[k][i] * sum_ax);
                after.v[i] = from_float<T>(d);
                before.v[i] = DROP ? from_float<T>(d * f[i]) : after.v[i];
                dx_sums[k][i] += to_float(before.v[i]);
            }
            if (dresidual)
                store<T, V>(dresidual + first + (int64_t)v * V, after);
            if (dx)
                store<T, V>(dx + first + (int64_t)v * V, before);
        }
    }
    leave_sums<V, K>(n, dscale, 0, scratch);
    leave_sums<V, K>(n, dshift, 1, scratch);
    if (dbias)
        leave_sums<V, K>(n, dx_sums, 2, scratch);
}

template <typename T, bool DROP>
__global__ void __launch_bounds__(THREADS) long_gradient_kernel(cuda_row_norm n, const T *sum, const float2 *statistics,
                                                                const T *dy, const T *dy2, T *dx, T *dresidual)
{
    const int64_t first = (int64_t)blockIdx.x * n.features;
    const float2 of_row = statistics[blockIdx.x];
    auto gradient = [&](int64_t c) { return to_float(dy[first + c]) + (dy2 ? to_float(dy2[first + c]) : 0); };
    auto scaled = [&](int64_t c) { return __fmul_rn(gradient(c), n.scale[c]); }; /* see above */
    auto normalized = [&](int64_t c) { return (to_float(sum[first + c]) - of_row.x) * of_row.y; };
    float sum_a = 0, sum_ax = 0;
    for (int64_t c = threadIdx.x; c < n.features; c += THREADS) {
        const float a = scaled(c);
        sum_a += a;
        sum_ax += a * normalized(c);
    }
    sum_a = block_sum(sum_a) / (float)n.features;
    sum_ax = block_sum(sum_ax) / (float)n.features;
    for (int64_t c = threadIdx.x; c < n.features; c += THREADS) {
        const float d = of_row.y * (scaled(c) - sum_a - normalized(c) * sum_ax);
        if (dresidual)
            dresidual[first + c] = from_float<T>(d);
        if (dx)
            dx[first + c] =
                from_float<T>(to_float(from_float<T>(d)) * (DROP ? Mask(n).factor((uint64_t)(first + c)) : 1));
    }
}

/* The sums over columns for it: before dx is written, since that may lie where dy does. A block has
 * some columns and one in gridDim.y of the rows. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    long_sums_kernel(cuda_row_norm n, const T *sum, const float2 *statistics, const T *dy, const T *dy2, float *scratch)
{
    const int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (c >= n.features)
        return;
    float dscale = 0, dshift = 0;
    for (int64_t row = blockIdx.y; row < n.rows; row += gridDim.y) {
        const int64_t at = row * n.features + c;
        const float d = to_float(dy[at]) + (dy2 ? to_float(dy2[at]) : 0);
        dshift += d;
        dscale += d * (to_float(sum[at]) - statistics[row].x) * statistics[row].y;
    }
    float *to = scratch + (int64_t)blockIdx.y * SUMS * n.features;
    to[c] = dscale;
    to[n.features + c] = dshift;
}

template <typename T>
__global__ void __launch_bounds__(THREADS) long_bias_kernel(cuda_row_norm n, const T *dx, float *scratch)
{
    const int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (c >= n.features)
        return;
    float total = 0;
    for (int64_t row = blockIdx.y; row < n.rows; row += gridDim.y)
        total += to_float(dx[row * n.features + c]);
    scratch[((int64_t)blockIdx.y * SUMS + 2) * n.features + c] = total;
}

/* Adds up what the blocks left: 32 columns in a block, and one in 32 of the parts in each of its
 * warps. */
__global__ void __launch_bounds__(1024)
    finish_sums_kernel(const float *scratch, int parts, int64_t features, float *dscale, float *dshift, float *dbias)
{
    __shared__ float shared[32][33];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, which = blockIdx.y;
    float *to = which == 0 ? dscale : which == 1 ? dshift : dbias;
    const int64_t c = (int64_t)blockIdx.x * 32 + lane;
    float total = 0;
    if (c < features)
        for (int part = warp; part < parts; part += 32)
            total += scratch[((int64_t)part * SUMS + which) * features + c];
    shared[warp][lane] = total;
    __syncthreads();
    total = warp_sum(shared[lane][warp]); /* of column `warp` */
    const int64_t column = (int64_t)blockIdx.x * 32 + warp;
    if (lane == 0 && column < features && to)
        to[column] = total;
}

int parts_of(const cuda_launch *launch, int64_t rows)
{
    const int64_t parts = ceil_div(rows, WARPS);
    return (int)(parts < launch->processors ? parts : launch->processors);
}

/* Calls `f` with the type, the width of vectors and how many of them each lane has; 0: the row does
 * not fit. */
template <typename F> cudaError_t with_lanes(const cuda_row_norm *n, F f)
{
    return with_vectors(n->type, n->features, [&](auto zero, auto width) {
        constexpr int V = decltype(width)::value;
        const int64_t each = ceil_div(n->features, 32 * V);
        if constexpr (V > 1) {
            switch (each) {
            case 1: return f(zero, width, Width<1>());
            case 2: return f(zero, width, Width<2>());
            case 3: return f(zero, width, Width<3>());
            case 4: return f(zero, width, Width<4>());
            default: break;
            }
        }
        if constexpr (V == 4) {
            if (each <= 6)
                return f(zero, width, Width<6>());
            if (each <= 8)
                return f(zero, width, Width<8>());
        }
        return f(zero, Width<1>(), Width<0>());
    });
}

} // namespace

extern "C" {

size_t cuda_layer_norm_scratch_bytes(const cuda_launch *launch, int64_t rows, int64_t features)
{
    return (size_t)parts_of(launch, rows) * SUMS * (size_t)features * sizeof(float);
}

cudaError_t cuda_launch_layer_norm(const cuda_launch *launch, const cuda_row_norm *n, const void *x,
                                   const void *residual, void *y, void *sum, float *statistics)
{
    return with_lanes(n, [&](auto zero, auto width, auto each) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value, K = decltype(each)::value;
        const bool drop = n->threshold > 0;
        if constexpr (K > 0) {
            auto kernel = drop ? forward_kernel<T, V, K, true> : forward_kernel<T, V, K, false>;
            kernel<<<(unsigned)ceil_div(n->rows, WARPS), THREADS, 0, launch->stream>>>(
                *n, (const T *)x, (const T *)residual, (T *)y, (T *)sum, (float2 *)statistics);
        } else {
            auto kernel = drop ? long_forward_kernel<T, true> : long_forward_kernel<T, false>;
            kernel<<<(unsigned)n->rows, THREADS, 0, launch->stream>>>(*n, (const T *)x, (const T *)residual, (T *)y,
                                                                      (T *)sum, (float2 *)statistics);
        }
        return cudaGetLastError();
    });
}

cudaError_t cuda_launch_layer_norm_grad(const cuda_launch *launch, const cuda_row_norm *n, const void *sum,
                                        const float *statistics, const void *dy, const void *dy2, void *dx,
                                        void *dresidual, float *dscale, float *dshift, float *dbias, float *scratch)
{
    const int parts = parts_of(launch, n->rows);
    cudaError_t error = with_lanes(n, [&](auto zero, auto width, auto each) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value, K = decltype(each)::value;
        const bool drop = n->threshold > 0;
        const float2 *rows = (const float2 *)statistics;
        if constexpr (K > 0) {
            auto kernel = drop ? gradient_kernel<T, V, K, true> : gradient_kernel<T, V, K, false>;
            kernel<<<(unsigned)parts, THREADS, 0, launch->stream>>>(*n, (const T *)sum, rows, (const T *)dy,
                                                                    (const T *)dy2, (T *)dx, (T *)dresidual,
                                                                    dbias != NULL, scratch);
        } else {
            const dim3 grid((unsigned)ceil_div(n->features, THREADS), (unsigned)parts);
            auto kernel = drop ? long_gradient_kernel<T, true> : long_gradient_kernel<T, false>;
            long_sums_kernel<T><<<grid, THREADS, 0, launch->stream>>>(*n, (const T *)sum, rows, (const T *)dy,
                                                                      (const T *)dy2, scratch);
            kernel<<<(unsigned)n->rows, THREADS, 0, launch->stream>>>(*n, (const T *)sum, rows, (const T *)dy,
                                                                      (const T *)dy2, (T *)dx, (T *)dresidual);
            if (dbias)
                long_bias_kernel<T><<<grid, THREADS, 0, launch->stream>>>(*n, (const T *)dx, scratch);
        }
        return cudaGetLastError();
    });
    if (error != cudaSuccess)
        return error;
    const dim3 grid((unsigned)ceil_div(n->features, 32), dbias ? 3 : 2);
    finish_sums_kernel<<<grid, 1024, 0, launch->stream>>>(scratch, parts, n->features, dscale, dshift, dbias);
    return cudaGetLastError();
}

} // extern "C"
