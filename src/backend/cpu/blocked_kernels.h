/* Convolutions of images in blocks of channels, as kernels of our own see them: what describes one, and the table of functions that
 * each way to compute them (strided, pointwise, pixelwise) has at each level of vector instructions. blocked_convolution.h makes steps
 * of them. */
#ifndef FTH_BACKEND_CPU_BLOCKED_KERNELS_H
#define FTH_BACKEND_CPU_BLOCKED_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

/* x (batch, channels, height, width) to y (batch, outputs, out_height, out_width), both in blocks of as many channels as the
 * level has lanes; whole blocks on both sides. Pairs are of rows and columns. */
typedef struct blocked_convolution {
    int64_t batch, channels, height, width, outputs, out_height, out_width;
    int32_t kernel[2], stride[2], padding[2], dilation[2];
    bool relu;
    bool bf16; /* x, y and their gradients are; else f32 */
} blocked_convolution;

/* Weights are plain f32: (outputs, channels, kernel[0], kernel[1]). `bias` and `dbias` may be NULL, and so may what is `added` to
 * dx, another gradient in its order, which only pointwise kernels take. `scratch` is memory, aligned to 64 bytes, for as many floats
 * as the function beside says for that number of threads. */
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
