/* What checkpoints a place holds: names, order, manifests, and what may go.
 *
 *     removing    manifest removed -> tensors removed
 *
 * so at every moment each manifest stands beside the tensors it names. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint_internal.h"

/* ---- names ---- */

void fth_checkpoint_name(const fth_checkpoint_entry *entry, char *name, size_t size)
{
    char fence[32] = "";
    if (entry->fence > 0)
        snprintf(fence, sizeof fence, "-f%06" PRId64, entry->fence);
    snprintf(name, size, "step-%012" PRId64 "%s%s", entry->step, fence,
             entry->manifest ? ".json" : (entry->second ? "-2.safetensors" : ".safetensors"));
}

static bool read_digits(const char **text, int64_t *number)
{
    size_t count = strspn(*text, "0123456789");
    if (count < 1 || count > 18)
        return false;
    *number = strtoll(*text, NULL, 10);
    *text += count;
    return true;
}

static bool parse_name(const char *name, fth_checkpoint_entry *entry)
{
    *entry = (fth_checkpoint_entry){0};
    if (strncmp(name, "step-", 5) != 0)
        return false;
    name += 5;
    if (!read_digits(&name, &entry->step))
        return false;
    if (strncmp(name, "-f", 2) == 0) {
        name += 2;
        if (!read_digits(&name, &entry->fence) || entry->fence < 1)
            return false;
    }
    if (strncmp(name, "-2.", 3) == 0) {
        entry->second = true;
        name += 2;
    }
    entry->manifest = strcmp(name, ".json") == 0 && !entry->second;
    return entry->manifest || strcmp(name, ".safetensors") == 0;
}

char *fth_checkpoint_key(const fth_checkpoint_place *place, const char *name)
{
    return fth_format("%s%s", place->prefix, name);
}

char *fth_checkpoint_describe(const fth_checkpoint_place *place, const char *name)
{
    char *key = fth_checkpoint_key(place, name);
    const char *folder = fth_store_folder(place->store);
    char *where = fth_path_join(folder ? folder : fth_store_url(place->store), key);
    free(key);
    return where;
}

/* ---- listing ---- */

fth_status fth_checkpoint_open_folder(const char *folder, fth_checkpoint_place *place)
{
    *place = (fth_checkpoint_place){.prefix = "", .keep = 1};
    return fth_store_open(folder, NULL, &place->store);
}

typedef struct visitor {
    const fth_checkpoint_place *place;
    fth_checkpoint_listing *listing;
    fth_status status;
} visitor;

static bool visit(void *context, const fth_store_object *object)
{
    visitor *v = context;
    size_t prefix_length = strlen(v->place->prefix);
    fth_checkpoint_entry entry;
    if (strncmp(object->key, v->place->prefix, prefix_length) != 0 || !parse_name(object->key + prefix_length, &entry))
        return true;
    entry.modified_s = object->modified_s;
    entry.size_bytes = object->size_bytes;
    fth_checkpoint_listing *listing = v->listing;
    v->status = fth_grow(&listing->entries, listing->count, &listing->capacity, sizeof entry);
    if (v->status == FTH_OK)
        listing->entries[listing->count++] = entry;
    return v->status == FTH_OK;
}

static int newest_first(const void *a, const void *b)
{
    const fth_checkpoint_entry *left = a, *right = b;
    if (left->fence != right->fence)
        return left->fence > right->fence ? -1 : 1;
    if (left->step != right->step)
        return left->step > right->step ? -1 : 1;
    return (int)right->manifest - (int)left->manifest;
}

fth_status fth_checkpoint_list(const fth_checkpoint_place *place, fth_checkpoint_listing *listing)
{
    visitor v = {.place = place, .listing = listing};
    *listing = (fth_checkpoint_listing){0};
    char *prefix = fth_checkpoint_key(place, "step-");
    fth_status status = fth_store_list(place->store, prefix, visit, &v);
    free(prefix);
    if (status == FTH_OK)
        status = v.status;
    if (status == FTH_OK && listing->count > 0)
        qsort(listing->entries, listing->count, sizeof *listing->entries, newest_first);
    return status;
}

fth_status fth_checkpoint_read_manifest(const fth_checkpoint_place *place, int64_t step, int64_t fence,
                                        fth_manifest *manifest, bool *found)
{
    fth_status status = FTH_OK;
    char name[64], *bytes = NULL;
    size_t size = 0;

    *manifest = (fth_manifest){0};
    fth_checkpoint_name(&(fth_checkpoint_entry){.step = step, .fence = fence, .manifest = true}, name, sizeof name);
    char *key = fth_checkpoint_key(place, name), *where = fth_checkpoint_describe(place, name);
    FTH_TRY(fth_store_get(place->store, key, FTH_MAX_MANIFEST_BYTES, &bytes, &size, NULL));
    *found = bytes != NULL;
    if (!*found)
        goto out;
    FTH_TRY(fth_manifest_parse(bytes, size, where, manifest));
    if (manifest->step != step || manifest->fence != fence) {
        status = fth_fail(FTH_CORRUPT, "%s is of step %" PRId64 " and fence %" PRId64, where, manifest->step,
                          manifest->fence);
        fth_manifest_release(manifest);
    }

out:
    free(bytes);
    free(key);
    free(where);
    return status;
}

