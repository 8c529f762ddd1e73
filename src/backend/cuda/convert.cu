/* Layouts and types: images in and out, weights to channels last and their gradients back. */
#include "backend/cuda/device.cuh"

namespace
{

enum { THREADS = 256 };

/* Where element (n, c, h, w) lies, or -1. */
__device__ __forceinline__ int64_t locate(const cuda_view &v, int n, int c, int h, int w, int C, int H, int W)
{
    if (!v.nhwc)
        return (((int64_t)n * C + c) * H + h) * W + w;
    return (((int64_t)n * H + h) * W + w) * v.channels + c;
}

/* Pixel-wise: a thread writes all channels of one pixel, from planes that are read along the rows. For few channels. */
template <typename To, int C>
__global__ void __launch_bounds__(THREADS)
    planes_to_pixels_kernel(const float *from, To *to, int c, int64_t pixels, int plane)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= pixels)
        return;
    int64_t n = i / plane, at = i % plane;
    const float *source = from + n * c * plane + at;
    Vec<To, C> out;
#pragma unroll
    for (int k = 0; k < C; k++)
        out.v[k] = from_float<To>(k < c ? __ldcs(source + (int64_t)k * plane) : 0);
    store<To, C>(to + i * C, out);
}

/* Planes to folded pixels: channel (dy * 2 + dx) * c + k of folded pixel (y, x) is plane k at (2y + dy, 2x + dx);
 * 16 channels, c <= 4, the border and the channels past 4c are zero. */
template <typename To>
__global__ void __launch_bounds__(THREADS)
    fold_kernel(const float *from, To *to, int c, int h, int w, int folded_h, int folded_w, int before, int64_t pixels)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= pixels)
        return;
    int x = (int)(i % folded_w), y = (int)(i / folded_w % folded_h);
    int64_t n = i / folded_w / folded_h;
    alignas(16) To out[16];
#pragma unroll
    for (int k = 0; k < 16; k++)
        out[k] = from_float<To>(0);
#pragma unroll
    for (int dy = 0; dy < 2; dy++)
#pragma unroll
        for (int dx = 0; dx < 2; dx++) {
            int row = 2 * (y - before) + dy, column = 2 * (x - before) + dx;
            bool inside = row >= 0 && row < h && column >= 0 && column < w;
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (k < c && inside) {
                    To value = from_float<To>(from[((n * c + k) * h + row) * w + column]);
                    /* the index must be a constant for the array to stay in registers */
                    if (c == 1)
                        out[dy * 2 + dx] = value;
                    else if (c == 2)
                        out[(dy * 2 + dx) * 2 + (k & 1)] = value;
                    else if (c == 3 && k < 3)
                        out[(dy * 2 + dx) * 3 + k] = value;
                    else if (c == 4)
                        out[(dy * 2 + dx) * 4 + k] = value;
                }
        }
    constexpr int V = 16 / sizeof(To);
#pragma unroll
    for (int k = 0; k < 16; k += V)
        store<To, V>(to + i * 16 + k, *reinterpret_cast<Vec<To, V> *>(out + k));
}

/* Any layout to any other, one element of the target per thread. */
template <typename From, typename To>
__global__ void __launch_bounds__(THREADS) convert_kernel(const From *from, cuda_view source, To *to, cuda_view target,
                                                          int n, int c, int h, int w, int64_t count)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (int64_t)gridDim.x * THREADS) {
        int in, ic, ih, iw;
        if (target.nhwc) {
            ic = (int)(i % target.channels);
            int64_t pixel = i / target.channels;
            iw = (int)(pixel % w);
            ih = (int)(pixel / w % h);
            in = (int)(pixel / w / h);
        } else {
            iw = (int)(i % w);
            ih = (int)(i / w % h);
            ic = (int)(i / w / h % c);
            in = (int)(i / w / h / c);
        }
        float value = ic < c && in < n ? to_float(from[locate(source, in, ic, ih, iw, c, h, w)]) : 0;
        to[i] = from_float<To>(value);
    }
}

/* The entry that holds `chunk`. */
__device__ const cuda_cast &find_entry(const cuda_cast *entries, int count, int64_t chunk)
{
    int low = 0, high = count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (entries[middle].first_chunk <= chunk)
            low = middle;
        else
            high = middle - 1;
    }
    return entries[low];
}

/* Index of (o, i, kh, kw) in the channels-last tensor -> in the plain one; -1 in the padding. Weights have fewer than
 * 2^31 elements: 32-bit divisions. */
