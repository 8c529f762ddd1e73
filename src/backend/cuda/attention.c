/* Attention within packed sequences, and its gradient: one step each (attention.cu). cuDNN's own
 * attention knows neither dropout's masks nor sequences without padding between them. */
#include "backend/cuda/attention.h"

#include <string.h>

#include "backend/cuda/kernel_list.h"
#include "backend/cuda/step.h"

static cuda_attention_shape attention_of(const cuda_call *call)
{
    return (cuda_attention_shape){.type = call->type,
                                  .tokens = call->sizes[0],
                                  .sequences = (int)call->sizes[1],
                                  .heads = (int)call->sizes[2],
                                  .size = (int)call->sizes[3],
                                  .longest = (int)call->sizes[4],
                                  .probability = call->numbers[0],
                                  .dropout = call->id,
                                  .threshold = fth_attention_threshold(call->numbers[0])};
}

/* Fills in what both steps have, from the values that both nodes begin with. */
static fth_status describe(const fth_plan *plan, const fth_node *node, cuda_call *call)
{
    fth_status status = FTH_OK;
    const fth_attention_attributes *a = node->attributes;
    const fth_shape qkv = fth_plan_type(plan, node->inputs[0]).shape, ends = fth_plan_type(plan, node->inputs[1]).shape;
    const int64_t size = qkv.dims[1] / 3 / a->heads;
    const int largest = cuda_attention_largest_head();
    FTH_REQUIRE(size <= largest, FTH_UNSUPPORTED,
                "attention on this GPU takes heads of up to %d numbers, not %lld; use more heads, or --device cpu",
                largest, (long long)size);
    call->sizes[0] = qkv.dims[0];
    call->sizes[1] = ends.dims[0];
    call->sizes[2] = a->heads;
    call->sizes[3] = size;
    call->sizes[4] = a->longest < qkv.dims[0] ? a->longest : qkv.dims[0];
    call->numbers[0] = fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN ? a->probability : 0;
    call->id = a->dropout;
    call->type = cuda_compute_type(plan);
out:
    return status;
}

static cudaError_t run_attention(const cuda_call *call)
{
    const cuda_attention_shape a = attention_of(call);
    return cuda_launch_attention(call->device->launch.stream, &a, call->data[0], call->data[1], call->data[2],
                                 call->data[3], call->device->run_values);
}

static fth_status prepare_attention(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const cuda_layout layout = cuda_standard(plan, node->outputs[0]);
    const fth_plan_value target = fth_plan_value_of(plan, node->outputs[0]);
    fth_plan_value qkv, y, statistics = FTH_NO_PLAN_VALUE;
    FTH_TRY(cuda_read(plan, node->inputs[0], &qkv));
    FTH_TRY(cuda_begin_write(plan, target, &layout, &y));
    if (fth_plan_is_used(plan, node->outputs[1])) {
        FTH_TRY(cuda_fix_plain(plan, node->outputs[1]));
        statistics = fth_plan_value_of(plan, node->outputs[1]);
    }
    cuda_call call = {.run = run_attention,
                      .values = {qkv, fth_plan_value_of(plan, node->inputs[1]), y, statistics},
                      .value_count = 4,
                      .write_count = 2};
    FTH_TRY(describe(plan, node, &call));
    FTH_TRY(cuda_add_call(plan, "attention", &call));
    FTH_TRY(cuda_end_write(plan, target, y));
out:
    return status;
}

static cudaError_t run_attention_grad(const cuda_call *call)
{
    const cuda_attention_shape a = attention_of(call);
    return cuda_launch_attention_grad(call->device->launch.stream, &a, call->data[0], call->data[1], call->data[2],
                                      call->data[3], call->data[4], call->data[5], call->data[6],
                                      call->device->run_values);
}

static fth_status prepare_attention_grad(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const cuda_layout layout = cuda_standard(plan, node->outputs[0]);
    const fth_plan_value target = fth_plan_value_of(plan, node->outputs[0]);
    const fth_shape shape = fth_plan_type(plan, node->inputs[3]).shape;
    const cuda_layout plain = cuda_plain(&shape, CUDA_TYPE_F32);
    fth_plan_value qkv, y, statistics, dy, dqkv, scratch = FTH_NO_PLAN_VALUE;
    FTH_TRY(cuda_read(plan, node->inputs[0], &qkv));
    FTH_TRY(cuda_read(plan, node->inputs[2], &y));
    FTH_TRY(cuda_read_as(plan, fth_plan_value_of(plan, node->inputs[3]), &plain, &statistics));
    FTH_TRY(cuda_read(plan, node->inputs[4], &dy));
    FTH_TRY(cuda_begin_write(plan, target, &layout, &dqkv));
    cuda_call call = {.run = run_attention_grad};
    FTH_TRY(describe(plan, node, &call));
    const cuda_attention_shape a = attention_of(&call);
    const size_t scratch_bytes = cuda_attention_scratch_bytes(&a);
    if (scratch_bytes > 0)
        FTH_TRY(cuda_add_scratch(plan, scratch_bytes, &scratch));
    const fth_plan_value values[] = {qkv, fth_plan_value_of(plan, node->inputs[1]), y, statistics, dy, dqkv, scratch};
    memcpy(call.values, values, sizeof values);
    call.value_count = 7;
    call.write_count = 2;
    FTH_TRY(cuda_add_call(plan, "attention_grad", &call));
    FTH_TRY(cuda_end_write(plan, target, dqkv));
out:
    return status;
}

const fth_kernel cuda_attention = {&fth_op_attention, prepare_attention};
const fth_kernel cuda_attention_grad = {&fth_op_attention_grad, prepare_attention_grad};
