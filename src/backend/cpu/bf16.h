/* The kernels of convolutions and linear layers in bf16 on AMX (bf16/kernels.c); bf16_convolution.c
 * and bf16_linear.c make steps of them. */
#ifndef FTH_BACKEND_CPU_BF16_H
#define FTH_BACKEND_CPU_BF16_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BF16_MOST_KERNEL = 32 }; /* in each dimension */

/* x (batch, in, channels) and y (batch, out, outputs) in bf16, channels last; weight (outputs,
 * channels, kernel) in f32. A linear layer is a convolution of 1 x 1 maps. */
typedef struct bf16_product {
    int64_t batch, channels, outputs;
    int32_t in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
    bool relu; /* forward */
} bf16_product;

/* `bias` and `dbias` may be NULL. `scratch` is aligned to 64 bytes and has as many bytes as the
 * function below each returns for the same number of threads. */
typedef struct bf16_kernels {
    void (*forward)(const bf16_product *c, const uint16_t *x, const float *weight, const float *bias, int threads,
                    void *scratch, uint16_t *y);
    size_t (*forward_bytes)(const bf16_product *c, int threads);

    void (*grad_input)(const bf16_product *c, const uint16_t *dy, const float *weight, int threads, void *scratch,
                       uint16_t *dx);
    size_t (*grad_input_bytes)(const bf16_product *c, int threads);

    void (*grad_weights)(const bf16_product *c, const uint16_t *x, const uint16_t *dy, int threads, void *scratch,
                         float *dweight, float *dbias);
    size_t (*grad_weights_bytes)(const bf16_product *c, int threads);
} bf16_kernels;

extern const bf16_kernels bf16_kernels_amx; /* if the compiler supports AMX */

/* NULL: the machine has no AMX, or the process may not use it. */
const bf16_kernels *bf16_kernels_of_machine(void);

#endif
