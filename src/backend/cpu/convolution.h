/* What convolution.c, which chooses among the ways to compute a convolution, shares with them. */
#ifndef FTH_BACKEND_CPU_CONVOLUTION_H
#define FTH_BACKEND_CPU_CONVOLUTION_H

#include "backend/cpu/cpu_internal.h"

typedef struct cpu_convolution_shapes {
    fth_shape x, weight, y;
    bool bias;
} cpu_convolution_shapes;

/* Whether any Winograd is worth its padding there. */
bool cpu_winograd_pays(const fth_convolution_attributes *a, const cpu_convolution_shapes *shapes, cpu_pass pass);

#endif
