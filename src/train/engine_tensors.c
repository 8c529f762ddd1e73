/* Tensors in and out of an engine: snapshots on the host under PyTorch's names, and loading them back. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/engine_internal.h"

/* ---- out ---- */

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

static char *state_name(const char *vector, const char *parameter)
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
        FTH_TRY(copy_out(engine, engine->state[i], engine->parameter_floats, &snapshot->state[i]));

    for (fth_value v = 0; v < value_count; v++) {
        const fth_value_info *info = fth_graph_value(graph, v);
        if (info->kind != FTH_VALUE_PARAMETER && info->kind != FTH_VALUE_BUFFER)
            continue;
        const float *vector = info->kind == FTH_VALUE_PARAMETER ? snapshot->parameters : snapshot->buffers;
        snapshot->views[snapshot->count++] =
            (fth_tensor_view){info->name, FTH_F32, info->type.shape, vector + info->offset};
        for (int i = 0; info->kind == FTH_VALUE_PARAMETER && i < state_count; i++) {
            char *name = state_name(engine->optimizer->vectors[i], info->name);
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

/* ---- in ---- */

/* Up to a few names of one kind of trouble, for one message. */
typedef struct complaint {
    char text[512];
    int count;
} complaint;

enum { NAMES_SHOWN = 4 };

static void add_complaint(complaint *list, const char *item)
{
    if (list->count++ < NAMES_SHOWN) {
        size_t length = strlen(list->text);
        snprintf(list->text + length, sizeof list->text - length, "%s%s", length ? ", " : "", item);
    }
}

static void append_complaint(char *message, size_t size, const char *what, const complaint *list)
{
    size_t length = strlen(message);
    if (list->count == 0 || length >= size)
        return;
    snprintf(message + length, size - length, "; %d %s: %s%s", list->count, what, list->text,
             list->count > NAMES_SHOWN ? ", ..." : "");
}

static bool is_counter(const fth_graph *graph, const char *name)
{
    for (int i = 0; i < fth_graph_counter_count(graph); i++)
        if (strcmp(fth_graph_counter(graph, i), name) == 0)
            return true;
    return false;
}

static bool is_state_of(const fth_engine *engine, const char *name)
{
    for (int i = 0; i < engine->state_count; i++) {
        const char *vector = engine->optimizer->vectors[i];
        size_t length = strlen(vector);
        if (strncmp(name, "optimizer.", 10) == 0 && strncmp(name + 10, vector, length) == 0 &&
            name[10 + length] == '.') {
            fth_value value = fth_graph_find(engine->graph, name + 11 + length);
            return value != FTH_NO_VALUE && fth_graph_value(engine->graph, value)->kind == FTH_VALUE_PARAMETER;
        }
    }
    return false;
}

static bool is_expected(const fth_engine *engine, const char *name, bool whole)
{
    fth_value value = fth_graph_find(engine->graph, name);
    if (value != FTH_NO_VALUE && fth_graph_value(engine->graph, value)->kind != FTH_VALUE_INPUT)
        return true;
    return is_counter(engine->graph, name) || (whole && is_state_of(engine, name));
}

typedef struct loading {
    fth_engine *engine;
    const fth_safetensors *tensors;
    float *scratch;
    size_t scratch_floats;
    complaint missing, unexpected, shapes;
} loading;

/* Notes what does not fit; copies nothing. */
static void check_tensor(loading *load, const char *name, const fth_shape *shape)
{
    const fth_tensor_view *view = fth_safetensors_find(load->tensors, name);
    if (!view) {
        add_complaint(&load->missing, name);
    } else if (!fth_shape_equal(&view->shape, shape)) {
        char found[96], wanted[96], item[320];
        fth_shape_format(&view->shape, found, sizeof found);
        fth_shape_format(shape, wanted, sizeof wanted);
        snprintf(item, sizeof item, "%.100s is %s instead of %s", name, found, wanted);
        add_complaint(&load->shapes, item);
    }
    size_t count = (size_t)fth_shape_count(shape);
    if (count > load->scratch_floats)
        load->scratch_floats = count;
}

static fth_status copy_tensor(loading *load, const char *name, size_t count, float *to)
{
    fth_engine *engine = load->engine;
    const fth_tensor_view *view = fth_safetensors_find(load->tensors, name);
    fth_status status = fth_tensor_view_to_f32(view, load->scratch, count);
    if (status == FTH_OK)
        status = engine->backend->copy_in(engine->device, to, load->scratch, count * sizeof(float));
    return status;
}

/* Checks (`copy` false) or copies everything the engine has under a name. */
static fth_status visit_tensors(loading *load, bool whole, bool copy)
{
    fth_status status = FTH_OK;
    fth_engine *engine = load->engine;
    char *name = NULL;

    for (fth_value v = 0; v < fth_graph_value_count(engine->graph); v++) {
        const fth_value_info *info = fth_graph_value(engine->graph, v);
        if (info->kind != FTH_VALUE_PARAMETER && info->kind != FTH_VALUE_BUFFER)
            continue;
        bool parameter = info->kind == FTH_VALUE_PARAMETER;
        size_t count = (size_t)fth_shape_count(&info->type.shape);
        float *vector = parameter ? engine->vectors.parameters : engine->vectors.buffers;
        if (copy)
            FTH_TRY(copy_tensor(load, info->name, count, vector + info->offset));
        else
            check_tensor(load, info->name, &info->type.shape);
        for (int i = 0; whole && parameter && i < engine->state_count; i++) {
            name = state_name(engine->optimizer->vectors[i], info->name);
            if (copy)
                FTH_TRY(copy_tensor(load, name, count, engine->state[i] + info->offset));
            else
                check_tensor(load, name, &info->type.shape);
            free(name);
            name = NULL;
        }
    }

out:
    free(name);
    return status;
}

static int64_t read_counter(const fth_engine *engine, const fth_safetensors *tensors)
{
    int64_t count = 0;
    if (fth_graph_counter_count(engine->graph) > 0) {
        const fth_tensor_view *view = fth_safetensors_find(tensors, fth_graph_counter(engine->graph, 0));
        if (view && view->dtype == FTH_I64 && fth_shape_count(&view->shape) == 1)
            memcpy(&count, view->data, sizeof count);
    }
    return count > 0 ? count : 0;
}

fth_status fth_engine_load(fth_engine *engine, const fth_safetensors *tensors, bool whole, const char *origin,
                           int64_t *batches)
{
    fth_status status = FTH_OK;
    loading load = {.engine = engine, .tensors = tensors};
    char message[2048] = "";

    FTH_TRY(visit_tensors(&load, whole, false));
    for (size_t i = 0; i < fth_safetensors_count(tensors); i++) {
        const char *name = fth_safetensors_get(tensors, i)->name;
        char item[128];
        snprintf(item, sizeof item, "%.100s", name);
        if (!is_expected(engine, name, whole))
            add_complaint(&load.unexpected, item);
    }
    append_complaint(message, sizeof message, "missing", &load.missing);
    append_complaint(message, sizeof message, "unexpected", &load.unexpected);
    append_complaint(message, sizeof message, "of another shape", &load.shapes);
    FTH_REQUIRE(!*message, FTH_INVALID, "%s does not fit %s%s", origin, engine->options.train->model, message);

    FTH_TRY(fth_allocate_aligned(load.scratch_floats * sizeof(float) + 1, &load.scratch));
    FTH_TRY(visit_tensors(&load, whole, true));
    if (batches)
        *batches = read_counter(engine, tensors);

out:
    free(load.scratch);
    return status;
}

fth_status fth_engine_check_finite(fth_engine *engine)
{
    fth_status status = FTH_OK;
    double parameters = 0, buffers = 0;

    FTH_TRY(engine->backend->norm(engine->device, engine->vectors.parameters, engine->parameter_floats, &parameters));
    if (engine->buffer_floats > 0)
        FTH_TRY(engine->backend->norm(engine->device, engine->vectors.buffers, engine->buffer_floats, &buffers));
    FTH_REQUIRE(isfinite(parameters) && isfinite(buffers), FTH_DIVERGED, "a weight is no longer a finite number");

out:
    return status;
}
