/* Operators that make new tensors, of numbers of their own or of those of their arguments. */
#include <stdlib.h>
#include <string.h>

#include "exported/fold_internal.h"

static bool set_if(fold *f, bool good, double *numbers)
{
    if (good)
        return fold_set(f, 0, numbers);
    free(numbers);
    return false;
}

/* ---- new numbers ---- */

static bool fill_with(fold *f, double number)
{
    fth_shape shape;
    if (f->in_place || !fold_output_shape(f, 0, &shape))
        return false;
    double *numbers = fold_allocate(f, &shape);
    const int64_t count = fth_shape_count(&shape);
    for (int64_t i = 0; numbers && i < count; i++)
        numbers[i] = number;
    return fold_set(f, 0, numbers);
}

static bool zeros(fold *f)
{
    return fill_with(f, 0);
}

static bool ones(fold *f)
{
    return fill_with(f, 1);
}

static bool full(fold *f)
{
    double number;
    return fold_number(f, fold_has(f, "s") ? "s" : "fill_value", &number) && fill_with(f, number);
}

/* start + i * step */
static bool arange(fold *f)
{
    double start, step, end;
    fth_shape shape;
    if (!fold_number_or(f, "start", 0, &start) || !fold_number_or(f, "step", 1, &step) ||
        !fold_number(f, "end", &end) || !fold_output_shape(f, 0, &shape) || shape.rank != 1)
        return false;
    double *numbers = fold_allocate(f, &shape);
    for (int64_t i = 0; numbers && i < shape.dims[0]; i++)
        numbers[i] = start + (double)i * step;
    return fold_set(f, 0, numbers);
}

static bool linspace(fold *f)
{
    double start, end;
    fth_shape shape;
    if (!fold_number(f, "start", &start) || !fold_number(f, "end", &end) || !fold_output_shape(f, 0, &shape) ||
        shape.rank != 1)
        return false;
    double *numbers = fold_allocate(f, &shape);
    const int64_t count = shape.dims[0];
    double step = count > 1 ? (end - start) / (double)(count - 1) : 0;
    if (fth_exported_get_value(f->program, f->node->outputs[0])->torch_dtype == FTH_TORCH_F32)
        step = (float)step; /* as PyTorch */
    for (int64_t i = 0; numbers && i < count; i++)
        numbers[i] = i < count / 2 || count == 1 ? start + (double)i * step : end - (double)(count - 1 - i) * step;
    return fold_set(f, 0, numbers);
}

static bool eye(fold *f)
{
    fth_shape shape;
    if (!fold_output_shape(f, 0, &shape) || shape.rank != 2)
        return false;
    double *numbers = fold_allocate(f, &shape);
    for (int64_t i = 0; numbers && i < shape.dims[0] && i < shape.dims[1]; i++)
        numbers[i * shape.dims[1] + i] = 1;
    return fold_set(f, 0, numbers);
}

/* ---- copies ---- */

static double *copy_of(fold *f, const fth_host_tensor *tensor)
{
    double *numbers = fold_allocate(f, &tensor->shape);
    if (numbers)
        memcpy(numbers, tensor->numbers, (size_t)fth_shape_count(&tensor->shape) * sizeof *numbers);
    return numbers;
}

static bool copy_all(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    fth_shape shape;
    return self && fold_output_shape(f, 0, &shape) && fth_shape_equal(&shape, &self->shape) &&
           fold_set(f, 0, copy_of(f, self));
}

/* A part of a matrix on one side of a diagonal; zeros elsewhere. */
static bool triangle(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    int64_t diagonal;
    if (!self || self->shape.rank < 2 || !fold_int_or(f, "diagonal", 0, &diagonal))
        return false;
    const int64_t rows = self->shape.dims[self->shape.rank - 2], columns = self->shape.dims[self->shape.rank - 1];
    const int64_t count = fth_shape_count(&self->shape);
    const bool is_lower = strcmp(f->name, "tril") == 0;
    double *numbers = copy_of(f, self);
    for (int64_t i = 0; numbers && i < count; i++) {
        const int64_t row = i / columns % rows, column = i % columns;
        if (is_lower ? column - row > diagonal : column - row < diagonal)
            numbers[i] = 0;
    }
    return fold_set(f, 0, numbers);
}

