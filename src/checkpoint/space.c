/* Checkpoints on a disk that is too small for them: a warning ahead, and room for a newer one at
 * the older ones' cost.
 *
 * The newest whole checkpoint is never given up: what is to replace it may turn out not to fit
 * either. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "checkpoint/checkpoint_internal.h"

/* ---- ahead ---- */

/* Free bytes where `folder` is, or will be; false: not known. */
static bool find_free_bytes(const char *folder, double *bytes)
{
    struct statvfs facts;
    char *path = fth_format("%s", folder);
    bool known = path && statvfs(path, &facts) == 0;
    while (path && !known) { /* a folder that is yet to be made is where its parent is */
        char *slash = strrchr(path, '/');
        if (slash && slash != path)
            *slash = '\0';
        else if (strcmp(path, "/") != 0 && strcmp(path, ".") != 0)
            snprintf(path, strlen(path) + 1, "%s", slash ? "/" : ".");
        else
            break;
        known = statvfs(path, &facts) == 0;
    }
    free(path);
    if (known)
        *bytes = (double)facts.f_bavail * (double)facts.f_frsize;
    return known;
}

void fth_checkpoint_warn_of_space(const fth_checkpoint_place *place, uint64_t size_bytes)
{
    const double megabyte = 1e6;
    const char *folder = fth_store_folder(place->store);
    fth_checkpoint_listing listing = {0};
    double free_bytes = 0, needed_bytes = (double)size_bytes * (place->keep + 1); /* one is written before one goes */
    if (!folder || !find_free_bytes(folder, &free_bytes))
        return;
    bool listed = fth_checkpoint_list(place, &listing) == FTH_OK;
    for (size_t i = 0; i < listing.count; i++)
        free_bytes += (double)listing.entries[i].size_bytes; /* which make room for those to come */
    free(listing.entries);
    if (!listed || free_bytes >= needed_bytes)
        return;
    const char *then = free_bytes >= 2 * (double)size_bytes ? "older ones will be removed early"
                                                            : "there may be no room for a new one beside the last";
    fth_log_warning("%s has room for %.3g MB of checkpoints, but --keep %d needs %.3g MB (%.3g MB each, and one being "
                    "written): %s; free some space or lower --keep",
                    folder, free_bytes / megabyte, place->keep, needed_bytes / megabyte, (double)size_bytes / megabyte,
                    then);
}

/* ---- when it is full ---- */

/* The newest checkpoint that would be restored now, by its checksum; false: there is none, or it
 * cannot be found. */
static bool find_newest(const fth_checkpoint_place *place, fth_checkpoint_entry *newest)
{
    fth_checkpoint checkpoint;
    bool found = fth_checkpoint_get_latest(place, fth_store_folder(place->store), NULL, &checkpoint) == FTH_OK &&
                 checkpoint.tensors;
    *newest = (fth_checkpoint_entry){.step = checkpoint.step, .fence = checkpoint.fence};
    fth_checkpoint_release(&checkpoint);
    return found;
}

static bool is_same(const fth_checkpoint_entry *a, const fth_checkpoint_entry *b)
{
    return a->step == b->step && a->fence == b->fence;
}

/* Removes a checkpoint, the manifest first. */
static fth_status remove_checkpoint(const fth_checkpoint_place *place, const fth_checkpoint_listing *listing,
                                    const fth_checkpoint_entry *which)
{
    fth_status status = FTH_OK;
    for (int tensors = 0; tensors < 2; tensors++)
        for (size_t i = 0; i < listing->count; i++)
            if (is_same(&listing->entries[i], which) && listing->entries[i].manifest == !tensors)
                FTH_TRY(fth_checkpoint_remove_entry(place, &listing->entries[i]));
out:
    return status;
}

static bool may_remove(const fth_checkpoint_place *place)
{
    return fth_store_folder(place->store) && (!place->guard || place->guard(place->guard_context) == FTH_OK);
}

/* The oldest but the newest whole one. */
static bool remove_oldest(const fth_checkpoint_place *place, const fth_checkpoint_listing *listing)
{
    fth_checkpoint_entry newest;
    const fth_checkpoint_entry *oldest = NULL;
    if (!find_newest(place, &newest))
        return false;
    for (size_t i = 0; i < listing->count; i++)
        if (listing->entries[i].manifest && listing->entries[i].fence <= place->fence &&
            !is_same(&listing->entries[i], &newest))
            oldest = &listing->entries[i]; /* the list has the newest first */
    if (!oldest || remove_checkpoint(place, listing, oldest) != FTH_OK)
        return false;
    fth_log_warning("%s is full: removed the checkpoint of step %" PRId64 " to make room for a newer one",
                    fth_store_folder(place->store), oldest->step);
    return true;
}

static bool make_room(const fth_checkpoint_place *place, bool unnamed, bool *tried_again)
{
    fth_checkpoint_listing listing = {0};
    char *why = fth_format("%s", fth_error_message()); /* what is done here has messages of its own */
    size_t removed = 0;
    bool made = may_remove(place) && fth_checkpoint_list(place, &listing) == FTH_OK;
    if (made && unnamed)
        made = fth_checkpoint_remove_unnamed(place, &listing, &removed) == FTH_OK;
    if (made && removed == 0)
        made = remove_oldest(place, &listing);
    free(listing.entries);
    fth_set_error("%s", why ? why : "the disk is full");
    free(why);
    bool again = made || !*tried_again;
    *tried_again = *tried_again || !made;
    return again;
}

bool fth_checkpoint_make_room(const fth_checkpoint_place *place, bool *tried_again)
{
    return make_room(place, false, tried_again);
}

bool fth_checkpoint_make_room_to_save(const fth_checkpoint_place *place, bool *tried_again)
{
    return make_room(place, true, tried_again);
}
