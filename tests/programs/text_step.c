/* One training step of a model for text, for comparisons with other programs:
 *
 *     text_step FOLDER BATCH OUT DEVICE PRECISION TASK HOW
 *
 * FOLDER is as from the Hugging Face hub; BATCH a safetensors file with tokens, segments, positions and ends (I32), and labels
 * (I32) or targets (F32). OUT gets the logits, the loss and the gradients, each parameter's under its name, and of a second run
 * for evaluation "evaluated". HOW may have the words "dropout" and "layers": with dropout, and with layers that are computed
 * again for their gradients. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/plan.h"
#include "model/model.h"

enum { MAX_VIEWS = 1024 };

typedef struct text_step {
    fth_weights *weights;
    fth_safetensors *batch;
    const void *mapping;
    size_t mapping_bytes;
    fth_graph *graph;
    fth_device *device;
    fth_plan *plan;
    void *arena;
    fth_vectors vectors;
    int64_t samples, tokens, capacity;
} text_step;

static fth_status load_parameters(text_step *step, const char *folder)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_model_narrow_weights(step->graph, folder, step->weights));
    for (fth_value v = 0; v < fth_graph_value_count(step->graph); v++) {
        const fth_value_info *info = fth_graph_value(step->graph, v);
        if (info->kind != FTH_VALUE_PARAMETER)
            continue;
        const fth_tensor_view *view = fth_weights_find(step->weights, info->name);
        FTH_REQUIRE(view && fth_shape_equal(&view->shape, &info->type.shape), FTH_INVALID, "%s has no %s", folder,
                    info->name);
        FTH_TRY(fth_tensor_view_to_f32(view, step->vectors.parameters + info->offset,
                                       (size_t)fth_shape_count(&view->shape)));
    }
out:
    return status;
}

/* Rows behind the last token get tokens, segments and positions that every model has, and must not matter. */
static fth_status set_inputs(text_step *step)
{
    fth_status status = FTH_OK;
    for (fth_value v = 0; v < fth_graph_value_count(step->graph); v++) {
        const fth_value_info *info = fth_graph_value(step->graph, v);
        if (info->kind != FTH_VALUE_INPUT)
            continue;
        const fth_tensor_view *view = fth_safetensors_find(step->batch, info->name);
        FTH_REQUIRE(view, FTH_INVALID, "the batch has no %s", info->name);
        size_t bytes = (size_t)fth_shape_count(&view->shape) * 4;
        char *input = fth_plan_input(step->plan, v);
        memcpy(input, view->data, bytes);
        if (info->type.shape.dims[0] == FTH_TOKENS) {
            for (int64_t i = step->tokens; i < step->capacity; i++)
                ((int32_t *)input)[i] = strcmp(info->name, "segments") != 0;
        }
    }
out:
    return status;
}

static fth_status run_plan(text_step *step, fth_plan_mode mode, fth_precision precision, float *logits, float loss[2])
{
    fth_status status = FTH_OK;
    const fth_backend *backend = step->device->backend;
    const fth_run run = {.seed = 1, .step = 3, .gradient_scale = 1};
    const fth_plan_options options = {
        .batch = step->samples, .tokens = step->capacity, .mode = mode, .precision = precision};

    FTH_TRY(fth_plan_create(step->graph, step->device, options, &step->plan));
    fprintf(stderr, "arena %zu bytes\n", fth_plan_arena_bytes(step->plan));
    FTH_TRY(backend->allocate(step->device, fth_plan_arena_bytes(step->plan), &step->arena));
    FTH_TRY(fth_plan_bind(step->plan, step->arena, step->vectors));
    FTH_TRY(set_inputs(step));
    FTH_TRY(fth_plan_run(step->plan, &run));
    FTH_TRY(fth_plan_get_output(step->plan, fth_graph_logits(step->graph), logits));
    FTH_TRY(fth_plan_get_output(step->plan, fth_graph_loss(step->graph), loss));

out:
    fth_plan_free(step->plan);
    step->plan = NULL;
    if (step->arena)
        backend->release(step->device, step->arena);
    step->arena = NULL;
    return status;
}

