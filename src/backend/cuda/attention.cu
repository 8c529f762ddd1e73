/* Flash attention on tensor cores (mma.sync, 16-bit numbers, sums in f32) for packed sequences: a
 * block has one head of one sequence, or 64 of its queries, so that nothing is computed for
 * padding, and scores stay in registers. Beside cuDNN's, which knows neither our masks nor packed
 * sequences: bench/cuda/attention.cu, docs/CUDA.md.
 *
 * Sequences are mostly shorter than 128 tokens. Forward: a warp has 16 queries and goes over tiles
 * of 64 keys with a running maximum and sum. Backward: a block has a whole sequence; a warp has 16
 * of 128 keys and computes transposed scores, so that what it needs to sum up its rows of dk and dv
 * is in its registers; the scores' gradients go through shared memory to those who sum up dq. Only
 * where sequences are longer than 128 does dq pass through f32 scratch memory, from one tile of
 * keys to the next. All sums have a fixed order.
 *
 * Dropout's bits are drawn into shared memory while tiles are being copied there.
 *
 * Heads of any multiple of 8 up to 128 are padded with zeros to 32, 64 or 128, in shared memory
 * alone; other sizes, and f32, are attention_plain.cu's. */
#include <cmath>

#include "backend/cuda/attention.cuh"

namespace
{

/* Tiles: queries in both directions, keys and threads in each. */
enum { QUERIES = 64, FORWARD_KEYS = 64, FORWARD_THREADS = 128, KEYS = 128, THREADS = 256 };

/* 2 to the power of x; 0 of minus infinity, NaN of NaN. */
__device__ __forceinline__ float power_of_2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

constexpr float LOG2_E = 1.4426950408889634f;

/* ---- tensor cores ---- */

template <typename T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], const uint32_t *b);
template <>
__device__ __forceinline__ void multiply_add<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4], const uint32_t *b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ __forceinline__ void multiply_add<__half>(float (&c)[4], const uint32_t (&a)[4], const uint32_t *b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <typename T> __device__ __forceinline__ uint32_t pack(float low, float high);
template <> __device__ __forceinline__ uint32_t pack<__nv_bfloat16>(float low, float high)
{
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t &>(both);
}
template <> __device__ __forceinline__ uint32_t pack<__half>(float low, float high)
{
    const __half2 both = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t &>(both);
}

/* Two neighbouring results of multiply_add, 16 x 16, as a left operand. */
template <typename T>
__device__ __forceinline__ void as_left(uint32_t (&a)[4], const float (&left)[4], const float (&right)[4])
{
    a[0] = pack<T>(left[0], left[1]);
    a[1] = pack<T>(left[2], left[3]);
    a[2] = pack<T>(right[0], right[1]);
    a[3] = pack<T>(right[2], right[3]);
}

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

/* A matrix of 16-bit numbers in shared memory. Rows are padded by 16 bytes: eight rows of 16 bytes
 * lie in different banks. There are four ways to load 16 x 16 numbers from (row, column) on. */
template <typename T, int COLUMNS> struct Tile {
    enum { STRIDE = COLUMNS + 8 };
    T *data;
    uint32_t straight, crossed; /* shared addresses of what this lane points to, in both orders of the four quarters */

    __device__ __forceinline__ explicit Tile(T *memory) : data(memory)
    {
        const int lane = threadIdx.x % 32;
        const uint32_t address = shared_address(memory);
        straight = address + (lane % 16 * STRIDE + lane / 16 * 8) * (uint32_t)sizeof(T);
        crossed = address + ((lane / 16 * 8 + lane % 8) * STRIDE + lane / 8 % 2 * 8) * (uint32_t)sizeof(T);
    }
    static __device__ __forceinline__ uint32_t offset(int row, int column)
    {
        return (uint32_t)(row * STRIDE + column) * (uint32_t)sizeof(T);
    }
    /* A left operand, rows of the tile are its rows. */
    __device__ __forceinline__ void left(uint32_t (&a)[4], int row, int column) const
    {
        load_matrices(a, straight + offset(row, column));
    }
    /* A left operand, rows of the tile are its columns. */
    __device__ __forceinline__ void left_transposed(uint32_t (&a)[4], int row, int column) const
    {
        load_matrices_transposed(a, crossed + offset(row, column));
    }
    /* Two right operands of 8 columns each, rows of the tile are their rows. */
    __device__ __forceinline__ void right(uint32_t (&b)[4], int row, int column) const
    {
        load_matrices_transposed(b, straight + offset(row, column));
    }
    /* Two right operands of 8 columns each, rows of the tile are their columns. */
    __device__ __forceinline__ void right_transposed(uint32_t (&b)[4], int row, int column) const
    {
        load_matrices(b, crossed + offset(row, column));
    }
};

template <int ROWS, int COLUMNS> constexpr int tile_elements()
{
    return ROWS * (COLUMNS + 8);
}

/* ---- copies ---- */

__device__ __forceinline__ void end_copies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int PENDING> __device__ __forceinline__ void wait_for_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

/* Copies `rows` rows of `size` numbers; the rest of the tile's ROWS rows becomes zero. */
template <int ROWS, int COLUMNS, int BLOCK, typename T>
__device__ __forceinline__ void copy_tile(T *to, const T *from, int64_t stride, int rows, int size)
{
    constexpr int CHUNKS = COLUMNS / 8;
    static_assert(ROWS * CHUNKS % BLOCK == 0, "every thread copies as much");
#pragma unroll
    for (int i = 0; i < ROWS * CHUNKS; i += BLOCK) {
        const int row = (int)((i + threadIdx.x) / CHUNKS), column = (int)((i + threadIdx.x) % CHUNKS * 8);
        const bool there = row < rows && column < size;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to) +
                                                                           Tile<T, COLUMNS>::offset(row, column)),
                     "l"(there ? from + row * stride + column : from), "r"(there ? 16 : 0)
                     : "memory");
    }
}

