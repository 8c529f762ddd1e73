/* Steps of linear layers in bf16 by our own kernels (bf16.h). Arguments are as in linear.h. */
#ifndef FTH_BACKEND_CPU_BF16_LINEAR_H
#define FTH_BACKEND_CPU_BF16_LINEAR_H

#include "backend/cpu/linear.h"

bool cpu_bf16_linear_fits(const fth_plan *plan, const cpu_linear_shapes *shapes);
/* For shapes that fit. */
fth_status cpu_add_bf16_linear(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value x, fth_plan_value weight,
                               fth_plan_value bias_or_none, bool relu, fth_plan_value y);
fth_status cpu_add_bf16_linear_grad_input(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value dy,
                                          fth_plan_value weight, fth_plan_value dx);
fth_status cpu_add_bf16_linear_grad_weights(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value x,
                                            fth_plan_value dy, fth_plan_value dweight, fth_plan_value dbias_or_none);

#endif
