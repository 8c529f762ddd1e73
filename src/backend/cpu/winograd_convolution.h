/* Own Winograd convolutions: see winograd_convolution.c. */
#ifndef FTH_BACKEND_CPU_WINOGRAD_CONVOLUTION_H
#define FTH_BACKEND_CPU_WINOGRAD_CONVOLUTION_H

#include "backend/backend.h"

bool cpu_winograd_fits(const fth_plan *plan, const fth_convolution_attributes *a, const fth_shape *x,
                       const fth_shape *weight);
/* For nodes whose shapes fit. */
fth_status cpu_winograd_forward(fth_plan *plan, const fth_node *node);
fth_status cpu_winograd_grad_input(fth_plan *plan, const fth_node *node);
fth_status cpu_winograd_grad_weights(fth_plan *plan, const fth_node *node);

#endif
