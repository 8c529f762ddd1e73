/* Activations and sums. Two things are left to a neighbour where that saves passes over memory: a
 * sum that only a batch or layer norm's gradient reads is made by that (batch_norm.c,
 * layer_norm.c), and the gradient of a bias is made by the gradient before it, of an activation or
 * a layer norm. Both follow from the graph alone, so each side knows what the other does. */
#include "backend/cuda/kernel_list.h"
#include "backend/cuda/step.h"
#include "backend/cuda/weights.h"

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
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, y), &layout, &result));
    fth_plan_may_overwrite(plan, result, left);
    fth_plan_may_overwrite(plan, result, right);
    cuda_call call = {.run = run_elementwise, .values = {left, right, result}, .value_count = 3, .write_count = 1};
    call.sizes[0] = cuda_layout_elements(&layout);
    call.type = layout.type;
    call.what = (int)what;
    FTH_TRY(cuda_add_call(plan, name, &call));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, y), result));
out:
    return status;
}

#define PREPARE(name, what)                                                                                            \
    static fth_status prepare_##name(fth_plan *plan, const fth_node *node)                                             \
    {                                                                                                                  \
        return add_elementwise(plan, #name, what, node->inputs[0],                                                     \
                               node->input_count > 1 ? node->inputs[1] : FTH_NO_VALUE, node->outputs[0]);              \
    }
PREPARE(relu, CUDA_RELU)
PREPARE(gelu, CUDA_GELU)
PREPARE(gelu_tanh, CUDA_GELU_TANH)
PREPARE(tanh, CUDA_TANH)
PREPARE(tanh_grad, CUDA_TANH_GRAD)
#undef PREPARE

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

/* True if `node` reads `value` as a gradient that may come as two terms. */
static bool adds_two(const fth_node *node, fth_value value)
{
    if (node->op == &fth_op_layer_norm_grad)
        return node->inputs[1] == value;
    if (node->op != &fth_op_batch_norm_grad || node->inputs[2] != value)
        return false;
    const fth_batch_norm_attributes *a = node->attributes;
    return a->relu && a->residual;
}

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
    if (!reader || !adds_two(reader, value))
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
    return cuda_launch_column_sums(&call->device->launch, (cuda_elementwise)call->what, call->type, call->sizes[0],
                                   call->sizes[1], call->sizes[2], call->data[0], call->data[1], call->data[2],
                                   call->data[3], call->data[4]);
}

/* `sums` runs on into the `behind_count` values of `behind`. */
static fth_status add_column_sums(fth_plan *plan, const char *name, cuda_elementwise what, const cuda_layout *layout,
                                  fth_plan_value x, fth_plan_value y, fth_plan_value dx, fth_plan_value sums,
                                  const fth_value *behind, int behind_count)
{
    fth_status status = FTH_OK;
    fth_plan_value scratch;
    size_t floats =
        cuda_reduction_floats(&cuda_device_of(plan)->launch, cuda_rows(layout), layout->channels, layout->type);
    FTH_TRY(cuda_add_scratch(plan, floats * sizeof(float), &scratch));
    cuda_call call = {.run = run_column_sums,
                      .values = {x, y, dx, sums, scratch},
                      .value_count = 5 + behind_count,
                      .write_count = 3 + behind_count};
    for (int i = 0; i < behind_count; i++)
        call.values[5 + i] = fth_plan_value_of(plan, behind[i]);
    call.sizes[0] = cuda_rows(layout);
    call.sizes[1] = layout->channels;
    call.sizes[2] = layout->c;
    call.type = layout->type;
    call.what = (int)what;
    FTH_TRY(cuda_add_call(plan, name, &call));
out:
    return status;
}

static cudaError_t run_copy(const cuda_call *call)
{
    return cudaMemcpyAsync(call->data[1], (const char *)call->data[0] + call->sizes[0], (size_t)call->sizes[1],
                           cudaMemcpyDeviceToDevice, call->device->launch.stream);
}

/* Sums where no neighbour may be written over, then each part of them to its place. */
static fth_status add_parted_sums(fth_plan *plan, const cuda_layout *layout, fth_plan_value dy,
                                  const fth_value *dbiases, int count)
{
    fth_status status = FTH_OK;
    const int64_t each = layout->c / count * (int64_t)sizeof(float);
    fth_plan_value sums;
    FTH_TRY(cuda_add_scratch(plan, (size_t)(count * each), &sums));
    FTH_TRY(add_column_sums(plan, "bias_grad", CUDA_NOTHING, layout, dy, FTH_NO_PLAN_VALUE, FTH_NO_PLAN_VALUE, sums,
                            NULL, 0));
    for (int i = 0; i < count; i++) {
        if (!fth_plan_is_used(plan, dbiases[i]))
            continue;
        FTH_TRY(cuda_fix_plain(plan, dbiases[i]));
        cuda_call call = {
            .run = run_copy, .values = {sums, fth_plan_value_of(plan, dbiases[i])}, .value_count = 2, .write_count = 1};
        call.sizes[0] = i * each;
        call.sizes[1] = each;
        FTH_TRY(cuda_add_call(plan, "bias_grad, copied", &call));
    }
out:
    return status;
}

fth_status cuda_add_bias_gradient(fth_plan *plan, fth_plan_value dy, const fth_value *dbiases, int count)
{
    fth_status status = FTH_OK;
    const cuda_layout layout = *cuda_layout_of(plan, dy);
    if (count > 1 && !cuda_gradients_in_a_row(plan, dbiases, count))
        return add_parted_sums(plan, &layout, dy, dbiases, count);
    FTH_TRY(cuda_fix_plain(plan, dbiases[0]));
    FTH_TRY(add_column_sums(plan, "bias_grad", CUDA_NOTHING, &layout, dy, FTH_NO_PLAN_VALUE, FTH_NO_PLAN_VALUE,
                            fth_plan_value_of(plan, dbiases[0]), dbiases + 1, count - 1));
out:
    return status;
}

