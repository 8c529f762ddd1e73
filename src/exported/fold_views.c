/* Operators whose results share numbers with their arguments: other shapes and orders of the
 * same. */
#include <string.h>

#include "exported/fold_internal.h"

/* reshape, flatten, squeeze ...: the program has the shape. */
static bool reshape(fold *f)
{
    return fold_set_same(f, 0, fold_tensor(f, "self"));
}

/* to(), which is a view of the same type, and a copy of another. */
static bool convert(fold *f)
{
    bool copies;
    double number;
    if (!fold_number_or(f, "copy", 0, &number))
        return false;
    copies = number != 0 || strcmp(f->name, "_to_copy") == 0;
    const fth_host_tensor *self = fold_tensor(f, "self");
    fth_shape shape;
    if (!copies)
        return fold_set_same(f, 0, self);
    if (!self || !fold_output_shape(f, 0, &shape) || !fth_shape_equal(&shape, &self->shape))
        return false;
    double *numbers = fold_allocate(f, &shape);
    if (numbers)
        memcpy(numbers, self->numbers, (size_t)fth_shape_count(&shape) * sizeof *numbers);
    return fold_set(f, 0, numbers);
}

/* Makes axis i of the result axis axes[i] of `self`. */
static bool reorder(fold *f, const int *axes)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    int64_t strides[FTH_MAX_RANK], result[FTH_MAX_RANK];
    fth_shape shape;
    unsigned seen = 0;
    fold_strides(&self->shape, strides);
    if (!fold_output_shape(f, 0, &shape) || shape.rank != self->shape.rank)
        return false;
    for (int i = 0; i < shape.rank; i++) {
        if (shape.dims[i] != self->shape.dims[axes[i]] || seen >> axes[i] & 1)
            return false;
        seen |= 1u << axes[i];
        result[i] = strides[axes[i]];
    }
    return fold_set_view(f, 0, self, 0, result);
}

static bool permute(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    int64_t dims[FTH_MAX_RANK];
    int axes[FTH_MAX_RANK];
    size_t count;
    if (!self || !fold_ints(f, "dims", dims, FTH_MAX_RANK, &count) || (int)count != self->shape.rank)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (!fold_wrap_dim(dims[i], self->shape.rank, &axes[i]))
            return false;
    }
    return reorder(f, axes);
}

static bool transpose(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    int axes[FTH_MAX_RANK], first = 0, second = 1;
    if (!self)
        return false;
    const bool is_t = f->name[0] == 't' && !f->name[1];
    if (is_t && self->shape.rank < 2)
        return fold_set_same(f, 0, self);
    const char *const names[] = {fold_has(f, "axis0") ? "axis0" : "dim0", fold_has(f, "axis1") ? "axis1" : "dim1"};
    if (!is_t &&
        (!fold_has(f, names[0]) || !fold_has(f, names[1]) || !fold_dim_or(f, names[0], 0, self->shape.rank, &first) ||
         !fold_dim_or(f, names[1], 0, self->shape.rank, &second)))
        return false;
    for (int i = 0; i < self->shape.rank; i++)
        axes[i] = i;
    axes[first] = second;
    axes[second] = first;
    return reorder(f, axes);
}

static bool expand(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    fold_walk walk = {.index = {0}};
    if (!self || !fold_output_shape(f, 0, &walk.shape) || !fold_broadcast(&walk, 0, &self->shape))
        return false;
    return fold_set_view(f, 0, self, 0, walk.strides[0]);
}

/* A position on an axis as Python means it. */
static int64_t clip(int64_t position, int64_t size)
{
    position = position < 0 ? position + size : position;
    return position < 0 ? 0 : position > size ? size : position;
}

static bool slice(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    int64_t strides[FTH_MAX_RANK], start, end, step;
    fth_shape shape;
    int dim;
    if (!self || !fold_dim_or(f, "dim", 0, self->shape.rank, &dim) || !fold_int_or(f, "start", 0, &start) ||
        !fold_int_or(f, "end", INT64_MAX, &end) || !fold_int_or(f, "step", 1, &step) || step < 1 ||
        !fold_output_shape(f, 0, &shape) || shape.rank != self->shape.rank)
        return false;
    const int64_t size = self->shape.dims[dim];
    start = clip(start, size);
    end = clip(end, size);
    fold_strides(&self->shape, strides);
    const int64_t offset = start * strides[dim], length = end > start ? (end - start - 1) / step + 1 : 0;
    if (shape.dims[dim] != length)
        return false;
    strides[dim] = length > 1 ? strides[dim] * step : 0;
    return fold_set_view(f, 0, self, offset, strides);
}

