/* The functions in the table of pointwise kernels that have a file of their own, and helpers. */
#ifndef FTH_BACKEND_CPU_LEVEL_POINTWISE_LEVEL_H
#define FTH_BACKEND_CPU_LEVEL_POINTWISE_LEVEL_H

#include "backend/cpu/blocked_kernels.h"
#include "backend/cpu/level/stored.h"

INLINE int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

INLINE int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* The input pixel that output pixel p reads. */
INLINE int64_t input_pixel(const blocked_convolution *c, int64_t p)
{
    return p / c->out_width * c->stride[0] * c->width + p % c->out_width * c->stride[1];
}

/* pointwise_weights.c */
void AT_LEVEL(pointwise_grad_weights)(const blocked_convolution *c, const void *x, const void *dy, int threads,
                                      float *scratch, float *dweight, float *dbias);
int64_t AT_LEVEL(pointwise_grad_weights_floats)(const blocked_convolution *c, int threads);

#endif
