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

/* Pixel-wise: a thread writes all channels of one pixel, from planes that are read along the rows.
 * For few channels. */
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

/* Element (row, column) of a plane, or zero outside. */
__device__ __forceinline__ float pixel_of(const float *plane, int row, int column, int h, int w)
{
    bool inside = row >= 0 && row < h && column >= 0 && column < w;
    return inside ? __ldg(plane + row * w + column) : 0;
}

/* Folded images: a thread writes the 16 channels of one tap. C planes, known to the compiler so
 * that all stays in registers. */
template <typename To, int C>
__global__ void __launch_bounds__(THREADS)
    fold_kernel(const float *from, To *to, cuda_spreading s, int h, int w, int height, uint32_t count)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const uint32_t tap = i % (uint32_t)s.taps, pixel = i / (uint32_t)s.taps;
    const uint32_t x = pixel % (uint32_t)s.out_width, row = pixel / (uint32_t)s.out_width;
    const uint32_t y = row % (uint32_t)height, n = row / (uint32_t)height;
    const int top = 2 * ((int)y - s.before), left = 2 * ((int)(x + tap) - s.before);
    const float *image = from + (int64_t)n * C * h * w;
    Vec<To, 8> out[2];
#pragma unroll
    for (int channel = 0; channel < 16; channel++) {
        const int parity = channel / C, k = channel % C;
        float value = 0;
        if (channel < 4 * C)
            value = pixel_of(image + (int64_t)k * h * w, top + parity / 2, left + parity % 2, h, w);
        out[channel / 8].v[channel % 8] = from_float<To>(value);
    }
    Vec<To, 8> *target = reinterpret_cast<Vec<To, 8> *>(to) + (int64_t)i * 2;
    target[0] = out[0];
    target[1] = out[1];
}

/* Patches: a thread writes 8 channels. K is the kernel's size, or 0 if only known at run time. */
template <typename To, int C, int K>
__global__ void __launch_bounds__(THREADS)
    patch_kernel(const float *from, To *to, cuda_spreading s, uint32_t vectors, int h, int w, uint32_t count)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const int kernel = K > 0 ? K : s.kernel;
    const uint32_t first = i % vectors * 8, pixel = i / vectors;
    const uint32_t x = pixel % (uint32_t)s.out_width, row = pixel / (uint32_t)s.out_width;
    const uint32_t y = row % (uint32_t)s.out_height, n = row / (uint32_t)s.out_height;
    const int top = (int)y * s.stride - s.padding, left = (int)x * s.stride - s.padding;
    const float *image = from + (int64_t)n * C * h * w;
    Vec<To, 8> out;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const int channel = (int)first + j, tap = channel / C, k = channel % C;
        float value = 0;
        if (tap < kernel * kernel)
            value = pixel_of(image + (int64_t)k * h * w, top + tap / kernel, left + tap % kernel, h, w);
        out.v[j] = from_float<To>(value);
    }
    reinterpret_cast<Vec<To, 8> *>(to)[i] = out;
}

template <typename To, int C>
cudaError_t launch_spread(cudaStream_t stream, const float *from, To *to, const cuda_spreading &s, int channels, int n,
                          int h, int w)
{
    if (s.how == CUDA_FOLDED) {
        const int height = s.out_height + s.taps - 1;
        const int64_t count = (int64_t)n * height * s.out_width * s.taps;
        if (count > UINT32_MAX - THREADS)
            return cudaErrorInvalidValue;
        fold_kernel<To, C>
            <<<(unsigned)ceil_div(count, THREADS), THREADS, 0, stream>>>(from, to, s, h, w, height, (uint32_t)count);
    } else {
        const int64_t count = (int64_t)n * s.out_height * s.out_width * (channels / 8);
        if (count > UINT32_MAX - THREADS)
            return cudaErrorInvalidValue;
        auto kernel = s.kernel == 3   ? patch_kernel<To, C, 3>
                      : s.kernel == 5 ? patch_kernel<To, C, 5>
                                      : patch_kernel<To, C, 0>;
        kernel<<<(unsigned)ceil_div(count, THREADS), THREADS, 0, stream>>>(from, to, s, (uint32_t)channels / 8, h, w,
                                                                           (uint32_t)count);
    }
    return cudaGetLastError();
}

