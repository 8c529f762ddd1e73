/* The launchers of attention (attention.cu); see attention in graph/ops.h. */
#ifndef FTH_BACKEND_CUDA_ATTENTION_H
#define FTH_BACKEND_CUDA_ATTENTION_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_attention_shape {
    cuda_type type;
    int64_t tokens; /* rows of qkv */
    int sequences, heads;
    int size;                    /* numbers of a head, at most cuda_attention_largest_head() */
    int longest;                 /* no sequence has more tokens */
    float probability;           /* of dropout; 0: none */
    uint32_t dropout, threshold; /* its id; fth_attention_threshold() */
} cuda_attention_shape;

/* statistics: may be NULL. Rows of no sequence become zero. */
cudaError_t cuda_launch_attention(cudaStream_t stream, const cuda_attention_shape *a, const void *qkv,
                                  const int32_t *ends, void *y, float *statistics, const cuda_run_values *run);
/* scratch: cuda_attention_scratch_bytes(), perhaps none. */
cudaError_t cuda_launch_attention_grad(cudaStream_t stream, const cuda_attention_shape *a, const void *qkv,
                                       const int32_t *ends, const void *y, const float *statistics, const void *dy,
                                       void *dqkv, float *scratch, const cuda_run_values *run);
size_t cuda_attention_scratch_bytes(const cuda_attention_shape *a);
/* What this device can do: 256, or 128 where blocks have little shared memory. */
int cuda_attention_largest_head(void);

/* ---- dot_product_attention (dot_product_attention.cu) ---- */

typedef struct cuda_product_attention {
    cuda_type type;
    int64_t sequences;
    int queries, keys; /* of a sequence */
    int heads;
    int size, value_size;                           /* numbers of a head, at most cuda_attention_largest_head() */
    int64_t query_stride, key_stride, value_stride; /* of rows; gradients have the same */
    int64_t mask_entries;                           /* 0: there is no mask */
    int mask_heads, mask_queries;
    bool causal;
    float scale;
    float probability; /* of dropout; 0: none */
    uint32_t dropout, threshold;
    cuda_row_origin origin; /* of rows of queries */
    const void *query, *key, *value;
    const float *mask;
} cuda_product_attention;

/* statistics: may be NULL. */
cudaError_t cuda_launch_product_attention(cudaStream_t stream, const cuda_product_attention *a, void *y,
                                          float *statistics, const cuda_run_values *run);
size_t cuda_product_attention_scratch_bytes(const cuda_product_attention *a);
/* dmask: may be NULL. scratch: as many bytes, perhaps none. */
cudaError_t cuda_launch_product_attention_grad(cudaStream_t stream, const cuda_product_attention *a, const void *y,
                                               const float *statistics, const void *dy, void *dquery, void *dkey,
                                               void *dvalue, float *dmask, float *scratch, const cuda_run_values *run);

#ifdef __cplusplus
}
#endif
#endif
