/* Activations and sums. Two things are left to a neighbour where that saves passes over memory: a sum that only a batch
 * norm's gradient reads is made by that (batch_norm.c), and the gradient of a bias is made by the ReLU's gradient
 * before it. Both follow from the graph alone, so each side knows what the other does. */
#include "backend/cuda/kernel_list.h"
#include "backend/cuda/step.h"

static cudaError_t run_elementwise(const cuda_call *call)
{
    return cuda_launch_elementwise(&call->device->launch, (cuda_elementwise)call->what, call->type,
                                   (size_t)call->sizes[0], call->data[0], call->data[1], call->data[2]);
}

static fth_status add_elementwise(fth_plan *plan, const char *name, cuda_elementwise what, fth_value a, fth_value b,
                                  fth_value y)
{
    fth_status status = FTH_OK;
    const cuda_layout layout = cuda_standard(plan, y);
    fth_plan_value left, right = FTH_NO_PLAN_VALUE, result;
    FTH_TRY(cuda_read(plan, a, &left));
    if (b != FTH_NO_VALUE)
        FTH_TRY(cuda_read(plan, b, &right));
    /* a + a shares both inputs: writing over one is writing over the other, element by element, which is fine */
    if (!cuda_write_in_place(plan, a, left, y) && b != FTH_NO_VALUE)
        cuda_write_in_place(plan, b, right, y);
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, y), &layout, &result));
    cuda_call call = {.run = run_elementwise, .values = {left, right, result}, .value_count = 3, .write_count = 1};
    call.sizes[0] = cuda_layout_elements(&layout);
    call.type = layout.type;
    call.what = (int)what;
    FTH_TRY(cuda_add_call(plan, name, &call));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, y), result));
out:
    return status;
}

static fth_status prepare_relu(fth_plan *plan, const fth_node *node)
{
    return add_elementwise(plan, "relu", CUDA_RELU, node->inputs[0], FTH_NO_VALUE, node->outputs[0]);
}

static fth_status prepare_gelu(fth_plan *plan, const fth_node *node)
{
    return add_elementwise(plan, "gelu", CUDA_GELU, node->inputs[0], FTH_NO_VALUE, node->outputs[0]);
}

static fth_status prepare_gelu_grad(fth_plan *plan, const fth_node *node)
{
    return add_elementwise(plan, "gelu_grad", CUDA_GELU_GRAD, node->inputs[0], node->inputs[1], node->outputs[0]);
}

/* ---- biases ---- */

static cudaError_t run_bias(const cuda_call *call)
{
    return cuda_launch_bias(&call->device->launch, call->type, call->sizes[0], call->sizes[1], call->sizes[2],
                            call->data[0], call->data[1], call->what != 0, call->data[2]);
}

fth_status cuda_add_bias(fth_plan *plan, const cuda_layout *y_layout, fth_plan_value y, fth_plan_value bias, bool relu)
{
    cuda_call call = {.run = run_bias, .values = {y, bias, y}, .value_count = 3, .write_count = 1};
    call.sizes[0] = cuda_rows(y_layout);
    call.sizes[1] = y_layout->channels;
    call.sizes[2] = y_layout->c;
    call.type = y_layout->type;
    call.what = relu;
    return cuda_add_call(plan, relu ? "bias, relu" : "bias", &call);
}

/* ---- sums ---- */

bool cuda_is_deferred_sum(const fth_plan *plan, fth_value value, fth_value terms[2])
{
    const fth_graph *graph = fth_plan_graph(plan);
    int producer = fth_graph_value(graph, value)->producer;
    if (producer < 0)
        return false;
    const fth_node *sum = fth_graph_node(graph, producer);
    if (sum->op != &fth_op_add || ((const fth_add_attributes *)sum->attributes)->relu ||
        fth_plan_storage(plan, fth_plan_value_of(plan, value)) != FTH_IN_ARENA)
        return false;
    const fth_node *reader = cuda_only_reader(plan, value);
    if (!reader || reader->op != &fth_op_batch_norm_grad || reader->inputs[2] != value)
        return false;
    const fth_batch_norm_attributes *a = reader->attributes;
    if (!a->relu || !a->residual)
        return false;
    terms[0] = sum->inputs[0];
    terms[1] = sum->inputs[1];
    /* A term that is itself left to its reader is not there to be read. */
    fth_value inner[2];
    return !cuda_is_deferred_sum(plan, terms[0], inner) && !cuda_is_deferred_sum(plan, terms[1], inner);
}

static fth_status prepare_add(fth_plan *plan, const fth_node *node)
{
    const fth_add_attributes *a = node->attributes;
    fth_value terms[2];
    if (cuda_is_deferred_sum(plan, node->outputs[0], terms))
        return FTH_OK;
    return add_elementwise(plan, a->relu ? "add + relu" : "add", a->relu ? CUDA_ADD_RELU : CUDA_ADD, node->inputs[0],
                           node->inputs[1], node->outputs[0]);
}

/* ---- the gradient of a bias ---- */

static cudaError_t run_column_sums(const cuda_call *call)
{
    return cuda_launch_column_sums(&call->device->launch, call->type, call->sizes[0], call->sizes[1], call->sizes[2],
                                   call->data[0], call->data[1], call->data[2], call->data[3], call->data[4]);
}

