/* The kernels of the CUDA back end, one file each, and what they leave to each other. */
#ifndef FTH_BACKEND_CUDA_KERNEL_LIST_H
#define FTH_BACKEND_CUDA_KERNEL_LIST_H

#include "backend/cuda/layout.h"

/* Every kernel; a new one is a file that defines cuda_NAME for fth_op_NAME, and its row here. */
#define CUDA_KERNELS(ROW)                                                                                              \
    ROW(convolution)                                                                                                   \
    ROW(convolution_grad_input)                                                                                        \
    ROW(convolution_grad_weights)                                                                                      \
    ROW(linear)                                                                                                        \
    ROW(linear_grad_input)                                                                                             \
    ROW(linear_grad_weights)                                                                                           \
    ROW(batch_norm)                                                                                                    \
    ROW(batch_norm_grad)                                                                                               \
    ROW(relu)                                                                                                          \
    ROW(relu_grad)                                                                                                     \
    ROW(gelu)                                                                                                          \
    ROW(gelu_grad)                                                                                                     \
    ROW(gelu_tanh)                                                                                                     \
    ROW(gelu_tanh_grad)                                                                                                \
    ROW(tanh)                                                                                                          \
    ROW(tanh_grad)                                                                                                     \
    ROW(add)                                                                                                           \
    ROW(max_pool)                                                                                                      \
    ROW(max_pool_grad)                                                                                                 \
    ROW(average_pool)                                                                                                  \
    ROW(average_pool_grad)                                                                                             \
    ROW(adaptive_average_pool)                                                                                         \
    ROW(adaptive_average_pool_grad)                                                                                    \
    ROW(concat)                                                                                                        \
    ROW(slice)                                                                                                         \
    ROW(pad)                                                                                                           \
    ROW(reshape)                                                                                                       \
    ROW(dropout)                                                                                                       \
    ROW(attention)                                                                                                     \
    ROW(attention_grad)                                                                                                \
    ROW(softmax_cross_entropy)                                                                                         \
    ROW(softmax_cross_entropy_grad)                                                                                    \
    ROW(squared_error)                                                                                                 \
    ROW(squared_error_grad)                                                                                            \
    ROW(sigmoid_cross_entropy)                                                                                         \
    ROW(sigmoid_cross_entropy_grad)                                                                                    \
    ROW(embedding)                                                                                                     \
    ROW(embedding_grad)                                                                                                \
    ROW(layer_norm)                                                                                                    \
    ROW(layer_norm_grad)                                                                                               \
    ROW(qkv_linear)                                                                                                    \
    ROW(qkv_linear_grad_input)                                                                                         \
    ROW(qkv_linear_grad_weights)                                                                                       \
    ROW(first_tokens)                                                                                                  \
    ROW(first_tokens_grad)                                                                                             \
    ROW(matrix_product)

#define CUDA_DECLARE(name) extern const fth_kernel cuda_##name;
CUDA_KERNELS(CUDA_DECLARE)
#undef CUDA_DECLARE

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