/* Writes 16 rows that a warp holds as results of multiply_add, times `factor` of each row, by way
 * of its own 16 rows of shared memory. */
template <int COLUMNS, typename T>
__device__ __forceinline__ void store_rows(T *to, int64_t stride, int rows, int size, const float (*c)[4],
                                           const float (&factor)[2], T *shared)
{
    const int lane = threadIdx.x % 32, row = lane / 4, column = lane % 4 * 2;
    constexpr int STRIDE = Tile<T, COLUMNS>::STRIDE;
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++) {
        *reinterpret_cast<uint32_t *>(shared + row * STRIDE + n * 8 + column) =
            pack<T>(c[n][0] * factor[0], c[n][1] * factor[0]);
        *reinterpret_cast<uint32_t *>(shared + (row + 8) * STRIDE + n * 8 + column) =
            pack<T>(c[n][2] * factor[1], c[n][3] * factor[1]);
    }
    __syncwarp();
#pragma unroll
    for (int i = lane; i < 16 * COLUMNS / 8; i += 32) {
        const int r = i / (COLUMNS / 8), from = i % (COLUMNS / 8) * 8;
        if (r < rows && from < size)
            store<T, 8>(to + r * stride + from, load<T, 8>(shared + r * STRIDE + from));
    }
    __syncwarp();
}

/* Makes `count` rows of `size` numbers zero, every `step`th of them, from `first` on. */
template <typename T> __device__ void clear_rows(T *to, int64_t stride, int first, int count, int step, int size)
{
    const Vec<T, 8> zero = {};
    const int chunks = size / 8;
    for (int64_t i = threadIdx.x; i < (int64_t)(count - first + step - 1) / step * chunks; i += blockDim.x)
        store<T, 8>(to + (first + i / chunks * step) * stride + i % chunks * 8, zero);
}

/* Draws which probabilities of a tile are kept: bit k % 32 of word k / 32 of a query's row is for
 * key first_key + k. The first WORDS_EACH words of a row are for `head`, the next for the one after
 * it. */
template <int ROWS, int WORDS, int WORDS_EACH, int BLOCK>
__device__ __forceinline__ void draw(uint32_t (*kept)[WORDS], uint64_t key, const AttentionSizes &a, int64_t first_row,
                                     int rows, int head, int first_key, int keys)
{
#pragma unroll
    for (unsigned i = threadIdx.x; i < ROWS * WORDS; i += BLOCK) {
        const int row = (int)(i / WORDS), word = (int)(i % WORDS), from = word % WORDS_EACH * 32;
        if (row >= rows || from >= keys)
            continue;
        const Keeper keeper(key, a, first_row + row, head + word / WORDS_EACH);
        kept[row][word] = keeper.thirty_two(first_key + from);
    }
}

enum { ALL = 1 << 30 }; /* a distance that no key has */

/* The first rows' first heads. */
template <typename T> struct Operands {
    const T *query, *key, *value;
    T *dquery, *dkey, *dvalue; /* of the gradient */
};

/* ---- forward ---- */

template <typename T, int D> struct ForwardShared {
    T query[tile_elements<QUERIES, D>()];
    T key[2][tile_elements<FORWARD_KEYS, D>()], value[2][tile_elements<FORWARD_KEYS, D>()];
    uint32_t kept[QUERIES][FORWARD_KEYS / 32];
};

/* What a warp knows of its 16 queries: of rows lane / 4 and lane / 4 + 8 each thread holds 2 of
 * every 8 columns. */
template <int D> struct Running {
    float out[D / 8][4];
    float largest[2]; /* of scores before they are scaled */
    float sum[2];     /* the thread's own share */
};

/* Takes a tile of keys into account, of which query `row` of the warp sees those up to `before` +
 * row. */
