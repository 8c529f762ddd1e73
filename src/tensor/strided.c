/* See strided_internal.h. */
#include "tensor/strided_internal.h"

#include <stdlib.h>
#include <string.h>

enum { COPY_ALLOWANCE = 1 << 20 };

fth_tensor_copies fth_tensor_copies_of(uint64_t file_size_bytes)
{
    return (fth_tensor_copies){.limit_bytes = file_size_bytes + COPY_ALLOWANCE};
}

void fth_tensor_copies_release(fth_tensor_copies *copies)
{
    for (size_t i = 0; i < copies->count; i++)
        free(copies->items[i]);
    free(copies->items);
    *copies = (fth_tensor_copies){0};
}

static fth_status count_items(const fth_strided *tensor, uint64_t *count)
{
    *count = 1;
    for (int i = 0; i < tensor->shape.rank; i++) {
        if (tensor->shape.dims[i] < 0 || tensor->strides[i] < 0 ||
            __builtin_mul_overflow(*count, (uint64_t)tensor->shape.dims[i], count) ||
            *count > INT64_MAX / sizeof(int64_t))
            return fth_fail(FTH_CORRUPT, "%s: tensor '%s' has an impossibly large shape", tensor->origin, tensor->name);
    }
    return FTH_OK;
}

/* The last item must lie within the storage; of an empty tensor there is none. */
static fth_status check_bounds(const fth_strided *tensor)
{
    const uint64_t storage_items = tensor->storage_size_bytes / fth_dtype_size_bytes(tensor->dtype);
    uint64_t last = (uint64_t)tensor->offset, reach;
    bool fits = tensor->offset >= 0;
    for (int i = 0; fits && i < tensor->shape.rank; i++)
        fits = !__builtin_mul_overflow((uint64_t)tensor->shape.dims[i] - 1, (uint64_t)tensor->strides[i], &reach) &&
               !__builtin_add_overflow(last, reach, &last);
    if (!fits || last >= storage_items)
        return fth_fail(FTH_CORRUPT, "%s: tensor '%s' reaches beyond its storage of %llu items", tensor->origin,
                        tensor->name, (unsigned long long)storage_items);
    return FTH_OK;
}

static bool is_contiguous(const fth_strided *tensor)
{
    int64_t expected = 1;
    for (int i = tensor->shape.rank - 1; i >= 0; i--) {
        if (tensor->shape.dims[i] != 1 && tensor->strides[i] != expected)
            return false;
        expected *= tensor->shape.dims[i];
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

static void copy_items(const fth_strided *tensor, uint64_t count, const unsigned char *first, unsigned char *to)
{
    const size_t item_bytes = fth_dtype_size_bytes(tensor->dtype);
    int64_t index[FTH_MAX_RANK] = {0};
    int last = tensor->shape.rank - 1;
    int64_t row = tensor->shape.dims[last];
    for (uint64_t done = 0; done < count; done += (uint64_t)row) {
        uint64_t at = 0;
        for (int i = 0; i < last; i++)
            at += (uint64_t)index[i] * (uint64_t)tensor->strides[i];
        copy_row(to + done * item_bytes, first + at * item_bytes, row, (size_t)tensor->strides[last] * item_bytes,
                 item_bytes);
        for (int i = last - 1; i >= 0 && ++index[i] == tensor->shape.dims[i]; i--)
            index[i] = 0;
    }
}

static fth_status copy_tensor(const fth_strided *tensor, uint64_t count, const unsigned char *first,
                              fth_tensor_copies *copies, const void **data)
{
    fth_status status = FTH_OK;
    unsigned char *copy = NULL;
    uint64_t bytes = 0;
    FTH_REQUIRE(!__builtin_mul_overflow(count, (uint64_t)fth_dtype_size_bytes(tensor->dtype), &bytes) &&
                    bytes <= copies->limit_bytes - copies->bytes,
                FTH_UNSUPPORTED,
                "%s: tensor '%s' is expanded to far more than the file holds; save it with .contiguous()",
                tensor->origin, tensor->name);
    FTH_TRY(fth_grow(&copies->items, copies->count, &copies->capacity, sizeof *copies->items));
    FTH_TRY(fth_allocate_aligned((size_t)bytes, &copy));
    copies->items[copies->count++] = copy;
    copies->bytes += bytes;
    copy_items(tensor, count, first, copy);
    *data = copy;
out:
    return status;
}

fth_status fth_strided_view(const fth_strided *tensor, fth_tensor_copies *copies, fth_tensor_view *view,
                            const void **first)
{
    fth_status status = FTH_OK;
    uint64_t count = 0;

    if (first)
        *first = NULL;
    FTH_TRY(count_items(tensor, &count));
    *view = (fth_tensor_view){
        .name = tensor->name, .dtype = tensor->dtype, .shape = tensor->shape, .data = tensor->storage};
    if (count > 0) {
        FTH_TRY(check_bounds(tensor));
        view->data = tensor->storage + (size_t)tensor->offset * fth_dtype_size_bytes(tensor->dtype);
        if (first)
            *first = view->data;
        if (!is_contiguous(tensor))
            FTH_TRY(copy_tensor(tensor, count, view->data, copies, &view->data));
    }
out:
    return status;
}
