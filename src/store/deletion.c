/* Deletes all that is below a prefix; see store.h. In buckets the objects that were counted, one by
 * one; folders are in folder_delete.c. */
#include <stdlib.h>
#include <string.h>

#include "store/folder_internal.h"
#include "store/store_internal.h"

struct fth_store_deletion {
    fth_store *store;
    fth_folder_deletion folder; /* of a folder store */
    char **keys;                /* of the others */
    size_t count, capacity;
    uint64_t bytes;
    fth_status status; /* of listing them */
};

static bool add_key(void *context, const fth_store_object *object)
{
    fth_store_deletion *deletion = context;
    deletion->status = fth_grow(&deletion->keys, deletion->count, &deletion->capacity, sizeof *deletion->keys);
    char *key = deletion->status == FTH_OK ? strdup(object->key) : NULL;
    if (!key) {
        deletion->status = fth_fail(FTH_NO_MEMORY, "no memory for a key");
        return false;
    }
    deletion->keys[deletion->count++] = key;
    deletion->bytes += object->size_bytes;
    return true;
}

fth_status fth_store_deletion_begin(fth_store *store, const char *prefix, fth_store_deletion **result)
{
    fth_status status = FTH_OK;
    fth_store_deletion *deletion = NULL;
    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *deletion, &deletion));
    *deletion = (fth_store_deletion){.store = store, .folder = {.parent = -1, .folder = -1}};
    FTH_REQUIRE(store->kind->remove, FTH_UNSUPPORTED, "%s: this store is for reading alone", store->url);
    if (fth_store_folder(store)) {
        FTH_REQUIRE(!*prefix, FTH_INVALID, "there is no folder %s in %s", prefix, store->url);
        FTH_TRY(fth_folder_deletion_begin(fth_store_folder(store), &deletion->folder));
    } else {
        FTH_TRY(fth_store_list(store, prefix, add_key, deletion));
        FTH_TRY(deletion->status);
    }
    *result = deletion;
    deletion = NULL;

out:
    fth_store_deletion_free(deletion);
    return status;
}

const char *fth_store_deletion_folder(const fth_store_deletion *deletion)
{
    return deletion->folder.path;
}

uint64_t fth_store_deletion_count(const fth_store_deletion *deletion)
{
    return deletion->folder.path ? deletion->folder.files : deletion->count;
}

uint64_t fth_store_deletion_bytes(const fth_store_deletion *deletion)
{
    return deletion->folder.path ? deletion->folder.bytes : deletion->bytes;
}

fth_status fth_store_deletion_perform(fth_store_deletion *deletion)
{
    fth_status status = FTH_OK;
    if (deletion->folder.path)
        FTH_TRY(fth_folder_deletion_perform(&deletion->folder));
    for (size_t i = 0; i < deletion->count; i++)
        FTH_TRY(fth_store_delete(deletion->store, deletion->keys[i]));

out:
    return status;
}

void fth_store_deletion_free(fth_store_deletion *deletion)
{
    if (!deletion)
        return;
    fth_folder_deletion_release(&deletion->folder);
    for (size_t i = 0; i < deletion->count; i++)
        free(deletion->keys[i]);
    free(deletion->keys);
    free(deletion);
}
