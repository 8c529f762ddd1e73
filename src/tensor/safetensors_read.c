/* Reads safetensors from anywhere, so it believes nothing: every size is checked against the file
 * before it is used, and a file is either described completely or refused. The tensors stay where
 * they are; views point into the file, possibly at unaligned addresses. Names and metadata are lent
 * by the parsed header, which is kept. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/safetensors_internal.h"
#include "tensor/tensor.h"

struct fth_safetensors {
    json_t *header;
    const void *mapping; /* NULL where the caller owns the bytes */
    size_t mapping_size_bytes;
    size_t count;
    fth_tensor_view *views;          /* as they lie in the file */
    const fth_tensor_view **by_name; /* sorted, for lookups */
};

/* A tensor on the way from the header to a view. */
typedef struct placed_view {
    fth_tensor_view view;
    uint64_t begin, end; /* relative to the data */
} placed_view;

/* By place; an empty tensor comes before the one that begins where it lies. */
static int compare_places(const void *a, const void *b)
{
    const placed_view *left = a, *right = b;
    if (left->begin != right->begin)
        return left->begin < right->begin ? -1 : 1;
    if (left->end != right->end)
        return left->end < right->end ? -1 : 1;
    return strcmp(left->view.name, right->view.name);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const fth_tensor_view *const *)a)->name, (*(const fth_tensor_view *const *)b)->name);
}

static fth_status read_dtype(const char *origin, const char *name, const json_t *json, fth_dtype *dtype)
{
    const char *text = json_string_value(json);
    if (!text)
        return fth_fail(FTH_CORRUPT, "%s: tensor '%s' has no dtype", origin, name);
    if (!fth_dtype_find(text, dtype))
        return fth_fail(
            FTH_UNSUPPORTED,
            "%s: tensor '%s' has dtype '%.40s', which farthing does not read; convert it to F32, F16 or BF16", origin,
            name, text);
    return FTH_OK;
}

static fth_status read_shape(const char *origin, const char *name, const json_t *json, fth_shape *shape)
{
    if (!json_is_array(json))
        return fth_fail(FTH_CORRUPT, "%s: tensor '%s' has no shape", origin, name);
    size_t rank = json_array_size(json);
    if (rank > FTH_MAX_RANK)
        return fth_fail(FTH_UNSUPPORTED, "%s: tensor '%s' has %zu dimensions; farthing reads at most %d", origin, name,
                        rank, (int)FTH_MAX_RANK);
    shape->rank = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        const json_t *dim = json_array_get(json, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return fth_fail(FTH_CORRUPT, "%s: tensor '%s': dimension %zu is not a whole number of 0 or more", origin,
                            name, i);
        shape->dims[i] = json_integer_value(dim);
    }
    return FTH_OK;
}

static fth_status read_offsets(const char *origin, const char *name, const json_t *json, placed_view *placed)
{
    const json_t *begin = json_array_get(json, 0), *end = json_array_get(json, 1);
    if (json_array_size(json) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return fth_fail(FTH_CORRUPT, "%s: tensor '%s' has bad data_offsets", origin, name);
    placed->begin = (uint64_t)json_integer_value(begin);
    placed->end = (uint64_t)json_integer_value(end);
    return FTH_OK;
}

/* Fills in everything but the address, and checks that the shape needs as many bytes as are
 * claimed. As the reference does, a product that overflows is refused even where a later dimension
 * is 0. */
static fth_status read_tensor(const char *origin, const char *name, const json_t *json, placed_view *placed)
{
    fth_status status = FTH_OK;
    fth_tensor_view *view = &placed->view;
    FTH_REQUIRE(json_is_object(json), FTH_CORRUPT, "%s: tensor '%s' is not described by an object", origin, name);
    view->name = name;
    FTH_TRY(read_dtype(origin, name, json_object_get(json, "dtype"), &view->dtype));
    FTH_TRY(read_shape(origin, name, json_object_get(json, "shape"), &view->shape));
    FTH_TRY(read_offsets(origin, name, json_object_get(json, "data_offsets"), placed));

    uint64_t size_bytes = fth_dtype_size_bytes(view->dtype);
    for (int i = 0; i < view->shape.rank; i++) {
        FTH_REQUIRE(!__builtin_mul_overflow(size_bytes, (uint64_t)view->shape.dims[i], &size_bytes), FTH_CORRUPT,
                    "%s: tensor '%s' has an impossibly large shape", origin, name);
    }
    FTH_REQUIRE(size_bytes == placed->end - placed->begin, FTH_CORRUPT,
                "%s: tensor '%s' needs %llu bytes, but its data_offsets span %llu", origin, name,
                (unsigned long long)size_bytes, (unsigned long long)(placed->end - placed->begin));
out:
    return status;
}

static fth_status check_metadata(const char *origin, json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return fth_fail(FTH_CORRUPT, "%s: " SAFETENSORS_METADATA " is not an object", origin);
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return fth_fail(FTH_CORRUPT, "%s: metadata '%.80s' is not text", origin, key);
    }
    return FTH_OK;
}

