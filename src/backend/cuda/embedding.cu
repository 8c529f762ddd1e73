/* Rows of tables, added up, and the gradient of a table.
 *
 * The gradient sums the rows of each id in the order of its tokens, without atomics, so that it is
 * the same from run to run and rows of zeros change nothing. Tokens are sorted by id (a stable
 * sort, so there is one result); where the tokens of an id begin, a block sums them all. Tables of
 * a few rows have thousands of tokens to each: there, blocks sum GROUP tokens for all rows, and a
 * second launch adds these parts up. */
#include <cub/device/device_radix_sort.cuh>

#include "backend/cuda/device.cuh"
#include "backend/cuda/text_kernels.h"

namespace
{

enum { THREADS = 256, SUM_THREADS = 128, CHUNK = 8, LOADS = 8, FEW_ROWS = 16, GROUP = 64 };

template <typename T, int V> __global__ void __launch_bounds__(THREADS) embedding_kernel(cuda_lookup e, T *y)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, vectors = e.features / V;
    if (at >= e.tokens * vectors)
        return;
    const int64_t token = at / vectors, column = at % vectors * V;
    float sum[V] = {};
    for (int i = 0; i < e.count; i++) {
        const int64_t id = e.ids[i][token];
        const bool valid = id >= 0 && id < e.rows[i];
        constexpr int PART = V % 4 == 0 ? 4 : V;
#pragma unroll
        for (int part = 0; part < V; part += PART) {
            const Vec<float, PART> row = load<float, PART>(e.tables[i] + (valid ? id : 0) * e.features + column + part);
#pragma unroll
            for (int k = 0; k < PART; k++)
                sum[part + k] += valid ? row.v[k] : NAN;
        }
    }
    Vec<T, V> out;
#pragma unroll
    for (int k = 0; k < V; k++)
        out.v[k] = from_float<T>(sum[k]);
    store<T, V>(y + at * V, out);
}

/* What is sorted; ids that are not in the table come last, as `rows`. */
__global__ void __launch_bounds__(THREADS)
    number_kernel(const int32_t *ids, int64_t tokens, int64_t rows, uint32_t *keys, int32_t *order)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= tokens)
        return;
    keys[i] = ids[i] >= 0 && ids[i] < rows ? (uint32_t)ids[i] : (uint32_t)rows;
    order[i] = (int32_t)i;
}

/* A block has the ids that begin at one of CHUNK places in the sorted list. */
template <typename T, int V>
__global__ void __launch_bounds__(SUM_THREADS)
    sum_sorted_kernel(const uint32_t *keys, const int32_t *order, int64_t tokens, int64_t features, int64_t rows,
                      const T *dy, float *dtable)
{
    const int64_t column = ((int64_t)blockIdx.y * SUM_THREADS + threadIdx.x) * V;
    if (column >= features)
        return;
    const int64_t first = (int64_t)blockIdx.x * CHUNK, end = first + CHUNK < tokens ? first + CHUNK : tokens;
    for (int64_t place = first; place < end; place++) {
        const uint32_t id = keys[place];
        if (id >= rows || (place > 0 && keys[place - 1] == id))
            continue;
        float sum[V] = {};
        bool more = true;
        for (int64_t at = place; more; at += LOADS) {
            Vec<T, V> in[LOADS];
            bool own[LOADS];
#pragma unroll
            for (int u = 0; u < LOADS; u++) {
                own[u] = at + u < tokens && keys[at + u] == id;
                if (own[u])
                    in[u] = load<T, V>(dy + (int64_t)order[at + u] * features + column);
            }
#pragma unroll
            for (int u = 0; u < LOADS; u++)
                if (own[u])
#pragma unroll
                    for (int k = 0; k < V; k++)
                        sum[k] += to_float(in[u].v[k]);
            more = own[LOADS - 1];
        }
#pragma unroll
        for (int k = 0; k < V; k++)
            dtable[(int64_t)id * features + column + k] = sum[k];
    }
}

/* Few rows: partial (groups, rows, features). */
template <typename T, int V>
__global__ void __launch_bounds__(SUM_THREADS)
    sum_groups_kernel(const int32_t *ids, int64_t tokens, int64_t features, int rows, const T *dy, float *partial)
{
    __shared__ int32_t own[GROUP];
    const int64_t column = ((int64_t)blockIdx.y * SUM_THREADS + threadIdx.x) * V;
    const int64_t first = (int64_t)blockIdx.x * GROUP;
    const int count = tokens - first < GROUP ? (int)(tokens - first) : GROUP;
    for (int i = threadIdx.x; i < count; i += SUM_THREADS)
        own[i] = ids[first + i];
    __syncthreads();
    if (column >= features)
        return;
    for (int row = 0; row < rows; row++) {
        float sum[V] = {};
        for (int i = 0; i < count; i += LOADS) {
            Vec<T, V> in[LOADS];
#pragma unroll
            for (int u = 0; u < LOADS; u++)
                if (i + u < count && own[i + u] == row)
                    in[u] = load<T, V>(dy + (first + i + u) * features + column);
#pragma unroll
            for (int u = 0; u < LOADS; u++)
                if (i + u < count && own[i + u] == row)
#pragma unroll
                    for (int k = 0; k < V; k++)
                        sum[k] += to_float(in[u].v[k]);
        }
        float *to = partial + ((int64_t)blockIdx.x * rows + row) * features + column;
#pragma unroll
        for (int k = 0; k < V; k++)
            to[k] = sum[k];
    }
}

