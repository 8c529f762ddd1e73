/* Attention among sequences of one length, with all that it may have: separate queries, keys and
 * values, a mask, causal. f32 arithmetic on tiles of rows (attention_rows.cuh); what attention.cu
 * can do on tensor cores is left to it. */
#include "backend/cuda/attention_rows.cuh"

namespace
{

/* One head of one sequence, and the block's own rows in it. */
template <typename T> struct Head {
    int64_t sequence;
    int head, first; /* of the block's rows */
    int64_t y_stride;
    const T *query, *key, *value; /* the first row's */
    const float *mask;            /* or NULL */
    int64_t mask_step;            /* from query to query */

    __device__ Head(const cuda_product_attention &a, int tiles)
        : sequence(blockIdx.x / tiles), head(blockIdx.y), first(blockIdx.x % tiles * ROWS),
          y_stride((int64_t)a.heads * a.value_size)
    {
        query = (const T *)a.query + query_at(a);
        key = (const T *)a.key + key_at(a);
        value = (const T *)a.value + value_at(a);
        mask = nullptr;
        mask_step = a.mask_queries > 1 ? a.keys : 0;
        if (a.mask_entries > 0) {
            const int64_t part = sequence % a.mask_entries * a.mask_heads + head % a.mask_heads;
            mask = a.mask + part * a.mask_queries * a.keys;
        }
    }
    __device__ int64_t query_at(const cuda_product_attention &a) const
    {
        return sequence * a.queries * a.query_stride + head * a.size;
    }
    __device__ int64_t key_at(const cuda_product_attention &a) const
    {
        return sequence * a.keys * a.key_stride + head * a.size;
    }
    __device__ int64_t value_at(const cuda_product_attention &a) const
    {
        return sequence * a.keys * a.value_stride + head * a.value_size;
    }
    __device__ int64_t y_at(const cuda_product_attention &a) const
    {
        return sequence * a.queries * y_stride + head * a.value_size;
    }
    /* The scaled and masked score of a product; -infinity where the query does not see the key. */
    __device__ float score(const cuda_product_attention &a, float product, int q, int k) const
    {
        if (q >= a.queries || k >= a.keys || (a.causal && k > q))
            return -INFINITY;
        return product * a.scale + (mask ? mask[q * mask_step + k] : 0);
    }
};

/* Which probabilities of a query are kept: fth_attention_keeps() by way of Keeper. */
struct Drop {
    AttentionSizes sizes;
    uint64_t key;
    bool drops;

