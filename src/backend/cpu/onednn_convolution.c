/* Convolutions by oneDNN's direct kernels, which compute everything. The three passes are separate
 * nodes; the backward ones also describe the forward pass, which oneDNN requires as a hint. */
#include "backend/cpu/convolution.h"

static bool fits(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    (void)plan, (void)node, (void)pass;
    return true;
}

/* In oneDNN, groups are a leading dimension of the weights: (O, C/G, ...) becomes (G, O/G, C/G,
 * ...). */
static fth_shape weight_shape(const fth_convolution_attributes *a, const fth_shape *weight)
{
    if (a->groups == 1)
        return *weight;
    return FTH_SHAPE(a->groups, weight->dims[0] / a->groups, weight->dims[1], weight->dims[2], weight->dims[3]);
}

/* oneDNN's weight gradient in bf16 adds up the threads' parts behind a barrier that spins: while
 * another program has one of the processors, each call waits for the scheduler, for up to 50 ms
 * whatever its size. In f32 it does not. Below so many multiply-adds that is worth more than the
 * faster arithmetic: 2e9 take 16 ms of a core in f32 and 8 in bf16, or 2 with AMX. With 2 threads on
 * 2 busy cores, resnet18 in bf16 (32x32, batch 4) takes 31 ms a step instead of 80 to 420, resnet20
 * 10 instead of 45, and resnet18-small at batch 8 95 instead of 840 to 1,720. */
static bool waits_too_long(const fth_plan *plan, double products)
{
    return fth_plan_threads(plan) > 1 && products < (cpu_bf16_gain() > 2 ? 1e8 : 2e9);
}

/* FARTHING_CONVOLUTION=direct is for measurements: it uses the plan's dtype even where that is
 * slower. */
static dnnl_data_type_t arithmetic(const fth_plan *plan, const cpu_convolution_shapes *shapes, cpu_pass pass)
{
    const double products = (double)fth_shape_count(&shapes->weight) * (double)shapes->y.dims[0] *
                            (double)shapes->y.dims[2] * (double)shapes->y.dims[3];
    if (cpu_device_of(plan)->convolution == &cpu_direct_convolution)
        return cpu_compute_dtype(plan);
    return pass == CPU_GRAD_WEIGHTS && waits_too_long(plan, products) ? dnnl_f32 : cpu_product_dtype(plan);
}

static fth_status describe(const fth_plan *plan, const fth_convolution_attributes *a,
                           const cpu_convolution_shapes *shapes, cpu_pass pass, dnnl_primitive_desc_t *descriptor)
{
    const dnnl_data_type_t dtype = arithmetic(plan, shapes, pass);
    fth_shape weight = weight_shape(a, &shapes->weight);
    fth_shape bias = FTH_SHAPE(shapes->y.dims[1]);
    cpu_convolution_description d = {.training = fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN,
                                     .x = cpu_any(&shapes->x, dtype),
                                     .weight = cpu_any(&weight, dtype),
                                     .weight_gradient = cpu_any(&weight, dnnl_f32),
                                     .bias = cpu_plain(&bias, dnnl_f32),
                                     .y = cpu_any(&shapes->y, dtype),
                                     .has_bias = shapes->bias};
    for (int i = 0; i < 2; i++) {
        d.strides[i] = a->stride[i];
        d.dilates[i] = a->dilation[i] - 1; /* oneDNN counts the gap */
        d.padding_begin[i] = a->padding[i];
        /* Where the stride does not divide the input evenly, the last rows are not read: padding at
         * the end may be negative. */
        int64_t extent = (shapes->weight.dims[2 + i] - 1) * a->dilation[i] + 1;
        d.padding_end[i] = (shapes->y.dims[2 + i] - 1) * a->stride[i] + extent - shapes->x.dims[2 + i] - a->padding[i];
    }
    return cpu_describe_convolution(cpu_device_of(plan)->engine, &d, pass, descriptor);
}

/* A view of the flat vector's (O, C/G, KH, KW) with the groups as a dimension: the same bytes. */
static fth_status view_with_groups(fth_plan *plan, const fth_convolution_attributes *a, fth_value weight,
                                   fth_plan_value *view)
{
    fth_status status = FTH_OK;
    *view = fth_plan_value_of(plan, weight);
    if (a->groups == 1)
        return FTH_OK;
    fth_type type = fth_plan_type(plan, weight);
    fth_shape shape = weight_shape(a, &type.shape);
    cpu_format layout = cpu_plain(&shape, dnnl_f32);
    FTH_TRY(fth_plan_add_value(plan, view));
    FTH_TRY(cpu_set_layout(plan, *view, &layout));
    fth_plan_set_view(plan, *view, fth_plan_value_of(plan, weight));
out:
    return status;
}

