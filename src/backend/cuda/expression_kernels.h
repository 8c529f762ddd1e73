/* Launchers of the kernels that compute expressions (expression.cu). */
#ifndef FTH_BACKEND_CUDA_EXPRESSION_KERNELS_H
#define FTH_BACKEND_CUDA_EXPRESSION_KERNELS_H

#include "backend/cuda/kernels.h"
#include "backend/program.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_MAX_AXES = 8 };

/* Elements in a certain order, the last axis fastest, and where the inputs have them. */
typedef struct cuda_axes {
    int rank;
    int64_t count; /* the product of sizes */
    int64_t sizes[CUDA_MAX_AXES];
    int64_t strides[FTH_EXPRESSION_INPUTS][CUDA_MAX_AXES];
} cuda_axes;

/* What is computed for each element of the result. Passed to kernels by value. */
typedef struct cuda_expression {
    fth_program program;
    int input_count, type; /* type: cuda_type of the result */
    int types[FTH_EXPRESSION_INPUTS];
    const void *inputs[FTH_EXPRESSION_INPUTS];
    int64_t channels, logical; /* every `channels` elements of the result, those from `logical` on are 0 */
    cuda_axes axes;            /* the result's elements, in the order in which they lie */
    cuda_axes reduced;         /* what each of them is reduced from; rank 0: itself alone */
    int reduction;             /* fth_reduction */
} cuda_expression;

cudaError_t cuda_launch_pointwise(const cuda_launch *launch, const cuda_expression *expression, void *y);
/* Floats of scratch memory for a reduction. */
size_t cuda_reduce_floats(const cuda_launch *launch, const cuda_expression *expression);
cudaError_t cuda_launch_reduce(const cuda_launch *launch, const cuda_expression *expression, float *scratch, void *y);

#ifdef __cplusplus
}
#endif
#endif
