/* Saving, finding and thinning out checkpoints.
 *
 *     saving      tensors published -> manifest published -> older ones removed
 *     removing    manifest removed  -> tensors removed
 *
 * So at every moment each manifest in the folder stands beside the tensors it names. When a step is saved a second time
 * its tensors get a second name, and the old pair holds until the new manifest replaces the old one. What is
 * left of a kill (temporaries, tensors that no manifest names) is removed at the next save. */
#include "checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint_internal.h"

/* The step in "step-000000001200.json" (`ending` ".json"), or -1. Tensors of a step saved twice have "-2" before it. */
static int64_t step_of(const char *name, const char *ending)
{
    if (strncmp(name, "step-", 5) != 0)
        return -1;
    const char *digits = name + 5;
    size_t count = strspn(digits, "0123456789");
    const char *rest = digits + count;
    if (strncmp(rest, "-2", 2) == 0 && strcmp(ending, ".json") != 0)
        rest += 2;
    if (count < 1 || count > 18 || strcmp(rest, ending) != 0)
        return -1;
    return strtoll(digits, NULL, 10);
}

/* ---- what is in the folder ---- */

typedef struct listing {
    int64_t *steps; /* that have a manifest, newest first */
    size_t count, capacity;
} listing;

static int newest_first(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left < right) - (left > right);
}

static fth_status list_manifests(const char *folder, listing *found)
{
    fth_status status = FTH_OK;
    *found = (listing){0};
    DIR *directory = opendir(folder);
    if (!directory && errno == ENOENT)
        return FTH_OK;
    if (!directory)
        return fth_fail(FTH_IO, "open %s: %s", folder, strerror(errno));
    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
        int64_t step = step_of(entry->d_name, ".json");
        if (step < 0)
            continue;
        FTH_TRY(fth_grow(&found->steps, found->count, &found->capacity, sizeof *found->steps));
        found->steps[found->count++] = step;
    }
    if (found->count > 0)
        qsort(found->steps, found->count, sizeof *found->steps, newest_first);

out:
    closedir(directory);
    return status;
}

static char *manifest_path(const char *folder, int64_t step)
{
    char name[48];
    snprintf(name, sizeof name, "step-%012" PRId64 ".json", step);
    return fth_path_join(folder, name);
}

static fth_status read_manifest(const char *folder, int64_t step, fth_manifest *manifest)
{
    fth_status status = FTH_OK;
    char *path = manifest_path(folder, step);
    char *bytes = NULL;
    size_t size = 0;

    *manifest = (fth_manifest){0};
    FTH_TRY(fth_file_read_all(path, FTH_MAX_MANIFEST_BYTES, &bytes, &size));
    FTH_TRY(fth_manifest_parse(bytes, size, path, manifest));
    if (manifest->step != step) {
        status = fth_fail(FTH_CORRUPT, "%s is of step %" PRId64, path, manifest->step);
        fth_manifest_release(manifest);
    }

out:
    free(bytes);
    free(path);
    return status;
}

/* ---- retention ---- */

/* Removes manifests older than the newest `keep` up to `step`, and those after `step`: a run that went back to an
 * earlier checkpoint has left them behind, and they must not win over this one. */
static fth_status remove_manifests(const char *folder, int64_t step, int keep)
{
    listing found;
    int kept = 0;
    fth_status status = list_manifests(folder, &found);
    for (size_t i = 0; status == FTH_OK && i < found.count; i++) {
        if (found.steps[i] <= step && kept++ < keep)
            continue;
        char *path = manifest_path(folder, found.steps[i]);
        if (unlink(path) != 0 && errno != ENOENT)
            status = fth_fail(FTH_IO, "remove %s: %s", path, strerror(errno));
        free(path);
    }
    free(found.steps);
    return status == FTH_OK ? fth_folder_sync(folder) : status;
}

static bool is_named_by_manifest(const char *folder, int64_t step, const char *file)
{
    fth_manifest manifest;
    char *path = manifest_path(folder, step);
    bool named = fth_file_exists(path);
    if (named && read_manifest(folder, step, &manifest) == FTH_OK) {
        named = strcmp(manifest.file, file) == 0;
        fth_manifest_release(&manifest);
    }
    free(path);
    return named; /* beside an unreadable manifest nothing is touched */
}

/* What nobody names any more: tensors without a manifest, temporaries of a killed process. */
static void remove_leftovers(const char *folder)
{
    DIR *directory = opendir(folder);
    if (!directory)
        return;
    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
        int64_t step = step_of(entry->d_name, ".safetensors");
        bool leftover = strncmp(entry->d_name, ".tmp-", 5) == 0 ||
                        (step >= 0 && !is_named_by_manifest(folder, step, entry->d_name));
        if (!leftover)
            continue;
        char *path = fth_path_join(folder, entry->d_name);
        if (unlink(path) != 0 && errno != ENOENT)
            fth_log_warning("cannot remove %s: %s", path, strerror(errno));
        free(path);
    }
    closedir(directory);
}

