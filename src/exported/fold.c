/* See fold.h. */
#include "exported/fold.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "exported/fold_internal.h"

struct fth_host_memory {
    double *numbers;
    size_t readers; /* tensors */
    uint64_t version;
};

struct fth_host_view {
    uint64_t version; /* of the memory when the numbers were read */
    int64_t places[];
};

#define LARGEST_EXACT 9007199254740992.0 /* 2^53 */

/* ---- tensors ---- */

void fth_host_tensor_release(fth_host_tensor *tensor)
{
    if (!tensor->memory || tensor->view)
        free(tensor->numbers);
    free(tensor->view);
    if (tensor->memory && --tensor->memory->readers == 0) {
        free(tensor->memory->numbers);
        free(tensor->memory);
    }
    *tensor = (fth_host_tensor){0};
}

void fth_host_tensor_refresh(const fth_host_tensor *tensor)
{
    fth_host_view *view = tensor->view;
    if (!view || view->version == tensor->memory->version)
        return;
    const int64_t count = fth_shape_count(&tensor->shape);
    for (int64_t i = 0; i < count; i++)
        tensor->numbers[i] = tensor->memory->numbers[view->places[i]];
    view->version = tensor->memory->version;
}

/* Takes the numbers in any case. */
static fth_status create(int torch_dtype, const fth_shape *shape, double *numbers, fth_host_tensor *tensor)
{
    fth_host_memory *memory = NULL;
    fth_status status = fth_allocate(1, sizeof *memory, &memory);
    if (status != FTH_OK) {
        free(numbers);
        return status;
    }
    *memory = (fth_host_memory){.numbers = numbers, .readers = 1};
    *tensor = (fth_host_tensor){.torch_dtype = torch_dtype, .shape = *shape, .numbers = numbers, .memory = memory};
    return FTH_OK;
}

#define READ(type, expression)                                                                                         \
    do {                                                                                                               \
        for (size_t i = 0; i < count; i++) {                                                                           \
            type x;                                                                                                    \
            memcpy(&x, bytes + i * sizeof x, sizeof x);                                                                \
            numbers[i] = (double)(expression);                                                                         \
        }                                                                                                              \
        return;                                                                                                        \
    } while (0)

static void read_numbers(const unsigned char *bytes, fth_dtype dtype, size_t count, double *numbers)
{
    switch (dtype) {
    case FTH_BOOL: READ(uint8_t, x != 0);
    case FTH_U8: READ(uint8_t, x);
    case FTH_I8: READ(int8_t, x);
    case FTH_I16: READ(int16_t, x);
    case FTH_U16: READ(uint16_t, x);
    case FTH_F16: READ(uint16_t, fth_f16_to_float(x));
    case FTH_BF16: READ(uint16_t, fth_bf16_to_float(x));
    case FTH_I32: READ(int32_t, x);
    case FTH_U32: READ(uint32_t, x);
    case FTH_F32: READ(float, x);
    case FTH_F64: READ(double, x);
    case FTH_I64: READ(int64_t, x);
    case FTH_U64: READ(uint64_t, x);
    }
}

static bool shape_of(const fth_exported_value *value, fth_shape *shape)
{
    bool known = value != NULL;
    *shape = (fth_shape){.rank = known ? value->rank : 0};
    for (int i = 0; known && i < value->rank; i++) {
        shape->dims[i] = value->dims[i].factor;
        known = fth_exported_dim_is(&value->dims[i], value->dims[i].factor);
    }
    return known && fth_shape_count(shape) <= FTH_FOLD_ELEMENTS;
}

fth_status fth_host_tensor_of(const fth_exported_value *value, fth_host_tensor *tensor)
{
    fth_status status = FTH_OK;
    fth_dtype dtype;
    fth_shape shape;
    double *numbers = NULL;
    *tensor = (fth_host_tensor){0};
    FTH_REQUIRE(value->data && shape_of(value, &shape) && fth_torch_dtype_find(value->torch_dtype, &dtype),
                FTH_UNSUPPORTED, "%s: its numbers are not known, or more than %d", value->name, (int)FTH_FOLD_ELEMENTS);
    const size_t count = (size_t)fth_shape_count(&shape);
    FTH_TRY(fth_allocate(count + 1, sizeof *numbers, &numbers));
    read_numbers(value->data, dtype, count, numbers);
    status = create(value->torch_dtype, &shape, numbers, tensor);
out:
    return status;
}