/* The place in `self` of an index of the result. */
typedef struct copy_map {
    int64_t shifts[FTH_MAX_RANK]; /* added to the index, modulo the size */
    bool backwards[FTH_MAX_RANK];
} copy_map;

/* Copies an axis from another position each. Missing leading axes repeat all. */
static bool copy_mapped(fold *f, const fth_host_tensor *self, const copy_map *map)
{
    fold_walk walk = {.index = {0}};
    int64_t strides[FTH_MAX_RANK];
    if (!fold_output_shape(f, 0, &walk.shape) || walk.shape.rank < self->shape.rank ||
        fth_shape_count(&self->shape) == 0)
        return false;
    fold_strides(&self->shape, strides);
    const int missing = walk.shape.rank - self->shape.rank;
    double *numbers = fold_allocate(f, &walk.shape);
    const int64_t count = fth_shape_count(&walk.shape);
    for (int64_t i = 0; numbers && i < count; i++, fold_next(&walk)) {
        int64_t place = 0;
        for (int k = 0; k < self->shape.rank; k++) {
            const int64_t size = self->shape.dims[k], index = walk.index[missing + k];
            const int64_t moved = map->backwards[k] ? size - 1 - index : (index + map->shifts[k]) % size;
            place += moved * strides[k];
        }
        numbers[i] = self->numbers[place];
    }
    return fold_set(f, 0, numbers);
}

static bool is_multiple(const fth_shape *whole, const fth_shape *part)
{
    const int missing = whole->rank - part->rank;
    for (int i = 0; missing >= 0 && i < part->rank; i++) {
        if (part->dims[i] == 0 || whole->dims[missing + i] % part->dims[i] != 0)
            return false;
    }
    return missing >= 0;
}

static bool repeat(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    const copy_map map = {.shifts = {0}};
    fth_shape shape;
    return self && fold_output_shape(f, 0, &shape) && is_multiple(&shape, &self->shape) && copy_mapped(f, self, &map);
}

static bool roll(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    int64_t shifts[FTH_MAX_RANK], dims[FTH_MAX_RANK];
    size_t count, dim_count;
    copy_map map = {.shifts = {0}};
    fth_shape shape;
    if (!self || !fold_ints(f, "shifts", shifts, FTH_MAX_RANK, &count) ||
        !fold_ints(f, "dims", dims, FTH_MAX_RANK, &dim_count) || count != dim_count ||
        !fold_output_shape(f, 0, &shape) || !fth_shape_equal(&shape, &self->shape) || fth_shape_count(&shape) == 0)
        return false;
    for (size_t i = 0; i < count; i++) {
        int dim;
        if (!fold_wrap_dim(dims[i], self->shape.rank, &dim))
            return false;
        const int64_t size = self->shape.dims[dim];
        map.shifts[dim] = (map.shifts[dim] + size - shifts[i] % size) % size;
    }
    return copy_mapped(f, self, &map);
}

static bool flip(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    int64_t dims[FTH_MAX_RANK];
    size_t count;
    copy_map map = {.shifts = {0}};
    fth_shape shape;
    if (!self || !fold_ints(f, "dims", dims, FTH_MAX_RANK, &count) || !fold_output_shape(f, 0, &shape) ||
        !fth_shape_equal(&shape, &self->shape))
        return false;
    for (size_t i = 0; i < count; i++) {
        int dim;
        if (!fold_wrap_dim(dims[i], self->shape.rank, &dim))
            return false;
        map.backwards[dim] = true;
    }
    return copy_mapped(f, self, &map);
}

/* Copies a tensor into the result at a position of an axis. */
static void copy_into(const fth_host_tensor *part, double *numbers, const fth_shape *shape, int dim, int64_t position)
{
    int64_t inner = 1, outer = 1;
    for (int i = dim + 1; i < shape->rank; i++)
        inner *= shape->dims[i];
    for (int i = 0; i < dim; i++)
        outer *= shape->dims[i];
    const int64_t rows = inner * (fth_shape_count(&part->shape) / (inner * outer > 0 ? inner * outer : 1));
    for (int64_t o = 0; o < outer; o++)
        memcpy(numbers + (o * shape->dims[dim] + position) * inner, part->numbers + o * rows,
               (size_t)rows * sizeof *numbers);
}

