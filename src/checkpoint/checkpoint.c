/* Saving and loading checkpoints in a store.
 *
 *     saving    tensors put -> manifest put -> older ones removed (listing.c)
 *
 * On a full disk older ones are removed before (space.c). When an owner saves a step a second time its tensors get a
 * second name, and the old pair holds until the new manifest replaces the old one. The checksum is taken by a thread of
 * its own while the tensors travel. */
#include "checkpoint/checkpoint.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
        for (unsigned i = 0; i < size && 2 * i + 2 < sizeof work->sha256; i++)
            snprintf(work->sha256 + 2 * i, 3, "%02x", digest[i]);
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
    bool threaded = fth_thread_start(&thread, hash, work) == 0;
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
    FTH_REQUIRE(!lost, FTH_PEER_LOST, "%s: somebody else writes checkpoints of this run", key);

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

static fth_status open_folder(const char *folder, fth_checkpoint_place *place)
{
    *place = (fth_checkpoint_place){.prefix = "", .keep = 1};
    return fth_store_open(folder, NULL, &place->store);
}

fth_status fth_checkpoint_save(const char *folder, int64_t step, const fth_tensor_view *views, size_t view_count,
                               const json_t *state, int keep)
{
    fth_status status = FTH_OK;
    fth_checkpoint_place place;
    char *header = NULL, *bytes = NULL;
    size_t header_bytes = 0, size = 0;

    FTH_TRY(open_folder(folder, &place));
    FTH_TRY(fth_folder_create(folder));
    place.keep = keep;
    FTH_TRY(fth_safetensors_header(views, view_count, NULL, 0, &header, &header_bytes));
    size = header_bytes;
    for (size_t i = 0; i < view_count; i++)
        size += (size_t)fth_shape_count(&views[i].shape) * fth_dtype_size_bytes(views[i].dtype);
    FTH_TRY(fth_allocate(size, 1, &bytes));
    memcpy(bytes, header, header_bytes);
    for (size_t i = 0, at = header_bytes; i < view_count; i++) {
        size_t part = (size_t)fth_shape_count(&views[i].shape) * fth_dtype_size_bytes(views[i].dtype);
        memcpy(bytes + at, views[i].data, part);
        at += part;
    }
    FTH_TRY(fth_checkpoint_put(&place, step, bytes, size, state, NULL));

out:
    free(header);
    free(bytes);
    fth_store_free(place.store);
    return status;
}

fth_status fth_model_file_save(const char *path, const fth_tensor_view *views, size_t view_count,
                               const fth_metadata_entry *metadata, size_t metadata_count)
{
    fth_status status = FTH_OK;
    fth_file *file = NULL;

    FTH_TRY(fth_tensors_check_finite(views, view_count));
    FTH_TRY(fth_file_create(path, &file));
    FTH_TRY(fth_safetensors_write(file, views, view_count, metadata, metadata_count));
    FTH_TRY(fth_file_publish(file));

out:
    fth_file_free(file);
    return status;
}

/* ---- loading ---- */

/* The tensors as a local file: in place where the store is a folder, downloaded otherwise (*temporary says so). */
static fth_status fetch(const fth_checkpoint_place *place, const char *download_folder, const fth_manifest *manifest,
                        char **path, bool *temporary)
{
    fth_status status = FTH_OK;
    char sha256[65] = "";
    uint64_t size = manifest->size_bytes;
    char *where = fth_checkpoint_describe(place, manifest->file);
    char *key = fth_checkpoint_key(place, manifest->file);
    fth_store_object object = {0};
    bool found = false;

    *path = NULL;
    *temporary = fth_store_folder(place->store) == NULL;
    if (!*temporary) {
        *path = fth_format("%s", where);
        FTH_REQUIRE(fth_file_exists(*path), FTH_CORRUPT, "%s is missing", where);
        FTH_TRY(fth_file_sha256_of(*path, sha256, &size));
    } else {
        FTH_TRY(fth_store_stat(place->store, key, &object, &found));
        FTH_REQUIRE(found, FTH_CORRUPT, "%s is missing", where);
        size = object.size_bytes;
        if (size == manifest->size_bytes) {
            FTH_TRY(fth_folder_create(download_folder));
            *path = fth_path_join(download_folder, manifest->file);
            FTH_TRY(fth_store_get_file(place->store, key, *path, sha256));
        }
    }
    FTH_REQUIRE(size == manifest->size_bytes, FTH_CORRUPT, "%s has %" PRIu64 " bytes where %" PRIu64 " were written",
                where, size, manifest->size_bytes);
    FTH_REQUIRE(strcmp(sha256, manifest->sha256) == 0, FTH_CORRUPT, "%s does not match its checksum", where);

out:
    fth_store_object_release(&object);
    free(key);
    free(where);
    return status;
}

static fth_status load(const fth_checkpoint_place *place, const char *download_folder,
                       const fth_checkpoint_entry *entry, fth_checkpoint *checkpoint)
{
    fth_status status = FTH_OK;
    fth_manifest manifest = {0};
    char *path = NULL;
    bool found = false, temporary = false;

    FTH_TRY(fth_checkpoint_read_manifest(place, entry->step, entry->fence, &manifest, &found));
    FTH_REQUIRE(found, FTH_CORRUPT, "its manifest has gone");
    FTH_TRY(fetch(place, download_folder, &manifest, &path, &temporary));
    FTH_TRY(fth_safetensors_open(path, &checkpoint->tensors));
    checkpoint->step = entry->step;
    checkpoint->fence = entry->fence;
    checkpoint->state = json_incref(manifest.state);

out:
    if (temporary && path)
        unlink(path); /* the mapping stays */
    free(path);
    fth_manifest_release(&manifest);
    return status;
}

