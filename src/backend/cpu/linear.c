/* Linear layers: inner products on oneDNN. Weights stay in the flat vector's own layout where the primitive is as fast
 * with it: a big layer's weights are read once a step, and reordering them would cost as much as using them. */
#include "backend/cpu/cpu_internal.h"
#include "backend/cpu/long_linear.h"

typedef struct linear_shapes {
    fth_shape x, weight, y;
    bool bias;
} linear_shapes;

static fth_status describe(const fth_plan *plan, const linear_shapes *shapes, cpu_pass pass,
                           dnnl_primitive_desc_t *descriptor)
{
    dnnl_data_type_t dtype = cpu_compute_dtype(plan);
    fth_shape bias = FTH_SHAPE(shapes->weight.dims[0]);
    bool f32 = dtype == dnnl_f32;
    return cpu_describe_linear(
        cpu_device_of(plan)->engine,
        &(cpu_linear_description){.training = fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN,
                                  .x = cpu_plain(&shapes->x, dtype),
                                  .weight = (f32 ? cpu_plain : cpu_any)(&shapes->weight, dtype),
                                  .weight_gradient = (f32 ? cpu_plain : cpu_any)(&shapes->weight, dnnl_f32),
                                  .bias = cpu_plain(&bias, dnnl_f32),
                                  .y = cpu_plain(&shapes->y, dtype),
                                  .has_bias = shapes->bias},
        pass, descriptor);
}

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_linear_attributes *a = node->attributes;
    const linear_shapes shapes = {.x = fth_plan_type(plan, node->inputs[0]).shape,
                                  .weight = fth_plan_type(plan, node->inputs[1]).shape,
                                  .y = fth_plan_type(plan, node->outputs[0]).shape,
                                  .bias = node->input_count > 2};
    if (cpu_long_linear_fits(plan, &shapes.x, &shapes.weight))
        return cpu_long_linear(plan, node);
    dnnl_primitive_desc_t descriptor = NULL;
    fth_plan_value x, weight, y;
    FTH_TRY(describe(plan, &shapes, CPU_FORWARD, &descriptor));
    FTH_TRY(cpu_read_chosen(plan, fth_plan_value_of(plan, node->inputs[0]), descriptor, dnnl_query_src_md, &x));
    FTH_TRY(
        cpu_read_chosen(plan, fth_plan_value_of(plan, node->inputs[1]), descriptor, dnnl_query_weights_md, &weight));
    FTH_TRY(cpu_write_chosen(plan, fth_plan_value_of(plan, node->outputs[0]), descriptor, dnnl_query_dst_md, &y));
    cpu_argument arguments[4] = {
        {DNNL_ARG_SRC, x, false, NULL}, {DNNL_ARG_WEIGHTS, weight, false, NULL}, {DNNL_ARG_DST, y, true, NULL}};
    int count = 3;
    if (shapes.bias)
        arguments[count++] = (cpu_argument){DNNL_ARG_BIAS, fth_plan_value_of(plan, node->inputs[2]), false, NULL};
    FTH_TRY(cpu_add_primitive(plan, "linear", &descriptor, arguments, count));
    if (a->relu)
        FTH_TRY(cpu_add_relu(plan, y));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    cpu_free_descriptor(descriptor);
    return status;
}

static fth_status prepare_grad_input(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const linear_shapes shapes = {.x = fth_plan_type(plan, node->outputs[0]).shape,
                                  .weight = fth_plan_type(plan, node->inputs[1]).shape,
                                  .y = fth_plan_type(plan, node->inputs[0]).shape};
    dnnl_primitive_desc_t descriptor = NULL;
    fth_plan_value dy, weight, dx;
    FTH_TRY(describe(plan, &shapes, CPU_GRAD_INPUT, &descriptor));
    FTH_TRY(cpu_read_chosen(plan, fth_plan_value_of(plan, node->inputs[0]), descriptor, dnnl_query_diff_dst_md, &dy));
    FTH_TRY(
        cpu_read_chosen(plan, fth_plan_value_of(plan, node->inputs[1]), descriptor, dnnl_query_weights_md, &weight));
    FTH_TRY(cpu_write_chosen(plan, fth_plan_value_of(plan, node->outputs[0]), descriptor, dnnl_query_diff_src_md, &dx));
    const cpu_argument arguments[] = {{DNNL_ARG_DIFF_DST, dy, false, NULL},
                                      {DNNL_ARG_WEIGHTS, weight, false, NULL},
                                      {DNNL_ARG_DIFF_SRC, dx, true, NULL}};
    FTH_TRY(cpu_add_primitive(plan, "linear_grad_input", &descriptor, arguments, 3));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), dx));
out:
    cpu_free_descriptor(descriptor);
    return status;
}

static fth_status prepare_grad_weights(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const linear_shapes shapes = {.x = fth_plan_type(plan, node->inputs[0]).shape,
                                  .weight = fth_plan_type(plan, node->outputs[0]).shape,
                                  .y = fth_plan_type(plan, node->inputs[1]).shape,
                                  .bias = fth_plan_is_used(plan, node->outputs[1])};
    dnnl_primitive_desc_t descriptor = NULL;
    fth_plan_value x, dy, dw;
    FTH_TRY(describe(plan, &shapes, CPU_GRAD_WEIGHTS, &descriptor));
    FTH_TRY(cpu_read_chosen(plan, fth_plan_value_of(plan, node->inputs[0]), descriptor, dnnl_query_src_md, &x));
    FTH_TRY(cpu_read_chosen(plan, fth_plan_value_of(plan, node->inputs[1]), descriptor, dnnl_query_diff_dst_md, &dy));
    FTH_TRY(cpu_fix_plain(plan, node->outputs[0]));
    FTH_TRY(
        cpu_write_chosen(plan, fth_plan_value_of(plan, node->outputs[0]), descriptor, dnnl_query_diff_weights_md, &dw));
    cpu_argument arguments[4] = {
        {DNNL_ARG_SRC, x, false, NULL}, {DNNL_ARG_DIFF_DST, dy, false, NULL}, {DNNL_ARG_DIFF_WEIGHTS, dw, true, NULL}};
    int count = 3;
    if (shapes.bias) {
        FTH_TRY(cpu_fix_plain(plan, node->outputs[1]));
        arguments[count++] = (cpu_argument){DNNL_ARG_DIFF_BIAS, fth_plan_value_of(plan, node->outputs[1]), true, NULL};
    }
    FTH_TRY(cpu_add_primitive(plan, "linear_grad_weights", &descriptor, arguments, count));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), dw));
out:
    cpu_free_descriptor(descriptor);
    return status;
}

const fth_kernel cpu_linear = {&fth_op_linear, prepare_forward};
const fth_kernel cpu_linear_grad_input = {&fth_op_linear_grad_input, prepare_grad_input};
const fth_kernel cpu_linear_grad_weights = {&fth_op_linear_grad_weights, prepare_grad_weights};
