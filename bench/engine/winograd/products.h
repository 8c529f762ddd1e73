/* What bench/engine/winograd measures at one level (products.c). */
#ifndef FTH_BENCH_ENGINE_WINOGRAD_PRODUCTS_H
#define FTH_BENCH_ENGINE_WINOGRAD_PRODUCTS_H

#include "backend/cpu/winograd.h"

typedef struct bench_products {
    /* Multiplications and additions in registers alone, as often as asked; returns how many operations these were. */
    double (*bare)(int64_t count);
    /* The products of grad_weights for one group of tiles at a time, until all tiles are through, without transforms;
     * returns how many operations these were. `scratch` is what grad_weights_floats() says for one thread. */
    double (*grad_weights)(const winograd_correlation *forward, float *scratch);
} bench_products;

#endif
