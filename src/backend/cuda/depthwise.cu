/* Depthwise convolutions over NHWC images. They move memory: a thread computes a tile of outputs of
 * V channels, so that most of what it loads serves several taps, and neighbouring threads have
 * neighbouring channels. Sums are f32. Nothing is added atomically: the weights' gradient is summed
 * in parts, which a second launch adds in order. */
#include "backend/cuda/device.cuh"

namespace
{

enum { THREADS = 256, ROWS = 2, COLUMNS = 4, LANES = 32, WALKERS = 8 };

/* One correlation: grad_input with stride 1 is one as well, with its weights turned round. */
struct Correlation {
    int channels;
    int in_height, in_width, out_height, out_width, padding_y, padding_x;
};

/* to[tap][channel] = w[channel][tap]; channels past the logical ones are 0. */
__global__ void __launch_bounds__(THREADS)
    pack_kernel(const float *w, float *to, int channels, int logical, int taps)
{
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (i >= channels * taps)
        return;
    const int channel = i % channels, tap = i / channels;
    to[i] = channel < logical ? w[(int64_t)channel * taps + tap] : 0;
}

template <int V> __device__ __forceinline__ void load_weight(const float *w, int at, float out[V])
{
    const Vec<float, V> loaded = load<float, V>(w + at);
#pragma unroll
    for (int k = 0; k < V; k++)
        out[k] = loaded.v[k];
}

struct Tile {
    int vector, row, column;
    int64_t n;
};

/* Tile `i`: vectors run fastest, then columns. */
__device__ __forceinline__ Tile tile_of(int64_t i, int vectors, int height, int width)
{
    const int across = (width + COLUMNS - 1) / COLUMNS, down = (height + ROWS - 1) / ROWS;
    Tile t;
    t.vector = (int)(i % vectors);
    int64_t rest = i / vectors;
    t.column = (int)(rest % across) * COLUMNS;
    rest /= across;
    t.row = (int)(rest % down) * ROWS;
    t.n = rest / down;
    return t;
}

int64_t count_tiles(int64_t batch, int height, int width, int vectors)
{
    return batch * ceil_div(height, ROWS) * ceil_div(width, COLUMNS) * vectors;
}

template <typename T, int V>
__device__ __forceinline__ void store_tile(T *to, const Tile &t, int channels, int height, int width,
                                           const float (&sum)[ROWS][COLUMNS][V])
{
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            if (t.row + r >= height || t.column + c >= width)
                continue;
            Vec<T, V> out;
#pragma unroll
            for (int k = 0; k < V; k++)
                out.v[k] = from_float<T>(sum[r][c][k]);
            store<T, V>(to + ((t.n * height + t.row + r) * width + t.column + c) * channels + t.vector * V, out);
        }
}

template <int V> __device__ __forceinline__ void clear(float (&sum)[ROWS][COLUMNS][V])
{
#pragma unroll
    for (int k = 0; k < ROWS * COLUMNS * V; k++)
        sum[k / V / COLUMNS][k / V % COLUMNS][k % V] = 0;
}

/* TURNED: tap (i, j) has the weights of (K - 1 - i, K - 1 - j). */
template <typename T, int V, int K, int S, bool TURNED>
__global__ void __launch_bounds__(THREADS)
    correlate_kernel(Correlation c, const T *x, const float *__restrict__ w, T *y, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const Tile t = tile_of(i, c.channels / V, c.out_height, c.out_width);
    const int top = t.row * S - c.padding_y, left = t.column * S - c.padding_x;
    float sum[ROWS][COLUMNS][V];
    clear<V>(sum);
#pragma unroll
    for (int a = 0; a < (ROWS - 1) * S + K; a++) {
        const int h = top + a;
        if (h < 0 || h >= c.in_height)
            continue;
        float in[(COLUMNS - 1) * S + K][V];
#pragma unroll
        for (int b = 0; b < (COLUMNS - 1) * S + K; b++) {
            const int column = left + b;
            const bool inside = column >= 0 && column < c.in_width;
            Vec<T, V> loaded;
            if (inside)
                loaded = load<T, V>(x + ((t.n * c.in_height + h) * c.in_width + column) * c.channels + t.vector * V);
#pragma unroll
            for (int k = 0; k < V; k++)
                in[b][k] = inside ? to_float(loaded.v[k]) : 0;
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int tap_row = a - r * S;
            if (tap_row < 0 || tap_row >= K)
                continue;
#pragma unroll
            for (int j = 0; j < K; j++) {
                float weight[V];
                const int tap = TURNED ? K * K - 1 - (tap_row * K + j) : tap_row * K + j;
                load_weight<V>(w, tap * c.channels + t.vector * V, weight);
#pragma unroll
                for (int b = 0; b < COLUMNS; b++)
#pragma unroll
                    for (int k = 0; k < V; k++)
                        sum[r][b][k] = fmaf(in[b * S + j][k], weight[k], sum[r][b][k]);
            }
        }
    }
    store_tile<T, V>(y, t, c.channels, c.out_height, c.out_width, sum);
}

