/* The kernels of convolutions with few channels. See level/narrow.c; narrow_convolution.c makes
 * steps of them. */
#ifndef FTH_BACKEND_CPU_NARROW_H
#define FTH_BACKEND_CPU_NARROW_H

#include <stdbool.h>
#include <stdint.h>

enum { NARROW_MAX_CHANNELS = 16, NARROW_MAX_KERNEL = 7, NARROW_MAX_PLANE = 64 * 64 };

/* Stride 1, padding smaller than the kernel. Images are (batch, channels, height, width), weights
 * (outputs, channels, kernel_h, kernel_w), within the limits above. */
typedef struct narrow {
    int64_t batch, channels, height, width; /* x */
    int64_t outputs, out_height, out_width; /* y */
    int64_t kernel_h, kernel_w;
    int64_t padding_h, padding_w;
    bool relu;
} narrow;

/* `bias` and `dbias` may be NULL. `scratch` has as many floats as the function below each returns
 * for the number of threads. */
typedef struct narrow_kernels {
    void (*forward)(const narrow *n, const float *x, const float *weight, const float *bias, float *scratch, float *y);
    int64_t (*forward_floats)(const narrow *n, int threads);

    void (*grad_input)(const narrow *n, const float *dy, const float *weight, float *scratch, float *dx);
    int64_t (*grad_input_floats)(const narrow *n, int threads);

    void (*grad_weights)(const narrow *n, const float *x, const float *dy, int threads, float *scratch, float *dweight,
                         float *dbias);
    int64_t (*grad_weights_floats)(const narrow *n, int threads);
} narrow_kernels;

#endif
