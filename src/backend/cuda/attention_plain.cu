/* Attention in f32 arithmetic, for f32 plans and for sizes of heads that attention.cu does not
 * take, up to 256.
 *
 * A block has 32 rows of its own (queries; keys for the gradients of keys and values), 4 for each
 * of its 8 warps, and goes over tiles of 32 rows of the others. A lane has one row of the tile: it
 * computes its scores with the warp's 4 rows, and then one of every 32 columns of the sums over the
 * tile. All sums have a fixed order. */
#include "backend/cuda/attention_rows.cuh"

namespace
{

template <typename T> __device__ void clear_rows(T *to, int64_t stride, int first, int rows, int step, int size)
{
    for (int64_t i = threadIdx.x; i < (int64_t)(rows - first + step - 1) / step * size; i += THREADS)
        to[(first + i / size * step) * stride + i % size] = from_float<T>(0);
}

/* Where a block is: blocks of x are `tiles` for each sequence, one more for the rows of no
 * sequence. */
struct Place {
    Rows rows;       /* of the sequence */
    int first, here; /* of the block's own rows, in the sequence; none if here <= 0 */
    int head, tile;
    bool rest; /* rows of no sequence */
    int64_t width, stride;

    __device__ __forceinline__ Place(const AttentionSizes &a, int tiles)
        : rows(rows_of(a, blockIdx.x / tiles)), head(blockIdx.y), tile(blockIdx.x % tiles),
          rest((int)(blockIdx.x / tiles) == a.sequences), width((int64_t)a.heads * a.size), stride(3 * width)
    {
        first = tile * ROWS;
        here = rows.count - first < ROWS ? rows.count - first : ROWS;
    }
};

template <int I> struct ForwardShared {
    Matrix<I> query, key, value;
    Weights weights;
};

template <typename T, int I>
__global__ void __launch_bounds__(THREADS)
    plain_kernel(AttentionSizes a, int tiles, const T *qkv, T *y, float *statistics)
{
    extern __shared__ __align__(16) unsigned char memory[];
    ForwardShared<I> &shared = *reinterpret_cast<ForwardShared<I> *>(memory);
    const Place at(a, tiles);
    const int own = threadIdx.x / 32 * OWN, lane = threadIdx.x % 32;
    qkv += at.rows.begin * at.stride + at.head * a.size;
    y += at.rows.begin * at.width + at.head * a.size;
    if (statistics)
        statistics += at.rows.begin * a.heads + at.head;
    if (at.rest) {
        clear_rows(y, at.width, at.tile, at.rows.count, tiles, a.size);
        if (statistics)
            clear_rows(statistics, a.heads, at.tile, at.rows.count, tiles, 1);
        return;
    }
    if (at.here <= 0)
        return;
    const bool drops = a.dropout.threshold > 0;
    const uint64_t dropout = drops ? dropout_key(a.dropout.run, a.dropout.id) : 0;
    float out[OWN][I] = {}, largest[OWN], sum[OWN] = {}, factor[OWN];
    for (int r = 0; r < OWN; r++)
        largest[r] = -INFINITY;
    load_rows(shared.query, qkv + at.first * at.stride, at.stride, at.here, a.size);
    for (int k = 0; k < at.rows.count; k += ROWS) {
        const int keys = at.rows.count - k;
        load_rows(shared.key, qkv + at.width + k * at.stride, at.stride, keys, a.size);
        load_rows(shared.value, qkv + 2 * at.width + k * at.stride, at.stride, keys, a.size);
        __syncthreads();
        float s[OWN];
        multiply(s, shared.query, shared.key);
#pragma unroll
        for (int r = 0; r < OWN; r++) {
            s[r] = lane < keys ? s[r] * a.scale : -INFINITY;
            const float now = fmaxf(largest[r], warp_max(s[r])), before = expf(largest[r] - now);
            const float p = expf(s[r] - now);
            largest[r] = now;
            sum[r] = sum[r] * before + p;
            for (int i = 0; i < I; i++)
                out[r][i] *= before;
            s[r] = drops && !Keeper(dropout, a, at.rows.begin + at.first + own + r, at.head).keeps(k + lane) ? 0 : p;
        }
        add_rows(out, s, shared.value, shared.weights);
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        const float total = warp_sum(sum[r]);
        factor[r] = a.dropout.scale / total;
        if (statistics && lane == 0 && own + r < at.here)
            statistics[(int64_t)(at.first + own + r) * a.heads] = largest[r] + logf(total);
    }
    store_rows(y + at.first * at.width, at.width, at.here, a.size, out, factor);
}

template <int I> struct BackwardShared {
    Matrix<I> query, key, value, dy;
    Weights weights;
};

/* dq, and delta for the kernel below: the sum of dy * y over a row's numbers of this head. */
template <typename T, int I>
__global__ void __launch_bounds__(THREADS)
    plain_grad_query_kernel(AttentionSizes a, int tiles, const T *qkv, const T *y, const float *statistics, const T *dy,
                            T *dqkv, float *delta)
{
    extern __shared__ __align__(16) unsigned char memory[];
    BackwardShared<I> &shared = *reinterpret_cast<BackwardShared<I> *>(memory);
    const Place at(a, tiles);
    const int own = threadIdx.x / 32 * OWN, lane = threadIdx.x % 32;
    qkv += at.rows.begin * at.stride + at.head * a.size;
    dqkv += at.rows.begin * at.stride + at.head * a.size;
    if (at.rest) {
        for (int part = 0; part < 3; part++)
            clear_rows(dqkv + part * at.width, at.stride, at.tile, at.rows.count, tiles, a.size);
        return;
    }
    if (at.here <= 0)
        return;
    const int64_t first_row = at.rows.begin + at.first;
    y += first_row * at.width + at.head * a.size;
    dy += first_row * at.width + at.head * a.size;
    const bool drops = a.dropout.threshold > 0;
    const uint64_t dropout = drops ? dropout_key(a.dropout.run, a.dropout.id) : 0;
    float dq[OWN][I] = {}, row_delta[OWN], row_statistics[OWN], factor[OWN];
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        const bool there = own + r < at.here;
        float sum = 0;
        for (int d = lane; there && d < a.size; d += 32)
            sum += to_float(y[(own + r) * at.width + d]) * to_float(dy[(own + r) * at.width + d]);
        row_delta[r] = warp_sum(sum);
        row_statistics[r] = there ? statistics[(first_row + own + r) * a.heads + at.head] : 0;
        factor[r] = a.scale;
        if (there && lane == 0)
            delta[(first_row + own + r) * a.heads + at.head] = row_delta[r];
    }
    load_rows(shared.query, qkv + at.first * at.stride, at.stride, at.here, a.size);
    load_rows(shared.dy, dy, at.width, at.here, a.size);
    for (int k = 0; k < at.rows.count; k += ROWS) {
        const int keys = at.rows.count - k;
        load_rows(shared.key, qkv + at.width + k * at.stride, at.stride, keys, a.size);
        load_rows(shared.value, qkv + 2 * at.width + k * at.stride, at.stride, keys, a.size);
        __syncthreads();
        float s[OWN], dp[OWN];
        multiply(s, shared.query, shared.key);
        multiply(dp, shared.dy, shared.value);
#pragma unroll
        for (int r = 0; r < OWN; r++) {
            const float p = lane < keys ? expf(s[r] * a.scale - row_statistics[r]) : 0;
            const bool kept = !drops || Keeper(dropout, a, first_row + own + r, at.head).keeps(k + lane);
            s[r] = p * ((kept ? dp[r] * a.dropout.scale : 0) - row_delta[r]);
        }
        add_rows(dq, s, shared.key, shared.weights);
        __syncthreads();
    }
    store_rows(dqkv + at.first * at.stride, at.stride, at.here, a.size, dq, factor);
}