static bool narrow(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    int64_t strides[FTH_MAX_RANK], start;
    fth_shape shape;
    int dim;
    if (!self || !fold_dim_or(f, "dim", 0, self->shape.rank, &dim) || fold_tensor(f, "start") ||
        !fold_int_or(f, "start", 0, &start) || !fold_output_shape(f, 0, &shape) || shape.rank != self->shape.rank)
        return false;
    start = start < 0 ? start + self->shape.dims[dim] : start;
    fold_strides(&self->shape, strides);
    if (start < 0 || start > self->shape.dims[dim] - shape.dims[dim])
        return false;
    return fold_set_view(f, 0, self, start * strides[dim], strides);
}

/* Output `index` is position `position` of axis `dim`, without the axis. */
static bool set_selected(fold *f, size_t index, const fth_host_tensor *self, int dim, int64_t position)
{
    int64_t strides[FTH_MAX_RANK];
    fold_strides(&self->shape, strides);
    const int64_t offset = position * strides[dim];
    memmove(strides + dim, strides + dim + 1, (size_t)(FTH_MAX_RANK - dim - 1) * sizeof *strides);
    return fold_set_view(f, index, self, offset, strides);
}

static bool select_one(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    int64_t position;
    int dim;
    if (!self || !fold_dim_or(f, "dim", 0, self->shape.rank, &dim) || fold_tensor(f, "index") ||
        !fold_int_or(f, "index", 0, &position))
        return false;
    position = position < 0 ? position + self->shape.dims[dim] : position;
    return position >= 0 && position < self->shape.dims[dim] && set_selected(f, 0, self, dim, position);
}

static bool unbind(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    int dim;
    if (!self || !fold_dim_or(f, "dim", 0, self->shape.rank, &dim) ||
        (int64_t)f->node->output_count != self->shape.dims[dim])
        return false;
    for (size_t i = 0; i < f->node->output_count; i++) {
        if (f->node->outputs[i] >= 0 && !set_selected(f, i, self, dim, (int64_t)i))
            return false;
    }
    return true;
}

/* split() and chunk(): all parts but the last are of one size, or the sizes are listed. */
static bool split(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    const bool is_chunk = strcmp(f->name, "chunk") == 0;
    const char *name = is_chunk ? "chunks" : fold_has(f, "split_sizes") ? "split_sizes" : "split_size";
    int64_t sizes[64], strides[FTH_MAX_RANK], offset = 0;
    size_t count;
    int dim;
    if (!self || !fold_dim_or(f, "dim", 0, self->shape.rank, &dim) ||
        !fold_ints(f, name, sizes, FTH_COUNT_OF(sizes), &count) || count == 0 ||
        (count > 1 && count != f->node->output_count))
        return false;
    if (is_chunk && sizes[0] < 1)
        return false;
    if (is_chunk)
        sizes[0] = (self->shape.dims[dim] - 1) / sizes[0] + 1;
    fold_strides(&self->shape, strides);
    for (size_t i = 0; i < f->node->output_count; i++) {
        const int64_t size = count > 1 ? sizes[i] : sizes[0];
        if (size < 0 || offset > self->shape.dims[dim])
            return false;
        if (f->node->outputs[i] >= 0 && !fold_set_view(f, i, self, offset * strides[dim], strides))
            return false;
        offset += size;
    }
    return true;
}

const fold_row fold_views[] = {
    {"view", reshape},        {"view_as", reshape},   {"_unsafe_view", reshape},   {"reshape", reshape},
    {"reshape_as", reshape},  {"flatten", reshape},   {"unflatten", reshape},      {"ravel", reshape},
    {"squeeze", reshape},     {"unsqueeze", reshape}, {"alias", reshape},          {"detach", reshape},
    {"lift_fresh", reshape},  {"permute", permute},   {"transpose", transpose},    {"swapaxes", transpose},
    {"swapdims", transpose},  {"t", transpose},       {"expand", expand},          {"expand_as", expand},
    {"broadcast_to", expand}, {"slice", slice},       {"narrow", narrow},          {"select", select_one},
    {"unbind", unbind},       {"split", split},       {"split_with_sizes", split}, {"chunk", split},
    {"to", convert},          {"_to_copy", convert},  {"type_as", convert},        {NULL, NULL},
};
