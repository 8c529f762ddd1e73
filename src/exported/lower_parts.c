/* Parts of tensors, and tensors put together. */
#include <stdlib.h>
#include <string.h>

#include "exported/lower_axis.h"

/* ---- parts ---- */

static fth_status take(lowering *l, const fth_view *whole, int dim, int64_t begin, int64_t end, int64_t step,
                       fth_view *part)
{
    fth_status status = FTH_OK;
    fth_view x = *whole;
    lowering_place where;
    fth_value value;
    const fth_exported_dim size = fth_view_dim(whole, dim);

    FTH_REQUIRE(!size.batch, FTH_UNSUPPORTED, "it takes samples of the batch");
    FTH_REQUIRE(begin >= 0 && begin < end && end <= size.factor && step >= 1, FTH_UNSUPPORTED,
                "%lld to %lld is no part of %lld", (long long)begin, (long long)end, (long long)size.factor);
    if (begin == 0 && end == size.factor && step == 1) {
        *part = x;
        goto out;
    }
    int64_t unit = 1;
    FTH_TRY(step == 1 ? lowering_as_columns(l, &x, dim, &where, &unit) : lowering_as_axis(l, &x, dim, &where));
    FTH_TRY(fth_op_add_slice(lowering_graph(l), where.axis, begin * unit, end * unit, step, x.value, &value));
    FTH_TRY(lowering_resized(&x, dim, where, (end - begin + step - 1) / step, value, part));
out:
    return status;
}

fth_status lowering_take(lowering *l, const fth_view *whole, int dim, int64_t begin, int64_t end, fth_view *part)
{
    return take(l, whole, dim, begin, end, 1, part);
}

/* A bound as Python's slices have them. */
static int64_t bound(int64_t at, int64_t size)
{
    at += at < 0 ? size : 0;
    return at < 0 ? 0 : at > size ? size : at;
}

static fth_status slice(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x, y;
    int dim;

    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_TRY(lowering_dim(l, "dim", 0, x.rank, &dim));
    const fth_exported_dim size = fth_view_dim(&x, dim);
    if (size.batch) { /* of the whole batch: x[:] */
        const int64_t begin = lowering_int(l, "start", 0), end = lowering_int(l, "end", INT64_MAX);
        FTH_REQUIRE(begin == 0 && end == INT64_MAX && lowering_int(l, "step", 1) == 1, FTH_UNSUPPORTED,
                    "it takes samples of the batch");
        lowering_set(l, 0, &x);
        goto out;
    }
    FTH_TRY(take(l, &x, dim, bound(lowering_int(l, "start", 0), size.factor),
                 bound(lowering_int(l, "end", INT64_MAX), size.factor), lowering_int(l, "step", 1), &y));
    lowering_set(l, 0, &y);
out:
    return status;
}

static fth_status select_one(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x, y;
    int dim;
    int64_t index = lowering_int(l, "index", 0);

    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_TRY(lowering_dim(l, "dim", 0, x.rank, &dim));
    index += index < 0 ? fth_view_dim(&x, dim).factor : 0;
    FTH_TRY(take(l, &x, dim, index, index + 1, 1, &y));
    fth_view_remove(&y, dim);
    lowering_set(l, 0, &y);
out:
    return status;
}

static fth_status narrow(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x, y;
    int dim;
    const int64_t begin = lowering_int(l, "start", 0);

    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_TRY(lowering_dim(l, "dim", 0, x.rank, &dim));
    FTH_TRY(take(l, &x, dim, begin, begin + lowering_int(l, "length", 0), 1, &y));
    lowering_set(l, 0, &y);
out:
    return status;
}

/* split, chunk, unbind: parts one after another, as the outputs' sizes say. */
static fth_status split_into(lowering *l, bool without_dim)
{
    fth_status status = FTH_OK;
    fth_view x, y;
    int dim;
    int64_t begin = 0;

    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_TRY(lowering_dim(l, "dim", 0, x.rank, &dim));
    for (size_t o = 0; o < lowering_node(l)->output_count; o++) {
        FTH_REQUIRE(without_dim || lowering_node(l)->outputs[o] >= 0, FTH_UNSUPPORTED, "one of its parts is unknown");
        const int64_t size = without_dim ? 1 : lowering_output(l, o)->dims[dim].factor;
        if (lowering_node(l)->outputs[o] >= 0) {
            FTH_TRY(take(l, &x, dim, begin, begin + size, 1, &y));
            if (without_dim)
                fth_view_remove(&y, dim);
            lowering_set(l, o, &y);
        }
        begin += size;
    }
out:
    return status;
}

