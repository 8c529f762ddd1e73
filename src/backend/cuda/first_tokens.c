/* The first row of each sequence, and its gradient (first_tokens.cu). */
#include "backend/cuda/kernel_list.h"
#include "backend/cuda/step.h"

static cudaError_t run(const cuda_call *call)
{
    return (call->what ? cuda_launch_first_tokens_grad
                       : cuda_launch_first_tokens)(&call->device->launch, call->type, call->sizes[0], call->sizes[1],
                                                   call->sizes[2], call->data[0], call->data[1], call->data[2]);
}

static fth_status prepare(fth_plan *plan, const fth_node *node, bool gradient)
{
    fth_status status = FTH_OK;
    const cuda_layout layout = cuda_standard(plan, node->outputs[0]);
    fth_plan_value from, to;
    FTH_TRY(cuda_read(plan, node->inputs[0], &from));
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &to));
    cuda_call call = {
        .run = run, .values = {from, fth_plan_value_of(plan, node->inputs[1]), to}, .value_count = 3, .write_count = 1};
    call.type = layout.type;
    call.what = gradient;
    call.sizes[0] = gradient ? cuda_layout_of(plan, from)->n : layout.n;
    call.sizes[1] = gradient ? layout.n : cuda_layout_of(plan, from)->n;
    call.sizes[2] = layout.c;
    FTH_TRY(cuda_add_call(plan, gradient ? "first_tokens_grad" : "first_tokens", &call));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), to));
out:
    return status;
}

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    return prepare(plan, node, false);
}

static fth_status prepare_gradient(fth_plan *plan, const fth_node *node)
{
    return prepare(plan, node, true);
}

const fth_kernel cuda_first_tokens = {&fth_op_first_tokens, prepare_forward};
const fth_kernel cuda_first_tokens_grad = {&fth_op_first_tokens_grad, prepare_gradient};