static bool concatenate(fold *f)
{
    const bool is_stack = strcmp(f->name, "stack") == 0;
    const size_t count = fold_list_count(f, "tensors");
    fth_shape shape;
    int64_t total = 0;
    int dim;
    if (!fold_output_shape(f, 0, &shape) || !fold_dim_or(f, "dim", 0, shape.rank, &dim))
        return false;
    for (size_t i = 0; i < count; i++) { /* as large as the result but for the axis */
        const fth_host_tensor *part = fold_tensor_of(f, "tensors", i);
        fth_shape expected = shape;
        if (!part || (!is_stack && part->shape.rank != shape.rank))
            return false;
        expected.dims[dim] = is_stack ? 1 : part->shape.dims[dim];
        total += expected.dims[dim];
        if (is_stack) {
            memmove(expected.dims + dim, expected.dims + dim + 1,
                    (size_t)(FTH_MAX_RANK - dim - 1) * sizeof *expected.dims);
            expected.rank--;
        }
        if (!fth_shape_equal(&expected, &part->shape))
            return false;
    }
    if (total != shape.dims[dim])
        return false;
    double *numbers = fold_allocate(f, &shape);
    int64_t position = 0;
    for (size_t i = 0; numbers && i < count; i++) {
        const fth_host_tensor *part = fold_tensor_of(f, "tensors", i);
        copy_into(part, numbers, &shape, dim, position);
        position += is_stack ? 1 : part->shape.dims[dim];
    }
    return fold_set(f, 0, numbers);
}

static bool meshgrid(fold *f)
{
    const size_t count = fold_list_count(f, "tensors");
    const fth_exported_argument *indexing = fth_exported_find_argument(f->node, "indexing");
    const bool is_xy = indexing && indexing->kind == FTH_ARGUMENT_STRING && strcmp(indexing->text, "xy") == 0;
    if (count == 0 || count > FTH_MAX_RANK || count != f->node->output_count)
        return false;
    for (size_t i = 0; i < count; i++) {
        const fth_host_tensor *part = fold_tensor_of(f, "tensors", i);
        const size_t axis = is_xy && i < 2 && count > 1 ? 1 - i : i;
        int64_t strides[FTH_MAX_RANK] = {0};
        fth_shape shape;
        if (f->node->outputs[i] < 0)
            continue;
        if (!part || part->shape.rank > 1 || !fold_output_shape(f, i, &shape) || shape.rank != (int)count ||
            shape.dims[axis] != fth_shape_count(&part->shape))
            return false;
        strides[axis] = 1;
        if (!fold_set_view(f, i, part, 0, strides))
            return false;
    }
    return true;
}

/* ---- copies from places that tensors say ---- */

/* The position that an index means; false if there is none. */
static bool find_position(double index, int64_t size, int64_t *position)
{
    *position = index < 0 ? (int64_t)index + size : (int64_t)index;
    return *position >= 0 && *position < size;
}

static bool gather(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self"), *index = fold_tensor(f, "index");
    fold_walk walk = {.index = {0}};
    int64_t strides[FTH_MAX_RANK];
    int dim;
    if (!self || !index || !fold_dim_or(f, "dim", 0, self->shape.rank, &dim) || !fold_output_shape(f, 0, &walk.shape) ||
        !fth_shape_equal(&walk.shape, &index->shape) || index->shape.rank != self->shape.rank)
        return false;
    for (int i = 0; i < self->shape.rank; i++) {
        if (i != dim && index->shape.dims[i] > self->shape.dims[i])
            return false;
    }
    fold_strides(&self->shape, strides);
    memcpy(walk.strides[0], strides, sizeof strides);
    walk.strides[0][dim] = 0;
    double *numbers = fold_allocate(f, &walk.shape);
    const int64_t count = fth_shape_count(&walk.shape);
    bool good = numbers != NULL;
    for (int64_t i = 0; good && i < count; i++, fold_next(&walk)) {
        int64_t position;
        good = find_position(index->numbers[i], self->shape.dims[dim], &position);
        numbers[i] = good ? self->numbers[walk.places[0] + position * strides[dim]] : 0;
    }
    return set_if(f, good, numbers);
}

