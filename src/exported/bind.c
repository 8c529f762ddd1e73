/* The data of a program's values: finds each one's tensor in the archive, and which are the
 * same. */
#include <stdlib.h>
#include <string.h>

#include "exported/program_internal.h"

/* A parameter, buffer or constant with its tensor in the archive. */
typedef struct bound_value {
    int number;
    const fth_exported_tensor *tensor;
} bound_value;

static const fth_exported_tensor *find_data(const fth_exported *program, const fth_exported_value *value)
{
    const fth_exported_tensor *state = fth_exported_archive_find_state(program->archive, value->state_name);
    const fth_exported_tensor *constant = fth_exported_archive_find_constant(program->archive, value->state_name);
    return value->persistent ? (state ? state : constant) : (constant ? constant : state);
}

/* The program and the tensor have to agree about its type and shape. */
static fth_status check_data(const fth_exported *program, const fth_exported_value *value,
                             const fth_exported_tensor *tensor)
{
    fth_dtype dtype;
    bool equal = fth_torch_dtype_find(value->torch_dtype, &dtype) && tensor->view.dtype == dtype &&
                 tensor->view.shape.rank == value->rank;
    for (int i = 0; equal && i < value->rank; i++)
        equal = fth_exported_dim_is(&value->dims[i], tensor->view.shape.dims[i]);
    if (equal)
        return FTH_OK;
    char shape[200];
    fth_shape_format(&tensor->view.shape, shape, sizeof shape);
    return fth_fail(FTH_CORRUPT, "%s: the data of '%s' are %s of shape %s, which is not what its program says",
                    program->origin, value->state_name, fth_dtype_name(tensor->view.dtype), shape);
}

static int compare_bound(const void *a, const void *b)
{
    const bound_value *left = a, *right = b;
    const uintptr_t x = (uintptr_t)left->tensor->first, y = (uintptr_t)right->tensor->first;
    return x != y ? (x > y) - (x < y) : (left->number > right->number) - (left->number < right->number);
}

static bool is_copy(const fth_exported_tensor *tensor)
{
    return tensor->view.data != tensor->first;
}

/* Both begin at the same number in the file. */
static bool is_same_tensor(const fth_exported_tensor *a, const fth_exported_tensor *b)
{
    return a == b || (a->view.dtype == b->view.dtype && fth_shape_equal(&a->view.shape, &b->view.shape) &&
                      is_copy(a) == is_copy(b));
}

/* Marks parameters and buffers that share storage. What shares it in another shape would have to be
 * trained as one and is refused. */
static fth_status find_ties(fth_exported *program, bound_value *bound, size_t count)
{
    qsort(bound, count, sizeof *bound, compare_bound);
    for (size_t i = 1, first = 0; i < count; i++) {
        if (!bound[i].tensor->first || bound[i].tensor->first != bound[first].tensor->first) {
            first = i;
            continue;
        }
        fth_exported_value *value = &program->values[bound[i].number];
        const fth_exported_value *other = &program->values[bound[first].number];
        if (is_same_tensor(bound[i].tensor, bound[first].tensor)) {
            value->same_as = bound[first].number;
            value->data = other->data; /* also where each is a copy */
        } else if (value->trainable || other->trainable) {
            return fth_fail(FTH_UNSUPPORTED,
                            "%s: '%s' and '%s' are one storage in two shapes or orders, which farthing cannot train as "
                            "one; make them parameters of their own (.clone()) and export again",
                            program->origin, other->state_name, value->state_name);
        }
    }
    return FTH_OK;
}

/* ---- names of tied weights ---- */

static int compare_first(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t)(*(const fth_exported_tensor *const *)a)->first;
    const uintptr_t y = (uintptr_t)(*(const fth_exported_tensor *const *)b)->first;
    return (x > y) - (x < y);
}

/* The tensors of the state_dict that no value is called by, sorted by where they begin. */
static fth_status find_unnamed(const fth_exported *program, const fth_exported_tensor ***unnamed, size_t *count)
{
    fth_status status = FTH_OK;
    const size_t state_count = fth_exported_archive_state_count(program->archive);
    json_t *names = json_object();
    *count = 0;
    FTH_REQUIRE(names, FTH_NO_MEMORY, "no memory for the names of %s", program->origin);
    for (size_t i = 0; i < program->value_count; i++) {
        const char *name = program->values[i].state_name;
        FTH_REQUIRE(!name || json_object_set_new(names, name, json_true()) == 0, FTH_NO_MEMORY,
                    "no memory for the names of %s", program->origin);
    }
    FTH_TRY(fth_allocate(state_count, sizeof **unnamed, unnamed));
    for (size_t i = 0; i < state_count; i++) {
        const fth_exported_tensor *tensor = fth_exported_archive_get_state(program->archive, i);
        if (tensor->first && !json_object_get(names, tensor->view.name))
            (*unnamed)[(*count)++] = tensor;
    }
    qsort(*unnamed, *count, sizeof **unnamed, compare_first);
out:
    json_decref(names);
    return status;
}

/* Until 2.8, programs give all of a group of tied weights one name, and only the state_dict has the
 * others. `bound` is sorted by where tensors begin. */
static fth_status name_ties(fth_exported *program, const bound_value *bound, size_t count)
{
    fth_status status = FTH_OK;
    const fth_exported_tensor **unnamed = NULL;
    size_t unnamed_count = 0, next = 0;
    FTH_TRY(find_unnamed(program, &unnamed, &unnamed_count));
    for (size_t i = 0; i < count; i++) {
        fth_exported_value *value = &program->values[bound[i].number];
        while (next < unnamed_count && (uintptr_t)unnamed[next]->first < (uintptr_t)bound[i].tensor->first)
            next++;
        if (next == unnamed_count)
            break;
        if (value->same_as < 0 || unnamed[next]->first != bound[i].tensor->first ||
            strcmp(value->state_name, program->values[value->same_as].state_name) != 0)
            continue;
        const char *name = unnamed[next++]->view.name;
        FTH_TRY(fth_exported_take_text(&program->arena, name, strlen(name), &value->state_name));
    }
out:
    free(unnamed);
    return status;
}

fth_status fth_exported_bind(fth_exported *program)
{
    fth_status status = FTH_OK;
    bound_value *bound = NULL;
    size_t count = 0;
    FTH_TRY(fth_allocate(program->value_count, sizeof *bound, &bound));
    for (size_t i = 0; i < program->value_count; i++) {
        fth_exported_value *value = &program->values[i];
        if (!value->state_name)
            continue;
        const fth_exported_tensor *tensor = find_data(program, value);
        FTH_REQUIRE(tensor, FTH_CORRUPT, "%s: no data for '%s' in it", program->origin, value->state_name);
        FTH_TRY(check_data(program, value, tensor));
        value->data = tensor->view.data;
        value->size_bytes = (size_t)fth_shape_count(&tensor->view.shape) * fth_dtype_size_bytes(tensor->view.dtype);
        if (value->kind != FTH_EXPORTED_CONSTANT)
            bound[count++] = (bound_value){(int)i, tensor};
    }
    FTH_TRY(find_ties(program, bound, count));
    FTH_TRY(name_ties(program, bound, count));
out:
    free(bound);
    return status;
}
