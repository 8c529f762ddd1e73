/* The launchers of the kernels that move elements (arrange.cu); what kernels.h says of launchers
 * holds for these. */
#ifndef FTH_BACKEND_CUDA_ARRANGE_KERNELS_H
#define FTH_BACKEND_CUDA_ARRANGE_KERNELS_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Nested loops over memory, as fth_strided_copy; distances in items of 2 or 4 bytes. */
enum { CUDA_COPY_RANK = 9 };
typedef struct cuda_strided {
    int rank, item_bytes;
    int64_t sizes[CUDA_COPY_RANK], from[CUDA_COPY_RANK], to[CUDA_COPY_RANK];
    int64_t from_begin, to_begin;
    bool fills; /* with the low bytes of `filling`, instead of copying */
    uint32_t filling;
} cuda_strided;
cudaError_t cuda_launch_strided_copy(cudaStream_t stream, const cuda_strided *copy, const void *from, void *to);

/* Entries of an axis: tensors are (outer, size of the axis, inner), row-major. */
typedef struct cuda_entries {
    cuda_type type;
    int64_t outer, from_size, to_size, inner;
} cuda_entries;
cudaError_t cuda_launch_gather_entries(cudaStream_t stream, const cuda_entries *e, const void *x,
                                       const int32_t *indices, void *y);
cudaError_t cuda_launch_add_entries(cudaStream_t stream, const cuda_entries *e, const void *dy, const int32_t *order,
                                    const int32_t *ends, void *dx);

#ifdef __cplusplus
}
#endif
#endif
