/* Batch norm with its residual and ReLU on our own kernels (batch_norm.cu): three passes forward,
 * five backward.
 *
 * In a synchronized plan the statistics of this part of the batch become those of the whole between
 * two passes (batch_norm_sums.cu): on the device where its group can sum, else through the host.
 *
 * With a residual the sign of y is kept as one bit per element in the op's mask; without one it is
 * computed again from x. Where the gradient that comes in is a sum of two (a residual network's
 * branches), the sum is made on the way in. */
#include <stdio.h>
#include <stdlib.h>

#include "backend/batch_norm_sums.h"
#include "backend/cuda/kernel_list.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/step.h"

enum { X, SCALE, SHIFT, RUNNING_MEAN, RUNNING_VARIANCE, RESIDUAL };

static cudaError_t run_statistics(const cuda_call *call)
{
    cuda_norm norm = call->norm;
    norm.mean = call->data[1];
    norm.variance = call->data[2];
    norm.running_mean = call->data[3];
    norm.running_variance = call->data[4];
    return cuda_launch_norm_statistics(&call->device->launch, &norm, call->data[0], call->data[5]);
}

/* ---- the whole batch ---- */

static cudaError_t run_pack(const cuda_call *call)
{
    cuda_norm norm = call->norm;
    norm.mean = call->data[0];
    norm.variance = call->data[1];
    return cuda_launch_norm_pack(&call->device->launch, &norm, call->data[2]);
}

static cudaError_t run_unpack(const cuda_call *call)
{
    cuda_norm norm = call->norm;
    norm.mean = call->data[1];
    norm.variance = call->data[2];
    norm.running_mean = call->data[3];
    norm.running_variance = call->data[4];
    return cuda_launch_norm_unpack(&call->device->launch, &norm, call->data[0]);
}

static cudaError_t run_gradient_pack(const cuda_call *call)
{
    return cuda_launch_norm_gradient_pack(&call->device->launch, &call->norm, call->data[0], call->data[1],
                                          call->data[2]);
}

static cudaError_t run_gradient_unpack(const cuda_call *call)
{
    return cuda_launch_norm_gradient_unpack(&call->device->launch, &call->norm, call->data[0], call->data[1],
                                            call->data[2]);
}

/* The step that sums over peers. */
typedef struct exchange {
    cuda_device *device;
    fth_plan_value value;
    double *sums; /* device memory */
    size_t count;
    double host[];
} exchange;

static fth_status bind_exchange(void *state, const fth_plan *plan)
{
    exchange *e = state;
    e->sums = fth_plan_data(plan, e->value);
    return FTH_OK;
}

static fth_status run_exchange(void *state, const fth_run *run)
{
    fth_status status = FTH_OK;
    exchange *e = state;
    const size_t size_bytes = e->count * sizeof *e->sums;
    if (!run->peers)
        return FTH_OK;
    if (run->peers->group) {
        const fth_backend_collectives *collectives = e->device->base.backend->collectives;
        FTH_TRY(collectives->sum(run->peers->group, e->sums, e->count));
        status = collectives->join(run->peers->group, NULL);
        goto out;
    }
    FTH_TRY(cuda_copy_out(&e->device->base, e->host, e->sums, size_bytes));
    FTH_TRY(fth_plan_sum_over_peers(run, e->host, e->count));
    FTH_TRY(cuda_copy_in(&e->device->base, e->sums, e->host, size_bytes));
out:
    return status;
}

static fth_status add_exchange(fth_plan *plan, fth_plan_value sums, int64_t channels)
{
    fth_status status = FTH_OK;
    exchange *state = NULL;
    fth_step step = {.bind = bind_exchange, .run = run_exchange};
    const size_t count = fth_batch_norm_sum_count(channels);
    FTH_TRY(fth_allocate(1, sizeof *state + count * sizeof(double), &state));
    *state = (exchange){.device = cuda_device_of(plan), .value = sums, .count = count};
    cuda_list_values(&step, (fth_plan_value[]){sums, sums}, 2, 1);
    snprintf(step.name, sizeof step.name, "batch_norm sums over peers");
    step.state = state;
    FTH_TRY(fth_plan_add_step(plan, &step));
out:
    return status;
}