template <typename T, int D>
__device__ __forceinline__ void add_keys(Running<D> &r, const uint32_t (&query)[D / 16][4], const Tile<T, D> &key,
                                         const Tile<T, D> &value, int keys, int before, float scale,
                                         const uint32_t (*kept)[2], bool drops)
{
    const int lane = threadIdx.x % 32, pair = lane % 4 * 2;
    float s[FORWARD_KEYS / 8][4] = {};
#pragma unroll
    for (int j = 0; j < FORWARD_KEYS / 16; j++) {
        if (j * 16 >= keys)
            break;
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
            uint32_t b[4];
            key.right_transposed(b, j * 16, d * 16);
            multiply_add<T>(s[2 * j], query[d], b);
            multiply_add<T>(s[2 * j + 1], query[d], b + 2);
        }
    }
    if (keys < FORWARD_KEYS || before < FORWARD_KEYS) {
#pragma unroll
        for (int j = 0; j < FORWARD_KEYS / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int key_of = j * 8 + pair + (e & 1);
                s[j][e] = key_of < keys && key_of <= before + lane / 4 + e / 2 * 8 ? s[j][e] : -INFINITY;
            }
    }
    float offset[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float largest = r.largest[i];
#pragma unroll
        for (int j = 0; j < FORWARD_KEYS / 8; j++)
            largest = fmaxf(largest, fmaxf(s[j][2 * i], s[j][2 * i + 1]));
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
        /* Of NaN alone, or of minus infinity, there is no largest: NaN comes of it. */
        const float fading = power_of_2((r.largest[i] - largest) * scale);
        r.largest[i] = largest;
        offset[i] = largest * scale;
        r.sum[i] *= fading;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            r.out[n][2 * i] *= fading;
            r.out[n][2 * i + 1] *= fading;
        }
    }
    uint32_t bits[2][2] = {{~0u, ~0u}, {~0u, ~0u}};
    if (drops) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            bits[i][0] = kept[lane / 4 + 8 * i][0] >> pair;
            bits[i][1] = kept[lane / 4 + 8 * i][1] >> pair;
        }
    }
#pragma unroll
    for (int j = 0; j < FORWARD_KEYS / 16; j++) {
        if (j * 16 >= keys)
            break;
#pragma unroll
        for (int n = 2 * j; n < 2 * j + 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float p = power_of_2(s[n][e] * scale - offset[e >> 1]);
                r.sum[e >> 1] += p;
                s[n][e] = bits[e >> 1][n / 4] >> (n % 4 * 8 + (e & 1)) & 1 ? p : 0;
            }
        uint32_t a[4];
        as_left<T>(a, s[2 * j], s[2 * j + 1]);
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t b[4];
            value.right(b, j * 16, n * 16);
            multiply_add<T>(r.out[2 * n], a, b);
            multiply_add<T>(r.out[2 * n + 1], a, b + 2);
        }
    }
}

template <typename T, int D>
__global__ void __launch_bounds__(FORWARD_THREADS, D > 64 ? 2 : 4)
    attention_kernel(AttentionSizes a, int tiles, Operands<T> of, T *y, float *statistics)
{
    extern __shared__ __align__(16) unsigned char memory[];
    ForwardShared<T, D> &shared = *reinterpret_cast<ForwardShared<T, D> *>(memory);
    const int sequence = blockIdx.x / tiles, head = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t width = (int64_t)a.heads * a.size, stride = a.stride;
    const Rows rows = rows_of(a, sequence);
    const int tile = blockIdx.x % tiles;
    if (sequence == a.sequences) {
        clear_rows(y + rows.begin * width + head * a.size, width, tile, rows.count, tiles, a.size);
        for (int i = tile + threadIdx.x * tiles; statistics && i < rows.count; i += FORWARD_THREADS * tiles)
            statistics[(rows.begin + i) * a.heads + head] = 0;
        return;
    }
    const int first = tile * QUERIES;
    if (first >= rows.count)
        return;
    const int64_t row = rows.begin + first;
    const int here = rows.count - first < QUERIES ? rows.count - first : QUERIES;
    const T *key = of.key + rows.begin * stride + head * a.size;
    const T *value = of.value + rows.begin * stride + head * a.size;
    const int keys = a.causal && first + QUERIES < rows.count ? first + QUERIES : rows.count;
    copy_tile<QUERIES, D, FORWARD_THREADS>(shared.query, of.query + row * stride + head * a.size, stride, here, a.size);
    copy_tile<FORWARD_KEYS, D, FORWARD_THREADS>(shared.key[0], key, stride, keys, a.size);
    copy_tile<FORWARD_KEYS, D, FORWARD_THREADS>(shared.value[0], value, stride, keys, a.size);
    end_copies();
    const bool drops = a.dropout.threshold > 0;
    const uint64_t dropout = drops ? dropout_key(a.dropout.run, a.dropout.id) : 0;
    uint32_t query[D / 16][4];
    Running<D> r = {{}, {-INFINITY, -INFINITY}, {}};
    for (int k = 0, stage = 0; k < keys; k += FORWARD_KEYS, stage ^= 1) {
        const int left = keys - k, next = left - FORWARD_KEYS;
        if (next > 0) {
            const int64_t from = (int64_t)(k + FORWARD_KEYS) * stride;
            copy_tile<FORWARD_KEYS, D, FORWARD_THREADS>(shared.key[stage ^ 1], key + from, stride, next, a.size);
            copy_tile<FORWARD_KEYS, D, FORWARD_THREADS>(shared.value[stage ^ 1], value + from, stride, next, a.size);
            end_copies();
        }
        if (drops)
            draw<QUERIES, FORWARD_KEYS / 32, FORWARD_KEYS / 32, FORWARD_THREADS>(shared.kept, dropout, a, row, here,
                                                                                 head, k, left);
        if (next > 0)
            wait_for_copies<1>();
        else
            wait_for_copies<0>();
        __syncthreads();
        if (warp * 16 < here) {
            if (k == 0) {
                const Tile<T, D> queries(shared.query);
#pragma unroll
                for (int d = 0; d < D / 16; d++)
                    queries.left(query[d], warp * 16, d * 16);
            }
            add_keys(r, query, Tile<T, D>(shared.key[stage]), Tile<T, D>(shared.value[stage]), left,
                     a.causal ? first + warp * 16 - k : (int)ALL, a.scale * LOG2_E, shared.kept + warp * 16, drops);
        }
        if (next > 0)
            __syncthreads();
    }
    if (warp * 16 >= here)
        return;
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        r.sum[i] += __shfl_xor_sync(0xffffffffu, r.sum[i], 1);
        r.sum[i] += __shfl_xor_sync(0xffffffffu, r.sum[i], 2);
        factor[i] = a.dropout.scale / r.sum[i];
        const int q = warp * 16 + lane / 4 + 8 * i;
        if (statistics && lane % 4 == 0 && q < here)
            statistics[(row + q) * a.heads + head] = r.largest[i] * a.scale + logf(r.sum[i]);
    }
    store_rows<D>(y + (row + warp * 16) * width + head * a.size, width, here - warp * 16, a.size, r.out, factor,
                  shared.query + warp * 16 * Tile<T, D>::STRIDE);
}

