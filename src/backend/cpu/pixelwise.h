/* The arithmetic of convolutions pixel by pixel: see level/pixelwise.c. pixelwise_convolution.c makes steps of it. */
#ifndef FTH_BACKEND_CPU_PIXELWISE_H
#define FTH_BACKEND_CPU_PIXELWISE_H

#include <stdbool.h>
#include <stdint.h>

enum { PIXELWISE_MAX_TAPS = 49 };

/* x (batch, channels, height, width) to y (batch, outputs, out_height, out_width), both in blocks of as many channels as the
 * level has lanes; whole blocks on both sides. The weight is plain f32: (outputs, channels, kernel_h, kernel_w). */
typedef struct pixelwise {
    int64_t batch, channels, height, width, outputs, out_height, out_width;
    int32_t kernel[2], stride[2], padding[2], dilation[2];
    bool relu;
    bool bf16; /* x, y and their gradients are; else f32 */
} pixelwise;

/* `scratch` is memory for as many floats as the function beside says for the number of OpenMP threads. `bias` and `dbias` may
 * be NULL. */
typedef struct pixelwise_kernels {
    void (*forward)(const pixelwise *c, const void *x, const float *weight, const float *bias, float *scratch, void *y);
    int64_t (*forward_floats)(const pixelwise *c, int threads);
    void (*grad_input)(const pixelwise *c, const void *dy, const float *weight, float *scratch, void *dx);
    int64_t (*grad_input_floats)(const pixelwise *c, int threads);
    void (*grad_weights)(const pixelwise *c, const void *x, const void *dy, float *scratch, float *dweight,
                         float *dbias);
    int64_t (*grad_weights_floats)(const pixelwise *c, int threads);
} pixelwise_kernels;

#endif
