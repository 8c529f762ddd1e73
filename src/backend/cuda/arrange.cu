/* Copies of strided tensors, and entries of an axis by indices.
 *
 * A copy whose last loop is adjacent on both sides is made of the widest items, up to 16 bytes,
 * that all distances allow. One that turns rows into columns goes through tiles in shared memory,
 * so that both sides are read and written by whole lines. */
#include "backend/cuda/arrange_kernels.h"
#include "backend/cuda/device.cuh"

namespace
{

enum { THREADS = 256, ITEMS_OF_THREAD = 4, TILE = 32, TILE_ROWS = 8 };

/* Divides numbers below 2^31 by a constant, with one multiplication. */
struct Divisor {
    uint32_t by, factor, shift;
};

Divisor divisor_of(int64_t by)
{
    Divisor d = {(uint32_t)by, 0, 0};
    while ((UINT64_C(1) << d.shift) < (uint64_t)by)
        d.shift++;
    d.factor = (uint32_t)(((UINT64_C(1) << 32) * ((UINT64_C(1) << d.shift) - (uint64_t)by)) / (uint64_t)by + 1);
    return d;
}

__device__ __forceinline__ uint32_t divide(uint32_t number, const Divisor &d)
{
    return (__umulhi(number, d.factor) + number) >> d.shift;
}

/* The loops around items, or around tiles, from the innermost. */
struct Loops {
    int rank;
    Divisor sizes[CUDA_COPY_RANK];
    int64_t from[CUDA_COPY_RANK], to[CUDA_COPY_RANK];
    int64_t from_begin, to_begin;

