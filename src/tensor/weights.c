/* Recognizes the format, lets its reader do the work, and gives the tensors their names. */
#include "tensor/weights.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/pth_internal.h"
#include "tensor/safetensors_internal.h"
#include "tensor/shard_index.h"
#include "tensor/zip_internal.h"

enum { MAX_NAME = 1000, TAR_MAGIC_AT = 257, MAX_CONFIG_BYTES = 1 << 26 };

struct fth_weights {
    const void *mapping; /* NULL where the caller owns the bytes */
    size_t mapping_size_bytes;
    char *origin;          /* what errors call it */
    char *folder, *config; /* where a folder was opened: its path, and its config.json or "" */
    const char *format;
    fth_safetensors *safetensors; /* one of the three */
    fth_pth *pth;
    fth_weights **shards; /* (shard_count) the files of an index, whose views these are */
    size_t shard_count;
    fth_pth_place place; /* in a .pth file */
    char *names;         /* one after another; views have theirs here */
    char *prefix;        /* taken off every name */
    char *markers;       /* taken out of names: "_fsdp_wrapped_module." */
    char *skipped;       /* classes of objects that were passed over */
    size_t left_out;     /* tensors beside the part that was asked for, and counters of averages */
    fth_tensor_view *views;
    const fth_tensor_view **by_name; /* sorted, for lookups */
    size_t count;
};

/* ---- names ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const fth_tensor_view *const *)a)->name, (*(const fth_tensor_view *const *)b)->name);
}

static bool begins_with_name(const char *name, const char *prefix, size_t length)
{
    return strncmp(name, prefix, length) == 0 && name[length];
}

/* AveragedModel (torch.optim.swa_utils) counts beside the module that it wraps. */
static bool is_average_counter(const fth_tensor_view *view)
{
    return strcmp(view->name, "n_averaged") == 0 && fth_shape_count(&view->shape) == 1;
}

/* Keeps the tensors whose names begin so, without it. */
static void keep_part(fth_weights *weights, const char *prefix)
{
    size_t length = strlen(prefix), kept = 0;
    for (size_t i = 0; i < weights->count; i++) {
        if (!begins_with_name(weights->views[i].name, prefix, length))
            continue;
        weights->views[kept] = weights->views[i];
        weights->views[kept++].name += length;
    }
    weights->left_out += weights->count - kept;
    weights->count = kept;
}

static bool all_begin_with(const fth_weights *weights, const char *prefix, size_t length)
{
    size_t found = 0, counters = 0;
    for (size_t i = 0; i < weights->count; i++) {
        if (begins_with_name(weights->views[i].name, prefix, length))
            found++;
        else if (is_average_counter(&weights->views[i]))
            counters++;
    }
    return found > 0 && found + counters == weights->count;
}

/* Takes off what wrappers and the classes around a network put before every name; they may be
 * wrapped in each other. */
static void strip_prefixes(fth_weights *weights, const char *part)
{
    static const char *const wrappers[] = {"module.",  "_orig_mod.", "model.",   "_forward_module.",     "net.",
                                           "network.", "backbone.",  "encoder.", "_fsdp_wrapped_module."};
    char *stripped = fth_format("%s", part);
    if (*part)
        keep_part(weights, part);
    for (size_t w = 0; w < FTH_COUNT_OF(wrappers);) {
        if (!all_begin_with(weights, wrappers[w], strlen(wrappers[w]))) {
            w++;
            continue;
        }
        keep_part(weights, wrappers[w]);
        char *longer = fth_format("%s%s", stripped, wrappers[w]);
        free(stripped);
        stripped = longer;
        w = 0;
    }
    weights->prefix = stripped;
}

/* Takes out what torch.compile and FSDP put within names, before the module that they wrap; no
 * module is called so. */
static void remove_markers(fth_weights *weights)
{
    static const char *const markers[] = {"_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod."};
    bool removed[FTH_COUNT_OF(markers)] = {false};
    for (size_t i = 0; i < weights->count; i++) {
        for (size_t m = 0; m < FTH_COUNT_OF(markers); m++) {
            size_t length = strlen(markers[m]);
            char *name = weights->names + (weights->views[i].name - weights->names), *at = name;
            while ((at = strstr(at, markers[m]))) {
                bool whole = (at == name || at[-1] == '.') && at[length];
                removed[m] = removed[m] || whole;
                if (whole)
                    memmove(at, at + length, strlen(at + length) + 1);
                else
                    at += length;
            }
        }
    }
    weights->markers = fth_format("%s", "");
    for (size_t m = 0; m < FTH_COUNT_OF(markers); m++) {
        if (!removed[m])
            continue;
        char *longer = fth_format("%s%s%s", weights->markers, *weights->markers ? ", " : "", markers[m]);
        free(weights->markers);
        weights->markers = longer;
    }
}

