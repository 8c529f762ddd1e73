/* Own Winograd convolutions, and what is computed with them: see winograd_convolution.c and
 * winograd_fusion.c. */
#ifndef FTH_BACKEND_CPU_WINOGRAD_CONVOLUTION_H
#define FTH_BACKEND_CPU_WINOGRAD_CONVOLUTION_H

#include "backend/cpu/convolution.h"

/* `pool`: the max_pool that is computed with the convolution; NULL: none. */
fth_status cpu_winograd_forward(fth_plan *plan, const fth_node *convolution, const fth_node *pool);

/* The max_pool that is computed with a convolution, whose own output is then never made; NULL:
 * none. */
const fth_node *cpu_winograd_pool_of(const fth_plan *plan, const fth_node *convolution);
/* The convolution that computes a max_pool or max_pool_grad as a part of itself; NULL: none. */
const fth_node *cpu_winograd_of_pool(const fth_plan *plan, const fth_node *pool_or_gradient);
/* The max_pool_grad that would make the gradient `dy`, if its readers take what it reads instead;
 * NULL: none. */
const fth_node *cpu_winograd_pool_gradient(const fth_plan *plan, fth_value dy);
/* The relu_grad that is computed with a convolution_grad_input, whose own output is then never
 * made; NULL: none. */
const fth_node *cpu_winograd_relu_gradient_of(const fth_plan *plan, const fth_node *grad_input);
/* Whether a relu_grad is computed so. */
bool cpu_winograd_makes_relu_gradient(const fth_plan *plan, const fth_node *relu_gradient);

#endif
