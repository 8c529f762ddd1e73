/* What is done to each element (cuda_elementwise), for kernels that do it on the way. */
#ifndef FTH_BACKEND_CUDA_ACTIVATION_CUH
#define FTH_BACKEND_CUDA_ACTIVATION_CUH

#include "backend/cuda/device.cuh"

namespace
{

/* The normal distribution's function and density at x. ROUGH: for results of 16 bits, with an error
 * of 2e-7, by formula 7.1.26 of Abramowitz and Stegun, whose exponential is the density's too: one
 * pass of gelu's gradient over 8192 x 3072 elements is then bound by memory, not by arithmetic. */
template <bool ROUGH> __device__ __forceinline__ void normal(float x, float &cdf, float &density)
{
    if (!ROUGH) {
        cdf = 0.5f * (1 + erff(x * 0.70710678118654752f));
        density = 0.39894228040143268f * expf(-0.5f * x * x);
        return;
    }
    const float e = __expf(-0.5f * x * x), t = __fdividef(1, 1 + 0.3275911f * 0.70710678f * fabsf(x));
    const float tail =
        0.5f * e * t *
        (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    cdf = x < 0 ? tail : 1 - tail;
    density = 0.39894228040143268f * e;
}

/* tanh(x) by one exponential; exact at both ends. */
template <bool ROUGH> __device__ __forceinline__ float tanh_of(float x)
{
    return ROUGH ? 1 - __fdividef(2, 1 + __expf(2 * x)) : tanhf(x);
}

template <int WHAT> __host__ __device__ constexpr bool reads_two()
{
    return WHAT == CUDA_RELU_GRAD || WHAT == CUDA_GELU_GRAD || WHAT == CUDA_GELU_TANH_GRAD || WHAT == CUDA_TANH_GRAD ||
           WHAT == CUDA_ADD || WHAT == CUDA_ADD_RELU;
}

template <int WHAT, bool ROUGH> __device__ __forceinline__ float compute(float a, float b)
{
    if (WHAT == CUDA_RELU)
        return a < 0 ? 0 : a; /* NaN passes */
    if (WHAT == CUDA_RELU_GRAD)
        return a <= 0 ? 0 : b; /* as PyTorch: NaN is not <= 0 */
    if (WHAT == CUDA_ADD)
        return a + b;
    if (WHAT == CUDA_ADD_RELU) {
        float sum = a + b;
        return sum < 0 ? 0 : sum;
    }
    if (WHAT == CUDA_TANH)
        return tanhf(a);
    if (WHAT == CUDA_TANH_GRAD)
        return b * (1 - a * a);
    if (WHAT == CUDA_GELU_TANH || WHAT == CUDA_GELU_TANH_GRAD) {
        const float t = tanh_of<ROUGH>(0.79788456080286536f * (a + 0.044715f * a * a * a));
        if (WHAT == CUDA_GELU_TANH)
            return 0.5f * a * (1 + t);
        const float slope = 0.79788456080286536f * (1 + 3 * 0.044715f * a * a);
        return b * 0.5f * (1 + t + a * (1 - t * t) * slope);
    }
    float cdf, density;
    normal<ROUGH>(a, cdf, density);
    return WHAT == CUDA_GELU ? a * cdf : b * (cdf + a * density);
}

} // namespace

#endif
