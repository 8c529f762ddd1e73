/* The launchers of the kernels for text; what kernels.h says of launchers holds for these. Rows are
 * tokens, or samples. */
#ifndef FTH_BACKEND_CUDA_TEXT_KERNELS_H
#define FTH_BACKEND_CUDA_TEXT_KERNELS_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- layer norm (layer_norm.cu) ---- */

typedef struct cuda_row_norm {
    cuda_type type;
    int64_t rows, features;
    float epsilon;
    const float *scale, *shift;
    /* The dropout before it. */
    const cuda_run_values *run;
    uint32_t id, threshold; /* threshold 0: none */
    float dropout_scale;
    cuda_row_origin origin;
} cuda_row_norm;

/* residual, sum and statistics may be NULL; one of `sum` and y may be x or the residual. */
cudaError_t cuda_launch_layer_norm(const cuda_launch *launch, const cuda_row_norm *norm, const void *x,
                                   const void *residual, void *y, void *sum, float *statistics);
size_t cuda_layer_norm_scratch_bytes(const cuda_launch *launch, int64_t rows, int64_t features);
/* The gradient of y is dy [+ dy2]; dy2, dresidual and dbias, the sums of dx over the rows, may be
 * NULL; of dx and dresidual each may be what is read. */
cudaError_t cuda_launch_layer_norm_grad(const cuda_launch *launch, const cuda_row_norm *norm, const void *sum,
                                        const float *statistics, const void *dy, const void *dy2, void *dx,
                                        void *dresidual, float *dscale, float *dshift, float *dbias, float *scratch);

/* ---- embedding (embedding.cu) ---- */

enum { CUDA_MAX_LOOKUPS = 4 };
typedef struct cuda_lookup {
    cuda_type type; /* of y; tables are f32 */
    int count;
    int64_t tokens, features;
    int64_t rows[CUDA_MAX_LOOKUPS];
    const int32_t *ids[CUDA_MAX_LOOKUPS];
    const float *tables[CUDA_MAX_LOOKUPS];
} cuda_lookup;

/* An id that is not in its table makes the row NaN. */
cudaError_t cuda_launch_embedding(const cuda_launch *launch, const cuda_lookup *lookup, void *y);
cudaError_t cuda_embedding_grad_scratch_bytes(int64_t tokens, int64_t features, int64_t rows, size_t *size_bytes);
cudaError_t cuda_launch_embedding_grad(const cuda_launch *launch, cuda_type type, int64_t tokens, int64_t features,
                                       int64_t rows, const int32_t *ids, const void *dy, float *dtable, void *scratch);

/* ---- first tokens (first_tokens.cu) ---- */

cudaError_t cuda_launch_first_tokens(const cuda_launch *launch, cuda_type type, int64_t batch, int64_t tokens,
                                     int64_t features, const void *x, const int32_t *ends, void *y);
cudaError_t cuda_launch_first_tokens_grad(const cuda_launch *launch, cuda_type type, int64_t batch, int64_t tokens,
                                          int64_t features, const void *dy, const int32_t *ends, void *dx);

/* ---- softmax, normalize (softmax.cu) ---- */

typedef struct cuda_row_op {
    cuda_type type;
    int64_t rows, features;
    bool option;   /* softmax: its logarithm; normalize: rms */
    float epsilon; /* of normalize */
} cuda_row_op;

/* The results may be what is read. inverses: may be NULL. */
cudaError_t cuda_launch_softmax(cudaStream_t stream, const cuda_row_op *op, const void *x, void *y);
cudaError_t cuda_launch_softmax_grad(cudaStream_t stream, const cuda_row_op *op, const void *y, const void *dy,
                                     void *dx);
cudaError_t cuda_launch_normalize(cudaStream_t stream, const cuda_row_op *op, const void *x, void *y, float *inverses);
cudaError_t cuda_launch_normalize_grad(cudaStream_t stream, const cuda_row_op *op, const void *y, const void *dy,
                                       const float *inverses, void *dx);

/* ---- losses of (batch, labels) f32 (losses.cu) ---- */

typedef enum cuda_loss { CUDA_SQUARED_ERROR, CUDA_SIGMOID_CROSS_ENTROPY } cuda_loss;
cudaError_t cuda_launch_loss(const cuda_launch *launch, cuda_loss what, int64_t batch, int64_t labels,
                             const float *outputs, const float *targets, float *loss, const cuda_run_values *run,
                             cuda_announcement *announcement);
cudaError_t cuda_launch_loss_grad(const cuda_launch *launch, cuda_loss what, cuda_type type, int64_t count,
                                  const float *outputs, const float *targets, const cuda_run_values *run,
                                  void *gradient);

#ifdef __cplusplus
}
#endif
#endif
