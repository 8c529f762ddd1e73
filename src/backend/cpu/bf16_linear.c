/* Linear layers in bf16 on AMX by our own kernels (bf16.h): convolutions of 1 x 1 maps, whose
 * images are rows. */
#include "backend/cpu/bf16_linear.h"

#include "backend/cpu/bf16_step.h"

static bf16_product product_of(const cpu_linear_shapes *shapes)
{
    return (bf16_product){.batch = shapes->x.dims[0],
                          .channels = shapes->x.dims[1],
                          .outputs = shapes->weight.dims[0],
                          .in = {1, 1},
                          .out = {1, 1},
                          .kernel = {1, 1},
                          .stride = {1, 1},
                          .dilation = {1, 1}};
}

/* With fewer rows than a tile has, packing the weights would not pay. */
bool cpu_bf16_linear_fits(const fth_plan *plan, const cpu_linear_shapes *shapes)
{
    return cpu_device_of(plan)->products && cpu_compute_dtype(plan) == dnnl_bf16 && shapes->x.dims[0] >= 16;
}

fth_status cpu_add_bf16_linear(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value x, fth_plan_value weight,
                               fth_plan_value bias_or_none, bool relu, fth_plan_value y)
{
    fth_status status = FTH_OK;
    bf16_product c = product_of(shapes);
    const cpu_format rows = cpu_plain(&shapes->x, dnnl_bf16), result = cpu_plain(&shapes->y, dnnl_bf16);
    fth_plan_value from, to;
    c.relu = relu;
    FTH_TRY(cpu_read_as(plan, x, &rows, &from));
    FTH_TRY(cpu_begin_write(plan, y, &result, &to));
    FTH_TRY(cpu_add_bf16_forward(plan, "linear", &c, from, weight, bias_or_none, to));
    FTH_TRY(cpu_end_write(plan, y, to));
out:
    return status;
}

fth_status cpu_add_bf16_linear_grad_input(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value dy,
                                          fth_plan_value weight, fth_plan_value dx)
{
    fth_status status = FTH_OK;
    const bf16_product c = product_of(shapes);
    const cpu_format rows = cpu_plain(&shapes->y, dnnl_bf16), result = cpu_plain(&shapes->x, dnnl_bf16);
    fth_plan_value from, to;
    FTH_TRY(cpu_read_as(plan, dy, &rows, &from));
    FTH_TRY(cpu_begin_write(plan, dx, &result, &to));
    FTH_TRY(cpu_add_bf16_grad_input(plan, "linear_grad_input", &c, from, weight, to));
    FTH_TRY(cpu_end_write(plan, dx, to));
out:
    return status;
}

fth_status cpu_add_bf16_linear_grad_weights(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value x,
                                            fth_plan_value dy, fth_plan_value dweight, fth_plan_value dbias_or_none)
{
    fth_status status = FTH_OK;
    const bf16_product c = product_of(shapes);
    const cpu_format features = cpu_plain(&shapes->x, dnnl_bf16), outputs = cpu_plain(&shapes->y, dnnl_bf16);
    fth_plan_value rows, gradients;
    FTH_TRY(cpu_read_as(plan, x, &features, &rows));
    FTH_TRY(cpu_read_as(plan, dy, &outputs, &gradients));
    FTH_TRY(cpu_add_bf16_grad_weights(plan, "linear_grad_weights", &c, rows, gradients, dweight, dbias_or_none));
out:
    return status;
}