static fth_status add_column_sums(fth_plan *plan, const char *name, const cuda_layout *layout, fth_plan_value x,
                                  fth_plan_value y, fth_plan_value dx, fth_value sums)
{
    fth_status status = FTH_OK;
    fth_plan_value scratch;
    size_t floats =
        cuda_reduction_floats(&cuda_device_of(plan)->launch, cuda_rows(layout), layout->channels, layout->type);
    FTH_TRY(cuda_fix_plain(plan, sums));
    FTH_TRY(cuda_add_scratch(plan, floats * sizeof(float), &scratch));
    cuda_call call = {.run = run_column_sums,
                      .values = {x, y, dx, fth_plan_value_of(plan, sums), scratch},
                      .value_count = 5,
                      .write_count = 3};
    call.sizes[0] = cuda_rows(layout);
    call.sizes[1] = layout->channels;
    call.sizes[2] = layout->c;
    call.type = layout->type;
    FTH_TRY(cuda_add_call(plan, name, &call));
out:
    return status;
}

fth_status cuda_add_bias_gradient(fth_plan *plan, fth_plan_value dy, fth_value dbias)
{
    const cuda_layout layout = *cuda_layout_of(plan, dy);
    return add_column_sums(plan, "bias_grad", &layout, dy, FTH_NO_PLAN_VALUE, FTH_NO_PLAN_VALUE, dbias);
}

/* The first node that takes `dy` as the gradient of a weighted sum with a bias to train, or NULL. */
static const fth_node *bias_taker(const fth_plan *plan, fth_value dy)
{
    const fth_graph *graph = fth_plan_graph(plan);
    int producer = fth_graph_value(graph, dy)->producer;
    if (producer < 0 || fth_graph_node(graph, producer)->op != &fth_op_relu_grad)
        return NULL;
    for (int n = producer + 1; n < fth_graph_node_count(graph); n++) {
        const fth_node *node = fth_graph_node(graph, n);
        if ((node->op == &fth_op_convolution_grad_weights || node->op == &fth_op_linear_grad_weights) &&
            node->inputs[1] == dy)
            return fth_plan_storage(plan, fth_plan_value_of(plan, node->outputs[1])) == FTH_IN_GRADIENTS ? node : NULL;
    }
    return NULL;
}

bool cuda_relu_grad_makes_bias_gradient(const fth_plan *plan, fth_value dy, const fth_node *node)
{
    return bias_taker(plan, dy) == node;
}

/* dx = dy where y > 0, and its sums where a bias wants them */
static fth_status add_relu_grad(fth_plan *plan, const fth_node *taker, const cuda_layout *layout, fth_plan_value y,
                                fth_plan_value dy, fth_plan_value dx)
{
    if (taker)
        return add_column_sums(plan, "relu_grad + bias_grad", layout, dy, y, dx, taker->outputs[1]);
    cuda_call call = {.run = run_elementwise, .values = {y, dy, dx}, .value_count = 3, .write_count = 1};
    call.sizes[0] = cuda_layout_elements(layout);
    call.type = layout->type;
    call.what = CUDA_RELU_GRAD;
    return cuda_add_call(plan, "relu_grad", &call);
}

static fth_status prepare_relu_grad(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_node *taker = bias_taker(plan, node->outputs[0]);
    fth_value pooled = FTH_NO_VALUE;
    const fth_node *pool = cuda_deferred_pool(plan, node->inputs[1], &pooled);
    fth_plan_value y, dy, dx;
    if (pool) {
        const cuda_layout small = cuda_standard(plan, pool->inputs[0]);
        FTH_TRY(cuda_read(plan, pooled, &y));
        FTH_TRY(cuda_read(plan, pool->inputs[0], &dy));
        FTH_TRY(fth_plan_add_value(plan, &dx));
        FTH_TRY(cuda_set_layout(plan, dx, &small));
        FTH_TRY(add_relu_grad(plan, taker, &small, y, dy, dx));
        FTH_TRY(cuda_add_max_pool_grad(plan, pool, dx, node->outputs[0]));
        goto out;
    }
    if (!taker)
        return add_elementwise(plan, "relu_grad", CUDA_RELU_GRAD, node->inputs[0], node->inputs[1], node->outputs[0]);
    const cuda_layout layout = cuda_standard(plan, node->outputs[0]);
    FTH_TRY(cuda_read(plan, node->inputs[0], &y));
    FTH_TRY(cuda_read(plan, node->inputs[1], &dy));
    cuda_write_in_place(plan, node->inputs[1], dy, node->outputs[0]);
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &dx));
    FTH_TRY(add_relu_grad(plan, taker, &layout, y, dy, dx));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), dx));
out:
    return status;
}

const fth_kernel cuda_relu = {&fth_op_relu, prepare_relu};
const fth_kernel cuda_relu_grad = {&fth_op_relu_grad, prepare_relu_grad};
const fth_kernel cuda_gelu = {&fth_op_gelu, prepare_gelu};
const fth_kernel cuda_gelu_grad = {&fth_op_gelu_grad, prepare_gelu_grad};
const fth_kernel cuda_add = {&fth_op_add, prepare_add};
