/* What our own 1×1 convolutions compute together with their neighbours: the sum of grad_input's
 * result and another gradient, where branches of a network meet. The addition that follows then
 * adds no step. */
#ifndef FTH_BACKEND_CPU_POINTWISE_CONVOLUTION_H
#define FTH_BACKEND_CPU_POINTWISE_CONVOLUTION_H

#include "backend/cpu/convolution.h"

/* The addition that such a grad_input computes as well; NULL: none. */
const fth_node *cpu_pointwise_sum_of(const fth_plan *plan, const fth_node *grad_input);
bool cpu_pointwise_makes_sum(const fth_plan *plan, const fth_node *sum);

#endif
