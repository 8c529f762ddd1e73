/* Steps of convolutions of few channels (level/narrow.c): at most 16 on both sides, stride 1, f32, on plain layouts. */
#include <string.h>

#include "backend/cpu/convolution.h"
#include "backend/cpu/narrow.h"

static bool fits(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    (void)pass;
    const fth_convolution_attributes *a = node->attributes;
    const cpu_convolution_shapes shapes = cpu_convolution_shapes_of(plan, node);
    const fth_shape *x = &shapes.x, *weight = &shapes.weight;
    return cpu_compute_dtype(plan) == dnnl_f32 && a->groups == 1 && a->stride[0] == 1 && a->stride[1] == 1 &&
           a->dilation[0] == 1 && a->dilation[1] == 1 && x->dims[1] <= NARROW_MAX_CHANNELS &&
           weight->dims[0] <= NARROW_MAX_CHANNELS && weight->dims[2] <= NARROW_MAX_KERNEL &&
           weight->dims[3] <= NARROW_MAX_KERNEL && x->dims[2] * x->dims[3] <= NARROW_MAX_PLANE &&
           a->padding[0] < weight->dims[2] && a->padding[1] < weight->dims[3];
}

/* With AVX-512, 16 outputs fill oneDNN's lanes: its forward pass is then at the limit of the arithmetic. With AVX2 it takes 1.4 times
 * as long as ours, and its neighbours pay for blocks (6 to 16 channels 5×5 on 14×14). */
static bool pays(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    return pass != CPU_FORWARD || cpu_level_of(plan)->lanes < 16 ||
           cpu_convolution_shapes_of(plan, node).weight.dims[0] < 16;
}

static narrow describe(const fth_convolution_attributes *a, const fth_shape *x, const fth_shape *weight,
                       const fth_shape *y)
{
    return (narrow){.batch = x->dims[0],
                    .channels = x->dims[1],
                    .height = x->dims[2],
                    .width = x->dims[3],
                    .outputs = y->dims[1],
                    .out_height = y->dims[2],
                    .out_width = y->dims[3],
                    .kernel_h = weight->dims[2],
                    .kernel_w = weight->dims[3],
                    .padding_h = a->padding[0],
                    .padding_w = a->padding[1],
                    .relu = a->relu};
}

static void pack(const narrow *n, cpu_call *call)
{
    _Static_assert(sizeof *n <= sizeof call->block, "the call must hold the sizes");
    memcpy(call->block, n, sizeof *n);
}

static narrow unpack(const cpu_call *call)
{
    narrow n;
    memcpy(&n, call->block, sizeof n);
    return n;
}

static const narrow_kernels *kernels_of(const cpu_call *call)
{
    return call->kernels;
}

/* Scratch for `floats` numbers. */
static fth_status add_scratch(fth_plan *plan, int64_t floats, fth_plan_value *scratch)
{
    return cpu_add_scratch(plan, (size_t)floats * sizeof(float), scratch);
}

/* ---- running ---- */

/* Values: x, weight, bias or none, scratch, y. */
static fth_status run_forward(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const narrow n = unpack(call);
    kernels_of(call)->forward(&n, call->data[0], call->data[1], call->data[2], call->data[3], call->data[4]);
    return FTH_OK;
}

/* Values: dy, weight, scratch, dx. */
static fth_status run_grad_input(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const narrow n = unpack(call);
    kernels_of(call)->grad_input(&n, call->data[0], call->data[1], call->data[2], call->data[3]);
    return FTH_OK;
}

/* Values: x, dy, scratch, dweight, dbias or none. */
static fth_status run_grad_weights(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const narrow n = unpack(call);
    kernels_of(call)->grad_weights(&n, call->data[0], call->data[1], call->data[2], call->data[3], call->data[4]);
    return FTH_OK;
}

/* ---- planning ---- */

