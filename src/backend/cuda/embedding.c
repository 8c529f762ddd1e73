/* Embeddings: see embedding.cu. */
#include "backend/cuda/kernel_list.h"
#include "backend/cuda/step.h"

_Static_assert((int)CUDA_MAX_LOOKUPS == (int)FTH_MAX_EMBEDDINGS, "a call has room for all tables of a node");

static cudaError_t run_forward(const cuda_call *call)
{
    cuda_lookup lookup = call->lookup;
    for (int i = 0; i < lookup.count; i++) {
        lookup.ids[i] = call->data[i];
        lookup.tables[i] = call->data[lookup.count + i];
    }
    return cuda_launch_embedding(&call->device->launch, &lookup, call->data[2 * lookup.count]);
}

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const int count = node->input_count / 2;
    const cuda_layout layout = cuda_standard(plan, node->outputs[0]);
    cuda_call call = {.run = run_forward, .value_count = 2 * count + 1, .write_count = 1};
    fth_plan_value y;
    call.lookup = (cuda_lookup){.type = layout.type, .count = count, .tokens = layout.n, .features = layout.c};
    for (int i = 0; i < count; i++) {
        const fth_shape table = fth_plan_type(plan, node->inputs[count + i]).shape;
        const cuda_layout plain = cuda_plain(&table, CUDA_TYPE_F32);
        call.lookup.rows[i] = table.dims[0];
        call.values[i] = fth_plan_value_of(plan, node->inputs[i]);
        FTH_TRY(cuda_read_as(plan, fth_plan_value_of(plan, node->inputs[count + i]), &plain, &call.values[count + i]));
    }
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &y));
    call.values[2 * count] = y;
    FTH_TRY(cuda_add_call(plan, "embedding", &call));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    return status;
}

static cudaError_t run_gradient(const cuda_call *call)
{
    const int64_t features = call->sizes[1], padding = call->sizes[3];
    const cudaError_t error =
        cuda_launch_embedding_grad(&call->device->launch, call->type, call->sizes[0], features, call->sizes[2],
                                   call->data[0], call->data[1], call->data[2], call->data[3]);
    if (error != cudaSuccess || padding < 0)
        return error;
    return cudaMemsetAsync((float *)call->data[2] + padding * features, 0, (size_t)features * sizeof(float),
                           call->device->launch.stream);
}

static fth_status prepare_gradient(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_embedding_attributes *a = node->attributes;
    const cuda_layout layout = cuda_standard(plan, node->inputs[1]);
    fth_plan_value dy, scratch;
    size_t scratch_bytes = 0;
    FTH_TRY(cuda_read(plan, node->inputs[1], &dy));
    FTH_TRY(cuda_fix_plain(plan, node->outputs[0]));
    CUDA_TRY(cuda_embedding_grad_scratch_bytes(layout.n, layout.c, a->rows, &scratch_bytes));
    FTH_TRY(cuda_add_scratch(plan, scratch_bytes, &scratch));
    cuda_call call = {
        .run = run_gradient,
        .values = {fth_plan_value_of(plan, node->inputs[0]), dy, fth_plan_value_of(plan, node->outputs[0]), scratch},
        .value_count = 4,
        .write_count = 2};
    call.type = layout.type;
    call.sizes[0] = layout.n;
    call.sizes[1] = layout.c;
    call.sizes[2] = a->rows;
    call.sizes[3] = a->padding;
    FTH_TRY(cuda_add_call(plan, "embedding_grad", &call));
out:
    return status;
}

const fth_kernel cuda_embedding = {&fth_op_embedding, prepare_forward};
const fth_kernel cuda_embedding_grad = {&fth_op_embedding_grad, prepare_gradient};
