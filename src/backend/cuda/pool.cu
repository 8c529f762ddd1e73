/* Pooling over NHWC images, a vector of channels per thread. Gradients gather: each input element
 * adds up what the windows over it give, in order, so nothing is added atomically. */
#include "backend/cuda/device.cuh"

namespace
{

enum { THREADS = 256 };

struct Place {
    int vector, x, y;
    int64_t n;
};

/* Divisions of 32 bits where they will do: those of 64 cost more than the memory. */
template <typename I> __device__ __forceinline__ Place split_place(I i, I vectors, I width, I height)
{
    Place p;
    p.vector = (int)(i % vectors);
    I rest = i / vectors;
    p.x = (int)(rest % width);
    rest /= width;
    p.y = (int)(rest % height);
    p.n = (int64_t)(rest / height);
    return p;
}

__device__ __forceinline__ Place place_of(int64_t i, int64_t count, int vectors, int width, int height)
{
    if (count <= UINT32_MAX)
        return split_place<uint32_t>((uint32_t)i, (uint32_t)vectors, (uint32_t)width, (uint32_t)height);
    return split_place<uint64_t>((uint64_t)i, (uint64_t)vectors, (uint64_t)width, (uint64_t)height);
}

template <typename T, int V>
__global__ void __launch_bounds__(THREADS) max_pool_kernel(cuda_pool p, const T *x, T *y, uint8_t *where, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const int vectors = p.channels / V;
    const Place at = place_of(i, count, vectors, p.out_width, p.out_height);
    const int top = at.y * p.stride[0] - p.padding[0], left = at.x * p.stride[1] - p.padding[1];
    float best[V];
    uint8_t best_at[V];
    bool first = true;
    for (int kh = 0; kh < p.kernel[0]; kh++) {
        int h = top + kh;
        if (h < 0 || h >= p.height)
            continue;
        for (int kw = 0; kw < p.kernel[1]; kw++) {
            int w = left + kw;
            if (w < 0 || w >= p.width)
                continue;
            Vec<T, V> in = load<T, V>(x + ((at.n * p.height + h) * p.width + w) * p.channels + at.vector * V);
            uint8_t tap = (uint8_t)(kh * p.kernel[1] + kw);
#pragma unroll
            for (int k = 0; k < V; k++) {
                float value = to_float(in.v[k]);
                if (first || value > best[k] || (value != value && best[k] == best[k])) {
                    best[k] = value;
                    best_at[k] = tap;
                }
            }
            first = false;
        }
    }
    Vec<T, V> out;
    Vec<uint8_t, V> taps;
#pragma unroll
    for (int k = 0; k < V; k++) {
        out.v[k] = from_float<T>(best[k]);
        taps.v[k] = best_at[k];
    }
    store<T, V>(y + i * V, out);
    if (where)
        store<uint8_t, V>(where + i * V, taps);
}

template <typename T, int V>
__global__ void __launch_bounds__(THREADS)
    max_pool_grad_kernel(cuda_pool p, const T *dy, const uint8_t *where, T *dx, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const int vectors = p.channels / V;
    const Place at = place_of(i, count, vectors, p.width, p.height);
    float sum[V];
#pragma unroll
    for (int k = 0; k < V; k++)
        sum[k] = 0;
    /* windows whose rows include at.y: oh * stride - padding <= y < oh * stride - padding +
     * kernel */
    const int kh = p.kernel[0], kw = p.kernel[1], sh = p.stride[0], sw = p.stride[1];
    const int y = at.y + p.padding[0], x = at.x + p.padding[1];
    const int first_y = y < kh ? 0 : (y - kh) / sh + 1, first_x = x < kw ? 0 : (x - kw) / sw + 1;
    const int last_y = min(y / sh, p.out_height - 1), last_x = min(x / sw, p.out_width - 1);
    for (int oh = first_y; oh <= last_y; oh++)
        for (int ow = first_x; ow <= last_x; ow++) {
            int tap = (y - oh * sh) * kw + (x - ow * sw);
            int64_t from = ((at.n * p.out_height + oh) * p.out_width + ow) * p.channels + at.vector * V;
            Vec<uint8_t, V> taps = load<uint8_t, V>(where + from);
            Vec<T, V> in = load<T, V>(dy + from);
#pragma unroll
            for (int k = 0; k < V; k++)
                sum[k] += taps.v[k] == tap ? to_float(in.v[k]) : 0;
        }
    Vec<T, V> out;
#pragma unroll
    for (int k = 0; k < V; k++)
        out.v[k] = from_float<T>(sum[k]);
    store<T, V>(dx + i * V, out);
}

/* Windows that tile the input: a thread per window writes all of it. */
template <typename T, int V>
__global__ void __launch_bounds__(THREADS)
    max_pool_grad_tiles_kernel(cuda_pool p, const T *dy, const uint8_t *where, T *dx, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const Place at = place_of(i, count, p.channels / V, p.out_width, p.out_height);
    const Vec<uint8_t, V> taps = load<uint8_t, V>(where + i * V);
    const Vec<T, V> in = load<T, V>(dy + i * V);
    int tap = 0;
    for (int kh = 0; kh < p.kernel[0]; kh++)
        for (int kw = 0; kw < p.kernel[1]; kw++, tap++) {
            Vec<T, V> out;
#pragma unroll
            for (int k = 0; k < V; k++)
                out.v[k] = taps.v[k] == tap ? in.v[k] : from_float<T>(0);
            int64_t row = at.n * p.height + at.y * p.kernel[0] + kh;
            store<T, V>(dx + (row * p.width + at.x * p.kernel[1] + kw) * p.channels + at.vector * V, out);
        }
}

/* Windows of 3x3, stride 2, padding 1, as in ResNet: 2x2 elements lie in the same 2x2 windows at
 * most, so a thread reads four windows for four elements. With a thread for each element it was
 * nine, and 412 us of resnet50's step for what a copy moves in 130. The sums are made in the same
 * order. */
template <typename T, int V>
__global__ void __launch_bounds__(THREADS)
    max_pool_grad_fours_kernel(cuda_pool p, const T *dy, const uint8_t *where, T *dx, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const Place at = place_of(i, count, p.channels / V, (p.width + 1) / 2, (p.height + 1) / 2);
    float sum[2][2][V];
#pragma unroll
    for (int k = 0; k < 4 * V; k++)
        sum[k / V / 2][k / V % 2][k % V] = 0;
#pragma unroll
    for (int wy = 0; wy < 2; wy++)
#pragma unroll
        for (int wx = 0; wx < 2; wx++) {
            const int oh = at.y + wy, ow = at.x + wx;
            if (oh >= p.out_height || ow >= p.out_width)
                continue;
            const int64_t from = ((at.n * p.out_height + oh) * p.out_width + ow) * p.channels + at.vector * V;
            const Vec<uint8_t, V> taps = load<uint8_t, V>(where + from);
            const Vec<T, V> in = load<T, V>(dy + from);
#pragma unroll
            for (int a = wy; a < 2; a++)
#pragma unroll
                for (int b = wx; b < 2; b++) {
                    const int tap = (a == 0 ? 1 : wy == 0 ? 2 : 0) * 3 + (b == 0 ? 1 : wx == 0 ? 2 : 0);
#pragma unroll
                    for (int k = 0; k < V; k++)
                        sum[a][b][k] += taps.v[k] == tap ? to_float(in.v[k]) : 0;
                }
        }
#pragma unroll
    for (int a = 0; a < 2; a++)
#pragma unroll
        for (int b = 0; b < 2; b++) {
            const int y = 2 * at.y + a, x = 2 * at.x + b;
            if (y >= p.height || x >= p.width)
                continue;
            Vec<T, V> out;
#pragma unroll
            for (int k = 0; k < V; k++)
                out.v[k] = from_float<T>(sum[a][b][k]);
            store<T, V>(dx + ((at.n * p.height + y) * p.width + x) * p.channels + at.vector * V, out);
        }
}

bool windows_tile(const cuda_pool *p)
{
    bool tile = true;
    const int sizes[2][2] = {{p->height, p->out_height}, {p->width, p->out_width}};
    for (int axis = 0; axis < 2; axis++)
        tile = tile && p->padding[axis] == 0 && p->kernel[axis] == p->stride[axis] &&
               sizes[axis][0] == sizes[axis][1] * p->kernel[axis];
    return tile;
}

/* The window of output `o` on one axis, cut to the input, and how much it counts in the divisor. */
struct Window {
    int begin, end, counted;
};

__device__ __forceinline__ Window window_of(const cuda_pool &p, int axis, int o)
{
    const int size = axis == 0 ? p.height : p.width, out = axis == 0 ? p.out_height : p.out_width;
    Window w;
    if (p.adaptive) {
        w.begin = (int)((int64_t)o * size / out);
        w.end = (int)(((int64_t)(o + 1) * size + out - 1) / out);
        w.counted = w.end - w.begin;
        return w;
    }
    int begin = o * p.stride[axis] - p.padding[axis], end = begin + p.kernel[axis];
    w.begin = max(begin, 0);
    w.end = min(end, size);
    w.counted = p.count_padding ? min(end, size + p.padding[axis]) - begin : w.end - w.begin;
    return w;
}

template <typename T, int V>
__global__ void __launch_bounds__(THREADS) average_pool_kernel(cuda_pool p, const T *x, T *y, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const Place at = place_of(i, count, p.channels / V, p.out_width, p.out_height);
    const Window rows = window_of(p, 0, at.y), columns = window_of(p, 1, at.x);
    float sum[V];
#pragma unroll
    for (int k = 0; k < V; k++)
        sum[k] = 0;
    for (int h = rows.begin; h < rows.end; h++)
        for (int w = columns.begin; w < columns.end; w++) {
            Vec<T, V> in = load<T, V>(x + ((at.n * p.height + h) * p.width + w) * p.channels + at.vector * V);
#pragma unroll
            for (int k = 0; k < V; k++)
                sum[k] += to_float(in.v[k]);
        }
    const float divisor = (float)((int64_t)rows.counted * columns.counted);
    Vec<T, V> out;
#pragma unroll
    for (int k = 0; k < V; k++)
        out.v[k] = from_float<T>(sum[k] / divisor);
    store<T, V>(y + i * V, out);
}

/* The first and last output whose window may include position `at`. */
__device__ __forceinline__ void outputs_over(const cuda_pool &p, int axis, int at, int *first, int *last)
{
    const int size = axis == 0 ? p.height : p.width, out = axis == 0 ? p.out_height : p.out_width;
    if (p.adaptive) {
        *first = (int)((int64_t)at * out / size);
        *last = (int)min(((int64_t)(at + 1) * out - 1) / size + 1, (int64_t)out - 1);
        return;
    }
    int shifted = at + p.padding[axis];
    *first = shifted < p.kernel[axis] ? 0 : (shifted - p.kernel[axis]) / p.stride[axis] + 1;
    *last = min(shifted / p.stride[axis], out - 1);
}

template <typename T, int V>
__global__ void __launch_bounds__(THREADS) average_pool_grad_kernel(cuda_pool p, const T *dy, T *dx, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const Place at = place_of(i, count, p.channels / V, p.width, p.height);
    int first_y, last_y, first_x, last_x;
    outputs_over(p, 0, at.y, &first_y, &last_y);
    outputs_over(p, 1, at.x, &first_x, &last_x);
    float sum[V];
#pragma unroll
    for (int k = 0; k < V; k++)
        sum[k] = 0;
    for (int oh = first_y; oh <= last_y; oh++) {
        const Window rows = window_of(p, 0, oh);
        if (at.y < rows.begin || at.y >= rows.end)
            continue;
        for (int ow = first_x; ow <= last_x; ow++) {
            const Window columns = window_of(p, 1, ow);
            if (at.x < columns.begin || at.x >= columns.end)
                continue;
            const float share = 1 / (float)((int64_t)rows.counted * columns.counted);
            Vec<T, V> in =
                load<T, V>(dy + ((at.n * p.out_height + oh) * p.out_width + ow) * p.channels + at.vector * V);
#pragma unroll
            for (int k = 0; k < V; k++)
                sum[k] = fmaf(to_float(in.v[k]), share, sum[k]);
        }
    }
    Vec<T, V> out;
#pragma unroll
    for (int k = 0; k < V; k++)
        out.v[k] = from_float<T>(sum[k]);
    store<T, V>(dx + i * V, out);
}

int64_t in_vectors(const cuda_pool *p, int width)
{
    return (int64_t)p->batch * p->height * p->width * (p->channels / width);
}

int64_t out_vectors(const cuda_pool *p, int width)
{
    return (int64_t)p->batch * p->out_height * p->out_width * (p->channels / width);
}

} // namespace

