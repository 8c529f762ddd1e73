/* See shard_manifest.h. */
#include "data/shard/shard_manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/image/transform.h"
#include "http/http.h"

enum { FORMAT = 1 };

void fth_shard_manifest_release(fth_shard_manifest *manifest)
{
    for (int i = 0; manifest->class_names && i < manifest->classes; i++)
        free(manifest->class_names[i]);
    for (size_t i = 0; manifest->shards && i < manifest->shard_count; i++)
        free(manifest->shards[i].name);
    free(manifest->class_names);
    free(manifest->shards);
    free(manifest->dataset);
    *manifest = (fth_shard_manifest){0};
}

/* ---- reading ---- */

/* A name that is one part of a path on any system, and needs no escapes in a URL. */
static bool is_plain_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+=";
    size_t length = strlen(name);
    return length >= 1 && length <= FTH_SHARD_NAME_BYTES && *name != '.' && strspn(name, allowed) == length;
}

static fth_status read_text(const json_t *json, const char *source, const char *what, char **text)
{
    const char *value = json_string_value(json);
    if (!value || !*value || strlen(value) > FTH_SHARD_NAME_BYTES || strlen(value) != json_string_length(json))
        return fth_fail(FTH_CORRUPT, "%s: %s is no text of 1 to %d bytes", source, what, FTH_SHARD_NAME_BYTES);
    *text = strdup(value);
    return *text ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for the list of shards");
}

static fth_status read_integer(const json_t *object, const char *key, const char *source, int64_t minimum,
                               int64_t maximum, int64_t *value)
{
    const json_t *json = json_object_get(object, key);
    *value = json_integer_value(json);
    if (!json_is_integer(json) || *value < minimum || *value > maximum)
        return fth_fail(FTH_CORRUPT, "%s: \"%s\" is no whole number from %" PRId64 " to %" PRId64, source, key, minimum,
                        maximum);
    return FTH_OK;
}

static fth_status read_held_out(const json_t *root, const char *source, fth_held_out *held_out)
{
    fth_status status = FTH_OK;
    const json_t *json = json_object_get(root, "held_out");
    int64_t seed = 0;

    if (!json)
        goto out;
    held_out->fraction = json_number_value(json_object_get(json, "fraction"));
    FTH_REQUIRE(held_out->fraction > 0 && held_out->fraction < 1, FTH_CORRUPT,
                "%s: \"held_out\" has no fraction between 0 and 1", source);
    FTH_TRY(read_integer(json, "seed", source, 0, INT64_MAX, &seed));
    held_out->seed = (uint64_t)seed;
    held_out->by_class = json_is_true(json_object_get(json, "by_class"));

out:
    return status;
}

static fth_status read_form(const json_t *root, const char *source, fth_shard_manifest *manifest)
{
    fth_status status = FTH_OK;
    int64_t classes = 0, channels = 0, height = 0, width = 0, seed = 0;
    const json_t *names = json_object_get(root, "class_names");

    FTH_TRY(read_text(json_object_get(root, "dataset"), source, "\"dataset\"", &manifest->dataset));
    FTH_TRY(read_integer(root, "classes", source, 2, FTH_SHARD_MANIFEST_CLASSES, &classes));
    FTH_TRY(read_integer(root, "channels", source, 1, FTH_MAX_CHANNELS, &channels));
    FTH_TRY(read_integer(root, "height", source, 1, FTH_MAX_OUTPUT_SIDE, &height));
    FTH_TRY(read_integer(root, "width", source, 1, FTH_MAX_OUTPUT_SIDE, &width));
    if (json_object_get(root, "seed"))
        FTH_TRY(read_integer(root, "seed", source, 0, INT64_MAX, &seed));
    FTH_TRY(read_held_out(root, source, &manifest->held_out));
    manifest->channels = (int)channels;
    manifest->height = (int)height;
    manifest->width = (int)width;
    manifest->seed = (uint64_t)seed;
    FTH_REQUIRE(fth_normalization_from_json(json_object_get(root, "normalization"), manifest->channels,
                                            &manifest->normalization),
                FTH_CORRUPT, "%s: \"normalization\" has no mean and std for %s", source,
                FTH_COUNTED(channels, "channel"));
    FTH_REQUIRE(json_is_array(names) && (int64_t)json_array_size(names) == classes, FTH_CORRUPT,
                "%s: \"class_names\" does not name %s", source, FTH_COUNTED(classes, "class"));
    FTH_TRY(fth_allocate((size_t)classes, sizeof *manifest->class_names, &manifest->class_names));
    manifest->classes = (int)classes;
    for (size_t i = 0; i < (size_t)classes; i++)
        FTH_TRY(read_text(json_array_get(names, i), source, "the name of a class", &manifest->class_names[i]));

out:
    return status;
}

