/* Finds the file of a model from what the user typed.
 *
 *     best.safetensors, model.pth:model_ema    a file, with the key of a dictionary in it
 *     runs/a, a                                a run, by folder or id: its best model, else its
 *                                              last
 *     bert-base-uncased/                       a folder from the Hugging Face hub: config.json,
 *                                              weights, vocabulary
 *     models/                                  a folder that holds one model file
 *     s3://bucket/runs/a                       a run in a store; while it trains, the best model so
 *                                              far
 *     s3://bucket/model.safetensors            a file in a store
 *
 * Objects in a store are fetched into the cache folder once per version; the copy has its checksum
 * beside it, and is fetched again if they no longer agree. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/model/weights.h"
#include "cli/store/store_cli.h"

static const char *const model_endings[] = {".safetensors", ".pth", ".pt", ".bin", ".ckpt", NULL};
static const char *const run_models[] = {"best.safetensors", "last.safetensors", NULL};

void fth_cli_weights_release(fth_cli_weights *weights)
{
    free(weights->path);
    free(weights->name);
    free(weights->run);
    *weights = (fth_cli_weights){0};
}

static bool ends_as_model(const char *name, size_t length)
{
    for (size_t i = 0; model_endings[i]; i++) {
        size_t ending = strlen(model_endings[i]);
        if (length > ending && strncasecmp(name + length - ending, model_endings[i], ending) == 0)
            return true;
    }
    return false;
}

/* ---- stores ---- */

typedef struct newest_model {
    char *key;
    double modified_s;
} newest_model;

/* Names have the step in a fixed number of digits, so the last one listed is the newest. */
static bool visit_best(void *context, const fth_store_object *object)
{
    newest_model *newest = context;
    const char *name = strrchr(object->key, '/');
    if (!name || strncmp(name, "/step-", 6) != 0 || !ends_as_model(name, strlen(name)))
        return true;
    free(newest->key);
    newest->key = fth_format("%s", object->key);
    newest->modified_s = object->modified_s;
    return true;
}

/* The key of a stored run's best model: of one that trains, the newest in best/; else
 * best.safetensors, else the last. */
static fth_status find_stored_model(const fth_place *place, const char *address, char **key)
{
    fth_status status = FTH_OK;
    newest_model newest = {0};
    fth_store_object object = {0};
    bool found = false;
    char *path = fth_format("%sbest/", place->prefix);

    *key = NULL;
    FTH_TRY(fth_store_list(place->store, path, visit_best, &newest));
    for (size_t i = 0; run_models[i] && !found; i++) {
        free(path);
        path = fth_format("%s%s", place->prefix, run_models[i]);
        FTH_TRY(fth_store_stat(place->store, path, &object, &found));
        if (found && newest.key && (i > 0 || newest.modified_s > object.modified_s))
            found = false;
        if (found)
            *key = fth_format("%s", path);
        fth_store_object_release(&object);
    }
    if (!*key && newest.key)
        *key = fth_format("%s", newest.key);
    FTH_REQUIRE(*key, FTH_INVALID, "%s has no model yet: no best.safetensors, last.safetensors or best/", address);

out:
    free(path);
    free(newest.key);
    return status;
}