/* ---- backward ---- */

template <typename T, int D> struct BackwardShared {
    T key[tile_elements<KEYS, D>()], value[tile_elements<KEYS, D>()];
    T query[2][tile_elements<QUERIES, D>()], dy[2][tile_elements<QUERIES, D>()];
    T ds[tile_elements<KEYS, QUERIES>()];
    uint32_t kept[QUERIES][KEYS / 32];
    float statistics[2][QUERIES], delta[2][QUERIES]; /* statistics: in powers of 2; [1]: of the second head of a pair */
};

template <typename T, int D>
__device__ __forceinline__ void copy_queries(BackwardShared<T, D> &shared, int stage, const T *query, int64_t stride,
                                             const T *dy, int64_t width, int queries, int size)
{
    copy_tile<QUERIES, D, THREADS>(shared.query[stage], query, stride, queries, size);
    copy_tile<QUERIES, D, THREADS>(shared.dy[stage], dy, width, queries, size);
}

template <typename T, int D>
__device__ __forceinline__ void copy_keys(BackwardShared<T, D> &shared, const T *key, const T *value, int64_t stride,
                                          int keys, int size)
{
    copy_tile<KEYS, D, THREADS>(shared.key, key, stride, keys, size);
    copy_tile<KEYS, D, THREADS>(shared.value, value, stride, keys, size);
}

/* All of two heads: half of the keys and values, and a stage, for each. */
template <typename T, int D>
__device__ __forceinline__ void copy_pair(BackwardShared<T, D> &shared, const Operands<T> &of, int64_t stride,
                                          const T *dy, int64_t width, int heads, int tokens, int size)
{
    for (int h = 0; h < heads; h++) {
        T *key = shared.key + h * (KEYS / 2) * Tile<T, D>::STRIDE,
          *value = shared.value + h * (KEYS / 2) * Tile<T, D>::STRIDE;
        copy_tile<KEYS / 2, D, THREADS>(key, of.key + h * size, stride, tokens, size);
        copy_tile<KEYS / 2, D, THREADS>(value, of.value + h * size, stride, tokens, size);
        copy_queries(shared, h, of.query + h * size, stride, dy + h * size, width, tokens, size);
    }
}

/* delta = the sum of dy * y over a row's numbers of this head: what the softmax's gradient
 * subtracts. */
template <int D, typename T>
__device__ __forceinline__ void find_delta(float *delta, const T *y, const T *dy, int64_t width, int rows, int size)
{
    constexpr int LANES = D / 8;
#pragma unroll
    for (int i = 0; i < QUERIES * LANES; i += THREADS) {
        const int row = (int)((i + threadIdx.x) / LANES), column = (int)((i + threadIdx.x) % LANES * 8);
        float sum = 0;
        if (row < rows && column < size) {
            const Vec<T, 8> left = load<T, 8>(y + row * width + column), right = load<T, 8>(dy + row * width + column);
#pragma unroll
            for (int k = 0; k < 8; k++)
                sum += to_float(left.v[k]) * to_float(right.v[k]);
        }
#pragma unroll
        for (int offset = LANES / 2; offset > 0; offset >>= 1)
            sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        if (threadIdx.x % LANES == 0)
            delta[row] = sum;
    }
}

/* A warp's 16 keys, of which `keys` are there, against tile `stage` of queries: adds to dk and dv,
 * where dv is still to be multiplied by dropout's scale, and writes the transposed gradients of
 * scores. The first key is `ahead` of the first query; no query sees a key that is ahead of it. */
