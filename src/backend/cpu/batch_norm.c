/* Batch norm on oneDNN; the running statistics are moved by a call of our own. With a residual the sum and ReLU are one
 * more pass in place.
 *
 * oneDNN's ReLU takes NaN for 0. In training it is fused all the same: a NaN in a channel makes that channel's
 * statistics NaN and so all of its outputs, which a call behind it sets where the statistics tell; looking at
 * them costs nothing. By running statistics NaN stays where it is, and the ReLU is a pass of its own. */
#include <math.h>
#include <string.h>

#include "backend/cpu/batch_norm.h"

static fth_status move_running_statistics(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const float *mean = call->data[0], *variance = call->data[1];
    float *running_mean = call->data[2], *running_variance = call->data[3];
    float momentum = call->numbers[0], unbias = call->numbers[1];
    for (int64_t c = 0; c < call->sizes[0]; c++) {
        running_mean[c] += momentum * (mean[c] - running_mean[c]);
        running_variance[c] += momentum * (variance[c] * unbias - running_variance[c]);
    }
    return FTH_OK;
}

static fth_status add_running_statistics(fth_plan *plan, const fth_node *node)
{
    const fth_batch_norm_attributes *a = node->attributes;
    fth_shape shape = fth_plan_type(plan, node->inputs[0]).shape;
    int64_t per_channel = fth_shape_count(&shape) / shape.dims[1];
    const cpu_call call = {
        .run = move_running_statistics,
        .values = {fth_plan_value_of(plan, node->outputs[1]), fth_plan_value_of(plan, node->outputs[2]),
                   fth_plan_value_of(plan, node->inputs[3]), fth_plan_value_of(plan, node->inputs[4])},
        .value_count = 4,
        .write_count = 2,
        .sizes = {shape.dims[1]},
        .numbers = {a->momentum, (float)per_channel / (float)(per_channel > 1 ? per_channel - 1 : 1)}};
    return cpu_add_call(plan, "batch_norm running statistics", &call);
}

static bool fuses_relu(const fth_batch_norm_attributes *a, bool training)
{
    return a->relu && !a->residual && training;
}

_Static_assert(sizeof(cpu_image_layout) <= sizeof((cpu_call){0}.block), "it travels in its call");

cpu_image_layout cpu_image_layout_of(const cpu_format *layout)
{
    const dnnl_dim_t *strides = layout->strides;
    const bool image = layout->ndims == 4;
    return (cpu_image_layout){.batch = layout->dims[0],
                              .channels = layout->dims[1],
                              .height = image ? layout->dims[2] : 1,
                              .width = image ? layout->dims[3] : 1,
                              .block = layout->block,
                              .image = strides[0],
                              .group = strides[1],
                              .row = image ? strides[2] : 0,
                              .column = image ? strides[3] : 0};
}

static void fill_channel(const cpu_image_layout *l, int64_t c, bool bf16, void *y)
{
    const float number = NAN;
    const uint16_t half = 0x7fc0;
    const size_t item = bf16 ? sizeof half : sizeof number;
    for (int64_t n = 0; n < l->batch; n++) {
        for (int64_t i = 0; i < l->height * l->width; i++) {
            const int64_t at = n * l->image + c / l->block * l->group + c % l->block + i / l->width * l->row +
                               i % l->width * l->column;
            memcpy((char *)y + (size_t)at * item, bf16 ? (const void *)&half : (const void *)&number, item);
        }
    }
}

/* Values: mean, variance, scale, shift, y. */
static fth_status restore_nan(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const float *mean = call->data[0], *variance = call->data[1], *scale = call->data[2], *shift = call->data[3];
    cpu_image_layout layout;
    memcpy(&layout, call->block, sizeof layout);
    for (int64_t c = 0; c < layout.channels; c++)
        if (isnan(mean[c]) || isnan(variance[c]) || isnan(scale[c]) || isnan(shift[c]))
            fill_channel(&layout, c, call->sizes[0], call->data[4]);
    return FTH_OK;
}

/* The gradient of the shift is the only one that goes through none of the statistics. Values: mean, variance, dshift. */
static fth_status restore_nan_gradient(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const float *mean = call->data[0], *variance = call->data[1];
    float *gradient = call->data[2];
    for (int64_t c = 0; c < call->sizes[0]; c++)
        gradient[c] = isnan(mean[c]) || isnan(variance[c]) ? NAN : gradient[c];
    return FTH_OK;
}

