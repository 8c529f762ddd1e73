/* The steps of convolutions by kernels of our own that read and write images in blocks of channels, in the plan's type. */
#include "backend/cpu/convolution.h"

fth_status cpu_add_convolution(fth_plan *plan, const fth_node *node, const char *name, int64_t scratch_floats,
                               cpu_call *call)
{
    fth_status status = FTH_OK;
    call->value_count = 5;
    call->write_count = 2;
    FTH_TRY(cpu_read_stored(plan, node->inputs[0], &call->values[0]));
    call->values[1] = fth_plan_value_of(plan, node->inputs[1]);
    call->values[2] = cpu_convolution_bias(plan, node);
    FTH_TRY(cpu_add_scratch_floats(plan, scratch_floats, &call->values[3]));
    FTH_TRY(cpu_begin_write_stored(plan, node->outputs[0], &call->values[4]));
    FTH_TRY(cpu_add_call(plan, name, call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), call->values[4]));
out:
    return status;
}

fth_status cpu_add_convolution_grad_input(fth_plan *plan, const fth_node *node, const char *name,
                                          int64_t scratch_floats, cpu_call *call)
{
    fth_status status = FTH_OK;
    call->value_count = 4;
    call->write_count = 2;
    FTH_TRY(cpu_read_stored(plan, node->inputs[0], &call->values[0]));
    call->values[1] = fth_plan_value_of(plan, node->inputs[1]);
    FTH_TRY(cpu_add_scratch_floats(plan, scratch_floats, &call->values[2]));
    FTH_TRY(cpu_begin_write_stored(plan, node->outputs[0], &call->values[3]));
    FTH_TRY(cpu_add_call(plan, name, call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), call->values[3]));
out:
    return status;
}

fth_status cpu_add_convolution_grad_weights(fth_plan *plan, const fth_node *node, const char *name,
                                            int64_t scratch_floats, cpu_call *call)
{
    fth_status status = FTH_OK;
    call->value_count = 5;
    call->write_count = 3;
    FTH_TRY(cpu_read_stored(plan, node->inputs[0], &call->values[0]));
    FTH_TRY(cpu_read_stored(plan, node->inputs[1], &call->values[1]));
    FTH_TRY(cpu_add_scratch_floats(plan, scratch_floats, &call->values[2]));
    FTH_TRY(cpu_convolution_place_gradients(plan, node, &call->values[3], &call->values[4]));
    FTH_TRY(cpu_add_call(plan, name, call));
out:
    return status;
}