/* Finds the header's bounds and parses it. */
static fth_status read_header(const char *origin, const unsigned char *bytes, size_t size_bytes, json_t **header,
                              size_t *data_start)
{
    uint64_t length = 0;
    json_error_t error;
    if (size_bytes < SAFETENSORS_LENGTH_BYTES)
        return fth_fail(FTH_CORRUPT, "%s: too short for a safetensors file: %s", origin,
                        FTH_COUNTED(size_bytes, "byte"));
    memcpy(&length, bytes, sizeof length);
    if (length > SAFETENSORS_MAX_HEADER_BYTES)
        return fth_fail(FTH_CORRUPT, "%s: not a safetensors file (a header of %llu bytes; at most %d are allowed)",
                        origin, (unsigned long long)length, (int)SAFETENSORS_MAX_HEADER_BYTES);
    if (length > size_bytes - SAFETENSORS_LENGTH_BYTES)
        return fth_fail(FTH_CORRUPT, "%s: truncated: the header takes %llu bytes, the whole file has %zu", origin,
                        (unsigned long long)length, size_bytes);
    if (length == 0 || bytes[SAFETENSORS_LENGTH_BYTES] != '{')
        return fth_fail(FTH_CORRUPT, "%s: not a safetensors file (the header is not a JSON object)", origin);
    *header =
        json_loadb((const char *)bytes + SAFETENSORS_LENGTH_BYTES, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!*header)
        return fth_fail(FTH_CORRUPT, "%s: bad header at byte %d: %s", origin, SAFETENSORS_LENGTH_BYTES + error.position,
                        error.text);
    *data_start = SAFETENSORS_LENGTH_BYTES + (size_t)length;
    return FTH_OK;
}

/* Checks that the sorted tensors fill the data exactly, and gives them their addresses. */
static fth_status place_views(const char *origin, placed_view *placed, size_t count, const unsigned char *data,
                              uint64_t data_size_bytes)
{
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (placed[i].begin != at)
            return fth_fail(FTH_CORRUPT, "%s: tensor '%s' begins at byte %llu of the data, %s %llu", origin,
                            placed[i].view.name, (unsigned long long)placed[i].begin,
                            placed[i].begin > at ? "leaving a hole after" : "overlapping what ends at",
                            (unsigned long long)at);
        at = placed[i].end;
        if (at > data_size_bytes)
            return fth_fail(FTH_CORRUPT, "%s: truncated: tensor '%s' ends at byte %llu of the data, which has %llu",
                            origin, placed[i].view.name, (unsigned long long)at, (unsigned long long)data_size_bytes);
        placed[i].view.data = data + placed[i].begin;
    }
    if (at != data_size_bytes)
        return fth_fail(FTH_CORRUPT, "%s: %llu bytes after the last tensor belong to none", origin,
                        (unsigned long long)(data_size_bytes - at));
    return FTH_OK;
}

