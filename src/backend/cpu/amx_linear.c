/* Steps of linear layers in bf16 on AMX: the arithmetic is in amx.c. Weights are read from the flat vector in f32 and packed by
 * each product for itself: no copy of them lives from one step to the next. */
#include "backend/cpu/amx_linear.h"

#include "backend/cpu/amx.h"

static amx_linear linear_of(const cpu_linear_shapes *shapes)
{
    return (amx_linear){.rows = shapes->x.dims[0], .features = shapes->x.dims[1], .outputs = shapes->weight.dims[0]};
}

static amx_linear linear_of_call(const cpu_call *call)
{
    return (amx_linear){.rows = call->sizes[0], .features = call->sizes[1], .outputs = call->sizes[2]};
}

bool cpu_amx_linear_fits(const fth_plan *plan, const cpu_linear_shapes *shapes)
{
    const amx_linear l = linear_of(shapes);
    return cpu_device_of(plan)->amx && cpu_compute_dtype(plan) == dnnl_bf16 && amx_fits(&l);
}

/* Adds the step of one pass; values 0 to 2 are read, 3 is scratch, the others are written. */
static fth_status add_pass(fth_plan *plan, const cpu_linear_shapes *shapes, cpu_call *call, size_t scratch_bytes,
                           const char *name)
{
    fth_status status = FTH_OK;
    const amx_linear l = linear_of(shapes);
    call->sizes[0] = l.rows;
    call->sizes[1] = l.features;
    call->sizes[2] = l.outputs;
    FTH_TRY(cpu_add_scratch(plan, scratch_bytes, &call->values[3]));
    FTH_TRY(cpu_add_call(plan, name, call));
out:
    return status;
}

/* Values: x, weight, bias or none, scratch, y. */
static fth_status run_forward(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const amx_linear l = linear_of_call(call);
    amx_forward(&l, call->data[0], call->data[1], call->data[2], call->data[3], call->data[4]);
    return FTH_OK;
}

fth_status cpu_add_amx_linear(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value x, fth_plan_value weight,
                              fth_plan_value bias_or_none, bool relu, fth_plan_value y)
{
    fth_status status = FTH_OK;
    const amx_linear l = linear_of(shapes);
    const cpu_format rows = cpu_plain(&shapes->x, dnnl_bf16), result = cpu_plain(&shapes->y, dnnl_bf16);
    cpu_call call = {.run = run_forward, .value_count = 5, .write_count = 2};
    FTH_TRY(cpu_read_as(plan, x, &rows, &call.values[0]));
    call.values[1] = weight;
    call.values[2] = bias_or_none;
    FTH_TRY(cpu_begin_write(plan, y, &result, &call.values[4]));
    FTH_TRY(add_pass(plan, shapes, &call, amx_scratch_bytes(&l), "linear amx"));
    if (relu)
        FTH_TRY(cpu_add_relu(plan, call.values[4]));
    FTH_TRY(cpu_end_write(plan, y, call.values[4]));
out:
    return status;
}

/* Values: dy, weight, none, scratch, dx. */
static fth_status run_grad_input(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const amx_linear l = linear_of_call(call);
    amx_grad_input(&l, call->data[0], call->data[1], call->data[3], call->data[4]);
    return FTH_OK;
}

fth_status cpu_add_amx_linear_grad_input(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value dy,
                                         fth_plan_value weight, fth_plan_value dx)
{
    fth_status status = FTH_OK;
    const amx_linear l = linear_of(shapes);
    const cpu_format rows = cpu_plain(&shapes->y, dnnl_bf16), result = cpu_plain(&shapes->x, dnnl_bf16);
    cpu_call call = {.run = run_grad_input, .value_count = 5, .write_count = 2};
    FTH_TRY(cpu_read_as(plan, dy, &rows, &call.values[0]));
    call.values[1] = weight;
    call.values[2] = FTH_NO_PLAN_VALUE;
    FTH_TRY(cpu_begin_write(plan, dx, &result, &call.values[4]));
    FTH_TRY(add_pass(plan, shapes, &call, amx_scratch_bytes(&l), "linear_grad_input amx"));
    FTH_TRY(cpu_end_write(plan, dx, call.values[4]));
out:
    return status;
}

/* Values: x, dy, none, scratch, dweight, dbias or none. */
static fth_status run_grad_weights(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const amx_linear l = linear_of_call(call);
    amx_grad_weights(&l, call->data[0], call->data[1], call->data[3], call->data[4], call->data[5]);
    return FTH_OK;
}

fth_status cpu_add_amx_linear_grad_weights(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value x,
                                           fth_plan_value dy, fth_plan_value dweight, fth_plan_value dbias_or_none)
{
    fth_status status = FTH_OK;
    const amx_linear l = linear_of(shapes);
    const cpu_format features = cpu_plain(&shapes->x, dnnl_bf16), outputs = cpu_plain(&shapes->y, dnnl_bf16);
    cpu_call call = {.run = run_grad_weights, .value_count = 6, .write_count = 3};
    FTH_TRY(cpu_read_as(plan, x, &features, &call.values[0]));
    FTH_TRY(cpu_read_as(plan, dy, &outputs, &call.values[1]));
    call.values[2] = FTH_NO_PLAN_VALUE;
    call.values[4] = dweight;
    call.values[5] = dbias_or_none;
    FTH_TRY(add_pass(plan, shapes, &call, amx_grad_weights_bytes(&l), "linear_grad_weights amx"));
out:
    return status;
}
