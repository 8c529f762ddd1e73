/* What both kinds of attention kernels share (attention.cu, attention_plain.cu): where a sequence
 * lies, and which probabilities dropout keeps. */
#ifndef FTH_BACKEND_CUDA_ATTENTION_CUH
#define FTH_BACKEND_CUDA_ATTENTION_CUH

#include "backend/cuda/attention.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/random.cuh"

/* Attention as the kernels take it. */
struct AttentionSizes {
    const int32_t *ends; /* device memory; NULL: all sequences have `length` tokens */
    int length;
    bool causal;    /* query i sees keys 0 to i; attention.cu alone */
    int64_t stride; /* of rows of queries, keys, values and their gradients; likewise */
    int64_t tokens; /* rows, those of no sequence included */
    int sequences, heads, size;
    float scale; /* of scores */
    struct {
        const cuda_run_values *run; /* device memory */
        cuda_row_origin origin;     /* of rows in the whole batch */
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
    if (!a.ends)
        return Rows{(int64_t)sequence * a.length, sequence < a.sequences ? a.length : 0};
    int64_t begin = sequence > 0 ? a.ends[sequence - 1] : 0, end = sequence < a.sequences ? a.ends[sequence] : a.tokens;
    if (end > a.tokens)
        end = a.tokens;
    return Rows{begin, end > begin ? (int)(end - begin) : 0};
}

/* fth_attention_draw() and fth_attention_keeps() of graph/ops.h for the keys of one query: a draw
 * serves four neighbouring keys, 16 bits each, which are kept where they are at least the
 * threshold. */
struct Keeper {
    enum : uint64_t { STEP = 0x9e3779b97f4a7c15u }; /* random_bits() from one counter to the next */
    uint64_t first;
    uint32_t below; /* the most of what is dropped, in the upper 16 bits */

    __device__ __forceinline__ Keeper(uint64_t dropout_key, const AttentionSizes &a, int64_t row, int head)
        : first(dropout_key +
                ((((first_row(a.dropout.run, a.dropout.origin) + (uint64_t)row) * (uint64_t)a.heads + (uint64_t)head)
                  << 16) +
                 1) *
                    STEP),
          below((a.dropout.threshold << 16) - 1)
    {
    }
    /* Bits of keys 4 * group to 4 * group + 3, from bit `at` on. */
    __device__ __forceinline__ uint32_t four(uint64_t counter, int at) const
    {
        const uint64_t drawn = mix(counter);
        const uint32_t low = (uint32_t)drawn, high = (uint32_t)(drawn >> 32);
        return (low << 16 > below ? 1u << at : 0) | (low > below ? 2u << at : 0) | (high << 16 > below ? 4u << at : 0) |
               (high > below ? 8u << at : 0);
    }
    __device__ __forceinline__ uint32_t four(int key) const
    {
        return four(first + (uint64_t)(key / 4) * STEP, 0);
    }
    /* Bits of 32 keys from `key`, a multiple of 4, on. */
    __device__ __forceinline__ uint32_t thirty_two(int key) const
    {
        const uint64_t counter = first + (uint64_t)(key / 4) * STEP;
        uint32_t bits = 0;
#pragma unroll
        for (int g = 0; g < 8; g++)
            bits |= four(counter + g * (uint64_t)STEP, 4 * g);
        return bits;
    }
    __device__ __forceinline__ bool keeps(int key) const
    {
        return four(key) >> (key % 4) & 1;
    }
};

/* True if the current device has that much shared memory for a block. */
template <typename Shared> bool has_shared()
{
    int device = 0, most = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess &&
           (size_t)most >= sizeof(Shared);
}

/* Lets a kernel have that much dynamic shared memory. */
template <typename Shared, typename Kernel> cudaError_t allow_shared(Kernel kernel)
{
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(Shared));
}

} // namespace

/* Any type, heads of up to cuda_attention_largest_head() numbers, without tensor cores
 * (attention_plain.cu). `scratch`: tokens * heads floats. */
cudaError_t launch_plain_attention(cudaStream_t stream, cuda_type type, int longest, const AttentionSizes &a,
                                   const void *qkv, void *y, float *statistics);
cudaError_t launch_plain_attention_grad(cudaStream_t stream, cuda_type type, int longest, const AttentionSizes &a,
                                        const void *qkv, const void *y, const float *statistics, const void *dy,
                                        void *dqkv, float *scratch);

/* dot_product_attention by attention.cu, where uses_tensor_cores(). */
bool uses_tensor_cores(const cuda_product_attention *a);
cudaError_t launch_fast_product_attention(cudaStream_t stream, const cuda_product_attention *a, void *y,
                                          float *statistics, const cuda_run_values *run);
/* `scratch`: fast_product_scratch_bytes(), perhaps none. */
cudaError_t launch_fast_product_attention_grad(cudaStream_t stream, const cuda_product_attention *a, const void *y,
                                               const float *statistics, const void *dy, void *dquery, void *dkey,
                                               void *dvalue, float *scratch, const cuda_run_values *run);
size_t fast_product_scratch_bytes(const cuda_product_attention *a);

#endif
