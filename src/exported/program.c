/* See program.h. */
#include "exported/program.h"

#include <stdlib.h>
#include <string.h>

#include "exported/program_internal.h"

/* ---- the data of values ---- */

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
        if (is_same_tensor(bound[i].tensor, bound[first].tensor))
            value->same_as = bound[first].number;
        else if (value->trainable || other->trainable)
            return fth_fail(FTH_UNSUPPORTED,
                            "%s: '%s' and '%s' are one storage in two shapes or orders, which farthing cannot train as "
                            "one; make them parameters of their own (.clone()) and export again",
                            program->origin, other->state_name, value->state_name);
    }
    return FTH_OK;
}

static fth_status bind_data(fth_exported *program)
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
out:
    free(bound);
    return status;
}

/* ---- opening ---- */

static fth_status create(const char *origin, fth_exported **program)
{
    fth_status status = fth_allocate(1, sizeof **program, program);
    if (status != FTH_OK)
        return status;
    (*program)->origin = fth_format("%s", origin);
    return (*program)->origin ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for a path");
}

static fth_status read_archive(fth_exported *program, const void *bytes, size_t size_bytes)
{
    fth_status status = FTH_OK;
    size_t text_bytes = 0;
    char *origin = NULL;
    FTH_TRY(fth_exported_archive_parse(bytes, size_bytes, program->origin, &program->archive));
    origin = fth_format("%s (%s)", program->origin, fth_exported_archive_program_name(program->archive));
    FTH_REQUIRE(origin, FTH_NO_MEMORY, "no memory for a path");
    const char *text = fth_exported_archive_program(program->archive, &text_bytes);
    FTH_TRY(fth_exported_read(program, text, text_bytes, origin, false));
    FTH_TRY(bind_data(program));
out:
    free(origin);
    return status;
}

bool fth_exported_recognize(const void *bytes, size_t size_bytes)
{
    return fth_exported_archive_recognize(bytes, size_bytes);
}

fth_status fth_exported_open_bytes(const void *bytes, size_t size_bytes, const char *origin, fth_exported **program)
{
    fth_exported *fresh = NULL;
    *program = NULL;
    fth_status status = create(origin, &fresh);
    if (status == FTH_OK)
        status = read_archive(fresh, bytes, size_bytes);
    if (status == FTH_OK)
        *program = fresh;
    else
        fth_exported_free(fresh);
    return status;
}

fth_status fth_exported_open(const char *path, fth_exported **program)
{
    fth_status status = FTH_OK;
    fth_exported *fresh = NULL;
    *program = NULL;
    FTH_TRY(create(path, &fresh));
    FTH_TRY(fth_file_map(path, &fresh->mapping, &fresh->mapping_size_bytes));
    FTH_TRY(read_archive(fresh, fresh->mapping, fresh->mapping_size_bytes));
    *program = fresh;
    fresh = NULL;
out:
    fth_exported_free(fresh);
    return status;
}

fth_status fth_exported_parse(const char *text, size_t size_bytes, const char *origin, fth_exported **program)
{
    fth_exported *fresh = NULL;
    *program = NULL;
    fth_status status = create(origin, &fresh);
    if (status == FTH_OK)
        status = fth_exported_read(fresh, text, size_bytes, origin, true);
    if (status == FTH_OK)
        *program = fresh;
    else
        fth_exported_free(fresh);
    return status;
}

void fth_exported_free(fth_exported *program)
{
    if (!program)
        return;
    fth_exported_archive_free(program->archive);
    fth_exported_arena_release(&program->arena);
    free(program->values);
    fth_file_unmap(program->mapping, program->mapping_size_bytes);
    free(program->origin);
    free(program);
}

/* ---- reading ---- */

int fth_exported_value_count(const fth_exported *program)
{
    return (int)program->value_count;
}

const fth_exported_value *fth_exported_get_value(const fth_exported *program, int number)
{
    return number >= 0 && (size_t)number < program->value_count ? &program->values[number] : NULL;
}

size_t fth_exported_node_count(const fth_exported *program)
{
    return program->node_count;
}

const fth_exported_node *fth_exported_get_node(const fth_exported *program, size_t index)
{
    return index < program->node_count ? &program->nodes[index] : NULL;
}

size_t fth_exported_input_count(const fth_exported *program)
{
    return program->input_count;
}

int fth_exported_get_input(const fth_exported *program, size_t index)
{
    return index < program->input_count ? program->inputs[index] : -1;
}

size_t fth_exported_output_count(const fth_exported *program)
{
    return program->output_count;
}

int fth_exported_get_output(const fth_exported *program, size_t index)
{
    return index < program->output_count ? program->outputs[index] : -1;
}

const char *fth_exported_torch_version(const fth_exported *program)
{
    return program->torch_version;
}

const char *fth_exported_origin(const fth_exported *program)
{
    return program->origin;
}

bool fth_exported_dim_is(const fth_exported_dim *dim, int64_t size)
{
    return !dim->unknown && !dim->batch && !dim->length && dim->factor == size;
}

const fth_exported_argument *fth_exported_find_argument(const fth_exported_node *node, const char *name)
{
    for (size_t i = 0; i < node->argument_count; i++) {
        if (strcmp(node->arguments[i].name, name) == 0)
            return &node->arguments[i];
    }
    return NULL;
}
