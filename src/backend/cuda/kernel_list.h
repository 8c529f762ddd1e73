/* The kernels of the CUDA back end, one file each, and what they leave to each other. */
#ifndef FTH_BACKEND_CUDA_KERNEL_LIST_H
#define FTH_BACKEND_CUDA_KERNEL_LIST_H

#include "backend/cuda/layout.h"

/* cuda_NAME for each fth_op_NAME of op_list.h. A new one is a file that defines it. */
#define CUDA_KERNEL(name)      extern const fth_kernel cuda_##name;
#define CUDA_KERNEL_PAIR(name) CUDA_KERNEL(name) CUDA_KERNEL(name##_grad)
FTH_OPS(CUDA_KERNEL)
FTH_ACTIVATIONS(CUDA_KERNEL_PAIR)
#undef CUDA_KERNEL
#undef CUDA_KERNEL_PAIR

/* y = [relu](y + bias), in place; bias: may be none. NaN stays NaN. */
fth_status cuda_add_bias(fth_plan *plan, const cuda_layout *layout, fth_plan_value y, fth_plan_value bias, bool relu);

/* Sums of the columns of dy, the gradients of `count` biases whose outputs lie beside each other in
 * dy. */
fth_status cuda_add_bias_gradient(fth_plan *plan, fth_plan_value dy, const fth_value *dbiases, int count);
/* The two terms of a sum that was left to its reader; false if `value` was computed. */
bool cuda_is_deferred_sum(const fth_plan *plan, fth_value value, fth_value terms[2]);
/* The max_pool_grad that was left to the relu_grad which reads `dx`, or NULL; *pooled is the pool's
 * output. */
const fth_node *cuda_deferred_pool(const fth_plan *plan, fth_value dx, fth_value *pooled);
/* The step of a max_pool_grad from `dy` to `result`. */
fth_status cuda_add_max_pool_grad(fth_plan *plan, const fth_node *node, fth_plan_value dy, fth_value result);
/* The grad_weights whose bias gradient is made by the op that computes `dy`, or NULL. */
const fth_node *cuda_bias_taker(const fth_plan *plan, fth_value dy);

#endif