static fth_status split(lowering *l)
{
    return split_into(l, false);
}

static fth_status unbind(lowering *l)
{
    return split_into(l, true);
}

/* ---- together ---- */

enum { MOST_JOINED = 256 };

/* The dimension that has the batch, or 0. */
static int batch_dim(const fth_view *x)
{
    for (int d = 0; d < x->rank; d++)
        if (fth_view_dim(x, d).batch)
            return d;
    return 0;
}

/* The first half of a dimension times the logistic function of the second. */
static fth_status gated(lowering *l)
{
    fth_status status = FTH_OK;
    fth_expression expression = {0};
    fth_view x, a, b, y;
    int dim;

    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_TRY(lowering_dim(l, "dim", -1, x.rank, &dim));
    const int64_t half = fth_view_dim(&x, dim).factor / 2;
    FTH_TRY(take(l, &x, dim, 0, half, 1, &a));
    FTH_TRY(take(l, &x, dim, half, 2 * half, 1, &b));
    const fth_operand gate = fth_expression_apply(&expression, FTH_FUNCTION_SIGMOID, fth_expression_input(1),
                                                  FTH_NO_OPERAND, FTH_NO_OPERAND);
    fth_expression_apply(&expression, FTH_FUNCTION_MUL, fth_expression_input(0), gate, FTH_NO_OPERAND);
    FTH_TRY(lowering_combine(l, &expression, (fth_view *const[]){&a, &b}, 2, &y));
    lowering_set(l, 0, &y);
out:
    return status;
}

/* Joins views along a dimension; they are changed. In memory the batch comes first. */
fth_status lowering_join(lowering *l, fth_view *parts, size_t count, int dim, fth_view *y)
{
    fth_status status = FTH_OK;
    fth_value *values = NULL, value;
    int64_t total = 0;
    int batch = 0, order[FTH_MAX_RANK], axis = 0;

    FTH_TRY(fth_allocate(count, sizeof *values, &values));
    for (size_t i = 0; i < count; i++)
        batch = batch_dim(&parts[i]) > 0 ? batch_dim(&parts[i]) : batch;
    for (int d = 0; d < parts[0].rank; d++) {
        order[d] = d == 0 ? batch : d - (d <= batch);
        axis = order[d] == dim ? d : axis;
    }
    for (size_t i = 0; i < count; i++) {
        FTH_REQUIRE(parts[i].rank == parts[0].rank && !fth_view_dim(&parts[i], dim).batch, FTH_UNSUPPORTED,
                    "it joins samples of the batch, or tensors of different ranks");
        total += fth_view_dim(&parts[i], dim).factor;
        fth_view_permute(&parts[i], order);
        FTH_TRY(fth_view_arrange_plain(lowering_graph(l), &parts[i]));
        values[i] = parts[i].value;
    }
    FTH_TRY(fth_op_add_concat(lowering_graph(l), axis, values, (int)count, &value));
    FTH_TRY(lowering_resized(&parts[0], axis, lowering_place_in_dims(&parts[0], axis), total, value, y));
    for (int d = 0; d < parts[0].rank; d++)
        order[d] = d == batch ? 0 : d + (d < batch);
    fth_view_permute(y, order);
out:
    free(values);
    return status;
}

static fth_status join_tensors(lowering *l, bool with_new_dim)
{
    fth_status status = FTH_OK;
    fth_view *parts = NULL, y;
    size_t given = lowering_tensor_count(l, "tensors"), count = 0;
    int dim = 0;

    FTH_REQUIRE(given >= 1 && given <= MOST_JOINED, FTH_UNSUPPORTED, "it joins %zu tensors", given);
    FTH_TRY(fth_allocate(given, sizeof *parts, &parts));
    for (size_t i = 0; i < given; i++) {
        FTH_TRY(lowering_tensor_of(l, "tensors", i, &parts[count]));
        if (i == 0)
            FTH_TRY(lowering_dim(l, "dim", lowering_is(l, "hstack"), parts[0].rank + with_new_dim, &dim));
        FTH_REQUIRE(parts[count].rank == parts[0].rank - (with_new_dim && i > 0), FTH_UNSUPPORTED,
                    "it joins tensors of different ranks");
        if (with_new_dim)
            FTH_TRY(fth_view_insert(&parts[count], dim));
        count++;
    }
    FTH_TRY(lowering_join(l, parts, count, dim, &y));
    lowering_set(l, 0, &y);
out:
    free(parts);
    return status;
}

