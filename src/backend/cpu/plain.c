/* Ops without kernels of their own in this back end: those of plain/plain.h, on plain f32 and I32
 * tensors. */
#include "backend/plain/plain.h"
#include "backend/cpu/cpu_internal.h"

fth_status cpu_add_plain(fth_plan *plan, const fth_node *node, const plain_kernel *kernel)
{
    fth_status status = FTH_OK;
    fth_plan_value inputs[FTH_MAX_STEP_VALUES];
    for (int i = 0; i < node->input_count && i < FTH_MAX_STEP_VALUES; i++) {
        const fth_dtype dtype = fth_plan_type(plan, node->inputs[i]).dtype;
        FTH_TRY(cpu_read_plain(plan, node->inputs[i], dtype == FTH_I32 ? dnnl_s32 : dnnl_f32, &inputs[i]));
    }
    FTH_TRY(plain_add_step(plan, node, kernel, inputs));
out:
    return status;
}

#define DEFINE(name)                                                                                                   \
    static fth_status prepare_##name(fth_plan *plan, const fth_node *node)                                             \
    {                                                                                                                  \
        return cpu_add_plain(plan, node, &plain_##name);                                                               \
    }                                                                                                                  \
    const fth_kernel cpu_##name = {&fth_op_##name, prepare_##name};

DEFINE(squared_error)
DEFINE(squared_error_grad)
DEFINE(sigmoid_cross_entropy)
DEFINE(sigmoid_cross_entropy_grad)
