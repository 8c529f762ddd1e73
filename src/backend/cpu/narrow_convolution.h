/* Convolutions of few channels; see narrow_convolution.c. convolution.c asks whether one fits and hands the node over.
 */
#ifndef FTH_BACKEND_CPU_NARROW_CONVOLUTION_H
#define FTH_BACKEND_CPU_NARROW_CONVOLUTION_H

#include "backend/cpu/cpu_internal.h"

bool cpu_narrow_fits(const fth_plan *plan, const fth_convolution_attributes *attributes, const fth_shape *x,
                     const fth_shape *weight);
fth_status cpu_narrow_forward(fth_plan *plan, const fth_node *node);
fth_status cpu_narrow_grad_input(fth_plan *plan, const fth_node *node);
fth_status cpu_narrow_grad_weights(fth_plan *plan, const fth_node *node);

#endif
