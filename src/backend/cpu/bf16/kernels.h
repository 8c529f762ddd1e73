/* The functions in the table bf16_kernels (bf16.h). */
#ifndef FTH_BACKEND_CPU_BF16_KERNELS_H
#define FTH_BACKEND_CPU_BF16_KERNELS_H

#include "backend/cpu/bf16.h"

/* products.c */
void bf16_forward(const bf16_product *c, const uint16_t *x, const float *weight, const float *bias, int threads,
                  void *scratch, uint16_t *y);
size_t bf16_forward_bytes(const bf16_product *c, int threads);
void bf16_grad_input(const bf16_product *c, const uint16_t *dy, const float *weight, int threads, void *scratch,
                     uint16_t *dx);
size_t bf16_grad_input_bytes(const bf16_product *c, int threads);

/* grad_weights.c */
void bf16_grad_weights(const bf16_product *c, const uint16_t *x, const uint16_t *dy, int threads, void *scratch,
                       float *dweight, float *dbias);
size_t bf16_grad_weights_bytes(const bf16_product *c, int threads);

#endif
