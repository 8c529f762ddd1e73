/* Loading the newest checkpoint whose manifest and checksum hold.
 *
 *     list -> manifest -> tensors fetched and verified -> loaded
 *               |              |
 *               +--------------+--> torn, gone or unreadable: the next older one; or, where others
 *                                   removed it meanwhile, the list again
 *
 * A store that does not answer ends the search: an older checkpoint would undo work that is
 * safe. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint_internal.h"

/* The tensors as a local file: in place where the store is a folder, downloaded otherwise
 * (*temporary says so). */
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

/* What becomes of the search after a checkpoint could not be loaded. A torn object, one that is
 * gone, and one that the store does not give although it answers are reasons to go back to an older
 * checkpoint. A store that does not answer is none. Where the manifest has gone too,
 * another process is tidying up, and may have saved a newer one: the list is old. */
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
        fth_set_error("%s", why);
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
    fth_status status = fth_checkpoint_open_folder(folder, &place);
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