template <typename T, int D>
__device__ __forceinline__ void add_queries(float (&dk)[D / 8][4], float (&dv)[D / 8][4], BackwardShared<T, D> &shared,
                                            int stage, int team, int queries, int keys, int ahead,
                                            const AttentionSizes &a)
{
    enum { AT_ONCE = 32, STRIDE = Tile<T, QUERIES>::STRIDE };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = lane / 4, pair = lane % 4 * 2;
    const Tile<T, D> key(shared.key + warp * 16 * Tile<T, D>::STRIDE),
        value(shared.value + warp * 16 * Tile<T, D>::STRIDE);
    T *ds = shared.ds + (warp * 16 + row) * STRIDE + pair;
    const float *all_statistics = shared.statistics[team] + pair, *all_delta = shared.delta[team] + pair;
    const bool there[2] = {row < keys, row + 8 < keys}, drops = a.dropout.threshold > 0;
    const float scale = a.scale * LOG2_E, dropout_scale = a.dropout.scale;
#pragma unroll 1
    for (int first = 0; first < QUERIES && first < queries; first += AT_ONCE) {
        const Tile<T, D> query(shared.query[stage] + first * Tile<T, D>::STRIDE);
        const Tile<T, D> dy(shared.dy[stage] + first * Tile<T, D>::STRIDE);
        float s[AT_ONCE / 8][4] = {}, dp[AT_ONCE / 8][4] = {};
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
            uint32_t left[4], right[4];
            key.left(left, 0, d * 16);
#pragma unroll
            for (int n = 0; n < AT_ONCE / 16; n++) {
                query.right_transposed(right, n * 16, d * 16);
                multiply_add<T>(s[2 * n], left, right);
                multiply_add<T>(s[2 * n + 1], left, right + 2);
            }
            value.left(left, 0, d * 16);
#pragma unroll
            for (int n = 0; n < AT_ONCE / 16; n++) {
                dy.right_transposed(right, n * 16, d * 16);
                multiply_add<T>(dp[2 * n], left, right);
                multiply_add<T>(dp[2 * n + 1], left, right + 2);
            }
        }
        /* s becomes the probabilities that are kept, dp the gradients of scores. */
#pragma unroll
        for (int n = 0; n < AT_ONCE / 8; n++) {
            const float2 statistics = *reinterpret_cast<const float2 *>(all_statistics + first + n * 8);
            const float2 delta = *reinterpret_cast<const float2 *>(all_delta + first + n * 8);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const uint32_t bits =
                    drops ? shared.kept[first + n * 8 + pair + e][warp / 2] >> (warp % 2 * 16 + row) : ~0u;
                const float subtracted = e ? delta.y : delta.x;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float &score = s[n][2 * i + e], &gradient = dp[n][2 * i + e];
                    const float power = power_of_2(score * scale - (e ? statistics.y : statistics.x));
                    const bool seen = there[i] && ahead + row + 8 * i <= first + n * 8 + pair + e;
                    const float p = seen ? power : 0;
                    const bool kept = bits >> (8 * i) & 1;
                    score = kept ? p : 0;
                    gradient = p * (kept ? gradient * dropout_scale - subtracted : -subtracted);
                }
            }
        }
#pragma unroll
        for (int n = 0; n < AT_ONCE / 16; n++) {
            uint32_t left[4], right[4];
            as_left<T>(left, s[2 * n], s[2 * n + 1]);
#pragma unroll
            for (int d = 0; d < D / 16; d++) {
                dy.right(right, n * 16, d * 16);
                multiply_add<T>(dv[2 * d], left, right);
                multiply_add<T>(dv[2 * d + 1], left, right + 2);
            }
            as_left<T>(left, dp[2 * n], dp[2 * n + 1]);
#pragma unroll
            for (int part = 0; part < 4; part++)
                *reinterpret_cast<uint32_t *>(ds + part % 2 * 8 * STRIDE + first + n * 16 + part / 2 * 8) = left[part];
#pragma unroll
            for (int d = 0; d < D / 16; d++) {
                query.right(right, n * 16, d * 16);
                multiply_add<T>(dk[2 * d], left, right);
                multiply_add<T>(dk[2 * d + 1], left, right + 2);
            }
        }
    }
}

/* Where a tile of dq goes: to `dq`, or into `sums` (f32, rows of `width`) while more tiles of keys
 * follow. */
template <typename T> struct QueryGradient {
    T *dq;
    int64_t stride;
    float *sums;
    int64_t width;
    bool add, more; /* tiles of keys are before this one, follow it */
};

/* 16 queries of a tile of dq, and half of the columns, from `keys` keys; ds and `key` begin with
 * the first of both. */
