/* The values of a program in the graph: parameters and buffers, inputs, constants, results, and ops
 * that wait for their reader. See lowering.h. */
#include <stdlib.h>
#include <string.h>

#include "exported/initial.h"
#include "exported/lowering_internal.h"

void lowering_release_value(lowered_value *value)
{
    fth_host_tensor_release(&value->constant);
}

/* ---- parameters and buffers ---- */

static fth_status shape_of_state(const fth_exported_value *value, fth_shape *shape)
{
    *shape = (fth_shape){.rank = value->rank};
    for (int i = 0; i < value->rank; i++) {
        if (value->dims[i].unknown || value->dims[i].batch || value->dims[i].length || value->dims[i].factor < 1)
            return fth_fail(FTH_UNSUPPORTED, "%s has no fixed size, or no elements", value->state_name);
        shape->dims[i] = value->dims[i].factor;
    }
    return FTH_OK;
}

static bool is_float(const fth_exported_value *value)
{
    return value->torch_dtype == FTH_TORCH_F16 || value->torch_dtype == FTH_TORCH_F32 ||
           value->torch_dtype == FTH_TORCH_F64 || value->torch_dtype == FTH_TORCH_BF16;
}

static bool is_counter(const fth_exported_value *value)
{
    static const char ending[] = "num_batches_tracked";
    const size_t length = value->state_name ? strlen(value->state_name) : 0;
    return !is_float(value) && value->rank == 0 && length >= sizeof ending - 1 &&
           strcmp(value->state_name + length - (sizeof ending - 1), ending) == 0;
}

/* Running statistics: what they are changes, so nothing is computed from them here. */
static bool is_updated(const lowering *l, int number)
{
    for (size_t n = 0; n < fth_exported_node_count(l->program); n++) {
        const fth_exported_node *node = fth_exported_get_node(l->program, n);
        for (size_t a = 0; a < node->argument_count; a++) {
            const fth_exported_argument *argument = &node->arguments[a];
            if (argument->kind == FTH_ARGUMENT_TENSOR && argument->tensor == number &&
                strncmp(argument->name, "running_", 8) == 0)
                return true;
        }
    }
    return false;
}

static fth_status add_parameter(lowering *l, int number, const fth_exported_value *value, const fth_shape *shape,
                                fth_value *added)
{
    fth_status status = FTH_OK;
    fth_initializer initializer = fth_exported_initializer(l->program, number);
    FTH_TRY(fth_graph_add_parameter(l->graph, value->state_name, *shape, initializer, added));
    if (!value->trainable)
        FTH_TRY(fth_graph_set_trainable(l->graph, *added, false));
out:
    return status;
}

static fth_status add_one(lowering *l, int number)
{
    fth_status status = FTH_OK;
    const fth_exported_value *value = fth_exported_get_value(l->program, number);
    lowered_value *lowered = &l->values[number];
    const bool parameter = value->kind == FTH_EXPORTED_PARAMETER;
    fth_shape shape;
    fth_value added;

    lowered->now = number;
    if (value->kind != FTH_EXPORTED_PARAMETER && value->kind != FTH_EXPORTED_BUFFER &&
        value->kind != FTH_EXPORTED_CONSTANT)
        goto out;
    if (is_counter(value)) {
        status = fth_graph_add_counter(l->graph, value->state_name);
        goto out;
    }
    if (value->same_as >= 0) { /* tied: added already */
        lowered->kind = l->values[value->same_as].kind;
        lowered->view = l->values[value->same_as].view;
        lowered->in_graph = l->values[value->same_as].in_graph;
        if (lowered->kind == LOWERED_CONSTANT)
            status = fth_host_tensor_of(value, &lowered->constant);
        goto out;
    }
    const bool statistics =
        value->kind == FTH_EXPORTED_BUFFER && is_float(value) && (!value->data || is_updated(l, number));
    if (parameter || statistics) {
        FTH_TRY(shape_of_state(value, &shape));
        FTH_TRY(parameter ? add_parameter(l, number, value, &shape, &added)
                          : fth_graph_add_buffer(l->graph, value->state_name, shape,
                                                 fth_exported_initializer(l->program, number), &added));
        FTH_TRY(fth_view_create(added, value->rank, value->dims, &lowered->view));
        lowered->kind = LOWERED_VIEW;
        lowered->in_graph = true;
    } else if (lowered->live && value->data) { /* a mask, positions, a mean of images */
        FTH_TRY(fth_host_tensor_of(value, &lowered->constant));
        lowered->kind = LOWERED_CONSTANT;
    }
out:
    return status;
}

fth_status lowering_add_state(lowering *l)
{
    for (int v = 0; v < fth_exported_value_count(l->program); v++) {
        fth_status status = add_one(l, v);
        if (status != FTH_OK)
            return fth_fail_within(status, "%s", fth_exported_origin(l->program));
    }
    return FTH_OK;
}

