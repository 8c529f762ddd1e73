/* Pooling: see pool.cu. */
#include "backend/cuda/kernel_list.h"
#include "backend/cuda/step.h"

static void set_images(cuda_pool *pool, const cuda_layout *x, const cuda_layout *y)
{
    pool->type = x->type;
    pool->batch = x->n;
    pool->channels = x->channels;
    pool->height = x->h;
    pool->width = x->w;
    pool->out_height = y->h;
    pool->out_width = y->w;
}

static cuda_pool describe(const fth_pool_attributes *a, const cuda_layout *x, const cuda_layout *y)
{
    cuda_pool pool = {.count_padding = a->count_padding};
    set_images(&pool, x, y);
    for (int axis = 0; axis < 2; axis++) {
        pool.kernel[axis] = a->kernel[axis];
        pool.stride[axis] = a->stride[axis];
        pool.padding[axis] = a->padding[axis];
    }
    return pool;
}

/* The image's layout with the channels of the other side: a pool keeps them. */
static cuda_layout with_channels(const fth_plan *plan, fth_value value, const cuda_layout *other)
{
    fth_type type = fth_plan_type(plan, value);
    return cuda_channels_last(&type.shape, other->type, other->channels);
}

/* ---- maximum ---- */

static cudaError_t run_max_pool(const cuda_call *call)
{
    return cuda_launch_max_pool(call->device->launch.stream, &call->pool, call->data[0], call->data[1], call->data[2]);
}

static fth_status prepare_max_pool(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_pool_attributes *a = node->attributes;
    const bool training = fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN;
    cuda_layout out = cuda_standard(plan, node->outputs[0]), in = with_channels(plan, node->inputs[0], &out);
    fth_plan_value x, y, where = FTH_NO_PLAN_VALUE;
    FTH_REQUIRE((int64_t)a->kernel[0] * a->kernel[1] <= 256, FTH_UNSUPPORTED,
                "max_pool over %dx%d; at most 256 elements on CUDA", a->kernel[0], a->kernel[1]);
    FTH_TRY(cuda_read_as(plan, fth_plan_value_of(plan, node->inputs[0]), &in, &x));
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &out, &y));
    if (training) {
        cuda_layout bytes = out;
        bytes.type = CUDA_TYPE_U8;
        where = fth_plan_value_of(plan, node->outputs[1]);
        FTH_TRY(cuda_set_layout(plan, where, &bytes));
    }
    cuda_call call = {.run = run_max_pool, .values = {x, y, where}, .value_count = 3, .write_count = 2};
    call.pool = describe(a, &in, &out);
    FTH_TRY(cuda_add_call(plan, "max_pool", &call));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    return status;
}

static cudaError_t run_max_pool_grad(const cuda_call *call)
{
    return cuda_launch_max_pool_grad(call->device->launch.stream, &call->pool, call->data[0], call->data[1],
                                     call->data[2]);
}

/* True if no reader of `value` can have written over it: it may be read again later than the graph
 * says. */
static bool stays_intact(const fth_plan *plan, fth_value value)
{
    static const fth_op *const harmless[] = {&fth_op_convolution,
                                             &fth_op_convolution_grad_weights,
                                             &fth_op_linear,
                                             &fth_op_linear_grad_weights,
                                             &fth_op_max_pool,
                                             &fth_op_average_pool,
                                             &fth_op_adaptive_average_pool};
    const fth_graph *graph = fth_plan_graph(plan);
    for (int n = 0; n < fth_graph_node_count(graph); n++) {
        const fth_node *node = fth_graph_node(graph, n);
        bool reads = false, fine = node->op == &fth_op_reshape && cuda_standard(plan, value).nhwc; /* makes a copy */
        for (int i = 0; i < node->input_count; i++)
            reads = reads || node->inputs[i] == value;
        for (size_t i = 0; i < FTH_COUNT_OF(harmless); i++)
            fine = fine || node->op == harmless[i];
        if (reads && !fine)
            return false;
    }
    return true;
}

/* A ReLU before the pool cuts the gradient where the pooled value is zero: it can be applied to the
 * small gradient, and relu_grad (elementwise.c) does that and calls back here for the rest. */
const fth_node *cuda_deferred_pool(const fth_plan *plan, fth_value dx, fth_value *pooled)
{
    const fth_graph *graph = fth_plan_graph(plan);
    int producer = fth_graph_value(graph, dx)->producer;
    if (producer < 0 || fth_graph_node(graph, producer)->op != &fth_op_max_pool_grad)
        return NULL;
    const fth_node *node = fth_graph_node(graph, producer), *reader = cuda_only_reader(plan, dx);
    int forward = fth_graph_value(graph, node->inputs[1])->producer;
    if (!reader || reader->op != &fth_op_relu_grad || reader->inputs[1] != dx || forward < 0 ||
        fth_plan_storage(plan, fth_plan_value_of(plan, dx)) != FTH_IN_ARENA)
        return NULL;
    const fth_node *pool = fth_graph_node(graph, forward);
    if (pool->op != &fth_op_max_pool || pool->inputs[0] != reader->inputs[0])
        return NULL;
    *pooled = pool->outputs[0];
    return stays_intact(plan, *pooled) ? node : NULL;
}

