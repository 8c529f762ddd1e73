/* See exported_config.h. */
#include "tensor/exported_config.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/torch_dtype.h"

enum { MAX_CONFIG_BYTES = 1 << 25, MAX_NAME = 1000, LAYOUT_STRIDED = 7 };

static fth_status check_name(const char *name, const char *origin)
{
    const size_t length = strlen(name);
    bool good = length > 0 && length <= MAX_NAME;
    for (size_t i = 0; good && i < length; i++)
        good = !iscntrl((unsigned char)name[i]);
    return good ? FTH_OK : fth_fail(FTH_CORRUPT, "%s: '%.80s' is no name for a tensor", origin, name);
}

/* {"as_int": 3} */
static bool read_size(const json_t *size, int64_t *number)
{
    const json_t *integer = json_object_get(size, "as_int");
    *number = json_integer_value(integer);
    return json_is_integer(integer) && *number >= 0;
}

static fth_status read_sizes(const fth_strided *tensor, const json_t *list, const char *what, int64_t *numbers)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!read_size(json_array_get(list, i), &numbers[i]))
            return fth_fail(FTH_CORRUPT, "%s: tensor '%s': %s %zu is not a whole number of 0 or more", tensor->origin,
                            tensor->name, what, i);
    }
    return FTH_OK;
}

static fth_status read_meta(const json_t *meta, fth_strided *tensor)
{
    fth_status status = FTH_OK;
    const char *origin = tensor->origin, *name = tensor->name;
    const json_t *dtype = json_object_get(meta, "dtype"), *sizes = json_object_get(meta, "sizes");
    const json_t *strides = json_object_get(meta, "strides"), *layout = json_object_get(meta, "layout");

    FTH_REQUIRE(json_is_integer(dtype) && json_is_array(sizes) && json_is_array(strides), FTH_CORRUPT,
                "%s: tensor '%s' has no dtype, sizes or strides", origin, name);
    FTH_REQUIRE(!layout || json_integer_value(layout) == LAYOUT_STRIDED, FTH_UNSUPPORTED,
                "%s: tensor '%s' is refused: it is sparse or of another special layout; export an ordinary one "
                "(.to_dense())",
                origin, name);
    FTH_REQUIRE(
        fth_torch_dtype_find(json_integer_value(dtype), &tensor->dtype), FTH_UNSUPPORTED,
        "%s: tensor '%s' has dtype %s, which farthing does not read; convert it to float32, float16 or bfloat16",
        origin, name, fth_torch_dtype_name(json_integer_value(dtype)));
    FTH_REQUIRE(json_array_size(sizes) <= FTH_MAX_RANK, FTH_UNSUPPORTED,
                "%s: tensor '%s' has %zu dimensions; farthing reads at most %d", origin, name, json_array_size(sizes),
                (int)FTH_MAX_RANK);
    FTH_REQUIRE(json_array_size(sizes) == json_array_size(strides), FTH_CORRUPT,
                "%s: tensor '%s' has %zu dimensions but %zu strides", origin, name, json_array_size(sizes),
                json_array_size(strides));
    tensor->shape.rank = (int)json_array_size(sizes);
    FTH_TRY(read_sizes(tensor, sizes, "dimension", tensor->shape.dims));
    FTH_TRY(read_sizes(tensor, strides, "stride", tensor->strides));
    FTH_REQUIRE(read_size(json_object_get(meta, "storage_offset"), &tensor->offset), FTH_CORRUPT,
                "%s: tensor '%s' has no storage_offset", origin, name);
out:
    return status;
}

static fth_status read_tensor(const json_t *entry, fth_exported_file_finder find, void *context,
                              fth_exported_config *config, fth_strided *tensor, fth_exported_tensor *result)
{
    fth_status status = FTH_OK;
    const char *path = json_string_value(json_object_get(entry, "path_name"));

    FTH_TRY(check_name(tensor->name, tensor->origin));
    FTH_REQUIRE(path, FTH_CORRUPT, "%s: tensor '%s' has no path_name", tensor->origin, tensor->name);
    FTH_REQUIRE(!json_is_true(json_object_get(entry, "use_pickle")), FTH_UNSUPPORTED,
                "%s: tensor '%s' is refused: it is pickled, as tensors of special classes are, and farthing runs no "
                "code from files; make it an ordinary tensor and export again",
                tensor->origin, tensor->name);
    FTH_TRY(read_meta(json_object_get(entry, "tensor_meta"), tensor));
    FTH_TRY(find(context, path, &tensor->storage, &tensor->storage_size_bytes));
    FTH_REQUIRE(tensor->storage, FTH_CORRUPT, "%s: tensor '%s' is in '%.80s', which the file does not have",
                tensor->origin, tensor->name, path);
    FTH_TRY(fth_strided_view(tensor, &config->copies, &result->view, &result->first));
out:
    return status;
}

fth_status fth_exported_config_read(const void *bytes, size_t size_bytes, const char *origin,
                                    fth_exported_file_finder find, void *context, fth_exported_config *config,
                                    fth_exported_tensor **tensors, size_t *count)
{
    fth_status status = FTH_OK;
    json_error_t error;
    const char *name;
    json_t *entry;

    *count = 0;
    FTH_REQUIRE(size_bytes <= MAX_CONFIG_BYTES, FTH_UNSUPPORTED, "%s: a list of tensors larger than %d MiB", origin,
                MAX_CONFIG_BYTES >> 20);
    config->root = json_loadb(bytes, size_bytes, JSON_REJECT_DUPLICATES, &error);
    FTH_REQUIRE(config->root, FTH_CORRUPT, "%s line %d: %s", origin, error.line, error.text);
    json_t *list = json_object_get(config->root, "config");
    FTH_REQUIRE(json_is_object(list), FTH_CORRUPT, "%s: no \"config\" in it", origin);
    FTH_TRY(fth_allocate(json_object_size(list), sizeof **tensors, tensors));
    json_object_foreach(list, name, entry)
    {
        /* Objects of classes have no numbers; a program that uses one is refused for that. */
        if (!json_object_get(entry, "tensor_meta") || json_is_null(json_object_get(entry, "tensor_meta")))
            continue;
        fth_strided tensor = {.origin = origin, .name = name};
        FTH_TRY(read_tensor(entry, find, context, config, &tensor, &(*tensors)[*count]));
        ++*count;
    }
out:
    return status;
}

void fth_exported_config_release(fth_exported_config *config)
{
    fth_tensor_copies_release(&config->copies);
    json_decref(config->root);
    *config = (fth_exported_config){0};
}
