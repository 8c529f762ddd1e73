/* From a description (storage, offset, sizes, strides) to a view. Every number comes from the file,
 * so each is checked before it is used. Contiguous tensors, nearly all, are used where they lie;
 * others are copied row by row. */
#include <stdlib.h>
#include <string.h>

#include "tensor/pth_internal.h"

/* A checked description. */
typedef struct tensor_layout {
    const char *origin, *name;
    size_t item_bytes;
    uint64_t storage_items, count;
    fth_shape shape;
    int64_t strides[FTH_MAX_RANK];
} tensor_layout;

static fth_status read_numbers(const tensor_layout *layout, const char *what, const fth_pickle_node *node,
                               int64_t *numbers)
{
    for (size_t i = 0; i < node->count; i++) {
        const fth_pickle_node *number = node->items[i];
        if (number->kind != FTH_PICKLE_INTEGER || number->integer < 0)
            return fth_fail(FTH_CORRUPT, "%s: tensor '%s': %s %zu is not a whole number of 0 or more", layout->origin,
                            layout->name, what, i);
        numbers[i] = number->integer;
    }
    return FTH_OK;
}

static fth_status read_layout(const fth_pickle_tensor *tensor, tensor_layout *layout)
{
    fth_status status = FTH_OK;
    const char *origin = layout->origin, *name = layout->name;
    FTH_REQUIRE(
        tensor->element->readable, FTH_UNSUPPORTED,
        "%s: tensor '%s' has dtype %s, which farthing does not read; convert it to float32, float16 or bfloat16",
        origin, name, tensor->element->dtype_name);
    FTH_REQUIRE(tensor->shape->count <= FTH_MAX_RANK, FTH_UNSUPPORTED,
                "%s: tensor '%s' has %u dimensions; farthing reads at most %d", origin, name, tensor->shape->count,
                (int)FTH_MAX_RANK);
    FTH_REQUIRE(tensor->shape->count == tensor->strides->count, FTH_CORRUPT,
                "%s: tensor '%s' has %u dimensions but %u strides", origin, name, tensor->shape->count,
                tensor->strides->count);
    layout->shape.rank = (int)tensor->shape->count;
    FTH_TRY(read_numbers(layout, "dimension", tensor->shape, layout->shape.dims));
    FTH_TRY(read_numbers(layout, "stride", tensor->strides, layout->strides));
    layout->count = 1;
    for (int i = 0; i < layout->shape.rank; i++) {
        FTH_REQUIRE(!__builtin_mul_overflow(layout->count, (uint64_t)layout->shape.dims[i], &layout->count) &&
                        layout->count <= INT64_MAX / sizeof(int64_t),
                    FTH_CORRUPT, "%s: tensor '%s' has an impossibly large shape", origin, name);
    }
    layout->item_bytes = tensor->element->size_bytes;
out:
    return status;
}

/* Finds where the tensor's storage begins and how many of its items it has. */
static fth_status find_items(const fth_pickle_tensor *tensor, tensor_layout *layout, const unsigned char **items)
{
    const fth_pickle_storage *storage = tensor->storage;
    uint64_t start_bytes = 0, size_bytes = 0;
    char key[64];
    if (!storage->data)
        return fth_fail(FTH_CORRUPT, "%s: tensor '%s' lies in storage '%s', which the file does not have",
                        layout->origin, layout->name,
                        fth_pickle_printable(storage->key->bytes, storage->key->count, key, sizeof key));
    if (__builtin_mul_overflow((uint64_t)storage->count, (uint64_t)storage->element->size_bytes, &size_bytes) ||
        __builtin_mul_overflow((uint64_t)storage->view_start, (uint64_t)storage->element->size_bytes, &start_bytes) ||
        start_bytes > storage->size_bytes || size_bytes > storage->size_bytes - start_bytes)
        return fth_fail(FTH_CORRUPT, "%s: tensor '%s': its storage should have %lld elements; the file has %llu bytes",
                        layout->origin, layout->name, (long long)storage->count,
                        (unsigned long long)storage->size_bytes);
    *items = storage->data + start_bytes;
    layout->storage_items = size_bytes / layout->item_bytes;
    return FTH_OK;
}

