/* The functions in the table of strided kernels at one level. */
#ifndef FTH_BACKEND_CPU_LEVEL_STRIDED_LEVEL_H
#define FTH_BACKEND_CPU_LEVEL_STRIDED_LEVEL_H

#include "backend/cpu/blocked_kernels.h"
#include "backend/vector/vector.h"

/* strided_correlate.c */
void AT_LEVEL(strided_forward)(const blocked_convolution *c, const void *x, const float *weight, const float *bias,
                               int threads, float *scratch, void *y);
int64_t AT_LEVEL(strided_forward_floats)(const blocked_convolution *c, int threads);
void AT_LEVEL(strided_grad_input)(const blocked_convolution *c, const void *dy, const float *weight, const void *added,
                                  int threads, float *scratch, void *dx);
int64_t AT_LEVEL(strided_grad_input_floats)(const blocked_convolution *c, int threads);

/* strided_weights.c */
void AT_LEVEL(strided_grad_weights)(const blocked_convolution *c, const void *x, const void *dy, int threads,
                                    float *scratch, float *dweight, float *dbias);
int64_t AT_LEVEL(strided_grad_weights_floats)(const blocked_convolution *c, int threads);

#endif
