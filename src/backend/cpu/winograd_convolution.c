/* Steps of own Winograd convolutions (winograd.c): 3×3, stride 1, f32, whole blocks of 16 channels on both sides. */
#include <string.h>

#include "backend/cpu/cpu_internal.h"
#include "backend/cpu/winograd.h"
#include "backend/cpu/winograd_convolution.h"

bool cpu_winograd_fits(const fth_plan *plan, const fth_convolution_attributes *a, const fth_shape *x,
                       const fth_shape *weight)
{
    return winograd_is_supported() && cpu_compute_dtype(plan) == dnnl_f32 && a->groups == 1 && a->stride[0] == 1 &&
           a->stride[1] == 1 && a->dilation[0] == 1 && a->dilation[1] == 1 && weight->dims[2] == 3 &&
           weight->dims[3] == 3 && x->dims[1] % WINOGRAD_LANES == 0 && weight->dims[0] % WINOGRAD_LANES == 0;
}

static winograd_images images_of(const fth_shape *shape)
{
    return (winograd_images){shape->dims[0], shape->dims[1], shape->dims[2], shape->dims[3]};
}

/* Scratch for `floats` numbers. */
static fth_status add_scratch(fth_plan *plan, int64_t floats, fth_plan_value *scratch)
{
    return cpu_add_scratch(plan, (size_t)floats * sizeof(float), scratch);
}

/* Values: in, weight (outputs, channels, 3, 3), bias or none, scratch, out. */
static fth_status run_forward(const cpu_call *call, const fth_run *run)
{
    (void)run;
    winograd_correlation c;
    memcpy(&c, call->block, sizeof c);
    const winograd_weights weights = {.values = call->data[1], .stride_n = c.in.planes * 9, .stride_k = 9};
    winograd_correlate(&c, call->data[0], &weights, call->data[2], call->data[3], call->data[4]);
    return FTH_OK;
}

/* The same of dy with the kernel turned around and its sides exchanged. */
static fth_status run_grad_input(const cpu_call *call, const fth_run *run)
{
    (void)run;
    winograd_correlation c;
    memcpy(&c, call->block, sizeof c);
    const winograd_weights weights = {
        .values = call->data[1], .stride_n = 9, .stride_k = c.out.planes * 9, .turned = true};
    winograd_correlate(&c, call->data[0], &weights, NULL, call->data[3], call->data[4]);
    return FTH_OK;
}

/* Values: x, dy, scratch, dweight, dbias or none. */
static fth_status run_grad_weights(const cpu_call *call, const fth_run *run)
{
    (void)run;
    winograd_correlation c;
    memcpy(&c, call->block, sizeof c);
    winograd_grad_weights(&c, call->data[0], call->data[1], call->data[2], call->data[3], call->data[4]);
    return FTH_OK;
}

static fth_status add_correlation(fth_plan *plan, const winograd_correlation *c, fth_value in, fth_value weight,
                                  fth_value bias, fth_value out, cpu_call *call, const char *name)
{
    fth_status status = FTH_OK;
    fth_shape in_shape = fth_plan_type(plan, in).shape, out_shape = fth_plan_type(plan, out).shape;
    const dnnl_memory_desc_t in_layout = cpu_blocked(&in_shape, dnnl_f32),
                             out_layout = cpu_blocked(&out_shape, dnnl_f32);
    fth_plan_value target;
    _Static_assert(sizeof *c <= sizeof call->block, "the call must hold the sizes");
    memcpy(call->block, c, sizeof *c);
    call->value_count = 5;
    call->write_count = 2;
    FTH_TRY(cpu_read_as(plan, in, &in_layout, &call->values[0]));
    call->values[1] = weight;
    call->values[2] = bias;
    FTH_TRY(add_scratch(plan, winograd_correlate_floats(c, fth_plan_device(plan)->threads), &call->values[3]));
    FTH_TRY(cpu_begin_write(plan, out, &out_layout, &target));
    call->values[4] = target;
    FTH_TRY(cpu_add_call(plan, name, call));
    FTH_TRY(cpu_end_write(plan, out, target));
out:
    return status;
}

fth_status cpu_winograd_forward(fth_plan *plan, const fth_node *node)
{
    const fth_convolution_attributes *a = node->attributes;
    fth_shape x = fth_plan_type(plan, node->inputs[0]).shape, y = fth_plan_type(plan, node->outputs[0]).shape;
    const winograd_correlation c = {.in = images_of(&x),
                                    .out = images_of(&y),
                                    .begin_row = -a->padding[0],
                                    .begin_column = -a->padding[1],
                                    .relu = a->relu};
    cpu_call call = {.run = run_forward};
    return add_correlation(plan, &c, node->inputs[0], node->inputs[1], node->input_count > 2 ? node->inputs[2] : -1,
                           node->outputs[0], &call, "convolution winograd:avx512");
}

fth_status cpu_winograd_grad_input(fth_plan *plan, const fth_node *node)
{
    const fth_convolution_attributes *a = node->attributes;
    fth_shape x = fth_plan_type(plan, node->outputs[0]).shape, y = fth_plan_type(plan, node->inputs[0]).shape;
    const winograd_correlation c = {
        .in = images_of(&y), .out = images_of(&x), .begin_row = a->padding[0] - 2, .begin_column = a->padding[1] - 2};
    cpu_call call = {.run = run_grad_input};
    return add_correlation(plan, &c, node->inputs[0], node->inputs[1], -1, node->outputs[0], &call,
                           "convolution_grad_input winograd:avx512");
}

fth_status cpu_winograd_grad_weights(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_convolution_attributes *a = node->attributes;
    fth_shape x = fth_plan_type(plan, node->inputs[0]).shape, y = fth_plan_type(plan, node->inputs[1]).shape;
    const dnnl_memory_desc_t x_layout = cpu_blocked(&x, dnnl_f32), y_layout = cpu_blocked(&y, dnnl_f32);
    const winograd_correlation c = {
        .in = images_of(&x), .out = images_of(&y), .begin_row = -a->padding[0], .begin_column = -a->padding[1]};
    cpu_call call = {.run = run_grad_weights, .value_count = 5, .write_count = 3};
    memcpy(call.block, &c, sizeof c);
    FTH_TRY(cpu_read_as(plan, node->inputs[0], &x_layout, &call.values[0]));
    FTH_TRY(cpu_read_as(plan, node->inputs[1], &y_layout, &call.values[1]));
    FTH_TRY(add_scratch(plan, winograd_grad_weights_floats(&c, fth_plan_device(plan)->threads), &call.values[2]));
    FTH_TRY(cpu_fix_plain(plan, node->outputs[0]));
    call.values[3] = node->outputs[0];
    call.values[4] = -1;
    if (fth_plan_is_used(plan, node->outputs[1])) {
        FTH_TRY(cpu_fix_plain(plan, node->outputs[1]));
        call.values[4] = node->outputs[1];
    }
    FTH_TRY(cpu_add_call(plan, "convolution_grad_weights winograd:avx512", &call));
out:
    return status;
}
