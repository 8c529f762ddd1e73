/* Depthwise convolutions: see depthwise.cu. They read the weights as f32 from the flat vector, in
 * the order (tap, channel), which a small step makes of them, and images in their standard layout,
 * in which cuDNN's grouped ones would not. */
#include "backend/cuda/depthwise.h"

#include "backend/cuda/kernel_list.h"
#include "backend/cuda/step.h"
#include "backend/cuda/weights.h"

bool cuda_depthwise_fits(const fth_convolution_attributes *a, const fth_shape *weight)
{
    const int kernel = (int)weight->dims[2];
    if (a->groups == 1 || weight->dims[0] != a->groups || weight->dims[1] != 1 || weight->dims[3] != kernel ||
        (kernel != 3 && kernel != 5 && kernel != 7))
        return false;
    for (int axis = 0; axis < 2; axis++)
        if (a->stride[axis] != a->stride[0] || a->stride[axis] > 2 || a->dilation[axis] != 1 ||
            a->padding[axis] >= kernel)
            return false;
    return true;
}

/* An image with the padded channels that any value has which a node computes. */
static cuda_layout image_layout(const fth_plan *plan, fth_value value)
{
    const fth_type type = fth_plan_type(plan, value);
    const cuda_type compute = cuda_compute_type(plan);
    return cuda_channels_last(&type.shape, compute, cuda_padded_channels(compute, (int)type.shape.dims[1], false));
}

static cuda_depthwise describe(const fth_convolution_attributes *a, const cuda_layout *x, const cuda_layout *y)
{
    return (cuda_depthwise){.type = x->type,
                            .batch = x->n,
                            .channels = x->channels,
                            .logical = x->c,
                            .height = x->h,
                            .width = x->w,
                            .out_height = y->h,
                            .out_width = y->w,
                            .kernel = a->kernel[0],
                            .stride = a->stride[0],
                            .padding = {a->padding[0], a->padding[1]}};
}

static cudaError_t run_pack(const cuda_call *call)
{
    return cuda_launch_depthwise_pack(call->device->launch.stream, &call->depthwise, call->data[0], call->data[1]);
}

static cudaError_t run_forward(const cuda_call *call)
{
    return cuda_launch_depthwise_forward(call->device->launch.stream, &call->depthwise, call->data[0], call->data[1],
                                         call->data[2]);
}

static cudaError_t run_grad_input(const cuda_call *call)
{
    return cuda_launch_depthwise_grad_input(call->device->launch.stream, &call->depthwise, call->data[0], call->data[1],
                                            call->data[2]);
}

static cudaError_t run_grad_weights(const cuda_call *call)
{
    return cuda_launch_depthwise_grad_weights(&call->device->launch, &call->depthwise, call->data[0], call->data[1],
                                              call->data[2], call->data[3]);
}

/* The weights in the order of the kernels. */
static fth_status add_pack(fth_plan *plan, const cuda_depthwise *d, fth_value weight, fth_plan_value *packed)
{
    fth_status status = FTH_OK;
    const fth_shape shape = fth_plan_type(plan, weight).shape;
    const cuda_layout plain = cuda_plain(&shape, CUDA_TYPE_F32);
    fth_plan_value own;
    FTH_TRY(cuda_read_as(plan, fth_plan_value_of(plan, weight), &plain, &own));
    FTH_TRY(cuda_add_scratch(plan, (size_t)d->channels * (size_t)(d->kernel * d->kernel) * sizeof(float), packed));
    cuda_call call = {.run = run_pack, .values = {own, *packed}, .value_count = 2, .write_count = 1};
    call.depthwise = *d;
    FTH_TRY(cuda_add_call(plan, "depthwise weights", &call));
out:
    return status;
}

