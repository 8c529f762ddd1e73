/* Matrix products through cuBLASLt (product.c).
 *
 * cuBLASLt counts in columns: d (m, n) = a (m, k) * b (k, n), where a row-major (R, K) matrix is
 * its (K, R). */
#ifndef FTH_BACKEND_CUDA_PRODUCT_H
#define FTH_BACKEND_CUDA_PRODUCT_H

#include "backend/cuda/layout.h"

enum { CUDA_MAX_BEHIND = 2 };

typedef struct cuda_product {
    const char *name;
    int64_t m, n, k;
    int64_t batch; /* so many products, of matrices one behind the other; 0: one */
    bool transpose_a, transpose_b;
    fth_plan_value a, b, d;
    fth_plan_value bias;       /* (m), added to each column of d; or none */
    int64_t b_first, b_stride; /* b begins at this element, and its columns are so far apart; 0: it is a whole matrix */
    fth_plan_value behind_d[CUDA_MAX_BEHIND]; /* values into which d runs on */
    int behind_d_count;
    cuda_type ab_type, d_type;
} cuda_product;

fth_status cuda_add_product(fth_plan *plan, const cuda_product *product);
/* The layout of a product's result: f32 if it is fixed so, otherwise the compute type. */
cuda_layout cuda_product_layout(const fth_plan *plan, fth_value value);

#endif