/* Rounds to the type; false for what it cannot hold exactly. */
static bool round_numbers(int torch_dtype, double *numbers, int64_t count)
{
    fth_dtype dtype;
    if (!fth_torch_dtype_find(torch_dtype, &dtype))
        return false;
    for (int64_t i = 0; i < count; i++) {
        switch (dtype) {
        case FTH_F64: break;
        case FTH_F32: numbers[i] = (float)numbers[i]; break;
        case FTH_F16: numbers[i] = fth_f16_to_float(fth_f16_from_float((float)numbers[i])); break;
        case FTH_BF16: numbers[i] = fth_bf16_to_float(fth_bf16_from_float((float)numbers[i])); break;
        case FTH_BOOL: numbers[i] = numbers[i] != 0; break;
        default: numbers[i] = trunc(numbers[i]);
        }
    }
    if (fth_torch_dtype_is_float(torch_dtype) || dtype == FTH_BOOL)
        return true;
    const double bits = 8.0 * (double)fth_dtype_size_bytes(dtype);
    const bool is_unsigned = dtype == FTH_U8 || dtype == FTH_U16 || dtype == FTH_U32 || dtype == FTH_U64;
    const double most = fmin(LARGEST_EXACT, is_unsigned ? exp2(bits) - 1 : exp2(bits - 1) - 1);
    const double least = is_unsigned ? 0 : -fmin(LARGEST_EXACT, exp2(bits - 1));
    bool exact = true;
    for (int64_t i = 0; i < count; i++)
        exact = exact && numbers[i] >= least && numbers[i] <= most;
    return exact;
}

/* ---- arguments ---- */

const fth_host_tensor *fold_tensor_of(const fold *f, const char *name, size_t index)
{
    size_t at = 0;
    for (size_t i = 0; i < f->node->argument_count; i++) {
        const fth_exported_argument *argument = &f->node->arguments[i];
        const bool single = argument->kind == FTH_ARGUMENT_TENSOR;
        const size_t count = single ? 1 : argument->kind == FTH_ARGUMENT_TENSORS ? argument->count : 0;
        if (strcmp(argument->name, name) == 0)
            return index < count ? f->tensors[at + index] : NULL;
        at += count;
    }
    return NULL;
}

const fth_host_tensor *fold_tensor(const fold *f, const char *name)
{
    return fold_tensor_of(f, name, 0);
}

size_t fold_list_count(const fold *f, const char *name)
{
    const fth_exported_argument *argument = fth_exported_find_argument(f->node, name);
    return argument && argument->kind == FTH_ARGUMENT_TENSORS ? argument->count : 0;
}

bool fold_has(const fold *f, const char *name)
{
    const fth_exported_argument *argument = fth_exported_find_argument(f->node, name);
    return argument && argument->kind != FTH_ARGUMENT_NONE;
}

static bool is_fixed(const fth_exported_dim *dim)
{
    return fth_exported_dim_is(dim, dim->factor);
}

bool fold_number(const fold *f, const char *name, double *number)
{
    const fth_exported_argument *argument = fth_exported_find_argument(f->node, name);
    if (!argument)
        return false;
    switch (argument->kind) {
    case FTH_ARGUMENT_FLOAT: *number = argument->number; return true;
    case FTH_ARGUMENT_BOOL: *number = argument->boolean; return true;
    case FTH_ARGUMENT_INT:
        *number = (double)argument->integer.factor;
        return is_fixed(&argument->integer) && fabs(*number) <= LARGEST_EXACT;
    default: return false;
    }
}

bool fold_number_or(const fold *f, const char *name, double otherwise, double *number)
{
    *number = otherwise;
    return !fold_has(f, name) || fold_number(f, name, number);
}

bool fold_int_or(const fold *f, const char *name, int64_t otherwise, int64_t *number)
{
    const fth_exported_argument *argument = fth_exported_find_argument(f->node, name);
    *number = otherwise;
    if (!argument || argument->kind == FTH_ARGUMENT_NONE)
        return true;
    *number = argument->kind == FTH_ARGUMENT_BOOL ? argument->boolean : argument->integer.factor;
    return argument->kind == FTH_ARGUMENT_BOOL || (argument->kind == FTH_ARGUMENT_INT && is_fixed(&argument->integer));
}

bool fold_ints(const fold *f, const char *name, int64_t *numbers, size_t room, size_t *count)
{
    const fth_exported_argument *argument = fth_exported_find_argument(f->node, name);
    *count = 0;
    if (!argument || argument->kind == FTH_ARGUMENT_NONE)
        return true;
    const bool single = argument->kind == FTH_ARGUMENT_INT;
    const size_t length = single ? 1 : argument->count;
    if ((!single && argument->kind != FTH_ARGUMENT_INTS) || length > room)
        return false;
    for (; *count < length; ++*count) {
        const fth_exported_dim *integer = single ? &argument->integer : &argument->integers[*count];
        if (!is_fixed(integer))
            return false;
        numbers[*count] = integer->factor;
    }
    return true;
}

