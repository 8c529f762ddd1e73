/* Steps for convolutions of images in blocks of channels, shared by the algorithms whose
 * kernels are blocked_kernels. */
#ifndef FTH_BACKEND_CPU_BLOCKED_CONVOLUTION_H
#define FTH_BACKEND_CPU_BLOCKED_CONVOLUTION_H

#include "backend/cpu/blocked_kernels.h"
#include "backend/cpu/convolution.h"

/* Describes a convolution; `node` is it or one of its gradients. */
blocked_convolution cpu_blocked_convolution_of(const fth_plan *plan, const fth_node *node);
/* Whether it can be described so: no groups, whole blocks of channels on both sides. */
bool cpu_blocked_convolution_fits(const fth_plan *plan, const fth_node *node);

/* Each of these adds the step `name`. */
fth_status cpu_add_blocked_forward(fth_plan *plan, const fth_node *node, const char *name,
                                   const blocked_kernels *kernels);
/* With `sum`, an addition of grad_input's result and another gradient, the step computes that
 * sum. */
fth_status cpu_add_blocked_grad_input(fth_plan *plan, const fth_node *node, const fth_node *sum, const char *name,
                                      const blocked_kernels *kernels);
fth_status cpu_add_blocked_grad_weights(fth_plan *plan, const fth_node *node, const char *name,
                                        const blocked_kernels *kernels);

#endif
