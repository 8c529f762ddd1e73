/* Publishing a checkpoint in a store.
 *
 *     tensors put -> manifest put -> older ones removed (listing.c)
 *
 * On a full disk older ones are removed before (space.c). When an owner saves a step a second time
 * its tensors get a second name, and the old pair holds until the new manifest replaces the old
 * one. The checksum is taken by a thread of its own while the tensors travel. */
#include "checkpoint/checkpoint.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "checkpoint/checkpoint_internal.h"

/* ---- checksums ---- */

typedef struct hashing {
    const void *bytes;
    size_t size_bytes;
    char sha256[65]; /* "" if it failed, which no checksum equals */
} hashing;

static void *hash(void *context)
{
    hashing *work = context;
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    work->sha256[0] = '\0';
    if (EVP_Digest(work->bytes, work->size_bytes, digest, &size, EVP_sha256(), NULL))
        fth_hex_encode(digest, size, work->sha256);
    return NULL;
}

/* ---- saving ---- */

static fth_status check_guard(const fth_checkpoint_place *place)
{
    return place->guard ? place->guard(place->guard_context) : FTH_OK;
}

static fth_status at_offset(void *context, uint64_t offset, uint64_t size_bytes, const void **bytes)
{
    (void)size_bytes;
    *bytes = (const char *)context + offset;
    return FTH_OK;
}

/* Puts the tensors and takes their checksum meanwhile. */
static fth_status put_tensors(const fth_checkpoint_place *place, const fth_manifest *manifest, hashing *work,
                              const fth_store_progress *progress)
{
    char *key = fth_checkpoint_key(place, manifest->file);
    fth_store_source source = {.context = (void *)work->bytes, .size_bytes = work->size_bytes, .at = at_offset};
    fth_store_put_options options = {.progress = progress};
    pthread_t thread;
    bool threaded = fth_thread_start(&thread, "checksum", hash, work) == 0;
    if (!threaded)
        hash(work);
    fth_status status = fth_store_put_source(place->store, key, &source, &options, NULL);
    if (threaded)
        pthread_join(thread, NULL);
    free(key);
    return status;
}

/* The manifest is new, or takes the place of the one that this owner wrote for this step before. */
static fth_status put_manifest(const fth_checkpoint_place *place, const fth_manifest *manifest, const char *text,
                               const fth_store_progress *progress)
{
    fth_status status = FTH_OK;
    fth_store_object object = {0};
    bool lost = false, found = false;
    char name[64];
    fth_checkpoint_name(&(fth_checkpoint_entry){.step = manifest->step, .fence = manifest->fence, .manifest = true},
                        name, sizeof name);
    char *key = fth_checkpoint_key(place, name);
    fth_store_put_options options = {.condition = place->unconditional ? FTH_STORE_ALWAYS : FTH_STORE_IF_ABSENT,
                                     .content_type = "application/json",
                                     .progress = progress};

    FTH_TRY(fth_store_put(place->store, key, text, strlen(text), &options, &lost, NULL));
    if (!lost)
        goto out;
    FTH_TRY(fth_store_stat(place->store, key, &object, &found));
    options.condition = found ? FTH_STORE_IF_MATCH : FTH_STORE_IF_ABSENT;
    options.match = object.version;
    FTH_TRY(fth_store_put(place->store, key, text, strlen(text), &options, &lost, NULL));
    FTH_REQUIRE(!lost, FTH_PEER_LOST, "%s: another process is writing checkpoints of this run", key);

out:
    fth_store_object_release(&object);
    free(key);
    return status;
}

fth_status fth_checkpoint_put(const fth_checkpoint_place *place, int64_t step, const void *bytes, size_t size_bytes,
                              const json_t *state, const fth_store_progress *progress)
{
    fth_status status = FTH_OK;
    fth_manifest manifest = {.step = step, .fence = place->fence, .size_bytes = size_bytes}, earlier = {0};
    hashing work = {.bytes = bytes, .size_bytes = size_bytes};
    char *text = NULL, *folder = NULL;
    bool found = false, tried_again = false;

    FTH_REQUIRE(step >= 0 && place->keep >= 1, FTH_INVALID, "a checkpoint of step %" PRId64 " cannot be kept %d times",
                step, place->keep);
    FTH_TRY(check_guard(place));
    if (fth_store_folder(place->store)) {
        folder = fth_path_join(fth_store_folder(place->store), place->prefix);
        fth_checkpoint_remove_temporaries(folder);
    }
    fth_checkpoint_entry tensors = {.step = step, .fence = place->fence};
    fth_checkpoint_name(&tensors, manifest.file, sizeof manifest.file);
    fth_status read = fth_checkpoint_read_manifest(place, step, place->fence, &earlier, &found);
    FTH_REQUIRE(read == FTH_OK || read == FTH_CORRUPT || read == FTH_UNSUPPORTED, read, "%s", fth_error_message());
    tensors.second = read != FTH_OK || (found && strcmp(earlier.file, manifest.file) == 0);
    fth_checkpoint_name(&tensors, manifest.file, sizeof manifest.file);

    do
        status = put_tensors(place, &manifest, &work, progress);
    while (status == FTH_NO_SPACE && fth_checkpoint_make_room_to_save(place, &tried_again));
    FTH_TRY(status);
    snprintf(manifest.sha256, sizeof manifest.sha256, "%s", work.sha256);
    FTH_REQUIRE(*manifest.sha256, FTH_IO, "the checksum of step %" PRId64 " could not be computed", step);
    manifest.state = json_incref((json_t *)state);
    FTH_TRY(fth_manifest_format(&manifest, &text));
    FTH_TRY(check_guard(place));
    do
        status = put_manifest(place, &manifest, text, progress);
    while (status == FTH_NO_SPACE && fth_checkpoint_make_room(place, &tried_again));
    FTH_TRY(status);

    /* The checkpoint is whole; failing to tidy up is worth a word, not a failure. */
    if (check_guard(place) != FTH_OK || fth_checkpoint_tidy(place, step) != FTH_OK)
        fth_log_warning("old checkpoints stay: %s", fth_error_message());

out:
    fth_manifest_release(&manifest);
    fth_manifest_release(&earlier);
    free(text);
    free(folder);
    return status;
}