static fth_status concat(lowering *l)
{
    return join_tensors(l, false);
}

static fth_status stack(lowering *l)
{
    return join_tensors(l, true);
}

static fth_status roll(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x, parts[2];
    int64_t shifts[FTH_MAX_RANK], dims[FTH_MAX_RANK];
    const size_t count = lowering_int_count(l, "shifts");

    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_REQUIRE(count <= FTH_MAX_RANK && lowering_int_count(l, "dims") == count, FTH_UNSUPPORTED,
                "it rolls a tensor as if it were flat");
    FTH_TRY(lowering_ints(l, "shifts", 0, shifts, count));
    FTH_TRY(lowering_ints(l, "dims", 0, dims, count));
    for (size_t i = 0; i < count; i++) {
        const int dim = (int)(dims[i] + (dims[i] < 0 ? x.rank : 0));
        FTH_REQUIRE(dim >= 0 && dim < x.rank && !fth_view_dim(&x, dim).batch, FTH_UNSUPPORTED,
                    "it rolls a dimension that is the batch, or that there is not");
        const int64_t size = fth_view_dim(&x, dim).factor, by = ((shifts[i] % size) + size) % size;
        if (by == 0)
            continue;
        FTH_TRY(take(l, &x, dim, size - by, size, 1, &parts[0]));
        FTH_TRY(take(l, &x, dim, 0, size - by, 1, &parts[1]));
        FTH_TRY(lowering_join(l, parts, 2, dim, &x));
    }
    lowering_set(l, 0, &x);
out:
    return status;
}

static fth_status pad_dim(lowering *l, fth_view *x, int dim, int64_t before, int64_t after, double value)
{
    fth_status status = FTH_OK;
    const int64_t size = fth_view_dim(x, dim).factor;
    lowering_place where;
    fth_value padded;

    if (before < 0 || after < 0) /* takes away */
        FTH_TRY(take(l, x, dim, before < 0 ? -before : 0, size + (after < 0 ? after : 0), 1, x));
    before = before < 0 ? 0 : before;
    after = after < 0 ? 0 : after;
    if (before == 0 && after == 0)
        goto out;
    const int64_t left = fth_view_dim(x, dim).factor;
    FTH_TRY(lowering_as_axis(l, x, dim, &where));
    FTH_TRY(fth_op_add_pad(
        lowering_graph(l),
        (fth_pad_attributes){.axis = where.axis, .before = before, .after = after, .value = (float)value}, x->value,
        &padded));
    FTH_TRY(lowering_resized(x, dim, where, left + before + after, padded, x));
out:
    return status;
}

/* As often as the result is larger. */
static fth_status repeat(lowering *l)
{
    fth_status status = FTH_OK;
    const fth_exported_value *output = lowering_output(l, 0);
    fth_exported_dim dims[2 * FTH_MAX_RANK];
    fth_view x;

    FTH_TRY(lowering_tensor(l, "self", &x));
    while (x.rank < output->rank)
        FTH_TRY(fth_view_insert(&x, 0));
    FTH_REQUIRE(x.rank == output->rank, FTH_UNSUPPORTED, "its result has fewer dimensions than its input");
    FTH_REQUIRE(x.rank == output->rank && 2 * x.rank <= FTH_MAX_RANK, FTH_UNSUPPORTED,
                "it repeats a tensor of %d dimensions", x.rank);
    for (int d = output->rank - 1; d >= 0; d--) /* (a, b) to (1, a, 1, b) */
        FTH_TRY(fth_view_insert(&x, d));
    for (int d = 0; d < x.rank; d += 2) {
        const fth_exported_dim own = fth_view_dim(&x, d + 1), all = output->dims[d / 2];
        FTH_REQUIRE(!own.batch || (all.batch && all.factor == own.factor), FTH_UNSUPPORTED, "it repeats the batch");
        FTH_REQUIRE(own.factor > 0 && all.factor >= own.factor && all.factor % own.factor == 0, FTH_UNSUPPORTED,
                    "its result is no multiple of its input");
        dims[d] = (fth_exported_dim){.factor = all.factor / own.factor, .batch = all.batch && !own.batch};
        dims[d + 1] = own;
    }
    FTH_TRY(fth_view_expand(&x, x.rank, dims));
    FTH_TRY(fth_view_reshape(lowering_graph(l), &x, output->rank, output->dims));
    lowering_set(l, 0, &x);
out:
    return status;
}