static fth_status sort_names(fth_weights *weights, const char *origin)
{
    fth_status status = fth_allocate(weights->count, sizeof *weights->by_name, &weights->by_name);
    if (status != FTH_OK)
        return status;
    for (size_t i = 0; i < weights->count; i++)
        weights->by_name[i] = &weights->views[i];
    qsort(weights->by_name, weights->count, sizeof *weights->by_name, compare_names);
    for (size_t i = 1; i < weights->count; i++) {
        if (strcmp(weights->by_name[i - 1]->name, weights->by_name[i]->name) == 0)
            return fth_fail(FTH_CORRUPT, "%s: two tensors are called '%s'", origin, weights->by_name[i]->name);
    }
    return FTH_OK;
}

/* ---- formats ---- */

/* Names are rewritten, so they need memory of their own. */
static fth_status copy_names(fth_weights *weights)
{
    fth_status status = FTH_OK;
    size_t size = 0, at = 0;
    for (size_t i = 0; i < weights->count; i++)
        size += strlen(weights->views[i].name) + 1;
    FTH_TRY(fth_allocate(size, 1, &weights->names));
    for (size_t i = 0; i < weights->count; i++) {
        size_t length = strlen(weights->views[i].name) + 1;
        memcpy(weights->names + at, weights->views[i].name, length);
        weights->views[i].name = weights->names + at;
        at += length;
    }
out:
    return status;
}

/* A file that names tensors and no dictionaries: the key is how their names begin. */
static fth_status choose_part(fth_weights *weights, const char *origin, const char *key)
{
    size_t length = strlen(key), matching = 0;
    for (size_t i = 0; i < weights->count; i++) {
        const char *name = weights->views[i].name;
        matching += begins_with_name(name, key, length) && name[length] == '.';
    }
    if (*key && matching == 0)
        return fth_fail(FTH_INVALID,
                        "%s: a safetensors file has no '%s' inside, and no tensor called %s.*; leave out the key",
                        origin, key, key);
    weights->place.part = fth_format("%s%s", key, *key ? "." : "");
    return weights->place.part ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for a name");
}

static fth_status open_safetensors(fth_weights *weights, const void *bytes, size_t size_bytes, const char *origin,
                                   const char *key)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_safetensors_parse(bytes, size_bytes, origin, &weights->safetensors));
    weights->format = "safetensors";
    weights->count = fth_safetensors_count(weights->safetensors);
    FTH_TRY(fth_allocate(weights->count, sizeof *weights->views, &weights->views));
    for (size_t i = 0; i < weights->count; i++)
        weights->views[i] = *fth_safetensors_get(weights->safetensors, i);
    FTH_TRY(copy_names(weights));
    FTH_TRY(choose_part(weights, origin, key));
out:
    return status;
}

static bool is_named_tensor(const fth_pickle_node *key, const fth_pickle_node *value)
{
    return key->kind == FTH_PICKLE_TEXT && value->kind == FTH_PICKLE_TENSOR;
}

static fth_status check_name(const fth_pickle_node *key, const char *origin)
{
    char shown[80];
    bool good = key->count > 0 && key->count <= MAX_NAME;
    for (size_t i = 0; good && i < key->count; i++)
        good = !iscntrl((unsigned char)key->bytes[i]);
    if (good)
        return FTH_OK;
    return fth_fail(FTH_CORRUPT, "%s: '%s' is no name for a tensor", origin,
                    fth_pickle_printable(key->bytes, key->count, shown, sizeof shown));
}

/* A tensor of a kind that is not read must not go missing without a word. */
static fth_status check_readable(const fth_pickle_node *key, const fth_pickle_node *value, const char *origin)
{
    char shown[80] = "";
    const fth_pickle_global *maker = fth_pickle_unread_tensor(value);
    if (!maker)
        return FTH_OK;
    if (key->kind == FTH_PICKLE_TEXT)
        fth_pickle_printable(key->bytes, key->count, shown, sizeof shown);
    return fth_fail(FTH_UNSUPPORTED,
                    "%s: tensor '%s' is refused: it is made by %s, as sparse, quantized and other special tensors are; "
                    "save an ordinary one (.to_dense(), .dequantize())",
                    origin, shown, fth_pickle_global_text(maker));
}

