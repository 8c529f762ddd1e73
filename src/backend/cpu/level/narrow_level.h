/* The functions in the table narrow_kernels (narrow.h) at one level, and how they divide their work
 * into tiles. */
#ifndef FTH_BACKEND_CPU_LEVEL_NARROW_LEVEL_H
#define FTH_BACKEND_CPU_LEVEL_NARROW_LEVEL_H

#include "backend/cpu/narrow.h"
#include "backend/vector/vector.h"

/* narrow_correlate.c */
void AT_LEVEL(narrow_forward)(const narrow *n, const float *x, const float *weight, const float *bias, float *scratch,
                              float *y);
int64_t AT_LEVEL(narrow_forward_floats)(const narrow *n, int threads);
void AT_LEVEL(narrow_grad_input)(const narrow *n, const float *dy, const float *weight, float *scratch, float *dx);
int64_t AT_LEVEL(narrow_grad_input_floats)(const narrow *n, int threads);

/* narrow_weights.c */
void AT_LEVEL(narrow_grad_weights)(const narrow *n, const float *x, const float *dy, int threads, float *scratch,
                                   float *dweight, float *dbias);
int64_t AT_LEVEL(narrow_grad_weights_floats)(const narrow *n, int threads);

INLINE int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The size of about equal tiles that cover `count`, at most `most`. */
INLINE int64_t tile_size(int64_t count, int64_t most)
{
    const int64_t tiles = (count + most - 1) / most;
    return (count + tiles - 1) / tiles;
}

#endif
