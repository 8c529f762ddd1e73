#include "backend/cpu/blocked_convolution.h"

blocked_convolution cpu_blocked_convolution_of(const fth_plan *plan, const fth_node *node)
{
    const fth_convolution_attributes *a = node->attributes;
    const cpu_convolution_shapes shapes = cpu_convolution_shapes_of(plan, node);
    blocked_convolution c = {.batch = shapes.x.dims[0],
                             .channels = shapes.x.dims[1],
                             .height = shapes.x.dims[2],
                             .width = shapes.x.dims[3],
                             .outputs = shapes.y.dims[1],
                             .out_height = shapes.y.dims[2],
                             .out_width = shapes.y.dims[3],
                             .group = (int32_t)(shapes.x.dims[1] / a->groups),
                             .relu = a->relu,
                             .bf16 = cpu_compute_dtype(plan) == dnnl_bf16};
    for (int i = 0; i < 2; i++) {
        c.kernel[i] = (int32_t)shapes.weight.dims[2 + i];
        c.stride[i] = (int32_t)a->stride[i];
        c.padding[i] = (int32_t)a->padding[i];
        c.dilation[i] = (int32_t)a->dilation[i];
    }
    return c;
}

bool cpu_blocked_convolution_fits(const fth_plan *plan, const fth_node *node)
{
    const fth_convolution_attributes *a = node->attributes;
    const cpu_convolution_shapes shapes = cpu_convolution_shapes_of(plan, node);
    const int64_t lanes = cpu_level_of(plan)->lanes;
    return a->groups == 1 && shapes.x.dims[1] % lanes == 0 && shapes.y.dims[1] % lanes == 0;
}

/* ---- running ---- */

/* Values: x, weight, bias or none, scratch, y. */
static fth_status run_forward(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const blocked_kernels *kernels = call->kernels;
    blocked_convolution c;
    CPU_GET_BLOCK(call, &c);
    kernels->forward(&c, call->data[0], call->data[1], call->data[2], call->threads, call->data[3], call->data[4]);
    return FTH_OK;
}

/* Values: dy, weight, the gradient to add or none, scratch, dx. */
static fth_status run_grad_input(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const blocked_kernels *kernels = call->kernels;
    blocked_convolution c;
    CPU_GET_BLOCK(call, &c);
    kernels->grad_input(&c, call->data[0], call->data[1], call->data[2], call->threads, call->data[3], call->data[4]);
    return FTH_OK;
}

/* Values: x, dy, scratch, dweight, dbias or none. */
static fth_status run_grad_weights(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const blocked_kernels *kernels = call->kernels;
    blocked_convolution c;
    CPU_GET_BLOCK(call, &c);
    kernels->grad_weights(&c, call->data[0], call->data[1], call->threads, call->data[2], call->data[3], call->data[4]);
    return FTH_OK;
}

/* ---- planning ---- */

static cpu_format blocks_of(const fth_plan *plan, fth_value value)
{
    const fth_shape shape = fth_plan_type(plan, value).shape;
    return cpu_padded_blocks(plan, &shape, cpu_compute_dtype(plan));
}

static fth_status read_blocks(fth_plan *plan, fth_value value, fth_plan_value *as)
{
    const cpu_format blocks = blocks_of(plan, value);
    return cpu_read_as(plan, fth_plan_value_of(plan, value), &blocks, as);
}

static fth_status begin_write_blocks(fth_plan *plan, fth_value value, fth_plan_value *as)
{
    const cpu_format blocks = blocks_of(plan, value);
    return cpu_begin_write(plan, fth_plan_value_of(plan, value), &blocks, as);
}

fth_status cpu_add_blocked_forward(fth_plan *plan, const fth_node *node, const char *name,
                                   const blocked_kernels *kernels)
{
    fth_status status = FTH_OK;
    const blocked_convolution c = cpu_blocked_convolution_of(plan, node);
    const int threads = fth_plan_threads(plan);
    cpu_call call = {.run = run_forward, .kernels = kernels, .value_count = 5, .write_count = 2};
    CPU_SET_BLOCK(&call, &c);
    FTH_TRY(read_blocks(plan, node->inputs[0], &call.values[0]));
    call.values[1] = fth_plan_value_of(plan, node->inputs[1]);
    call.values[2] = cpu_convolution_bias(plan, node);
    FTH_TRY(cpu_add_scratch_floats(plan, kernels->forward_floats(&c, threads), &call.values[3]));
    FTH_TRY(begin_write_blocks(plan, node->outputs[0], &call.values[4]));
    FTH_TRY(cpu_add_call(plan, name, &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), call.values[4]));
out:
    return status;
}

fth_status cpu_add_blocked_grad_input(fth_plan *plan, const fth_node *node, const fth_node *sum, const char *name,
                                      const blocked_kernels *kernels)
{
    fth_status status = FTH_OK;
    const blocked_convolution c = cpu_blocked_convolution_of(plan, node);
    const fth_value dx = sum ? sum->outputs[0] : node->outputs[0];
    const int threads = fth_plan_threads(plan);
    cpu_call call = {.run = run_grad_input, .kernels = kernels, .value_count = 5, .write_count = 2};
    CPU_SET_BLOCK(&call, &c);
    FTH_TRY(read_blocks(plan, node->inputs[0], &call.values[0]));
    call.values[1] = fth_plan_value_of(plan, node->inputs[1]);
    call.values[2] = FTH_NO_PLAN_VALUE;
    if (sum)
        FTH_TRY(read_blocks(plan, sum->inputs[sum->inputs[0] == node->outputs[0]], &call.values[2]));
    FTH_TRY(cpu_add_scratch_floats(plan, kernels->grad_input_floats(&c, threads), &call.values[3]));
    FTH_TRY(begin_write_blocks(plan, dx, &call.values[4]));
    fth_plan_may_overwrite(plan, call.values[4], call.values[2]);
    FTH_TRY(cpu_add_call(plan, name, &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, dx), call.values[4]));
out:
    return status;
}

fth_status cpu_add_blocked_grad_weights(fth_plan *plan, const fth_node *node, const char *name,
                                        const blocked_kernels *kernels)
{
    fth_status status = FTH_OK;
    const blocked_convolution c = cpu_blocked_convolution_of(plan, node);
    const int threads = fth_plan_threads(plan);
    cpu_call call = {.run = run_grad_weights, .kernels = kernels, .value_count = 5, .write_count = 3};
    CPU_SET_BLOCK(&call, &c);
    FTH_TRY(read_blocks(plan, node->inputs[0], &call.values[0]));
    FTH_TRY(read_blocks(plan, node->inputs[1], &call.values[1]));
    FTH_TRY(cpu_add_scratch_floats(plan, kernels->grad_weights_floats(&c, threads), &call.values[2]));
    FTH_TRY(cpu_convolution_place_gradients(plan, node, &call.values[3], &call.values[4]));
    FTH_TRY(cpu_add_call(plan, name, &call));
out:
    return status;
}