    __device__ Drop(const cuda_product_attention &a, const cuda_run_values *run) : sizes(), key(0)
    {
        drops = a.probability > 0;
        sizes.heads = a.heads;
        sizes.dropout.run = run;
        sizes.dropout.origin = a.origin;
        sizes.dropout.id = a.dropout;
        sizes.dropout.threshold = a.threshold;
        sizes.dropout.scale = 1;
        if (drops) {
            key = dropout_key(run, a.dropout);
            sizes.dropout.scale = 1 / (1 - a.probability);
        }
    }
    /* 0, or what a kept probability is multiplied with; `row` is the query's among all. */
    __device__ float factor(int64_t row, int head, int k) const
    {
        return !drops || (sizes.dropout.threshold == 0 || Keeper(key, sizes, row, head).keeps(k)) ? sizes.dropout.scale
                                                                                                  : 0;
    }
};

/* Keys that queries before `end` see. */
__device__ __forceinline__ int seen_keys(const cuda_product_attention &a, int end)
{
    return a.causal && end < a.keys ? end : a.keys;
}

template <int I> struct ProductForward {
    Matrix<I> query, key, value;
    Weights weights;
};

template <typename T, int I>
__global__ void __launch_bounds__(THREADS)
    product_kernel(cuda_product_attention a, int tiles, T *y, float *statistics, const cuda_run_values *run)
{
    extern __shared__ __align__(16) unsigned char memory[];
    ProductForward<I> &shared = *reinterpret_cast<ProductForward<I> *>(memory);
    const Head<T> at(a, tiles);
    const Drop drop(a, run);
    const int own = threadIdx.x / 32 * OWN, lane = threadIdx.x % 32, here = a.queries - at.first;
    float out[OWN][I] = {}, largest[OWN], sum[OWN] = {}, factor[OWN];
    for (int r = 0; r < OWN; r++)
        largest[r] = -INFINITY;
    load_rows(shared.query, at.query + at.first * a.query_stride, a.query_stride, here, a.size);
    const int seen = seen_keys(a, at.first + ROWS);
    for (int k = 0; k < seen; k += ROWS) {
        load_rows(shared.key, at.key + k * a.key_stride, a.key_stride, a.keys - k, a.size);
        load_rows(shared.value, at.value + k * a.value_stride, a.value_stride, a.keys - k, a.value_size);
        __syncthreads();
        float s[OWN];
        multiply(s, shared.query, shared.key);
#pragma unroll
        for (int r = 0; r < OWN; r++) {
            const int q = at.first + own + r;
            s[r] = at.score(a, s[r], q, k + lane);
            const float now = fmaxf(largest[r], warp_max(s[r])), offset = now == -INFINITY ? 0 : now;
            const float before = expf(largest[r] - offset), p = expf(s[r] - offset);
            largest[r] = now;
            sum[r] = sum[r] * before + p;
            for (int i = 0; i < I; i++)
                out[r][i] *= before;
            s[r] = p * (drop.factor(at.sequence * a.queries + q, at.head, k + lane) > 0);
        }
        add_rows(out, s, shared.value, shared.weights);
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        const float total = warp_sum(sum[r]);
        factor[r] = total == 0 ? 0 : drop.sizes.dropout.scale / total;
        if (statistics && lane == 0 && own + r < here)
            statistics[(at.sequence * a.queries + at.first + own + r) * a.heads + at.head] =
                total == 0 ? INFINITY : largest[r] + logf(total);
    }
    store_rows(y + at.y_at(a) + at.first * at.y_stride, at.y_stride, here, a.value_size, out, factor);
}

template <int I> struct ProductBackward {
    Matrix<I> query, key, value, dy;
    Weights weights;
};

/* dquery, and delta for the kernels below: the sum of dy * y over a row's numbers of this head. */
template <typename T, int I>
__global__ void __launch_bounds__(THREADS)
    product_grad_query_kernel(cuda_product_attention a, int tiles, const T *y, const float *statistics, const T *dy,
                              T *dquery, float *delta, const cuda_run_values *run)
{
    extern __shared__ __align__(16) unsigned char memory[];
    ProductBackward<I> &shared = *reinterpret_cast<ProductBackward<I> *>(memory);
    const Head<T> at(a, tiles);
    const Drop drop(a, run);
    const int own = threadIdx.x / 32 * OWN, lane = threadIdx.x % 32, here = a.queries - at.first;
    const int64_t first_row = at.sequence * a.queries + at.first;
    y += at.y_at(a) + at.first * at.y_stride;
    dy += at.y_at(a) + at.first * at.y_stride;
    float dq[OWN][I] = {}, row_delta[OWN], row_statistics[OWN], factor[OWN];
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        const bool there = own + r < here;
        float sum = 0;
        for (int d = lane; there && d < a.value_size; d += 32)
            sum += to_float(y[(own + r) * at.y_stride + d]) * to_float(dy[(own + r) * at.y_stride + d]);
        row_delta[r] = warp_sum(sum);
        row_statistics[r] = there ? statistics[(first_row + own + r) * a.heads + at.head] : 0;
        factor[r] = a.scale;
        if (there && lane == 0)
            delta[(first_row + own + r) * a.heads + at.head] = row_delta[r];
    }
    load_rows(shared.query, at.query + at.first * a.query_stride, a.query_stride, here, a.size);
    load_rows(shared.dy, dy, at.y_stride, here, a.value_size);
    const int seen = seen_keys(a, at.first + ROWS);
    for (int k = 0; k < seen; k += ROWS) {
        load_rows(shared.key, at.key + k * a.key_stride, a.key_stride, a.keys - k, a.size);
        load_rows(shared.value, at.value + k * a.value_stride, a.value_stride, a.keys - k, a.value_size);
        __syncthreads();
        float s[OWN], dp[OWN];
        multiply(s, shared.query, shared.key);
        multiply(dp, shared.dy, shared.value);
#pragma unroll
        for (int r = 0; r < OWN; r++) {
            const float p = expf(at.score(a, s[r], at.first + own + r, k + lane) - row_statistics[r]);
            const float kept = drop.factor(first_row + own + r, at.head, k + lane);
            s[r] = p * ((kept > 0 ? dp[r] * kept : 0) - row_delta[r]);
        }
        add_rows(dq, s, shared.key, shared.weights);
        __syncthreads();
    }
    store_rows(dquery + at.query_at(a) + at.first * a.query_stride, a.query_stride, here, a.size, dq, factor);
}

