/* Plain convolutions, one output element per thread (a block per weight for the weights' gradient):
 * for the few cases (odd groups, strict f32) where cuDNN offers no engine, and deterministic. */
#include "backend/cuda/device.cuh"

namespace
{

enum { THREADS = 256 };

template <typename T>
__global__ void __launch_bounds__(THREADS)
    forward_kernel(cuda_direct c, const T *x, const T *weights, T *y, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const int o = (int)(i % c.outputs);
    const int64_t pixel = i / c.outputs;
    const int ow = (int)(pixel % c.out_width), oh = (int)(pixel / c.out_width % c.out_height);
    const int64_t n = pixel / c.out_width / c.out_height;
    const int first = o / c.group_outputs * c.group_inputs;
    float sum = 0;
    for (int kh = 0; kh < c.kernel[0]; kh++) {
        const int h = oh * c.stride[0] - c.padding[0] + kh * c.dilation[0];
        if (h < 0 || h >= c.height)
            continue;
        for (int kw = 0; kw < c.kernel[1]; kw++) {
            const int w = ow * c.stride[1] - c.padding[1] + kw * c.dilation[1];
            if (w < 0 || w >= c.width)
                continue;
            const T *from = x + ((n * c.height + h) * c.width + w) * c.channels + first;
            const T *by = weights + (((int64_t)o * c.kernel[0] + kh) * c.kernel[1] + kw) * c.group_inputs;
            for (int k = 0; k < c.group_inputs; k++)
                sum = fmaf(to_float(from[k]), to_float(by[k]), sum);
        }
    }
    y[i] = from_float<T>(sum);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    data_kernel(cuda_direct c, const T *dy, const T *weights, T *dx, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const int channel = (int)(i % c.channels);
    const int64_t pixel = i / c.channels;
    const int w = (int)(pixel % c.width), h = (int)(pixel / c.width % c.height);
    const int64_t n = pixel / c.width / c.height;
    const int group = channel / c.group_inputs, within = channel % c.group_inputs;
    float sum = 0;
    for (int kh = 0; kh < c.kernel[0]; kh++) {
        int oh = h + c.padding[0] - kh * c.dilation[0];
        if (oh < 0 || oh % c.stride[0] != 0 || (oh /= c.stride[0]) >= c.out_height)
            continue;
        for (int kw = 0; kw < c.kernel[1]; kw++) {
            int ow = w + c.padding[1] - kw * c.dilation[1];
            if (ow < 0 || ow % c.stride[1] != 0 || (ow /= c.stride[1]) >= c.out_width)
                continue;
            const T *from = dy + ((n * c.out_height + oh) * c.out_width + ow) * c.outputs + group * c.group_outputs;
            for (int k = 0; k < c.group_outputs; k++) {
                int64_t o = (int64_t)group * c.group_outputs + k;
                sum =
                    fmaf(to_float(from[k]),
                         to_float(weights[((o * c.kernel[0] + kh) * c.kernel[1] + kw) * c.group_inputs + within]), sum);
            }
        }
    }
    dx[i] = from_float<T>(sum);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) filter_kernel(cuda_direct c, const T *x, const T *dy, T *dw)
{
    __shared__ float sums[THREADS];
    const int64_t i = blockIdx.x;
    const int within = (int)(i % c.group_inputs);
    const int64_t tap = i / c.group_inputs;
    const int kw = (int)(tap % c.kernel[1]), kh = (int)(tap / c.kernel[1] % c.kernel[0]);
    const int o = (int)(tap / c.kernel[1] / c.kernel[0]);
    const int channel = o / c.group_outputs * c.group_inputs + within;
    const int64_t pixels = (int64_t)c.batch * c.out_height * c.out_width;
    float sum = 0;
    for (int64_t p = threadIdx.x; p < pixels; p += THREADS) {
        const int ow = (int)(p % c.out_width), oh = (int)(p / c.out_width % c.out_height);
        const int64_t n = p / c.out_width / c.out_height;
        const int h = oh * c.stride[0] - c.padding[0] + kh * c.dilation[0];
        const int w = ow * c.stride[1] - c.padding[1] + kw * c.dilation[1];
        if (h < 0 || h >= c.height || w < 0 || w >= c.width)
            continue;
        sum = fmaf(to_float(x[((n * c.height + h) * c.width + w) * c.channels + channel]),
                   to_float(dy[p * c.outputs + o]), sum);
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half >>= 1) {
        if ((int)threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        dw[i] = from_float<T>(sums[0]);
}

} // namespace

extern "C" {

cudaError_t cuda_launch_direct_forward(cudaStream_t stream, const cuda_direct *c, const void *x, const void *w, void *y)
{
    int64_t count = (int64_t)c->batch * c->out_height * c->out_width * c->outputs;
    return with_type(c->type, [&](auto zero) {
        using T = decltype(zero);
        forward_kernel<T>
            <<<(unsigned)ceil_div(count, THREADS), THREADS, 0, stream>>>(*c, (const T *)x, (const T *)w, (T *)y, count);
        return cudaGetLastError();
    });
}

cudaError_t cuda_launch_direct_data(cudaStream_t stream, const cuda_direct *c, const void *dy, const void *w, void *dx)
{
    int64_t count = (int64_t)c->batch * c->height * c->width * c->channels;
    return with_type(c->type, [&](auto zero) {
        using T = decltype(zero);
        data_kernel<T><<<(unsigned)ceil_div(count, THREADS), THREADS, 0, stream>>>(*c, (const T *)dy, (const T *)w,
                                                                                   (T *)dx, count);
        return cudaGetLastError();
    });
}

cudaError_t cuda_launch_direct_filter(cudaStream_t stream, const cuda_direct *c, const void *x, const void *dy,
                                      void *dw)
{
    int64_t count = (int64_t)c->outputs * c->kernel[0] * c->kernel[1] * c->group_inputs;
    return with_type(c->type, [&](auto zero) {
        using T = decltype(zero);
        filter_kernel<T><<<(unsigned)count, THREADS, 0, stream>>>(*c, (const T *)x, (const T *)dy, (T *)dw);
        return cudaGetLastError();
    });
}

} // extern "C"
