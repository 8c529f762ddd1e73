/* Images brought to another size: see resize.cu. */
#include "backend/cuda/kernel_list.h"
#include "backend/cuda/step.h"

static cudaError_t run_resize(const cuda_call *call)
{
    return cuda_launch_resize(call->device->launch.stream, &call->resize, call->data[0], call->data[1]);
}

static cudaError_t run_resize_grad(const cuda_call *call)
{
    return cuda_launch_resize_grad(call->device->launch.stream, &call->resize, call->data[0], call->data[1]);
}

/* From `from` to `to`, both with the channels of y; x is the op's input, which is one of the
 * two. */
static fth_status prepare(fth_plan *plan, const fth_node *node, fth_value x, fth_value y,
                          cudaError_t (*run)(const cuda_call *call))
{
    fth_status status = FTH_OK;
    const fth_resize_attributes *a = node->attributes;
    const fth_value from = node->inputs[0], to = node->outputs[0];
    const cuda_layout out = cuda_standard(plan, y), standard_to = cuda_standard(plan, to);
    const fth_type from_type = fth_plan_type(plan, from), to_type = fth_plan_type(plan, to);
    const cuda_layout from_layout = cuda_channels_last(&from_type.shape, out.type, out.channels);
    const cuda_layout to_layout = cuda_channels_last(&to_type.shape, out.type, out.channels);
    const fth_type image = fth_plan_type(plan, x);
    fth_plan_value source, standard, target;
    FTH_TRY(cuda_read_as(plan, fth_plan_value_of(plan, from), &from_layout, &source));
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, to), &standard_to, &standard));
    FTH_TRY(cuda_begin_write(plan, standard, &to_layout, &target));
    cuda_call call = {.run = run, .values = {source, target}, .value_count = 2, .write_count = 1};
    call.resize = (cuda_resizing){.type = out.type,
                                  .batch = out.n,
                                  .channels = out.channels,
                                  .rows = fth_resize_axis_of(a, 0, image.shape.dims[2]),
                                  .columns = fth_resize_axis_of(a, 1, image.shape.dims[3])};
    FTH_TRY(cuda_add_call(plan, node->op->name, &call));
    FTH_TRY(cuda_end_write(plan, standard, target));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, to), standard));
out:
    return status;
}

static fth_status prepare_resize(fth_plan *plan, const fth_node *node)
{
    return prepare(plan, node, node->inputs[0], node->outputs[0], run_resize);
}

static fth_status prepare_resize_grad(fth_plan *plan, const fth_node *node)
{
    return prepare(plan, node, node->outputs[0], node->inputs[0], run_resize_grad);
}

const fth_kernel cuda_resize = {&fth_op_resize, prepare_resize};
const fth_kernel cuda_resize_grad = {&fth_op_resize_grad, prepare_resize_grad};
