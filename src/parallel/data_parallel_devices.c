/* The group of the members' devices: opened in all of them, where each has a device of its own that
 * can sum with the others (NCCL), or in none. */
#include <stdlib.h>
#include <string.h>

#include "parallel/data_parallel.h"

enum { OPEN_TIMEOUT_S = 60 };

typedef struct device_identity {
    char text[FTH_DEVICE_IDENTITY_BYTES]; /* "": it cannot */
} device_identity;

/* How many members say so. */
static fth_status count_members(fth_data_parallel *self, bool says_so, int *count)
{
    double sum = says_so;
    fth_status status = fth_worker_group_translate_status(
        self->group, fth_collective_sum(fth_worker_group_collective(self->group), &sum, 1));
    *count = (int)sum;
    return status;
}

/* Tells all members what each of them has. */
static fth_status gather_identities(fth_data_parallel *self, device_identity *identities, int size)
{
    fth_status status = FTH_OK;
    for (int r = 0; r < size; r++)
        FTH_TRY(fth_worker_group_translate_status(self->group,
                                                  fth_collective_broadcast(fth_worker_group_collective(self->group),
                                                                           &identities[r], sizeof identities[r], r)));
out:
    return status;
}

static bool are_different(const device_identity *identities, int size)
{
    for (int r = 0; r < size; r++) {
        if (!identities[r].text[0])
            return false;
        for (int other = 0; other < r; other++)
            if (strcmp(identities[r].text, identities[other].text) == 0)
                return false;
    }
    return true;
}

/* Only what gradients in f32 need, between whichever machines there are. */
static bool may_use(const fth_train_options *options)
{
    return strcmp(options->peers.transport, "auto") == 0 && options->peers.wire == FTH_WIRE_F32 &&
           !options->peers.shard_update;
}

static fth_status open_group(fth_data_parallel *self, const fth_group_view *view)
{
    fth_status status = FTH_OK;
    fth_device *device = fth_engine_device(self->engine);
    const fth_backend_collectives *collectives = device->backend->collectives;
    unsigned char id[FTH_DEVICE_GROUP_ID_BYTES] = {0};
    int opened = 0;

    if (view->rank == 0 && collectives->make_id(device, id) != FTH_OK)
        fth_log_warning("%s", fth_error_message()); /* opening will fail in all members */
    FTH_TRY(fth_worker_group_translate_status(
        self->group, fth_collective_broadcast(fth_worker_group_collective(self->group), id, sizeof id, 0)));
    fth_status made =
        collectives->open(device, id, view->rank, view->size, fth_deadline_in(OPEN_TIMEOUT_S), &self->devices);
    if (made != FTH_OK)
        fth_log_warning("%s; gradients go through the host", fth_error_message());
    FTH_TRY(count_members(self, made == FTH_OK, &opened));
    if (opened == view->size)
        fth_worker_group_set_devices(self->group, collectives, self->devices);
    else
        fth_data_parallel_close_devices(self);

out:
    return status;
}

fth_status fth_data_parallel_open_devices(fth_data_parallel *self, const fth_train_options *options)
{
    fth_status status = FTH_OK;
    fth_device *device = fth_engine_device(self->engine);
    const fth_backend_collectives *collectives = device->backend->collectives;
    const fth_group_view *view = fth_worker_group_view(self->group);
    device_identity *identities = NULL;
    int willing = 0;

    if (view->size <= 1)
        return FTH_OK;
    FTH_TRY(fth_allocate((size_t)view->size, sizeof *identities, &identities));
    char *own = identities[view->rank].text;
    if (collectives && may_use(options) && collectives->identify(device, own) != FTH_OK) {
        fth_log_warning("%s; gradients go through the host", fth_error_message());
        own[0] = '\0';
    }
    FTH_TRY(count_members(self, own[0] != '\0', &willing));
    if (willing < view->size)
        goto out;
    FTH_TRY(gather_identities(self, identities, view->size));
    if (are_different(identities, view->size))
        FTH_TRY(open_group(self, view));

out:
    free(identities);
    return status;
}

void fth_data_parallel_close_devices(fth_data_parallel *self)
{
    if (!self->devices)
        return;
    /* Drops what was recorded with them. */
    FTH_IGNORE(fth_engine_set_peers(self->engine, (fth_peers){0}), "a lost device is reported by the next step");
    fth_worker_group_set_devices(self->group, NULL, NULL);
    fth_engine_device(self->engine)->backend->collectives->close(self->devices);
    self->devices = NULL;
}
