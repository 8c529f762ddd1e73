/* The random numbers of dropout on the device: base/random.h and graph/ops.h, bit for bit. */
#ifndef FTH_BACKEND_CUDA_RANDOM_CUH
#define FTH_BACKEND_CUDA_RANDOM_CUH

#include "backend/cuda/kernels.h"

namespace
{

__device__ __forceinline__ uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

__device__ __forceinline__ uint64_t random_bits(uint64_t key, uint64_t counter)
{
    return mix(key + (counter + 1) * 0x9e3779b97f4a7c15u);
}

__device__ __forceinline__ uint64_t fork_key(uint64_t key, uint64_t number)
{
    return mix(random_bits(key, number) ^ 0x5851f42d4c957f2du);
}

enum { RANDOM_DROPOUT = 5 }; /* fth_random_use; checked in shape.c */

/* fth_run_first_row() of this run. */
__device__ __forceinline__ uint64_t first_row(const cuda_run_values *run, cuda_row_origin origin)
{
    return run->first_sample * origin.per_sample + run->first_token * origin.per_token;
}

/* fth_dropout_key() of this run and the dropout `id`. */
__device__ __forceinline__ uint64_t dropout_key(const cuda_run_values *run, uint32_t id)
{
    return fork_key(fork_key(fork_key(mix(run->seed + 0x9e3779b97f4a7c15u), RANDOM_DROPOUT), run->step), id);
}

} // namespace

#endif
