/* One training step of a model for text, for comparisons with other programs:
 *
 *     text_step FOLDER BATCH OUT DEVICE PRECISION TASK HOW
 *
 * FOLDER is as from the Hugging Face hub; BATCH a safetensors file with tokens, segments, positions
 * and ends (I32), and labels (I32) or targets (F32). OUT gets the logits, the loss and the
 * gradients, each parameter's under its name, and of a second run for evaluation "evaluated". HOW
 * may have the words "dropout" and "layers": with dropout, and with layers that are computed again
 * for their gradients. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_step.h"

/* Rows behind the last token get tokens, segments and positions that every model has, and must not
 * matter. */
static void fill_padding(model_step *step, fth_plan *plan)
{
    const int64_t tokens = fth_safetensors_find(step->batch, "tokens")->shape.dims[0];
    for (fth_value v = 0; v < fth_graph_value_count(step->graph); v++) {
        const fth_value_info *info = fth_graph_value(step->graph, v);
        if (info->kind != FTH_VALUE_INPUT || info->type.shape.dims[0] != FTH_TOKENS)
            continue;
        int32_t *input = fth_plan_input(plan, v);
        for (int64_t i = tokens; i < fth_text_capacity(tokens); i++)
            input[i] = strcmp(info->name, "segments") != 0;
    }
}

static fth_status run(char **arguments)
{
    fth_status status = FTH_OK;
    static const char *const tasks[] = {"classes", "regression", "multi-label"};
    const char *folder = arguments[0], *task = arguments[5];
    model_step step = {0};
    fth_model_fit fit = {0};
    float *evaluated = NULL;
    fth_model_options options = {.no_dropout = !strstr(arguments[6], "dropout"),
                                 .recompute = strstr(arguments[6], "layers") != NULL};

    FTH_TRY(model_step_open(folder, arguments[1], &step));
    FTH_TRY(fth_model_recognize(step.weights, &fit));
    FTH_REQUIRE(fit.model && fit.model->build_text, FTH_INVALID, "%s is no model for text", folder);
    options.longest = fit.model->longest;
    options.classes = fit.classes;
    for (int i = 0; i < FTH_TASK_COUNT; i++)
        options.task = strcmp(task, tasks[i]) == 0 ? (fth_task)i : options.task;
    FTH_TRY(fth_model_create_graph(fit.model, &options, &step.graph));
    FTH_TRY(fth_device_open(arguments[3], &(fth_device_options){0}, &step.device));
    FTH_TRY(model_step_load(folder, &step));
    fth_plan_options plan = {.batch = fth_safetensors_find(step.batch, "ends")->shape.dims[0],
                             .tokens = fth_text_capacity(fth_safetensors_find(step.batch, "tokens")->shape.dims[0]),
                             .mode = FTH_PLAN_EVALUATE,
                             .precision = strcmp(arguments[4], "bf16") == 0 ? FTH_PRECISION_BF16 : FTH_PRECISION_F32};
    FTH_TRY(model_step_run(&step, plan, fill_padding));
    evaluated = step.logits;
    step.logits = NULL;
    plan.mode = FTH_PLAN_TRAIN;
    FTH_TRY(model_step_run(&step, plan, fill_padding));
    const fth_shape shape = FTH_SHAPE(plan.batch, fit.classes);
    const fth_tensor_view outputs[] = {{"logits", FTH_F32, shape, step.logits},
                                       {"evaluated", FTH_F32, shape, evaluated},
                                       {"loss", FTH_F32, FTH_SHAPE(2), step.loss}};
    FTH_TRY(model_step_write(&step, arguments[2], outputs, FTH_COUNT_OF(outputs)));

out:
    fth_model_fit_release(&fit);
    free(evaluated);
    model_step_close(&step);
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
