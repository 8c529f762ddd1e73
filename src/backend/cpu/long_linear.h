/* The forward pass of linear layers with many more features than outputs; see
 * level/long_linear.c. */
#ifndef FTH_BACKEND_CPU_LONG_LINEAR_H
#define FTH_BACKEND_CPU_LONG_LINEAR_H

#include "backend/cpu/linear.h"

typedef struct long_linear {
    int64_t batch, features, outputs; /* outputs are a multiple of the level's lanes */
    bool relu;
} long_linear;

/* `bias` may be NULL. `scratch` has as many floats as forward_floats() returns for the number of
 * threads. */
typedef struct long_linear_kernels {
    void (*forward)(const long_linear *l, const float *x, const float *weight, const float *bias, int threads,
                    float *scratch, float *y);
    int64_t (*forward_floats)(const long_linear *l, int threads);
} long_linear_kernels;

bool cpu_long_linear_fits(const fth_plan *plan, const cpu_linear_shapes *shapes);
/* For a linear node that fits. */
fth_status cpu_long_linear(fth_plan *plan, const fth_node *node);

#endif
