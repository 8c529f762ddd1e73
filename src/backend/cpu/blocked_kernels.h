/* Convolutions of images in blocks of channels, as our own kernels see them: their description,
 * and the table of functions that each algorithm (depthwise, strided, pointwise, pixelwise) has
 * at each level of vector instructions. blocked_convolution.h makes steps of them. */
#ifndef FTH_BACKEND_CPU_BLOCKED_KERNELS_H
#define FTH_BACKEND_CPU_BLOCKED_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

/* x (batch, channels, height, width) to y (batch, outputs, out_height, out_width), in blocks of as
 * many channels as the level has lanes; both sides consist of whole blocks, except that those of
 * depthwise convolutions may end with a padded one. Arrays of two are height and width. */
typedef struct blocked_convolution {
    int64_t batch, channels, height, width, outputs, out_height, out_width;
    int32_t group; /* channels of a group, on both sides; of one group, `channels` */
    int32_t kernel[2], stride[2], padding[2], dilation[2];
    bool relu;
    bool bf16; /* x, y and their gradients are bf16; else f32 */
} blocked_convolution;

/* Weights are plain f32: (outputs, channels, kernel[0], kernel[1]). `bias` and `dbias` may be NULL,
 * and so may `added`, a gradient in dx's layout to add to dx, which only pointwise kernels support.
 * `scratch` is aligned to 64 bytes and has as many floats as the matching `_floats` function
 * returns for the same number of threads. */
typedef struct blocked_kernels {
    void (*forward)(const blocked_convolution *c, const void *x, const float *weight, const float *bias, int threads,
                    float *scratch, void *y);
    int64_t (*forward_floats)(const blocked_convolution *c, int threads);
    void (*grad_input)(const blocked_convolution *c, const void *dy, const float *weight, const void *added,
                       int threads, float *scratch, void *dx);
    int64_t (*grad_input_floats)(const blocked_convolution *c, int threads);
    void (*grad_weights)(const blocked_convolution *c, const void *x, const void *dy, int threads, float *scratch,
                         float *dweight, float *dbias);
    int64_t (*grad_weights_floats)(const blocked_convolution *c, int threads);
} blocked_kernels;

#endif
