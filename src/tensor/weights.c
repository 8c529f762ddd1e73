/* Finds the files that an address names: a file and the key in it, a folder, or the files of an
 * index. Reading one file is in weights_formats.c, tensors' names in weights_names.c. */
#include "tensor/weights.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/shard_index.h"
#include "tensor/weights_internal.h"

enum { MAX_CONFIG_BYTES = 1 << 26 };

static fth_status create(const char *origin, fth_weights **weights)
{
    fth_status status = fth_allocate(1, sizeof **weights, weights);
    if (status != FTH_OK)
        return status;
    (*weights)->origin = fth_format("%s", origin);
    return (*weights)->origin ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for a path");
}

fth_status fth_weights_parse(const void *bytes, size_t size_bytes, const char *origin, const char *key,
                             fth_weights **weights)
{
    fth_status status = FTH_OK;
    fth_weights *fresh = NULL;

    *weights = NULL;
    FTH_TRY(create(origin, &fresh));
    FTH_TRY(fth_weights_read(fresh, bytes, size_bytes, origin, key));
    fth_weights_unwrap_names(fresh);
    FTH_TRY(fth_weights_sort_names(fresh, origin));
    *weights = fresh;
    fresh = NULL;

out:
    fth_weights_free(fresh);
    return status;
}

/* ---- several files ---- */

/* One of the files of an index, with the names that it has. */
static fth_status open_shard(const char *folder, const char *name, fth_weights **shard)
{
    fth_status status = FTH_OK;
    char *path = fth_path_join(folder, name);

    FTH_REQUIRE(path, FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(create(path, shard));
    FTH_TRY(fth_file_map(path, &(*shard)->mapping, &(*shard)->mapping_size_bytes));
    FTH_TRY(fth_weights_read(*shard, (*shard)->mapping, (*shard)->mapping_size_bytes, path, ""));

out:
    free(path);
    return status;
}

/* The index lists what there must be, so that a file of another model is noticed. */
static fth_status check_listed(fth_weights *weights, const fth_shard_index *index)
{
    fth_status status = FTH_OK;
    const char *tensor;
    json_t *file;

    FTH_TRY(fth_weights_sort_names(weights, weights->origin));
    json_object_foreach((json_t *)index->weight_map, tensor, file)
    {
        FTH_REQUIRE(fth_weights_find(weights, tensor), FTH_CORRUPT, "%s: %s has no tensor '%.80s'", weights->origin,
                    json_string_value(file), tensor);
    }

out:
    return status;
}

static fth_status join_shards(fth_weights *weights)
{
    fth_status status = FTH_OK;
    size_t count = 0;

    for (size_t i = 0; i < weights->shard_count; i++)
        count += weights->shards[i]->count;
    FTH_TRY(fth_allocate(count, sizeof *weights->views, &weights->views));
    for (size_t i = 0; i < weights->shard_count; i++) {
        const fth_weights *shard = weights->shards[i];
        for (size_t v = 0; v < shard->count; v++)
            weights->views[weights->count++] = shard->views[v];
    }
    FTH_TRY(fth_weights_copy_names(weights));

out:
    return status;
}

/* `origin` is the path of the index whose bytes these are. */
static fth_status open_index(const void *bytes, size_t size_bytes, const char *folder, const char *origin,
                             const char *key, fth_weights **weights)
{
    fth_status status = FTH_OK;
    fth_weights *fresh = NULL;
    fth_shard_index index = {0};

    FTH_TRY(fth_shard_index_parse(bytes, size_bytes, origin, &index));
    FTH_TRY(create(origin, &fresh));
    FTH_TRY(fth_allocate(index.count, sizeof *fresh->shards, &fresh->shards));
    for (size_t i = 0; i < index.count; i++) {
        fresh->shard_count++; /* also one that fails is freed */
        FTH_TRY(open_shard(folder, index.files[i], &fresh->shards[i]));
    }
    fresh->format = fresh->shards[0]->format;
    FTH_TRY(join_shards(fresh));
    FTH_TRY(check_listed(fresh, &index));
    FTH_TRY(fth_weights_choose_part(fresh, origin, key));
    fth_weights_unwrap_names(fresh);
    FTH_TRY(fth_weights_sort_names(fresh, origin));
    *weights = fresh;
    fresh = NULL;

out:
    fth_shard_index_release(&index);
    fth_weights_free(fresh);
    return status;
}

/* ---- opening ---- */

/* A file, or a folder as on the Hugging Face hub. */
static bool exists(const char *path)
{
    return fth_file_exists(path) || fth_folder_exists(path);
}

/* Splits "file:key" at the last colon before which a name that exists ends; *path is fresh, *key
 * points into the text. */
static fth_status split_key(const char *path_and_key, char **path, const char **key)
{
    const char *colon = strrchr(path_and_key, ':'), *at = exists(path_and_key) ? NULL : colon;
    *path = NULL;
    while (at) {
        free(*path);
        *path = strndup(path_and_key, (size_t)(at - path_and_key));
        if (!*path || exists(*path))
            break;
        do
            at = at > path_and_key ? at - 1 : NULL;
        while (at && *at != ':');
    }
    if (!at) { /* no such file: the message names what precedes the last colon */
        at = exists(path_and_key) || !colon ? path_and_key + strlen(path_and_key) : colon;
        free(*path);
        *path = strndup(path_and_key, (size_t)(at - path_and_key));
    }
    if (!*path)
        return fth_fail(FTH_NO_MEMORY, "no memory for a path");
    *key = *at ? at + 1 : "";
    if (*at && !**key)
        return fth_fail(FTH_INVALID, "%s: no key after the colon; write %s:model_state_dict, or leave out the colon",
                        path_and_key, *path);
    return FTH_OK;
}

/* The file of weights in a folder; *path was the folder's and becomes the file's. */
static fth_status choose_in_folder(const char *folder, char **path)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                                        "pytorch_model.bin.index.json"};
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        free(*path);
        *path = fth_path_join(folder, names[i]);
        if (fth_file_exists(*path))
            return FTH_OK;
    }
    return fth_fail(FTH_INVALID,
                    "folder %s has neither model.safetensors nor pytorch_model.bin; name the file, in the folder "
                    "of a run best.safetensors",
                    folder);
}