/* Each element as often as the result is larger, one after another. */
static fth_status repeat_each(lowering *l)
{
    fth_status status = FTH_OK;
    const fth_exported_value *output = lowering_output(l, 0);
    fth_exported_dim dims[FTH_MAX_RANK + 1];
    fth_view x;
    int dim;

    FTH_REQUIRE(lowering_int(l, "repeats", 0) >= 1 && !lowering_lacks(l, "dim"), FTH_UNSUPPORTED,
                "with a tensor of repeats, or of a tensor as if it were flat");
    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_TRY(lowering_dim(l, "dim", 0, x.rank, &dim));
    FTH_REQUIRE(!fth_view_dim(&x, dim).batch, FTH_UNSUPPORTED, "it repeats the batch");
    FTH_REQUIRE(x.rank < FTH_MAX_RANK, FTH_UNSUPPORTED, "it repeats a tensor of %d dimensions", x.rank);
    FTH_TRY(fth_view_insert(&x, dim + 1));
    for (int d = 0; d < x.rank; d++)
        dims[d] = d == dim + 1 ? (fth_exported_dim){.factor = lowering_int(l, "repeats", 1)} : fth_view_dim(&x, d);
    FTH_TRY(fth_view_expand(&x, x.rank, dims));
    FTH_TRY(fth_view_reshape(lowering_graph(l), &x, output->rank, output->dims));
    lowering_set(l, 0, &x);
out:
    return status;
}

/* ---- by indices that are constant ---- */

static fth_status take_indices(lowering *l, const fth_view *whole, int dim, const fth_host_tensor *indices, fth_view *y)
{
    fth_status status = FTH_OK;
    fth_view x = *whole, ids;
    lowering_place where;
    fth_value value;
    const fth_exported_dim size = fth_view_dim(whole, dim);
    const int64_t count = fth_shape_count(&indices->shape);
    fth_host_tensor flat = {.torch_dtype = FTH_TORCH_I64, .shape = FTH_SHAPE(count)};

    FTH_REQUIRE(!size.batch, FTH_UNSUPPORTED, "it takes samples of the batch");
    FTH_TRY(fth_allocate((size_t)count, sizeof *flat.numbers, &flat.numbers));
    for (int64_t i = 0; i < count; i++) {
        flat.numbers[i] = indices->numbers[i] + (indices->numbers[i] < 0 ? (double)size.factor : 0);
        FTH_REQUIRE(flat.numbers[i] >= 0 && flat.numbers[i] < (double)size.factor, FTH_UNSUPPORTED,
                    "the index %.0f is not within %lld", indices->numbers[i], (long long)size.factor);
    }
    FTH_TRY(lowering_add_constant(l, &flat, &ids));
    FTH_TRY(lowering_as_axis(l, &x, dim, &where));
    FTH_TRY(fth_op_add_gather(lowering_graph(l), where.axis, x.value, ids.value, &value));
    FTH_TRY(lowering_resized(&x, dim, where, count, value, y));
out:
    fth_host_tensor_release(&flat);
    return status;
}

