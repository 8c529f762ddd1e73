/* Steps of linear layers with few rows and large weights; see level/thin_linear.c. */
#include "backend/cpu/thin_linear.h"

/* Smaller weights stay in a cache, where oneDNN is as fast. In bf16 plans these kernels read the
 * weights in f32 as well: rounding them takes longer than the products. For vgg19's first linear
 * layer, 25088 to 4096 at batch 4, it took 170 ms a step. */
bool cpu_thin_linear_fits(const cpu_linear_shapes *shapes)
{
    return shapes->x.dims[0] <= THIN_LINEAR_ROWS && shapes->weight.dims[0] * shapes->weight.dims[1] >= 1 << 20;
}

static thin_linear linear_of(const cpu_linear_shapes *shapes)
{
    return (thin_linear){.rows = shapes->x.dims[0], .features = shapes->x.dims[1], .outputs = shapes->weight.dims[0]};
}

/* Values: x, weight, bias or none, y. */
static fth_status run_forward(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const thin_linear_kernels *kernels = call->kernels;
    thin_linear l;
    CPU_GET_BLOCK(call, &l);
    kernels->forward(&l, call->data[0], call->data[1], call->data[2], call->data[3]);
    return FTH_OK;
}

fth_status cpu_add_thin_linear(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value x, fth_plan_value weight,
                               fth_plan_value bias_or_none, bool relu, fth_plan_value y)
{
    fth_status status = FTH_OK;
    thin_linear l = linear_of(shapes);
    const cpu_format in = cpu_plain(&shapes->x, dnnl_f32), out = cpu_plain(&shapes->y, dnnl_f32);
    cpu_call call = {
        .run = run_forward, .kernels = cpu_level_of(plan)->thin_linear, .value_count = 4, .write_count = 1};
    l.relu = relu;
    CPU_SET_BLOCK(&call, &l);
    FTH_TRY(cpu_read_as(plan, x, &in, &call.values[0]));
    call.values[1] = weight;
    call.values[2] = bias_or_none;
    FTH_TRY(cpu_begin_write_rounded(plan, y, &out, &call.values[3]));
    FTH_TRY(cpu_add_call(plan, "linear thin", &call));
    FTH_TRY(cpu_end_write(plan, y, call.values[3]));
out:
    return status;
}

/* Values: dy, weight, dx. */
static fth_status run_grad_input(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const thin_linear_kernels *kernels = call->kernels;
    thin_linear l;
    CPU_GET_BLOCK(call, &l);
    kernels->grad_input(&l, call->data[0], call->data[1], call->data[2]);
    return FTH_OK;
}

fth_status cpu_add_thin_linear_grad_input(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value dy,
                                          fth_plan_value weight, fth_plan_value dx)
{
    fth_status status = FTH_OK;
    const thin_linear l = linear_of(shapes);
    const cpu_format in = cpu_plain(&shapes->y, dnnl_f32), out = cpu_plain(&shapes->x, dnnl_f32);
    cpu_call call = {
        .run = run_grad_input, .kernels = cpu_level_of(plan)->thin_linear, .value_count = 3, .write_count = 1};
    CPU_SET_BLOCK(&call, &l);
    FTH_TRY(cpu_read_as(plan, dy, &in, &call.values[0]));
    call.values[1] = weight;
    FTH_TRY(cpu_begin_write_rounded(plan, dx, &out, &call.values[2]));
    FTH_TRY(cpu_add_call(plan, "linear_grad_input thin", &call));
    FTH_TRY(cpu_end_write(plan, dx, call.values[2]));
out:
    return status;
}

/* Values: x, dy, dweight, dbias or none. */
static fth_status run_grad_weights(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const thin_linear_kernels *kernels = call->kernels;
    thin_linear l;
    CPU_GET_BLOCK(call, &l);
    kernels->grad_weights(&l, call->data[0], call->data[1], call->data[2], call->data[3]);
    return FTH_OK;
}

fth_status cpu_add_thin_linear_grad_weights(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value x,
                                            fth_plan_value dy, fth_plan_value dweight, fth_plan_value dbias_or_none)
{
    fth_status status = FTH_OK;
    const thin_linear l = linear_of(shapes);
    const cpu_format features = cpu_plain(&shapes->x, dnnl_f32), outputs = cpu_plain(&shapes->y, dnnl_f32);
    cpu_call call = {
        .run = run_grad_weights, .kernels = cpu_level_of(plan)->thin_linear, .value_count = 4, .write_count = 2};
    CPU_SET_BLOCK(&call, &l);
    FTH_TRY(cpu_read_as(plan, x, &features, &call.values[0]));
    FTH_TRY(cpu_read_as(plan, dy, &outputs, &call.values[1]));
    call.values[2] = dweight;
    call.values[3] = dbias_or_none;
    FTH_TRY(cpu_add_call(plan, "linear_grad_weights thin", &call));
out:
    return status;
}
