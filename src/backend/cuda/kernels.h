/* The launchers of the CUDA back end's own kernels: plain C functions that queue work on a stream.
 *
 * Tensors are rows of channels: an image (N, C, H, W) lies as N*H*W rows of `channels` numbers
 * (NHWC), channels past the logical ones are padding and hold zero; features (N, F) are N rows. All
 * return the launch's error. Sums are made in a fixed order, without atomics on floats: the same
 * inputs give the same bits.
 *
 * One header for all of them, one launcher for each kernel: they are alike, and none has state. */
#ifndef FTH_BACKEND_CUDA_KERNELS_H
#define FTH_BACKEND_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/clip_and_scale.h"
#include "backend/optimizers.h"
#include "backend/resize_place.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cuda_type { CUDA_TYPE_F32, CUDA_TYPE_F16, CUDA_TYPE_BF16, CUDA_TYPE_I32, CUDA_TYPE_U8 } cuda_type;

/* What changes from run to run, in device memory, so that a captured graph can be replayed with
 * other numbers. */
typedef struct cuda_run_values {
    uint64_t seed, step;
    uint64_t first_sample, first_token; /* of the batch, where this process has a part of it */
    uint64_t sequence;                  /* number of the run: the host knows the loss by it */
    float gradient_scale;
    fth_update_numbers update;        /* if there is one */
    const fth_loss_scale *loss_scale; /* device memory: gradient_scale is multiplied by it; NULL: not */
} cuda_run_values;

/* The number of a value's first row in the whole batch, for dropout: so many rows for each sample
 * before this part of the batch, or for each token; neither where the size is fixed. */
typedef struct cuda_row_origin {
    uint64_t per_sample, per_token;
} cuda_row_origin;

cudaError_t cuda_launch_run_values(cudaStream_t stream, cuda_run_values *to, cuda_run_values values);
/* Gives the launch above, recorded as `node`, other values. */
cudaError_t cuda_set_recorded_run_values(cudaGraphExec_t recorded, cudaGraphNode_t node, cuda_run_values *to,
                                         cuda_run_values values);

/* The loss of a run, in pinned memory, where the host waits for it. */
typedef struct cuda_announcement {
    volatile float loss, correct;
    volatile uint64_t sequence; /* of the run it is from; written last */
} cuda_announcement;

/* What reductions need besides their data: counters that are zero between launches, and the size of
 * the device. */
enum { CUDA_COUNTERS = 1024 };
typedef struct cuda_launch {
    cudaStream_t stream;
    unsigned *counters; /* CUDA_COUNTERS of them, in device memory */
    int processors;     /* multiprocessors of the device */
} cuda_launch;

/* Floats of scratch memory for a reduction of two sums per channel. */
size_t cuda_reduction_floats(const cuda_launch *launch, int64_t rows, int64_t channels, cuda_type type);

/* ---- conversions ---- */

/* How images that only a convolution reads are spread out so that it becomes one of many channels,
 * which is what tensor cores want. Folded: 2x2 pixels become 4c channels (of 16), and the taps of a
 * row of them stand beside each other: a convolution of stride 2 and kernel K becomes one of stride
 * 1 and kernel (taps, 1) over 16 * taps channels. Patches: all taps stand beside each other; a 1x1
 * convolution is left. */
typedef enum cuda_spread { CUDA_NOT_SPREAD, CUDA_FOLDED, CUDA_PATCHES } cuda_spread;

typedef struct cuda_spreading {
    cuda_spread how;
    int kernel, stride, padding; /* of the convolution, the same in both directions */
    int out_height, out_width;   /* of the convolution */
    int taps, before, offset;    /* folded: taps, zero pixels before, tap = 2 * folded tap + parity - offset */
} cuda_spreading;

/* How a tensor of logical shape (n, c, h, w) lies: element (n, c, h, w) of NHWC is at ((n*H + h)*W
 * + w)*channels + c, of plain at ((n*C + c)*H + h)*W + w. */
typedef struct cuda_view {
    int type;     /* cuda_type */
    int nhwc;     /* else plain */
    int batch;    /* physical: >= n */
    int channels; /* physical: >= c; of spread images: of a spread pixel */
    cuda_spreading spread;
} cuda_view;

cudaError_t cuda_launch_convert(cudaStream_t stream, const void *from, cuda_view from_view, void *to, cuda_view to_view,
                                int n, int c, int h, int w);

