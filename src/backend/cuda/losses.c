/* Losses whose targets are numbers: squared_error and sigmoid_cross_entropy (losses.cu). Outputs
 * and targets are plain f32; the loss is sent to the host at once, as softmax_cross_entropy's
 * is. */
#include "backend/cuda/kernel_list.h"
#include "backend/cuda/step.h"

static fth_status read_plain(fth_plan *plan, fth_value value, fth_plan_value *as)
{
    const fth_shape shape = fth_plan_type(plan, value).shape;
    const cuda_layout plain = cuda_plain(&shape, CUDA_TYPE_F32);
    return cuda_read_as(plan, fth_plan_value_of(plan, value), &plain, as);
}

static cudaError_t run_loss(const cuda_call *call)
{
    return cuda_launch_loss(&call->device->launch, (cuda_loss)call->what, call->sizes[0], call->sizes[1], call->data[0],
                            call->data[1], call->data[2], call->device->run_values, call->device->announcement);
}

static fth_status add_loss(fth_plan *plan, const fth_node *node, cuda_loss what)
{
    fth_status status = FTH_OK;
    const fth_shape shape = fth_plan_type(plan, node->inputs[0]).shape;
    fth_plan_value outputs, targets;
    FTH_TRY(read_plain(plan, node->inputs[0], &outputs));
    FTH_TRY(read_plain(plan, node->inputs[1], &targets));
    FTH_TRY(cuda_fix_plain(plan, node->outputs[0]));
    cuda_call call = {.run = run_loss,
                      .values = {outputs, targets, fth_plan_value_of(plan, node->outputs[0])},
                      .value_count = 3,
                      .write_count = 1};
    call.what = (int)what;
    call.sizes[0] = shape.dims[0];
    call.sizes[1] = shape.dims[1];
    FTH_TRY(cuda_add_call(plan, node->op->name, &call));
out:
    return status;
}

static cudaError_t run_gradient(const cuda_call *call)
{
    return cuda_launch_loss_grad(&call->device->launch, (cuda_loss)call->what, call->type, call->sizes[0],
                                 call->data[0], call->data[1], call->device->run_values, call->data[2]);
}

static fth_status add_gradient(fth_plan *plan, const fth_node *node, cuda_loss what)
{
    fth_status status = FTH_OK;
    const cuda_layout layout = cuda_standard(plan, node->outputs[0]);
    fth_plan_value outputs, targets, gradient;
    FTH_TRY(read_plain(plan, node->inputs[0], &outputs));
    FTH_TRY(read_plain(plan, node->inputs[1], &targets));
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &gradient));
    cuda_call call = {.run = run_gradient, .values = {outputs, targets, gradient}, .value_count = 3, .write_count = 1};
    call.type = layout.type;
    call.what = (int)what;
    call.sizes[0] = cuda_layout_elements(&layout);
    FTH_TRY(cuda_add_call(plan, node->op->name, &call));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), gradient));
out:
    return status;
}

static fth_status prepare_squared_error(fth_plan *plan, const fth_node *node)
{
    return add_loss(plan, node, CUDA_SQUARED_ERROR);
}

static fth_status prepare_squared_error_grad(fth_plan *plan, const fth_node *node)
{
    return add_gradient(plan, node, CUDA_SQUARED_ERROR);
}

static fth_status prepare_sigmoid_cross_entropy(fth_plan *plan, const fth_node *node)
{
    return add_loss(plan, node, CUDA_SIGMOID_CROSS_ENTROPY);
}

static fth_status prepare_sigmoid_cross_entropy_grad(fth_plan *plan, const fth_node *node)
{
    return add_gradient(plan, node, CUDA_SIGMOID_CROSS_ENTROPY);
}

const fth_kernel cuda_squared_error = {&fth_op_squared_error, prepare_squared_error};
const fth_kernel cuda_squared_error_grad = {&fth_op_squared_error_grad, prepare_squared_error_grad};
const fth_kernel cuda_sigmoid_cross_entropy = {&fth_op_sigmoid_cross_entropy, prepare_sigmoid_cross_entropy};
const fth_kernel cuda_sigmoid_cross_entropy_grad = {&fth_op_sigmoid_cross_entropy_grad,
                                                    prepare_sigmoid_cross_entropy_grad};
