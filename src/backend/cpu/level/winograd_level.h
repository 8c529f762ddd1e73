/* The functions of the table winograd_kernels (winograd.h) at one level. */
#ifndef FTH_BACKEND_CPU_LEVEL_WINOGRAD_LEVEL_H
#define FTH_BACKEND_CPU_LEVEL_WINOGRAD_LEVEL_H

#include "backend/cpu/winograd.h"
#include "backend/vector/vector.h"

/* winograd_correlate.c */
void AT_LEVEL(winograd_correlate)(const winograd_correlation *c, const winograd_source *in,
                                  const winograd_weights *weights, const float *bias, float *scratch,
                                  const winograd_target *out);
int64_t AT_LEVEL(winograd_correlate_floats)(const winograd_correlation *c, int threads);

/* winograd_weights.c */
void AT_LEVEL(winograd_grad_weights)(const winograd_correlation *forward, const void *x, const winograd_source *dy,
                                     int threads, float *scratch, float *dweight, float *dbias);
int64_t AT_LEVEL(winograd_grad_weights_floats)(const winograd_correlation *forward, int threads);

#endif
