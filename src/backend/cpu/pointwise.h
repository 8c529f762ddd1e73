/* The arithmetic of 1×1 convolutions: see level/pointwise.c and level/pointwise_weights.c. pointwise_convolution.c makes steps
 * of it. */
#ifndef FTH_BACKEND_CPU_POINTWISE_H
#define FTH_BACKEND_CPU_POINTWISE_H

#include <stdbool.h>
#include <stdint.h>

/* x (batch, channels, height, width) to y (batch, outputs, out_height, out_width), both in blocks of as many channels as the
 * level has lanes; whole blocks on both sides. The weight is plain f32: (outputs, channels). */
typedef struct pointwise {
    int64_t batch, channels, height, width, outputs, out_height, out_width;
    int32_t stride[2];
    bool relu;
    bool bf16; /* x, y and their gradients are; else f32 */
} pointwise;

/* `scratch` is memory for as many floats as the function beside says for that number of threads. Results depend on `threads`,
 * not on how many threads there are. `bias`, `dbias` and what is `added` to dx, another gradient in its order, may be NULL. */
typedef struct pointwise_kernels {
    void (*forward)(const pointwise *c, const void *x, const float *weight, const float *bias, int threads,
                    float *scratch, void *y);
    int64_t (*forward_floats)(const pointwise *c, int threads);
    void (*grad_input)(const pointwise *c, const void *dy, const float *weight, const void *added, int threads,
                       float *scratch, void *dx);
    int64_t (*grad_input_floats)(const pointwise *c, int threads);
    void (*grad_weights)(const pointwise *c, const void *x, const void *dy, int threads, float *scratch, float *dweight,
                         float *dbias);
    int64_t (*grad_weights_floats)(const pointwise *c, int threads);
} pointwise_kernels;

#endif
