/* How workers come to the same state: the one that is furthest gives its position and vectors to
 * all others.
 *
 * Workers of one group make the same updates from the same sums, so those that have made as many
 * have the same bits. After a loss one may have made an update that another had not finished; it is
 * one ahead, and its state is the one that counts. */
#include <stdlib.h>
#include <string.h>

#include "parallel/data_parallel.h"

enum { STAGING_FLOATS = 1 << 20 }; /* of a vector on its way from or to a device with memory of its own */

static fth_status broadcast(fth_data_parallel *self, void *bytes, size_t size, int root)
{
    return fth_worker_group_translate_status(
        self->group, fth_collective_broadcast(fth_worker_group_collective(self->group), bytes, size, root));
}

/* ---- vectors ---- */

/* Through the host, piece by piece. */
static fth_status broadcast_from_device(fth_data_parallel *self, float *vector, size_t count, int root)
{
    fth_status status = FTH_OK;
    fth_device *device = fth_engine_device(self->engine);
    const bool gives = fth_worker_group_view(self->group)->rank == root;
    float *piece = NULL;

    FTH_TRY(fth_allocate_aligned(STAGING_FLOATS * sizeof *piece, &piece));
    for (size_t at = 0; at < count; at += STAGING_FLOATS) {
        const size_t left = count - at, bytes = (left < STAGING_FLOATS ? left : STAGING_FLOATS) * sizeof *piece;
        if (gives)
            FTH_TRY(device->backend->copy_out(device, piece, vector + at, bytes));
        FTH_TRY(broadcast(self, piece, bytes, root));
        if (!gives)
            FTH_TRY(device->backend->copy_in(device, vector + at, piece, bytes));
    }

out:
    free(piece);
    return status;
}

static fth_status broadcast_vector(fth_data_parallel *self, float *vector, size_t count, int root)
{
    if (count == 0)
        return FTH_OK;
    if (fth_engine_device(self->engine)->backend->host_memory)
        return broadcast(self, vector, count * sizeof *vector, root);
    return broadcast_from_device(self, vector, count, root);
}

static fth_status broadcast_vectors(fth_data_parallel *self, int root)
{
    fth_status status = FTH_OK;
    const fth_engine_sizes sizes = fth_engine_get_sizes(self->engine);
    const fth_engine_vectors vectors = fth_engine_get_vectors(self->engine);

    FTH_TRY(broadcast_vector(self, vectors.parameters, sizes.parameters, root));
    FTH_TRY(broadcast_vector(self, vectors.buffers, sizes.buffers, root));
    for (int i = 0; !self->shards && i < sizes.state_count; i++)
        FTH_TRY(broadcast_vector(self, vectors.state[i], sizes.trained, root));

out:
    return status;
}

fth_status fth_data_parallel_share_buffers(fth_data_parallel *self)
{
    return broadcast_vector(self, fth_engine_get_vectors(self->engine).buffers,
                            fth_engine_get_sizes(self->engine).buffers, 0);
}

/* ---- buffers of an update that is not certain yet ---- */

static fth_status copy_buffers(fth_data_parallel *self, float *to, const float *from)
{
    fth_device *device = fth_engine_device(self->engine);
    return device->backend->copy_in(device, to, from, fth_engine_get_sizes(self->engine).buffers * sizeof *to);
}

fth_status fth_data_parallel_keep_buffers(fth_data_parallel *self)
{
    fth_status status = FTH_OK;
    fth_device *device = fth_engine_device(self->engine);
    const size_t count = fth_engine_get_sizes(self->engine).buffers;
    void *memory = NULL;

    if (count == 0)
        return FTH_OK;
    if (!self->buffers_before) {
        FTH_TRY(device->backend->allocate(device, count * sizeof(float), &memory));
        self->buffers_before = memory;
    }
    FTH_TRY(copy_buffers(self, self->buffers_before, fth_engine_get_vectors(self->engine).buffers));

out:
    return status;
}

fth_status fth_data_parallel_put_buffers_back(fth_data_parallel *self)
{
    if (!self->buffers_before)
        return FTH_OK;
    return copy_buffers(self, fth_engine_get_vectors(self->engine).buffers, self->buffers_before);
}

/* ---- positions ---- */

static fth_status broadcast_position(fth_data_parallel *self, json_t **position, int root)
{
    fth_status status = FTH_OK;
    const bool gives = fth_worker_group_view(self->group)->rank == root;
    char *text = gives ? json_dumps(*position, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    uint64_t size = text ? strlen(text) : 0;

    FTH_REQUIRE(text || !gives, FTH_NO_MEMORY, "no memory for a position");
    FTH_TRY(broadcast(self, &size, sizeof size, root));
    if (!gives)
        FTH_TRY(fth_allocate(size + 1, 1, &text));
    FTH_TRY(broadcast(self, text, size, root));
    if (!gives) {
        json_t *theirs = json_loadb(text, size, 0, NULL);
        FTH_REQUIRE(theirs, FTH_CORRUPT, "%s sent a position that is not JSON",
                    fth_worker_group_name(self->group, root));
        json_decref(*position);
        *position = theirs;
    }

out:
    free(text);
    return status;
}

/* What is known of each worker, in two numbers. */
typedef struct fth_worker_progress {
    double batches; /* consumed */
    double in_step;
} fth_worker_progress;

static bool is_ahead(const fth_worker_progress *one, const fth_worker_progress *other)
{
    return one->batches > other->batches || (one->batches == other->batches && one->in_step > other->in_step);
}

fth_status fth_data_parallel_synchronize(fth_data_parallel *self, json_t **position)
{
    fth_status status = FTH_OK;
    const fth_group_view *view = fth_worker_group_view(self->group);
    fth_worker_progress *progress = NULL;
    int furthest = 0;
    bool alike = true; /* all have the same state already */

    FTH_TRY(fth_allocate((size_t)view->size, sizeof *progress, &progress));
    progress[view->rank] = (fth_worker_progress){
        .batches = (double)json_integer_value(json_object_get(*position, "batches")), .in_step = self->in_step};
    FTH_TRY(fth_worker_group_translate_status(
        self->group,
        fth_collective_sum(fth_worker_group_collective(self->group), &progress[0].batches, 2 * (size_t)view->size)));
    for (int r = 0; r < view->size; r++) {
        if (is_ahead(&progress[r], &progress[furthest]))
            furthest = r;
        alike = alike && progress[r].in_step > 0 && progress[r].batches == progress[0].batches;
    }
    if (self->shards)
        FTH_TRY(fth_update_shards_settle(self->shards, progress[view->rank].batches < progress[furthest].batches));
    const bool restored =
        !self->in_step && progress[furthest].batches > 0; /* from a checkpoint, after they were lost */
    FTH_REQUIRE(
        progress[furthest].batches >= self->awaited || restored, FTH_IO,
        "the workers that had the weights after batch %.0f were lost before all others had them; resume from the "
        "newest checkpoint",
        self->awaited);
    if (!alike)
        self->awaited = progress[furthest].batches;
    FTH_TRY(broadcast_position(self, position, furthest));
    if (!alike)
        FTH_TRY(broadcast_vectors(self, furthest));
    if (self->shards) {
        FTH_TRY(fth_update_shards_spread(self->shards, self->group, furthest));
        fth_update_shards_begin_group(self->shards, view);
    }
    self->in_step = true;
    self->next_batch = (int64_t)progress[furthest].batches;

out:
    free(progress);
    return status;
}