static fth_status add_sums(fth_plan *plan, const cuda_norm *norm, fth_plan_value *sums)
{
    return cuda_add_scratch(plan, fth_batch_norm_sum_count(norm->logical) * sizeof(double), sums);
}

/* Mean and variance of this part become those of the whole batch, and move the running ones. */
static fth_status add_whole_statistics(fth_plan *plan, const fth_node *node, const cuda_norm *norm)
{
    fth_status status = FTH_OK;
    const fth_plan_value mean = fth_plan_value_of(plan, node->outputs[1]);
    const fth_plan_value variance = fth_plan_value_of(plan, node->outputs[2]);
    fth_plan_value sums;
    FTH_TRY(add_sums(plan, norm, &sums));
    cuda_call pack = {.run = run_pack, .values = {mean, variance, sums}, .value_count = 3, .write_count = 1};
    pack.norm = *norm;
    FTH_TRY(cuda_add_call(plan, "batch_norm sums", &pack));
    FTH_TRY(add_exchange(plan, sums, norm->logical));
    cuda_call unpack = {.run = run_unpack,
                        .values = {sums, mean, variance, fth_plan_value_of(plan, node->inputs[RUNNING_MEAN]),
                                   fth_plan_value_of(plan, node->inputs[RUNNING_VARIANCE])},
                        .value_count = 5,
                        .write_count = 4};
    unpack.norm = *norm;
    FTH_TRY(cuda_add_call(plan, "batch_norm statistics of the whole batch", &unpack));
out:
    return status;
}

/* What stands for dscale and dshift in the gradient of x: those of the whole batch. */
static fth_status add_whole_gradient_sums(fth_plan *plan, const fth_node *node, const cuda_norm *norm,
                                          fth_plan_value *dscale, fth_plan_value *dshift)
{
    fth_status status = FTH_OK;
    fth_plan_value sums;
    FTH_TRY(add_sums(plan, norm, &sums));
    FTH_TRY(cuda_add_scratch(plan, (size_t)norm->logical * sizeof(float), dscale));
    FTH_TRY(cuda_add_scratch(plan, (size_t)norm->logical * sizeof(float), dshift));
    cuda_call pack = {
        .run = run_gradient_pack,
        .values = {fth_plan_value_of(plan, node->outputs[1]), fth_plan_value_of(plan, node->outputs[2]), sums},
        .value_count = 3,
        .write_count = 1};
    pack.norm = *norm;
    FTH_TRY(cuda_add_call(plan, "batch_norm_grad sums for peers", &pack));
    FTH_TRY(add_exchange(plan, sums, norm->logical));
    cuda_call unpack = {
        .run = run_gradient_unpack, .values = {sums, *dscale, *dshift}, .value_count = 3, .write_count = 2};
    unpack.norm = *norm;
    FTH_TRY(cuda_add_call(plan, "batch_norm_grad sums of the whole batch", &unpack));
out:
    return status;
}

/* ---- forward ---- */

static cudaError_t run_apply(const cuda_call *call)
{
    cuda_norm norm = call->norm;
    norm.scale = call->data[1];
    norm.shift = call->data[2];
    return cuda_launch_norm_apply(&call->device->launch, &norm, call->data[3], call->data[4], call->data[0],
                                  call->data[5], call->data[6], call->data[7]);
}

static cuda_norm describe(const fth_batch_norm_attributes *a, const cuda_layout *layout)
{
    return (cuda_norm){.type = layout->type,
                       .rows = cuda_rows(layout),
                       .channels = layout->channels,
                       .logical = layout->c,
                       .epsilon = a->epsilon,
                       .momentum = a->momentum,
                       .relu = a->relu};
}

