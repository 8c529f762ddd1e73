/* Rows of tables, added up, and the gradient of a table.
 *
 * The gradient sums the rows of each id in the order of its tokens, without atomics: tokens are sorted by id (a stable
 * sort, so there is one result), and a block sums CHUNK of them, writing a row of the table where all tokens of an id are
 * its own. An id whose tokens lie in several chunks leaves a part in each: in `head` where it began before the chunk, in
 * `tail` where it begins in it and goes on; the second launch adds these up. */
#include <cub/device/device_radix_sort.cuh>

#include "backend/cuda/device.cuh"
#include "backend/cuda/text_kernels.h"

namespace
{

enum { THREADS = 256, CHUNK = 32, LOADS = 8, COMBINE_THREADS = 128, COMBINE_GROUPS = 8 };

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

/* scratch: (chunks, 2, features), head and tail. */
template <typename T, int V>
__global__ void __launch_bounds__(COMBINE_THREADS)
    sum_chunks_kernel(const uint32_t *keys, const int32_t *order, int64_t tokens, int64_t features, int64_t rows,
                      const T *dy, float *dtable, float *partial)
{
    __shared__ uint32_t key[CHUNK + 2]; /* with those before and after the chunk */
    __shared__ int32_t from[CHUNK];
    const uint32_t none = 0xffffffffu;
    const int64_t first = (int64_t)blockIdx.x * CHUNK;
    const int count = tokens - first < CHUNK ? (int)(tokens - first) : CHUNK;
    for (int i = threadIdx.x; i < CHUNK + 2; i += COMBINE_THREADS) {
        const int64_t at = first + i - 1;
        key[i] = at >= 0 && at < tokens ? keys[at] : none;
        if (i >= 1 && i <= count)
            from[i - 1] = order[at];
    }
    __syncthreads();
    const int64_t column = ((int64_t)blockIdx.y * COMBINE_THREADS + threadIdx.x) * V;
    if (column >= features)
        return;
    float sum[V] = {};
    bool began_here = key[0] != key[1];
    for (int i = 0; i < count; i += LOADS) {
        Vec<T, V> in[LOADS];
#pragma unroll
        for (int u = 0; u < LOADS; u++)
            if (i + u < count)
                in[u] = load<T, V>(dy + (int64_t)from[i + u] * features + column);
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
            if (i + u >= count)
                break;
#pragma unroll
            for (int k = 0; k < V; k++)
                sum[k] += to_float(in[u].v[k]);
            const uint32_t id = key[i + u + 1];
            const bool ends = id != key[i + u + 2];
            if (!ends && i + u < count - 1)
                continue;
            float *to = began_here && ends ? dtable + (int64_t)id * features
                                           : partial + ((int64_t)blockIdx.x * 2 + (began_here ? 1 : 0)) * features;
            if (id < rows)
#pragma unroll
                for (int k = 0; k < V; k++)
                    to[column + k] = sum[k];
#pragma unroll
            for (int k = 0; k < V; k++)
                sum[k] = 0;
            began_here = true;
        }
    }
}

/* For the id that begins in a chunk and goes on behind it. The parts are dealt to COMBINE_GROUPS groups of threads. */
__global__ void __launch_bounds__(COMBINE_THREADS)
    combine_chunks_kernel(const uint32_t *keys, int64_t tokens, int64_t features, int64_t rows, const float *partial,
                          float *dtable)
{
    __shared__ float sums[COMBINE_GROUPS][COMBINE_THREADS / COMBINE_GROUPS];
    constexpr int WIDTH = COMBINE_THREADS / COMBINE_GROUPS;
    const int64_t chunks = ceil_div(tokens, CHUNK), chunk = blockIdx.x;
    const int64_t first = chunk * CHUNK, next = first + CHUNK;
    if (next >= tokens || keys[next - 1] != keys[next])
        return; /* nothing goes on */
    const uint32_t id = keys[next];
    if (id >= rows || (keys[first] == id && first > 0 && keys[first - 1] == id))
        return;               /* it began before */
    int64_t last = chunk + 1; /* the chunk in which it ends: the first whose last token is of another id, or the last */
    {
        int64_t low = chunk + 1, high = chunks - 1; /* keys are sorted */
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (keys[(middle + 1) * CHUNK - 1] == id && keys[(middle + 1) * CHUNK] == id)
                low = middle + 1;
            else
                high = middle;
        }
        last = low;
    }
    const int group = threadIdx.x / WIDTH, lane = threadIdx.x % WIDTH;
    const int64_t column = (int64_t)blockIdx.y * WIDTH + lane;
    const int64_t parts = last - chunk, each = ceil_div(parts, COMBINE_GROUPS);
    const int64_t begin = group * each, end = begin + each < parts ? begin + each : parts;
    float sum = 0;
    if (column < features) {
        if (group == 0)
            sum = partial[(chunk * 2 + 1) * features + column];
#pragma unroll 8
        for (int64_t i = begin; i < end; i++)
            sum += partial[(chunk + 1 + i) * 2 * features + column];
    }
    sums[group][lane] = sum;
    __syncthreads();
    if (group > 0 || column >= features)
        return;
    for (int g = 1; g < COMBINE_GROUPS; g++)
        sum += sums[g][lane];
    dtable[(int64_t)id * features + column] = sum;
}

