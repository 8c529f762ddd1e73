/* Steps of products in bf16 (bf16.h). The plan values already have the layouts that the kernels
 * expect. */
#ifndef FTH_BACKEND_CPU_BF16_STEP_H
#define FTH_BACKEND_CPU_BF16_STEP_H

#include "backend/cpu/bf16.h"
#include "backend/cpu/cpu_internal.h"

fth_status cpu_add_bf16_forward(fth_plan *plan, const char *name, const bf16_product *c, fth_plan_value x,
                                fth_plan_value weight, fth_plan_value bias_or_none, fth_plan_value y);
fth_status cpu_add_bf16_grad_input(fth_plan *plan, const char *name, const bf16_product *c, fth_plan_value dy,
                                   fth_plan_value weight, fth_plan_value dx);
fth_status cpu_add_bf16_grad_weights(fth_plan *plan, const char *name, const bf16_product *c, fth_plan_value x,
                                     fth_plan_value dy, fth_plan_value dweight, fth_plan_value dbias_or_none);

#endif