extern "C" {

cudaError_t cuda_launch_max_pool(cudaStream_t stream, const cuda_pool *p, const void *x, void *y, uint8_t *where)
{
    return with_vectors(p->type, p->channels, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value;
        int64_t count = out_vectors(p, V);
        max_pool_kernel<T, V>
            <<<(unsigned)ceil_div(count, THREADS), THREADS, 0, stream>>>(*p, (const T *)x, (T *)y, where, count);
        return cudaGetLastError();
    });
}

cudaError_t cuda_launch_max_pool_grad(cudaStream_t stream, const cuda_pool *p, const void *dy, const uint8_t *where,
                                      void *dx)
{
    return with_vectors(p->type, p->channels, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value;
        const bool tile = windows_tile(p);
        const bool fours = p->kernel[0] == 3 && p->kernel[1] == 3 && p->stride[0] == 2 && p->stride[1] == 2 &&
                           p->padding[0] == 1 && p->padding[1] == 1;
        int64_t count = tile    ? out_vectors(p, V)
                        : fours ? (int64_t)p->batch * ((p->height + 1) / 2) * ((p->width + 1) / 2) * (p->channels / V)
                                : in_vectors(p, V);
        auto kernel = tile    ? max_pool_grad_tiles_kernel<T, V>
                      : fours ? max_pool_grad_fours_kernel<T, V>
                              : max_pool_grad_kernel<T, V>;
        kernel<<<(unsigned)ceil_div(count, THREADS), THREADS, 0, stream>>>(*p, (const T *)dy, where, (T *)dx, count);
        return cudaGetLastError();
    });
}

cudaError_t cuda_launch_average_pool(cudaStream_t stream, const cuda_pool *p, const void *x, void *y)
{
    return with_vectors(p->type, p->channels, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value;
        int64_t count = out_vectors(p, V);
        average_pool_kernel<T, V>
            <<<(unsigned)ceil_div(count, THREADS), THREADS, 0, stream>>>(*p, (const T *)x, (T *)y, count);
        return cudaGetLastError();
    });
}

cudaError_t cuda_launch_average_pool_grad(cudaStream_t stream, const cuda_pool *p, const void *dy, void *dx)
{
    return with_vectors(p->type, p->channels, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value;
        int64_t count = in_vectors(p, V);
        average_pool_grad_kernel<T, V>
            <<<(unsigned)ceil_div(count, THREADS), THREADS, 0, stream>>>(*p, (const T *)dy, (T *)dx, count);
        return cudaGetLastError();
    });
}

} // extern "C"