/* dk and dv: the block's own rows are keys. */
template <typename T, int I>
__global__ void __launch_bounds__(THREADS)
    plain_grad_key_kernel(AttentionSizes a, int tiles, const T *qkv, const float *statistics, const T *dy, T *dqkv,
                          const float *delta)
{
    extern __shared__ __align__(16) unsigned char memory[];
    BackwardShared<I> &shared = *reinterpret_cast<BackwardShared<I> *>(memory);
    const Place at(a, tiles);
    const int own = threadIdx.x / 32 * OWN, lane = threadIdx.x % 32;
    if (at.rest || at.here <= 0)
        return;
    qkv += at.rows.begin * at.stride + at.head * a.size;
    dqkv += at.rows.begin * at.stride + at.head * a.size;
    dy += at.rows.begin * at.width + at.head * a.size;
    const bool drops = a.dropout.threshold > 0;
    const uint64_t dropout = drops ? dropout_key(a.dropout.run, a.dropout.id) : 0;
    float dk[OWN][I] = {}, dv[OWN][I] = {}, by_scale[OWN], by_one[OWN];
    load_rows(shared.key, qkv + at.width + at.first * at.stride, at.stride, at.here, a.size);
    load_rows(shared.value, qkv + 2 * at.width + at.first * at.stride, at.stride, at.here, a.size);
    for (int q = 0; q < at.rows.count; q += ROWS) {
        const int queries = at.rows.count - q;
        const int64_t row = at.rows.begin + q + lane;
        load_rows(shared.query, qkv + q * at.stride, at.stride, queries, a.size);
        load_rows(shared.dy, dy + q * at.width, at.width, queries, a.size);
        const float row_statistics = lane < queries ? statistics[row * a.heads + at.head] : 0;
        const float row_delta = lane < queries ? delta[row * a.heads + at.head] : 0;
        const uint32_t bits = drops ? Keeper(dropout, a, row, at.head).four(at.first + own) : ~0u;
        __syncthreads();
        float s[OWN], dp[OWN];
        multiply(s, shared.key, shared.query);
        multiply(dp, shared.value, shared.dy);
#pragma unroll
        for (int r = 0; r < OWN; r++) {
            const float p = lane < queries ? expf(s[r] * a.scale - row_statistics) : 0;
            const float kept = bits >> r & 1 ? a.dropout.scale : 0;
            s[r] = p * kept;
            dp[r] = p * (dp[r] * kept - row_delta);
        }
        add_rows(dv, s, shared.dy, shared.weights);
        add_rows(dk, dp, shared.query, shared.weights);
        __syncthreads();
    }
    for (int r = 0; r < OWN; r++) {
        by_scale[r] = a.scale;
        by_one[r] = 1;
    }
    T *to = dqkv + at.first * at.stride;
    store_rows(to + at.width, at.stride, at.here, a.size, dk, by_scale);
    store_rows(to + 2 * at.width, at.stride, at.here, a.size, dv, by_one);
}

} // namespace

