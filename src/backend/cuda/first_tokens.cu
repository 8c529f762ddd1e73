/* The first row of each sequence of a packed batch, and its gradient. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/text_kernels.h"

namespace
{

enum { THREADS = 128 };

/* A block for each sequence. To its row of samples from that of tokens, or, for the gradient, the
 * other way. */
template <typename T, int V, bool BACK>
__global__ void __launch_bounds__(THREADS)
    first_tokens_kernel(const T *from, const int32_t *ends, int64_t tokens, int64_t features, T *to)
{
    const int64_t sample = blockIdx.x, token = sample == 0 ? 0 : ends[sample - 1];
    if (token < 0 || token >= tokens)
        return; /* an empty sequence at the end of a full batch */
    const T *source = from + (BACK ? sample : token) * features;
    T *target = to + (BACK ? token : sample) * features;
    for (int64_t c = (int64_t)threadIdx.x * V; c < features; c += THREADS * V)
        store<T, V>(target + c, load<T, V>(source + c));
}

template <bool BACK>
cudaError_t run(const cuda_launch *launch, cuda_type type, int64_t batch, int64_t tokens, int64_t features,
                const void *from, const int32_t *ends, void *to)
{
    return with_vectors(type, features, [&](auto zero, auto width) {
        using T = decltype(zero);
        first_tokens_kernel<T, decltype(width)::value, BACK>
            <<<(unsigned)batch, THREADS, 0, launch->stream>>>((const T *)from, ends, tokens, features, (T *)to);
        return cudaGetLastError();
    });
}

} // namespace

extern "C" {

cudaError_t cuda_launch_first_tokens(const cuda_launch *launch, cuda_type type, int64_t batch, int64_t tokens,
                                     int64_t features, const void *x, const int32_t *ends, void *y)
{
    return run<false>(launch, type, batch, tokens, features, x, ends, y);
}

cudaError_t cuda_launch_first_tokens_grad(const cuda_launch *launch, cuda_type type, int64_t batch, int64_t tokens,
                                          int64_t features, const void *dy, const int32_t *ends, void *dx)
{
    const size_t size_bytes = (size_t)(tokens * features) * (type == CUDA_TYPE_F32 ? 4 : 2);
    cudaError_t error = cudaMemsetAsync(dx, 0, size_bytes, launch->stream);
    return error != cudaSuccess ? error : run<true>(launch, type, batch, tokens, features, dy, ends, dx);
}

} // extern "C"