__device__ __forceinline__ int64_t plain_index(const cuda_cast &e, uint32_t at)
{
    uint32_t i = at % (uint32_t)e.physical_inputs, rest = at / (uint32_t)e.physical_inputs;
    if (e.fold == 2) {
        int kw = (int)(rest % (uint32_t)e.folded_width);
        rest /= (uint32_t)e.folded_width;
        int kh = (int)(rest % (uint32_t)e.folded_height);
        uint32_t o = rest / (uint32_t)e.folded_height;
        if (i >= 4 * (uint32_t)e.inputs || o >= (uint32_t)e.outputs)
            return -1;
        int parity = (int)(i / (uint32_t)e.inputs);
        kh = 2 * kh + parity / 2 - e.fold_offset;
        kw = 2 * kw + parity % 2 - e.fold_offset;
        i %= (uint32_t)e.inputs;
        if (kh < 0 || kh >= e.height || kw < 0 || kw >= e.width)
            return -1;
        return (((int64_t)o * e.inputs + i) * e.height + kh) * e.width + kw;
    }
    uint32_t taps = (uint32_t)(e.height * e.width), tap = rest % taps, o = rest / taps;
    if (i >= (uint32_t)e.inputs || o >= (uint32_t)e.outputs)
        return -1;
    return ((int64_t)o * e.inputs + i) * taps + tap;
}

__device__ __forceinline__ int64_t channels_last_count(const cuda_cast &e)
{
    int64_t taps = e.fold == 2 ? (int64_t)e.folded_height * e.folded_width : (int64_t)e.height * e.width;
    return e.physical_outputs * taps * e.physical_inputs;
}

__device__ __forceinline__ void put(void *to, int type, int64_t at, float value)
{
    if (type == CUDA_TYPE_F32)
        ((float *)to)[at] = value;
    else if (type == CUDA_TYPE_F16)
        ((__half *)to)[at] = __float2half_rn(value);
    else
        ((__nv_bfloat16 *)to)[at] = __float2bfloat16_rn(value);
}

__device__ __forceinline__ float get(const void *from, int type, int64_t at)
{
    if (type == CUDA_TYPE_F32)
        return ((const float *)from)[at];
    if (type == CUDA_TYPE_F16)
        return __half2float(((const __half *)from)[at]);
    return __bfloat162float(((const __nv_bfloat16 *)from)[at]);
}

__global__ void __launch_bounds__(THREADS) cast_weights_kernel(const cuda_cast *entries, int count)
{
    const cuda_cast e = find_entry(entries, count, blockIdx.x);
    const int64_t begin = (blockIdx.x - e.first_chunk) * CUDA_CAST_CHUNK, total = channels_last_count(e);
    const bool straight = e.height * e.width == 1 && e.physical_inputs == e.inputs && e.physical_outputs == e.outputs;
    const float *from = (const float *)e.from;
    if (straight && e.type != CUDA_TYPE_F32 && begin + CUDA_CAST_CHUNK <= total) {
        /* 1x1 kernels and matrices: a plain cast, 8 numbers a thread */
        static_assert(CUDA_CAST_CHUNK == 8 * THREADS, "");
        int64_t at = begin + threadIdx.x * 8;
        float4 a = *(const float4 *)(from + at), b = *(const float4 *)(from + at + 4);
        float values[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        if (e.type == CUDA_TYPE_BF16) {
            Vec<__nv_bfloat16, 8> out;
#pragma unroll
            for (int k = 0; k < 8; k++)
                out.v[k] = __float2bfloat16_rn(values[k]);
            store<__nv_bfloat16, 8>((__nv_bfloat16 *)e.to + at, out);
        } else {
            Vec<__half, 8> out;
#pragma unroll
            for (int k = 0; k < 8; k++)
                out.v[k] = __float2half_rn(values[k]);
            store<__half, 8>((__half *)e.to + at, out);
        }
        return;
    }
#pragma unroll 4
    for (int k = threadIdx.x; k < CUDA_CAST_CHUNK; k += THREADS) {
        int64_t at = begin + k;
        if (at >= total)
            break;
        int64_t source = straight ? at : plain_index(e, (uint32_t)at);
        put(e.to, e.type, at, source >= 0 ? from[source] : 0);
    }
}

/* The same walk in the other direction; every plain element has exactly one place in the channels-last tensor. */
__global__ void __launch_bounds__(THREADS) cast_gradients_kernel(const cuda_cast *entries, int count)
{
    const cuda_cast e = find_entry(entries, count, blockIdx.x);
    const int64_t begin = (blockIdx.x - e.first_chunk) * CUDA_CAST_CHUNK;
    const int64_t total = (int64_t)e.outputs * e.inputs * e.height * e.width;
    float *to = (float *)e.to;
#pragma unroll 4
    for (int k = threadIdx.x; k < CUDA_CAST_CHUNK; k += THREADS) {
        int64_t at = begin + k;
        if (at >= total)
            break;
        uint32_t taps = (uint32_t)(e.height * e.width), tap = (uint32_t)at % taps, rest = (uint32_t)at / taps;
        uint32_t i = rest % (uint32_t)e.inputs, o = rest / (uint32_t)e.inputs;
        int64_t source;
        if (e.fold == 2) {
            int fh = (int)tap / e.width + e.fold_offset, fw = (int)tap % e.width + e.fold_offset;
            int64_t channel = (int64_t)((fh & 1) * 2 + (fw & 1)) * e.inputs + i;
            source = (((int64_t)o * e.folded_height + fh / 2) * e.folded_width + fw / 2) * e.physical_inputs + channel;
        } else {
            source = ((int64_t)o * taps + tap) * e.physical_inputs + i;
        }
        to[at] = get(e.from, e.type, source);
    }
}

template <typename T> __global__ void fill_random_kernel(T *to, size_t count)
{
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (size_t)gridDim.x * THREADS) {
        uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z ^= z >> 31;
        to[i] = from_float<T>((float)(z & 0xffff) / 32768.0f - 1);
    }
}