static fth_status read_tensors(fth_weights *weights, const fth_pickle_node *state, const char *origin)
{
    fth_status status = FTH_OK;
    size_t names_size = 0, count = 0;
    for (size_t i = 0; i + 1 < state->count; i += 2) {
        FTH_TRY(check_readable(state->items[i], state->items[i + 1], origin));
        if (!is_named_tensor(state->items[i], state->items[i + 1]))
            continue;
        FTH_TRY(check_name(state->items[i], origin));
        /* Many uses of one long text would be a small file that takes much memory. */
        FTH_REQUIRE(!state->items[i]->visited, FTH_CORRUPT, "%s: two tensors are called '%.*s'", origin,
                    (int)state->items[i]->count, state->items[i]->bytes);
        state->items[i]->visited = true;
        names_size += state->items[i]->count + 1;
        count++;
    }
    FTH_TRY(fth_allocate(names_size, 1, &weights->names));
    FTH_TRY(fth_allocate(count, sizeof *weights->views, &weights->views));
    char *name = weights->names;
    for (size_t i = 0; i + 1 < state->count; i += 2) {
        const fth_pickle_node *key = state->items[i], *value = state->items[i + 1];
        if (!is_named_tensor(key, value))
            continue;
        memcpy(name, key->bytes, key->count); /* the NUL is there already */
        FTH_TRY(fth_pth_view_tensor(weights->pth, value->tensor, name, origin, &weights->views[weights->count]));
        weights->count++;
        name += key->count + 1;
    }
out:
    return status;
}

/* The classes of what was passed over: "argparse.Namespace, pathlib.PosixPath". */
static char *list_skipped(const fth_pickle *pickle)
{
    enum { SHOWN = 5 };
    size_t shown = 0;
    char *list = fth_format("%s", "");
    for (size_t i = 0; i < pickle->foreign_count && shown <= SHOWN; i++) {
        if (fth_pickle_global_is_plain_data(pickle->foreign[i]))
            continue;
        const char *text = shown < SHOWN ? fth_pickle_global_text(pickle->foreign[i]) : "...";
        char *longer = fth_format("%s%s%s", list, shown ? ", " : "", text);
        free(list);
        list = longer;
        shown++;
    }
    return list;
}

static fth_status open_pth(fth_weights *weights, const void *bytes, size_t size_bytes, const char *origin,
                           const char *key)
{
    fth_status status = FTH_OK;
    if (fth_zip_recognize(bytes, size_bytes))
        FTH_TRY(fth_pth_open_zip(bytes, size_bytes, origin, &weights->pth));
    else
        FTH_TRY(fth_pth_open_legacy(bytes, size_bytes, origin, &weights->pth));
    weights->format = weights->pth->format;
    weights->skipped = list_skipped(weights->pth->pickle);
    FTH_TRY(fth_pth_find_state(weights->pth, key, origin, &weights->place));
    FTH_TRY(read_tensors(weights, weights->place.state, origin));
out:
    return status;
}

static bool looks_like_safetensors(const unsigned char *bytes, size_t size_bytes)
{
    uint64_t length;
    if (size_bytes <= SAFETENSORS_LENGTH_BYTES)
        return false;
    memcpy(&length, bytes, sizeof length);
    return length <= SAFETENSORS_MAX_HEADER_BYTES && bytes[SAFETENSORS_LENGTH_BYTES] == '{';
}

static bool begins_with(const unsigned char *bytes, size_t size_bytes, size_t at, const char *text)
{
    return size_bytes >= at + strlen(text) && memcmp(bytes + at, text, strlen(text)) == 0;
}

/* Pickles of protocol 2 begin with 0x80. Older ones begin with any opcode; those that name
 * something are worth reading on, so that the refusal tells what. */
static bool looks_like_pickle(const unsigned char *bytes, size_t size_bytes)
{
    return size_bytes > 2 &&
           (bytes[0] == 0x80 || ((bytes[0] == 'c' || bytes[0] == '(') && memchr(bytes, '\n', size_bytes)));
}

