/* The arithmetic of Winograd convolution, F(4×4, 3×3), at each level of vector instructions. See
 * level/winograd_correlate.c; winograd_convolution.c makes steps of it. */
#ifndef FTH_BACKEND_CPU_WINOGRAD_H
#define FTH_BACKEND_CPU_WINOGRAD_H

#include <stdbool.h>
#include <stdint.h>

/* Images in blocks of as many channels as the level has lanes: (batch, planes / lanes, height,
 * width, lanes). */
typedef struct winograd_images {
    int64_t batch, planes, height, width;
} winograd_images;

/* out[n] = sum over k of in[k] * weight[k][n], 3×3, stride 1. `begin` are the input's row and
 * column of output (0, 0), kernel (0, 0): minus the padding. */
typedef struct winograd_correlation {
    winograd_images in, out;
    int64_t begin_row, begin_column;
    bool relu;
    bool pool; /* the outputs go through max pooling by 2×2 */
    bool bf16; /* images and their gradients are, all but those of a pooled source; else f32 */
} winograd_correlation;

/* Images, or the gradient of images that went through max pooling by 2×2: then `values` are of the
 * pooled size, and so is `where`, which says the place of each in its cell: 0, 1 in the upper row,
 * 2, 3 in the lower one. */
typedef struct winograd_source {
    const void *values;
    const uint8_t *where; /* NULL: images */
} winograd_source;

/* weight[n * stride_n + k * stride_k + 3 * i + j]; with `turned`, the kernel is rotated by 180°. */
typedef struct winograd_weights {
    const float *values;
    int64_t stride_n, stride_k;
    bool turned;
} winograd_weights;

typedef struct winograd_target {
    void *values;     /* the outputs, or with `pool` their maxima */
    uint8_t *where;   /* of the maxima, as above; or NULL */
    const void *mask; /* NULL, or as many numbers as outputs: where they are 0 or less, zeros are written */
} winograd_target;

typedef struct winograd_kernels {
    /* `bias` may be NULL. A source that is pooled needs begin_row and begin_column both even or
     * both odd. `scratch` is memory, aligned to 64 bytes, for as many floats as correlate_floats()
     * says for the number of threads. */
    void (*correlate)(const winograd_correlation *c, const winograd_source *in, const winograd_weights *weights,
                      const float *bias, float *scratch, const winograd_target *out);
    int64_t (*correlate_floats)(const winograd_correlation *c, int threads);
    /* dweight (outputs, channels, 3, 3) and, if not NULL, dbias, of the convolution `forward`.
     * `threads` is what grad_weights_floats() was asked for: sums are split accordingly, however
     * many there turn out to be. */
    void (*grad_weights)(const winograd_correlation *forward, const void *x, const winograd_source *dy, int threads,
                         float *scratch, float *dweight, float *dbias);
    int64_t (*grad_weights_floats)(const winograd_correlation *forward, int threads);
} winograd_kernels;

/* Whether they take less time than a direct convolution from x to y, at the level with so many
 * lanes, and are exact enough (tests/unit/test_backend_winograd.c). */
bool cpu_winograd_pays(int64_t lanes, const winograd_images *x, const winograd_images *y);

#endif
