/* The arithmetic of convolutions and linear layers in bf16 on AMX (amx/convolution.c); amx_convolution.c and amx_linear.c make steps
 * of it. */
#ifndef FTH_BACKEND_CPU_AMX_H
#define FTH_BACKEND_CPU_AMX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AMX_MOST_KERNEL = 32 }; /* in each dimension */

/* x (batch, in, channels) and y (batch, out, outputs) in bf16, channels last; weight (outputs, channels, kernel) in f32. A linear
 * layer is a convolution of maps of 1 x 1. */
typedef struct amx_convolution {
    int64_t batch, channels, outputs;
    int32_t in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
    bool relu; /* forward */
} amx_convolution;

/* `bias` and `dbias` may be NULL. `scratch` is memory, aligned to 64 bytes, of the size that the function below each says for that
 * number of threads. */
typedef struct amx_kernels {
    void (*forward)(const amx_convolution *c, const uint16_t *x, const float *weight, const float *bias, int threads,
                    void *scratch, uint16_t *y);
    size_t (*forward_bytes)(const amx_convolution *c, int threads);

    void (*grad_input)(const amx_convolution *c, const uint16_t *dy, const float *weight, int threads, void *scratch,
                       uint16_t *dx);
    size_t (*grad_input_bytes)(const amx_convolution *c, int threads);

    void (*grad_weights)(const amx_convolution *c, const uint16_t *x, const uint16_t *dy, int threads, void *scratch,
                         float *dweight, float *dbias);
    size_t (*grad_weights_bytes)(const amx_convolution *c, int threads);
} amx_kernels;

/* NULL: this machine has no AMX, or does not let the process use it. */
const amx_kernels *amx_kernels_of_machine(void);

#endif
