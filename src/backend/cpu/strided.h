/* The arithmetic of 3×3 convolutions with stride 2, by Winograd's method, at each level of vector instructions. See
 * level/strided_tile.h; strided_convolution.c makes steps of it. */
#ifndef FTH_BACKEND_CPU_STRIDED_H
#define FTH_BACKEND_CPU_STRIDED_H

#include "backend/cpu/winograd.h"

/* Output (i, j) is the sum of x (2i + row - padding[0], 2j + column - padding[1]) over the kernel's rows and columns. Images are in
 * blocks of channels, of whole blocks. */
typedef struct strided_convolution {
    winograd_images x, y;
    int64_t padding[2]; /* at the top and at the left */
    bool relu;
    bool bf16; /* images and their gradients are; else f32 */
} strided_convolution;

/* `weight` and `dweight` are (outputs, channels, 3, 3); `bias` and `dbias` may be NULL. `scratch` is memory, aligned to 64 bytes, for as
 * many floats as the function beside says for the number of OpenMP threads. */
typedef struct strided_kernels {
    void (*forward)(const strided_convolution *c, const void *x, const float *weight, const float *bias, float *scratch,
                    void *y);
    int64_t (*forward_floats)(const strided_convolution *c, int threads);
    void (*grad_input)(const strided_convolution *c, const void *dy, const float *weight, float *scratch, void *dx);
    int64_t (*grad_input_floats)(const strided_convolution *c, int threads);
    void (*grad_weights)(const strided_convolution *c, const void *x, const void *dy, int threads, float *scratch,
                         float *dweight, float *dbias);
    int64_t (*grad_weights_floats)(const strided_convolution *c, int threads);
} strided_kernels;

/* Whether they take less time than a direct convolution, and are exact enough (tests/unit/test_backend_winograd.c). */
bool cpu_strided_pays(const strided_convolution *c);

#endif
