/* Tensors out of an engine: snapshots on the host under PyTorch's names. engine_load.c takes them in. */
#include <math.h>
#include <stdlib.h>

#include "train/engine_internal.h"

struct fth_snapshot {
    fth_tensor_view *views;
    size_t count;
    char **names; /* of the views whose names are made here; others are the graph's */
    size_t name_count;
    float *parameters, *buffers, *state[FTH_MAX_OPTIMIZER_VECTORS]; /* on the host */
    int64_t batches;
};

static fth_status copy_out(fth_engine *engine, const float *vector, size_t floats, float **host)
{
    fth_status status = fth_allocate_aligned((floats ? floats : 1) * sizeof(float), host);
    if (status == FTH_OK && floats > 0)
        status = engine->backend->copy_out(engine->device, *host, vector, floats * sizeof(float));
    return status;
}

char *fth_engine_state_name(const char *vector, const char *parameter)
{
    return fth_format("optimizer.%s.%s", vector, parameter);
}

fth_status fth_engine_take_snapshot(fth_engine *engine, bool whole, int64_t batches, fth_snapshot **result)
{
    fth_status status = FTH_OK;
    fth_snapshot *snapshot = NULL;
    const fth_graph *graph = engine->graph;
    int value_count = fth_graph_value_count(graph), counter_count = fth_graph_counter_count(graph);
    int state_count = whole ? engine->state_count : 0;
    size_t stored = 0;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *snapshot, &snapshot));
    snapshot->batches = batches;
    for (fth_value v = 0; v < value_count; v++) {
        fth_value_kind kind = fth_graph_value(graph, v)->kind;
        stored += kind == FTH_VALUE_PARAMETER || kind == FTH_VALUE_BUFFER;
    }
    size_t room = stored * (size_t)(1 + state_count) + (size_t)counter_count;
    FTH_TRY(fth_allocate(room ? room : 1, sizeof *snapshot->views, &snapshot->views));
    FTH_TRY(fth_allocate(room ? room : 1, sizeof *snapshot->names, &snapshot->names));
    FTH_TRY(copy_out(engine, engine->vectors.parameters, engine->parameter_floats, &snapshot->parameters));
    FTH_TRY(copy_out(engine, engine->vectors.buffers, engine->buffer_floats, &snapshot->buffers));
    for (int i = 0; i < state_count; i++)
        FTH_TRY(copy_out(engine, engine->state[i], engine->trained_floats, &snapshot->state[i]));

    for (fth_value v = 0; v < value_count; v++) {
        const fth_value_info *info = fth_graph_value(graph, v);
        if (info->kind != FTH_VALUE_PARAMETER && info->kind != FTH_VALUE_BUFFER)
            continue;
        const float *vector = info->kind == FTH_VALUE_PARAMETER ? snapshot->parameters : snapshot->buffers;
        snapshot->views[snapshot->count++] =
            (fth_tensor_view){info->name, FTH_F32, info->type.shape, vector + info->offset};
        for (int i = 0; info->gradient != FTH_NO_VALUE && i < state_count; i++) {
            char *name = fth_engine_state_name(engine->optimizer->vectors[i], info->name);
            snapshot->names[snapshot->name_count++] = name;
            snapshot->views[snapshot->count++] =
                (fth_tensor_view){name, FTH_F32, info->type.shape, snapshot->state[i] + info->offset};
        }
    }
    for (int i = 0; i < counter_count; i++)
        snapshot->views[snapshot->count++] =
            (fth_tensor_view){fth_graph_counter(graph, i), FTH_I64, {.rank = 0}, &snapshot->batches};
    *result = snapshot;
    snapshot = NULL;

out:
    fth_snapshot_free(snapshot);
    return status;
}

void fth_snapshot_free(fth_snapshot *snapshot)
{
    if (!snapshot)
        return;
    for (size_t i = 0; i < snapshot->name_count; i++)
        free(snapshot->names[i]);
    free(snapshot->names);
    free(snapshot->views);
    free(snapshot->parameters);
    free(snapshot->buffers);
    for (int i = 0; i < FTH_MAX_OPTIMIZER_VECTORS; i++)
        free(snapshot->state[i]);
    free(snapshot);
}

const fth_tensor_view *fth_snapshot_views(const fth_snapshot *snapshot, size_t *count)
{
    *count = snapshot->count;
    return snapshot->views;
}

size_t fth_snapshot_size_bytes(const fth_snapshot *snapshot)
{
    size_t bytes = 0;
    for (size_t i = 0; i < snapshot->count; i++)
        bytes += (size_t)fth_shape_count(&snapshot->views[i].shape) * fth_dtype_size_bytes(snapshot->views[i].dtype);
    return bytes;
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
