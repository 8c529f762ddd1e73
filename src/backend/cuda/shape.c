/* Reshape, which moves nothing; and dropout, which depends on where an element is. */
#include "backend/cuda/kernel_list.h"
#include "backend/cuda/step.h"

/* A view of the row-major elements; costs a conversion only if the input lies otherwise. */
static fth_status prepare_reshape(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    fth_shape from = fth_plan_type(plan, node->inputs[0]).shape, to = fth_plan_type(plan, node->outputs[0]).shape;
    const cuda_type type = cuda_layout_of(plan, fth_plan_value_of(plan, node->inputs[0]))->type;
    const cuda_layout plain = cuda_plain(&from, type), layout = cuda_plain(&to, type);
    fth_plan_value source, target = fth_plan_value_of(plan, node->outputs[0]), view;
    FTH_TRY(cuda_read_as(plan, fth_plan_value_of(plan, node->inputs[0]), &plain, &source));
    if (!cuda_layout_of(plan, target)) {
        FTH_TRY(cuda_set_layout(plan, target, &layout));
        fth_plan_set_view(plan, target, source);
        goto out;
    }
    FTH_TRY(fth_plan_add_value(plan, &view));
    FTH_TRY(cuda_set_layout(plan, view, &layout));
    fth_plan_set_view(plan, view, source);
    FTH_TRY(cuda_end_write(plan, target, view));
out:
    return status;
}

/* ---- dropout ---- */

_Static_assert(FTH_RANDOM_DROPOUT == 5, "random.cuh draws with this number");

static cudaError_t run_dropout(const cuda_call *call)
{
    const float probability = call->numbers[0];
    return cuda_launch_dropout(call->device->launch.stream, call->type, call->data[0], call->data[1], call->sizes[0],
                               call->sizes[1], call->sizes[2], call->what != 0, call->sizes[3],
                               (cuda_row_origin){(uint64_t)call->sizes[4], (uint64_t)call->sizes[5]},
                               call->device->run_values, call->id, fth_dropout_threshold(probability),
                               1 / (1 - probability));
}

static fth_status prepare_dropout(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_dropout_attributes *a = node->attributes;
    const cuda_layout layout = cuda_standard(plan, node->outputs[0]);
    fth_plan_value x, y;
    FTH_TRY(cuda_read(plan, node->inputs[0], &x));
    if (fth_plan_get_options(plan).mode == FTH_PLAN_EVALUATE || a->probability == 0) {
        if (!cuda_layout_of(plan, fth_plan_value_of(plan, node->outputs[0]))) {
            FTH_TRY(cuda_set_layout(plan, fth_plan_value_of(plan, node->outputs[0]), &layout));
            fth_plan_set_view(plan, fth_plan_value_of(plan, node->outputs[0]), x);
        } else {
            FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), x));
        }
        goto out;
    }
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &y));
    fth_plan_may_overwrite(plan, y, x);
    cuda_call call = {.run = run_dropout, .values = {x, y}, .value_count = 2, .write_count = 1};
    call.sizes[0] = layout.n;
    call.sizes[1] = layout.c;
    call.sizes[2] = (int64_t)layout.h * layout.w;
    call.sizes[3] = layout.channels;
    const cuda_row_origin origin = cuda_row_origin_of(plan, node->inputs[0]);
    call.sizes[4] = (int64_t)origin.per_sample;
    call.sizes[5] = (int64_t)origin.per_token;
    call.numbers[0] = a->probability;
    call.id = a->id;
    call.type = layout.type;
    call.what = layout.nhwc;
    FTH_TRY(cuda_add_call(plan, "dropout", &call));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    return status;
}

const fth_kernel cuda_reshape = {&fth_op_reshape, prepare_reshape};
const fth_kernel cuda_dropout = {&fth_op_dropout, prepare_dropout};