bool fold_wrap_dim(int64_t number, int rank, int *dim)
{
    const int64_t wrapped = number < 0 ? number + rank : number;
    *dim = (int)wrapped;
    return wrapped >= 0 && wrapped < rank;
}

bool fold_dim_or(const fold *f, const char *name, int64_t otherwise, int rank, int *dim)
{
    int64_t number;
    return fold_int_or(f, name, otherwise, &number) && fold_wrap_dim(number, rank, dim);
}

/* ---- results ---- */

static const fth_exported_value *output_value(const fold *f, size_t index)
{
    return index < f->node->output_count ? fth_exported_get_value(f->program, f->node->outputs[index]) : NULL;
}

bool fold_output_shape(const fold *f, size_t index, fth_shape *shape)
{
    return shape_of(output_value(f, index), shape);
}

double *fold_allocate(fold *f, const fth_shape *shape)
{
    double *numbers = NULL;
    const int64_t count = fth_shape_count(shape);
    if (f->status != FTH_OK || count > *f->allowance)
        return NULL;
    *f->allowance -= count;
    f->status = fth_allocate((size_t)count + 1, sizeof *numbers, &numbers);
    return numbers;
}

/* Changes the numbers of the first argument, and what shares them. */
static bool set_in_place(fold *f, const double *numbers, int64_t count)
{
    const fth_host_tensor *self = f->node->argument_count ? f->tensors[0] : NULL;
    fth_shape shape;
    if (!self || !self->memory || !fold_output_shape(f, 0, &shape) || !fth_shape_equal(&shape, &self->shape))
        return false;
    int64_t strides[FTH_MAX_RANK];
    for (int64_t i = 0; i < count; i++)
        self->memory->numbers[self->view ? self->view->places[i] : i] = numbers[i];
    self->memory->version++;
    fth_host_tensor_refresh(self);
    fold_strides(&shape, strides);
    return fold_set_view(f, 0, self, 0, strides);
}

bool fold_set(fold *f, size_t index, double *numbers)
{
    const fth_exported_value *value = output_value(f, index);
    fth_shape shape;
    bool good = numbers && fold_output_shape(f, index, &shape) &&
                round_numbers(value->torch_dtype, numbers, fth_shape_count(&shape));
    if (good && !f->in_place) {
        f->status = create(value->torch_dtype, &shape, numbers, &f->outputs[index]);
        return f->status == FTH_OK;
    }
    good = good && set_in_place(f, numbers, fth_shape_count(&shape));
    free(numbers);
    return good;
}

bool fold_set_view(fold *f, size_t index, const fth_host_tensor *source, int64_t offset, const int64_t *strides)
{
    fold_walk walk = {.places = {offset}};
    fth_host_view *view = NULL;
    const int64_t source_count = fth_shape_count(&source->shape);
    if (!fold_output_shape(f, index, &walk.shape))
        return false;
    const int64_t count = fth_shape_count(&walk.shape);
    memcpy(walk.strides[0], strides, (size_t)walk.shape.rank * sizeof *strides);
    double *numbers = fold_allocate(f, &walk.shape);
    if (numbers && source->memory)
        f->status = fth_allocate(1, sizeof *view + (size_t)count * sizeof *view->places, &view);
    bool good = numbers && f->status == FTH_OK;
    for (int64_t i = 0; good && i < count; i++, fold_next(&walk)) {
        const int64_t place = walk.places[0];
        good = place >= 0 && place < source_count;
        if (!good)
            break;
        numbers[i] = source->numbers[place];
        if (view)
            view->places[i] = source->view ? source->view->places[place] : place;
    }
    if (!good) {
        free(numbers);
        free(view);
        return false;
    }
    f->outputs[index] = (fth_host_tensor){source->torch_dtype, walk.shape, numbers, source->memory, view};
    if (view) {
        view->version = source->memory->version;
        source->memory->readers++;
    }
    return true;
}

bool fold_set_same(fold *f, size_t index, const fth_host_tensor *source)
{
    const fth_exported_value *value = output_value(f, index);
    fth_shape shape;
    int64_t strides[FTH_MAX_RANK];
    if (!source || !fold_output_shape(f, index, &shape) || fth_shape_count(&shape) != fth_shape_count(&source->shape))
        return false;
    if (value->torch_dtype == source->torch_dtype) {
        fold_strides(&shape, strides);
        return fold_set_view(f, index, source, 0, strides);
    }
    double *numbers = fold_allocate(f, &shape);
    if (numbers)
        memcpy(numbers, source->numbers, (size_t)fth_shape_count(&shape) * sizeof *numbers);
    return fold_set(f, index, numbers);
}