static fth_status open_by_content(fth_weights *weights, const unsigned char *bytes, size_t size_bytes,
                                  const char *origin, const char *key)
{
    if (size_bytes == 0)
        return fth_fail(FTH_CORRUPT, "%s: an empty file", origin);
    if (looks_like_safetensors(bytes, size_bytes)) /* whatever the length's first byte looks like */
        return open_safetensors(weights, bytes, size_bytes, origin, key);
    if (fth_zip_recognize(bytes, size_bytes))
        return open_pth(weights, bytes, size_bytes, origin, key);
    if (begins_with(bytes, size_bytes, TAR_MAGIC_AT, "ustar"))
        return fth_fail(FTH_UNSUPPORTED,
                        "%s: a tar archive, as PyTorch wrote before 2017; load it in PyTorch and save it again",
                        origin);
    if (looks_like_pickle(bytes, size_bytes))
        return open_pth(weights, bytes, size_bytes, origin, key);
    if (begins_with(bytes, size_bytes, 0, "version https://git-lfs"))
        return fth_fail(FTH_INVALID, "%s: a Git LFS pointer, not the weights; fetch them with 'git lfs pull'", origin);
    return fth_fail(FTH_INVALID,
                    "%s: neither safetensors nor a file of torch.save(): these are what weights are read "
                    "from",
                    origin);
}

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
    FTH_TRY(open_by_content(fresh, bytes, size_bytes, origin, key));
    strip_prefixes(fresh, fresh->place.part);
    remove_markers(fresh);
    FTH_TRY(sort_names(fresh, origin));
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
    FTH_TRY(open_by_content(*shard, (*shard)->mapping, (*shard)->mapping_size_bytes, path, ""));

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

    FTH_TRY(sort_names(weights, weights->origin));
    json_object_foreach((json_t *)index->weight_map, tensor, file)
    {
        FTH_REQUIRE(fth_weights_find(weights, tensor), FTH_CORRUPT, "%s: %s has no tensor '%.80s'", weights->origin,
                    json_string_value(file), tensor);
    }

out:
    free(weights->by_name);
    weights->by_name = NULL;
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
    FTH_TRY(copy_names(weights));

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
    FTH_TRY(choose_part(fresh, origin, key));
    strip_prefixes(fresh, fresh->place.part);
    remove_markers(fresh);
    FTH_TRY(sort_names(fresh, origin));
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
    if (!at) { /* no such file: the message had better name what precedes the last colon */
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

const fth_tensor_view *fth_weights_find(const fth_weights *weights, const char *name)
{
    const fth_tensor_view key = {.name = name}, *key_pointer = &key;
    const fth_tensor_view **found =
        bsearch(&key_pointer, weights->by_name, weights->count, sizeof *weights->by_name, compare_names);
    return found ? *found : NULL;
}

fth_status fth_weights_narrow(fth_weights *weights, const char *prefix, const char *origin)
{
    char *longer = fth_format("%s%s", weights->prefix, prefix);
    free(weights->prefix);
    weights->prefix = longer;
    keep_part(weights, prefix);
    free(weights->by_name);
    weights->by_name = NULL;
    return sort_names(weights, origin);
}

fth_status fth_weights_rename(fth_weights *weights, const char *origin, fth_weights_renamer rename, void *context)
{
    fth_status status = FTH_OK;
    char buffer[MAX_NAME + 1], *names = NULL;
    size_t size = 0, used = 0, kept = 0;

    for (size_t i = 0; i < weights->count; i++) {
        const char *name = rename(context, weights->views[i].name, buffer, sizeof buffer);
        size += name ? strlen(name) + 1 : 0;
    }
    FTH_TRY(fth_allocate(size + 1, 1, &names));
    for (size_t i = 0; i < weights->count; i++) {
        const char *name = rename(context, weights->views[i].name, buffer, sizeof buffer);
        if (!name)
            continue;
        size_t length = strlen(name) + 1;
        weights->views[kept] = weights->views[i];
        weights->views[kept++].name = memcpy(names + used, name, length);
        used += length;
    }
    weights->left_out += weights->count - kept;
    weights->count = kept;
    free(weights->names);
    weights->names = names;
    free(weights->by_name);
    weights->by_name = NULL;
    FTH_TRY(sort_names(weights, origin));

out:
    return status;
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

fth_weights_facts fth_weights_describe(const fth_weights *weights)
{
    size_t copied = weights->pth ? weights->pth->copy_count : 0;
    for (size_t i = 0; i < weights->shard_count; i++)
        copied += weights->shards[i]->pth ? weights->shards[i]->pth->copy_count : 0;
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