    __device__ __forceinline__ void find(uint32_t number, int64_t &f, int64_t &t) const
    {
        f = from_begin;
        t = to_begin;
#pragma unroll
        for (int i = 0; i < CUDA_COPY_RANK; i++) {
            if (i >= rank)
                break;
            const uint32_t whole = i == rank - 1 ? 0 : divide(number, sizes[i]);
            const uint32_t digit = number - whole * sizes[i].by;
            f += digit * from[i];
            t += digit * to[i];
            number = whole;
        }
    }
};

template <typename T, bool FILLS>
__global__ void __launch_bounds__(THREADS) copy_kernel(const T *from, T *to, Loops loops, uint32_t count, T filling)
{
    const uint64_t first = (uint64_t)blockIdx.x * (THREADS * ITEMS_OF_THREAD) + threadIdx.x;
    T items[ITEMS_OF_THREAD];
    int64_t places[ITEMS_OF_THREAD];
#pragma unroll
    for (int k = 0; k < ITEMS_OF_THREAD; k++) {
        const uint64_t i = first + (uint64_t)k * THREADS;
        int64_t f;
        if (i >= count)
            continue;
        loops.find((uint32_t)i, f, places[k]);
        items[k] = FILLS ? filling : from[f];
    }
#pragma unroll
    for (int k = 0; k < ITEMS_OF_THREAD; k++)
        if (first + (uint64_t)k * THREADS < count)
            to[places[k]] = items[k];
}

/* from: `rows` of `columns` adjacent items, `from_row` apart; to: the reverse. */
template <typename T>
__global__ void __launch_bounds__(TILE *TILE_ROWS)
    transpose_kernel(const T *from, T *to, Loops loops, int64_t rows, int64_t columns, int64_t from_row, int64_t to_row,
                     uint32_t tiles_down, uint32_t tiles_across)
{
    __shared__ T tile[TILE][TILE + 1];
    const uint32_t across = blockIdx.x % tiles_across, rest = blockIdx.x / tiles_across, down = rest % tiles_down;
    const int64_t row = (int64_t)down * TILE, column = (int64_t)across * TILE;
    int64_t f, t;
    loops.find(rest / tiles_down, f, t);
    for (int r = threadIdx.y; r < TILE; r += TILE_ROWS)
        if (row + r < rows && column + threadIdx.x < columns)
            tile[r][threadIdx.x] = from[f + (row + r) * from_row + column + threadIdx.x];
    __syncthreads();
    for (int c = threadIdx.y; c < TILE; c += TILE_ROWS)
        if (column + c < columns && row + threadIdx.x < rows)
            to[t + (column + c) * to_row + row + threadIdx.x] = tile[threadIdx.x][c];
}

/* Items so many times as wide, if all distances allow it. */
bool widen(cuda_strided *c, int times)
{
    const int last = c->rank - 1;
    bool possible = c->from_begin % times == 0 && c->to_begin % times == 0;
    if (c->rank == 0 || c->to[last] != 1 || (c->from[last] != 1 && !c->fills) || c->sizes[last] % times != 0)
        return false;
    for (int i = 0; i < last; i++)
        possible = possible && (c->fills || c->from[i] % times == 0) && c->to[i] % times == 0;
    if (!possible)
        return false;
    for (int i = 0; i < last; i++) {
        c->from[i] /= times;
        c->to[i] /= times;
    }
    c->sizes[last] /= times;
    c->from_begin /= times;
    c->to_begin /= times;
    c->item_bytes *= times;
    return true;
}

/* All loops but two, which may be -1. */
Loops loops_of(const cuda_strided &c, int without, int and_without)
{
    Loops l = {};
    for (int i = c.rank - 1; i >= 0; i--) {
        if (i == without || i == and_without)
            continue;
        l.sizes[l.rank] = divisor_of(c.sizes[i]);
        l.from[l.rank] = c.from[i];
        l.to[l.rank] = c.to[i];
        l.rank++;
    }
    l.from_begin = c.from_begin;
    l.to_begin = c.to_begin;
    return l;
}

template <typename T> T repeat(uint32_t filling, int item_bytes)
{
    T value;
    unsigned char *bytes = (unsigned char *)&value;
    for (size_t i = 0; i < sizeof value; i++)
        bytes[i] = (unsigned char)(filling >> (8 * (i % (size_t)item_bytes)));
    return value;
}

template <typename T>
cudaError_t launch_copy(cudaStream_t stream, const cuda_strided &c, int64_t count, int filling_bytes, const void *from,
                        void *to)
{
    const unsigned blocks = (unsigned)ceil_div(count, THREADS * ITEMS_OF_THREAD);
    if (c.fills)
        copy_kernel<T, true><<<blocks, THREADS, 0, stream>>>(nullptr, (T *)to, loops_of(c, -1, -1), (uint32_t)count,
                                                             repeat<T>(c.filling, filling_bytes));
    else
        copy_kernel<T, false>
            <<<blocks, THREADS, 0, stream>>>((const T *)from, (T *)to, loops_of(c, -1, -1), (uint32_t)count, T());
    return cudaGetLastError();
}

template <typename T>
cudaError_t launch_transpose(cudaStream_t stream, const cuda_strided &c, int row_loop, int64_t count, const void *from,
                             void *to)
{
    const int last = c.rank - 1; /* adjacent in the result; row_loop is in the source */
    const int64_t rows = c.sizes[last], columns = c.sizes[row_loop];
    const int64_t down = ceil_div(rows, TILE), across = ceil_div(columns, TILE),
                  blocks = count / rows / columns * down * across;
    if (blocks > INT32_MAX)
        return cudaErrorInvalidValue;
    transpose_kernel<T><<<(unsigned)blocks, dim3(TILE, TILE_ROWS), 0, stream>>>(
        (const T *)from, (T *)to, loops_of(c, last, row_loop), rows, columns, c.from[last], c.to[row_loop],
        (uint32_t)down, (uint32_t)across);
    return cudaGetLastError();
}

/* The loop that is adjacent in the source while another is in the result, and both are long enough
 * for tiles; -1: none. */
int find_row_loop(const cuda_strided &c)
{
    const int last = c.rank - 1;
    if (c.fills || c.rank < 2 || c.to[last] != 1 || c.from[last] == 1 || c.sizes[last] < 4)
        return -1;
    for (int i = 0; i < last; i++)
        if (c.from[i] == 1 && c.sizes[i] >= 4)
            return i;
    return -1;
}

/* ---- entries of an axis ---- */

template <typename T>
__global__ void __launch_bounds__(THREADS) gather_kernel(const T *x, const int32_t *indices, T *y, int64_t count,
                                                         int64_t from_size, int64_t to_size, int64_t inner)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (int64_t)gridDim.x * THREADS) {
        const int64_t row = i / inner, n = row / to_size;
        y[i] = x[(n * from_size + indices[row - n * to_size]) * inner + (i - row * inner)];
    }
}