/* The last item must lie within the storage; of an empty tensor there is none. */
static fth_status check_bounds(const fth_pickle_tensor *tensor, const tensor_layout *layout)
{
    uint64_t last = (uint64_t)tensor->offset, reach;
    bool fits = tensor->offset >= 0;
    for (int i = 0; fits && i < layout->shape.rank; i++)
        fits = !__builtin_mul_overflow((uint64_t)layout->shape.dims[i] - 1, (uint64_t)layout->strides[i], &reach) &&
               !__builtin_add_overflow(last, reach, &last);
    if (!fits || last >= layout->storage_items)
        return fth_fail(FTH_CORRUPT, "%s: tensor '%s' reaches beyond its storage of %llu items", layout->origin,
                        layout->name, (unsigned long long)layout->storage_items);
    return FTH_OK;
}

static bool is_contiguous(const tensor_layout *layout)
{
    int64_t expected = 1;
    for (int i = layout->shape.rank - 1; i >= 0; i--) {
        if (layout->shape.dims[i] != 1 && layout->strides[i] != expected)
            return false;
        expected *= layout->shape.dims[i];
    }
    return true;
}

/* One row: the last dimension. */
static void copy_row(unsigned char *to, const unsigned char *from, int64_t count, size_t stride_bytes,
                     size_t item_bytes)
{
    switch (item_bytes) { /* constant sizes become single moves */
    case 2:
        for (int64_t i = 0; i < count; i++)
            memcpy(to + i * 2, from + (size_t)i * stride_bytes, 2);
        break;
    case 4:
        for (int64_t i = 0; i < count; i++)
            memcpy(to + i * 4, from + (size_t)i * stride_bytes, 4);
        break;
    case 8:
        for (int64_t i = 0; i < count; i++)
            memcpy(to + i * 8, from + (size_t)i * stride_bytes, 8);
        break;
    default:
        for (int64_t i = 0; i < count; i++)
            memcpy(to + (size_t)i * item_bytes, from + (size_t)i * stride_bytes, item_bytes);
    }
}

static void copy_items(const tensor_layout *layout, const unsigned char *first, unsigned char *to)
{
    int64_t index[FTH_MAX_RANK] = {0};
    int last = layout->shape.rank - 1;
    int64_t row = layout->shape.dims[last];
    for (uint64_t done = 0; done < layout->count; done += (uint64_t)row) {
        uint64_t at = 0;
        for (int i = 0; i < last; i++)
            at += (uint64_t)index[i] * (uint64_t)layout->strides[i];
        copy_row(to + done * layout->item_bytes, first + at * layout->item_bytes, row,
                 (size_t)layout->strides[last] * layout->item_bytes, layout->item_bytes);
        for (int i = last - 1; i >= 0 && ++index[i] == layout->shape.dims[i]; i--)
            index[i] = 0;
    }
}

static fth_status copy_tensor(fth_pth *pth, const tensor_layout *layout, const unsigned char *first, const void **data)
{
    fth_status status = FTH_OK;
    unsigned char *copy = NULL;
    uint64_t bytes = 0;
    FTH_REQUIRE(!__builtin_mul_overflow(layout->count, (uint64_t)layout->item_bytes, &bytes) &&
                    bytes <= pth->copy_limit_bytes - pth->copied_bytes,
                FTH_UNSUPPORTED,
                "%s: tensor '%s' is expanded to far more than the file holds; save it with .contiguous()",
                layout->origin, layout->name);
    FTH_TRY(fth_grow(&pth->copies, pth->copy_count, &pth->copy_capacity, sizeof *pth->copies));
    FTH_TRY(fth_allocate_aligned((size_t)bytes, &copy));
    pth->copies[pth->copy_count++] = copy;
    pth->copied_bytes += bytes;
    copy_items(layout, first, copy);
    *data = copy;
out:
    return status;
}

fth_status fth_pth_view_tensor(fth_pth *pth, const fth_pickle_tensor *tensor, const char *name, const char *origin,
                               fth_tensor_view *view)
{
    fth_status status = FTH_OK;
    tensor_layout layout = {.origin = origin, .name = name};
    const unsigned char *items = NULL;

    FTH_TRY(read_layout(tensor, &layout));
    FTH_TRY(find_items(tensor, &layout, &items));
    *view = (fth_tensor_view){.name = name, .dtype = tensor->element->dtype, .shape = layout.shape, .data = items};
    if (layout.count > 0) {
        FTH_TRY(check_bounds(tensor, &layout));
        const unsigned char *first = items + (size_t)tensor->offset * layout.item_bytes;
        view->data = first;
        if (!is_contiguous(&layout))
            FTH_TRY(copy_tensor(pth, &layout, first, &view->data));
    }
out:
    return status;
}