static fth_status add_statistics(fth_plan *plan, const fth_node *node, const cuda_norm *norm, fth_plan_value x)
{
    fth_status status = FTH_OK;
    const bool whole = fth_plan_get_options(plan).synchronized;
    fth_plan_value scratch;
    size_t floats = cuda_reduction_floats(&cuda_device_of(plan)->launch, norm->rows, norm->channels, norm->type);
    FTH_TRY(cuda_fix_plain(plan, node->outputs[1]));
    FTH_TRY(cuda_fix_plain(plan, node->outputs[2]));
    FTH_TRY(cuda_add_scratch(plan, floats * sizeof(float), &scratch));
    cuda_call call = {
        .run = run_statistics,
        .values = {x, fth_plan_value_of(plan, node->outputs[1]), fth_plan_value_of(plan, node->outputs[2]),
                   whole ? FTH_NO_PLAN_VALUE : fth_plan_value_of(plan, node->inputs[RUNNING_MEAN]),
                   whole ? FTH_NO_PLAN_VALUE : fth_plan_value_of(plan, node->inputs[RUNNING_VARIANCE]), scratch},
        .value_count = 6,
        .write_count = 5};
    call.norm = *norm;
    FTH_TRY(cuda_add_call(plan, "batch_norm statistics", &call));
    if (whole)
        FTH_TRY(add_whole_statistics(plan, node, norm));
out:
    return status;
}

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_batch_norm_attributes *a = node->attributes;
    const bool training = fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN && !a->fixed;
    const cuda_layout layout = cuda_standard(plan, node->inputs[X]);
    const cuda_norm norm = describe(a, &layout);
    fth_plan_value x, y, residual = FTH_NO_PLAN_VALUE, mask = FTH_NO_PLAN_VALUE;
    FTH_TRY(cuda_read(plan, node->inputs[X], &x));
    if (a->residual)
        FTH_TRY(cuda_read(plan, node->inputs[RESIDUAL], &residual));
    if (training)
        FTH_TRY(add_statistics(plan, node, &norm, x));
    if (a->residual && a->relu && fth_plan_is_used(plan, node->outputs[3])) {
        const cuda_layout bits = {.type = CUDA_TYPE_U8, .n = 1, .c = 1, .h = 1, .w = 1, .batch = 1, .channels = 1};
        mask = fth_plan_value_of(plan, node->outputs[3]);
        FTH_TRY(fth_plan_set_layout(plan, mask, &bits, sizeof bits,
                                    cuda_norm_mask_bytes(norm.type, norm.rows, norm.channels)));
    }
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &y));
    fth_plan_may_overwrite(plan, y, x);
    cuda_call call = {.run = run_apply,
                      .values = {x, fth_plan_value_of(plan, node->inputs[SCALE]),
                                 fth_plan_value_of(plan, node->inputs[SHIFT]),
                                 training ? fth_plan_value_of(plan, node->outputs[1])
                                          : fth_plan_value_of(plan, node->inputs[RUNNING_MEAN]),
                                 training ? fth_plan_value_of(plan, node->outputs[2])
                                          : fth_plan_value_of(plan, node->inputs[RUNNING_VARIANCE]),
                                 residual, y, mask},
                      .value_count = 8,
                      .write_count = 2};
    call.norm = norm;
    FTH_TRY(cuda_add_call(plan, a->residual ? "batch_norm + residual" : "batch_norm", &call));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    return status;
}

/* ---- backward ---- */

static cudaError_t run_reduce(const cuda_call *call)
{
    cuda_norm norm = call->norm;
    norm.scale = call->data[3];
    norm.shift = call->data[4];
    norm.mean = call->data[5];
    norm.variance = call->data[6];
    return cuda_launch_norm_reduce(&call->device->launch, &norm, call->data[0], call->data[1], call->data[2],
                                   call->data[7], call->data[8], call->data[9], call->data[10], call->data[11]);
}

static cudaError_t run_gradient(const cuda_call *call)
{
    cuda_norm norm = call->norm;
    norm.scale = call->data[2];
    norm.shift = call->data[3];
    norm.mean = call->data[4];
    norm.variance = call->data[5];
    return cuda_launch_norm_gradient(&call->device->launch, &norm, call->data[0], call->data[1], norm.relu,
                                     call->data[6], call->data[7], call->data[8]);
}