__global__ void run_values_kernel(cuda_run_values *to, cuda_run_values values)
{
    *to = values;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    copy_channels_kernel(int64_t count, const T *from, int64_t from_channels, int64_t from_begin, T *to,
                         int64_t to_channels, int64_t to_begin, int64_t span, int64_t take)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (int64_t)gridDim.x * THREADS) {
        int64_t row = i / span, c = i % span;
        to[row * to_channels + to_begin + c] = c < take ? from[row * from_channels + from_begin + c] : from_float<T>(0);
    }
}

unsigned blocks_for(int64_t count)
{
    int64_t blocks = ceil_div(count, THREADS);
    return (unsigned)(blocks < 1 ? 1 : blocks > 1 << 20 ? 1 << 20 : blocks);
}

} // namespace

extern "C" {

cudaError_t cuda_launch_run_values(cudaStream_t stream, cuda_run_values *to, cuda_run_values values)
{
    run_values_kernel<<<1, 1, 0, stream>>>(to, values);
    return cudaGetLastError();
}

cudaError_t cuda_launch_convert(cudaStream_t stream, const void *from, cuda_view from_view, void *to, cuda_view to_view,
                                int n, int c, int h, int w)
{
    if (to_view.fold == 2) {
        if (from_view.type != CUDA_TYPE_F32 || from_view.nhwc || to_view.channels != 16 || c > 4)
            return cudaErrorInvalidValue;
        int folded_h = (h + 1) / 2 + to_view.border[0] + to_view.border[1];
        int folded_w = (w + 1) / 2 + to_view.border[0] + to_view.border[1];
        int64_t pixels = (int64_t)n * folded_h * folded_w;
        return with_type(to_view.type, [&](auto zero) {
            using To = decltype(zero);
            fold_kernel<To><<<(unsigned)ceil_div(pixels, THREADS), THREADS, 0, stream>>>(
                (const float *)from, (To *)to, c, h, w, folded_h, folded_w, to_view.border[0], pixels);
            return cudaGetLastError();
        });
    }
    if (from_view.type == CUDA_TYPE_F32 && !from_view.nhwc && to_view.nhwc && to_view.batch == n &&
        (to_view.channels == 4 || to_view.channels == 8)) {
        int64_t pixels = (int64_t)n * h * w;
        return with_type(to_view.type, [&](auto zero) {
            using To = decltype(zero);
            auto kernel = to_view.channels == 4 ? planes_to_pixels_kernel<To, 4> : planes_to_pixels_kernel<To, 8>;
            kernel<<<(unsigned)ceil_div(pixels, THREADS), THREADS, 0, stream>>>((const float *)from, (To *)to, c,
                                                                                pixels, h * w);
            return cudaGetLastError();
        });
    }
    int64_t count = (int64_t)to_view.batch * (to_view.nhwc ? to_view.channels : c) * h * w;
    return with_type(from_view.type, [&](auto source) {
        using From = decltype(source);
        return with_type(to_view.type, [&](auto target) {
            using To = decltype(target);
            convert_kernel<From, To><<<blocks_for(count), THREADS, 0, stream>>>((const From *)from, from_view, (To *)to,
                                                                                to_view, n, c, h, w, count);
            return cudaGetLastError();
        });
    });
}

cudaError_t cuda_launch_cast_weights(cudaStream_t stream, const cuda_cast *entries, int count, int64_t chunks)
{
    cast_weights_kernel<<<(unsigned)chunks, THREADS, 0, stream>>>(entries, count);
    return cudaGetLastError();
}

cudaError_t cuda_launch_cast_gradients(cudaStream_t stream, const cuda_cast *entries, int count, int64_t chunks)
{
    cast_gradients_kernel<<<(unsigned)chunks, THREADS, 0, stream>>>(entries, count);
    return cudaGetLastError();
}

cudaError_t cuda_launch_fill_random(cudaStream_t stream, cuda_type type, void *to, size_t count)
{
    return with_type(type, [&](auto zero) {
        using T = decltype(zero);
        fill_random_kernel<T><<<4096, THREADS, 0, stream>>>((T *)to, count);
        return cudaGetLastError();
    });
}

cudaError_t cuda_launch_copy_channels(cudaStream_t stream, cuda_type type, int64_t rows, const void *from,
                                      int64_t from_channels, int64_t from_begin, void *to, int64_t to_channels,
                                      int64_t to_begin, int64_t take, int64_t zero_from)
{
    int64_t span = zero_from >= 0 ? to_channels - to_begin : take;
    int64_t count = rows * span;
    return with_type(type, [&](auto zero) {
        using T = decltype(zero);
        copy_channels_kernel<T><<<blocks_for(count), THREADS, 0, stream>>>(
            count, (const T *)from, from_channels, from_begin, (T *)to, to_channels, to_begin, span, take);
        return cudaGetLastError();
    });
}

} // extern "C"