/* ---- saving ---- */

fth_status fth_checkpoint_save(const char *folder, int64_t step, const fth_tensor_view *views, size_t view_count,
                               const json_t *state, int keep)
{
    fth_status status = FTH_OK;
    fth_manifest manifest = {.step = step};
    fth_file *file = NULL;
    char *tensors_path = NULL, *text = NULL;
    char *path = manifest_path(folder, step);

    FTH_REQUIRE(step >= 0 && keep >= 1, FTH_INVALID, "a checkpoint of step %" PRId64 " cannot be kept %d times", step,
                keep);
    FTH_TRY(fth_folder_create(folder));
    snprintf(manifest.file, sizeof manifest.file, "step-%012" PRId64 ".safetensors", step);
    if (is_named_by_manifest(folder, step, manifest.file))
        snprintf(manifest.file, sizeof manifest.file, "step-%012" PRId64 "-2.safetensors", step);
    tensors_path = fth_path_join(folder, manifest.file);

    FTH_TRY(fth_file_create(tensors_path, &file));
    FTH_TRY(fth_safetensors_write(file, views, view_count, NULL, 0));
    FTH_TRY(fth_file_publish(file));
    manifest.size_bytes = fth_file_size_bytes(file);
    fth_file_sha256(file, manifest.sha256);

    manifest.state = json_incref((json_t *)state);
    FTH_TRY(fth_manifest_format(&manifest, &text));
    FTH_TRY(fth_file_write_all(path, text, strlen(text)));

    /* The checkpoint is whole; failing to tidy up is worth a word, not a failure. */
    if (remove_manifests(folder, step, keep) != FTH_OK)
        fth_log_warning("old checkpoints stay: %s", fth_error_message());
    remove_leftovers(folder);

out:
    fth_file_free(file);
    fth_manifest_release(&manifest);
    free(text);
    free(tensors_path);
    free(path);
    return status;
}

fth_status fth_model_file_save(const char *path, const fth_tensor_view *views, size_t view_count,
                               const fth_metadata_entry *metadata, size_t metadata_count)
{
    fth_status status = FTH_OK;
    fth_file *file = NULL;

    FTH_TRY(fth_file_create(path, &file));
    FTH_TRY(fth_safetensors_write(file, views, view_count, metadata, metadata_count));
    FTH_TRY(fth_file_publish(file));

out:
    fth_file_free(file);
    return status;
}

/* ---- loading ---- */

static fth_status load_step(const char *folder, int64_t step, fth_checkpoint *checkpoint)
{
    fth_status status = FTH_OK;
    fth_manifest manifest = {0};
    char *path = NULL;
    char sha256[65];
    uint64_t size = 0;

    FTH_TRY(read_manifest(folder, step, &manifest));
    path = fth_path_join(folder, manifest.file);
    FTH_REQUIRE(fth_file_exists(path), FTH_CORRUPT, "%s is missing", path);
    FTH_TRY(fth_file_sha256_of(path, sha256, &size));
    FTH_REQUIRE(size == manifest.size_bytes, FTH_CORRUPT, "%s has %" PRIu64 " bytes where %" PRIu64 " were written",
                path, size, manifest.size_bytes);
    FTH_REQUIRE(strcmp(sha256, manifest.sha256) == 0, FTH_CORRUPT, "%s does not match its checksum", path);
    FTH_TRY(fth_safetensors_open(path, &checkpoint->tensors));
    checkpoint->step = step;
    checkpoint->state = json_incref(manifest.state);

out:
    free(path);
    fth_manifest_release(&manifest);
    return status;
}

fth_status fth_checkpoint_load_latest(const char *folder, fth_checkpoint *checkpoint)
{
    fth_status status = FTH_OK;
    listing found;

    *checkpoint = (fth_checkpoint){0};
    FTH_TRY(list_manifests(folder, &found));
    for (size_t i = 0; i < found.count; i++) {
        status = load_step(folder, found.steps[i], checkpoint);
        if (status == FTH_OK || status == FTH_NO_MEMORY)
            goto out;
        fth_log_warning("skipping the checkpoint of step %" PRId64 ": %s", found.steps[i], fth_error_message());
    }
    if (found.count > 0)
        status = fth_fail(FTH_CORRUPT,
                          "none of the %zu checkpoints in %s can be read (the newest is of step %" PRId64
                          "); start anew without --resume",
                          found.count, folder, found.steps[0]);

out:
    free(found.steps);
    return status;
}

void fth_checkpoint_release(fth_checkpoint *checkpoint)
{
    json_decref(checkpoint->state);
    fth_safetensors_free(checkpoint->tensors);
    *checkpoint = (fth_checkpoint){0};
}