/* The numbers of `part` in the places begin, begin + step, ... of a dimension. */
static fth_status put(lowering *l, const fth_view *part, int dim, int64_t begin, int64_t step, fth_view *whole)
{
    fth_status status = FTH_OK;
    const int64_t size = fth_view_dim(whole, dim).factor, given = fth_view_dim(part, dim).factor, end = begin + given;
    fth_view parts[3];
    size_t count = 0;
    fth_host_tensor indices = {.torch_dtype = FTH_TORCH_I64, .shape = FTH_SHAPE(size)};

    if (step == 1) {
        if (begin > 0)
            FTH_TRY(take(l, whole, dim, 0, begin, 1, &parts[count++]));
        parts[count++] = *part;
        if (end < size)
            FTH_TRY(take(l, whole, dim, end, size, 1, &parts[count++]));
        FTH_TRY(lowering_join(l, parts, count, dim, whole));
        goto out;
    }
    FTH_REQUIRE(step > 1 && step <= size && given <= size && size <= FTH_FOLD_ALLOWANCE, FTH_UNSUPPORTED,
                "every %lld of %lld numbers", (long long)step, (long long)size);
    parts[0] = *whole;
    parts[1] = *part;
    FTH_TRY(lowering_join(l, parts, 2, dim, &parts[2]));
    FTH_TRY(fth_allocate((size_t)size, sizeof *indices.numbers, &indices.numbers));
    for (int64_t i = 0; i < size; i++)
        indices.numbers[i] = (double)(i >= begin && (i - begin) % step == 0 ? size + (i - begin) / step : i);
    for (int64_t i = begin + given * step; i < size; i += step) /* behind the end of the part */
        indices.numbers[i] = (double)i;
    FTH_TRY(take_indices(l, &parts[2], dim, &indices, whole));
out:
    fth_host_tensor_release(&indices);
    return status;
}

fth_status lowering_put_part(lowering *l, const fth_view *part, fth_view *whole)
{
    fth_status status = FTH_OK;
    fth_view x = *part;
    int dim;

    FTH_TRY(lowering_dim(l, "dim", 0, whole->rank, &dim));
    const fth_exported_dim size = fth_view_dim(whole, dim);
    if (size.batch) { /* x[:] */
        *whole = x;
        goto out;
    }
    if (lowering_is(l, "select")) {
        FTH_TRY(fth_view_insert(&x, dim));
        FTH_TRY(put(l, &x, dim, bound(lowering_int(l, "index", 0), size.factor), 1, whole));
    } else {
        FTH_TRY(put(l, &x, dim, bound(lowering_int(l, "start", 0), size.factor), lowering_int(l, "step", 1), whole));
    }
out:
    return status;
}

static fth_status index_select(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x, y;
    int dim;
    const fth_host_tensor *indices = lowering_constant(l, "index");

    FTH_REQUIRE(indices, FTH_UNSUPPORTED, "its indices depend on the input");
    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_TRY(lowering_dim(l, "dim", 0, x.rank, &dim));
    FTH_TRY(take_indices(l, &x, dim, indices, &y));
    lowering_set(l, 0, &y);
out:
    return status;
}

/* x[:, indices]: one tensor of integers for one dimension, whose place its dimensions take. */
static fth_status index_by_one(lowering *l)
{
    fth_status status = FTH_OK;
    const fth_exported_value *output = lowering_output(l, 0);
    const fth_exported_argument *list = fth_exported_find_argument(lowering_node(l), "indices");
    fth_view x, y;
    int dim = -1;

    FTH_REQUIRE(list && list->kind == FTH_ARGUMENT_TENSORS, FTH_UNSUPPORTED, "it has no list of indices");
    for (size_t i = 0; i < list->count; i++) {
        if (list->tensors[i] < 0)
            continue;
        FTH_REQUIRE(dim < 0, FTH_UNSUPPORTED, "it indexes several dimensions at once");
        dim = (int)i;
    }
    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_REQUIRE(dim >= 0 && dim < x.rank, FTH_UNSUPPORTED, "it indexes no dimension");
    const fth_host_tensor *indices = lowering_constant_of(l, "indices", (size_t)dim);
    FTH_REQUIRE(indices && indices->torch_dtype != FTH_TORCH_BOOL, FTH_UNSUPPORTED,
                "its indices depend on the input, or are truth values");
    FTH_TRY(take_indices(l, &x, dim, indices, &y));
    FTH_TRY(fth_view_reshape(lowering_graph(l), &y, output->rank, output->dims));
    lowering_set(l, 0, &y);
out:
    return status;
}