static fth_status add_restore_nan_gradient(fth_plan *plan, const fth_node *node)
{
    const cpu_call call = {.run = restore_nan_gradient,
                           .values = {fth_plan_value_of(plan, node->inputs[4]),
                                      fth_plan_value_of(plan, node->inputs[5]),
                                      fth_plan_value_of(plan, node->outputs[2])},
                           .value_count = 3,
                           .write_count = 1,
                           .sizes = {fth_plan_type(plan, node->inputs[0]).shape.dims[1]}};
    return cpu_add_call(plan, "batch_norm_grad restore NaN", &call);
}

static fth_status add_restore_nan(fth_plan *plan, const fth_node *node, fth_plan_value y)
{
    const cpu_image_layout layout = cpu_image_layout_of(cpu_layout(plan, y));
    cpu_call call = {.run = restore_nan,
                     .values = {fth_plan_value_of(plan, node->outputs[1]), fth_plan_value_of(plan, node->outputs[2]),
                                fth_plan_value_of(plan, node->inputs[1]), fth_plan_value_of(plan, node->inputs[2]), y},
                     .value_count = 5,
                     .write_count = 1,
                     .sizes = {cpu_layout(plan, y)->data_type == dnnl_bf16}};
    memcpy(call.block, &layout, sizeof layout);
    return cpu_add_call(plan, "batch_norm restore NaN", &call);
}

static fth_status describe(const fth_plan *plan, const fth_batch_norm_attributes *a, const cpu_format *layout,
                           bool training, cpu_pass pass, dnnl_primitive_desc_t *descriptor)
{
    return cpu_describe_norm(cpu_device_of(plan)->engine,
                             &(cpu_norm_description){.training = training,
                                                     .x = *layout,
                                                     .epsilon = a->epsilon,
                                                     .flags = (fuses_relu(a, training) ? dnnl_fuse_norm_relu : 0u) |
                                                              (training ? 0u : dnnl_use_global_stats)},
                             pass, descriptor);
}

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_batch_norm_attributes *a = node->attributes;
    bool training = fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN && !a->fixed;
    if (training && fth_plan_get_options(plan).synchronized)
        return cpu_prepare_synchronized_norm(plan, node);
    dnnl_primitive_desc_t descriptor = NULL;
    const cpu_format layout = *cpu_layout(plan, fth_plan_value_of(plan, node->inputs[0]));
    fth_plan_value y;
    FTH_TRY(describe(plan, a, &layout, training, CPU_FORWARD, &descriptor));
    cpu_write_in_place(plan, node->inputs[0], node->outputs[0]);
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &y));
    cpu_argument arguments[8] = {{DNNL_ARG_SRC, fth_plan_value_of(plan, node->inputs[0]), false, NULL},
                                 {DNNL_ARG_SCALE, fth_plan_value_of(plan, node->inputs[1]), false, NULL},
                                 {DNNL_ARG_SHIFT, fth_plan_value_of(plan, node->inputs[2]), false, NULL},
                                 {DNNL_ARG_DST, y, true, NULL}};
    int count = 4;
    if (training) {
        FTH_TRY(cpu_fix_plain(plan, node->outputs[1]));
        FTH_TRY(cpu_fix_plain(plan, node->outputs[2]));
        arguments[count++] = (cpu_argument){DNNL_ARG_MEAN, fth_plan_value_of(plan, node->outputs[1]), true, NULL};
        arguments[count++] = (cpu_argument){DNNL_ARG_VARIANCE, fth_plan_value_of(plan, node->outputs[2]), true, NULL};
        if (fuses_relu(a, training)) {
            const cpu_format workspace = cpu_query(descriptor, dnnl_query_workspace_md);
            FTH_TRY(cpu_set_layout(plan, fth_plan_value_of(plan, node->outputs[3]), &workspace));
            arguments[count++] =
                (cpu_argument){DNNL_ARG_WORKSPACE, fth_plan_value_of(plan, node->outputs[3]), true, NULL};
        }
    } else {
        arguments[count++] = (cpu_argument){DNNL_ARG_MEAN, fth_plan_value_of(plan, node->inputs[3]), false, NULL};
        arguments[count++] = (cpu_argument){DNNL_ARG_VARIANCE, fth_plan_value_of(plan, node->inputs[4]), false, NULL};
    }
    FTH_TRY(cpu_add_primitive(plan, "batch_norm", &descriptor, arguments, count));
    if (fuses_relu(a, training))
        FTH_TRY(add_restore_nan(plan, node, y));
    else if (a->relu && !a->residual)
        FTH_TRY(cpu_add_relu(plan, y));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
    if (a->residual)
        FTH_TRY(cpu_add_sum(plan, node->outputs[0], node->inputs[5], a->relu, node->outputs[0]));
    if (training)
        FTH_TRY(add_running_statistics(plan, node));