fth_status lowering_add_input(lowering *l, int number, fth_value value)
{
    const fth_exported_value *input = fth_exported_get_value(l->program, number);
    l->values[number].kind = LOWERED_VIEW;
    fth_status status = fth_view_create(value, input->rank, input->dims, &l->values[number].view);
    return status == FTH_OK ? status : fth_fail_within(status, "the input %s", input->name);
}

/* ---- constants in the graph ---- */

static bool is_integral(const fth_host_tensor *tensor)
{
    return tensor->torch_dtype != FTH_TORCH_F16 && tensor->torch_dtype != FTH_TORCH_F32 &&
           tensor->torch_dtype != FTH_TORCH_F64 && tensor->torch_dtype != FTH_TORCH_BF16 &&
           tensor->torch_dtype != FTH_TORCH_BOOL;
}

fth_status lowering_add_constant(lowering *l, const fth_host_tensor *tensor, fth_view *view)
{
    fth_status status = FTH_OK;
    const int64_t count = fth_shape_count(&tensor->shape);
    const bool integral = is_integral(tensor);
    fth_exported_dim dims[FTH_MAX_RANK] = {{0}};
    fth_shape shape = tensor->shape.rank > 0 ? tensor->shape : FTH_SHAPE(1);
    union {
        float *floats;
        int32_t *integers;
    } data = {NULL};
    fth_value value;

    fth_host_tensor_refresh(tensor);
    FTH_TRY(fth_allocate((size_t)count, sizeof(float), &data.floats));
    for (int64_t i = 0; i < count; i++) {
        if (!integral) {
            data.floats[i] = (float)tensor->numbers[i];
            continue;
        }
        FTH_REQUIRE(tensor->numbers[i] >= INT32_MIN && tensor->numbers[i] <= INT32_MAX, FTH_UNSUPPORTED,
                    "a constant integer, %.0f, does not fit into 32 bits", tensor->numbers[i]);
        data.integers[i] = (int32_t)tensor->numbers[i];
    }
    FTH_TRY(fth_op_add_constant(l->graph, (fth_type){integral ? FTH_I32 : FTH_F32, shape}, data.floats, &value));
    for (int i = 0; i < tensor->shape.rank; i++)
        dims[i].factor = tensor->shape.dims[i];
    FTH_TRY(fth_view_create(value, tensor->shape.rank, dims, view));
out:
    free(data.floats);
    return status;
}

/* ---- results ---- */

const fth_exported_value *lowering_output(const lowering *l, size_t index)
{
    return fth_exported_get_value(l->program, l->node->outputs[index]);
}

bool lowering_is_read(const lowering *l, size_t index)
{
    return l->node->outputs[index] >= 0 && l->values[l->node->outputs[index]].live;
}

static lowered_value *output_of(lowering *l, size_t index)
{
    if (index >= l->node->output_count || l->node->outputs[index] < 0)
        return NULL;
    return &l->values[l->node->outputs[index]];
}

void lowering_set(lowering *l, size_t index, const fth_view *view)
{
    lowered_value *value = output_of(l, index);
    if (!value)
        return;
    value->kind = LOWERED_VIEW;
    value->view = *view;
}

fth_status lowering_set_pending(lowering *l, const lowering_pending *pending, const fth_view *view)
{
    fth_status status = FTH_OK;
    lowered_value *value = output_of(l, 0);
    if (!value)
        return FTH_OK;
    value->kind = LOWERED_PENDING;
    value->pending = *pending;
    value->view = *view;
    if (value->readers != 1) {
        FTH_TRY(lowering_add_pending(l, pending, false, &value->view.value));
        value->kind = LOWERED_VIEW;
    }
out:
    return status;
}

static lowered_value *argument_of(const lowering *l, const char *name)
{
    const fth_exported_argument *argument = fth_exported_find_argument(l->node, name);
    return argument && argument->kind == FTH_ARGUMENT_TENSOR ? &l->values[l->values[argument->tensor].now] : NULL;
}

const lowering_pending *lowering_pending_of(const lowering *l, const char *name)
{
    const lowered_value *value = argument_of(l, name);
    return value && value->kind == LOWERED_PENDING ? &value->pending : NULL;
}

bool lowering_take_pending(lowering *l, const char *name, lowering_pending *pending, fth_view *view)
{
    lowered_value *value = argument_of(l, name);
    if (!value || value->kind != LOWERED_PENDING)
        return false;
    *pending = value->pending;
    *view = value->view;
    value->kind = LOWERED_NOTHING;
    return true;
}