/* ---- walking ---- */

void fold_strides(const fth_shape *shape, int64_t *strides)
{
    int64_t stride = 1;
    for (int i = shape->rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= shape->dims[i];
    }
}

bool fold_broadcast(fold_walk *walk, int which, const fth_shape *tensor)
{
    const int missing = walk->shape.rank - tensor->rank;
    int64_t strides[FTH_MAX_RANK];
    if (missing < 0)
        return false;
    fold_strides(tensor, strides);
    for (int i = 0; i < tensor->rank; i++) {
        const int64_t size = tensor->dims[i];
        if (size != 1 && size != walk->shape.dims[missing + i])
            return false;
        walk->strides[which][missing + i] = size == 1 ? 0 : strides[i];
    }
    return true;
}

void fold_next(fold_walk *walk)
{
    for (int i = walk->shape.rank - 1; i >= 0; i--) {
        for (int w = 0; w < 3; w++)
            walk->places[w] += walk->strides[w][i];
        if (++walk->index[i] < walk->shape.dims[i])
            return;
        for (int w = 0; w < 3; w++)
            walk->places[w] -= walk->strides[w][i] * walk->shape.dims[i];
        walk->index[i] = 0;
    }
}

/* ---- nodes ---- */

/* "add" of "aten.add_.Tensor". */
static bool find_name(const char *target, char name[64], bool *in_place)
{
    static const char prefix[] = "aten.";
    if (strncmp(target, prefix, strlen(prefix)) != 0)
        return false;
    const char *begin = target + strlen(prefix);
    size_t length = strcspn(begin, ".");
    *in_place = length > 1 && begin[length - 1] == '_' && begin[0] != '_';
    length -= *in_place;
    if (length == 0 || length >= 64)
        return false;
    memcpy(name, begin, length);
    name[length] = '\0';
    return true;
}

static fold_rule *find_rule(const char *name)
{
    const fold_row *const tables[] = {fold_views, fold_copies, fold_sums};
    if (fold_has_function(name))
        return fold_function;
    for (size_t t = 0; t < FTH_COUNT_OF(tables); t++) {
        for (const fold_row *row = tables[t]; row->name; row++) {
            if (strcmp(row->name, name) == 0)
                return row->rule;
        }
    }
    return NULL;
}

bool fth_fold_knows(const char *target)
{
    char name[64];
    bool in_place;
    return find_name(target, name, &in_place) && find_rule(name);
}

bool fth_fold_reads(const char *target, const char *argument)
{
    static const char *const likenesses[] = {"expand_as", "view_as", "reshape_as", "type_as", "to"};
    char name[64];
    bool in_place;
    if (!find_name(target, name, &in_place))
        return true;
    for (size_t i = 0; i < FTH_COUNT_OF(likenesses); i++) {
        if (strcmp(name, likenesses[i]) == 0)
            return strcmp(argument, "other") != 0;
    }
    const char *end = strrchr(name, '_');
    const bool is_new = strncmp(name, "new_", strlen("new_")) == 0 || (end && strcmp(end, "_like") == 0);
    return !is_new || strcmp(argument, "self") != 0;
}

fth_status fth_fold_node(const fth_exported *program, const fth_exported_node *node,
                         const fth_host_tensor *const *tensors, int64_t *allowance, fth_host_tensor *outputs,
                         bool *folded)
{
    fold f = {.program = program, .node = node, .tensors = tensors, .allowance = allowance, .outputs = outputs};
    size_t at = 0;
    *folded = false;
    if (!find_name(node->target, f.name, &f.in_place) || !find_rule(f.name) || node->output_count == 0)
        return FTH_OK;
    for (size_t i = 0; i < node->output_count; i++)
        outputs[i] = (fth_host_tensor){0};
    for (size_t i = 0; i < node->argument_count; i++) {
        const fth_exported_argument *argument = &node->arguments[i];
        const size_t count = argument->kind == FTH_ARGUMENT_TENSOR    ? 1
                             : argument->kind == FTH_ARGUMENT_TENSORS ? argument->count
                                                                      : 0;
        for (size_t k = 0; k < count; k++, at++) {
            if (tensors[at])
                fth_host_tensor_refresh(tensors[at]);
        }
    }
    *folded = find_rule(f.name)(&f);
    for (size_t i = 0; i < node->output_count && !*folded; i++)
        fth_host_tensor_release(&outputs[i]);
    return f.status;
}