/* Each sum is of one thread, in order. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    add_entries_kernel(const T *dy, const int32_t *order, const int32_t *ends, T *dx, int64_t count, int64_t from_size,
                       int64_t to_size, int64_t inner)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (int64_t)gridDim.x * THREADS) {
        const int64_t row = i / inner, n = row / to_size, entry = row - n * to_size, j = i - row * inner;
        float sum = 0;
        for (int32_t e = entry == 0 ? 0 : ends[entry - 1]; e < ends[entry]; e++)
            sum += to_float(dy[(n * from_size + order[e]) * inner + j]);
        dx[i] = from_float<T>(sum);
    }
}

unsigned blocks_for(int64_t count)
{
    const int64_t blocks = ceil_div(count, THREADS);
    return (unsigned)(blocks < 65536 ? blocks : 65536);
}

template <typename T>
cudaError_t launch_gather(cudaStream_t stream, const cuda_entries &e, const void *x, const int32_t *indices, void *y)
{
    const int64_t count = e.outer * e.to_size * e.inner;
    gather_kernel<T><<<blocks_for(count), THREADS, 0, stream>>>((const T *)x, indices, (T *)y, count, e.from_size,
                                                                e.to_size, e.inner);
    return cudaGetLastError();
}

} // namespace

extern "C" {

cudaError_t cuda_launch_strided_copy(cudaStream_t stream, const cuda_strided *copy, const void *from, void *to)
{
    cuda_strided c = *copy;
    int64_t count = 1;
    for (int times = 16 / copy->item_bytes; times > 1 && !widen(&c, times); times /= 2)
        ;
    for (int i = 0; i < c.rank; i++)
        count *= c.sizes[i];
    if (count == 0)
        return cudaSuccess;
    if (count > INT32_MAX) /* beyond 8 GB of whole vectors */
        return cudaErrorInvalidValue;
    const int row_loop = find_row_loop(c);
    if (row_loop >= 0)
        return c.item_bytes == 2 ? launch_transpose<uint16_t>(stream, c, row_loop, count, from, to)
                                 : launch_transpose<uint32_t>(stream, c, row_loop, count, from, to);
    switch (c.item_bytes) {
    case 2: return launch_copy<uint16_t>(stream, c, count, copy->item_bytes, from, to);
    case 4: return launch_copy<uint32_t>(stream, c, count, copy->item_bytes, from, to);
    case 8: return launch_copy<uint2>(stream, c, count, copy->item_bytes, from, to);
    default: return launch_copy<uint4>(stream, c, count, copy->item_bytes, from, to);
    }
}

cudaError_t cuda_launch_gather_entries(cudaStream_t stream, const cuda_entries *e, const void *x,
                                       const int32_t *indices, void *y)
{
    cuda_entries wide = *e;
    int64_t bytes = e->type == CUDA_TYPE_F32 || e->type == CUDA_TYPE_I32 ? 4 : 2;
    while (bytes < 16 && wide.inner % 2 == 0) {
        wide.inner /= 2;
        bytes *= 2;
    }
    switch (bytes) {
    case 2: return launch_gather<uint16_t>(stream, wide, x, indices, y);
    case 4: return launch_gather<uint32_t>(stream, wide, x, indices, y);
    case 8: return launch_gather<uint2>(stream, wide, x, indices, y);
    default: return launch_gather<uint4>(stream, wide, x, indices, y);
    }
}

cudaError_t cuda_launch_add_entries(cudaStream_t stream, const cuda_entries *e, const void *dy, const int32_t *order,
                                    const int32_t *ends, void *dx)
{
    const int64_t count = e->outer * e->to_size * e->inner;
    return with_type(e->type, [&](auto zero) {
        using T = decltype(zero);
        add_entries_kernel<T><<<blocks_for(count), THREADS, 0, stream>>>((const T *)dy, order, ends, (T *)dx, count,
                                                                         e->from_size, e->to_size, e->inner);
        return cudaGetLastError();
    });
}

} // extern "C"
