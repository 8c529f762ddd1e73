/* What both kinds of attention kernels share (attention.cu, attention_plain.cu): where a sequence lies, and which
 * probabilities dropout keeps. */
#ifndef FTH_BACKEND_CUDA_ATTENTION_CUH
#define FTH_BACKEND_CUDA_ATTENTION_CUH

#include "backend/cuda/attention.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/random.cuh"

/* Attention as the kernels take it. */
struct AttentionSizes {
    const int32_t *ends; /* device memory */
    int64_t tokens;      /* rows, those of no sequence included */
    int sequences, heads, size;
    float scale; /* of scores */
    struct {
        const cuda_run_values *run; /* device memory */
        uint32_t id, threshold;     /* threshold 0: everything is kept */
        float scale;
    } dropout;
};

namespace
{

struct Rows {
    int64_t begin;
    int count;
};

/* The rows of a sequence; of the one past the last, the rows that belong to none. */
__device__ __forceinline__ Rows rows_of(const AttentionSizes &a, int sequence)
{
    int64_t begin = sequence > 0 ? a.ends[sequence - 1] : 0, end = sequence < a.sequences ? a.ends[sequence] : a.tokens;
    if (end > a.tokens)
        end = a.tokens;
    return Rows{begin, end > begin ? (int)(end - begin) : 0};
}

/* fth_attention_draw() and fth_attention_keeps() of graph/ops.h for the keys of one query: a draw serves four
 * neighbouring keys. */
struct Keeper {
    uint64_t key, first;
    uint32_t threshold;

    __device__ __forceinline__ Keeper(uint64_t dropout_key, const AttentionSizes &a, int64_t row, int head)
        : key(dropout_key),
          first(((a.dropout.run->first_token + (uint64_t)row) * (uint64_t)a.heads + (uint64_t)head) << 16),
          threshold(a.dropout.threshold)
    {
    }
    /* Bits of keys 4 * group to 4 * group + 3. */
    __device__ __forceinline__ uint32_t four(int group) const
    {
        const uint64_t drawn = random_bits(key, first | (uint64_t)group);
        const uint32_t low = (uint32_t)drawn, high = (uint32_t)(drawn >> 32);
        return ((low & 0xffff) >= threshold ? 1u : 0) | ((low >> 16) >= threshold ? 2u : 0) |
               ((high & 0xffff) >= threshold ? 4u : 0) | ((high >> 16) >= threshold ? 8u : 0);
    }
    __device__ __forceinline__ bool keeps(int k) const
    {
        return four(k >> 2) >> (k & 3) & 1;
    }
};

__device__ __forceinline__ float warp_sum(float x)
{
    for (int offset = 16; offset > 0; offset >>= 1)
        x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

/* Lets a kernel have that much dynamic shared memory. */
template <typename Shared, typename Kernel> cudaError_t allow_shared(Kernel kernel)
{
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(Shared));
}

} // namespace

/* Any type, heads of up to 256 numbers, without tensor cores (attention_plain.cu). `scratch`: tokens * heads floats. */
cudaError_t launch_plain_attention(cudaStream_t stream, cuda_type type, int longest, const AttentionSizes &a,
                                   const void *qkv, void *y, float *statistics);
cudaError_t launch_plain_attention_grad(cudaStream_t stream, cuda_type type, int longest, const AttentionSizes &a,
                                        const void *qkv, const void *y, const float *statistics, const void *dy,
                                        void *dqkv, float *scratch);

#endif
