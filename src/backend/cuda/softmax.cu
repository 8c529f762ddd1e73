/* Softmax over rows, its logarithm and normalize, and their gradients. Short rows have a warp each,
 * long ones a block. A row is read once for each sum, and all sums have a fixed order. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/text_kernels.h"

namespace
{

enum { THREADS = 256, WARPS = THREADS / 32, LONG_ROW = 2048 };

__device__ __forceinline__ float warp_max(float x)
{
    for (int offset = 16; offset > 0; offset >>= 1)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}

/* The threads that share a row. */
template <bool BLOCK> struct Team {
    static constexpr int SIZE = BLOCK ? THREADS : 32;
    static constexpr int ROWS = THREADS / SIZE; /* of a block */

    __device__ static int64_t row()
    {
        return (int64_t)blockIdx.x * ROWS + (BLOCK ? 0 : threadIdx.x / 32);
    }
    __device__ static int rank()
    {
        return BLOCK ? (int)threadIdx.x : (int)threadIdx.x % 32;
    }
    __device__ static float sum(float x)
    {
        x = warp_sum(x);
        if (!BLOCK)
            return x;
        __shared__ float parts[WARPS];
        __syncthreads(); /* it may be called again */
        if (threadIdx.x % 32 == 0)
            parts[threadIdx.x / 32] = x;
        __syncthreads();
        float total = 0;
        for (int i = 0; i < WARPS; i++)
            total += parts[i];
        return total;
    }
    __device__ static float largest(float x)
    {
        x = warp_max(x);
        if (!BLOCK)
            return x;
        __shared__ float parts[WARPS];
        __syncthreads();
        if (threadIdx.x % 32 == 0)
            parts[threadIdx.x / 32] = x;
        __syncthreads();
        float most = parts[0];
        for (int i = 1; i < WARPS; i++)
            most = fmaxf(most, parts[i]);
        return most;
    }
};

/* A NaN is passed over by the largest, and shows in the sum. */
template <typename T, bool BLOCK, bool LOG>
__global__ void __launch_bounds__(THREADS) softmax_kernel(int64_t rows, int64_t features, const T *x, T *y)
{
    using Threads = Team<BLOCK>;
    const int64_t row = Threads::row();
    if (row >= rows)
        return;
    x += row * features;
    y += row * features;
    float largest = -INFINITY, sum = 0;
    for (int64_t i = Threads::rank(); i < features; i += Threads::SIZE)
        largest = fmaxf(largest, to_float(x[i]));
    largest = Threads::largest(largest);
    for (int64_t i = Threads::rank(); i < features; i += Threads::SIZE)
        sum += expf(to_float(x[i]) - largest);
    sum = Threads::sum(sum);
    const float logarithm = logf(sum), factor = 1 / sum;
    for (int64_t i = Threads::rank(); i < features; i += Threads::SIZE) {
        const float above = to_float(x[i]) - largest;
        y[i] = from_float<T>(LOG ? above - logarithm : expf(above) * factor);
    }
}

template <typename T, bool BLOCK, bool LOG>
__global__ void __launch_bounds__(THREADS)
    softmax_grad_kernel(int64_t rows, int64_t features, const T *y, const T *dy, T *dx)
{
    using Threads = Team<BLOCK>;
    const int64_t row = Threads::row();
    if (row >= rows)
        return;
    y += row * features;
    dy += row * features;
    dx += row * features;
    float sum = 0;
    for (int64_t i = Threads::rank(); i < features; i += Threads::SIZE)
        sum += LOG ? to_float(dy[i]) : to_float(dy[i]) * to_float(y[i]);
    sum = Threads::sum(sum);
    for (int64_t i = Threads::rank(); i < features; i += Threads::SIZE) {
        const float result = to_float(y[i]), slope = to_float(dy[i]);
        dx[i] = from_float<T>(LOG ? slope - expf(result) * sum : result * (slope - sum));
    }
}

