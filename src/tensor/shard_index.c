/* See shard_index.h. */
#include "tensor/shard_index.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_INDEX_BYTES = 1 << 26, MAX_FILES = 4096 };

bool fth_shard_index_recognize(const void *bytes, size_t size_bytes)
{
    const char *text = bytes;
    size_t at = 0;
    while (at < size_bytes && text[at] && strchr(" \t\r\n", text[at]))
        at++;
    if (size_bytes > MAX_INDEX_BYTES || at == size_bytes || text[at] != '{')
        return false;
    json_t *root = json_loadb(text, size_bytes, 0, NULL);
    const bool found = json_is_object(json_object_get(root, "weight_map"));
    json_decref(root);
    return found;
}

static int compare_files(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The files lie beside their index. */
static fth_status check_file(const char *name, const char *tensor, const char *origin)
{
    if (name && *name && *name != '.' && !strchr(name, '/') && strlen(name) < 256)
        return FTH_OK;
    return fth_fail(FTH_CORRUPT, "%s: tensor '%.80s' is in no file of the same folder", origin, tensor);
}

fth_status fth_shard_index_parse(const void *bytes, size_t size_bytes, const char *origin, fth_shard_index *index)
{
    fth_status status = FTH_OK;
    json_error_t error;
    const char *tensor;
    json_t *value;
    size_t kept = 0;

    *index = (fth_shard_index){0};
    index->root = json_loadb(bytes, size_bytes, JSON_REJECT_DUPLICATES, &error);
    FTH_REQUIRE(index->root, FTH_CORRUPT, "%s line %d: %s", origin, error.line, error.text);
    index->weight_map = json_object_get(index->root, "weight_map");
    FTH_REQUIRE(json_object_size(index->weight_map) > 0, FTH_INVALID, "%s: its \"weight_map\" lists no tensors",
                origin);
    FTH_TRY(fth_allocate(json_object_size(index->weight_map), sizeof *index->files, &index->files));
    json_object_foreach((json_t *)index->weight_map, tensor, value)
    {
        FTH_TRY(check_file(json_string_value(value), tensor, origin));
        index->files[index->count++] = json_string_value(value);
    }
    qsort(index->files, index->count, sizeof *index->files, compare_files);
    for (size_t i = 0; i < index->count; i++)
        if (kept == 0 || strcmp(index->files[kept - 1], index->files[i]) != 0)
            index->files[kept++] = index->files[i];
    index->count = kept;
    FTH_REQUIRE(index->count <= MAX_FILES, FTH_UNSUPPORTED, "%s: weights in %zu files; at most %d are read", origin,
                index->count, (int)MAX_FILES);

out:
    if (status != FTH_OK)
        fth_shard_index_release(index);
    return status;
}

void fth_shard_index_release(fth_shard_index *index)
{
    free(index->files);
    json_decref(index->root);
    *index = (fth_shard_index){0};
}
