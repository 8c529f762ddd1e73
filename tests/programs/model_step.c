/* See model_step.h. */
#include "model_step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VIEWS = 1024 };

fth_status model_step_open(const char *weights, const char *batch, model_step *step)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_weights_open(weights, &step->weights));
    FTH_TRY(fth_file_map(batch, &step->mapping, &step->mapping_bytes));
    FTH_TRY(fth_safetensors_parse(step->mapping, step->mapping_bytes, batch, &step->batch));
out:
    return status;
}

fth_status model_step_load(const char *weights, model_step *step)
{
    fth_status status = FTH_OK;
    const size_t bytes = fth_graph_parameter_floats(step->graph) * sizeof(float);
    const size_t buffer_bytes = fth_graph_buffer_floats(step->graph) * sizeof(float);
    FTH_TRY(fth_allocate_aligned(bytes, &step->vectors.parameters));
    FTH_TRY(fth_allocate_aligned(bytes, &step->vectors.gradients));
    FTH_TRY(fth_allocate_aligned(buffer_bytes ? buffer_bytes : 1, &step->vectors.buffers));
    memset(step->vectors.gradients, 0, bytes);
    fth_graph_initialize(step->graph, 1, step->vectors.parameters, step->vectors.buffers);
    FTH_TRY(fth_model_narrow_weights(step->graph, weights, step->weights));
    for (fth_value v = 0; v < fth_graph_value_count(step->graph); v++) {
        const fth_value_info *info = fth_graph_value(step->graph, v);
        if (info->kind != FTH_VALUE_PARAMETER)
            continue;
        const fth_tensor_view *view = fth_weights_find(step->weights, info->name);
        FTH_REQUIRE(view && fth_shape_equal(&view->shape, &info->type.shape), FTH_INVALID, "%s has no %s", weights,
                    info->name);
        FTH_TRY(fth_tensor_view_to_f32(view, step->vectors.parameters + info->offset,
                                       (size_t)fth_shape_count(&view->shape)));
    }
out:
    return status;
}

static fth_status set_inputs(model_step *step, fth_plan *plan)
{
    fth_status status = FTH_OK;
    for (fth_value v = 0; v < fth_graph_value_count(step->graph); v++) {
        const fth_value_info *info = fth_graph_value(step->graph, v);
        if (info->kind != FTH_VALUE_INPUT)
            continue;
        const fth_tensor_view *view = fth_safetensors_find(step->batch, info->name);
        FTH_REQUIRE(view, FTH_INVALID, "the batch has no %s", info->name);
        memcpy(fth_plan_input(plan, v), view->data, (size_t)fth_shape_count(&view->shape) * 4);
    }
out:
    return status;
}

fth_status model_step_run(model_step *step, fth_plan_options options, void (*finish)(model_step *, fth_plan *))
{
    fth_status status = FTH_OK;
    const fth_backend *backend = step->device->backend;
    const fth_run run = {.seed = 1, .step = 3, .gradient_scale = 1};
    const fth_shape *logits = &fth_graph_value(step->graph, fth_graph_logits(step->graph))->type.shape;
    const int64_t numbers = options.batch * fth_rows_per_sample(logits->dims[0]) * logits->dims[1];
    fth_plan *plan = NULL;
    void *arena = NULL;

    free(step->logits);
    step->logits = NULL;
    FTH_TRY(fth_allocate((size_t)numbers, sizeof *step->logits, &step->logits));
    FTH_TRY(fth_plan_create(step->graph, step->device, options, &plan));
    fprintf(stderr, "arena %zu bytes\n", fth_plan_arena_bytes(plan));
    FTH_TRY(backend->allocate(step->device, fth_plan_arena_bytes(plan), &arena));
    FTH_TRY(fth_plan_bind(plan, arena, step->vectors));
    FTH_TRY(set_inputs(step, plan));
    if (finish)
        finish(step, plan);
    FTH_TRY(fth_plan_run(plan, &run));
    FTH_TRY(fth_plan_get_output(plan, fth_graph_logits(step->graph), step->logits));
    FTH_TRY(fth_plan_get_output(plan, fth_graph_loss(step->graph), step->loss));

out:
    fth_plan_free(plan);
    if (arena)
        backend->release(step->device, arena);
    return status;
}

fth_status model_step_write(const model_step *step, const char *path, const fth_tensor_view *outputs, size_t count)
{
    fth_status status = FTH_OK;
    fth_file *file = NULL;
    static fth_tensor_view views[MAX_VIEWS];
    size_t view_count = 0;

    for (size_t i = 0; i < count; i++)
        views[view_count++] = outputs[i];
    for (fth_value v = 0; v < fth_graph_value_count(step->graph); v++) {
        const fth_value_info *info = fth_graph_value(step->graph, v);
        if (info->kind == FTH_VALUE_PARAMETER && view_count < MAX_VIEWS)
            views[view_count++] =
                (fth_tensor_view){info->name, FTH_F32, info->type.shape, step->vectors.gradients + info->offset};
    }
    FTH_TRY(fth_file_create(path, &file));
    FTH_TRY(fth_safetensors_write(file, views, view_count, NULL, 0));
    FTH_TRY(fth_file_publish(file));
out:
    fth_file_free(file);
    return status;
}

void model_step_close(model_step *step)
{
    free(step->logits);
    free(step->vectors.parameters);
    free(step->vectors.gradients);
    free(step->vectors.buffers);
    fth_device_close(step->device);
    fth_graph_free(step->graph);
    fth_safetensors_free(step->batch);
    fth_file_unmap(step->mapping, step->mapping_bytes);
    fth_weights_free(step->weights);
}