fth_status lowering_add_pending(lowering *l, const lowering_pending *pending, bool relu, fth_value *value)
{
    const fth_value *in = pending->inputs;
    switch (pending->kind) {
    case LOWERING_CONVOLUTION: {
        fth_convolution_attributes attributes = pending->convolution;
        attributes.relu = relu;
        return fth_op_add_convolution(l->graph, attributes, in[0], in[1], in[2], value);
    }
    case LOWERING_LINEAR: return fth_op_add_linear(l->graph, relu, in[0], in[1], in[2], value);
    case LOWERING_BATCH_NORM: {
        fth_batch_norm_attributes attributes = pending->batch_norm;
        attributes.relu = relu;
        return fth_op_add_batch_norm(l->graph, attributes, in[0], in[1], in[2], in[3], in[4], in[5], value);
    }
    case LOWERING_ADD: return fth_op_add_add(l->graph, relu, in[0], in[1], value);
    }
    return fth_fail(FTH_UNSUPPORTED, "an op of an unknown kind waits for its reader");
}

lowering_noise lowering_noise_of(const lowering *l, const char *name)
{
    const lowered_value *value = argument_of(l, name);
    return value && value->kind == LOWERED_NOISE ? value->noise : (lowering_noise){0};
}

void lowering_set_noise(lowering *l, lowering_noise noise, const fth_view *view)
{
    lowered_value *value = output_of(l, 0);
    if (!value)
        return;
    value->kind = LOWERED_NOISE;
    value->noise = noise;
    value->view = *view;
}

fth_status lowering_view_of(lowering *l, int number, fth_view *view)
{
    fth_status status = FTH_OK;
    lowered_value *value = &l->values[l->values[number].now];
    const char *name = fth_exported_get_value(l->program, number)->name;

    switch (value->kind) {
    case LOWERED_VIEW: break;
    case LOWERED_PENDING:
        FTH_TRY(lowering_add_pending(l, &value->pending, false, &value->view.value));
        value->kind = LOWERED_VIEW;
        break;
    case LOWERED_CONSTANT:
        if (!value->in_graph)
            FTH_TRY(lowering_add_constant(l, &value->constant, &value->view));
        value->in_graph = true;
        break;
    case LOWERED_NOISE: FTH_TRY(lowering_add_noise(l, value->noise, &value->view)); break;
    case LOWERED_NOTHING:
        status = fth_fail(FTH_UNSUPPORTED,
                          "%s is not known here: it is an integer or comes from an operator that "
                          "is not computed",
                          name);
        goto out;
    }
    *view = value->view;
out:
    return status;
}

/* ---- computing here ---- */

bool lowering_may_fold(const fth_exported_node *node)
{
    return fth_fold_knows(node->target);
}

/* The node's tensors, if all whose numbers it reads are constants. */
static bool collect_constants(const lowering *l, const fth_host_tensor **tensors, size_t room)
{
    size_t count = 0;
    for (size_t a = 0; a < l->node->argument_count; a++) {
        const fth_exported_argument *argument = &l->node->arguments[a];
        const size_t length = argument->kind == FTH_ARGUMENT_TENSOR    ? 1
                              : argument->kind == FTH_ARGUMENT_TENSORS ? argument->count
                                                                       : 0;
        const bool reads = fth_fold_reads(l->node->target, argument->name);
        for (size_t i = 0; i < length; i++) {
            const int number = argument->kind == FTH_ARGUMENT_TENSOR ? argument->tensor : argument->tensors[i];
            const lowered_value *value = number >= 0 ? &l->values[l->values[number].now] : NULL;
            const bool known = value && value->kind == LOWERED_CONSTANT;
            if ((value && !known && reads) || count == room)
                return false;
            tensors[count++] = known ? &value->constant : NULL;
        }
    }
    return true;
}

fth_status lowering_fold(lowering *l, bool *folded)
{
    enum { MOST_TENSORS = 64, MOST_OUTPUTS = 64 };
    fth_status status = FTH_OK;
    const fth_host_tensor *tensors[MOST_TENSORS];
    fth_host_tensor outputs[MOST_OUTPUTS] = {{0}};

    *folded = false;
    if (!fth_fold_knows(l->node->target) || l->node->output_count > MOST_OUTPUTS ||
        !collect_constants(l, tensors, MOST_TENSORS))
        goto out;
    FTH_TRY(fth_fold_node(l->program, l->node, tensors, &l->allowance, outputs, folded));
    for (size_t o = 0; *folded && o < l->node->output_count; o++) {
        lowered_value *value = output_of(l, o);
        if (!value)
            continue;
        value->kind = LOWERED_CONSTANT;
        value->constant = outputs[o];
        outputs[o] = (fth_host_tensor){0};
    }
out:
    for (size_t o = 0; o < MOST_OUTPUTS; o++)
        fth_host_tensor_release(&outputs[o]);
    return status;
}
