/* What the kernel files share: numbers of three types, 16-byte vectors of them, and sums over
 * warps. */
#ifndef FTH_BACKEND_CUDA_DEVICE_CUH
#define FTH_BACKEND_CUDA_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/kernels.h"

namespace
{

__device__ __forceinline__ float to_float(float x)
{
    return x;
}
__device__ __forceinline__ float to_float(__half x)
{
    return __half2float(x);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

template <typename T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ __half from_float<__half>(float x)
{
    return __float2half_rn(x);
}
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

/* V numbers that are loaded and stored at once. */
template <typename T, int V> struct alignas(sizeof(T) * V) Vec {
    T v[V];
};

template <typename T, int V> __device__ __forceinline__ Vec<T, V> load(const T *from)
{
    return *reinterpret_cast<const Vec<T, V> *>(from);
}

template <typename T, int V> __device__ __forceinline__ void store(T *to, const Vec<T, V> &what)
{
    *reinterpret_cast<Vec<T, V> *>(to) = what;
}

__host__ __device__ inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Of all lanes, in each. */
__device__ __forceinline__ float warp_sum(float x)
{
    for (int offset = 16; offset > 0; offset >>= 1)
        x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

/* Calls `f` with a value of the C++ type for `type`. */
template <typename F> cudaError_t with_type(int type, F f)
{
    switch (type) {
    case CUDA_TYPE_F32: return f(float());
    case CUDA_TYPE_F16: return f(__half());
    case CUDA_TYPE_BF16: return f(__nv_bfloat16());
    default: return cudaErrorInvalidValue;
    }
}

template <int N> struct Width {
    static constexpr int value = N;
};

/* The same with the number of elements that make 16 bytes, or 1 if rows are not made of whole
 * vectors. */
template <typename F> cudaError_t with_vectors(int type, int64_t channels, F f)
{
    switch (type) {
    case CUDA_TYPE_F32: return channels % 4 == 0 ? f(float(), Width<4>()) : f(float(), Width<1>());
    case CUDA_TYPE_F16: return channels % 8 == 0 ? f(__half(), Width<8>()) : f(__half(), Width<1>());
    case CUDA_TYPE_BF16: return channels % 8 == 0 ? f(__nv_bfloat16(), Width<8>()) : f(__nv_bfloat16(), Width<1>());
    default: return cudaErrorInvalidValue;
    }
}

} // namespace

#endif
