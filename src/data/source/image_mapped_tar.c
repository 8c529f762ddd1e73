/* Images in a mapped tar, used in place: a tar, or another archive that was converted to one,
 * possibly downloaded. The state is the mapping. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/archive/blob.h"
#include "data/archive/remembered.h"
#include "data/source/image_source.h"
#include "data/source/object_address.h"
#include "store/store.h"

enum { TAIL_BYTES = 64 };

static bool tar_fits(const char *address)
{
    (void)address; /* the fallback: a name need not tell that it is an archive */
    return true;
}

/* Downloads an archive from a bucket, once for each version. */
static fth_status fetch_object(const char *address, const fth_dataset_options *options, char **fetched)
{
    fth_status status = FTH_OK;
    char *folder = NULL, *key = NULL, *what = NULL, *target = NULL;
    fth_store *store = NULL;
    fth_store_object object = {0};
    fth_store_progress progress = fth_stop_progress(options->stop);
    bool found = false;

    FTH_TRY(fth_address_split(address, &folder, &key));
    FTH_TRY(fth_store_open(folder, options->store, &store));
    FTH_TRY(fth_store_stat(store, key, &object, &found));
    FTH_REQUIRE(found, FTH_INVALID, "there is no %s", address);
    what = fth_format("%s/%s %s %" PRIu64, fth_store_url(store), key, object.version.text, object.size_bytes);
    FTH_REQUIRE(what, FTH_NO_MEMORY, "no memory for an address");
    FTH_TRY(fth_remembered_path("archives", what, &target));
    if (!fth_file_exists(target)) {
        fth_log_info("downloading %s into %s, once", address, target);
        FTH_TRY(fth_store_get_file_watched(store, key, target, &progress, NULL));
    }
    *fetched = target;
    target = NULL;

out:
    fth_store_object_release(&object);
    fth_store_free(store);
    fth_wipe_text(folder);
    free(key);
    free(what);
    free(target);
    return status;
}

static fth_status find_archive(const char *address, const fth_dataset_options *options, char **fetched)
{
    if (!strstr(address, "://"))
        return FTH_OK;
    if (strncmp(address, "https://", 8) == 0 || strncmp(address, "http://", 7) == 0)
        return fth_image_fetch(address, options->stop, fetched);
    return fetch_object(address, options, fetched);
}

static fth_status tar_open(const char *address, const fth_dataset_options *options, fth_image_index *index,
                           void **state)
{
    fth_status status = FTH_OK;
    char *fetched = NULL, *plain = NULL;
    const void *bytes = NULL;
    fth_blob *blob = NULL;

    FTH_TRY(fth_allocate(1, sizeof *blob, &blob));
    *state = blob;
    FTH_TRY(find_archive(address, options, &fetched));
    const char *path = fetched ? fetched : address;
    FTH_TRY(fth_image_archive_unpack(path, options->stop, &plain));
    FTH_TRY(fth_file_map(plain, &bytes, &blob->size_bytes));
    blob->bytes = bytes;
    blob->mapped = true;
    FTH_TRY(fth_image_archive_index(blob->bytes, blob->size_bytes, path, index));
    FTH_TRY(fth_image_index_finish(index, address));

out:
    if (status != FTH_OK && status != FTH_INTERRUPTED && fetched && fth_file_exists(fetched))
        status = fth_fail_within(status, "downloaded to %s (remove it to download it again)", fetched);
    free(fetched);
    free(plain);
    return status;
}

static void tar_free(void *state)
{
    if (state)
        fth_blob_free(state);
    free(state);
}

static fth_status tar_read(void *state, const fth_image_index *index, size_t number, const fth_patience *patience,
                           fth_pixel_buffer *buffer, const uint8_t **bytes, size_t *size_bytes, double *fetch_seconds)
{
    (void)patience;
    (void)fetch_seconds;
    const fth_blob *blob = state;
    const fth_image_entry *entry = &index->entries[number];
    (void)buffer;
    if (entry->size_bytes > FTH_MAX_IMAGE_FILE)
        return fth_fail(FTH_CORRUPT, "has more bytes than an image may have");
    *bytes = blob->bytes + entry->place;
    *size_bytes = entry->size_bytes;
    return FTH_OK;
}

static void tar_add_version(void *state, const fth_image_index *index, size_t number, fth_version_hash *hash)
{
    const fth_blob *blob = state;
    const fth_image_entry *entry = &index->entries[number];
    size_t size_bytes = entry->size_bytes <= FTH_MAX_IMAGE_FILE ? entry->size_bytes : 0;
    size_t tail = size_bytes < TAIL_BYTES ? size_bytes : TAIL_BYTES;
    fth_version_add_number(hash, entry->size_bytes);
    fth_version_add_bytes(hash, blob->bytes + entry->place + size_bytes - tail, tail);
}

const fth_image_source_kind fth_image_source_tar = {
    .name = "tar",
    .fits = tar_fits,
    .open = tar_open,
    .free = tar_free,
    .read = tar_read,
    .add_version = tar_add_version,
};