static fth_status forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    fth_shape x = fth_plan_type(plan, node->inputs[0]).shape, weight = fth_plan_type(plan, node->inputs[1]).shape;
    fth_shape y = fth_plan_type(plan, node->outputs[0]).shape;
    const narrow n = describe(node->attributes, &x, &weight, &y);
    const cpu_format layout = cpu_plain(&y, dnnl_f32);
    cpu_call call = {.run = run_forward, .kernels = cpu_level_of(plan)->narrow, .value_count = 5, .write_count = 2};
    fth_plan_value target;
    FTH_TRY(cpu_read_plain(plan, node->inputs[0], dnnl_f32, &call.values[0]));
    call.values[1] = fth_plan_value_of(plan, node->inputs[1]);
    call.values[2] = node->input_count > 2 ? fth_plan_value_of(plan, node->inputs[2]) : FTH_NO_PLAN_VALUE;
    FTH_TRY(add_scratch(plan, cpu_level_of(plan)->narrow->forward_floats(&n, fth_plan_threads(plan)), &call.values[3]));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &target));
    call.values[4] = target;
    pack(&n, &call);
    FTH_TRY(cpu_add_call(plan, "convolution narrow", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), target));
out:
    return status;
}

static fth_status grad_input(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    fth_shape x = fth_plan_type(plan, node->outputs[0]).shape, weight = fth_plan_type(plan, node->inputs[1]).shape;
    fth_shape y = fth_plan_type(plan, node->inputs[0]).shape;
    const narrow n = describe(node->attributes, &x, &weight, &y);
    const cpu_format layout = cpu_plain(&x, dnnl_f32);
    cpu_call call = {.run = run_grad_input, .kernels = cpu_level_of(plan)->narrow, .value_count = 4, .write_count = 2};
    fth_plan_value target;
    FTH_TRY(cpu_read_plain(plan, node->inputs[0], dnnl_f32, &call.values[0]));
    call.values[1] = fth_plan_value_of(plan, node->inputs[1]);
    FTH_TRY(
        add_scratch(plan, cpu_level_of(plan)->narrow->grad_input_floats(&n, fth_plan_threads(plan)), &call.values[2]));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &target));
    call.values[3] = target;
    pack(&n, &call);
    FTH_TRY(cpu_add_call(plan, "convolution_grad_input narrow", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), target));
out:
    return status;
}

static fth_status grad_weights(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    fth_shape x = fth_plan_type(plan, node->inputs[0]).shape, weight = fth_plan_type(plan, node->outputs[0]).shape;
    fth_shape y = fth_plan_type(plan, node->inputs[1]).shape;
    const narrow n = describe(node->attributes, &x, &weight, &y);
    cpu_call call = {
        .run = run_grad_weights, .kernels = cpu_level_of(plan)->narrow, .value_count = 5, .write_count = 3};
    FTH_TRY(cpu_read_plain(plan, node->inputs[0], dnnl_f32, &call.values[0]));
    FTH_TRY(cpu_read_plain(plan, node->inputs[1], dnnl_f32, &call.values[1]));
    FTH_TRY(add_scratch(plan, cpu_level_of(plan)->narrow->grad_weights_floats(&n, fth_plan_threads(plan)),
                        &call.values[2]));
    FTH_TRY(cpu_fix_plain(plan, node->outputs[0]));
    call.values[3] = fth_plan_value_of(plan, node->outputs[0]);
    call.values[4] = FTH_NO_PLAN_VALUE;
    if (fth_plan_is_used(plan, node->outputs[1])) {
        FTH_TRY(cpu_fix_plain(plan, node->outputs[1]));
        call.values[4] = fth_plan_value_of(plan, node->outputs[1]);
    }
    pack(&n, &call);
    FTH_TRY(cpu_add_call(plan, "convolution_grad_weights narrow", &call));
out:
    return status;
}

const cpu_convolution_algorithm cpu_narrow_convolution = {.name = "narrow",
                                                          .fits = fits,
                                                          .pays = pays,
                                                          .forward = forward,
                                                          .grad_input = grad_input,
                                                          .grad_weights = grad_weights};
