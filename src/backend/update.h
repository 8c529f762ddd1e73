/* Updates of the flat vectors: what an optimizer is given, and the macros with which its rule is written.
 *
 * A rule says how one parameter changes. It is written once, in a file of optimizers/, in plain arithmetic that C and
 * CUDA both compile; every back end makes its own fused loop of it (update_rules.h). */
#ifndef FTH_BACKEND_UPDATE_H
#define FTH_BACKEND_UPDATE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fth_update_arguments {
    float learning_rate, momentum, weight_decay, beta1, beta2, epsilon;
    bool nesterov;
    float gradient_scale; /* clipping: the gradient is multiplied by this first */
    int64_t step;         /* 1 for the first update */
    bool *spoiled;        /* set if a parameter is no longer finite, by back ends in host memory; may be NULL */
} fth_update_arguments;

enum { FTH_MAX_OPTIMIZER_VECTORS = 2 };

/* Inlined into the loops, so that each of them is vectorized, and fused, for its own instruction set. */
#ifdef __CUDACC__
#define FTH_UPDATE_RULE static __host__ __device__ __forceinline__
#else
#define FTH_UPDATE_RULE static inline __attribute__((always_inline))
#endif

#endif
