/* Writes safetensors as the reference writer does, byte for byte: largest dtype first, so that
 * every tensor lies aligned to its own size, then by name; the header is padded with spaces to a
 * multiple of 8 bytes. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/safetensors_internal.h"
#include "tensor/tensor.h"

static int compare_views(const void *a, const void *b)
{
    const fth_tensor_view *left = *(const fth_tensor_view *const *)a, *right = *(const fth_tensor_view *const *)b;
    if (left->dtype != right->dtype)
        return left->dtype > right->dtype ? -1 : 1;
    return strcmp(left->name, right->name);
}

static fth_status size_of(const fth_tensor_view *view, uint64_t *size_bytes)
{
    if (view->shape.rank < 0 || view->shape.rank > FTH_MAX_RANK)
        return fth_fail(FTH_INVALID, "tensor '%s' has rank %d; at most %d is possible", view->name, view->shape.rank,
                        (int)FTH_MAX_RANK);
    for (int i = 0; i < view->shape.rank; i++) {
        if (view->shape.dims[i] < 0)
            return fth_fail(FTH_INVALID, "tensor '%s' has a negative dimension", view->name);
    }
    uint64_t count = (uint64_t)fth_shape_count(&view->shape);
    if (__builtin_mul_overflow(count, fth_dtype_size_bytes(view->dtype), size_bytes) || *size_bytes > INT64_MAX)
        return fth_fail(FTH_INVALID, "tensor '%s' is too large", view->name);
    return FTH_OK;
}

static fth_status describe_metadata(json_t *header, const fth_metadata_entry *metadata, size_t count)
{
    json_t *entries = json_object();
    if (json_object_set_new(header, SAFETENSORS_METADATA, entries) != 0)
        return fth_fail(FTH_NO_MEMORY, "no memory for metadata");
    for (size_t i = 0; i < count; i++) {
        if (json_object_get(entries, metadata[i].key))
            return fth_fail(FTH_INVALID, "metadata '%s' is there twice", metadata[i].key);
        if (json_object_set_new(entries, metadata[i].key, json_string(metadata[i].value)) != 0)
            return fth_fail(FTH_INVALID, "metadata '%s' is not UTF-8 text", metadata[i].key);
    }
    return FTH_OK;
}

/* Adds "name": {...} for a tensor that begins at *offset, and moves *offset to its end. */
static fth_status describe_view(json_t *header, const fth_tensor_view *view, uint64_t *offset)
{
    uint64_t size_bytes = 0;
    fth_status status = size_of(view, &size_bytes);
    if (status != FTH_OK)
        return status;
    if (strcmp(view->name, SAFETENSORS_METADATA) == 0)
        return fth_fail(FTH_INVALID, "a tensor cannot be called " SAFETENSORS_METADATA);
    if (json_object_get(header, view->name))
        return fth_fail(FTH_INVALID, "two tensors are called '%s'", view->name);
    uint64_t end = *offset + size_bytes;
    if (end > INT64_MAX)
        return fth_fail(FTH_INVALID, "tensor '%s' makes the file too large", view->name);

    json_t *dims = json_array();
    for (int i = 0; i < view->shape.rank; i++)
        json_array_append_new(dims, json_integer(view->shape.dims[i]));
    json_t *info = json_pack("{s:s, s:o, s:[I, I]}", "dtype", fth_dtype_name(view->dtype), "shape", dims,
                             "data_offsets", (json_int_t)*offset, (json_int_t)end);
    if (!info)
        return fth_fail(FTH_NO_MEMORY, "no memory to describe tensor '%s'", view->name);
    if (json_object_set_new(header, view->name, info) != 0)
        return fth_fail(FTH_INVALID, "the name of tensor '%s' is not UTF-8 text", view->name);
    *offset = end;
    return FTH_OK;
}

/* The length, the JSON and its padding. */
static fth_status format_header(const json_t *header, char **bytes, size_t *size_bytes)
{
    fth_status status = FTH_OK;
    char *text = json_dumps(header, JSON_COMPACT);
    FTH_REQUIRE(text, FTH_NO_MEMORY, "no memory for the header");
    size_t length = strlen(text), padded = fth_align_up(length, 8);
    uint64_t length_field = padded;
    FTH_REQUIRE(padded <= SAFETENSORS_MAX_HEADER_BYTES, FTH_INVALID,
                "the names and metadata take %zu bytes; safetensors allows %d", padded,
                (int)SAFETENSORS_MAX_HEADER_BYTES);
    FTH_TRY(fth_allocate(sizeof length_field + padded, 1, bytes));
    memcpy(*bytes, &length_field, sizeof length_field);
    memcpy(*bytes + sizeof length_field, text, length);
    memset(*bytes + sizeof length_field + length, ' ', padded - length);
    *size_bytes = sizeof length_field + padded;
out:
    free(text);
    return status;
}

static fth_status describe(const fth_tensor_view *const *ordered, size_t view_count, const fth_metadata_entry *metadata,
                           size_t metadata_count, char **bytes, size_t *size_bytes)
{
    fth_status status = FTH_OK;
    json_t *header = json_object();
    uint64_t offset = 0;

    *bytes = NULL;
    FTH_REQUIRE(header, FTH_NO_MEMORY, "no memory for the header");
    if (metadata_count > 0)
        FTH_TRY(describe_metadata(header, metadata, metadata_count));
    for (size_t i = 0; i < view_count; i++)
        FTH_TRY(describe_view(header, ordered[i], &offset));
    FTH_TRY(format_header(header, bytes, size_bytes));

out:
    json_decref(header);
    return status;
}

static fth_status point_at(const fth_tensor_view *views, size_t count, const fth_tensor_view ***ordered)
{
    fth_status status = fth_allocate(count, sizeof **ordered, ordered);
    for (size_t i = 0; status == FTH_OK && i < count; i++)
        (*ordered)[i] = &views[i];
    return status;
}

fth_status fth_safetensors_header(const fth_tensor_view *views, size_t view_count, const fth_metadata_entry *metadata,
                                  size_t metadata_count, char **bytes, size_t *size_bytes)
{
    const fth_tensor_view **ordered = NULL;
    fth_status status = point_at(views, view_count, &ordered);
    if (status == FTH_OK)
        status = describe(ordered, view_count, metadata, metadata_count, bytes, size_bytes);
    free(ordered);
    return status;
}

fth_status fth_safetensors_write(fth_file *file, const fth_tensor_view *views, size_t view_count,
                                 const fth_metadata_entry *metadata, size_t metadata_count)
{
    fth_status status = FTH_OK;
    const fth_tensor_view **ordered = NULL;
    char *header = NULL;
    size_t header_bytes = 0;
    uint64_t size_bytes = 0;

    FTH_TRY(point_at(views, view_count, &ordered));
    qsort(ordered, view_count, sizeof *ordered, compare_views);
    FTH_TRY(describe(ordered, view_count, metadata, metadata_count, &header, &header_bytes));
    FTH_TRY(fth_file_write(file, header, header_bytes));
    for (size_t i = 0; i < view_count; i++) {
        FTH_TRY(size_of(ordered[i], &size_bytes));
        FTH_TRY(fth_file_write(file, ordered[i]->data, (size_t)size_bytes));
    }

out:
    free(header);
    free(ordered);
    return status;
}