/* index_select, and embedding: whole rows of an axis. */
static bool take_rows(fold *f, const fth_host_tensor *self, const fth_host_tensor *index, int dim)
{
    fth_shape shape, expected;
    if (!self || !index || fth_torch_dtype_is_float(index->torch_dtype) || index->torch_dtype == FTH_TORCH_BOOL ||
        !fold_output_shape(f, 0, &shape) || self->shape.rank - 1 + index->shape.rank > FTH_MAX_RANK)
        return false;
    int64_t inner = 1, outer = 1;
    expected = (fth_shape){.rank = 0};
    for (int i = 0; i < dim; i++)
        outer *= expected.dims[expected.rank++] = self->shape.dims[i];
    for (int i = 0; i < index->shape.rank; i++)
        expected.dims[expected.rank++] = index->shape.dims[i];
    for (int i = dim + 1; i < self->shape.rank; i++)
        inner *= expected.dims[expected.rank++] = self->shape.dims[i];
    if (!fth_shape_equal(&shape, &expected))
        return false;
    const int64_t size = self->shape.dims[dim], rows = fth_shape_count(&index->shape);
    double *numbers = fold_allocate(f, &shape);
    bool good = numbers != NULL;
    for (int64_t o = 0; good && o < outer; o++) {
        for (int64_t r = 0; good && r < rows; r++) {
            int64_t position;
            good = find_position(index->numbers[r], size, &position);
            if (good)
                memcpy(numbers + (o * rows + r) * inner, self->numbers + (o * size + position) * inner,
                       (size_t)inner * sizeof *numbers);
        }
    }
    return set_if(f, good, numbers);
}

static bool index_select(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    int dim;
    return self && fold_dim_or(f, "dim", 0, self->shape.rank, &dim) && take_rows(f, self, fold_tensor(f, "index"), dim);
}

static bool embedding(fold *f)
{
    const fth_host_tensor *weight = fold_tensor(f, "weight");
    return weight && weight->shape.rank == 2 && take_rows(f, weight, fold_tensor(f, "indices"), 0);
}

/* The one block of axes, from `first` on, that have an index tensor each. */
static bool find_block(const fold *f, const fth_host_tensor *self, int *first, int *count)
{
    const int listed = (int)fold_list_count(f, "indices");
    *count = 0;
    for (int i = 0; i < listed; i++) {
        const fth_host_tensor *index = fold_tensor_of(f, "indices", (size_t)i);
        if (!index)
            continue;
        if (fth_torch_dtype_is_float(index->torch_dtype) || index->torch_dtype == FTH_TORCH_BOOL || *count == 3 ||
            (*count > 0 && i != *first + *count))
            return false;
        *first = *count == 0 ? i : *first;
        ++*count;
    }
    return *count > 0 && listed <= self->shape.rank;
}