static char *get_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? fth_format("%.*s", (int)(slash == path ? 1 : slash - path), path) : fth_format(".");
}

static fth_status read_config(const char *folder, char **config)
{
    fth_status status = FTH_OK;
    char *path = fth_path_join(folder, "config.json");
    size_t size = 0;

    if (fth_file_exists(path))
        status = fth_file_read_all(path, MAX_CONFIG_BYTES, config, &size);
    else
        *config = fth_format("%s", "");
    free(path);
    return status;
}

fth_status fth_weights_open(const char *path_and_key, fth_weights **weights)
{
    fth_status status = FTH_OK;
    char *path = NULL, *folder = NULL, *config = NULL;
    const char *key = "";
    const void *bytes = NULL;
    size_t size_bytes = 0;

    *weights = NULL;
    FTH_TRY(split_key(path_and_key, &path, &key));
    if (fth_folder_exists(path)) {
        folder = fth_format("%s", path);
        FTH_TRY(choose_in_folder(folder, &path));
    }
    FTH_TRY(fth_file_map(path, &bytes, &size_bytes));
    const bool is_index = fth_shard_index_recognize(bytes, size_bytes);
    if (is_index && !folder)
        folder = get_folder(path);
    if (folder)
        FTH_TRY(read_config(folder, &config));
    if (is_index)
        FTH_TRY(open_index(bytes, size_bytes, folder, path, key, weights));
    else
        FTH_TRY(fth_weights_parse(bytes, size_bytes, path, key, weights));
    (*weights)->mapping = bytes;
    (*weights)->mapping_size_bytes = size_bytes;
    (*weights)->folder = folder;
    (*weights)->config = config;
    bytes = NULL;
    folder = config = NULL;

out:
    fth_file_unmap(bytes, size_bytes);
    free(path);
    free(folder);
    free(config);
    return status;
}