/* Any layout to any other, one element of the target per thread. */
template <typename From, typename To, typename I>
__global__ void __launch_bounds__(THREADS)
    convert_kernel(const From *from, cuda_view source, To *to, cuda_view target, I n, I c, I h, I w, I count)
{
    for (I i = (I)blockIdx.x * THREADS + threadIdx.x; i < count; i += (I)gridDim.x * THREADS) {
        I in, ic, ih, iw;
        if (target.nhwc) {
            ic = i % (I)target.channels;
            I pixel = i / (I)target.channels;
            iw = pixel % w;
            ih = pixel / w % h;
            in = pixel / w / h;
        } else {
            iw = i % w;
            ih = i / w % h;
            ic = i / w / h % c;
            in = i / w / h / c;
        }
        float value = ic < c && in < n
                          ? to_float(from[locate(source, (int)in, (int)ic, (int)ih, (int)iw, (int)c, (int)h, (int)w)])
                          : 0;
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

/* Index of (o, i, kh, kw) in the channels-last tensor -> in the plain one; -1 in the padding.
 * Weights have fewer than 2^31 elements: 32-bit divisions. */
__device__ __forceinline__ int64_t plain_index(const cuda_cast &e, uint32_t at)
{
    uint32_t i = at % (uint32_t)e.physical_inputs, rest = at / (uint32_t)e.physical_inputs;
    const uint32_t inputs = (uint32_t)e.inputs, taps = (uint32_t)(e.height * e.width);
    if (e.spread.how == CUDA_FOLDED) { /* (O, folded taps, taps beside each other * 16) */
        uint32_t fh = rest % (uint32_t)e.spread.taps, o = rest / (uint32_t)e.spread.taps, fw = i / 16;
        i %= 16;
        if (i >= 4 * inputs || o >= (uint32_t)e.outputs)
            return -1;
        int parity = (int)(i / inputs);
        int kh = 2 * (int)fh + parity / 2 - e.spread.offset, kw = 2 * (int)fw + parity % 2 - e.spread.offset;
        if (kh < 0 || kh >= e.height || kw < 0 || kw >= e.width)
            return -1;
        return (((int64_t)o * inputs + i % inputs) * e.height + kh) * e.width + kw;
    }
    if (e.spread.how == CUDA_PATCHES) { /* (O, taps * inputs, padded) */
        if (i >= taps * inputs || rest >= (uint32_t)e.outputs)
            return -1;
        return ((int64_t)rest * inputs + i % inputs) * taps + i / inputs;
    }
    uint32_t tap = rest % taps, o = rest / taps;
    if (i >= inputs || o >= (uint32_t)e.outputs)
        return -1;
    return ((int64_t)o * inputs + i) * taps + tap;
}

__device__ __forceinline__ int64_t channels_last_count(const cuda_cast &e)
{
    int64_t taps = e.spread.how == CUDA_FOLDED    ? e.spread.taps
                   : e.spread.how == CUDA_PATCHES ? 1
                                                  : (int64_t)e.height * e.width;
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
    const bool straight = e.height * e.width == 1 && e.spread.how == CUDA_NOT_SPREAD && e.physical_inputs == e.inputs &&
                          e.physical_outputs == e.outputs;
    const float *from = (const float *)e.from;
    if (straight && e.type != CUDA_TYPE_F32 && begin + CUDA_CAST_CHUNK <= total && (uintptr_t)e.to % 16 == 0) {
        /* 1x1 kernels and matrices: a plain cast, 8 numbers a thread at a time */
#pragma unroll
        for (int part = 0; part < CUDA_CAST_CHUNK / (8 * THREADS); part++) {
            int64_t at = begin + (part * THREADS + threadIdx.x) * 8;
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

/* The same walk in the other direction; every plain element has exactly one place in the
 * channels-last tensor. */
__global__ void __launch_bounds__(THREADS) cast_gradients_kernel(const cuda_cast *entries, int count)
{
    const cuda_cast e = find_entry(entries, count, blockIdx.x);
    const int64_t begin = (blockIdx.x - e.first_chunk) * CUDA_CAST_CHUNK;
    const int64_t total = (int64_t)e.outputs * e.inputs * e.height * e.width;
    float *to = (float *)e.to;
    if (e.height * e.width == 1 && e.spread.how == CUDA_NOT_SPREAD && e.physical_inputs == e.inputs &&
        e.type != CUDA_TYPE_F32 && begin + CUDA_CAST_CHUNK <= total) {
        for (int part = 0; part < CUDA_CAST_CHUNK / (8 * THREADS); part++) {
            int64_t at = begin + (part * THREADS + threadIdx.x) * 8;
            float values[8];
            if (e.type == CUDA_TYPE_BF16) {
                Vec<__nv_bfloat16, 8> in = load<__nv_bfloat16, 8>((const __nv_bfloat16 *)e.from + at);
#pragma unroll
                for (int k = 0; k < 8; k++)
                    values[k] = to_float(in.v[k]);
            } else {
                Vec<__half, 8> in = load<__half, 8>((const __half *)e.from + at);
#pragma unroll
                for (int k = 0; k < 8; k++)
                    values[k] = to_float(in.v[k]);
            }
            *(float4 *)(to + at) = make_float4(values[0], values[1], values[2], values[3]);
            *(float4 *)(to + at + 4) = make_float4(values[4], values[5], values[6], values[7]);
        }
        return;
    }
#pragma unroll 4
    for (int k = threadIdx.x; k < CUDA_CAST_CHUNK; k += THREADS) {
        int64_t at = begin + k;
        if (at >= total)
            break;
        uint32_t taps = (uint32_t)(e.height * e.width), tap = (uint32_t)at % taps, rest = (uint32_t)at / taps;
        uint32_t i = rest % (uint32_t)e.inputs, o = rest / (uint32_t)e.inputs;
        int64_t source;
        if (e.spread.how == CUDA_FOLDED) {
            int fh = (int)tap / e.width + e.spread.offset, fw = (int)tap % e.width + e.spread.offset;
            int64_t channel = 16 * (fw / 2) + (int64_t)((fh & 1) * 2 + (fw & 1)) * e.inputs + i;
            source = ((int64_t)o * e.spread.taps + fh / 2) * e.physical_inputs + channel;
        } else if (e.spread.how == CUDA_PATCHES) {
            source = (int64_t)o * e.physical_inputs + (int64_t)tap * e.inputs + i;
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

template <typename T> __global__ void find_number_kernel(const T *from, size_t count, int *found)
{
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (size_t)gridDim.x * THREADS)
        if (!isnan(to_float(from[i])))
            *found = 1;
}

__global__ void run_values_kernel(cuda_run_values *to, cuda_run_values values)
{
    if (values.loss_scale != nullptr)
        values.gradient_scale = (float)((double)values.gradient_scale * values.loss_scale->scale);
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

cudaError_t cuda_set_recorded_run_values(cudaGraphExec_t recorded, cudaGraphNode_t node, cuda_run_values *to,
                                         cuda_run_values values)
{
    void *arguments[] = {&to, &values};
    cudaKernelNodeParams parameters = {};
    parameters.func = (void *)run_values_kernel;
    parameters.gridDim = dim3(1);
    parameters.blockDim = dim3(1);
    parameters.kernelParams = arguments;
    return cudaGraphExecKernelNodeSetParams(recorded, node, &parameters);
}

cudaError_t cuda_launch_convert(cudaStream_t stream, const void *from, cuda_view from_view, void *to, cuda_view to_view,
                                int n, int c, int h, int w)
{
    if (to_view.spread.how != CUDA_NOT_SPREAD) {
        const cuda_spreading spread = to_view.spread;
        if (from_view.type != CUDA_TYPE_F32 || from_view.nhwc || to_view.channels % 8 != 0)
            return cudaErrorInvalidValue;
        return with_type(to_view.type, [&](auto zero) {
            using To = decltype(zero);
            auto launch = c == 1   ? launch_spread<To, 1>
                          : c == 2 ? launch_spread<To, 2>
                          : c == 3 ? launch_spread<To, 3>
                                   : launch_spread<To, 4>;
            return launch(stream, (const float *)from, (To *)to, spread, to_view.channels, n, h, w);
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
            if (count < 1 << 30) { /* 32-bit divisions */
                convert_kernel<From, To, uint32_t><<<blocks_for(count), THREADS, 0, stream>>>(
                    (const From *)from, from_view, (To *)to, to_view, (uint32_t)n, (uint32_t)c, (uint32_t)h,
                    (uint32_t)w, (uint32_t)count);
                return cudaGetLastError();
            }
            convert_kernel<From, To, int64_t><<<blocks_for(count), THREADS, 0, stream>>>(
                (const From *)from, from_view, (To *)to, to_view, n, c, h, w, count);
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

cudaError_t cuda_launch_find_number(cudaStream_t stream, cuda_type type, const void *from, size_t count, int *found)
{
    return with_type(type, [&](auto zero) {
        using T = decltype(zero);
        find_number_kernel<T><<<4096, THREADS, 0, stream>>>((const T *)from, count, found);
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
