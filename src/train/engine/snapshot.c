/* Snapshots; engine_load.c is the way back in. See snapshot.h.
 *
 * A snapshot's memory is laid out as the file it may become, so that a checkpoint is a copy of the
 * flat vectors and nothing else happens while training waits:
 *
 *     room for a header | counters | parameters | buffers | optimizer's vectors
 *
 * Tensors follow one another as in the flat vectors, so the copy is a few large pieces. A header is
 * put right before the data when it is asked for. Where the device takes snapshots of its own,
 * training does not wait for the copy either: it is queued on the device, and brought to the host
 * when the snapshot is finished. */
#include "train/engine/snapshot.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "train/engine/engine_internal.h"

enum { HUGE_PAGE_BYTES = 2 << 20 };

struct fth_snapshot {
    fth_engine *engine;
    fth_tensor_view *views; /* in the order of the data */
    size_t count;
    size_t file_count; /* further views, of tensors that only model files have; their data lies elsewhere */
    char **names;      /* of the views whose names are made here; others are the graph's */
    size_t name_count;
    fth_extent *pieces; /* what lies together on the device and here; places are counted from behind the counters */
    size_t piece_count;
    fth_device_snapshot *on_device; /* NULL: the device takes none, or has no room for one */
    bool device_asked, pending;
    void *memory;
    size_t memory_bytes, header_room;
    unsigned char *data;
    size_t data_bytes, counter_bytes, model_bytes;
    int counter_count;
    int64_t lent_batches; /* what counters say, where there is no memory */
};

/* ---- layout ---- */

static int compare_offsets(const void *a, const void *b)
{
    const fth_value_info *left = *(const fth_value_info *const *)a, *right = *(const fth_value_info *const *)b;
    if (left->kind != right->kind)
        return left->kind == FTH_VALUE_PARAMETER ? -1 : 1;
    return left->offset < right->offset ? -1 : left->offset > right->offset;
}

/* Adds a tensor after the ones there are; its address is known later. */
static void add_view(fth_snapshot *snapshot, const char *name, fth_dtype dtype, const fth_shape *shape)
{
    fth_tensor_view *view = &snapshot->views[snapshot->count++];
    *view = (fth_tensor_view){.name = name, .dtype = dtype};
    if (shape)
        view->shape = *shape;
    snapshot->data_bytes += (size_t)fth_shape_count(&view->shape) * fth_dtype_size_bytes(dtype);
}

/* Adds a tensor of a flat vector. One that follows the last in that vector makes its piece longer;
 * the first of a vector begins a new one, since a device refuses to copy across two allocations,
 * even if they happen to be neighbours. */
static void add_value(fth_snapshot *snapshot, const char *name, const fth_value_info *info, const float *vector)
{
    size_t bytes = (size_t)fth_shape_count(&info->type.shape) * sizeof(float);
    const float *from = vector + info->offset;
    fth_extent *last = snapshot->piece_count > 0 ? &snapshot->pieces[snapshot->piece_count - 1] : NULL;
    if (last && from > vector && (const char *)last->from + last->size_bytes == (const char *)from)
        last->size_bytes += bytes;
    else
        snapshot->pieces[snapshot->piece_count++] =
            (fth_extent){from, snapshot->data_bytes - snapshot->counter_bytes, bytes};
    add_view(snapshot, name, FTH_F32, &info->type.shape);
}

static fth_status list_stored(const fth_engine *engine, const fth_value_info ***stored, size_t *count)
{
    int value_count = fth_graph_value_count(engine->graph);
    fth_status status = fth_allocate((size_t)value_count + 1, sizeof **stored, stored);
    for (fth_value v = 0; status == FTH_OK && v < value_count; v++) {
        const fth_value_info *info = fth_graph_value(engine->graph, v);
        if (info->kind == FTH_VALUE_PARAMETER || info->kind == FTH_VALUE_BUFFER)
            (*stored)[(*count)++] = info;
    }
    if (status == FTH_OK)
        qsort(*stored, *count, sizeof **stored, compare_offsets);
    return status;
}

static fth_status lay_out(fth_snapshot *snapshot, fth_engine *engine, bool whole)
{
    fth_status status = FTH_OK;
    const fth_value_info **stored = NULL;
    size_t stored_count = 0;
    int state_count = whole ? engine->vectors.sizes.state_count : 0;

    FTH_TRY(list_stored(engine, &stored, &stored_count));
    snapshot->engine = engine;
    snapshot->counter_count = fth_graph_counter_count(engine->graph);
    size_t room = stored_count * (size_t)(1 + state_count) + (size_t)snapshot->counter_count +
                  (size_t)fth_graph_file_tensor_count(engine->graph) + 1;
    FTH_TRY(fth_allocate(room, sizeof *snapshot->views, &snapshot->views));
    FTH_TRY(fth_allocate(room, sizeof *snapshot->names, &snapshot->names));
    FTH_TRY(fth_allocate(room, sizeof *snapshot->pieces, &snapshot->pieces));

    for (int i = 0; i < snapshot->counter_count; i++) /* first: they are the ones that want 8-byte alignment */
        add_view(snapshot, fth_graph_counter(engine->graph, i), FTH_I64, NULL);
    snapshot->counter_bytes = snapshot->data_bytes;
    for (size_t i = 0; i < stored_count; i++) {
        const fth_value_info *info = stored[i];
        bool parameter = info->kind == FTH_VALUE_PARAMETER;
        add_value(snapshot, info->name, info, parameter ? engine->vectors.parameters : engine->vectors.buffers);
    }
    snapshot->model_bytes = snapshot->data_bytes;
    for (int k = 0; k < state_count; k++) {
        for (size_t i = 0; i < stored_count; i++) {
            const fth_value_info *info = stored[i];
            if (info->kind != FTH_VALUE_PARAMETER || info->gradient == FTH_NO_VALUE)
                continue;
            char *name = fth_engine_state_name(fth_weight_update_get_optimizer(engine->update)->vectors[k], info->name);
            snapshot->names[snapshot->name_count++] = name;
            add_value(snapshot, name, info, engine->vectors.state[k]);
        }
    }

out:
    free(stored);
    return status;
}