out:
    cpu_free_descriptor(descriptor);
    return status;
}

fth_status cpu_add_residual_gradient(fth_plan *plan, const fth_node *node, const cpu_format *layout)
{
    fth_status status = FTH_OK;
    const fth_batch_norm_attributes *a = node->attributes;
    fth_value dresidual = node->outputs[3];
    fth_plan_value dy;
    FTH_TRY(cpu_read_as(plan, fth_plan_value_of(plan, node->inputs[2]), layout, &dy));
    if (!a->relu) {
        fth_plan_alias(plan, fth_plan_value_of(plan, dresidual), dy);
        FTH_TRY(cpu_set_layout(plan, fth_plan_value_of(plan, dresidual), layout));
        goto out;
    }
    if (fth_plan_value_equal(dy, fth_plan_value_of(plan, node->inputs[2])))
        cpu_write_in_place(plan, node->inputs[2], dresidual);
    FTH_TRY(cpu_set_layout(plan, fth_plan_value_of(plan, dresidual), layout));
    FTH_TRY(
        cpu_add_relu_gradient(plan, fth_plan_value_of(plan, node->inputs[1]), dy, fth_plan_value_of(plan, dresidual)));
out:
    return status;
}

static fth_status prepare_grad(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_batch_norm_attributes *a = node->attributes;
    if (fth_plan_get_options(plan).synchronized)
        return cpu_prepare_synchronized_norm_grad(plan, node);
    dnnl_primitive_desc_t descriptor = NULL;
    const cpu_format layout = *cpu_layout(plan, fth_plan_value_of(plan, node->inputs[0]));
    fth_plan_value dy, dx;
    if (a->residual) {
        FTH_TRY(cpu_add_residual_gradient(plan, node, &layout));
        dy = fth_plan_value_of(plan, node->outputs[3]);
    } else {
        FTH_TRY(cpu_read_as(plan, fth_plan_value_of(plan, node->inputs[2]), &layout, &dy));
    }
    FTH_TRY(describe(plan, a, &layout, true, CPU_GRAD_INPUT, &descriptor));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &dx));
    FTH_TRY(cpu_fix_plain(plan, node->outputs[1]));
    FTH_TRY(cpu_fix_plain(plan, node->outputs[2]));
    cpu_argument arguments[10] = {{DNNL_ARG_SRC, fth_plan_value_of(plan, node->inputs[0]), false, NULL},
                                  {DNNL_ARG_DIFF_DST, dy, false, NULL},
                                  {DNNL_ARG_SCALE, fth_plan_value_of(plan, node->inputs[3]), false, NULL},
                                  {DNNL_ARG_MEAN, fth_plan_value_of(plan, node->inputs[4]), false, NULL},
                                  {DNNL_ARG_VARIANCE, fth_plan_value_of(plan, node->inputs[5]), false, NULL},
                                  {DNNL_ARG_DIFF_SRC, dx, true, NULL},
                                  {DNNL_ARG_DIFF_SCALE, fth_plan_value_of(plan, node->outputs[1]), true, NULL},
                                  {DNNL_ARG_DIFF_SHIFT, fth_plan_value_of(plan, node->outputs[2]), true, NULL}};
    int count = 8;
    if (CPU_NORM_GRADIENT_ASKS_SHIFT) /* and does not read it: any (C) will do */
        arguments[count++] = (cpu_argument){DNNL_ARG_SHIFT, fth_plan_value_of(plan, node->inputs[3]), false, NULL};
    if (fuses_relu(a, true))
        arguments[count++] = (cpu_argument){DNNL_ARG_WORKSPACE, fth_plan_value_of(plan, node->inputs[6]), false, NULL};
    FTH_TRY(cpu_add_primitive(plan, "batch_norm_grad", &descriptor, arguments, count));
    if (fuses_relu(a, true))
        FTH_TRY(add_restore_nan_gradient(plan, node));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), dx));
out:
    cpu_free_descriptor(descriptor);
    return status;
}

const fth_kernel cpu_batch_norm = {&fth_op_batch_norm, prepare_forward};
const fth_kernel cpu_batch_norm_grad = {&fth_op_batch_norm_grad, prepare_grad};