void fth_weights_free(fth_weights *weights)
{
    if (!weights)
        return;
    free(weights->origin);
    free(weights->folder);
    free(weights->config);
    for (size_t i = 0; i < weights->shard_count; i++)
        fth_weights_free(weights->shards[i]);
    free(weights->shards);
    fth_safetensors_free(weights->safetensors);
    fth_exported_archive_free(weights->exported);
    fth_pth_free(weights->pth);
    fth_pth_place_release(&weights->place);
    free(weights->names);
    free(weights->prefix);
    free(weights->markers);
    free(weights->skipped);
    free(weights->views);
    free(weights->by_name);
    fth_file_unmap(weights->mapping, weights->mapping_size_bytes);
    free(weights);
}

size_t fth_weights_count(const fth_weights *weights)
{
    return weights->count;
}

const fth_tensor_view *fth_weights_get(const fth_weights *weights, size_t index)
{
    return index < weights->count ? &weights->views[index] : NULL;
}

const char *fth_weights_origin(const fth_weights *weights)
{
    return weights->origin;
}

const char *fth_weights_folder(const fth_weights *weights)
{
    return weights->folder;
}

const char *fth_weights_config(const fth_weights *weights)
{
    return weights->config;
}

void fth_weights_visit_metadata(const fth_weights *weights,
                                void (*visit)(void *context, const char *key, const char *value), void *context)
{
    if (weights->safetensors)
        fth_safetensors_visit_metadata(weights->safetensors, visit, context);
}

const char *fth_weights_metadata(const fth_weights *weights, const char *key)
{
    return weights->safetensors ? fth_safetensors_metadata(weights->safetensors, key) : NULL;
}

static size_t count_copies(const fth_weights *weights)
{
    return (weights->pth ? weights->pth->copies.count : 0) +
           (weights->exported ? fth_exported_archive_copied_count(weights->exported) : 0);
}

fth_weights_facts fth_weights_describe(const fth_weights *weights)
{
    size_t copied = count_copies(weights);
    for (size_t i = 0; i < weights->shard_count; i++)
        copied += count_copies(weights->shards[i]);
    return (fth_weights_facts){.format = weights->format,
                               .key = weights->place.key ? weights->place.key : "",
                               .removed_prefix = weights->prefix,
                               .removed_markers = weights->markers,
                               .skipped_classes = weights->skipped ? weights->skipped : "",
                               .left_out_count = weights->left_out,
                               .copied_count = copied,
                               .file_count = weights->shard_count > 0 ? weights->shard_count : 1};
}

char *fth_weights_explain(const fth_weights *weights)
{
    fth_weights_facts facts = fth_weights_describe(weights);
    char *parts[6] = {NULL}, *text = NULL;
    size_t count = 0;
    if (facts.file_count > 1)
        parts[count++] = fth_format("read from %zu files", facts.file_count);
    if (*facts.key)
        parts[count++] = fth_format("read from '%s'", facts.key);
    if (*facts.removed_prefix)
        parts[count++] = fth_format("'%s' taken off the names", facts.removed_prefix);
    if (*facts.removed_markers)
        parts[count++] = fth_format("'%s' taken out of the names", facts.removed_markers);
    if (facts.left_out_count)
        parts[count++] = fth_format("%s left out", FTH_COUNTED(facts.left_out_count, "other tensor"));
    if (*facts.skipped_classes)
        parts[count++] = fth_format("skipped, not executed: %s", facts.skipped_classes);
    for (size_t i = 0; i < count; i++) {
        char *longer = text ? fth_format("%s; %s", text, parts[i]) : fth_format("%s", parts[i]);
        free(text);
        text = longer;
        free(parts[i]);
    }
    return text;
}