fth_status cuda_add_max_pool_grad(fth_plan *plan, const fth_node *node, fth_plan_value dy, fth_value result)
{
    fth_status status = FTH_OK;
    const cuda_layout out = cuda_standard(plan, node->inputs[0]), in = with_channels(plan, result, &out);
    const cuda_layout wanted = cuda_standard(plan, result);
    fth_plan_value dx, standard;
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, result), &wanted, &standard));
    FTH_TRY(cuda_begin_write(plan, standard, &in, &dx));
    cuda_call call = {.run = run_max_pool_grad,
                      .values = {dy, fth_plan_value_of(plan, node->inputs[1]), dx},
                      .value_count = 3,
                      .write_count = 1};
    call.pool = describe(node->attributes, &in, &out);
    FTH_TRY(cuda_add_call(plan, "max_pool_grad", &call));
    FTH_TRY(cuda_end_write(plan, standard, dx));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, result), standard));
out:
    return status;
}

static fth_status prepare_max_pool_grad(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    fth_value pooled;
    fth_plan_value dy;
    if (cuda_deferred_pool(plan, node->outputs[0], &pooled))
        return FTH_OK;
    FTH_TRY(cuda_read(plan, node->inputs[0], &dy));
    FTH_TRY(cuda_add_max_pool_grad(plan, node, dy, node->outputs[0]));
out:
    return status;
}

/* ---- average ---- */

static cudaError_t run_average(const cuda_call *call)
{
    return cuda_launch_average_pool(call->device->launch.stream, &call->pool, call->data[0], call->data[1]);
}

static cudaError_t run_average_grad(const cuda_call *call)
{
    return cuda_launch_average_pool_grad(call->device->launch.stream, &call->pool, call->data[0], call->data[1]);
}

static cuda_pool describe_average(const fth_node *node, const cuda_layout *x, const cuda_layout *y)
{
    if (node->op == &fth_op_average_pool || node->op == &fth_op_average_pool_grad)
        return describe(node->attributes, x, y);
    cuda_pool pool = {.adaptive = true};
    set_images(&pool, x, y);
    return pool;
}

static fth_status prepare_average(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const cuda_layout out = cuda_standard(plan, node->outputs[0]), in = with_channels(plan, node->inputs[0], &out);
    fth_plan_value x, y;
    FTH_TRY(cuda_read_as(plan, fth_plan_value_of(plan, node->inputs[0]), &in, &x));
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &out, &y));
    cuda_call call = {.run = run_average, .values = {x, y}, .value_count = 2, .write_count = 1};
    call.pool = describe_average(node, &in, &out);
    FTH_TRY(cuda_add_call(plan, node->op->name, &call));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    return status;
}

static fth_status prepare_average_grad(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const cuda_layout out = cuda_standard(plan, node->inputs[0]), in = with_channels(plan, node->outputs[0], &out);
    const cuda_layout wanted = cuda_standard(plan, node->outputs[0]);
    fth_plan_value dy, dx, standard;
    FTH_TRY(cuda_read(plan, node->inputs[0], &dy));
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &wanted, &standard));
    FTH_TRY(cuda_begin_write(plan, standard, &in, &dx));
    cuda_call call = {.run = run_average_grad, .values = {dy, dx}, .value_count = 2, .write_count = 1};
    call.pool = describe_average(node, &in, &out);
    FTH_TRY(cuda_add_call(plan, node->op->name, &call));
    FTH_TRY(cuda_end_write(plan, standard, dx));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), standard));
out:
    return status;
}

const fth_kernel cuda_max_pool = {&fth_op_max_pool, prepare_max_pool};
const fth_kernel cuda_max_pool_grad = {&fth_op_max_pool_grad, prepare_max_pool_grad};
const fth_kernel cuda_average_pool = {&fth_op_average_pool, prepare_average};
const fth_kernel cuda_average_pool_grad = {&fth_op_average_pool_grad, prepare_average_grad};
const fth_kernel cuda_adaptive_average_pool = {&fth_op_adaptive_average_pool, prepare_average};
const fth_kernel cuda_adaptive_average_pool_grad = {&fth_op_adaptive_average_pool_grad, prepare_average_grad};