int bits_of(int64_t rows)
{
    int bits = 1;
    while (rows >> bits)
        bits++;
    return bits;
}

/* The parts of the scratch memory. */
struct Scratch {
    uint32_t *keys, *sorted_keys;
    int32_t *order, *sorted_order;
    float *partial;
    void *sort;
    size_t sort_bytes, total_bytes;
};

cudaError_t lay_out(int64_t tokens, int64_t features, int64_t rows, void *memory, Scratch *s)
{
    const size_t list = ((size_t)tokens * sizeof(uint32_t) + 255) / 256 * 256;
    const size_t partial = (size_t)ceil_div(tokens, CHUNK) * 2 * (size_t)features * sizeof(float);
    char *at = (char *)memory;
    s->keys = (uint32_t *)at;
    s->sorted_keys = (uint32_t *)(at + list);
    s->order = (int32_t *)(at + 2 * list);
    s->sorted_order = (int32_t *)(at + 3 * list);
    s->partial = (float *)(at + 4 * list);
    s->sort = at + 4 * list + (partial + 255) / 256 * 256;
    s->sort_bytes = 0;
    cudaError_t error = cub::DeviceRadixSort::SortPairs(nullptr, s->sort_bytes, s->keys, s->sorted_keys, s->order,
                                                        s->sorted_order, (int)tokens, 0, bits_of(rows));
    s->total_bytes = 4 * list + (partial + 255) / 256 * 256 + s->sort_bytes;
    return error;
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
    Scratch s;
    cudaError_t error = lay_out(tokens, features, rows, NULL, &s);
    *size_bytes = s.total_bytes;
    return error;
}

cudaError_t cuda_launch_embedding_grad(const cuda_launch *launch, cuda_type type, int64_t tokens, int64_t features,
                                       int64_t rows, const int32_t *ids, const void *dy, float *dtable, void *scratch)
{
    Scratch s;
    cudaError_t error = lay_out(tokens, features, rows, scratch, &s);
    if (error == cudaSuccess)
        error = cudaMemsetAsync(dtable, 0, (size_t)(rows * features) * sizeof(float), launch->stream);
    if (error != cudaSuccess)
        return error;
    number_kernel<<<(unsigned)ceil_div(tokens, THREADS), THREADS, 0, launch->stream>>>(ids, tokens, rows, s.keys,
                                                                                       s.order);
    error = cub::DeviceRadixSort::SortPairs(s.sort, s.sort_bytes, s.keys, s.sorted_keys, s.order, s.sorted_order,
                                            (int)tokens, 0, bits_of(rows), launch->stream);
    if (error != cudaSuccess)
        return error;
    error = with_vectors(type, features, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value;
        const dim3 grid((unsigned)ceil_div(tokens, CHUNK), (unsigned)ceil_div(features, COMBINE_THREADS * V));
        sum_chunks_kernel<T, V><<<grid, COMBINE_THREADS, 0, launch->stream>>>(
            s.sorted_keys, s.sorted_order, tokens, features, rows, (const T *)dy, dtable, s.partial);
        return cudaGetLastError();
    });
    if (error != cudaSuccess)
        return error;
    const dim3 grid((unsigned)ceil_div(tokens, CHUNK), (unsigned)ceil_div(features, COMBINE_THREADS / COMBINE_GROUPS));
    combine_chunks_kernel<<<grid, COMBINE_THREADS, 0, launch->stream>>>(s.sorted_keys, tokens, features, rows,
                                                                        s.partial, dtable);
    return cudaGetLastError();
}

} // extern "C"