template <typename T, int D>
__device__ __forceinline__ void find_dq(const Tile<T, QUERIES> &ds, const Tile<T, D> &key, int queries, int keys,
                                        const AttentionSizes &a, const QueryGradient<T> &to, int first_column)
{
    const int lane = threadIdx.x % 32;
    float c[D / 16][4] = {};
#pragma unroll 4
    for (int k = 0; k < KEYS && k < keys; k += 16) {
        uint32_t left[4], right[4];
        ds.left_transposed(left, k, 0);
#pragma unroll
        for (int d = 0; d < D / 32; d++) {
            key.right(right, k, d * 16);
            multiply_add<T>(c[2 * d], left, right);
            multiply_add<T>(c[2 * d + 1], left, right + 2);
        }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int q = lane / 4 + 8 * i;
        if (q >= queries)
            continue;
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            const int column = first_column + n * 8 + lane % 4 * 2;
            if (column >= a.size)
                continue;
            float2 sum = {c[n][2 * i], c[n][2 * i + 1]};
            float2 *sums = reinterpret_cast<float2 *>(to.sums + q * to.width + column);
            if (to.add) {
                const float2 before = *sums;
                sum = {before.x + sum.x, before.y + sum.y};
            }
            if (to.more)
                *sums = sum;
            else
                *reinterpret_cast<uint32_t *>(to.dq + q * to.stride + column) =
                    pack<T>(sum.x * a.scale, sum.y * a.scale);
        }
    }
}

/* A block has a head of a sequence. Where the sequence has no more tokens than half of the warps
 * have keys, it has two heads, one for each team of four warps; the second head's own block has
 * nothing to do then. */
template <typename T, int D>
__global__ void __launch_bounds__(THREADS, D > 64 ? 1 : 2)
    attention_grad_kernel(AttentionSizes a, Operands<T> of, const T *y, const float *statistics, const T *dy,
                          float *dq_sums)
{
    extern __shared__ __align__(16) unsigned char memory[];
    BackwardShared<T, D> &shared = *reinterpret_cast<BackwardShared<T, D> *>(memory);
    enum { STRIDE = Tile<T, D>::STRIDE };
    const int sequence = blockIdx.x, head = blockIdx.y, warp = threadIdx.x / 32;
    const int64_t width = (int64_t)a.heads * a.size, stride = a.stride;
    const Rows rows = rows_of(a, sequence);
    const int64_t at_head = rows.begin * stride + head * a.size;
    of = Operands<T>{of.query + at_head,  of.key + at_head,  of.value + at_head,
                     of.dquery + at_head, of.dkey + at_head, of.dvalue + at_head};
    if (sequence == a.sequences) {
        clear_rows(of.dquery, stride, 0, rows.count, 1, a.size);
        clear_rows(of.dkey, stride, 0, rows.count, 1, a.size);
        clear_rows(of.dvalue, stride, 0, rows.count, 1, a.size);
        return;
    }
    const bool pair = rows.count <= KEYS / 2;
    if (pair && head % 2 != 0)
        return;
    const int heads = pair && head + 1 < a.heads ? 2 : 1, team = pair ? warp / 4 : 0;
    y += rows.begin * width + head * a.size;
    dy += rows.begin * width + head * a.size;
    statistics += rows.begin * a.heads + head;
    const bool drops = a.dropout.threshold > 0;
    uint64_t dropout = 0;

    for (int k = 0; k < rows.count; k += KEYS) {
        /* Of the warp's own 16 keys so many are there. */
        const int keys = rows.count - k, own = team < heads ? keys - (pair ? warp % 4 : warp) * 16 : 0;
        float dk[D / 8][4] = {}, dv[D / 8][4] = {};
        const int first_query = a.causal ? k : 0; /* those before it see none of these keys */
        for (int q = first_query, stage = 0; q < rows.count; q += QUERIES, stage ^= 1) {
            const int queries = rows.count - q, next = queries - QUERIES;
            if (pair) {
                copy_pair(shared, of, stride, dy, width, heads, queries, a.size);
                end_copies();
            } else if (q == first_query) {
                copy_keys(shared, of.key + k * stride, of.value + k * stride, stride, keys, a.size);
                copy_queries(shared, 0, of.query + q * stride, stride, dy + q * width, width, queries, a.size);
                end_copies();
            }
            if (next > 0) {
                copy_queries(shared, stage ^ 1, of.query + (q + QUERIES) * stride, stride, dy + (q + QUERIES) * width,
                             width, next, a.size);
                end_copies();
            }
            if (threadIdx.x < 2 * QUERIES) {
                const int h = threadIdx.x / QUERIES, i = threadIdx.x % QUERIES;
                shared.statistics[h][i] =
                    h < heads && i < queries ? statistics[(int64_t)(q + i) * a.heads + h] * LOG2_E : 0;
            }
            for (int h = 0; h < heads; h++)
                find_delta<D>(shared.delta[h], y + q * width + h * a.size, dy + q * width + h * a.size, width, queries,
                              a.size);
            if (drops) {
                if (k == 0 && q == 0)
                    dropout = dropout_key(a.dropout.run, a.dropout.id);
                if (pair)
                    draw<QUERIES, KEYS / 32, KEYS / 64, THREADS>(shared.kept, dropout, a, rows.begin, queries, head, 0,
                                                                 keys);
                else
                    draw<QUERIES, KEYS / 32, KEYS / 32, THREADS>(shared.kept, dropout, a, rows.begin + q, queries, head,
                                                                 k, keys);
            }
            if (next > 0)
                wait_for_copies<1>();
            else
                wait_for_copies<0>();
            __syncthreads();
            if (own > 0)
                add_queries(dk, dv, shared, pair ? team : stage, team, queries, own,
                            a.causal ? k + (pair ? warp % 4 : warp) * 16 - q : -(int)ALL, a);
            __syncthreads();
            const int first = warp % 4 * 16; /* of the warp's queries */
            if (first < queries && team < heads) {
                const int64_t at = q + first;
                const QueryGradient<T> to = {of.dquery + at * stride + team * a.size,
                                             stride,
                                             dq_sums + (rows.begin + at) * width + head * a.size,
                                             width,
                                             k > 0,
                                             keys > KEYS && (!a.causal || q >= k + KEYS)};
                const int from = team * (KEYS / 2);
                const Tile<T, QUERIES> ds(shared.ds + from * Tile<T, QUERIES>::STRIDE + first);
                /* The two teams share the columns of one head, or each has all of its own. */
                for (int half = pair ? 0 : warp / 4; half < (pair ? 2 : warp / 4 + 1); half++)
                    find_dq(ds, Tile<T, D>(shared.key + from * STRIDE + half * (D / 2)), queries - first, keys, a, to,
                            half * (D / 2));
            }
            __syncthreads();
        }
        if (own > 0) { /* by way of its own rows of keys and values, which are not needed any more */
            const int64_t to = (int64_t)(k + keys - own) * stride + team * a.size;
            const float of_dk[2] = {a.scale, a.scale}, of_dv[2] = {a.dropout.scale, a.dropout.scale};
            store_rows<D>(of.dkey + to, stride, own, a.size, dk, of_dk, shared.key + warp * 16 * STRIDE);
            store_rows<D>(of.dvalue + to, stride, own, a.size, dv, of_dv, shared.value + warp * 16 * STRIDE);
        }
        __syncthreads();
    }
}

