/* Softmax, its logarithm and normalize over rows of plain values (softmax.cu). */
#include "backend/cuda/kernel_list.h"
#include "backend/cuda/step.h"

static cuda_layout plain_of(const fth_plan *plan, fth_value value)
{
    const fth_shape shape = fth_plan_type(plan, value).shape;
    return cuda_plain(&shape, cuda_compute_type(plan));
}

static cuda_row_op describe(const fth_plan *plan, fth_value rows, bool option, float epsilon)
{
    const fth_shape shape = fth_plan_type(plan, rows).shape;
    const int64_t features = shape.dims[shape.rank - 1];
    return (cuda_row_op){.type = cuda_compute_type(plan),
                         .rows = fth_shape_count(&shape) / features,
                         .features = features,
                         .option = option,
                         .epsilon = epsilon};
}

static fth_status read_plain(fth_plan *plan, fth_value value, fth_plan_value *as)
{
    const cuda_layout plain = plain_of(plan, value);
    return cuda_read_as(plan, fth_plan_value_of(plan, value), &plain, as);
}

/* Adds the step, whose last value is the first output; it may take the place of each of the first
 * `over` values. */
static fth_status add_step(fth_plan *plan, const fth_node *node, cuda_call *call, int over)
{
    fth_status status = FTH_OK;
    const cuda_layout plain = plain_of(plan, node->outputs[0]);
    const fth_plan_value target = fth_plan_value_of(plan, node->outputs[0]);
    fth_plan_value *last = &call->values[call->value_count - 1];
    FTH_TRY(cuda_begin_write(plan, target, &plain, last));
    for (int i = 0; i < over; i++)
        fth_plan_may_overwrite(plan, *last, call->values[i]);
    FTH_TRY(cuda_add_call(plan, node->op->name, call));
    FTH_TRY(cuda_end_write(plan, target, *last));
out:
    return status;
}

static cudaError_t run_softmax(const cuda_call *call)
{
    return cuda_launch_softmax(call->device->launch.stream, &call->row_op, call->data[0], call->data[1]);
}

static fth_status prepare_softmax(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_softmax_attributes *a = node->attributes;
    cuda_call call = {.run = run_softmax, .value_count = 2, .write_count = 1};
    call.row_op = describe(plan, node->inputs[0], a->log, 0);
    FTH_TRY(read_plain(plan, node->inputs[0], &call.values[0]));
    FTH_TRY(add_step(plan, node, &call, 1));
out:
    return status;
}

static cudaError_t run_softmax_grad(const cuda_call *call)
{
    return cuda_launch_softmax_grad(call->device->launch.stream, &call->row_op, call->data[0], call->data[1],
                                    call->data[2]);
}

static fth_status prepare_softmax_grad(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_softmax_attributes *a = node->attributes;
    cuda_call call = {.run = run_softmax_grad, .value_count = 3, .write_count = 1};
    call.row_op = describe(plan, node->inputs[0], a->log, 0);
    FTH_TRY(read_plain(plan, node->inputs[0], &call.values[0]));
    FTH_TRY(read_plain(plan, node->inputs[1], &call.values[1]));
    FTH_TRY(add_step(plan, node, &call, 2));
out:
    return status;
}

static cudaError_t run_normalize(const cuda_call *call)
{
    return cuda_launch_normalize(call->device->launch.stream, &call->row_op, call->data[0], call->data[2],
                                 call->data[1]);
}

static fth_status prepare_normalize(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_normalize_attributes *a = node->attributes;
    cuda_call call = {.run = run_normalize, .value_count = 3, .write_count = 2};
    call.row_op = describe(plan, node->inputs[0], a->rms, a->epsilon);
    FTH_TRY(read_plain(plan, node->inputs[0], &call.values[0]));
    call.values[1] = FTH_NO_PLAN_VALUE;
    if (fth_plan_is_used(plan, node->outputs[1])) {
        FTH_TRY(cuda_fix_plain(plan, node->outputs[1]));
        call.values[1] = fth_plan_value_of(plan, node->outputs[1]);
    }
    FTH_TRY(add_step(plan, node, &call, 1));
out:
    return status;
}

static cudaError_t run_normalize_grad(const cuda_call *call)
{
    return cuda_launch_normalize_grad(call->device->launch.stream, &call->row_op, call->data[0], call->data[1],
                                      call->data[2], call->data[3]);
}

static fth_status prepare_normalize_grad(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_normalize_attributes *a = node->attributes;
    cuda_call call = {.run = run_normalize_grad, .value_count = 4, .write_count = 1};
    call.row_op = describe(plan, node->inputs[0], a->rms, a->epsilon);
    FTH_TRY(read_plain(plan, node->inputs[0], &call.values[0]));
    FTH_TRY(read_plain(plan, node->inputs[1], &call.values[1]));
    call.values[2] = fth_plan_value_of(plan, node->inputs[2]);
    FTH_TRY(add_step(plan, node, &call, 2));
out:
    return status;
}

const fth_kernel cuda_softmax = {&fth_op_softmax, prepare_softmax};
const fth_kernel cuda_softmax_grad = {&fth_op_softmax_grad, prepare_softmax_grad};
const fth_kernel cuda_normalize = {&fth_op_normalize, prepare_normalize};
const fth_kernel cuda_normalize_grad = {&fth_op_normalize_grad, prepare_normalize_grad};