/* True if the op that computes `dy` can sum it on the way. */
static bool can_sum(const fth_node *node, fth_value dy)
{
    return node->outputs[0] == dy && (node->op == &fth_op_relu_grad || node->op == &fth_op_gelu_grad ||
                                      node->op == &fth_op_gelu_tanh_grad || node->op == &fth_op_layer_norm_grad);
}

const fth_node *cuda_bias_taker(const fth_plan *plan, fth_value dy)
{
    const fth_graph *graph = fth_plan_graph(plan);
    int producer = fth_graph_value(graph, dy)->producer;
    if (producer < 0 || !can_sum(fth_graph_node(graph, producer), dy))
        return NULL;
    for (int n = producer + 1; n < fth_graph_node_count(graph); n++) {
        const fth_node *node = fth_graph_node(graph, n);
        if ((node->op == &fth_op_convolution_grad_weights || node->op == &fth_op_linear_grad_weights) &&
            node->inputs[1] == dy)
            return fth_plan_storage(plan, fth_plan_value_of(plan, node->outputs[1])) == FTH_IN_GRADIENTS ? node : NULL;
    }
    return NULL;
}

/* dx of an activation from dy and what its gradient reads, and its sums where a bias wants them. */
static fth_status add_activation_grad(fth_plan *plan, cuda_elementwise what, const fth_node *taker,
                                      const cuda_layout *layout, fth_plan_value read, fth_plan_value dy,
                                      fth_plan_value dx)
{
    fth_status status = FTH_OK;
    if (taker) {
        FTH_TRY(cuda_fix_plain(plan, taker->outputs[1]));
        FTH_TRY(add_column_sums(plan, "activation_grad + bias_grad", what, layout, dy, read, dx,
                                fth_plan_value_of(plan, taker->outputs[1]), NULL, 0));
        goto out;
    }
    cuda_call call = {.run = run_elementwise, .values = {read, dy, dx}, .value_count = 3, .write_count = 1};
    call.sizes[0] = cuda_layout_elements(layout);
    call.type = layout->type;
    call.what = (int)what;
    FTH_TRY(cuda_add_call(plan, "activation_grad", &call));
out:
    return status;
}

static fth_status prepare_activation_grad(fth_plan *plan, cuda_elementwise what, const fth_node *node)
{
    fth_status status = FTH_OK;
    const cuda_layout layout = cuda_standard(plan, node->outputs[0]);
    fth_plan_value read, dy, dx;
    FTH_TRY(cuda_read(plan, node->inputs[0], &read));
    FTH_TRY(cuda_read(plan, node->inputs[1], &dy));
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &dx));
    fth_plan_may_overwrite(plan, dx, dy);
    fth_plan_may_overwrite(plan, dx, read);
    FTH_TRY(add_activation_grad(plan, what, cuda_bias_taker(plan, node->outputs[0]), &layout, read, dy, dx));
    FTH_TRY(cuda_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), dx));
out:
    return status;
}

static fth_status prepare_gelu_grad(fth_plan *plan, const fth_node *node)
{
    return prepare_activation_grad(plan, CUDA_GELU_GRAD, node);
}

static fth_status prepare_gelu_tanh_grad(fth_plan *plan, const fth_node *node)
{
    return prepare_activation_grad(plan, CUDA_GELU_TANH_GRAD, node);
}

static fth_status prepare_relu_grad(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    fth_value pooled = FTH_NO_VALUE;
    const fth_node *pool = cuda_deferred_pool(plan, node->inputs[1], &pooled);
    fth_plan_value y, dy, dx;
    if (!pool)
        return prepare_activation_grad(plan, CUDA_RELU_GRAD, node);
    const cuda_layout small = cuda_standard(plan, pool->inputs[0]);
    FTH_TRY(cuda_read(plan, pooled, &y));
    FTH_TRY(cuda_read(plan, pool->inputs[0], &dy));
    FTH_TRY(fth_plan_add_value(plan, &dx));
    FTH_TRY(cuda_set_layout(plan, dx, &small));
    FTH_TRY(add_activation_grad(plan, CUDA_RELU_GRAD, cuda_bias_taker(plan, node->outputs[0]), &small, y, dy, dx));
    FTH_TRY(cuda_add_max_pool_grad(plan, pool, dx, node->outputs[0]));
out:
    return status;
}

const fth_kernel cuda_relu = {&fth_op_relu, prepare_relu};
const fth_kernel cuda_relu_grad = {&fth_op_relu_grad, prepare_relu_grad};
const fth_kernel cuda_gelu = {&fth_op_gelu, prepare_gelu};
const fth_kernel cuda_gelu_grad = {&fth_op_gelu_grad, prepare_gelu_grad};
const fth_kernel cuda_gelu_tanh = {&fth_op_gelu_tanh, prepare_gelu_tanh};
const fth_kernel cuda_gelu_tanh_grad = {&fth_op_gelu_tanh_grad, prepare_gelu_tanh_grad};
const fth_kernel cuda_tanh = {&fth_op_tanh, prepare_tanh};
const fth_kernel cuda_tanh_grad = {&fth_op_tanh_grad, prepare_tanh_grad};
const fth_kernel cuda_add = {&fth_op_add, prepare_add};
