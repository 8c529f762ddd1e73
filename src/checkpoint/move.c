/* Moves a checkpoint that was saved in a folder, while its store did not answer, to that store once
 * it does. */
#include <stdlib.h>

#include "checkpoint/checkpoint_internal.h"

/* Has the store what `local` is, or something later? */
static fth_status is_superseded(const fth_checkpoint_place *to, const fth_checkpoint *local, int64_t last_owner,
                                bool *superseded)
{
    fth_checkpoint_listing listing = {0};
    fth_status status = fth_checkpoint_list(to, &listing);
    *superseded = last_owner > local->fence || local->fence > to->fence;
    for (size_t i = 0; status == FTH_OK && i < listing.count && !*superseded; i++) {
        const fth_checkpoint_entry *entry = &listing.entries[i];
        *superseded = entry->manifest &&
                      (entry->fence > local->fence || (entry->fence == local->fence && entry->step >= local->step));
    }
    free(listing.entries);
    return status;
}

static fth_status put_copy(const fth_checkpoint_place *from, const fth_checkpoint_place *to,
                           const fth_checkpoint *local)
{
    fth_status status = FTH_OK;
    fth_manifest manifest = {0};
    const void *bytes = NULL;
    size_t size_bytes = 0;
    char *path = NULL;
    bool found = false;
    FTH_TRY(fth_checkpoint_read_manifest(from, local->step, local->fence, &manifest, &found));
    path = fth_checkpoint_describe(from, manifest.file);
    FTH_TRY(fth_file_map(path, &bytes, &size_bytes));
    FTH_TRY(fth_checkpoint_put(to, local->step, bytes, size_bytes, local->state, NULL));

out:
    fth_file_unmap(bytes, size_bytes);
    fth_manifest_release(&manifest);
    free(path);
    return status;
}

fth_status fth_checkpoint_remove_all(const fth_checkpoint_place *place)
{
    fth_status status = FTH_OK;
    fth_checkpoint_listing listing = {0};
    FTH_TRY(fth_checkpoint_list(place, &listing));
    for (int tensors = 0; tensors < 2; tensors++) /* manifests first */
        for (size_t i = 0; i < listing.count; i++)
            if (listing.entries[i].manifest == !tensors)
                FTH_TRY(fth_checkpoint_remove_entry(place, &listing.entries[i]));

out:
    free(listing.entries);
    return status;
}

fth_status fth_checkpoint_move(const fth_checkpoint_place *from, const fth_checkpoint_place *to, int64_t last_owner,
                               const fth_stop *stop, int64_t *step, bool *moved)
{
    fth_status status = FTH_OK;
    fth_checkpoint local;
    bool superseded = false;

    *step = -1;
    *moved = false;
    FTH_TRY(fth_checkpoint_get_latest(from, fth_store_folder(from->store), stop, &local));
    if (!local.tensors)
        goto out;
    FTH_TRY(is_superseded(to, &local, last_owner, &superseded));
    if (!superseded)
        FTH_TRY(put_copy(from, to, &local));
    *step = local.step;
    *moved = !superseded;
    FTH_TRY(fth_checkpoint_remove_all(from));

out:
    fth_checkpoint_release(&local);
    return status;
}
