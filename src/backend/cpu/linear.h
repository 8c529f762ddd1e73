/* Products with a weight, for linear and qkv_linear: through oneDNN, or by our own kernels. */
#ifndef FTH_BACKEND_CPU_LINEAR_H
#define FTH_BACKEND_CPU_LINEAR_H

#include "backend/cpu/cpu_internal.h"

/* x (rows, features), weight (outputs, features), y (rows, outputs). Weights, biases and their
 * gradients are plain f32; the others are in the plan's dtype. Results get their layout here unless
 * they have one. */
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