static fth_status forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_convolution_attributes *a = node->attributes;
    const cpu_convolution_shapes shapes = cpu_convolution_shapes_of(plan, node);
    dnnl_primitive_desc_t descriptor = NULL;
    fth_plan_value weight_view, x, w, y;
    FTH_TRY(describe(plan, a, &shapes, CPU_FORWARD, &descriptor));
    FTH_TRY(view_with_groups(plan, a, node->inputs[1], &weight_view));
    FTH_TRY(cpu_read_chosen(plan, fth_plan_value_of(plan, node->inputs[0]), descriptor, dnnl_query_src_md, &x));
    FTH_TRY(cpu_read_chosen(plan, weight_view, descriptor, dnnl_query_weights_md, &w));
    FTH_TRY(cpu_write_chosen(plan, fth_plan_value_of(plan, node->outputs[0]), descriptor, dnnl_query_dst_md, &y));
    cpu_argument arguments[4] = {
        {DNNL_ARG_SRC, x, false, NULL}, {DNNL_ARG_WEIGHTS, w, false, NULL}, {DNNL_ARG_DST, y, true, NULL}};
    int count = 3;
    if (shapes.bias)
        arguments[count++] = (cpu_argument){DNNL_ARG_BIAS, fth_plan_value_of(plan, node->inputs[2]), false, NULL};
    FTH_TRY(cpu_add_primitive(plan, "convolution", &descriptor, arguments, count));
    if (a->relu)
        FTH_TRY(cpu_add_relu(plan, y));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    cpu_free_descriptor(descriptor);
    return status;
}

static fth_status grad_input(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_convolution_attributes *a = node->attributes;
    const cpu_convolution_shapes shapes = cpu_convolution_shapes_of(plan, node);
    dnnl_primitive_desc_t descriptor = NULL;
    fth_plan_value weight_view, dy, w, dx;
    FTH_TRY(describe(plan, a, &shapes, CPU_GRAD_INPUT, &descriptor));
    FTH_TRY(view_with_groups(plan, a, node->inputs[1], &weight_view));
    FTH_TRY(cpu_read_chosen(plan, fth_plan_value_of(plan, node->inputs[0]), descriptor, dnnl_query_diff_dst_md, &dy));
    FTH_TRY(cpu_read_chosen(plan, weight_view, descriptor, dnnl_query_weights_md, &w));
    FTH_TRY(cpu_write_chosen(plan, fth_plan_value_of(plan, node->outputs[0]), descriptor, dnnl_query_diff_src_md, &dx));
    const cpu_argument arguments[] = {
        {DNNL_ARG_DIFF_DST, dy, false, NULL}, {DNNL_ARG_WEIGHTS, w, false, NULL}, {DNNL_ARG_DIFF_SRC, dx, true, NULL}};
    FTH_TRY(cpu_add_primitive(plan, "convolution_grad_input", &descriptor, arguments, 3));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), dx));
out:
    cpu_free_descriptor(descriptor);
    return status;
}

static fth_status grad_weights(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_convolution_attributes *a = node->attributes;
    const cpu_convolution_shapes shapes = cpu_convolution_shapes_of(plan, node);
    dnnl_primitive_desc_t descriptor = NULL;
    fth_plan_value x, dy, dw, dweight, dbias, target;
    FTH_TRY(describe(plan, a, &shapes, CPU_GRAD_WEIGHTS, &descriptor));
    FTH_TRY(cpu_read_chosen(plan, fth_plan_value_of(plan, node->inputs[0]), descriptor, dnnl_query_src_md, &x));
    FTH_TRY(cpu_read_chosen(plan, fth_plan_value_of(plan, node->inputs[1]), descriptor, dnnl_query_diff_dst_md, &dy));
    FTH_TRY(cpu_convolution_place_gradients(plan, node, &dweight, &dbias));
    FTH_TRY(view_with_groups(plan, a, node->outputs[0], &target));
    FTH_TRY(cpu_write_chosen(plan, target, descriptor, dnnl_query_diff_weights_md, &dw));
    cpu_argument arguments[4] = {
        {DNNL_ARG_SRC, x, false, NULL}, {DNNL_ARG_DIFF_DST, dy, false, NULL}, {DNNL_ARG_DIFF_WEIGHTS, dw, true, NULL}};
    int count = 3;
    if (shapes.bias)
        arguments[count++] = (cpu_argument){DNNL_ARG_DIFF_BIAS, dbias, true, NULL};
    FTH_TRY(cpu_add_primitive(plan, "convolution_grad_weights", &descriptor, arguments, count));
    FTH_TRY(cpu_end_write(plan, target, dw));
out:
    cpu_free_descriptor(descriptor);
    return status;
}

const cpu_convolution_algorithm cpu_direct_convolution = {
    .name = "direct", .fits = fits, .forward = forward, .grad_input = grad_input, .grad_weights = grad_weights};