fth_status cuda_depthwise_forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_convolution_attributes *a = node->attributes;
    const cuda_layout in = image_layout(plan, node->inputs[0]), out = image_layout(plan, node->outputs[0]);
    const cuda_layout wanted = cuda_standard(plan, node->outputs[0]);
    const fth_plan_value bias = node->input_count > 2 ? fth_plan_value_of(plan, node->inputs[2]) : FTH_NO_PLAN_VALUE;
    fth_plan_value x, w, standard, y;
    cuda_call call = {.run = run_forward, .value_count = 3, .write_count = 1};
    call.depthwise = describe(a, &in, &out);
    FTH_TRY(cuda_read_as(plan, fth_plan_value_of(plan, node->inputs[0]), &in, &x));
    FTH_TRY(add_pack(plan, &call.depthwise, node->inputs[1], &w));
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &wanted, &standard));
    FTH_TRY(cuda_begin_write(plan, standard, &out, &y));
    call.values[0] = x;
    call.values[1] = w;
    call.values[2] = y;
    FTH_TRY(cuda_add_call(plan, "convolution depthwise", &call));
    if (node->input_count > 2 || a->relu)
        FTH_TRY(cuda_add_bias(plan, &out, y, bias, a->relu));
    FTH_TRY(cuda_end_write(plan, standard, y));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), standard));
out:
    return status;
}

fth_status cuda_depthwise_grad_input(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const cuda_layout out = image_layout(plan, node->inputs[0]), in = image_layout(plan, node->outputs[0]);
    const cuda_layout wanted = cuda_standard(plan, node->outputs[0]);
    fth_plan_value dy, w, standard, dx;
    cuda_call call = {.run = run_grad_input, .value_count = 3, .write_count = 1};
    call.depthwise = describe(node->attributes, &in, &out);
    FTH_TRY(cuda_read_as(plan, fth_plan_value_of(plan, node->inputs[0]), &out, &dy));
    FTH_TRY(add_pack(plan, &call.depthwise, node->inputs[1], &w));
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &wanted, &standard));
    FTH_TRY(cuda_begin_write(plan, standard, &in, &dx));
    call.values[0] = dy;
    call.values[1] = w;
    call.values[2] = dx;
    FTH_TRY(cuda_add_call(plan, "convolution_grad_input depthwise", &call));
    FTH_TRY(cuda_end_write(plan, standard, dx));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), standard));
out:
    return status;
}

fth_status cuda_depthwise_grad_weights(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const cuda_layout in = image_layout(plan, node->inputs[0]), out = image_layout(plan, node->inputs[1]);
    const fth_shape weight = fth_plan_type(plan, node->outputs[0]).shape;
    const cuda_layout plain = cuda_plain(&weight, CUDA_TYPE_F32);
    fth_plan_value x, dy, dw, scratch, standard_dy;
    cuda_call call = {.run = run_grad_weights, .value_count = 4, .write_count = 2};
    call.depthwise = describe(node->attributes, &in, &out);
    FTH_TRY(cuda_read_as(plan, fth_plan_value_of(plan, node->inputs[0]), &in, &x));
    FTH_TRY(cuda_read_as(plan, fth_plan_value_of(plan, node->inputs[1]), &out, &dy));
    if (fth_plan_is_used(plan, node->outputs[1]) && cuda_bias_taker(plan, node->inputs[1]) != node) {
        FTH_TRY(cuda_read(plan, node->inputs[1], &standard_dy));
        FTH_TRY(cuda_add_bias_gradient(plan, standard_dy, &node->outputs[1], 1));
    }
    FTH_TRY(cuda_add_scratch(
        plan, cuda_depthwise_floats(&cuda_device_of(plan)->launch, &call.depthwise) * sizeof(float), &scratch));
    FTH_TRY(cuda_begin_gradient(plan, node->outputs[0], &plain, &dw));
    call.values[0] = x;
    call.values[1] = dy;
    call.values[2] = scratch;
    call.values[3] = dw;
    FTH_TRY(cuda_add_call(plan, "convolution_grad_weights depthwise", &call));
    FTH_TRY(cuda_end_gradient(plan, node->outputs[0], dw));
out:
    return status;
}