/* What becomes of the search after a checkpoint could not be loaded. A torn object, one that is gone, and one that the
 * store does not give although it answers are reasons to go back to an older checkpoint. A store that does not answer
 * is none. Where the manifest has gone too, somebody tidies up, and may have saved a newer one: the list is old. */
typedef enum verdict { GIVE_UP, TRY_AGAIN, SKIP, LIST_AGAIN } verdict;

static verdict judge(const fth_checkpoint_place *place, const fth_checkpoint_entry *entry, fth_status status,
                     bool first_try)
{
    fth_store_object object = {0};
    bool found = false;
    char name[64];
    if (status == FTH_NO_MEMORY || status == FTH_NO_SPACE || status == FTH_INTERRUPTED) /* older ones are no smaller */
        return GIVE_UP;
    fth_checkpoint_name(entry, name, sizeof name);
    char *key = fth_checkpoint_key(place, name);
    bool answers = fth_store_stat(place->store, key, &object, &found) == FTH_OK;
    fth_store_object_release(&object);
    free(key);
    if (!answers)
        return GIVE_UP;
    if (!found)
        return LIST_AGAIN;
    return first_try && (status == FTH_IO || status == FTH_TIMEOUT) ? TRY_AGAIN : SKIP;
}

/* The search for the newest good checkpoint. */
typedef struct search {
    const fth_checkpoint_place *place;
    const char *download_folder;
    const fth_stop *stop;
    size_t skipped;
    int64_t newest;    /* step of the first that was skipped */
    fth_status unread; /* of the first that may be good and could not be read; FTH_OK: none */
    char message[512]; /* and why */
    int lists;
} search;

/* Loads `entry`, or says what to do next. */
static fth_status try_entry(search *s, const fth_checkpoint_entry *entry, fth_checkpoint *checkpoint, verdict *next)
{
    fth_status status = FTH_OK;
    *next = GIVE_UP;
    for (int tries = 1; tries == 1 || *next == TRY_AGAIN; tries++) {
        if (s->stop && s->stop->asked)
            return fth_fail(FTH_INTERRUPTED, "stopped while looking for a checkpoint");
        status = load(s->place, s->download_folder, entry, checkpoint);
        if (status == FTH_OK)
            return FTH_OK;
        char *why = fth_format("%s", fth_error_message()); /* judging has messages of its own */
        *next = judge(s->place, entry, status, tries == 1);
        if (*next != GIVE_UP)
            fth_log_warning("%s the checkpoint of step %" PRId64 ": %s",
                            *next == TRY_AGAIN ? "trying again to load" : "skipping", entry->step, why);
        fth_fail(status, "%s", why);
        free(why);
    }
    return status;
}

static void count_skipped(search *s, const fth_checkpoint_entry *entry, fth_status status)
{
    s->newest = s->skipped++ == 0 ? entry->step : s->newest;
    if (s->unread != FTH_OK || status == FTH_CORRUPT || status == FTH_UNSUPPORTED)
        return;
    s->unread = status;
    snprintf(s->message, sizeof s->message, "%s", fth_error_message());
}

/* One pass over what is there now; *again: the list was too old to go on with. */
static fth_status look(search *s, fth_checkpoint *checkpoint, bool *again)
{
    enum { MAX_LISTS = 5 };
    fth_status status = FTH_OK;
    fth_checkpoint_listing listing = {0};
    verdict next;

    *again = false;
    s->skipped = 0;
    s->unread = FTH_OK;
    FTH_TRY(fth_checkpoint_list(s->place, &listing));
    s->lists++;
    for (size_t i = 0; i < listing.count && !*again; i++) {
        if (!listing.entries[i].manifest)
            continue;
        status = try_entry(s, &listing.entries[i], checkpoint, &next);
        if (status == FTH_OK || next == GIVE_UP)
            goto out;
        count_skipped(s, &listing.entries[i], status);
        *again = next == LIST_AGAIN && s->lists < MAX_LISTS;
    }
    status = FTH_OK;

out:
    free(listing.entries);
    return status;
}

fth_status fth_checkpoint_get_latest(const fth_checkpoint_place *place, const char *download_folder,
                                     const fth_stop *stop, fth_checkpoint *checkpoint)
{
    fth_status status = FTH_OK;
    search s = {.place = place, .download_folder = download_folder, .stop = stop};
    char *where = fth_checkpoint_describe(place, "");
    bool again = true;

    *checkpoint = (fth_checkpoint){0};
    if (!fth_store_folder(place->store)) /* of downloads that a kill ended */
        fth_checkpoint_remove_temporaries(download_folder);
    while (again)
        FTH_TRY(look(&s, checkpoint, &again));
    if (checkpoint->tensors || s.skipped == 0)
        goto out;
    FTH_REQUIRE(s.unread == FTH_OK, s.unread, "no checkpoint in %s can be read now (tried %zu): %s", where, s.skipped,
                s.message);
    status = fth_fail(FTH_CORRUPT,
                      "no checkpoint in %s can be read (tried %zu; the newest is of step %" PRId64
                      "); start again elsewhere, or without --resume",
                      where, s.skipped, s.newest);

out:
    free(where);
    return status;
}

fth_status fth_checkpoint_load_latest(const char *folder, fth_checkpoint *checkpoint)
{
    fth_checkpoint_place place;
    *checkpoint = (fth_checkpoint){0};
    fth_status status = open_folder(folder, &place);
    if (status == FTH_OK)
        status = fth_checkpoint_get_latest(&place, folder, NULL, checkpoint);
    fth_store_free(place.store);
    return status;
}

void fth_checkpoint_release(fth_checkpoint *checkpoint)
{
    json_decref(checkpoint->state);
    fth_safetensors_free(checkpoint->tensors);
    *checkpoint = (fth_checkpoint){0};
}