/* dkey and dvalue: the block's own rows are keys. */
template <typename T, int I>
__global__ void __launch_bounds__(THREADS)
    product_grad_key_kernel(cuda_product_attention a, int tiles, const float *statistics, const T *dy,
                            const float *delta, T *dkey, T *dvalue, const cuda_run_values *run)
{
    extern __shared__ __align__(16) unsigned char memory[];
    ProductBackward<I> &shared = *reinterpret_cast<ProductBackward<I> *>(memory);
    const Head<T> at(a, tiles);
    const Drop drop(a, run);
    const int own = threadIdx.x / 32 * OWN, lane = threadIdx.x % 32, here = a.keys - at.first;
    dy += at.y_at(a);
    float dk[OWN][I] = {}, dv[OWN][I] = {}, by_scale[OWN], by_one[OWN];
    load_rows(shared.key, at.key + at.first * a.key_stride, a.key_stride, here, a.size);
    load_rows(shared.value, at.value + at.first * a.value_stride, a.value_stride, here, a.value_size);
    for (int q = a.causal ? at.first : 0; q < a.queries; q += ROWS) {
        const int queries = a.queries - q;
        const int64_t row = at.sequence * a.queries + q + lane;
        load_rows(shared.query, at.query + q * a.query_stride, a.query_stride, queries, a.size);
        load_rows(shared.dy, dy + q * at.y_stride, at.y_stride, queries, a.value_size);
        const float row_statistics = lane < queries ? statistics[row * a.heads + at.head] : 0;
        const float row_delta = lane < queries ? delta[row * a.heads + at.head] : 0;
        __syncthreads();
        float s[OWN], dp[OWN];
        multiply(s, shared.key, shared.query);
        multiply(dp, shared.value, shared.dy);
#pragma unroll
        for (int r = 0; r < OWN; r++) {
            const int k = at.first + own + r;
            const float p = expf(at.score(a, s[r], q + lane, k) - row_statistics);
            const float kept = drop.factor(row, at.head, k);
            s[r] = p * kept;
            dp[r] = p * ((kept > 0 ? dp[r] * kept : 0) - row_delta);
        }
        add_rows(dv, s, shared.dy, shared.weights);
        add_rows(dk, dp, shared.query, shared.weights);
        __syncthreads();
    }
    for (int r = 0; r < OWN; r++) {
        by_scale[r] = a.scale;
        by_one[r] = 1;
    }
    store_rows(dkey + at.key_at(a) + at.first * a.key_stride, a.key_stride, here, a.size, dk, by_scale);
    store_rows(dvalue + at.value_at(a) + at.first * a.value_stride, a.value_stride, here, a.value_size, dv, by_one);
}

