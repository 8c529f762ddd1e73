/* Products of tiles of 32 rows in f32 arithmetic, for attention without tensor cores
 * (attention_plain.cu, dot_product_attention.cu).
 *
 * A block has 32 rows of its own, 4 for each of its 8 warps, and goes over tiles of 32 rows of the
 * others. A lane has one row of the tile: it computes its scores with the warp's 4 rows, and then
 * one of every 32 columns of the sums over the tile. All sums have a fixed order. */
#ifndef FTH_BACKEND_CUDA_ATTENTION_ROWS_CUH
#define FTH_BACKEND_CUDA_ATTENTION_ROWS_CUH

#include "backend/cuda/attention.cuh"

namespace
{

enum { ROWS = 32, OWN = 4, THREADS = ROWS / OWN * 32 };

/* 32 rows of up to 32 * I numbers; the padding puts a column of 16-byte vectors into different
 * banks. */
template <int I> struct Matrix {
    float row[ROWS][32 * I + 4];
};
/* A weight of each row of a tile for the 4 rows of each warp. */
typedef float4 Weights[THREADS / 32][32];

template <int I, typename T>
__device__ __forceinline__ void load_rows(Matrix<I> &to, const T *from, int64_t stride, int rows, int size)
{
    for (int i = threadIdx.x; i < ROWS * 32 * I; i += THREADS) {
        const int row = i / (32 * I), column = i % (32 * I);
        to.row[row][column] = row < rows && column < size ? to_float(from[row * stride + column]) : 0;
    }
}

/* The products of a warp's own rows with the lane's row of the tile. */
template <int I> __device__ __forceinline__ void multiply(float (&s)[OWN], const Matrix<I> &own, const Matrix<I> &tile)
{
    const int first = threadIdx.x / 32 * OWN, lane = threadIdx.x % 32;
    for (int r = 0; r < OWN; r++)
        s[r] = 0;
#pragma unroll 4
    for (int d = 0; d < 32 * I; d += 4) {
        const float4 b = *reinterpret_cast<const float4 *>(&tile.row[lane][d]);
#pragma unroll
        for (int r = 0; r < OWN; r++) {
            const float4 a = *reinterpret_cast<const float4 *>(&own.row[first + r][d]);
            s[r] += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
        }
    }
}

/* sums += the tile's rows, times the weights that the lanes have for them */
template <int I>
__device__ __forceinline__ void add_rows(float (&sums)[OWN][I], const float (&w)[OWN], const Matrix<I> &tile,
                                         Weights &weights)
{
    float4 *mine = weights[threadIdx.x / 32];
    const int lane = threadIdx.x % 32;
    mine[lane] = make_float4(w[0], w[1], w[2], w[3]);
    __syncwarp();
#pragma unroll 4
    for (int j = 0; j < ROWS; j++) {
        const float4 x = mine[j];
#pragma unroll
        for (int i = 0; i < I; i++) {
            const float v = tile.row[j][lane + 32 * i];
            sums[0][i] += x.x * v;
            sums[1][i] += x.y * v;
            sums[2][i] += x.z * v;
            sums[3][i] += x.w * v;
        }
    }
    __syncwarp();
}

/* Writes the warp's own rows of sums, times `factor` of each. */
template <int I, typename T>
__device__ __forceinline__ void store_rows(T *to, int64_t stride, int rows, int size, const float (&sums)[OWN][I],
                                           const float (&factor)[OWN])
{
    const int first = threadIdx.x / 32 * OWN, lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < OWN; r++)
#pragma unroll
        for (int i = 0; i < I; i++)
            if (first + r < rows && lane + 32 * i < size)
                to[(first + r) * stride + lane + 32 * i] = from_float<T>(sums[r][i] * factor[r]);
}

__device__ __forceinline__ float warp_max(float x)
{
    for (int offset = 16; offset > 0; offset >>= 1)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}

/* Calls `f` with a type and a number of columns for each lane. */
template <typename F> cudaError_t with_columns(cuda_type type, int size, F f)
{
    return with_type(type, [&](auto zero) {
        return size <= 32    ? f(zero, Width<1>())
               : size <= 64  ? f(zero, Width<2>())
               : size <= 128 ? f(zero, Width<4>())
               : size <= 256 ? f(zero, Width<8>())
                             : cudaErrorInvalidValue;
    });
}

} // namespace

#endif