/* grad_input with stride 2. Tiles begin where row + padding is even, so which taps meet an
 * output is known when this is compiled: dy's row `first + d` meets row r of the tile at tap r -
 * 2d. */
template <typename T, int V, int K>
__global__ void __launch_bounds__(THREADS)
    spread_kernel(cuda_depthwise p, const T *dy, const float *__restrict__ w, T *dx, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const int shift_y = p.padding[0] & 1, shift_x = p.padding[1] & 1;
    Tile t = tile_of(i, p.channels / V, p.height + shift_y, p.width + shift_x);
    t.row -= shift_y;
    t.column -= shift_x;
    const int first_row = (t.row + p.padding[0]) / 2, first_column = (t.column + p.padding[1]) / 2;
    float sum[ROWS][COLUMNS][V];
    clear<V>(sum);
#pragma unroll
    for (int a = -(K - 1) / 2; a <= (ROWS - 1) / 2; a++) {
        const int oh = first_row + a;
        if (oh < 0 || oh >= p.out_height)
            continue;
#pragma unroll
        for (int b = -(K - 1) / 2; b <= (COLUMNS - 1) / 2; b++) {
            const int ow = first_column + b;
            if (ow < 0 || ow >= p.out_width)
                continue;
            const Vec<T, V> in =
                load<T, V>(dy + ((t.n * p.out_height + oh) * p.out_width + ow) * p.channels + t.vector * V);
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) {
                    const int row = r - 2 * a, column = c - 2 * b;
                    if (row < 0 || row >= K || column < 0 || column >= K)
                        continue;
                    float weight[V];
                    load_weight<V>(w, (row * K + column) * p.channels + t.vector * V, weight);
#pragma unroll
                    for (int k = 0; k < V; k++)
                        sum[r][c][k] = fmaf(to_float(in.v[k]), weight[k], sum[r][c][k]);
                }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            const int row = t.row + r, column = t.column + c;
            if (row < 0 || row >= p.height || column < 0 || column >= p.width)
                continue;
            Vec<T, V> out;
#pragma unroll
            for (int k = 0; k < V; k++)
                out.v[k] = from_float<T>(sum[r][c][k]);
            store<T, V>(dx + ((t.n * p.height + row) * p.width + column) * p.channels + t.vector * V, out);
        }
}

/* A block sums R rows of the kernel's taps over a part of the batch's output rows, for LANES
 * vectors of channels; its WALKERS take the rows in turn. Each walker keeps the columns of x
 * under the kernel, so that every number is loaded once for a row of taps. */
