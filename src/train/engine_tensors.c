/* Tensors out of an engine: snapshots on the host under PyTorch's names. engine_load.c takes them in.
 *
 * A snapshot's memory is laid out as the file it may become, so that a checkpoint is a copy of the flat vectors and
 * nothing else happens while training waits:
 *
 *     room for a header | counters | parameters | buffers | optimizer's vectors
 *                                                ^ a model file ends here
 *
 * Tensors follow one another as in the flat vectors, so the copy is a few large pieces. A header, of a checkpoint or of
 * a model, is put right before the data when it is known. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "train/engine_internal.h"

enum { HUGE_PAGE_BYTES = 2 << 20 };

/* Floats that lie together on the device and in the snapshot. */
typedef struct piece {
    const float *from;
    size_t floats;
    size_t at; /* first byte in the data */
} piece;

struct fth_snapshot {
    fth_tensor_view *views; /* in the order of the data */
    size_t count, model_count;
    char **names; /* of the views whose names are made here; others are the graph's */
    size_t name_count;
    piece *pieces;
    size_t piece_count, model_piece_count;
    void *memory;
    size_t memory_bytes, header_room;
    unsigned char *data;
    size_t data_bytes, model_bytes;
    int counter_count;
    int64_t lent_batches; /* what counters say, where there is no memory */
};

char *fth_engine_state_name(const char *vector, const char *parameter)
{
    return fth_format("optimizer.%s.%s", vector, parameter);
}

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

/* Adds a tensor of a flat vector. One that follows the last on the device too makes that piece longer. */
static void add_value(fth_snapshot *snapshot, const char *name, const fth_value_info *info, const float *vector)
{
    size_t floats = (size_t)fth_shape_count(&info->type.shape);
    const float *from = vector + info->offset;
    piece *last = snapshot->piece_count > 0 ? &snapshot->pieces[snapshot->piece_count - 1] : NULL;
    if (last && last->from + last->floats == from)
        last->floats += floats;
    else
        snapshot->pieces[snapshot->piece_count++] = (piece){from, floats, snapshot->data_bytes};
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

static fth_status lay_out(fth_snapshot *snapshot, const fth_engine *engine, bool whole)
{
    fth_status status = FTH_OK;
    const fth_value_info **stored = NULL;
    size_t stored_count = 0;
    int state_count = whole ? engine->state_count : 0;

    FTH_TRY(list_stored(engine, &stored, &stored_count));
    snapshot->counter_count = fth_graph_counter_count(engine->graph);
    size_t room = stored_count * (size_t)(1 + state_count) + (size_t)snapshot->counter_count + 1;
    FTH_TRY(fth_allocate(room, sizeof *snapshot->views, &snapshot->views));
    FTH_TRY(fth_allocate(room, sizeof *snapshot->names, &snapshot->names));
    FTH_TRY(fth_allocate(room, sizeof *snapshot->pieces, &snapshot->pieces));

    for (int i = 0; i < snapshot->counter_count; i++) /* first: they are the ones that want 8-byte alignment */
        add_view(snapshot, fth_graph_counter(engine->graph, i), FTH_I64, NULL);
    for (size_t i = 0; i < stored_count; i++) {
        const fth_value_info *info = stored[i];
        bool parameter = info->kind == FTH_VALUE_PARAMETER;
        add_value(snapshot, info->name, info, parameter ? engine->vectors.parameters : engine->vectors.buffers);
    }
    snapshot->model_bytes = snapshot->data_bytes;
    snapshot->model_count = snapshot->count;
    snapshot->model_piece_count = snapshot->piece_count;
    for (int k = 0; k < state_count; k++) {
        for (size_t i = 0; i < stored_count; i++) {
            const fth_value_info *info = stored[i];
            if (info->kind != FTH_VALUE_PARAMETER || info->gradient == FTH_NO_VALUE)
                continue;
            char *name = fth_engine_state_name(engine->optimizer->vectors[k], info->name);
            snapshot->names[snapshot->name_count++] = name;
            add_value(snapshot, name, info, engine->state[k]);
        }
    }

out:
    free(stored);
    return status;
}

/* ---- memory ---- */

/* Fresh pages, large ones where the system has them. Nothing touches them yet. */
static fth_status map_memory(fth_snapshot *snapshot)
{
    enum { MODEL_METADATA_ROOM = 64 << 10 };
    fth_status status = FTH_OK;
    char *header = NULL;
    size_t header_bytes = 0;

    FTH_TRY(fth_safetensors_header(snapshot->views, snapshot->count, NULL, 0, &header, &header_bytes));
    snapshot->header_room = fth_align_up(header_bytes + MODEL_METADATA_ROOM, FTH_ALIGNMENT);
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
    *result = snapshot;
    snapshot = NULL;

out:
    fth_snapshot_free(snapshot);
    return status;
}

void fth_snapshot_touch(fth_snapshot *snapshot)
{
    memset(snapshot->data, 0, snapshot->data_bytes);
}

void fth_snapshot_free(fth_snapshot *snapshot)
{
    if (!snapshot)
        return;
    for (size_t i = 0; i < snapshot->name_count; i++)
        free(snapshot->names[i]);
    if (snapshot->memory)
        munmap(snapshot->memory, snapshot->memory_bytes);
    free(snapshot->names);
    free(snapshot->views);
    free(snapshot->pieces);
    free(snapshot);
}

/* ---- taking ---- */

fth_status fth_engine_fill_snapshot(fth_engine *engine, fth_snapshot *snapshot, bool whole, int64_t batches)
{
    fth_status status = FTH_OK;
    size_t count = whole ? snapshot->piece_count : snapshot->model_piece_count;
    for (int i = 0; i < snapshot->counter_count; i++)
        memcpy(snapshot->data + (size_t)i * sizeof batches, &batches, sizeof batches);
    for (size_t i = 0; i < count; i++) {
        const piece *next = &snapshot->pieces[i];
        FTH_TRY(engine->backend->copy_out(engine->device, snapshot->data + next->at, next->from,
                                          next->floats * sizeof(float)));
    }

out:
    return status;
}

fth_status fth_engine_take_snapshot(fth_engine *engine, bool whole, int64_t batches, fth_snapshot **snapshot)
{
    fth_status status = fth_engine_create_snapshot(engine, whole, snapshot);
    if (status == FTH_OK)
        status = fth_engine_fill_snapshot(engine, *snapshot, whole, batches);
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
            while (at >= snapshot->pieces[next].at + snapshot->pieces[next].floats * sizeof(float))
                next++;
            view->data = (const char *)snapshot->pieces[next].from + (at - snapshot->pieces[next].at);
        }
        at += bytes;
    }
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