__global__ void __launch_bounds__(SUM_THREADS)
    add_groups_kernel(const float *partial, int64_t groups, int64_t count, float *dtable)
{
    const int64_t i = (int64_t)blockIdx.x * SUM_THREADS + threadIdx.x;
    if (i >= count)
        return;
    float sum = 0;
#pragma unroll 16
    for (int64_t group = 0; group < groups; group++)
        sum += partial[group * count + i];
    dtable[i] = sum;
}

int bits_of(int64_t rows)
{
    int bits = 1;
    while (rows >> bits)
        bits++;
    return bits;
}

/* The parts of the scratch memory of a sort. */
struct Sorting {
    uint32_t *keys, *sorted_keys;
    int32_t *order, *sorted_order;
    void *memory;
    size_t memory_bytes, total_bytes;
};

cudaError_t lay_out(int64_t tokens, int64_t rows, void *memory, Sorting *s)
{
    const size_t list = ((size_t)tokens * sizeof(uint32_t) + 255) / 256 * 256;
    char *at = (char *)memory;
    s->keys = (uint32_t *)at;
    s->sorted_keys = (uint32_t *)(at + list);
    s->order = (int32_t *)(at + 2 * list);
    s->sorted_order = (int32_t *)(at + 3 * list);
    s->memory = at + 4 * list;
    s->memory_bytes = 0;
    cudaError_t error = cub::DeviceRadixSort::SortPairs(nullptr, s->memory_bytes, s->keys, s->sorted_keys, s->order,
                                                        s->sorted_order, (int)tokens, 0, bits_of(rows));
    s->total_bytes = 4 * list + s->memory_bytes;
    return error;
}

template <typename T, int V>
cudaError_t sum_few_rows(cudaStream_t stream, int64_t tokens, int64_t features, int64_t rows, const int32_t *ids,
                         const T *dy, float *dtable, float *partial)
{
    const int64_t groups = ceil_div(tokens, GROUP), count = rows * features;
    const dim3 grid((unsigned)groups, (unsigned)ceil_div(features, SUM_THREADS * V));
    sum_groups_kernel<T, V><<<grid, SUM_THREADS, 0, stream>>>(ids, tokens, features, (int)rows, dy, partial);
    add_groups_kernel<<<(unsigned)ceil_div(count, SUM_THREADS), SUM_THREADS, 0, stream>>>(partial, groups, count,
                                                                                          dtable);
    return cudaGetLastError();
}

template <typename T, int V>
cudaError_t sum_by_sorting(cudaStream_t stream, int64_t tokens, int64_t features, int64_t rows, const int32_t *ids,
                           const T *dy, float *dtable, void *scratch)
{
    Sorting s;
    cudaError_t error = lay_out(tokens, rows, scratch, &s);
    if (error == cudaSuccess)
        error = cudaMemsetAsync(dtable, 0, (size_t)(rows * features) * sizeof(float), stream);
    if (error != cudaSuccess)
        return error;
    number_kernel<<<(unsigned)ceil_div(tokens, THREADS), THREADS, 0, stream>>>(ids, tokens, rows, s.keys, s.order);
    error = cub::DeviceRadixSort::SortPairs(s.memory, s.memory_bytes, s.keys, s.sorted_keys, s.order, s.sorted_order,
                                            (int)tokens, 0, bits_of(rows), stream);
    if (error != cudaSuccess)
        return error;
    const dim3 grid((unsigned)ceil_div(tokens, CHUNK), (unsigned)ceil_div(features, SUM_THREADS * V));
    sum_sorted_kernel<T, V>
        <<<grid, SUM_THREADS, 0, stream>>>(s.sorted_keys, s.sorted_order, tokens, features, rows, dy, dtable);
    return cudaGetLastError();
}

} // namespace

extern "C" {

cudaError_t cuda_launch_embedding(const cuda_launch *launch, const cuda_lookup *e, void *y)
{
    return with_vectors(e->type, e->features, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value;
        const int64_t blocks = ceil_div(e->tokens * (e->features / V), THREADS);
        embedding_kernel<T, V><<<(unsigned)blocks, THREADS, 0, launch->stream>>>(*e, (T *)y);
        return cudaGetLastError();
    });
}

cudaError_t cuda_embedding_grad_scratch_bytes(int64_t tokens, int64_t features, int64_t rows, size_t *size_bytes)
{
    Sorting s = {};
    if (rows <= FEW_ROWS) {
        *size_bytes = (size_t)(ceil_div(tokens, GROUP) * rows * features) * sizeof(float);
        return cudaSuccess;
    }
    cudaError_t error = lay_out(tokens, rows, NULL, &s);
    *size_bytes = s.total_bytes;
    return error;
}

cudaError_t cuda_launch_embedding_grad(const cuda_launch *launch, cuda_type type, int64_t tokens, int64_t features,
                                       int64_t rows, const int32_t *ids, const void *dy, float *dtable, void *scratch)
{
    return with_vectors(type, features, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value;
        return rows <= FEW_ROWS
                   ? sum_few_rows<T, V>(launch->stream, tokens, features, rows, ids, (const T *)dy, dtable,
                                        (float *)scratch)
                   : sum_by_sorting<T, V>(launch->stream, tokens, features, rows, ids, (const T *)dy, dtable, scratch);
    });
}

} // extern "C"