/* Many weights at once. Entries are in device memory. */
typedef struct cuda_cast {
    const void *from;
    void *to;
    int64_t first_chunk;
    int outputs, inputs, height, width;    /* logical (O, I, KH, KW) */
    int physical_outputs, physical_inputs; /* of the channels-last side */
    cuda_spreading spread;                 /* the convolution's, if its images are spread */
    int type;                              /* of the channels-last side */
} cuda_cast;
enum { CUDA_CAST_CHUNK = 8192 };
cudaError_t cuda_launch_cast_weights(cudaStream_t stream, const cuda_cast *entries, int count, int64_t chunks);
cudaError_t cuda_launch_cast_gradients(cudaStream_t stream, const cuda_cast *entries, int count, int64_t chunks);

cudaError_t cuda_launch_fill_random(cudaStream_t stream, cuda_type type, void *to, size_t count);
/* *found, in device memory, becomes 1 if any element is not NaN, and is left alone otherwise. */
cudaError_t cuda_launch_find_number(cudaStream_t stream, cuda_type type, const void *from, size_t count, int *found);

/* ---- what is done to each element ---- */

typedef enum cuda_elementwise {
    CUDA_NOTHING,
    CUDA_RELU,           /* a */
    CUDA_RELU_GRAD,      /* a = y, b = dy */
    CUDA_GELU,           /* a */
    CUDA_GELU_GRAD,      /* a = x, b = dy */
    CUDA_GELU_TANH,      /* a */
    CUDA_GELU_TANH_GRAD, /* a = x, b = dy */
    CUDA_TANH,           /* a */
    CUDA_TANH_GRAD,      /* a = y, b = dy */
    CUDA_ADD,            /* a, b */
    CUDA_ADD_RELU
} cuda_elementwise;

/* ---- batch norm ---- */

typedef struct cuda_norm {
    cuda_type type;
    int64_t rows, channels; /* physical channels */
    int64_t logical;
    float epsilon, momentum;
    bool relu;
    const float *scale, *shift;
    float *mean, *variance;
    float *running_mean, *running_variance;
} cuda_norm;

/* mean, variance and, unless NULL, the running statistics. */
cudaError_t cuda_launch_norm_statistics(const cuda_launch *launch, const cuda_norm *norm, const void *x,
                                        float *scratch);
/* y = [relu](x * a + b [+ residual]); mask: a byte with a bit for each element of 16 bytes, or
 * NULL. */
cudaError_t cuda_launch_norm_apply(const cuda_launch *launch, const cuda_norm *norm, const float *mean,
                                   const float *variance, const void *x, const void *residual, void *y, uint8_t *mask);
/* g = (dy [+ dy2]) where y > 0, written to `g` if that is not NULL; dscale, dshift. Without mask
 * and with relu, y's sign is computed again from x. */
cudaError_t cuda_launch_norm_reduce(const cuda_launch *launch, const cuda_norm *norm, const void *x, const void *dy,
                                    const void *dy2, const uint8_t *mask, void *g, float *dscale, float *dshift,
                                    float *scratch);
/* dx from g (if `masked`, from dy by the sign of y computed again). dscale and dshift are NULL if
 * mean and variance do not depend on x. */
cudaError_t cuda_launch_norm_gradient(const cuda_launch *launch, const cuda_norm *norm, const void *x, const void *g,
                                      bool masked, const float *dscale, const float *dshift, void *dx);
/* Between these and the sum over peers (batch_norm_sums.h): `sums` from a part's mean and variance;
 * mean, variance and the running statistics from `sums` of the whole batch. For the gradient:
 * `sums` from a part's dscale and dshift; and from `sums` of the whole, what stands for dscale and
 * dshift in cuda_launch_norm_gradient. Sums of 0 elements change nothing. */
cudaError_t cuda_launch_norm_pack(const cuda_launch *launch, const cuda_norm *norm, double *sums);
cudaError_t cuda_launch_norm_unpack(const cuda_launch *launch, const cuda_norm *norm, const double *sums);
cudaError_t cuda_launch_norm_gradient_pack(const cuda_launch *launch, const cuda_norm *norm, const float *dscale,
                                           const float *dshift, double *sums);
cudaError_t cuda_launch_norm_gradient_unpack(const cuda_launch *launch, const cuda_norm *norm, const double *sums,
                                             float *dscale, float *dshift);
/* Where *failed is not 0: *loss becomes NaN and sums[0] 0; each may be NULL. */
cudaError_t cuda_launch_group_guard(cudaStream_t stream, const int *failed, float *loss, double *sums);
size_t cuda_norm_mask_bytes(cuda_type type, int64_t rows, int64_t channels);

/* sums[c] = sum over rows of x; unless `what` is CUDA_NOTHING, of dx, the gradient of an activation
 * of which x is dy and y what it reads. */