/* ---- launches ---- */

bool type_fits(cuda_type type, int size)
{
    return type != CUDA_TYPE_F32 && size % 8 == 0 && size <= 128;
}

/* The gradient of large heads needs more shared memory than the smaller GPUs have. */
bool gradient_fits(int size)
{
    return size <= 64 || has_shared<BackwardShared<__half, 128>>();
}

bool grad_uses_tensor_cores(const cuda_attention_shape *a)
{
    return type_fits(a->type, a->size) && gradient_fits(a->size);
}

AttentionSizes sizes_of(const cuda_attention_shape *a, const int32_t *ends, const cuda_run_values *run)
{
    AttentionSizes sizes = {};
    sizes.ends = ends;
    sizes.tokens = a->tokens;
    sizes.sequences = a->sequences;
    sizes.heads = a->heads;
    sizes.size = a->size;
    sizes.stride = 3 * (int64_t)a->heads * a->size;
    sizes.scale = (float)(1 / std::sqrt((double)a->size));
    sizes.dropout.run = run;
    sizes.dropout.origin.per_token = 1;
    sizes.dropout.id = a->dropout;
    sizes.dropout.threshold = a->threshold;
    sizes.dropout.scale = 1 / (1 - a->probability);
    return sizes;
}

AttentionSizes sizes_of(const cuda_product_attention *a, const cuda_run_values *run)
{
    AttentionSizes sizes = {};
    sizes.length = a->queries;
    sizes.causal = a->causal;
    sizes.stride = a->query_stride;
    sizes.tokens = a->sequences * a->queries;
    sizes.sequences = (int)a->sequences;
    sizes.heads = a->heads;
    sizes.size = a->size;
    sizes.scale = a->scale;
    sizes.dropout.run = run;
    sizes.dropout.origin = a->origin;
    sizes.dropout.id = a->dropout;
    sizes.dropout.threshold = a->threshold;
    sizes.dropout.scale = 1 / (1 - a->probability);
    return sizes;
}

/* The three parts of packed rows. */
template <typename T> Operands<T> parts_of(const cuda_attention_shape *a, const void *qkv, void *dqkv)
{
    const int64_t width = (int64_t)a->heads * a->size;
    const T *from = (const T *)qkv;
    T *to = (T *)dqkv;
    return to ? Operands<T>{from, from + width, from + 2 * width, to, to + width, to + 2 * width}
              : Operands<T>{from, from + width, from + 2 * width, nullptr, nullptr, nullptr};
}

/* Calls `f` with a type and a padded size of heads. */
template <typename F> cudaError_t with_heads(cuda_type type, int size, F f)
{
    auto with_size = [&](auto zero) {
        return size <= 32 ? f(zero, Width<32>()) : size <= 64 ? f(zero, Width<64>()) : f(zero, Width<128>());
    };
    return type == CUDA_TYPE_BF16 ? with_size(__nv_bfloat16()) : with_size(__half());
}

