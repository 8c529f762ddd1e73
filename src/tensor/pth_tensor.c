/* From a pickle's description (storage, offset, sizes, strides) to a view. Every number comes from
 * the file, so each is checked before it is used. */
#include "tensor/pth_internal.h"

static fth_status read_numbers(const fth_strided *tensor, const char *what, const fth_pickle_node *node,
                               int64_t *numbers)
{
    for (size_t i = 0; i < node->count; i++) {
        const fth_pickle_node *number = node->items[i];
        if (number->kind != FTH_PICKLE_INTEGER || number->integer < 0)
            return fth_fail(FTH_CORRUPT, "%s: tensor '%s': %s %zu is not a whole number of 0 or more", tensor->origin,
                            tensor->name, what, i);
        numbers[i] = number->integer;
    }
    return FTH_OK;
}

static fth_status read_layout(const fth_pickle_tensor *pickled, fth_strided *tensor)
{
    fth_status status = FTH_OK;
    const char *origin = tensor->origin, *name = tensor->name;
    FTH_REQUIRE(
        pickled->element->readable, FTH_UNSUPPORTED,
        "%s: tensor '%s' has dtype %s, which farthing does not read; convert it to float32, float16 or bfloat16",
        origin, name, pickled->element->dtype_name);
    FTH_REQUIRE(pickled->shape->count <= FTH_MAX_RANK, FTH_UNSUPPORTED,
                "%s: tensor '%s' has %u dimensions; farthing reads at most %d", origin, name, pickled->shape->count,
                (int)FTH_MAX_RANK);
    FTH_REQUIRE(pickled->shape->count == pickled->strides->count, FTH_CORRUPT,
                "%s: tensor '%s' has %u dimensions but %u strides", origin, name, pickled->shape->count,
                pickled->strides->count);
    tensor->dtype = pickled->element->dtype;
    tensor->shape.rank = (int)pickled->shape->count;
    tensor->offset = pickled->offset;
    FTH_TRY(read_numbers(tensor, "dimension", pickled->shape, tensor->shape.dims));
    FTH_TRY(read_numbers(tensor, "stride", pickled->strides, tensor->strides));
out:
    return status;
}

/* Finds where the tensor's storage lies. */
static fth_status find_storage(const fth_pickle_tensor *pickled, fth_strided *tensor)
{
    const fth_pickle_storage *storage = pickled->storage;
    uint64_t start_bytes = 0, size_bytes = 0;
    char key[64];
    if (!storage->data)
        return fth_fail(FTH_CORRUPT, "%s: tensor '%s' lies in storage '%s', which the file does not have",
                        tensor->origin, tensor->name,
                        fth_pickle_printable(storage->key->bytes, storage->key->count, key, sizeof key));
    if (__builtin_mul_overflow((uint64_t)storage->count, (uint64_t)storage->element->size_bytes, &size_bytes) ||
        __builtin_mul_overflow((uint64_t)storage->view_start, (uint64_t)storage->element->size_bytes, &start_bytes) ||
        start_bytes > storage->size_bytes || size_bytes > storage->size_bytes - start_bytes)
        return fth_fail(FTH_CORRUPT, "%s: tensor '%s': its storage should have %lld elements; the file has %llu bytes",
                        tensor->origin, tensor->name, (long long)storage->count,
                        (unsigned long long)storage->size_bytes);
    tensor->storage = storage->data + start_bytes;
    tensor->storage_size_bytes = size_bytes;
    return FTH_OK;
}

fth_status fth_pth_view_tensor(fth_pth *pth, const fth_pickle_tensor *pickled, const char *name, const char *origin,
                               fth_tensor_view *view, const void **first)
{
    fth_status status = FTH_OK;
    fth_strided tensor = {.origin = origin, .name = name};
    FTH_TRY(read_layout(pickled, &tensor));
    FTH_TRY(find_storage(pickled, &tensor));
    FTH_TRY(fth_strided_view(&tensor, &pth->copies, view, first));
out:
    return status;
}