template <typename T, bool BLOCK, bool RMS>
__global__ void __launch_bounds__(THREADS)
    normalize_kernel(int64_t rows, int64_t features, float epsilon, const T *x, T *y, float *inverses)
{
    using Threads = Team<BLOCK>;
    const int64_t row = Threads::row();
    if (row >= rows)
        return;
    x += row * features;
    y += row * features;
    float mean = 0, squares = 0;
    if (!RMS) {
        for (int64_t i = Threads::rank(); i < features; i += Threads::SIZE)
            mean += to_float(x[i]);
        mean = Threads::sum(mean) / (float)features;
    }
    for (int64_t i = Threads::rank(); i < features; i += Threads::SIZE) {
        const float d = to_float(x[i]) - mean;
        squares += d * d;
    }
    const float inverse = rsqrtf(Threads::sum(squares) / (float)features + epsilon);
    if (inverses && Threads::rank() == 0)
        inverses[row] = inverse;
    for (int64_t i = Threads::rank(); i < features; i += Threads::SIZE)
        y[i] = from_float<T>((to_float(x[i]) - mean) * inverse);
}

template <typename T, bool BLOCK, bool RMS>
__global__ void __launch_bounds__(THREADS)
    normalize_grad_kernel(int64_t rows, int64_t features, const T *y, const T *dy, const float *inverses, T *dx)
{
    using Threads = Team<BLOCK>;
    const int64_t row = Threads::row();
    if (row >= rows)
        return;
    y += row * features;
    dy += row * features;
    dx += row * features;
    float mean = 0, product = 0;
    for (int64_t i = Threads::rank(); i < features; i += Threads::SIZE) {
        mean += RMS ? 0 : to_float(dy[i]);
        product += to_float(dy[i]) * to_float(y[i]);
    }
    mean = RMS ? 0 : Threads::sum(mean) / (float)features;
    product = Threads::sum(product) / (float)features;
    for (int64_t i = Threads::rank(); i < features; i += Threads::SIZE)
        dx[i] = from_float<T>(inverses[row] * (to_float(dy[i]) - mean - to_float(y[i]) * product));
}

/* A choice that the compiler knows. */
template <bool B> struct Choice {
    static constexpr bool value = B;
};

/* Calls `f` with the type, whether a block has a row, the option, and the number of blocks. */
template <typename F> cudaError_t with_rows(const cuda_row_op *op, F f)
{
    return with_type(op->type, [&](auto zero) {
        const bool block = op->features > LONG_ROW;
        const unsigned blocks = (unsigned)(block ? op->rows : ceil_div(op->rows, WARPS));
        if (block)
            op->option ? f(zero, Choice<true>(), Choice<true>(), blocks)
                       : f(zero, Choice<true>(), Choice<false>(), blocks);
        else
            op->option ? f(zero, Choice<false>(), Choice<true>(), blocks)
                       : f(zero, Choice<false>(), Choice<false>(), blocks);
        return cudaGetLastError();
    });
}

} // namespace

extern "C" {

cudaError_t cuda_launch_softmax(cudaStream_t stream, const cuda_row_op *op, const void *x, void *y)
{
    return with_rows(op, [&](auto zero, auto block, auto log, unsigned blocks) {
        using T = decltype(zero);
        softmax_kernel<T, decltype(block)::value, decltype(log)::value>
            <<<blocks, THREADS, 0, stream>>>(op->rows, op->features, (const T *)x, (T *)y);
    });
}

cudaError_t cuda_launch_softmax_grad(cudaStream_t stream, const cuda_row_op *op, const void *y, const void *dy,
                                     void *dx)
{
    return with_rows(op, [&](auto zero, auto block, auto log, unsigned blocks) {
        using T = decltype(zero);
        softmax_grad_kernel<T, decltype(block)::value, decltype(log)::value>
            <<<blocks, THREADS, 0, stream>>>(op->rows, op->features, (const T *)y, (const T *)dy, (T *)dx);
    });
}

cudaError_t cuda_launch_normalize(cudaStream_t stream, const cuda_row_op *op, const void *x, void *y, float *inverses)
{
    return with_rows(op, [&](auto zero, auto block, auto rms, unsigned blocks) {
        using T = decltype(zero);
        normalize_kernel<T, decltype(block)::value, decltype(rms)::value>
            <<<blocks, THREADS, 0, stream>>>(op->rows, op->features, op->epsilon, (const T *)x, (T *)y, inverses);
    });
}

cudaError_t cuda_launch_normalize_grad(cudaStream_t stream, const cuda_row_op *op, const void *y, const void *dy,
                                       const float *inverses, void *dx)
{
    return with_rows(op, [&](auto zero, auto block, auto rms, unsigned blocks) {
        using T = decltype(zero);
        normalize_grad_kernel<T, decltype(block)::value, decltype(rms)::value>
            <<<blocks, THREADS, 0, stream>>>(op->rows, op->features, (const T *)y, (const T *)dy, inverses, (T *)dx);
    });
}

} // extern "C"