size_t fth_snapshot_size_bytes(const fth_snapshot *snapshot)
{
    return snapshot->data_bytes;
}

fth_status fth_snapshot_as_file(fth_snapshot *snapshot, bool whole, const fth_metadata_entry *metadata,
                                size_t metadata_count, const void **bytes, size_t *size_bytes)
{
    fth_status status = FTH_OK;
    char *header = NULL;
    size_t header_bytes = 0;

    FTH_TRY(fth_safetensors_header(snapshot->views, whole ? snapshot->count : snapshot->model_count, metadata,
                                   metadata_count, &header, &header_bytes));
    FTH_REQUIRE(header_bytes <= snapshot->header_room, FTH_INVALID,
                "the names and metadata take %zu bytes; a snapshot has room for %zu", header_bytes,
                snapshot->header_room);
    unsigned char *begin = snapshot->data - header_bytes;
    memcpy(begin, header, header_bytes);
    *bytes = begin;
    *size_bytes = header_bytes + (whole ? snapshot->data_bytes : snapshot->model_bytes);

out:
    free(header);
    return status;
}

/* ---- numbers ---- */

bool fth_snapshot_is_finite(const fth_snapshot *snapshot)
{
    enum { BLOCK = 1 << 14 };
    size_t counters_bytes = (size_t)snapshot->counter_count * sizeof(int64_t);
    const float *values = (const float *)(const void *)(snapshot->data + counters_bytes);
    size_t count = (snapshot->model_bytes - counters_bytes) / sizeof(float);
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t end = count - at < BLOCK ? count : at + BLOCK;
        int bad = 0; /* without a branch the loop is done in vectors */
        for (size_t i = at; i < end; i++)
            bad |= !(fabsf(values[i]) <= FLT_MAX);
        if (bad)
            return false;
    }
    return true;
}

fth_status fth_engine_check_finite(fth_engine *engine)
{
    fth_status status = FTH_OK;
    double parameters = 0, buffers = 0;

    FTH_TRY(engine->backend->norm(engine->device, engine->vectors.parameters, engine->parameter_floats, &parameters));
    if (engine->buffer_floats > 0)
        FTH_TRY(engine->backend->norm(engine->device, engine->vectors.buffers, engine->buffer_floats, &buffers));
    FTH_REQUIRE(isfinite(parameters) && isfinite(buffers), FTH_DIVERGED, "a weight is no longer a finite number");
    FTH_TRY(fth_engine_look_at_updates(engine)); /* all of them are made: the norms came after */

out:
    return status;
}
