/* LSTM and GRU. */
#include "backend/cuda/kernel_list.h"

static fth_status prepare(fth_plan *plan, const fth_node *node)
{
    (void)plan;
    return fth_fail(FTH_UNSUPPORTED, "%s: LSTM and GRU have no CUDA kernels yet; use --device cpu", node->op->name);
}

const fth_kernel cuda_recurrent = {&fth_op_recurrent, prepare};
const fth_kernel cuda_recurrent_grad = {&fth_op_recurrent_grad, prepare};