/* A name for this version of an object in the cache, "models/5f3a...-best.safetensors". */
static char *name_in_cache(const char *folder, const char *url, const fth_store_object *object)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    char version[160], name[64];
    const char *last = strrchr(url, '/');
    snprintf(version, sizeof version, "\n%s %llu %.3f", object->version.text, (unsigned long long)object->size_bytes,
             *object->version.text ? 0 : object->modified_s);
    for (const char *text = url; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    for (const char *text = version; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    snprintf(name, sizeof name, "%s", last ? last + 1 : url);
    for (char *at = name; *at; at++)
        *at = isalnum((unsigned char)*at) || *at == '.' || *at == '-' ? *at : '_';
    return fth_format("%s/models/%016llx-%s", folder, (unsigned long long)hash, name);
}

/* True if the copy is complete and unchanged. */
static bool is_intact(const char *path, const char *checksum_path, uint64_t size_bytes)
{
    char *kept = NULL, sha256[65];
    size_t kept_size = 0;
    uint64_t copied_bytes = 0;
    bool intact = fth_file_exists(path) && fth_file_exists(checksum_path) &&
                  fth_file_read_all(checksum_path, 256, &kept, &kept_size) == FTH_OK && kept_size == 64 &&
                  fth_file_sha256_of(path, sha256, &copied_bytes) == FTH_OK && copied_bytes == size_bytes &&
                  memcmp(kept, sha256, 64) == 0;
    free(kept);
    return intact;
}

static fth_status fetch_object(const fth_place *place, const char *key, char **path, char **url)
{
    fth_status status = FTH_OK;
    fth_store_object object = {0};
    bool found = false;
    char *folder = NULL, *models = NULL, *checksum_path = NULL, sha256[65], bytes[64];
    struct stat facts;

    *path = NULL;
    *url = fth_path_join(fth_store_url(place->store), key);
    FTH_REQUIRE(*url, FTH_NO_MEMORY, "no memory for an address");
    if (place->root) { /* a folder: there is nothing to fetch */
        *path = fth_path_join(place->root, key);
        FTH_REQUIRE(*path, FTH_NO_MEMORY, "no memory for a path");
        goto out;
    }
    FTH_TRY(fth_store_stat(place->store, key, &object, &found));
    FTH_REQUIRE(found, FTH_INVALID, "there is no %s", *url);
    FTH_TRY(fth_cache_folder(&folder));
    models = fth_path_join(folder, "models");
    FTH_TRY(fth_folder_create(models));
    *path = name_in_cache(folder, *url, &object);
    checksum_path = *path ? fth_format("%s.sha256", *path) : NULL;
    FTH_REQUIRE(checksum_path, FTH_NO_MEMORY, "no memory for a path");
    if (is_intact(*path, checksum_path, object.size_bytes))
        goto out;
    fth_count_format((int64_t)object.size_bytes, "byte", bytes, sizeof bytes);
    fth_log_info("fetching %s (%s)", *url, bytes);
    FTH_TRY(fth_store_get_file(place->store, key, *path, sha256));
    FTH_REQUIRE(stat(*path, &facts) == 0 && (uint64_t)facts.st_size == object.size_bytes, FTH_CORRUPT,
                "%s changed while it was fetched; try again", *url);
    FTH_TRY(fth_file_write_all(checksum_path, sha256, 64));

out:
    free(folder);
    free(models);
    free(checksum_path);
    fth_store_object_release(&object);
    return status;
}

/* Splits "s3://bucket/model.pth:key"; *key points into the address, at its end if there is none. */
static char *split_key(const char *address, const char **key)
{
    const char *name = strrchr(address, '/');
    for (const char *colon = name ? strchr(name, ':') : NULL; colon; colon = strchr(colon + 1, ':')) {
        if (!ends_as_model(name, (size_t)(colon - name)))
            continue;
        *key = colon;
        return fth_format("%.*s", (int)(colon - address), address);
    }
    *key = address + strlen(address);
    return fth_format("%s", address);
}

static fth_status find_in_store(const char *address, const fth_store_options *options, fth_cli_weights *weights)
{
    fth_status status = FTH_OK;
    fth_place place = {0};
    const char *inner = "";
    char *object = split_key(address, &inner), *key = NULL, *path = NULL, *url = NULL;
    size_t length = strcspn(object, "?#");

    FTH_TRY(fth_place_open(object, options, &place));
    if (ends_as_model(object, length)) {
        key = fth_format("%s", place.key);
    } else {
        FTH_TRY(find_stored_model(&place, object, &key));
        weights->run = fth_format("%s", object);
    }
    FTH_TRY(fetch_object(&place, key, &path, &url));
    weights->path = fth_format("%s%s", path, inner);
    weights->name = fth_format("%s%s", url, inner);

out:
    free(object);
    free(key);
    free(path);
    free(url);
    fth_place_release(&place);
    return status;
}

/* ---- folders and files ---- */

static bool is_file(const char *text)
{
    bool found = fth_file_exists(text);
    char *path = fth_format("%s", text);
    for (char *colon = strrchr(path, ':'); colon && !found; colon = strrchr(path, ':')) {
        *colon = '\0';
        found = fth_file_exists(path);
    }
    free(path);
    return found;
}

static bool is_in_folder(const char *folder, const char *name)
{
    char *path = fth_path_join(folder, name);
    bool found = fth_file_exists(path);
    free(path);
    return found;
}

static fth_status find_in_run(const char *folder, fth_cli_weights *weights)
{
    for (size_t i = 0; run_models[i]; i++) {
        if (!is_in_folder(folder, run_models[i]))
            continue;
        weights->path = fth_path_join(folder, run_models[i]);
        weights->name = fth_format("%s", weights->path);
        weights->run = fth_format("%s", folder);
        return weights->path && weights->name && weights->run ? FTH_OK
                                                              : fth_fail(FTH_NO_MEMORY, "no memory for a path");
    }
    return fth_fail(FTH_INVALID, "run %s has no model file yet; it is written at the end of the first epoch", folder);
}

/* True of a folder as on the Hugging Face hub, which is more than its file of weights, and of
 * weights in several files. */
static bool is_from_hub(const char *folder)
{
    return is_in_folder(folder, "model.safetensors.index.json") ||
           is_in_folder(folder, "pytorch_model.bin.index.json") ||
           (is_in_folder(folder, "config.json") &&
            (is_in_folder(folder, "model.safetensors") || is_in_folder(folder, "pytorch_model.bin")));
}

static int is_model_entry(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && ends_as_model(entry->d_name, strlen(entry->d_name));
}

static fth_status find_in_folder(const char *folder, fth_cli_weights *weights)
{
    fth_status status = FTH_OK;
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, is_model_entry, alphasort);

    FTH_REQUIRE(count != 0, FTH_INVALID, "%s is not a run and holds no model file (.safetensors, .pth, .pt)", folder);
    FTH_REQUIRE(count > 0, FTH_IO, "cannot read folder %s", folder);
    FTH_REQUIRE(count == 1, FTH_INVALID, "%s holds %d model files, %s and %s among them; name one", folder, count,
                entries[0]->d_name, entries[1]->d_name);
    weights->path = fth_path_join(folder, entries[0]->d_name);
    FTH_REQUIRE(weights->path, FTH_NO_MEMORY, "no memory for a path");
    weights->name = fth_format("%s", weights->path);

out:
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return status;
}