cudaError_t cuda_launch_column_sums(const cuda_launch *launch, cuda_elementwise what, cuda_type type, int64_t rows,
                                    int64_t channels, int64_t logical, const void *x, const void *y, void *dx,
                                    float *sums, float *scratch);
/* y = [relu](x + bias[c]); may work in place. */
cudaError_t cuda_launch_bias(const cuda_launch *launch, cuda_type type, int64_t rows, int64_t channels, int64_t logical,
                             const void *x, const float *bias, bool relu, void *y);

/* ---- elementwise ---- */

cudaError_t cuda_launch_elementwise(const cuda_launch *launch, cuda_elementwise what, cuda_type type, size_t count,
                                    const void *a, const void *b, void *y);

/* The mask depends on the logical row-major index of (n, c, plane position), n counted through the
 * whole batch. */
cudaError_t cuda_launch_dropout(cudaStream_t stream, cuda_type type, const void *x, void *y, int64_t n, int64_t c,
                                int64_t plane, bool nhwc, int64_t channels, cuda_row_origin origin,
                                const cuda_run_values *run, uint32_t id, uint32_t threshold, float scale);

/* Copies `count` channels of NHWC rows; channels of `to` from `zero_from` to `to_channels` become
 * zero if zero_from >= 0. */
cudaError_t cuda_launch_copy_channels(cudaStream_t stream, cuda_type type, int64_t rows, const void *from,
                                      int64_t from_channels, int64_t from_begin, void *to, int64_t to_channels,
                                      int64_t to_begin, int64_t count, int64_t zero_from);

/* ---- pooling ---- */

typedef struct cuda_pool {
    cuda_type type;
    int batch, channels; /* physical */
    int height, width, out_height, out_width;
    int kernel[2], stride[2], padding[2];
    bool count_padding, adaptive;
} cuda_pool;
/* where: one byte each, the position within the window; kernels of up to 255 elements. */
cudaError_t cuda_launch_max_pool(cudaStream_t stream, const cuda_pool *pool, const void *x, void *y, uint8_t *where);
cudaError_t cuda_launch_max_pool_grad(cudaStream_t stream, const cuda_pool *pool, const void *dy, const uint8_t *where,
                                      void *dx);
cudaError_t cuda_launch_average_pool(cudaStream_t stream, const cuda_pool *pool, const void *x, void *y);
cudaError_t cuda_launch_average_pool_grad(cudaStream_t stream, const cuda_pool *pool, const void *dy, void *dx);

/* ---- resizing ---- */

typedef struct cuda_resizing {
    cuda_type type;
    int batch, channels; /* physical */
    fth_resize_axis rows, columns;
} cuda_resizing;
cudaError_t cuda_launch_resize(cudaStream_t stream, const cuda_resizing *resize, const void *x, void *y);
cudaError_t cuda_launch_resize_grad(cudaStream_t stream, const cuda_resizing *resize, const void *dy, void *dx);

/* ---- depthwise convolution ---- */

typedef struct cuda_depthwise {
    cuda_type type;
    int batch, channels, logical; /* channels: physical, on both sides */
    int height, width, out_height, out_width;
    int kernel, stride; /* 3, 5 or 7; 1 or 2 */
    int padding[2];     /* less than the kernel */
} cuda_depthwise;
/* Weights are f32: (channels, taps) in the flat vector, (taps, physical channels) packed. */
cudaError_t cuda_launch_depthwise_pack(cudaStream_t stream, const cuda_depthwise *depthwise, const float *weights,
                                       float *to);
cudaError_t cuda_launch_depthwise_forward(cudaStream_t stream, const cuda_depthwise *depthwise, const void *x,
                                          const float *packed, void *y);
cudaError_t cuda_launch_depthwise_grad_input(cudaStream_t stream, const cuda_depthwise *depthwise, const void *dy,
                                             const float *packed, void *dx);
/* Floats of scratch memory for the gradient of the weights. */
size_t cuda_depthwise_floats(const cuda_launch *launch, const cuda_depthwise *depthwise);
cudaError_t cuda_launch_depthwise_grad_weights(const cuda_launch *launch, const cuda_depthwise *depthwise,
                                               const void *x, const void *dy, float *scratch, float *dw);

/* ---- convolution, for what cuDNN has no engine for ---- */

typedef struct cuda_direct {
    cuda_type type;
    int batch, channels, height, width; /* of x */
    int outputs, out_height, out_width; /* of y */
    int group_inputs, group_outputs;    /* channels per group */
    int kernel[2], stride[2], padding[2], dilation[2];
} cuda_direct;
cudaError_t cuda_launch_direct_forward(cudaStream_t stream, const cuda_direct *c, const void *x, const void *w,
                                       void *y);
