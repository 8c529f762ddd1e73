/* Arguments of the current node: see lowering.h. */
#include "exported/lowering_internal.h"

#include <string.h>

fth_graph *lowering_graph(const lowering *l)
{
    return l->graph;
}

const fth_exported_lower_options *lowering_options(const lowering *l)
{
    return l->options;
}

const fth_exported_node *lowering_node(const lowering *l)
{
    return l->node;
}

bool lowering_is(const lowering *l, const char *name)
{
    char own[FTH_OPERATOR_NAME];
    lowering_operator_name(l->node->target, own);
    return strcmp(own, name) == 0;
}

static const fth_exported_argument *find(const lowering *l, const char *name)
{
    const fth_exported_argument *argument = fth_exported_find_argument(l->node, name);
    return argument && argument->kind != FTH_ARGUMENT_NONE ? argument : NULL;
}

bool lowering_lacks(const lowering *l, const char *name)
{
    return !find(l, name);
}

/* ---- tensors ---- */

fth_status lowering_tensor(lowering *l, const char *name, fth_view *view)
{
    const fth_exported_argument *argument = find(l, name);
    if (!argument || argument->kind != FTH_ARGUMENT_TENSOR)
        return fth_fail(FTH_UNSUPPORTED, "its argument %s is not a tensor", name);
    return lowering_view_of(l, argument->tensor, view);
}

size_t lowering_tensor_count(const lowering *l, const char *name)
{
    const fth_exported_argument *argument = find(l, name);
    return argument && argument->kind == FTH_ARGUMENT_TENSORS ? argument->count : 0;
}

fth_status lowering_tensor_of(lowering *l, const char *name, size_t index, fth_view *view)
{
    const fth_exported_argument *argument = find(l, name);
    if (index >= lowering_tensor_count(l, name) || argument->tensors[index] < 0)
        return fth_fail(FTH_UNSUPPORTED, "its argument %s has no tensor %zu", name, index);
    return lowering_view_of(l, argument->tensors[index], view);
}

fth_status lowering_state(lowering *l, const char *name, fth_value *value)
{
    fth_status status = FTH_OK;
    const fth_exported_argument *argument = find(l, name);
    fth_view view;

    *value = FTH_NO_VALUE;
    if (!argument)
        goto out;
    FTH_TRY(lowering_tensor(l, name, &view));
    FTH_TRY(fth_view_arrange_plain(l->graph, &view));
    *value = view.value;
out:
    return status;
}

fth_status lowering_required_state(lowering *l, const char *name, fth_value *value)
{
    fth_status status = lowering_state(l, name, value);
    if (status == FTH_OK && *value == FTH_NO_VALUE)
        return fth_fail(FTH_UNSUPPORTED, "it has no argument %s", name);
    return status;
}

const fth_exported_value *lowering_argument(const lowering *l, const char *name)
{
    const fth_exported_argument *argument = find(l, name);
    return argument && argument->kind == FTH_ARGUMENT_TENSOR ? fth_exported_get_value(l->program, argument->tensor)
                                                             : NULL;
}

bool lowering_is_integer(const lowering *l, const char *name)
{
    const fth_exported_value *value = lowering_argument(l, name);
    return value && value->torch_dtype != FTH_TORCH_F16 && value->torch_dtype != FTH_TORCH_F32 &&
           value->torch_dtype != FTH_TORCH_F64 && value->torch_dtype != FTH_TORCH_BF16;
}

bool lowering_is_truth(const lowering *l, const char *name)
{
    const fth_exported_value *value = lowering_argument(l, name);
    return value && value->torch_dtype == FTH_TORCH_BOOL;
}

/* The numbers of a value, as they are now, if it is a constant. */
static const fth_host_tensor *constant_of(lowering *l, int number)
{
    const lowered_value *value = number >= 0 ? &l->values[l->values[number].now] : NULL;
    if (!value || value->kind != LOWERED_CONSTANT)
        return NULL;
    fth_host_tensor_refresh(&value->constant);
    return &value->constant;
}

const fth_host_tensor *lowering_constant(lowering *l, const char *name)
{
    const fth_exported_argument *argument = find(l, name);
    return argument && argument->kind == FTH_ARGUMENT_TENSOR ? constant_of(l, argument->tensor) : NULL;
}

const fth_host_tensor *lowering_constant_of(lowering *l, const char *name, size_t index)
{
    return index < lowering_tensor_count(l, name) ? constant_of(l, find(l, name)->tensors[index]) : NULL;
}

