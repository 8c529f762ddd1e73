/* Updates of the flat vectors, their sums and norms. Lengths are multiples of 16 floats, addresses of 64 bytes.
 *
 * An update takes its numbers from its arguments, or, where it is part of a recorded run, from device memory: the run's
 * values and what was judged of the gradients. Both ways compute the same bits. */
#include "backend/cuda/device.cuh"

namespace
{

enum { THREADS = 256 };

unsigned blocks_for(const cuda_launch *launch, size_t work)
{
    int64_t blocks = ceil_div((int64_t)work, THREADS), most = 8 * (int64_t)launch->processors;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* The numbers of this update; false if it is not to be made. */
__device__ __forceinline__ bool find_numbers(const cuda_update &u, cuda_run_values &numbers, float &factor)
{
    numbers = u.run ? *u.run : u.numbers;
    factor = u.judgement ? u.judgement->factor : u.factor;
    return !(u.loss && !isfinite(*u.loss)) && !(u.judgement && !u.judgement->apply);
}

/* Rare, so the bus is not waited for; all threads that write write the same. */
__device__ __forceinline__ void report_not_finite(const cuda_update &u, bool spoiled)
{
    if (spoiled && u.outcome)
        u.outcome->diverged = 1;
}

__device__ __forceinline__ bool not_finite(float4 p)
{
    return !(isfinite(p.x) && isfinite(p.y) && isfinite(p.z) && isfinite(p.w));
}

struct Sgd {
    float rate, momentum, decay, scale;
    bool nesterov;
};

__device__ __forceinline__ void sgd_step(float &p, float g, float &m, const Sgd &s, bool has_momentum)
{
    float change = fmaf(s.decay, p, s.scale * g);
    if (has_momentum) {
        m = fmaf(s.momentum, m, change);
        change = s.nesterov ? fmaf(s.momentum, m, change) : m;
    }
    p = fmaf(-s.rate, change, p);
}

__global__ void __launch_bounds__(THREADS) sgd_kernel(cuda_update u)
{
    cuda_run_values numbers;
    float factor;
    if (!find_numbers(u, numbers, factor))
        return;
    const Sgd s = {numbers.rate, u.momentum, u.decay, factor, u.nesterov};
    float *parameters = u.parameters, *momenta = u.momentum != 0 ? u.state[0] : nullptr;
    const float *gradients = u.gradients;
    const size_t vectors = u.count / 4, step = (size_t)gridDim.x * THREADS;
    const size_t first = (size_t)blockIdx.x * THREADS + threadIdx.x;
    bool spoiled = false;
    for (size_t i = first; i < vectors; i += step) {
        float4 p = ((float4 *)parameters)[i], g = ((const float4 *)gradients)[i];
        float4 m = momenta ? ((float4 *)momenta)[i] : make_float4(0, 0, 0, 0);
        sgd_step(p.x, g.x, m.x, s, momenta);
        sgd_step(p.y, g.y, m.y, s, momenta);
        sgd_step(p.z, g.z, m.z, s, momenta);
        sgd_step(p.w, g.w, m.w, s, momenta);
        ((float4 *)parameters)[i] = p;
        if (momenta)
            ((float4 *)momenta)[i] = m;
        spoiled |= not_finite(p);
    }
    for (size_t i = vectors * 4 + first; i < u.count; i += step) {
        float m = momenta ? momenta[i] : 0;
        sgd_step(parameters[i], gradients[i], m, s, momenta);
        if (momenta)
            momenta[i] = m;
        spoiled |= !isfinite(parameters[i]);
    }
    report_not_finite(u, spoiled);
}

struct Adam {
    float rate, keep, beta1, beta2, epsilon, scale, correction1, correction2;
};

__device__ __forceinline__ void adam_step(float &p, float g, float &m, float &v, const Adam &a)
{
    g *= a.scale;
    m = fmaf(a.beta1, m, (1 - a.beta1) * g);
    v = fmaf(a.beta2, v, (1 - a.beta2) * g * g);
    p *= a.keep;
    p -= a.rate * (m / a.correction1) / (sqrtf(v / a.correction2) + a.epsilon);
}

__global__ void __launch_bounds__(THREADS) adam_kernel(cuda_update u)
{
    cuda_run_values n;
    float factor;
    if (!find_numbers(u, n, factor))
        return;
    const Adam a = {n.rate, n.keep, u.beta1, u.beta2, u.epsilon, factor, n.correction1, n.correction2};
    float *parameters = u.parameters, *first = u.state[0], *second = u.state[1];
    const float *gradients = u.gradients;
    const size_t vectors = u.count / 4, step = (size_t)gridDim.x * THREADS;
    const size_t begin = (size_t)blockIdx.x * THREADS + threadIdx.x;
    bool spoiled = false;
    for (size_t i = begin; i < vectors; i += step) {
        float4 p = ((float4 *)parameters)[i], g = ((const float4 *)gradients)[i];
        float4 m = ((float4 *)first)[i], v = ((float4 *)second)[i];
        adam_step(p.x, g.x, m.x, v.x, a);
        adam_step(p.y, g.y, m.y, v.y, a);
        adam_step(p.z, g.z, m.z, v.z, a);
        adam_step(p.w, g.w, m.w, v.w, a);
        ((float4 *)parameters)[i] = p;
        ((float4 *)first)[i] = m;
        ((float4 *)second)[i] = v;
        spoiled |= not_finite(p);
    }
    for (size_t i = vectors * 4 + begin; i < u.count; i += step) {
        adam_step(parameters[i], gradients[i], first[i], second[i], a);
        spoiled |= !isfinite(parameters[i]);
    }
    report_not_finite(u, spoiled);
}

__global__ void __launch_bounds__(THREADS) add_kernel(float *to, const float *from, size_t count)
{
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (size_t)gridDim.x * THREADS)
        to[i] += from[i];
}

__device__ double block_sum(double x)
{
    __shared__ double sums[THREADS];
    sums[threadIdx.x] = x;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half >>= 1) {
        if ((int)threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    double sum = sums[0];
    __syncthreads(); /* it may be called again */
    return sum;
}

/* True in one thread of the grid, whose *total is the sum of squares. A fixed number of blocks, whatever the device:
 * the order of additions depends on the length alone. */
__device__ bool sum_squares(const float *values, size_t count, double *scratch, unsigned *counter, double *total)
{
    __shared__ bool last;
    double sum = 0;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (size_t)gridDim.x * THREADS)
        sum += (double)values[i] * values[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        scratch[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(counter, 1) == gridDim.x - 1;
        if (last)
            *counter = 0;
    }
    __syncthreads();
    if (!last)
        return false;
    __threadfence();
    sum = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += THREADS)
        sum += __ldcg(scratch + i);
    *total = block_sum(sum);
    return threadIdx.x == 0;
}

__global__ void __launch_bounds__(THREADS)
    square_sum_kernel(const float *values, size_t count, double *scratch, double *result, unsigned *counter)
{
    double total;
    if (sum_squares(values, count, scratch, counter, &total))
        *result = total;
}

__global__ void __launch_bounds__(THREADS)
    judge_kernel(const float *gradients, size_t count, const float *loss, double *scratch, unsigned *counter,
                 cuda_judgement *judgement, cuda_update_outcome *outcome)
{
    double total;
    if (!sum_squares(gradients, count, scratch, counter, &total))
        return;
    judgement->apply = 0;
    if (!isfinite(*loss) || outcome->diverged)
        return;
    switch (fth_judge_gradients(sqrt(total), judgement->clip, &judgement->loss_scale, &judgement->factor)) {
    case FTH_UPDATE_APPLY: judgement->apply = 1; break;
    case FTH_UPDATE_LEAVE_OUT: outcome->left_out = outcome->left_out + 1; break;
    case FTH_UPDATE_DIVERGED: outcome->diverged = 1; break;
    }
}

} // namespace

