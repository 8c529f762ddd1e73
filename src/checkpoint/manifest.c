/* Reading and writing manifests. What a manifest says is believed only as far as it was checked: it
 * may name a file in its own folder and nothing else. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint_internal.h"

static bool is_tensor_file_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789.-";
    size_t length = strlen(name);
    return length > 17 && length < sizeof((fth_manifest){0}).file && strncmp(name, "step-", 5) == 0 &&
           strcmp(name + length - 12, ".safetensors") == 0 && strspn(name, allowed) == length;
}

fth_status fth_manifest_parse(const char *bytes, size_t size, const char *origin, fth_manifest *manifest)
{
    fth_status status = FTH_OK;
    json_error_t error;
    json_t *root = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &error);

    *manifest = (fth_manifest){0};
    FTH_REQUIRE(root, FTH_CORRUPT, "%s line %d: %s", origin, error.line, error.text);

    const json_t *format = json_object_get(root, "format");
    const json_t *step = json_object_get(root, "step");
    const json_t *fence = json_object_get(root, "fence");
    const json_t *tensors = json_object_get(root, "tensors");
    const char *file = json_string_value(json_object_get(tensors, "file"));
    const json_t *file_bytes = json_object_get(tensors, "bytes");
    const char *sha256 = json_string_value(json_object_get(tensors, "sha256"));
    json_t *state = json_object_get(root, "state");

    FTH_REQUIRE(json_is_integer(format), FTH_CORRUPT, "%s is not a checkpoint's manifest", origin);
    FTH_REQUIRE(json_integer_value(format) == FTH_MANIFEST_FORMAT, FTH_UNSUPPORTED,
                "%s has format %" JSON_INTEGER_FORMAT ", this version of farthing reads %d", origin,
                json_integer_value(format), FTH_MANIFEST_FORMAT);
    FTH_REQUIRE(json_is_integer(step) && json_integer_value(step) >= 0, FTH_CORRUPT, "%s has no step number", origin);
    FTH_REQUIRE(!fence || (json_is_integer(fence) && json_integer_value(fence) >= 1), FTH_CORRUPT,
                "%s has no valid fence number", origin);
    FTH_REQUIRE(file && is_tensor_file_name(file), FTH_CORRUPT, "%s names \"%.80s\", which is no tensor file beside it",
                origin, file ? file : "");
    FTH_REQUIRE(json_is_integer(file_bytes) && json_integer_value(file_bytes) >= 0, FTH_CORRUPT,
                "%s does not say how large %s is", origin, file);
    FTH_REQUIRE(sha256 && fth_hex_is_valid(sha256, 64), FTH_CORRUPT, "%s has no checksum of %s", origin, file);
    FTH_REQUIRE(json_is_object(state), FTH_CORRUPT, "%s has no state", origin);

    manifest->step = json_integer_value(step);
    manifest->fence = fence ? json_integer_value(fence) : 0;
    manifest->size_bytes = (uint64_t)json_integer_value(file_bytes);
    snprintf(manifest->file, sizeof manifest->file, "%s", file);
    snprintf(manifest->sha256, sizeof manifest->sha256, "%s", sha256);
    manifest->state = json_incref(state);

out:
    json_decref(root);
    return status;
}

void fth_manifest_release(fth_manifest *manifest)
{
    json_decref(manifest->state);
    *manifest = (fth_manifest){0};
}

fth_status fth_manifest_format(const fth_manifest *manifest, char **text)
{
    fth_status status = FTH_OK;
    json_t *root = json_pack("{s:i, s:I, s:{s:s, s:I, s:s}, s:O}", "format", FTH_MANIFEST_FORMAT, "step",
                             (json_int_t)manifest->step, "tensors", "file", manifest->file, "bytes",
                             (json_int_t)manifest->size_bytes, "sha256", manifest->sha256, "state", manifest->state);
    if (root && manifest->fence > 0)
        json_object_set_new(root, "fence", json_integer(manifest->fence));

    /* 17 digits give back every double exactly. */
    *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    FTH_REQUIRE(*text, FTH_NO_MEMORY, "no memory for the manifest of step %" PRId64, manifest->step);

out:
    json_decref(root);
    return status;
}