/* ---- retention ---- */

fth_status fth_checkpoint_remove_entry(const fth_checkpoint_place *place, const fth_checkpoint_entry *entry)
{
    char name[64];
    fth_checkpoint_name(entry, name, sizeof name);
    char *key = fth_checkpoint_key(place, name);
    fth_status status = fth_store_delete(place->store, key);
    free(key);
    return status;
}

/* Manifests beyond the newest `keep`, or too old; and of this owner those after `step`: a run that
 * went back to an earlier checkpoint has left them behind, and they must not win over this one.
 * What goes is marked by step -1. */
static fth_status remove_manifests(const fth_checkpoint_place *place, int64_t step, fth_checkpoint_listing *listing)
{
    int kept = 0;
    double now_s = fth_clock_wall_seconds();
    for (size_t i = 0; i < listing->count; i++) {
        fth_checkpoint_entry *entry = &listing->entries[i];
        if (!entry->manifest || entry->fence > place->fence)
            continue;
        bool undone = entry->fence == place->fence && entry->step > step;
        bool saved = entry->fence == place->fence && entry->step == step;
        bool old = place->keep_for_s > 0 && entry->modified_s > 0 && now_s - entry->modified_s > place->keep_for_s;
        if (saved || (!undone && !old && kept < place->keep)) {
            kept++;
            continue;
        }
        fth_status status = fth_checkpoint_remove_entry(place, entry);
        if (status != FTH_OK)
            return status;
        entry->step = -1;
    }
    return FTH_OK;
}

/* Is there a manifest that names these tensors? Beside a manifest that cannot be read nothing is
 * touched. */
static bool is_named(const fth_checkpoint_place *place, const fth_checkpoint_listing *listing,
                     const fth_checkpoint_entry *tensors)
{
    bool has_manifest = false, has_twin = false;
    for (size_t i = 0; i < listing->count; i++) {
        const fth_checkpoint_entry *other = &listing->entries[i];
        bool same = other->step == tensors->step && other->fence == tensors->fence;
        has_manifest = has_manifest || (same && other->manifest);
        has_twin = has_twin || (same && !other->manifest && other->second != tensors->second);
    }
    if (!has_manifest || !has_twin)
        return has_manifest;
    fth_manifest manifest;
    bool found = false;
    char name[64];
    if (fth_checkpoint_read_manifest(place, tensors->step, tensors->fence, &manifest, &found) != FTH_OK || !found)
        return true;
    fth_checkpoint_name(tensors, name, sizeof name);
    bool named = strcmp(manifest.file, name) == 0;
    fth_manifest_release(&manifest);
    return named;
}

void fth_checkpoint_remove_temporaries(const char *folder)
{
    DIR *directory = folder ? opendir(folder) : NULL;
    for (struct dirent *entry = directory ? readdir(directory) : NULL; entry; entry = readdir(directory))
        if (fth_file_is_temporary(entry->d_name) && unlinkat(dirfd(directory), entry->d_name, 0) != 0)
            fth_log_warning("cannot remove %s/%s: %s", folder, entry->d_name, strerror(errno));
    if (directory)
        closedir(directory);
}

fth_status fth_checkpoint_remove_unnamed(const fth_checkpoint_place *place, const fth_checkpoint_listing *listing,
                                         size_t *removed)
{
    fth_status status = FTH_OK;
    *removed = 0;
    for (size_t i = 0; i < listing->count; i++) {
        const fth_checkpoint_entry *entry = &listing->entries[i];
        if (entry->manifest || entry->fence > place->fence || is_named(place, listing, entry))
            continue;
        FTH_TRY(fth_checkpoint_remove_entry(place, entry));
        ++*removed;
    }

out:
    return status;
}

fth_status fth_checkpoint_tidy(const fth_checkpoint_place *place, int64_t step)
{
    fth_status status = FTH_OK;
    fth_checkpoint_listing listing = {0};
    size_t removed;

    FTH_TRY(fth_checkpoint_list(place, &listing));
    FTH_TRY(remove_manifests(place, step, &listing));
    FTH_TRY(fth_checkpoint_remove_unnamed(place, &listing, &removed));

out:
    free(listing.entries);
    return status;
}