cudaError_t cuda_launch_direct_data(cudaStream_t stream, const cuda_direct *c, const void *dy, const void *w, void *dx);
cudaError_t cuda_launch_direct_filter(cudaStream_t stream, const cuda_direct *c, const void *x, const void *dy,
                                      void *dw);

/* ---- loss ---- */

enum { CUDA_IGNORED_LABEL = -100 }; /* FTH_IGNORED_LABEL */
/* counted: the number of labels that are not ignored. */
cudaError_t cuda_launch_cross_entropy(const cuda_launch *launch, const float *logits, const int32_t *labels,
                                      int64_t batch, int64_t classes, float smoothing, float *loss,
                                      float *probabilities, float *counted,
                                      float *scratch, /* scratch: 2 * batch floats */
                                      const cuda_run_values *run, cuda_announcement *announcement);
cudaError_t cuda_launch_cross_entropy_grad(cudaStream_t stream, cuda_type type, const float *probabilities,
                                           const int32_t *labels, const float *counted, int64_t batch, int64_t classes,
                                           float smoothing, const cuda_run_values *run, void *gradient);

/* ---- flat vectors ---- */

/* A part of the vectors that is updated by the numbers of one group; it begins at a multiple of
 * 4. */
typedef struct cuda_update_piece {
    size_t begin, end;
    int group;
} cuda_update_piece;
enum { CUDA_UPDATE_PIECE_FLOATS = 4096 }; /* at most */

/* An update, and where its numbers come from. */
typedef struct cuda_update {
    float *parameters;
    const float *gradients;
    float *state[FTH_MAX_OPTIMIZER_VECTORS];
    size_t count;
    fth_update_numbers numbers;      /* if `run` is NULL */
    const cuda_update_piece *pieces; /* device memory or NULL: all have the same numbers */
    int piece_count;
    const fth_update_numbers *of_groups;    /* device memory: by the pieces' groups */
    float factor;                           /* of the gradients, if `judgement` is NULL */
    const cuda_run_values *run;             /* device memory */
    const float *loss;                      /* device memory or NULL: no update if it is not finite */
    const struct cuda_judgement *judgement; /* device memory or NULL */
    struct cuda_update_outcome *outcome;    /* pinned memory or NULL: set if a parameter is no longer finite */
} cuda_update;

cudaError_t cuda_launch_update(const cuda_launch *launch, fth_update_rule rule, const cuda_update *update);
/* The numbers of this run's groups, from pinned memory: those of run `sequence` lie in slot
 * sequence % CUDA_UPDATE_SLOTS. */
enum { CUDA_UPDATE_SLOTS = 8 };
cudaError_t cuda_launch_group_numbers(cudaStream_t stream, const cuda_run_values *run, const fth_update_numbers *slots,
                                      int groups, fth_update_numbers *to);
cudaError_t cuda_launch_add(const cuda_launch *launch, float *to, const float *from, size_t count);
enum { CUDA_NORM_BLOCKS = 256 };
/* result[0] = sum of squares; scratch: CUDA_NORM_BLOCKS doubles. */
cudaError_t cuda_launch_square_sum(const cuda_launch *launch, const float *values, size_t count, double *scratch,
                                   double *result);

/* What becomes of an update, in device memory. */
typedef struct cuda_judgement {
    fth_loss_scale loss_scale;
    double clip;
    float factor;
    int apply;
} cuda_judgement;

/* What became of updates, in pinned memory, where the host looks. */
typedef struct cuda_update_outcome {
    volatile int64_t left_out;
    volatile int diverged;
} cuda_update_outcome;

/* Judges the gradients by their norm (clip_and_scale.h), if the loss is finite and none was found
 * diverged before. */
cudaError_t cuda_launch_judge(const cuda_launch *launch, const float *gradients, size_t count, const float *loss,
                              double *scratch, cuda_judgement *judgement, cuda_update_outcome *outcome);

/* ---- batches from a data set on the device ---- */

enum { CUDA_GATHER_CHANNELS = 4 };
typedef struct cuda_gathering {
    const uint8_t *pixels; /* (samples, channels, height, width) */
    int channels, height, width;
    float scale[CUDA_GATHER_CHANNELS], shift[CUDA_GATHER_CHANNELS];
    const void *recipes; /* fth_recipe, device memory */
    int64_t count;
} cuda_gathering;
cudaError_t cuda_launch_gather(const cuda_launch *launch, const cuda_gathering *gathering, float *images);

/* ---- for tests of what happens then ---- */

cudaError_t cuda_launch_spin(cudaStream_t stream, double seconds);
cudaError_t cuda_launch_trap(cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