/* The gradient op is not given the shift, which y's sign needs: it stands at the forward node. */
static fth_status find_shift(const fth_plan *plan, const fth_node *node, fth_value *shift)
{
    const fth_graph *graph = fth_plan_graph(plan);
    int producer = fth_graph_value(graph, node->inputs[1])->producer;
    if (producer < 0 || fth_graph_node(graph, producer)->op != &fth_op_batch_norm)
        return fth_fail(FTH_UNSUPPORTED, "a batch norm's gradient without its batch norm");
    *shift = fth_graph_node(graph, producer)->inputs[SHIFT];
    return FTH_OK;
}

static fth_status prepare_grad(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_batch_norm_attributes *a = node->attributes;
    const cuda_layout layout = cuda_standard(plan, node->inputs[0]);
    const bool bits = a->relu && a->residual;
    cuda_norm norm = describe(a, &layout);
    fth_value shift = FTH_NO_VALUE, terms[2];
    fth_plan_value x, dy, dy2 = FTH_NO_PLAN_VALUE, dx, scratch, g = FTH_NO_PLAN_VALUE;
    FTH_TRY(find_shift(plan, node, &shift));
    FTH_TRY(cuda_read(plan, node->inputs[0], &x));
    if (cuda_is_deferred_sum(plan, node->inputs[2], terms)) {
        FTH_TRY(cuda_read(plan, terms[0], &dy));
        FTH_TRY(cuda_read(plan, terms[1], &dy2));
    } else {
        terms[0] = node->inputs[2];
        FTH_TRY(cuda_read(plan, node->inputs[2], &dy));
    }
    if (bits) { /* the gradient before the ReLU: the residual's too */
        g = fth_plan_value_of(plan, node->outputs[3]);
        FTH_TRY(cuda_set_layout(plan, g, &layout));
        fth_plan_may_overwrite(plan, g, dy);
    }
    FTH_TRY(cuda_fix_plain(plan, node->outputs[1]));
    FTH_TRY(cuda_fix_plain(plan, node->outputs[2]));
    size_t floats = cuda_reduction_floats(&cuda_device_of(plan)->launch, norm.rows, norm.channels, norm.type);
    FTH_TRY(cuda_add_scratch(plan, floats * sizeof(float), &scratch));
    cuda_call reduce = {.run = run_reduce,
                        .values = {x, dy, dy2, fth_plan_value_of(plan, node->inputs[3]), fth_plan_value_of(plan, shift),
                                   fth_plan_value_of(plan, node->inputs[4]), fth_plan_value_of(plan, node->inputs[5]),
                                   bits ? fth_plan_value_of(plan, node->inputs[6]) : FTH_NO_PLAN_VALUE, g,
                                   fth_plan_value_of(plan, node->outputs[1]), fth_plan_value_of(plan, node->outputs[2]),
                                   scratch},
                        .value_count = 12,
                        .write_count = 4};
    reduce.norm = norm;
    FTH_TRY(cuda_add_call(plan, fth_plan_value_exists(dy2) ? "batch_norm_grad sums + add" : "batch_norm_grad sums",
                          &reduce));
    fth_plan_value dscale = fth_plan_value_of(plan, node->outputs[1]);
    fth_plan_value dshift = fth_plan_value_of(plan, node->outputs[2]);
    if (a->fixed)
        dscale = dshift = FTH_NO_PLAN_VALUE;
    else if (fth_plan_get_options(plan).synchronized)
        FTH_TRY(add_whole_gradient_sums(plan, node, &norm, &dscale, &dshift));
    norm.relu = a->relu && !bits; /* g is masked already */
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &dx));
    cuda_call gradient = {.run = run_gradient,
                          .values = {x, bits ? g : dy, fth_plan_value_of(plan, node->inputs[3]),
                                     fth_plan_value_of(plan, shift), fth_plan_value_of(plan, node->inputs[4]),
                                     fth_plan_value_of(plan, node->inputs[5]), dscale, dshift, dx},
                          .value_count = 9,
                          .write_count = 1};
    gradient.norm = norm;
    FTH_TRY(cuda_add_call(plan, "batch_norm_grad", &gradient));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), dx));
out:
    return status;
}

const fth_kernel cuda_batch_norm = {&fth_op_batch_norm, prepare_forward};
const fth_kernel cuda_batch_norm_grad = {&fth_op_batch_norm_grad, prepare_grad};
