/* Softmax cross-entropy on plain f32 logits: a warp per row; the batch's sums are made in a fixed
 * order. The loss is sent to the host at once, while the backward pass runs (capture.c). */
#include "backend/cuda/kernel_list.h"
#include "backend/cuda/step.h"

_Static_assert(CUDA_IGNORED_LABEL == (int)FTH_IGNORED_LABEL, "both name the same label");

static cudaError_t run_loss(const cuda_call *call)
{
    return cuda_launch_cross_entropy(&call->device->launch, call->data[0], call->data[1], call->sizes[0],
                                     call->sizes[1], call->numbers[0], call->data[2], call->data[3], call->data[4],
                                     call->data[5], call->device->run_values, call->device->announcement);
}

static fth_status prepare_loss(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_cross_entropy_attributes *a = node->attributes;
    fth_shape shape = fth_plan_type(plan, node->inputs[0]).shape;
    const cuda_layout plain = cuda_plain(&shape, CUDA_TYPE_F32);
    fth_plan_value logits, scratch;
    FTH_TRY(cuda_read_as(plan, fth_plan_value_of(plan, node->inputs[0]), &plain, &logits));
    for (int i = 0; i < 3; i++)
        FTH_TRY(cuda_fix_plain(plan, node->outputs[i]));
    FTH_TRY(cuda_add_scratch(plan, 2 * (size_t)shape.dims[0] * sizeof(float), &scratch));
    cuda_call call = {.run = run_loss,
                      .values = {logits, fth_plan_value_of(plan, node->inputs[1]),
                                 fth_plan_value_of(plan, node->outputs[0]), fth_plan_value_of(plan, node->outputs[1]),
                                 fth_plan_value_of(plan, node->outputs[2]), scratch},
                      .value_count = 6,
                      .write_count = 4};
    call.sizes[0] = shape.dims[0];
    call.sizes[1] = shape.dims[1];
    call.numbers[0] = a->label_smoothing;
    FTH_TRY(cuda_add_call(plan, "softmax_cross_entropy", &call));
out:
    return status;
}

static cudaError_t run_gradient(const cuda_call *call)
{
    return cuda_launch_cross_entropy_grad(call->device->launch.stream, call->type, call->data[0], call->data[1],
                                          call->data[2], call->sizes[0], call->sizes[1], call->numbers[0],
                                          call->device->run_values, call->data[3]);
}

static fth_status prepare_gradient(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_cross_entropy_attributes *a = node->attributes;
    const cuda_layout layout = cuda_standard(plan, node->outputs[0]);
    fth_plan_value gradient;
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &gradient));
    cuda_call call = {.run = run_gradient,
                      .values = {fth_plan_value_of(plan, node->inputs[0]), fth_plan_value_of(plan, node->inputs[1]),
                                 fth_plan_value_of(plan, node->inputs[2]), gradient},
                      .value_count = 4,
                      .write_count = 1};
    call.sizes[0] = layout.n;
    call.sizes[1] = layout.c;
    call.numbers[0] = a->label_smoothing;
    call.type = layout.type;
    FTH_TRY(cuda_add_call(plan, "softmax_cross_entropy_grad", &call));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), gradient));
out:
    return status;
}

const fth_kernel cuda_softmax_cross_entropy = {&fth_op_softmax_cross_entropy, prepare_loss};
const fth_kernel cuda_softmax_cross_entropy_grad = {&fth_op_softmax_cross_entropy_grad, prepare_gradient};
