/* What bench/engine/winograd measures at one level (products.c, correlate.c). */
#ifndef FTH_BENCH_ENGINE_WINOGRAD_PRODUCTS_H
#define FTH_BENCH_ENGINE_WINOGRAD_PRODUCTS_H

#include "backend/cpu/winograd.h"

/* Products per channel and output: along a side 6 for every 4 outputs, and N + 2 for the last N. */
static inline double count_products(const winograd_images *out)
{
    const int64_t rows = (out->height - 1) / 4, columns = (out->width - 1) / 4;
    return (double)(out->batch * (out->height + 2 * rows + 2) * (out->width + 2 * columns + 2));
}

typedef struct bench_products {
    /* At least so many multiplications and additions of a few of these numbers, in registers alone;
     * returns how many these were. */
    double (*bare)(double operations, const float *numbers);
    /* The products of grad_weights for one group of tiles at a time, until all tiles are through,
     * without transforms; returns how many operations these were. `scratch` is what
     * grad_weights_floats() says for one thread. */
    double (*grad_weights)(const winograd_correlation *forward, float *scratch);
    /* The same of the forward pass, with what correlate_floats() says. */
    double (*correlate)(const winograd_correlation *c, float *scratch);
} bench_products;

/* The last of them at each level, which has a file of its own (correlate.c). */
double bench_correlate_baseline(const winograd_correlation *c, float *scratch);
double bench_correlate_avx2(const winograd_correlation *c, float *scratch);
double bench_correlate_avx512(const winograd_correlation *c, float *scratch);

#endif