/* Behind the views of a model, what only its file has. Once the others have their data. */
static void add_file_tensors(fth_snapshot *snapshot)
{
    const fth_graph *graph = snapshot->engine->graph;
    for (int i = 0; i < fth_graph_file_tensor_count(graph); i++) {
        const fth_file_tensor *tensor = fth_graph_file_tensor(graph, i);
        fth_tensor_view *view = &snapshot->views[snapshot->count + snapshot->file_count++];
        *view = (fth_tensor_view){
            .name = tensor->name, .dtype = tensor->type.dtype, .shape = tensor->type.shape, .data = tensor->data};
        if (tensor->same_as == FTH_NO_VALUE)
            continue;
        const char *name = fth_graph_value(graph, tensor->same_as)->name;
        for (size_t k = 0; k < snapshot->count; k++)
            if (strcmp(snapshot->views[k].name, name) == 0)
                view->data = snapshot->views[k].data;
    }
}

/* ---- memory ---- */

/* Fresh pages, large ones where the system has them. Nothing touches them yet. */
static fth_status map_memory(fth_snapshot *snapshot)
{
    fth_status status = FTH_OK;
    char *header = NULL;
    size_t header_bytes = 0;

    FTH_TRY(fth_safetensors_header(snapshot->views, snapshot->count, NULL, 0, &header, &header_bytes));
    snapshot->header_room = fth_align_up(header_bytes, FTH_ALIGNMENT);
    snapshot->memory_bytes = snapshot->header_room + snapshot->data_bytes + 1;
    void *memory = mmap(NULL, snapshot->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FTH_REQUIRE(memory != MAP_FAILED, FTH_NO_MEMORY, "no memory for a snapshot of %.1f MB",
                (double)snapshot->memory_bytes / 1e6);
    snapshot->memory = memory;
    snapshot->data = (unsigned char *)memory + snapshot->header_room;
    if (snapshot->data_bytes >= 8 * (size_t)HUGE_PAGE_BYTES)
        madvise(memory, snapshot->memory_bytes, MADV_HUGEPAGE);

    size_t at = 0;
    for (size_t i = 0; i < snapshot->count; i++) {
        fth_tensor_view *view = &snapshot->views[i];
        view->data = snapshot->data + at;
        at += (size_t)fth_shape_count(&view->shape) * fth_dtype_size_bytes(view->dtype);
    }

out:
    free(header);
    return status;
}

fth_status fth_engine_create_snapshot(fth_engine *engine, bool whole, fth_snapshot **result)
{
    fth_status status = FTH_OK;
    fth_snapshot *snapshot = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *snapshot, &snapshot));
    FTH_TRY(lay_out(snapshot, engine, whole));
    FTH_TRY(map_memory(snapshot));
    if (!whole)
        add_file_tensors(snapshot);
    *result = snapshot;
    snapshot = NULL;

out:
    fth_snapshot_free(snapshot);
    return status;
}

/* Once: what had no room will have none. */
static void open_on_device(fth_snapshot *snapshot)
{
    fth_engine *engine = snapshot->engine;
    size_t size_bytes = snapshot->data_bytes - snapshot->counter_bytes;
    if (snapshot->device_asked || !engine->backend->snapshots || size_bytes == 0)
        return;
    snapshot->device_asked = true;
    if (!fth_device_has_room(engine->device, size_bytes) ||
        engine->backend->snapshots->open(engine->device, size_bytes, &snapshot->on_device) != FTH_OK)
        fth_log_info("the device has no room for a copy of its %.0f MB of state: training waits while a checkpoint is "
                     "copied from it",
                     (double)size_bytes / 1e6);
}

void fth_snapshot_prepare(fth_snapshot *snapshot)
{
    memset(snapshot->data, 0, snapshot->data_bytes);
    open_on_device(snapshot);
}

void fth_snapshot_free(fth_snapshot *snapshot)
{
    if (!snapshot)
        return;
    for (size_t i = 0; i < snapshot->name_count; i++)
        free(snapshot->names[i]);
    if (snapshot->on_device)
        snapshot->engine->backend->snapshots->close(snapshot->on_device);
    if (snapshot->memory)
        munmap(snapshot->memory, snapshot->memory_bytes);
    free(snapshot->names);
    free(snapshot->views);
    free(snapshot->pieces);
    free(snapshot);
}

