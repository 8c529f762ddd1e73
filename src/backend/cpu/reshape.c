/* Reshape: a view of the row-major elements; needs a reorder only if the input has another
 * layout. */
#include "backend/cpu/cpu_internal.h"

static fth_status prepare_reshape(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    dnnl_data_type_t dtype = cpu_layout(plan, fth_plan_value_of(plan, node->inputs[0]))->data_type;
    fth_shape shape = fth_plan_type(plan, node->outputs[0]).shape;
    const cpu_format layout = cpu_plain(&shape, dtype);
    fth_plan_value source, target = fth_plan_value_of(plan, node->outputs[0]);
    FTH_TRY(cpu_read_plain(plan, node->inputs[0], dtype, &source));
    if (!cpu_layout(plan, target)) {
        FTH_TRY(cpu_set_layout(plan, target, &layout));
        fth_plan_set_view(plan, target, source);
        goto out;
    }
    /* The output has its own memory: copy from a view. */
    fth_plan_value view;
    FTH_TRY(fth_plan_add_value(plan, &view));
    FTH_TRY(cpu_set_layout(plan, view, &layout));
    fth_plan_set_view(plan, view, source);
    FTH_TRY(cpu_end_write(plan, target, view));
out:
    return status;
}

const fth_kernel cpu_reshape = {&fth_op_reshape, prepare_reshape};