extern "C" {

cudaError_t cuda_launch_sgd(const cuda_launch *launch, const cuda_update *update)
{
    sgd_kernel<<<blocks_for(launch, update->count / 4), THREADS, 0, launch->stream>>>(*update);
    return cudaGetLastError();
}

cudaError_t cuda_launch_adamw(const cuda_launch *launch, const cuda_update *update)
{
    adam_kernel<<<blocks_for(launch, update->count / 4), THREADS, 0, launch->stream>>>(*update);
    return cudaGetLastError();
}

cudaError_t cuda_launch_add(const cuda_launch *launch, float *to, const float *from, size_t count)
{
    add_kernel<<<blocks_for(launch, count), THREADS, 0, launch->stream>>>(to, from, count);
    return cudaGetLastError();
}

cudaError_t cuda_launch_square_sum(const cuda_launch *launch, const float *values, size_t count, double *scratch,
                                   double *result)
{
    square_sum_kernel<<<CUDA_NORM_BLOCKS, THREADS, 0, launch->stream>>>(values, count, scratch, result,
                                                                        launch->counters);
    return cudaGetLastError();
}

cudaError_t cuda_launch_judge(const cuda_launch *launch, const float *gradients, size_t count, const float *loss,
                              double *scratch, cuda_judgement *judgement, cuda_update_outcome *outcome)
{
    judge_kernel<<<CUDA_NORM_BLOCKS, THREADS, 0, launch->stream>>>(gradients, count, loss, scratch, launch->counters,
                                                                   judgement, outcome);
    return cudaGetLastError();
}

} // extern "C"
