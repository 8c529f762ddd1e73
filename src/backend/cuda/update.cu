/* Updates of the flat vectors, their sums and norms. Lengths are multiples of 16 floats, addresses
 * of 64 bytes.
 *
 * An update takes its numbers from its arguments, or, where it is part of a recorded run, from
 * device memory: the run's values and what was judged of the gradients. Both ways compute the same
 * bits. */
#include "backend/cuda/device.cuh"

namespace
{

enum { THREADS = 256 };

unsigned blocks_for(const cuda_launch *launch, size_t work)
{
    int64_t blocks = ceil_div((int64_t)work, THREADS), most = 8 * (int64_t)launch->processors;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* Whether it is to be made, and what the gradients are multiplied by. */
__device__ __forceinline__ bool find_factor(const cuda_update &u, float &factor)
{
    factor = u.judgement ? u.judgement->factor : u.factor;
    return !(u.loss && !isfinite(*u.loss)) && !(u.judgement && !u.judgement->apply);
}

/* Rare, so the bus is not waited for; all threads that write write the same. */
__device__ __forceinline__ void report_not_finite(const cuda_update &u, bool diverged)
{
    if (diverged && u.outcome)
        u.outcome->diverged = 1;
}

__device__ __forceinline__ bool not_finite(float4 p)
{
    return !(isfinite(p.x) && isfinite(p.y) && isfinite(p.z) && isfinite(p.w));
}

/* The rules of optimizers.h as types, of which the kernel below is made. */
#define TYPE_OF(rule, vectors_)                                                                                        \
    struct rule##_rule {                                                                                               \
        typedef fth_##rule##_numbers numbers;                                                                          \
        enum { vectors = vectors_ };                                                                                   \
        static __device__ __forceinline__ const numbers &choose(const fth_update_numbers &of)                          \
        {                                                                                                              \
            return of.rule;                                                                                            \
        }                                                                                                              \
        static __device__ __forceinline__ void apply(const numbers &n, float g, float &p, float &first, float &second) \
        {                                                                                                              \
            fth_##rule(&n, g, &p, &first, &second);                                                                    \
        }                                                                                                              \
    };
FTH_UPDATE_RULES(TYPE_OF)
#undef TYPE_OF

/* Elements [begin, end), of which this thread has the vectors first, first + step, ... True if one
 * is no longer finite. */
template <typename Rule>
__device__ __forceinline__ bool update_range(const cuda_update &u, const typename Rule::numbers &n, float factor,
                                             size_t begin, size_t end, size_t first, size_t step)
{
    float4 *parameters = (float4 *)u.parameters, *one = (float4 *)u.state[0], *two = (float4 *)u.state[1];
    const float4 *gradients = (const float4 *)u.gradients, zero = make_float4(0, 0, 0, 0);
    bool diverged = false;
    for (size_t i = begin / 4 + first; i < end / 4; i += step) {
        float4 p = parameters[i], g = gradients[i];
        float4 a = Rule::vectors > 0 ? one[i] : zero, b = Rule::vectors > 1 ? two[i] : zero;
        Rule::apply(n, g.x * factor, p.x, a.x, b.x);
        Rule::apply(n, g.y * factor, p.y, a.y, b.y);
        Rule::apply(n, g.z * factor, p.z, a.z, b.z);
        Rule::apply(n, g.w * factor, p.w, a.w, b.w);
        parameters[i] = p;
        if (Rule::vectors > 0)
            one[i] = a;
        if (Rule::vectors > 1)
            two[i] = b;
        diverged |= not_finite(p);
    }
    for (size_t i = end / 4 * 4 + first; i < end; i += step) {
        float none_first = 0, none_second = 0;
        Rule::apply(n, u.gradients[i] * factor, u.parameters[i], Rule::vectors > 0 ? u.state[0][i] : none_first,
                    Rule::vectors > 1 ? u.state[1][i] : none_second);
        diverged |= !isfinite(u.parameters[i]);
    }
    return diverged;
}

template <typename Rule> __global__ void __launch_bounds__(THREADS) update_kernel(cuda_update u)
{
    float factor;
    if (!find_factor(u, factor))
        return;
    bool diverged = false;
    if (u.pieces) {
        for (int i = blockIdx.x; i < u.piece_count; i += gridDim.x) {
            const cuda_update_piece piece = u.pieces[i];
            const typename Rule::numbers n = Rule::choose(u.of_groups[piece.group]);
            diverged |= update_range<Rule>(u, n, factor, piece.begin, piece.end, threadIdx.x, THREADS);
        }
    } else {
        const typename Rule::numbers n = Rule::choose(u.run ? u.run->update : u.numbers);
        diverged = update_range<Rule>(u, n, factor, 0, u.count, (size_t)blockIdx.x * THREADS + threadIdx.x,
                                      (size_t)gridDim.x * THREADS);
    }
    report_not_finite(u, diverged);
}

__global__ void __launch_bounds__(THREADS)
    group_numbers_kernel(const cuda_run_values *run, const fth_update_numbers *slots, int groups,
                         fth_update_numbers *to)
{
    const fth_update_numbers *from = slots + run->sequence % CUDA_UPDATE_SLOTS * groups;
    for (int i = threadIdx.x; i < groups; i += THREADS)
        to[i] = from[i];
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

/* True in one thread of the grid, whose *total is the sum of squares. A fixed number of blocks,
 * whatever the device: the order of additions depends on the length alone. */
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

cudaError_t cuda_launch_update(const cuda_launch *launch, fth_update_rule rule, const cuda_update *update)
{
    const unsigned blocks =
        blocks_for(launch, update->pieces ? (size_t)update->piece_count * THREADS : update->count / 4);
    switch (rule) {
#define LAUNCH_OF(name, vectors)                                                                                       \
    case FTH_UPDATE_RULE_##name: update_kernel<name##_rule><<<blocks, THREADS, 0, launch->stream>>>(*update); break;
        FTH_UPDATE_RULES(LAUNCH_OF)
#undef LAUNCH_OF
    }
    return cudaGetLastError();
}

cudaError_t cuda_launch_group_numbers(cudaStream_t stream, const cuda_run_values *run, const fth_update_numbers *slots,
                                      int groups, fth_update_numbers *to)
{
    group_numbers_kernel<<<1, THREADS, 0, stream>>>(run, slots, groups, to);
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