template <typename T, int V, int K, int S, int R>
__global__ void __launch_bounds__(LANES *WALKERS)
    weights_kernel(cuda_depthwise p, const T *x, const T *dy, float *parts, int part_count)
{
    __shared__ float shared[WALKERS][LANES * V];
    const int vectors = p.channels / V, vector = (int)(blockIdx.x * LANES + threadIdx.x), part = (int)blockIdx.y;
    const int first = (int)blockIdx.z * R; /* row of taps */
    const int64_t rows = (int64_t)p.batch * p.out_height;
    const int64_t begin = rows * part / part_count, end = rows * (part + 1) / part_count;
    float sum[R][K][V], window[R][K][V];
#pragma unroll
    for (int k = 0; k < R * K * V; k++)
        sum[k / V / K][k / V % K][k % V] = 0;
    for (int64_t row = begin + threadIdx.y; row < end && vector < vectors; row += WALKERS) {
        const int64_t n = row / p.out_height;
        const int top = (int)(row % p.out_height) * S - p.padding[0] + first;
        for (int t = 0; t < p.out_width; t++) {
            const int left = t * S - p.padding[1];
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < K; j++) {
                    const int h = top + i, column = left + j;
                    const bool kept = t > 0 && j + S < K;
                    Vec<T, V> loaded;
                    const bool inside = h >= 0 && h < p.height && column >= 0 && column < p.width;
                    if (!kept && inside)
                        loaded = load<T, V>(x + ((n * p.height + h) * p.width + column) * p.channels + vector * V);
#pragma unroll
                    for (int k = 0; k < V; k++)
                        window[i][j][k] = kept     ? window[i][j + S < K ? j + S : j][k]
                                          : inside ? to_float(loaded.v[k])
                                                   : 0;
                }
            const Vec<T, V> d = load<T, V>(dy + (row * p.out_width + t) * p.channels + vector * V);
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < K; j++)
#pragma unroll
                    for (int k = 0; k < V; k++)
                        sum[i][j][k] = fmaf(window[i][j][k], to_float(d.v[k]), sum[i][j][k]);
        }
    }
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < K; j++) {
            __syncthreads();
#pragma unroll
            for (int k = 0; k < V; k++)
                shared[threadIdx.y][threadIdx.x * V + k] = sum[i][j][k];
            __syncthreads();
            if (threadIdx.y != 0 || vector >= vectors)
                continue;
#pragma unroll
            for (int k = 0; k < V; k++) {
                float all = 0;
                for (int walker = 0; walker < WALKERS; walker++)
                    all += shared[walker][threadIdx.x * V + k];
                parts[((int64_t)part * K * K + (first + i) * K + j) * p.channels + vector * V + k] = all;
            }
        }
}

/* dw[channel][tap] = sum over the parts of parts[part][tap][channel] */
__global__ void __launch_bounds__(THREADS)
    add_parts_kernel(const float *parts, float *dw, int part_count, int channels, int logical, int taps)
{
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x), channel = i % channels, tap = i / channels;
    if (i >= channels * taps || channel >= logical)
        return;
    float sum = 0;
    for (int part = 0; part < part_count; part++)
        sum += parts[(int64_t)part * taps * channels + i];
    dw[(int64_t)channel * taps + tap] = sum;
}

/* Rows of taps that a block sums. */
int rows_at_once(int kernel)
{
    return kernel == 3 ? 3 : 1;
}

int part_count_of(const cuda_launch *launch, const cuda_depthwise *p)
{
    const int64_t rows = (int64_t)p->batch * p->out_height, wanted = 4 * (int64_t)launch->processors;
    const int64_t blocks = ceil_div(p->channels, 2 * LANES) * (p->kernel / rows_at_once(p->kernel));
    const int64_t parts = ceil_div(wanted, blocks), most = ceil_div(rows, WALKERS);
    return (int)(parts < most ? parts : most);
}

/* With the kernel's size, and vectors of 4 or 1 channels. */
template <typename F> cudaError_t with_kernel(const cuda_depthwise *p, F f)
{
    return with_type(p->type, [&](auto zero) {
        const bool four = p->channels % 4 == 0;
        switch (p->kernel) {
        case 3: return four ? f(zero, Width<4>(), Width<3>()) : f(zero, Width<1>(), Width<3>());
        case 5: return four ? f(zero, Width<4>(), Width<5>()) : f(zero, Width<1>(), Width<5>());
        case 7: return four ? f(zero, Width<4>(), Width<7>()) : f(zero, Width<1>(), Width<7>());
        default: return cudaErrorInvalidValue;
        }
    });
}

unsigned blocks_for(int64_t count)
{
    return (unsigned)ceil_div(count, THREADS);
}