/* `blocks`: sequences, and one more where there may be rows of none. */
template <typename T, int D>
cudaError_t launch_forward(cudaStream_t stream, const AttentionSizes &a, int blocks, int longest, const Operands<T> &of,
                           void *y, float *statistics)
{
    using Shared = ForwardShared<T, D>;
    const int tiles = (int)ceil_div(longest, QUERIES);
    const cudaError_t error = allow_shared<Shared>(attention_kernel<T, D>);
    if (error != cudaSuccess)
        return error;
    attention_kernel<T, D>
        <<<dim3((unsigned)blocks * (unsigned)tiles, (unsigned)a.heads), FORWARD_THREADS, sizeof(Shared), stream>>>(
            a, tiles, of, (T *)y, statistics);
    return cudaGetLastError();
}

template <typename T, int D>
cudaError_t launch_gradient(cudaStream_t stream, const AttentionSizes &a, int blocks, const Operands<T> &of,
                            const void *y, const float *statistics, const void *dy, float *scratch)
{
    using Shared = BackwardShared<T, D>;
    const cudaError_t error = allow_shared<Shared>(attention_grad_kernel<T, D>);
    if (error != cudaSuccess)
        return error;
    attention_grad_kernel<T, D><<<dim3((unsigned)blocks, (unsigned)a.heads), THREADS, sizeof(Shared), stream>>>(
        a, of, (const T *)y, statistics, (const T *)dy, scratch);
    return cudaGetLastError();
}

} // namespace

extern "C" {

size_t cuda_attention_scratch_bytes(const cuda_attention_shape *a)
{
    if (!grad_uses_tensor_cores(a))
        return (size_t)a->tokens * (size_t)a->heads * sizeof(float);
    return a->longest <= KEYS ? 0 : (size_t)a->tokens * (size_t)a->heads * (size_t)a->size * sizeof(float);
}

cudaError_t cuda_launch_attention(cudaStream_t stream, const cuda_attention_shape *a, const void *qkv,
                                  const int32_t *ends, void *y, float *statistics, const cuda_run_values *run)
{
    const AttentionSizes sizes = sizes_of(a, ends, run);
    if (!type_fits(a->type, a->size))
        return launch_plain_attention(stream, a->type, a->longest, sizes, qkv, y, statistics);
    return with_heads(a->type, a->size, [&](auto zero, auto padded) {
        using T = decltype(zero);
        return launch_forward<T, decltype(padded)::value>(stream, sizes, a->sequences + 1, a->longest,
                                                          parts_of<T>(a, qkv, nullptr), y, statistics);
    });
}

cudaError_t cuda_launch_attention_grad(cudaStream_t stream, const cuda_attention_shape *a, const void *qkv,
                                       const int32_t *ends, const void *y, const float *statistics, const void *dy,
                                       void *dqkv, float *scratch, const cuda_run_values *run)
{
    const AttentionSizes sizes = sizes_of(a, ends, run);
    if (!grad_uses_tensor_cores(a))
        return launch_plain_attention_grad(stream, a->type, a->longest, sizes, qkv, y, statistics, dy, dqkv, scratch);
    return with_heads(a->type, a->size, [&](auto zero, auto padded) {
        using T = decltype(zero);
        return launch_gradient<T, decltype(padded)::value>(stream, sizes, a->sequences + 1, parts_of<T>(a, qkv, dqkv),
                                                           y, statistics, dy, scratch);
    });
}

} // extern "C"

/* The statistics are the same as the other kernels', so each direction may choose for itself. */
bool uses_tensor_cores(const cuda_product_attention *a)
{
    return type_fits(a->type, a->size) && gradient_fits(a->size) && a->size == a->value_size && a->queries == a->keys &&
           a->query_stride == a->value_stride && a->mask_entries == 0 && a->scale > 0;
}

size_t fast_product_scratch_bytes(const cuda_product_attention *a)
{
    const int64_t rows = a->sequences * a->queries;
    return a->queries <= KEYS ? 0 : (size_t)rows * (size_t)a->heads * (size_t)a->size * sizeof(float);
}

cudaError_t launch_fast_product_attention(cudaStream_t stream, const cuda_product_attention *a, void *y,
                                          float *statistics, const cuda_run_values *run)
{
    const AttentionSizes sizes = sizes_of(a, run);
    return with_heads(a->type, a->size, [&](auto zero, auto padded) {
        using T = decltype(zero);
        const Operands<T> of = {(const T *)a->query, (const T *)a->key, (const T *)a->value, nullptr, nullptr, nullptr};
        return launch_forward<T, decltype(padded)::value>(stream, sizes, sizes.sequences, a->queries, of, y,
                                                          statistics);
    });
}

cudaError_t launch_fast_product_attention_grad(cudaStream_t stream, const cuda_product_attention *a, const void *y,
                                               const float *statistics, const void *dy, void *dquery, void *dkey,
                                               void *dvalue, float *scratch, const cuda_run_values *run)
{
    const AttentionSizes sizes = sizes_of(a, run);
    return with_heads(a->type, a->size, [&](auto zero, auto padded) {
        using T = decltype(zero);
        const Operands<T> of = {(const T *)a->query, (const T *)a->key, (const T *)a->value,
                                (T *)dquery,         (T *)dkey,         (T *)dvalue};
        return launch_gradient<T, decltype(padded)::value>(stream, sizes, sizes.sequences, of, y, statistics, dy,
                                                           scratch);
    });
}
