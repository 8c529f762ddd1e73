/* Linear layers: inner products on oneDNN, or our own kernels in bf16 (bf16_linear.h), with few
 * rows (thin_linear.h) or many features (long_linear.h). Weights stay in the flat vector's layout
 * where the primitive is as fast with it: a big layer's weights are read once a step, and
 * reordering them would cost as much as using them. With many rows (text) it is as fast too: on
 * Sapphire Rapids all of oneDNN's variants, inner product or matmul, plain or reordered weights,
 * reach 145 to 165 GFLOP/s a core in f32. */
#include "backend/cpu/linear.h"

#include "backend/cpu/bf16_linear.h"
#include "backend/cpu/long_linear.h"
#include "backend/cpu/thin_linear.h"

/* In bf16 oneDNN wants the weights rounded and reordered, which takes 1.2 ns a weight on one Zen 4
 * core; computing all passes in bf16 saves 0.026 ns per weight and row. With few rows, products are
 * therefore computed in f32, with the weights as they are. */
static dnnl_data_type_t choose_dtype(const fth_plan *plan, const cpu_linear_shapes *shapes)
{
    enum { FEW_ROWS = 32 };
    return shapes->x.dims[0] <= FEW_ROWS ? dnnl_f32 : cpu_product_dtype(plan);
}

static fth_status describe(const fth_plan *plan, const cpu_linear_shapes *shapes, bool bias, cpu_pass pass,
                           dnnl_primitive_desc_t *descriptor)
{
    const dnnl_data_type_t dtype = choose_dtype(plan, shapes);
    fth_shape bias_shape = FTH_SHAPE(shapes->weight.dims[0]);
    bool f32 = dtype == dnnl_f32;
    return cpu_describe_linear(
        cpu_device_of(plan)->engine,
        &(cpu_linear_description){.training = fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN,
                                  .x = cpu_plain(&shapes->x, dtype),
                                  .weight = (f32 ? cpu_plain : cpu_any)(&shapes->weight, dtype),
                                  .weight_gradient = (f32 ? cpu_plain : cpu_any)(&shapes->weight, dnnl_f32),
                                  .bias = cpu_plain(&bias_shape, dnnl_f32),
                                  .y = cpu_plain(&shapes->y, dtype),
                                  .has_bias = bias},
        pass, descriptor);
}

fth_status cpu_add_linear(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value x, fth_plan_value weight,
                          fth_plan_value bias_or_none, bool relu, fth_plan_value y)
{
    fth_status status = FTH_OK;
    const bool bias = fth_plan_value_exists(bias_or_none);
    dnnl_primitive_desc_t descriptor = NULL;
    fth_plan_value read, weight_read, written;
    if (cpu_bf16_linear_fits(plan, shapes))
        return cpu_add_bf16_linear(plan, shapes, x, weight, bias_or_none, relu, y);
    if (cpu_thin_linear_fits(shapes))
        return cpu_add_thin_linear(plan, shapes, x, weight, bias_or_none, relu, y);
    FTH_TRY(describe(plan, shapes, bias, CPU_FORWARD, &descriptor));
    FTH_TRY(cpu_read_chosen(plan, x, descriptor, dnnl_query_src_md, &read));
    FTH_TRY(cpu_read_chosen(plan, weight, descriptor, dnnl_query_weights_md, &weight_read));
    FTH_TRY(cpu_write_chosen(plan, y, descriptor, dnnl_query_dst_md, &written));
    const cpu_argument arguments[4] = {{DNNL_ARG_SRC, read, false, NULL},
                                       {DNNL_ARG_WEIGHTS, weight_read, false, NULL},
                                       {DNNL_ARG_DST, written, true, NULL},
                                       {DNNL_ARG_BIAS, bias_or_none, false, NULL}};
    FTH_TRY(cpu_add_primitive(plan, "linear", &descriptor, arguments, bias ? 4 : 3));
    if (relu)
        FTH_TRY(cpu_add_relu(plan, written));
    FTH_TRY(cpu_end_write(plan, y, written));
out:
    cpu_free_descriptor(descriptor);
    return status;
}

fth_status cpu_add_linear_grad_input(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value dy,
                                     fth_plan_value weight, fth_plan_value dx)
{
    fth_status status = FTH_OK;
    dnnl_primitive_desc_t descriptor = NULL;
    fth_plan_value read, weight_read, written;
    if (cpu_bf16_linear_fits(plan, shapes))
        return cpu_add_bf16_linear_grad_input(plan, shapes, dy, weight, dx);
    if (cpu_thin_linear_fits(shapes))
        return cpu_add_thin_linear_grad_input(plan, shapes, dy, weight, dx);
    FTH_TRY(describe(plan, shapes, false, CPU_GRAD_INPUT, &descriptor));
    FTH_TRY(cpu_read_chosen(plan, dy, descriptor, dnnl_query_diff_dst_md, &read));
    FTH_TRY(cpu_read_chosen(plan, weight, descriptor, dnnl_query_weights_md, &weight_read));
    FTH_TRY(cpu_write_chosen(plan, dx, descriptor, dnnl_query_diff_src_md, &written));
    const cpu_argument arguments[] = {{DNNL_ARG_DIFF_DST, read, false, NULL},
                                      {DNNL_ARG_WEIGHTS, weight_read, false, NULL},
                                      {DNNL_ARG_DIFF_SRC, written, true, NULL}};
    FTH_TRY(cpu_add_primitive(plan, "linear_grad_input", &descriptor, arguments, 3));
    FTH_TRY(cpu_end_write(plan, dx, written));
out:
    cpu_free_descriptor(descriptor);
    return status;
}