/* self[:, i, j]: tensors of integers for neighbouring axes, up to three. */
static bool index_with(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    fold_walk walk = {.index = {0}};
    int64_t strides[FTH_MAX_RANK];
    int first = 0, count = 0;
    if (!self || !find_block(f, self, &first, &count) || !fold_output_shape(f, 0, &walk.shape))
        return false;
    const int rank = walk.shape.rank - (self->shape.rank - count); /* of the tensors together */
    const int after = self->shape.rank - first - count;
    if (rank < 0)
        return false;
    fold_strides(&self->shape, strides);
    fth_shape block = {.rank = rank};
    memcpy(block.dims, walk.shape.dims + first, (size_t)rank * sizeof *block.dims);
    for (int k = 0; k < count; k++) {
        fold_walk broadcast = {.shape = block};
        if (!fold_broadcast(&broadcast, 0, &fold_tensor_of(f, "indices", (size_t)(first + k))->shape))
            return false;
        memcpy(walk.strides[k] + first, broadcast.strides[0], (size_t)rank * sizeof *strides);
    }
    for (int i = 0; i < walk.shape.rank - rank; i++) { /* the axes that stay */
        const int own = i < first ? i : i + count, its = i < first ? i : i + rank;
        if (walk.shape.dims[its] != self->shape.dims[own])
            return false;
    }
    double *numbers = fold_allocate(f, &walk.shape);
    const int64_t total = fth_shape_count(&walk.shape);
    bool good = numbers != NULL;
    for (int64_t i = 0; good && i < total; i++, fold_next(&walk)) {
        int64_t place = 0;
        for (int k = 0; k < first; k++)
            place += walk.index[k] * strides[k];
        for (int k = 0; k < after; k++)
            place += walk.index[first + rank + k] * strides[first + count + k];
        for (int k = 0; good && k < count; k++) {
            int64_t position;
            const fth_host_tensor *index = fold_tensor_of(f, "indices", (size_t)(first + k));
            good = find_position(index->numbers[walk.places[k]], self->shape.dims[first + k], &position);
            place += good ? position * strides[first + k] : 0;
        }
        numbers[i] = good ? self->numbers[place] : 0;
    }
    return set_if(f, good, numbers);
}

static bool pad(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    const fth_exported_argument *mode = fth_exported_find_argument(f->node, "mode");
    fold_walk walk = {.index = {0}};
    int64_t pads[2 * FTH_MAX_RANK] = {0}, strides[FTH_MAX_RANK];
    double value;
    size_t count;
    if (!self || (mode && (mode->kind != FTH_ARGUMENT_STRING || strcmp(mode->text, "constant") != 0)) ||
        !fold_ints(f, "pad", pads, FTH_COUNT_OF(pads), &count) || count % 2 || (int)count / 2 > self->shape.rank ||
        !fold_number_or(f, "value", 0, &value) || !fold_output_shape(f, 0, &walk.shape) ||
        walk.shape.rank != self->shape.rank)
        return false;
    for (int k = 0; k < self->shape.rank; k++) { /* the last axis is listed first */
        const int64_t *pair = &pads[2 * (self->shape.rank - 1 - k)];
        if (pair[0] < -FTH_FOLD_ELEMENTS || pair[0] > FTH_FOLD_ELEMENTS || pair[1] < -FTH_FOLD_ELEMENTS ||
            pair[1] > FTH_FOLD_ELEMENTS || walk.shape.dims[k] != pair[0] + self->shape.dims[k] + pair[1])
            return false;
    }
    fold_strides(&self->shape, strides);
    double *numbers = fold_allocate(f, &walk.shape);
    const int64_t total = fth_shape_count(&walk.shape);
    for (int64_t i = 0; numbers && i < total; i++, fold_next(&walk)) {
        int64_t place = 0;
        bool inside = true;
        for (int k = 0; k < self->shape.rank; k++) {
            const int64_t index = walk.index[k] - pads[2 * (self->shape.rank - 1 - k)];
            inside = inside && index >= 0 && index < self->shape.dims[k];
            place += index * strides[k];
        }
        numbers[i] = inside ? self->numbers[place] : value;
    }
    return fold_set(f, 0, numbers);
}

const fold_row fold_copies[] = {
    {"zeros", zeros},
    {"new_zeros", zeros},
    {"zeros_like", zeros},
    {"ones", ones},
    {"new_ones", ones},
    {"ones_like", ones},
    {"full", full},
    {"new_full", full},
    {"full_like", full},
    {"scalar_tensor", full},
    {"arange", arange},
    {"linspace", linspace},
    {"eye", eye},
    {"clone", copy_all},
    {"contiguous", copy_all},
    {"lift_fresh_copy", copy_all},
    {"tril", triangle},
    {"triu", triangle},
    {"repeat", repeat},
    {"tile", repeat},
    {"roll", roll},
    {"flip", flip},
    {"cat", concatenate},
    {"concat", concatenate},
    {"concatenate", concatenate},
    {"stack", concatenate},
    {"meshgrid", meshgrid},
    {"gather", gather},
    {"index_select", index_select},
    {"embedding", embedding},
    {"index", index_with},
    {"constant_pad_nd", pad},
    {"pad", pad},
    {NULL, NULL},
};
