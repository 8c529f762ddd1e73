/* What a row's softmax is made of, for softmax and softmax_cross_entropy (softmax.c). Sums have the
 * same order at every level of vector instructions but the last bits of fused multiplications. */
#ifndef FTH_BACKEND_CPU_ROW_SOFTMAX_H
#define FTH_BACKEND_CPU_ROW_SOFTMAX_H

#include <stdint.h>

/* The largest number of a row. A NaN is passed over, or is the result. */
float cpu_row_largest(const float *row, int64_t count);
/* to[i] = exp(row[i] - largest), which is 0 below exp(-87). Gives their sum. `to` may be row. */
double cpu_row_exponentials(const float *row, float largest, int64_t count, float *to);
double cpu_row_sum(const float *row, int64_t count);

#endif