fth_status cpu_add_linear_grad_weights(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value x,
                                       fth_plan_value dy, fth_plan_value dweight, fth_plan_value dbias_or_none)
{
    fth_status status = FTH_OK;
    const bool bias = fth_plan_value_exists(dbias_or_none);
    dnnl_primitive_desc_t descriptor = NULL;
    fth_plan_value read, dy_read, written;
    if (cpu_bf16_linear_fits(plan, shapes))
        return cpu_add_bf16_linear_grad_weights(plan, shapes, x, dy, dweight, dbias_or_none);
    if (cpu_thin_linear_fits(shapes))
        return cpu_add_thin_linear_grad_weights(plan, shapes, x, dy, dweight, dbias_or_none);
    FTH_TRY(describe(plan, shapes, bias, CPU_GRAD_WEIGHTS, &descriptor));
    FTH_TRY(cpu_read_chosen(plan, x, descriptor, dnnl_query_src_md, &read));
    FTH_TRY(cpu_read_chosen(plan, dy, descriptor, dnnl_query_diff_dst_md, &dy_read));
    FTH_TRY(cpu_write_chosen(plan, dweight, descriptor, dnnl_query_diff_weights_md, &written));
    const cpu_argument arguments[4] = {{DNNL_ARG_SRC, read, false, NULL},
                                       {DNNL_ARG_DIFF_DST, dy_read, false, NULL},
                                       {DNNL_ARG_DIFF_WEIGHTS, written, true, NULL},
                                       {DNNL_ARG_DIFF_BIAS, dbias_or_none, true, NULL}};
    FTH_TRY(cpu_add_primitive(plan, "linear_grad_weights", &descriptor, arguments, bias ? 4 : 3));
    FTH_TRY(cpu_end_write(plan, dweight, written));
out:
    cpu_free_descriptor(descriptor);
    return status;
}

/* ---- the ops ---- */

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    const fth_linear_attributes *a = node->attributes;
    const cpu_linear_shapes shapes = {.x = fth_plan_type(plan, node->inputs[0]).shape,
                                      .weight = fth_plan_type(plan, node->inputs[1]).shape,
                                      .y = fth_plan_type(plan, node->outputs[0]).shape};
    if (cpu_long_linear_fits(plan, &shapes))
        return cpu_long_linear(plan, node);
    return cpu_add_linear(plan, &shapes, fth_plan_value_of(plan, node->inputs[0]),
                          fth_plan_value_of(plan, node->inputs[1]),
                          node->input_count > 2 ? fth_plan_value_of(plan, node->inputs[2]) : FTH_NO_PLAN_VALUE, a->relu,
                          fth_plan_value_of(plan, node->outputs[0]));
}

static fth_status prepare_grad_input(fth_plan *plan, const fth_node *node)
{
    const cpu_linear_shapes shapes = {.x = fth_plan_type(plan, node->outputs[0]).shape,
                                      .weight = fth_plan_type(plan, node->inputs[1]).shape,
                                      .y = fth_plan_type(plan, node->inputs[0]).shape};
    return cpu_add_linear_grad_input(plan, &shapes, fth_plan_value_of(plan, node->inputs[0]),
                                     fth_plan_value_of(plan, node->inputs[1]),
                                     fth_plan_value_of(plan, node->outputs[0]));
}

static fth_status prepare_grad_weights(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const cpu_linear_shapes shapes = {.x = fth_plan_type(plan, node->inputs[0]).shape,
                                      .weight = fth_plan_type(plan, node->outputs[0]).shape,
                                      .y = fth_plan_type(plan, node->inputs[1]).shape};
    const bool bias = fth_plan_is_used(plan, node->outputs[1]);
    fth_plan_value x;
    FTH_TRY(cpu_read_again(plan, node->inputs[0], &x));
    FTH_TRY(cpu_fix_plain(plan, node->outputs[0]));
    if (bias)
        FTH_TRY(cpu_fix_plain(plan, node->outputs[1]));
    FTH_TRY(cpu_add_linear_grad_weights(plan, &shapes, x, fth_plan_value_of(plan, node->inputs[1]),
                                        fth_plan_value_of(plan, node->outputs[0]),
                                        bias ? fth_plan_value_of(plan, node->outputs[1]) : FTH_NO_PLAN_VALUE));
out:
    return status;
}

const fth_kernel cpu_linear = {&fth_op_linear, prepare_forward};
const fth_kernel cpu_linear_grad_input = {&fth_op_linear_grad_input, prepare_grad_input};
const fth_kernel cpu_linear_grad_weights = {&fth_op_linear_grad_weights, prepare_grad_weights};