/* ---- numbers ---- */

bool lowering_is_number(const lowering *l, const char *name)
{
    const fth_exported_argument *argument = find(l, name);
    return argument && (argument->kind == FTH_ARGUMENT_INT || argument->kind == FTH_ARGUMENT_FLOAT ||
                        argument->kind == FTH_ARGUMENT_BOOL);
}

int64_t lowering_int(const lowering *l, const char *name, int64_t otherwise)
{
    const fth_exported_argument *argument = find(l, name);
    return argument && argument->kind == FTH_ARGUMENT_INT && !argument->integer.unknown ? argument->integer.factor
                                                                                        : otherwise;
}

double lowering_number(const lowering *l, const char *name, double otherwise)
{
    const fth_exported_argument *argument = find(l, name);
    if (!argument)
        return otherwise;
    switch (argument->kind) {
    case FTH_ARGUMENT_INT: return (double)argument->integer.factor;
    case FTH_ARGUMENT_FLOAT: return argument->number;
    case FTH_ARGUMENT_BOOL: return argument->boolean;
    default: return otherwise;
    }
}

bool lowering_bool(const lowering *l, const char *name, bool otherwise)
{
    const fth_exported_argument *argument = find(l, name);
    return argument && argument->kind == FTH_ARGUMENT_BOOL ? argument->boolean : otherwise;
}

const char *lowering_text(const lowering *l, const char *name, const char *otherwise)
{
    const fth_exported_argument *argument = find(l, name);
    return argument && argument->kind == FTH_ARGUMENT_STRING ? argument->text : otherwise;
}

size_t lowering_int_count(const lowering *l, const char *name)
{
    const fth_exported_argument *argument = find(l, name);
    return argument && argument->kind == FTH_ARGUMENT_INTS ? argument->count : argument ? 1 : 0;
}

fth_status lowering_ints(const lowering *l, const char *name, int64_t otherwise, int64_t *ints, size_t count)
{
    const fth_exported_argument *argument = find(l, name);
    const size_t given = lowering_int_count(l, name);

    for (size_t i = 0; i < count; i++)
        ints[i] = otherwise;
    if (!argument || (argument->kind == FTH_ARGUMENT_INTS && given == 0))
        return FTH_OK;
    if (argument->kind != FTH_ARGUMENT_INT && argument->kind != FTH_ARGUMENT_INTS)
        return fth_fail(FTH_UNSUPPORTED, "its argument %s is not of integers", name);
    if (given != 1 && given != count)
        return fth_fail(FTH_UNSUPPORTED, "its argument %s has %s, not %zu", name, FTH_COUNTED((int64_t)given, "number"),
                        count);
    for (size_t i = 0; i < count; i++) {
        const fth_exported_dim dim =
            argument->kind == FTH_ARGUMENT_INT ? argument->integer : argument->integers[given == 1 ? 0 : i];
        if (dim.unknown || dim.batch || dim.length)
            return fth_fail(FTH_UNSUPPORTED, "its argument %s depends on the batch", name);
        ints[i] = dim.factor;
    }
    return FTH_OK;
}

fth_status lowering_dim(const lowering *l, const char *name, int64_t otherwise, int rank, int *dim)
{
    int64_t given = lowering_int(l, name, otherwise);
    given += given < 0 ? rank : 0;
    if (given < 0 || given >= rank)
        return fth_fail(FTH_UNSUPPORTED, "its argument %s is no dimension of a tensor of rank %d", name, rank);
    *dim = (int)given;
    return FTH_OK;
}

fth_status lowering_dims(const lowering *l, const char *name, int rank, unsigned *dims)
{
    fth_status status = FTH_OK;
    int64_t given[FTH_MAX_RANK];
    const size_t count = lowering_int_count(l, name);

    *dims = 0;
    if (count == 0) {
        *dims = (1u << rank) - 1;
        goto out;
    }
    FTH_REQUIRE(count <= FTH_MAX_RANK, FTH_UNSUPPORTED, "its argument %s has %zu dimensions", name, count);
    FTH_TRY(lowering_ints(l, name, 0, given, count));
    for (size_t i = 0; i < count; i++) {
        const int64_t dim = given[i] + (given[i] < 0 ? rank : 0);
        FTH_REQUIRE(dim >= 0 && dim < rank, FTH_UNSUPPORTED, "its argument %s is no dimension of a tensor of rank %d",
                    name, rank);
        *dims |= 1u << dim;
    }
out:
    return status;
}
