/* Linear layers with many more features than outputs, forward: see long_linear.c. */
#ifndef FTH_BACKEND_CPU_LONG_LINEAR_H
#define FTH_BACKEND_CPU_LONG_LINEAR_H

#include "backend/cpu/cpu_internal.h"

bool cpu_long_linear_fits(const fth_plan *plan, const fth_shape *x, const fth_shape *weight);
/* For a linear node that fits. */
fth_status cpu_long_linear(fth_plan *plan, const fth_node *node);

#endif
