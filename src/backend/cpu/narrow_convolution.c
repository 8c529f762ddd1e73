/* Steps of convolutions with few channels (level/narrow.c): at most 16 on both sides, stride 1,
 * f32, plain layouts. */
#include "backend/cpu/convolution.h"
#include "backend/cpu/narrow.h"

static bool fits(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    (void)pass;
    const fth_convolution_attributes *a = node->attributes;
    const cpu_convolution_shapes shapes = cpu_convolution_shapes_of(plan, node);
    const fth_shape *x = &shapes.x, *weight = &shapes.weight;
    return a->groups == 1 && a->stride[0] == 1 && a->stride[1] == 1 && a->dilation[0] == 1 && a->dilation[1] == 1 &&
           x->dims[1] <= NARROW_MAX_CHANNELS && weight->dims[0] <= NARROW_MAX_CHANNELS &&
           weight->dims[2] <= NARROW_MAX_KERNEL && weight->dims[3] <= NARROW_MAX_KERNEL &&
           x->dims[2] * x->dims[3] <= NARROW_MAX_PLANE && a->padding[0] < weight->dims[2] &&
           a->padding[1] < weight->dims[3];
}

/* With AVX-512, 16 outputs fill oneDNN's lanes, and its forward pass is limited by the arithmetic
 * alone. With AVX2 it takes 1.4 times as long as ours, and its neighbours pay for blocks (6 to 16
 * channels 5×5 on 14×14). */
static bool pays(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    return pass != CPU_FORWARD || cpu_level_of(plan)->lanes < 16 ||
           cpu_convolution_shapes_of(plan, node).weight.dims[0] < 16;
}

static narrow describe(const fth_plan *plan, const fth_node *node)
{
    const fth_convolution_attributes *a = node->attributes;
    const cpu_convolution_shapes shapes = cpu_convolution_shapes_of(plan, node);
    return (narrow){.batch = shapes.x.dims[0],
                    .channels = shapes.x.dims[1],
                    .height = shapes.x.dims[2],
                    .width = shapes.x.dims[3],
                    .outputs = shapes.y.dims[1],
                    .out_height = shapes.y.dims[2],
                    .out_width = shapes.y.dims[3],
                    .kernel_h = shapes.weight.dims[2],
                    .kernel_w = shapes.weight.dims[3],
                    .padding_h = a->padding[0],
                    .padding_w = a->padding[1],
                    .relu = a->relu};
}

static const narrow_kernels *kernels_of(const fth_plan *plan)
{
    return cpu_level_of(plan)->narrow;
}

/* A place for an image in row-major order. */
static fth_status begin_write(fth_plan *plan, fth_value value, fth_plan_value *as)
{
    fth_shape shape = fth_plan_type(plan, value).shape;
    const cpu_format layout = cpu_plain(&shape, dnnl_f32);
    return cpu_begin_write(plan, fth_plan_value_of(plan, value), &layout, as);
}

/* ---- running ---- */

/* Values: x, weight, bias or none, scratch, y. */
static fth_status run_forward(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const narrow_kernels *kernels = call->kernels;
    narrow n;
    CPU_GET_BLOCK(call, &n);
    kernels->forward(&n, call->data[0], call->data[1], call->data[2], call->data[3], call->data[4]);
    return FTH_OK;
}

/* Values: dy, weight, scratch, dx. */
static fth_status run_grad_input(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const narrow_kernels *kernels = call->kernels;
    narrow n;
    CPU_GET_BLOCK(call, &n);
    kernels->grad_input(&n, call->data[0], call->data[1], call->data[2], call->data[3]);
    return FTH_OK;
}

/* Values: x, dy, scratch, dweight, dbias or none. */
static fth_status run_grad_weights(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const narrow_kernels *kernels = call->kernels;
    narrow n;
    CPU_GET_BLOCK(call, &n);
    kernels->grad_weights(&n, call->data[0], call->data[1], call->threads, call->data[2], call->data[3], call->data[4]);
    return FTH_OK;
}

/* ---- planning ---- */

static fth_status forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const narrow n = describe(plan, node);
    cpu_call call = {.run = run_forward, .kernels = kernels_of(plan), .value_count = 5, .write_count = 2};
    CPU_SET_BLOCK(&call, &n);
    FTH_TRY(cpu_read_plain(plan, node->inputs[0], dnnl_f32, &call.values[0]));
    call.values[1] = fth_plan_value_of(plan, node->inputs[1]);
    call.values[2] = cpu_convolution_bias(plan, node);
    FTH_TRY(
        cpu_add_scratch_floats(plan, kernels_of(plan)->forward_floats(&n, fth_plan_threads(plan)), &call.values[3]));
    FTH_TRY(begin_write(plan, node->outputs[0], &call.values[4]));
    FTH_TRY(cpu_add_call(plan, "convolution narrow", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), call.values[4]));
out:
    return status;
}

static fth_status grad_input(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const narrow n = describe(plan, node);
    cpu_call call = {.run = run_grad_input, .kernels = kernels_of(plan), .value_count = 4, .write_count = 2};
    CPU_SET_BLOCK(&call, &n);
    FTH_TRY(cpu_read_plain(plan, node->inputs[0], dnnl_f32, &call.values[0]));
    call.values[1] = fth_plan_value_of(plan, node->inputs[1]);
    FTH_TRY(
        cpu_add_scratch_floats(plan, kernels_of(plan)->grad_input_floats(&n, fth_plan_threads(plan)), &call.values[2]));
    FTH_TRY(begin_write(plan, node->outputs[0], &call.values[3]));
    FTH_TRY(cpu_add_call(plan, "convolution_grad_input narrow", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), call.values[3]));
out:
    return status;
}

static fth_status grad_weights(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const narrow n = describe(plan, node);
    cpu_call call = {.run = run_grad_weights, .kernels = kernels_of(plan), .value_count = 5, .write_count = 3};
    CPU_SET_BLOCK(&call, &n);
    FTH_TRY(cpu_read_plain(plan, node->inputs[0], dnnl_f32, &call.values[0]));
    FTH_TRY(cpu_read_plain(plan, node->inputs[1], dnnl_f32, &call.values[1]));
    FTH_TRY(cpu_add_scratch_floats(plan, kernels_of(plan)->grad_weights_floats(&n, fth_plan_threads(plan)),
                                   &call.values[2]));
    FTH_TRY(cpu_convolution_place_gradients(plan, node, &call.values[3], &call.values[4]));
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