static fth_status read_shard(const json_t *json, const char *source, fth_listed_shard *shard)
{
    fth_status status = FTH_OK;
    int64_t size_bytes = 0;
    const char *sha256 = json_string_value(json_object_get(json, "sha256"));

    FTH_REQUIRE(json_is_object(json), FTH_CORRUPT, "%s: a shard is no object", source);
    FTH_TRY(read_text(json_object_get(json, "name"), source, "the name of a shard", &shard->name));
    FTH_REQUIRE(is_plain_name(shard->name), FTH_CORRUPT, "%s: '%s' cannot be the name of a shard", source, shard->name);
    FTH_TRY(read_integer(json, "samples", source, 1, INT64_C(1) << 48, &shard->samples));
    FTH_TRY(read_integer(json, "size_bytes", source, 1, INT64_C(1) << 48, &size_bytes));
    FTH_REQUIRE(sha256 && fth_hex_is_valid(sha256, 64), FTH_CORRUPT, "%s: the shard %s has no sha256", source,
                shard->name);
    shard->size_bytes = (uint64_t)size_bytes;
    memcpy(shard->sha256, sha256, sizeof shard->sha256);

out:
    return status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static fth_status check_different(const fth_shard_manifest *manifest, const char *source)
{
    fth_status status = FTH_OK;
    const char **names = NULL;

    FTH_TRY(fth_allocate(manifest->shard_count, sizeof *names, &names));
    for (size_t i = 0; i < manifest->shard_count; i++)
        names[i] = manifest->shards[i].name;
    qsort(names, manifest->shard_count, sizeof *names, compare_names);
    for (size_t i = 1; i < manifest->shard_count; i++)
        FTH_REQUIRE(strcmp(names[i - 1], names[i]) != 0, FTH_CORRUPT, "%s: the shard %s is listed twice", source,
                    names[i]);

out:
    free(names);
    return status;
}

static fth_status read_shards(const json_t *root, const char *source, fth_shard_manifest *manifest)
{
    fth_status status = FTH_OK;
    const json_t *shards = json_object_get(root, "shards");
    size_t count = json_array_size(shards);
    int64_t sum = 0;

    FTH_TRY(read_integer(root, "samples", source, 1, INT64_C(1) << 48, &manifest->samples));
    FTH_REQUIRE(count >= 1 && count <= FTH_SHARD_MANIFEST_SHARDS, FTH_CORRUPT, "%s: \"shards\" lists no 1 to %d shards",
                source, FTH_SHARD_MANIFEST_SHARDS);
    FTH_TRY(fth_allocate(count, sizeof *manifest->shards, &manifest->shards));
    manifest->shard_count = count;
    for (size_t i = 0; i < count; i++) {
        FTH_TRY(read_shard(json_array_get(shards, i), source, &manifest->shards[i]));
        sum += manifest->shards[i].samples; /* both are at most 2^48: no overflow */
        FTH_REQUIRE(sum <= manifest->samples, FTH_CORRUPT, "%s: its shards have more than its %s", source,
                    FTH_COUNTED(manifest->samples, "sample"));
    }
    FTH_REQUIRE(sum == manifest->samples, FTH_CORRUPT, "%s: its shards have %" PRId64 " of its %s", source, sum,
                FTH_COUNTED(manifest->samples, "sample"));
    FTH_TRY(check_different(manifest, source));

out:
    return status;
}

fth_status fth_shard_manifest_parse(const char *text, size_t size_bytes, const char *source,
                                    fth_shard_manifest *manifest)
{
    fth_status status = FTH_OK;
    json_error_t error = {0};
    json_t *root = NULL;
    int64_t format = 0;

    *manifest = (fth_shard_manifest){0};
    FTH_REQUIRE(size_bytes <= FTH_SHARD_MANIFEST_BYTES, FTH_CORRUPT, "%s: %zu bytes are more than a list of shards has",
                source, size_bytes);
    root = json_loadb(text, size_bytes, JSON_REJECT_DUPLICATES, &error);
    FTH_REQUIRE(json_is_object(root), FTH_CORRUPT, "%s is no list of shards: %s", source,
                root ? "it is no JSON object" : error.text);
    FTH_TRY(read_integer(root, "format", source, 1, INT32_MAX, &format));
    FTH_REQUIRE(format == FORMAT, FTH_UNSUPPORTED, "%s has format %" PRId64 "; this version of farthing reads %d",
                source, format, FORMAT);
    FTH_TRY(read_form(root, source, manifest));
    FTH_TRY(read_shards(root, source, manifest));

out:
    json_decref(root);
    if (status != FTH_OK)
        fth_shard_manifest_release(manifest);
    return status;
}

/* ---- writing ---- */

/* NULL without memory, or if a name is not UTF-8. */
static json_t *to_json(const fth_shard_manifest *manifest)
{
    json_t *names = json_array(), *shards = json_array();
    bool whole = names && shards;
    for (int i = 0; i < manifest->classes; i++)
        whole = whole && json_array_append_new(names, json_string(manifest->class_names[i])) == 0;
    for (size_t i = 0; i < manifest->shard_count; i++) {
        const fth_listed_shard *shard = &manifest->shards[i];
        whole = whole &&
                json_array_append_new(shards, json_pack("{s:s, s:I, s:I, s:s}", "name", shard->name, "samples",
                                                        (json_int_t)shard->samples, "size_bytes",
                                                        (json_int_t)shard->size_bytes, "sha256", shard->sha256)) == 0;
    }
    if (!whole) {
        json_decref(names);
        json_decref(shards);
        return NULL;
    }
    json_t *held_out = NULL;
    if (manifest->held_out.fraction > 0)
        held_out = json_pack("{s:f, s:I, s:b}", "fraction", manifest->held_out.fraction, "seed",
                             (json_int_t)manifest->held_out.seed, "by_class", manifest->held_out.by_class);
    return json_pack("{s:i, s:s, s:i, s:o, s:i, s:i, s:i, s:o, s:I, s:I, s:o*, s:o}", "format", FORMAT, "dataset",
                     manifest->dataset, "classes", manifest->classes, "class_names", names, "channels",
                     manifest->channels, "height", manifest->height, "width", manifest->width, "normalization",
                     fth_normalization_to_json(&manifest->normalization), "samples", (json_int_t)manifest->samples,
                     "seed", (json_int_t)manifest->seed, "held_out", held_out, "shards", shards);
}

fth_status fth_shard_manifest_format(const fth_shard_manifest *manifest, char **text)
{
    fth_status status = FTH_OK;
    fth_shard_manifest read_back = {0};
    char *line = NULL;
    json_t *json = to_json(manifest);

    *text = NULL;
    FTH_REQUIRE(json, FTH_INVALID, "the list of shards of %s cannot be written: a name in it is no UTF-8",
                manifest->dataset);
    line = json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    FTH_REQUIRE(line, FTH_NO_MEMORY, "no memory for the list of shards");
    *text = fth_format("%s\n", line);
    FTH_REQUIRE(*text, FTH_NO_MEMORY, "no memory for the list of shards");
    if (fth_shard_manifest_parse(*text, strlen(*text), manifest->dataset, &read_back) != FTH_OK)
        status = fth_fail_within(FTH_INVALID, "the list of shards cannot be written");

out:
    if (status != FTH_OK) {
        free(*text);
        *text = NULL;
    }
    fth_shard_manifest_release(&read_back);
    free(line);
    json_decref(json);
    return status;
}

/* ---- in a store ---- */

fth_status fth_shard_manifest_read(fth_store *store, fth_shard_manifest *manifest, bool *found)
{
    fth_status status = FTH_OK;
    char *text = NULL, *source = fth_format("%s/%s", fth_store_url(store), FTH_SHARD_MANIFEST_NAME);
    size_t size_bytes = 0;

    *manifest = (fth_shard_manifest){0};
    FTH_REQUIRE(source, FTH_NO_MEMORY, "no memory for an address");
    FTH_TRY(fth_store_get(store, FTH_SHARD_MANIFEST_NAME, FTH_SHARD_MANIFEST_BYTES, &text, &size_bytes, NULL));
    *found = text != NULL;
    if (*found)
        FTH_TRY(fth_shard_manifest_parse(text, size_bytes, source, manifest));

out:
    free(text);
    free(source);
    return status;
}

fth_status fth_shard_make_url(fth_store *store, const char *name, double seconds, char **url)
{
    const char *address = fth_store_url(store), *folder = fth_store_folder(store);
    char *full = NULL, *escaped = NULL;
    bool public = strncmp(address, "http://", 7) == 0 || strncmp(address, "https://", 8) == 0;

    *url = NULL;
    if (!folder && !public)
        return fth_store_presign(store, "GET", name, seconds, url);
    if (folder) {
        full = realpath(folder, NULL);
        if (!full)
            return fth_fail(FTH_IO, "find %s: %s", folder, strerror(errno));
        escaped = fth_http_escape(full, true);
    }
    if (public || escaped)
        *url = public ? fth_format("%s/%s", address, name) : fth_format("file://%s/%s", escaped, name);
    free(full);
    free(escaped);
    return *url ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for a shard's address");
}