extern "C" int cuda_attention_largest_head(void)
{
    return has_shared<BackwardShared<8>>() ? 256 : 128;
}

cudaError_t launch_plain_attention(cudaStream_t stream, cuda_type type, int longest, const AttentionSizes &a,
                                   const void *qkv, void *y, float *statistics)
{
    return with_columns(type, a.size, [&](auto zero, auto columns) {
        using T = decltype(zero);
        constexpr int I = decltype(columns)::value;
        using Shared = ForwardShared<I>;
        const int tiles = (int)ceil_div(longest, ROWS);
        const dim3 blocks((unsigned)(a.sequences + 1) * (unsigned)tiles, (unsigned)a.heads);
        cudaError_t error = allow_shared<Shared>(plain_kernel<T, I>);
        if (error != cudaSuccess)
            return error;
        plain_kernel<T, I><<<blocks, THREADS, sizeof(Shared), stream>>>(a, tiles, (const T *)qkv, (T *)y, statistics);
        return cudaGetLastError();
    });
}

cudaError_t launch_plain_attention_grad(cudaStream_t stream, cuda_type type, int longest, const AttentionSizes &a,
                                        const void *qkv, const void *y, const float *statistics, const void *dy,
                                        void *dqkv, float *delta)
{
    return with_columns(type, a.size, [&](auto zero, auto columns) {
        using T = decltype(zero);
        constexpr int I = decltype(columns)::value;
        using Shared = BackwardShared<I>;
        const int tiles = (int)ceil_div(longest, ROWS);
        const dim3 blocks((unsigned)(a.sequences + 1) * (unsigned)tiles, (unsigned)a.heads);
        cudaError_t error = allow_shared<Shared>(plain_grad_query_kernel<T, I>);
        if (error == cudaSuccess)
            error = allow_shared<Shared>(plain_grad_key_kernel<T, I>);
        if (error != cudaSuccess)
            return error;
        plain_grad_query_kernel<T, I><<<blocks, THREADS, sizeof(Shared), stream>>>(
            a, tiles, (const T *)qkv, (const T *)y, statistics, (const T *)dy, (T *)dqkv, delta);
        plain_grad_key_kernel<T, I><<<blocks, THREADS, sizeof(Shared), stream>>>(a, tiles, (const T *)qkv, statistics,
                                                                                 (const T *)dy, (T *)dqkv, delta);
        return cudaGetLastError();
    });
}