static fth_status flip(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x;
    unsigned dims;

    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_TRY(lowering_dims(l, "dims", x.rank, &dims));
    for (int d = 0; d < x.rank; d++) {
        const int64_t size = fth_view_dim(&x, d).factor;
        fth_host_tensor backwards = {.torch_dtype = FTH_TORCH_I64, .shape = FTH_SHAPE(size)};
        if ((dims >> d & 1) == 0)
            continue;
        FTH_REQUIRE(size <= FTH_FOLD_ALLOWANCE, FTH_UNSUPPORTED, "%lld numbers are too many", (long long)size);
        FTH_TRY(fth_allocate((size_t)size, sizeof *backwards.numbers, &backwards.numbers));
        for (int64_t i = 0; i < size; i++)
            backwards.numbers[i] = (double)(size - 1 - i);
        status = take_indices(l, &x, d, &backwards, &x);
        fth_host_tensor_release(&backwards);
        FTH_TRY(status);
    }
    lowering_set(l, 0, &x);
out:
    return status;
}

/* ---- padding ---- */

/* What number of a dimension of `size` a padded one has at `i`, which may be outside. */
static int64_t padded_index(const char *mode, int64_t i, int64_t size)
{
    if (strcmp(mode, "reflect") == 0)
        return i < 0 ? -i : i >= size ? 2 * (size - 1) - i : i;
    if (strcmp(mode, "circular") == 0)
        return i < 0 ? i + size : i >= size ? i - size : i;
    return i < 0 ? 0 : i >= size ? size - 1 : i; /* replicate */
}

static fth_status pad_with_own(lowering *l, fth_view *x, int dim, int64_t before, int64_t after)
{
    fth_status status = FTH_OK;
    const char *mode = lowering_text(l, "mode", "");
    const int64_t size = fth_view_dim(x, dim).factor, most = FTH_FOLD_ALLOWANCE;
    const fth_view whole = *x;
    fth_host_tensor indices = {.torch_dtype = FTH_TORCH_I64};

    FTH_REQUIRE(strcmp(mode, "reflect") == 0 || strcmp(mode, "circular") == 0 || strcmp(mode, "replicate") == 0,
                FTH_UNSUPPORTED, "padding of the mode %s", mode);
    if (before == 0 && after == 0)
        goto out;
    FTH_REQUIRE(size <= most && before >= -size && before <= most && after >= -size && after <= most &&
                    before + size + after >= 1,
                FTH_UNSUPPORTED, "its padding does not fit its input");
    const int64_t count = before + size + after;
    indices.shape = FTH_SHAPE(count);
    FTH_TRY(fth_allocate((size_t)count, sizeof *indices.numbers, &indices.numbers));
    for (int64_t i = 0; i < count; i++)
        indices.numbers[i] = (double)padded_index(mode, i - before, size);
    FTH_TRY(take_indices(l, &whole, dim, &indices, x));
out:
    fth_host_tensor_release(&indices);
    return status;
}

/* The last dimensions first, two numbers each. */
static fth_status pad(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x;
    int64_t amounts[2 * FTH_MAX_RANK];
    const size_t count = lowering_int_count(l, "pad");
    const bool constant = strcmp(lowering_text(l, "mode", "constant"), "constant") == 0;

    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_REQUIRE(count % 2 == 0 && (int)count <= 2 * x.rank, FTH_UNSUPPORTED, "its padding does not fit its input");
    FTH_TRY(lowering_ints(l, "pad", 0, amounts, count));
    for (size_t i = 0; i < count / 2; i++) {
        const int dim = x.rank - 1 - (int)i;
        const int64_t before = amounts[2 * i], after = amounts[2 * i + 1];
        FTH_TRY(constant ? pad_dim(l, &x, dim, before, after, lowering_number(l, "value", 0))
                         : pad_with_own(l, &x, dim, before, after));
    }
    lowering_set(l, 0, &x);
out:
    return status;
}

const lowering_row lowering_parts[] = {
    {"slice", slice}, {"select", select_one},  {"narrow", narrow}, {"split", split}, {"split_with_sizes", split},
    {"chunk", split}, {"tensor_split", split}, {"unbind", unbind}, {NULL, NULL},
};

const lowering_row lowering_joins[] = {
    {"cat", concat},
    {"concat", concat},
    {"hstack", concat},
    {"stack", stack},
    {"glu", gated},
    {"roll", roll},
    {"pad", pad},
    {"constant_pad_nd", pad},
    {"repeat", repeat},
    {"tile", repeat},
    {"repeat_interleave", repeat_each},
    {"index_select", index_select},
    {"index", index_by_one},
    {"flip", flip},
    {NULL, NULL},
};