/* ---- taking ---- */

/* Copies while the caller waits. */
static fth_status fill(fth_snapshot *snapshot)
{
    fth_status status = FTH_OK;
    const fth_engine *engine = snapshot->engine;
    for (size_t i = 0; i < snapshot->piece_count; i++) {
        const fth_extent *next = &snapshot->pieces[i];
        FTH_TRY(engine->backend->copy_out(engine->device, snapshot->data + snapshot->counter_bytes + next->at,
                                          next->from, next->size_bytes));
    }

out:
    return status;
}

static void set_counters(fth_snapshot *snapshot, int64_t batches)
{
    for (int i = 0; i < snapshot->counter_count; i++)
        memcpy(snapshot->data + (size_t)i * sizeof batches, &batches, sizeof batches);
}

fth_status fth_snapshot_begin(fth_snapshot *snapshot, int64_t batches)
{
    fth_status status = FTH_OK;

    open_on_device(snapshot);
    set_counters(snapshot, batches);
    snapshot->pending = false;
    if (!snapshot->on_device)
        return fill(snapshot);
    FTH_TRY(snapshot->engine->backend->snapshots->take(snapshot->on_device, snapshot->pieces, snapshot->piece_count));
    snapshot->pending = true;

out:
    return status;
}

fth_status fth_snapshot_finish(fth_snapshot *snapshot)
{
    fth_status status = FTH_OK;
    if (!snapshot->pending)
        return FTH_OK;
    FTH_TRY(snapshot->engine->backend->snapshots->fetch(snapshot->on_device, snapshot->data + snapshot->counter_bytes));
    snapshot->pending = false;

out:
    return status;
}

fth_status fth_engine_take_snapshot(fth_engine *engine, bool whole, int64_t batches, fth_snapshot **snapshot)
{
    fth_status status = fth_engine_create_snapshot(engine, whole, snapshot);
    if (status == FTH_OK) {
        set_counters(*snapshot, batches);
        status = fill(*snapshot);
    }
    if (status != FTH_OK) {
        fth_snapshot_free(*snapshot);
        *snapshot = NULL;
    }
    return status;
}

fth_status fth_engine_lend_model(fth_engine *engine, int64_t batches, fth_snapshot **result)
{
    fth_status status = FTH_OK;
    fth_snapshot *snapshot = NULL;

    *result = NULL;
    if (!engine->backend->host_memory)
        return fth_engine_take_snapshot(engine, false, batches, result);
    FTH_TRY(fth_allocate(1, sizeof *snapshot, &snapshot));
    FTH_TRY(lay_out(snapshot, engine, false));
    snapshot->lent_batches = batches;
    size_t at = 0, next = 0;
    for (size_t i = 0; i < snapshot->count; i++) {
        fth_tensor_view *view = &snapshot->views[i];
        size_t bytes = (size_t)fth_shape_count(&view->shape) * fth_dtype_size_bytes(view->dtype);
        if (view->dtype == FTH_I64) {
            view->data = &snapshot->lent_batches;
        } else { /* in the piece that reaches as far */
            while (at >= snapshot->pieces[next].at + snapshot->pieces[next].size_bytes)
                next++;
            view->data = (const char *)snapshot->pieces[next].from + (at - snapshot->pieces[next].at);
            at += bytes;
        }
    }
    add_file_tensors(snapshot);
    *result = snapshot;
    snapshot = NULL;

out:
    fth_snapshot_free(snapshot);
    return status;
}

const fth_tensor_view *fth_snapshot_views(const fth_snapshot *snapshot, size_t *count)
{
    *count = snapshot->count;
    return snapshot->views;
}

const fth_tensor_view *fth_snapshot_file_views(const fth_snapshot *snapshot, size_t *count)
{
    *count = snapshot->count + snapshot->file_count;
    return snapshot->views;
}

size_t fth_snapshot_size_bytes(const fth_snapshot *snapshot)
{
    return snapshot->data_bytes;
}

fth_status fth_snapshot_as_file(fth_snapshot *snapshot, const void **bytes, size_t *size_bytes)
{
    fth_status status = FTH_OK;
    char *header = NULL;
    size_t header_bytes = 0;

    FTH_TRY(fth_safetensors_header(snapshot->views, snapshot->count, NULL, 0, &header, &header_bytes));
    FTH_REQUIRE(header_bytes <= snapshot->header_room, FTH_INVALID,
                "the names take %zu bytes; a snapshot has room for %zu", header_bytes, snapshot->header_room);
    unsigned char *begin = snapshot->data - header_bytes;
    memcpy(begin, header, header_bytes);
    *bytes = begin;
    *size_bytes = header_bytes + snapshot->data_bytes;

out:
    free(header);
    return status;
}

/* ---- numbers ---- */

fth_status fth_snapshot_check_finite(const fth_snapshot *snapshot)
{
    return fth_tensors_check_finite(snapshot->views, snapshot->count);
}