fth_status fth_safetensors_parse(const void *bytes, size_t size_bytes, const char *origin, fth_safetensors **tensors)
{
    fth_status status = FTH_OK;
    fth_safetensors *fresh = NULL;
    placed_view *placed = NULL;
    size_t data_start = 0;
    const char *name;
    json_t *json;

    *tensors = NULL;
    FTH_TRY(fth_allocate(1, sizeof *fresh, &fresh));
    FTH_TRY(read_header(origin, bytes, size_bytes, &fresh->header, &data_start));
    size_t entries = json_object_size(fresh->header);
    FTH_TRY(fth_allocate(entries, sizeof *placed, &placed));
    json_object_foreach(fresh->header, name, json)
    {
        if (strcmp(name, SAFETENSORS_METADATA) == 0)
            FTH_TRY(check_metadata(origin, json));
        else
            FTH_TRY(read_tensor(origin, name, json, &placed[fresh->count++]));
    }
    qsort(placed, fresh->count, sizeof *placed, compare_places);
    FTH_TRY(place_views(origin, placed, fresh->count, (const unsigned char *)bytes + data_start,
                        (uint64_t)(size_bytes - data_start)));

    FTH_TRY(fth_allocate(fresh->count, sizeof *fresh->views, &fresh->views));
    FTH_TRY(fth_allocate(fresh->count, sizeof *fresh->by_name, &fresh->by_name));
    for (size_t i = 0; i < fresh->count; i++) {
        fresh->views[i] = placed[i].view;
        fresh->by_name[i] = &fresh->views[i];
    }
    qsort(fresh->by_name, fresh->count, sizeof *fresh->by_name, compare_names);
    *tensors = fresh;
    fresh = NULL;

out:
    free(placed);
    fth_safetensors_free(fresh);
    return status;
}

fth_status fth_safetensors_open(const char *path, fth_safetensors **tensors)
{
    const void *bytes = NULL;
    size_t size_bytes = 0;
    *tensors = NULL;
    fth_status status = fth_file_map(path, &bytes, &size_bytes);
    if (status != FTH_OK)
        return status;
    status = fth_safetensors_parse(bytes, size_bytes, path, tensors);
    if (status != FTH_OK) {
        fth_file_unmap(bytes, size_bytes);
        return status;
    }
    (*tensors)->mapping = bytes;
    (*tensors)->mapping_size_bytes = size_bytes;
    return FTH_OK;
}

void fth_safetensors_free(fth_safetensors *tensors)
{
    if (!tensors)
        return;
    json_decref(tensors->header);
    fth_file_unmap(tensors->mapping, tensors->mapping_size_bytes);
    free(tensors->views);
    free(tensors->by_name);
    free(tensors);
}

size_t fth_safetensors_count(const fth_safetensors *tensors)
{
    return tensors->count;
}

const fth_tensor_view *fth_safetensors_get(const fth_safetensors *tensors, size_t index)
{
    return index < tensors->count ? &tensors->views[index] : NULL;
}

const fth_tensor_view *fth_safetensors_find(const fth_safetensors *tensors, const char *name)
{
    const fth_tensor_view key = {.name = name}, *key_pointer = &key;
    const fth_tensor_view **found =
        bsearch(&key_pointer, tensors->by_name, tensors->count, sizeof *tensors->by_name, compare_names);
    return found ? *found : NULL;
}

const char *fth_safetensors_metadata(const fth_safetensors *tensors, const char *key)
{
    return json_string_value(json_object_get(json_object_get(tensors->header, SAFETENSORS_METADATA), key));
}

void fth_safetensors_visit_metadata(const fth_safetensors *tensors,
                                    void (*visit)(void *context, const char *key, const char *value), void *context)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(tensors->header, SAFETENSORS_METADATA), key, value)
        visit(context, key, json_string_value(value));
}