fth_status fth_cli_find_weights(const char *text, const char *runs_folder, const fth_store_options *store,
                                fth_cli_weights *weights)
{
    fth_status status = FTH_OK;
    char *folder = NULL, *events = NULL;

    *weights = (fth_cli_weights){0};
    if (is_file(text)) {
        weights->path = fth_format("%s", text);
        weights->name = fth_format("%s", text);
        goto out;
    }
    if (fth_store_is_url(text)) {
        status = find_in_store(text, store, weights);
        goto out;
    }
    if (fth_folder_exists(text) && !is_in_folder(text, "run.json") && is_from_hub(text)) {
        weights->path = fth_format("%s", text);
        weights->name = fth_format("%s", text);
        goto out;
    }
    if (fth_folder_exists(text) && !is_in_folder(text, "run.json")) {
        status = find_in_folder(text, weights);
        goto out;
    }
    size_t length = strcspn(text, ":");
    FTH_REQUIRE(!ends_as_model(text, length), FTH_INVALID, "there is no file %.*s", (int)length, text);
    FTH_TRY(fth_record_locate(runs_folder, text, &folder));
    events = fth_path_join(folder, "events");
    status = fth_folder_exists(events) ? find_in_store(folder, store, weights) : find_in_run(folder, weights);

out:
    free(folder);
    free(events);
    if (status != FTH_OK)
        fth_cli_weights_release(weights);
    return status;
}
