/* Steps of linear layers with many more features than outputs; see level/long_linear.c. */
#include "backend/cpu/long_linear.h"

#include "backend/cpu/bf16_linear.h"

/* Values: x, weight, bias or none, scratch, y. */
static fth_status run_forward(const cpu_call *call, const fth_run *run)
{
    (void)run;
    long_linear l;
    CPU_GET_BLOCK(call, &l);
    const long_linear_kernels *kernels = call->kernels;
    kernels->forward(&l, call->data[0], call->data[1], call->data[2], call->threads, call->data[3], call->data[4]);
    return FTH_OK;
}

/* With fewer features oneDNN is as fast; with more outputs it has enough work for its threads. */
bool cpu_long_linear_fits(const fth_plan *plan, const cpu_linear_shapes *shapes)
{
    const int64_t rows = shapes->x.dims[0], features = shapes->x.dims[1], outputs = shapes->weight.dims[0];
    return !cpu_bf16_linear_fits(plan, shapes) && cpu_product_dtype(plan) == dnnl_f32 && rows >= 16 &&
           features >= 2048 && outputs % cpu_level_of(plan)->lanes == 0 && outputs <= 256;
}

fth_status cpu_long_linear(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_linear_attributes *a = node->attributes;
    fth_shape x = fth_plan_type(plan, node->inputs[0]).shape, y = fth_plan_type(plan, node->outputs[0]).shape;
    const long_linear l = {.batch = x.dims[0], .features = x.dims[1], .outputs = y.dims[1], .relu = a->relu};
    const cpu_format layout = cpu_plain(&y, dnnl_f32);
    const long_linear_kernels *kernels = cpu_level_of(plan)->long_linear;
    cpu_call call = {.run = run_forward, .kernels = kernels, .value_count = 5, .write_count = 2};
    fth_plan_value target;
    CPU_SET_BLOCK(&call, &l);
    FTH_TRY(cpu_read_plain(plan, node->inputs[0], dnnl_f32, &call.values[0]));
    call.values[1] = fth_plan_value_of(plan, node->inputs[1]);
    call.values[2] = node->input_count > 2 ? fth_plan_value_of(plan, node->inputs[2]) : FTH_NO_PLAN_VALUE;
    FTH_TRY(cpu_add_scratch_floats(plan, kernels->forward_floats(&l, fth_plan_threads(plan)), &call.values[3]));
    FTH_TRY(cpu_begin_write_rounded(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &target));
    call.values[4] = target;
    FTH_TRY(cpu_add_call(plan, "linear long", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), target));
out:
    return status;
}
