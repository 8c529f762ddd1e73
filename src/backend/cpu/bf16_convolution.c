/* Convolutions in bf16 on AMX by our own kernels (bf16.h): any kernel, stride and dilation,
 * channels last.
 *
 * Measured on one Sapphire Rapids core, GFLOP/s forward, grad_input and grad_weights: 3×3, 64
 * channels on 16×16 maps 620, 640, 480; 128 on 8×8 890, 900, 700; 1×1, 1024 to 256 on 14×14 900,
 * 720, 460. There are none without AMX: products of pairs (AVX512_BF16) reach 83 there, half of
 * f32's, in kernels like these as in oneDNN's. */
#include "backend/cpu/bf16_step.h"
#include "backend/cpu/convolution.h"

static bf16_product describe(const fth_plan *plan, const fth_node *node)
{
    const fth_convolution_attributes *a = node->attributes;
    const cpu_convolution_shapes shapes = cpu_convolution_shapes_of(plan, node);
    bf16_product c = {
        .batch = shapes.x.dims[0], .channels = shapes.x.dims[1], .outputs = shapes.y.dims[1], .relu = a->relu};
    for (int i = 0; i < 2; i++) {
        c.in[i] = (int32_t)shapes.x.dims[2 + i];
        c.out[i] = (int32_t)shapes.y.dims[2 + i];
        c.kernel[i] = (int32_t)shapes.weight.dims[2 + i];
        c.stride[i] = a->stride[i];
        c.padding[i] = a->padding[i];
        c.dilation[i] = a->dilation[i];
    }
    return c;
}

static bool fits(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    (void)pass;
    const fth_convolution_attributes *a = node->attributes;
    const bf16_product c = describe(plan, node);
    return cpu_device_of(plan)->products && cpu_compute_dtype(plan) == dnnl_bf16 && a->groups == 1 &&
           c.kernel[0] <= BF16_MOST_KERNEL && c.kernel[1] <= BF16_MOST_KERNEL;
}

static fth_status read_image(fth_plan *plan, fth_value value, fth_plan_value *as)
{
    const fth_shape shape = fth_plan_type(plan, value).shape;
    const cpu_format layout = cpu_channels_last(&shape, dnnl_bf16);
    return cpu_read_as(plan, fth_plan_value_of(plan, value), &layout, as);
}

static fth_status begin_image(fth_plan *plan, fth_value value, fth_plan_value *as)
{
    const fth_shape shape = fth_plan_type(plan, value).shape;
    const cpu_format layout = cpu_channels_last(&shape, dnnl_bf16);
    return cpu_begin_write(plan, fth_plan_value_of(plan, value), &layout, as);
}

static fth_status forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const bf16_product c = describe(plan, node);
    const fth_plan_value bias = node->input_count > 2 ? fth_plan_value_of(plan, node->inputs[2]) : FTH_NO_PLAN_VALUE;
    fth_plan_value x, y;
    FTH_TRY(read_image(plan, node->inputs[0], &x));
    FTH_TRY(begin_image(plan, node->outputs[0], &y));
    FTH_TRY(cpu_add_bf16_forward(plan, "convolution", &c, x, fth_plan_value_of(plan, node->inputs[1]), bias, y));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    return status;
}

static fth_status grad_input(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const bf16_product c = describe(plan, node);
    fth_plan_value dy, dx;
    FTH_TRY(read_image(plan, node->inputs[0], &dy));
    FTH_TRY(begin_image(plan, node->outputs[0], &dx));
    FTH_TRY(
        cpu_add_bf16_grad_input(plan, "convolution_grad_input", &c, dy, fth_plan_value_of(plan, node->inputs[1]), dx));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), dx));
out:
    return status;
}

static fth_status grad_weights(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const bf16_product c = describe(plan, node);
    fth_plan_value x, dy, dbias = FTH_NO_PLAN_VALUE;
    FTH_TRY(read_image(plan, node->inputs[0], &x));
    FTH_TRY(read_image(plan, node->inputs[1], &dy));
    FTH_TRY(cpu_fix_plain(plan, node->outputs[0]));
    if (fth_plan_is_used(plan, node->outputs[1])) {
        FTH_TRY(cpu_fix_plain(plan, node->outputs[1]));
        dbias = fth_plan_value_of(plan, node->outputs[1]);
    }
    FTH_TRY(cpu_add_bf16_grad_weights(plan, "convolution_grad_weights", &c, x, dy,
                                      fth_plan_value_of(plan, node->outputs[0]), dbias));
out:
    return status;
}

const cpu_convolution_algorithm cpu_bf16_convolution = {
    .name = "bf16", .fits = fits, .forward = forward, .grad_input = grad_input, .grad_weights = grad_weights};
