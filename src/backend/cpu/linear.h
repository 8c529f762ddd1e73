/* Products with a weight, as linear and qkv_linear need them: through oneDNN, or by kernels of our own in bf16. */
#ifndef FTH_BACKEND_CPU_LINEAR_H
#define FTH_BACKEND_CPU_LINEAR_H

#include "backend/cpu/cpu_internal.h"

/* x (rows, features), weight (outputs, features), y (rows, outputs). Weights, biases and their gradients are plain f32; the
 * others are in the plan's dtype, and what is written takes its layout here if it has none. */
typedef struct cpu_linear_shapes {
    fth_shape x, weight, y;
} cpu_linear_shapes;

/* y = x · weightᵀ + bias */
fth_status cpu_add_linear(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value x, fth_plan_value weight,
                          fth_plan_value bias_or_none, bool relu, fth_plan_value y);
/* dx = dy · weight */
fth_status cpu_add_linear_grad_input(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value dy,
                                     fth_plan_value weight, fth_plan_value dx);
/* dweight = dyᵀ · x; dbias = the sums of dy over rows */
fth_status cpu_add_linear_grad_weights(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value x,
                                       fth_plan_value dy, fth_plan_value dweight, fth_plan_value dbias_or_none);

#endif
