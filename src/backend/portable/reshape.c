/* Reshape: the plain image under another shape. */
#include "backend/portable/portable.h"

static fth_status prepare(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_plan_value target = fth_plan_value_of(plan, node->outputs[0]);
    fth_plan_value source;

    if (portable_get_layout(plan, target))
        return portable_add_plain(plan, node, &plain_reshape);
    FTH_TRY(portable_read(plan, node->inputs[0], false, &source));
    FTH_TRY(portable_describe_plain(plan, node->outputs[0]));
    fth_plan_set_view(plan, target, source);
out:
    return status;
}

const fth_kernel portable_reshape = {&fth_op_reshape, prepare};