/* A thread has one number of the mask's gradient, and goes over the queries, sequences and heads
 * that have it in common. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    product_grad_mask_kernel(cuda_product_attention a, const float *statistics, const T *dy, const float *delta,
                             float *dmask, const cuda_run_values *run)
{
    const Drop drop(a, run);
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, count = a.mask_entries * a.mask_heads;
    if (i >= count * a.mask_queries * a.keys)
        return;
    const int k = (int)(i % a.keys), masked = (int)(i / a.keys % a.mask_queries);
    const int64_t part = i / a.keys / a.mask_queries, y_stride = (int64_t)a.heads * a.value_size;
    const int first = a.mask_queries > 1 ? masked : 0, end = a.mask_queries > 1 ? masked + 1 : a.queries;
    float sum = 0;
    for (int64_t b = part / a.mask_heads; b < a.sequences; b += a.mask_entries)
        for (int h = (int)(part % a.mask_heads); h < a.heads; h += a.mask_heads)
            for (int q = a.causal && k > first ? k : first; q < end; q++) {
                const int64_t row = b * a.queries + q;
                const T *query = (const T *)a.query + row * a.query_stride + h * a.size;
                const T *key = (const T *)a.key + (b * a.keys + k) * a.key_stride + h * a.size;
                const T *value = (const T *)a.value + (b * a.keys + k) * a.value_stride + h * a.value_size;
                const T *slope = dy + row * y_stride + h * a.value_size;
                float score = 0, dp = 0;
                for (int d = 0; d < a.size; d++)
                    score += to_float(query[d]) * to_float(key[d]);
                for (int d = 0; d < a.value_size; d++)
                    dp += to_float(slope[d]) * to_float(value[d]);
                const float p = expf(score * a.scale + a.mask[i] - statistics[row * a.heads + h]);
                const float kept = drop.factor(row, h, k);
                sum += p * ((kept > 0 ? dp * kept : 0) - delta[row * a.heads + h]);
            }
    dmask[i] = sum;
}

} // namespace

extern "C" {

size_t cuda_product_attention_scratch_bytes(const cuda_product_attention *a)
{
    return uses_tensor_cores(a) ? fast_product_scratch_bytes(a)
                                : (size_t)(a->sequences * a->queries) * (size_t)a->heads * sizeof(float);
}

cudaError_t cuda_launch_product_attention(cudaStream_t stream, const cuda_product_attention *a, void *y,
                                          float *statistics, const cuda_run_values *run)
{
    if (uses_tensor_cores(a))
        return launch_fast_product_attention(stream, a, y, statistics, run);
    return with_columns(a->type, a->size > a->value_size ? a->size : a->value_size, [&](auto zero, auto columns) {
        using T = decltype(zero);
        constexpr int I = decltype(columns)::value;
        using Shared = ProductForward<I>;
        const int tiles = (int)ceil_div(a->queries, ROWS);
        const dim3 blocks((unsigned)(a->sequences * tiles), (unsigned)a->heads);
        cudaError_t error = allow_shared<Shared>(product_kernel<T, I>);
        if (error != cudaSuccess)
            return error;
        product_kernel<T, I><<<blocks, THREADS, sizeof(Shared), stream>>>(*a, tiles, (T *)y, statistics, run);
        return cudaGetLastError();
    });
}

cudaError_t cuda_launch_product_attention_grad(cudaStream_t stream, const cuda_product_attention *a, const void *y,
                                               const float *statistics, const void *dy, void *dquery, void *dkey,
                                               void *dvalue, float *dmask, float *scratch, const cuda_run_values *run)
{
    if (uses_tensor_cores(a))
        return launch_fast_product_attention_grad(stream, a, y, statistics, dy, dquery, dkey, dvalue, scratch, run);
    return with_columns(a->type, a->size > a->value_size ? a->size : a->value_size, [&](auto zero, auto columns) {
        using T = decltype(zero);
        constexpr int I = decltype(columns)::value;
        using Shared = ProductBackward<I>;
        const int query_tiles = (int)ceil_div(a->queries, ROWS), key_tiles = (int)ceil_div(a->keys, ROWS);
        cudaError_t error = allow_shared<Shared>(product_grad_query_kernel<T, I>);
        if (error == cudaSuccess)
            error = allow_shared<Shared>(product_grad_key_kernel<T, I>);
        if (error != cudaSuccess)
            return error;
        /* The gradients may not take the place of operands: the second kernel reads all of them. */
        product_grad_query_kernel<T, I>
            <<<dim3((unsigned)(a->sequences * query_tiles), (unsigned)a->heads), THREADS, sizeof(Shared), stream>>>(
                *a, query_tiles, (const T *)y, statistics, (const T *)dy, (T *)dquery, scratch, run);
        product_grad_key_kernel<T, I>
            <<<dim3((unsigned)(a->sequences * key_tiles), (unsigned)a->heads), THREADS, sizeof(Shared), stream>>>(
                *a, key_tiles, statistics, (const T *)dy, scratch, (T *)dkey, (T *)dvalue, run);
        if (dmask) {
            const int64_t count = a->mask_entries * a->mask_heads * a->mask_queries * a->keys;
            product_grad_mask_kernel<T><<<(unsigned)ceil_div(count, THREADS), THREADS, 0, stream>>>(
                *a, statistics, (const T *)dy, scratch, dmask, run);
        }
        return cudaGetLastError();
    });
}

} // extern "C"