static fth_status write_results(const text_step *step, const char *path, const fth_tensor_view *outputs,
                                size_t output_count)
{
    fth_status status = FTH_OK;
    fth_file *file = NULL;
    static fth_tensor_view views[MAX_VIEWS];
    size_t count = 0;

    for (size_t i = 0; i < output_count; i++)
        views[count++] = outputs[i];
    for (fth_value v = 0; v < fth_graph_value_count(step->graph); v++) {
        const fth_value_info *info = fth_graph_value(step->graph, v);
        if (info->kind == FTH_VALUE_PARAMETER && count < MAX_VIEWS)
            views[count++] =
                (fth_tensor_view){info->name, FTH_F32, info->type.shape, step->vectors.gradients + info->offset};
    }
    FTH_TRY(fth_file_create(path, &file));
    FTH_TRY(fth_safetensors_write(file, views, count, NULL, 0));
    FTH_TRY(fth_file_publish(file));
out:
    fth_file_free(file);
    return status;
}

static fth_status run(char **arguments)
{
    fth_status status = FTH_OK;
    static const char *const tasks[] = {"classes", "regression", "multi-label"};
    const char *folder = arguments[0], *path = arguments[1], *task = arguments[5];
    text_step step = {0};
    fth_model_fit fit = {0};
    float *logits = NULL, *evaluated = NULL, loss[2];
    fth_model_options options = {.no_dropout = !strstr(arguments[6], "dropout"),
                                 .recompute = strstr(arguments[6], "layers") != NULL};
    fth_precision precision = strcmp(arguments[4], "bf16") == 0 ? FTH_PRECISION_BF16 : FTH_PRECISION_F32;

    FTH_TRY(fth_weights_open(folder, &step.weights));
    FTH_TRY(fth_model_recognize(step.weights, &fit));
    FTH_REQUIRE(fit.model && fit.model->build_text, FTH_INVALID, "%s is no model for text", folder);
    FTH_TRY(fth_file_map(path, &step.mapping, &step.mapping_bytes));
    FTH_TRY(fth_safetensors_parse(step.mapping, step.mapping_bytes, path, &step.batch));
    step.samples = fth_safetensors_find(step.batch, "ends")->shape.dims[0];
    step.tokens = fth_safetensors_find(step.batch, "tokens")->shape.dims[0];
    step.capacity = fth_text_capacity(step.tokens);
    options.longest = fit.model->longest;
    options.classes = fit.classes;
    for (int i = 0; i < FTH_TASK_COUNT; i++)
        options.task = strcmp(task, tasks[i]) == 0 ? (fth_task)i : options.task;
    FTH_TRY(fth_model_create_graph(fit.model, &options, &step.graph));
    FTH_TRY(fth_device_open(arguments[3], &(fth_device_options){0}, &step.device));

    size_t bytes = fth_graph_parameter_floats(step.graph) * sizeof(float);
    FTH_TRY(fth_allocate_aligned(bytes, &step.vectors.parameters));
    FTH_TRY(fth_allocate_aligned(bytes, &step.vectors.gradients));
    FTH_TRY(fth_allocate_aligned(1, &step.vectors.buffers));
    memset(step.vectors.parameters, 0, bytes);
    memset(step.vectors.gradients, 0, bytes);
    FTH_TRY(load_parameters(&step, folder));
    FTH_TRY(fth_allocate((size_t)(step.samples * fit.classes), sizeof *logits, &logits));
    FTH_TRY(fth_allocate((size_t)(step.samples * fit.classes), sizeof *evaluated, &evaluated));
    FTH_TRY(run_plan(&step, FTH_PLAN_EVALUATE, precision, evaluated, loss));
    FTH_TRY(run_plan(&step, FTH_PLAN_TRAIN, precision, logits, loss));
    const fth_shape shape = FTH_SHAPE(step.samples, fit.classes);
    const fth_tensor_view outputs[] = {{"logits", FTH_F32, shape, logits},
                                       {"evaluated", FTH_F32, shape, evaluated},
                                       {"loss", FTH_F32, FTH_SHAPE(2), loss}};
    FTH_TRY(write_results(&step, arguments[2], outputs, FTH_COUNT_OF(outputs)));

out:
    fth_model_fit_release(&fit);
    free(logits);
    free(evaluated);
    free(step.vectors.parameters);
    free(step.vectors.gradients);
    free(step.vectors.buffers);
    fth_device_close(step.device);
    fth_graph_free(step.graph);
    fth_safetensors_free(step.batch);
    fth_file_unmap(step.mapping, step.mapping_bytes);
    fth_weights_free(step.weights);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 8) {
        fprintf(stderr, "usage: text_step FOLDER BATCH OUT DEVICE PRECISION TASK HOW\n");
        return 2;
    }
    if (run(argv + 1) == FTH_OK)
        return 0;
    fprintf(stderr, "text_step: %s\n", fth_error_message());
    return 1;
}
