/* Losses over (batch, labels) numbers and their gradients: few numbers, so one block sums them, in
 * a fixed order. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/text_kernels.h"

namespace
{

enum { THREADS = 256 };

/* A sum over the block's threads, in a fixed order. */
__device__ double block_sum(double x)
{
    __shared__ double sums[THREADS];
    __syncthreads(); /* it may be called again */
    sums[threadIdx.x] = x;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half >>= 1) {
        if ((int)threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    return sums[0];
}

template <int WHAT> __device__ __forceinline__ float term(float output, float target)
{
    if (WHAT == CUDA_SQUARED_ERROR)
        return (output - target) * (output - target);
    /* max(x, 0) - x t + log(1 + exp(-|x|)), as PyTorch; NaN passes */
    return (output < 0 ? 0 : output) - output * target + log1pf(expf(-fabsf(output)));
}

template <int WHAT>
__global__ void __launch_bounds__(THREADS)
    loss_kernel(int64_t batch, int64_t labels, const float *outputs, const float *targets, float *loss,
                const cuda_run_values *run, cuda_announcement *announcement)
{
    double total = 0, correct = 0;
    for (int64_t i = threadIdx.x; i < batch * labels; i += THREADS)
        total += (double)term<WHAT>(outputs[i], targets[i]);
    if (WHAT == CUDA_SIGMOID_CROSS_ENTROPY)
        for (int64_t n = threadIdx.x; n < batch; n += THREADS) {
            bool all = true;
            for (int64_t k = n * labels; k < (n + 1) * labels; k++)
                all = all && (outputs[k] > 0) == (targets[k] > 0.5f);
            correct += all;
        }
    total = block_sum(total);
    correct = block_sum(correct);
    if (threadIdx.x != 0)
        return;
    loss[0] = announcement->loss = (float)(total / (double)(batch * labels));
    loss[1] = announcement->correct = (float)correct;
    __threadfence_system(); /* the host must not see the number before the loss */
    announcement->sequence = run->sequence;
}

template <int WHAT, typename T>
__global__ void __launch_bounds__(THREADS)
    loss_grad_kernel(int64_t count, const float *outputs, const float *targets, const cuda_run_values *run, T *gradient)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const float scale = run->gradient_scale / (float)count;
    const float slope =
        WHAT == CUDA_SQUARED_ERROR ? 2 * (outputs[i] - targets[i]) : 1 / (1 + expf(-outputs[i])) - targets[i];
    gradient[i] = from_float<T>(slope * scale);
}

} // namespace

extern "C" {

cudaError_t cuda_launch_loss(const cuda_launch *launch, cuda_loss what, int64_t batch, int64_t labels,
                             const float *outputs, const float *targets, float *loss, const cuda_run_values *run,
                             cuda_announcement *announcement)
{
    auto kernel =
        what == CUDA_SQUARED_ERROR ? loss_kernel<CUDA_SQUARED_ERROR> : loss_kernel<CUDA_SIGMOID_CROSS_ENTROPY>;
    kernel<<<1, THREADS, 0, launch->stream>>>(batch, labels, outputs, targets, loss, run, announcement);
    return cudaGetLastError();
}

cudaError_t cuda_launch_loss_grad(const cuda_launch *launch, cuda_loss what, cuda_type type, int64_t count,
                                  const float *outputs, const float *targets, const cuda_run_values *run,
                                  void *gradient)
{
    return with_type(type, [&](auto zero) {
        using T = decltype(zero);
        auto kernel = what == CUDA_SQUARED_ERROR ? loss_grad_kernel<CUDA_SQUARED_ERROR, T>
                                                 : loss_grad_kernel<CUDA_SIGMOID_CROSS_ENTROPY, T>;
        kernel<<<(unsigned)ceil_div(count, THREADS), THREADS, 0, launch->stream>>>(count, outputs, targets, run,
                                                                                   (T *)gradient);
        return cudaGetLastError();
    });
}

} // extern "C"
