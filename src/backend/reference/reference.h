/* The reference back end: plain kernels (plain/plain.h) for every op, those of this folder among
 * them.
 *
 * It is there to be read and believed, and has one thread. The other back ends are tested against
 * it. Updates are the rules all back ends share, tested against formulas in double. */
#ifndef FTH_BACKEND_REFERENCE_REFERENCE_H
#define FTH_BACKEND_REFERENCE_REFERENCE_H

#include "backend/plain/plain.h"

extern const plain_kernel reference_convolution, reference_convolution_grad_input, reference_convolution_grad_weights;
extern const plain_kernel reference_linear, reference_linear_grad_input, reference_linear_grad_weights;
extern const plain_kernel reference_relu, reference_relu_grad, reference_add;
extern const plain_kernel reference_max_pool, reference_max_pool_grad;

/* The plugin's one exported symbol. */
extern const fth_backend fth_backend_plugin;

#endif
