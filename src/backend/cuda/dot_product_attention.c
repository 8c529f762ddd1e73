/* Attention among sequences of one length. */
#include "backend/cuda/kernel_list.h"

static fth_status prepare(fth_plan *plan, const fth_node *node)
{
    (void)plan;
    return fth_fail(FTH_UNSUPPORTED, "%s has no CUDA kernel; use --device cpu", node->op->name);
}

const fth_kernel cuda_dot_product_attention = {&fth_op_dot_product_attention, prepare};
const fth_kernel cuda_dot_product_attention_grad = {&fth_op_dot_product_attention_grad, prepare};