template <typename T, int V, int K, int S>
cudaError_t launch_weights(const cuda_launch *launch, const cuda_depthwise *p, const void *x, const void *dy,
                           float *parts, int part_count)
{
    constexpr int R = K == 3 ? 3 : 1;
    const dim3 blocks((unsigned)ceil_div(p->channels / V, LANES), (unsigned)part_count, K / R);
    weights_kernel<T, V, K, S, R><<<blocks, dim3(LANES, WALKERS), 0, launch->stream>>>(*p, (const T *)x, (const T *)dy,
                                                                                       parts, part_count);
    return cudaGetLastError();
}

} // namespace

extern "C" {

cudaError_t cuda_launch_depthwise_pack(cudaStream_t stream, const cuda_depthwise *p, const float *weights, float *to)
{
    const int taps = p->kernel * p->kernel;
    pack_kernel<<<blocks_for((int64_t)p->channels * taps), THREADS, 0, stream>>>(weights, to, p->channels, p->logical,
                                                                                 taps);
    return cudaGetLastError();
}

cudaError_t cuda_launch_depthwise_forward(cudaStream_t stream, const cuda_depthwise *p, const void *x,
                                          const float *weights, void *y)
{
    const Correlation c = {p->channels,  p->height,     p->width,     p->out_height,
                           p->out_width, p->padding[0], p->padding[1]};
    return with_kernel(p, [&](auto zero, auto width, auto kernel) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value, K = decltype(kernel)::value;
        const int64_t count = count_tiles(p->batch, p->out_height, p->out_width, p->channels / V);
        auto run = p->stride == 1 ? correlate_kernel<T, V, K, 1, false> : correlate_kernel<T, V, K, 2, false>;
        run<<<blocks_for(count), THREADS, 0, stream>>>(c, (const T *)x, weights, (T *)y, count);
        return cudaGetLastError();
    });
}

cudaError_t cuda_launch_depthwise_grad_input(cudaStream_t stream, const cuda_depthwise *p, const void *dy,
                                             const float *weights, void *dx)
{
    const int back = p->kernel - 1;
    const Correlation c = {p->channels, p->out_height,        p->out_width,        p->height,
                           p->width,    back - p->padding[0], back - p->padding[1]};
    return with_kernel(p, [&](auto zero, auto width, auto kernel) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value, K = decltype(kernel)::value;
        if (p->stride == 1) {
            const int64_t count = count_tiles(p->batch, p->height, p->width, p->channels / V);
            correlate_kernel<T, V, K, 1, true>
                <<<blocks_for(count), THREADS, 0, stream>>>(c, (const T *)dy, weights, (T *)dx, count);
        } else {
            const int64_t count = count_tiles(p->batch, p->height + (p->padding[0] & 1),
                                              p->width + (p->padding[1] & 1), p->channels / V);
            spread_kernel<T, V, K>
                <<<blocks_for(count), THREADS, 0, stream>>>(*p, (const T *)dy, weights, (T *)dx, count);
        }
        return cudaGetLastError();
    });
}

size_t cuda_depthwise_floats(const cuda_launch *launch, const cuda_depthwise *p)
{
    return (size_t)part_count_of(launch, p) * (size_t)(p->kernel * p->kernel) * (size_t)p->channels;
}

cudaError_t cuda_launch_depthwise_grad_weights(const cuda_launch *launch, const cuda_depthwise *p, const void *x,
                                               const void *dy, float *scratch, float *dw)
{
    const int parts = part_count_of(launch, p), taps = p->kernel * p->kernel;
    const cudaError_t error = with_kernel(p, [&](auto zero, auto width, auto kernel) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value == 4 ? 2 : 1, K = decltype(kernel)::value;
        return p->stride == 1 ? launch_weights<T, V, K, 1>(launch, p, x, dy, scratch, parts)
                              : launch_weights<T, V, K, 2>(launch, p, x, dy, scratch, parts);
    });
    if (error != cudaSuccess)
        return error;
    add_parts_kernel<<<blocks_for((int64_t)p->channels * taps), THREADS, 0, launch->stream>>>(
        scratch, dw, parts, p->channels, p->logical, taps);
    return cudaGetLastError();
}

} // extern "C"
