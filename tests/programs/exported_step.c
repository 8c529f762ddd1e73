/* One training step of a network that torch.export exported, without dropout, for comparisons with
 * PyTorch:
 *
 *     exported_step NET.pt2 BATCH OUT DEVICE PRECISION [STEPS RATE]
 *
 * BATCH is a safetensors file with the inputs, in order, as input0, input1, ... (F32, or I32 of
 * integers), and the targets: F32 of the output's size, compared by the mean squared error, or labels
 * (I32), one for each row of the output. OUT gets the output, the loss, the gradients, each
 * parameter's under its name, and, after STEPS steps of plain SGD at RATE on the same batch, the
 * parameters and buffers under "after." and theirs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exported/lower.h"
#include "graph/ops.h"
#include "model_step.h"

enum { MOST_INPUTS = 8, MOST_VIEWS = 2048 };

/* An input of the graph with rows of samples, of the program's size. */
static fth_status add_input(fth_graph *graph, const fth_exported_value *value, size_t index, fth_value *input)
{
    char name[32];
    const bool floats = value->torch_dtype == FTH_TORCH_F32;
    fth_shape shape = {.rank = value->rank};
    snprintf(name, sizeof name, "input%zu", index);
    for (int d = 0; d < value->rank; d++)
        shape.dims[d] = value->dims[d].batch ? fth_batch_times(value->dims[d].factor) : value->dims[d].factor;
    if (!floats) { /* ids are rows */
        int64_t rows = 1;
        for (int d = 0; d < value->rank; d++)
            rows *= value->dims[d].factor;
        shape = FTH_SHAPE(fth_batch_times(rows));
    }
    return fth_graph_add_input(graph, name, floats ? FTH_F32 : FTH_I32, shape, input);
}

static fth_status add_loss(fth_graph *graph, bool labels, fth_value output, fth_value *loss)
{
    fth_status status = FTH_OK;
    const fth_shape shape = fth_graph_value(graph, output)->type.shape;
    const int64_t classes = shape.dims[shape.rank - 1];
    int64_t features = fth_rows_per_sample(shape.dims[0]);
    fth_value flat, wanted;

    for (int d = 1; d < shape.rank; d++)
        features *= shape.dims[d];
    if (labels) {
        FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(fth_batch_times(features / classes), classes), output, &flat));
        FTH_TRY(fth_graph_add_input(graph, "labels", FTH_I32, FTH_SHAPE(fth_batch_times(features / classes)), &wanted));
        FTH_TRY(fth_op_add_softmax_cross_entropy(graph, 0, flat, wanted, loss));
    } else {
        FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(FTH_BATCH, features), output, &flat));
        FTH_TRY(fth_graph_add_input(graph, "targets", FTH_F32, FTH_SHAPE(FTH_BATCH, features), &wanted));
        FTH_TRY(fth_op_add_squared_error(graph, flat, wanted, loss));
    }
    fth_graph_set_outputs(graph, flat, *loss);
out:
    return status;
}

static fth_status build(const char *path, bool labels, fth_graph **result)
{
    fth_status status = FTH_OK;
    fth_exported *program = NULL;
    fth_graph *graph = NULL;
    fth_value inputs[MOST_INPUTS], output, loss;
    const fth_exported_lower_options options = {.no_dropout = true};

    FTH_TRY(fth_exported_open(path, &program));
    FTH_TRY(fth_graph_create(&graph));
    FTH_REQUIRE(fth_exported_input_count(program) <= MOST_INPUTS, FTH_INVALID, "too many inputs");
    for (size_t i = 0; i < fth_exported_input_count(program); i++)
        FTH_TRY(add_input(graph, fth_exported_get_value(program, fth_exported_get_input(program, i)), i, &inputs[i]));
    FTH_TRY(fth_exported_lower(program, &options, graph, inputs, &output));
    FTH_TRY(add_loss(graph, labels, output, &loss));
    FTH_TRY(fth_graph_differentiate(graph));
    *result = graph;
    graph = NULL;
out:
    fth_graph_free(graph);
    fth_exported_free(program);
    return status;
}

static void descend(model_step *step, float rate)
{
    const size_t count = fth_graph_trained_floats(step->graph);
    for (size_t i = 0; i < count; i++)
        step->vectors.parameters[i] -= rate * step->vectors.gradients[i];
}

/* The parameters and buffers as they are now. */
static fth_status name_after(const model_step *step, fth_tensor_view *views, size_t room, size_t *count)
{
    fth_status status = FTH_OK;
    for (fth_value v = 0; v < fth_graph_value_count(step->graph); v++) {
        const fth_value_info *info = fth_graph_value(step->graph, v);
        if (info->kind != FTH_VALUE_PARAMETER && info->kind != FTH_VALUE_BUFFER)
            continue;
        FTH_REQUIRE(*count < room, FTH_INVALID, "too many parameters");
        const float *vector = info->kind == FTH_VALUE_PARAMETER ? step->vectors.parameters : step->vectors.buffers;
        views[(*count)++] =
            (fth_tensor_view){fth_format("after.%s", info->name), FTH_F32, info->type.shape, vector + info->offset};
    }
out:
    return status;
}

/* Buffers, too, are as in the file. */
static fth_status load_buffers(model_step *step)
{
    fth_status status = FTH_OK;
    for (fth_value v = 0; v < fth_graph_value_count(step->graph); v++) {
        const fth_value_info *info = fth_graph_value(step->graph, v);
        const fth_tensor_view *view =
            info->kind == FTH_VALUE_BUFFER ? fth_weights_find(step->weights, info->name) : NULL;
        if (view)
            FTH_TRY(fth_tensor_view_to_f32(view, step->vectors.buffers + info->offset,
                                           (size_t)fth_shape_count(&view->shape)));
    }
out:
    return status;
}

static fth_status run(int count, char **arguments)
{
    fth_status status = FTH_OK;
    model_step step = {0};
    static fth_tensor_view views[MOST_VIEWS];
    size_t view_count = 0;
    float *gradients = NULL, *parameters = NULL;
    const int steps = count > 5 ? atoi(arguments[5]) : 0;

    FTH_TRY(model_step_open(arguments[0], arguments[1], &step));
    FTH_TRY(build(arguments[0], fth_safetensors_find(step.batch, "labels"), &step.graph));
    FTH_TRY(fth_device_open(arguments[3], &(fth_device_options){0}, &step.device));
    FTH_TRY(model_step_load(arguments[0], &step));
    FTH_TRY(load_buffers(&step));
    const fth_tensor_view *first = fth_safetensors_find(step.batch, "input0");
    FTH_REQUIRE(first, FTH_INVALID, "%s has no input0", arguments[1]);
    const fth_plan_options plan = {.batch = first->shape.dims[0],
                                   .mode = FTH_PLAN_TRAIN,
                                   .precision =
                                       strcmp(arguments[4], "bf16") == 0 ? FTH_PRECISION_BF16 : FTH_PRECISION_F32};
    const fth_shape output = fth_graph_value(step.graph, fth_graph_logits(step.graph))->type.shape;
    FTH_TRY(model_step_run(&step, plan, NULL));
    const size_t size = (size_t)fth_graph_parameter_floats(step.graph);
    FTH_TRY(fth_allocate(size, sizeof *gradients, &gradients));
    memcpy(gradients, step.vectors.gradients, size * sizeof *gradients);
    views[view_count++] = (fth_tensor_view){"loss", FTH_F32, FTH_SHAPE(2), (float[]){step.loss[0], step.loss[1]}};
    const size_t outputs = (size_t)(plan.batch * fth_rows_per_sample(output.dims[0]) * output.dims[1]);
    float *logits = malloc(outputs * sizeof *logits);
    memcpy(logits, step.logits, outputs * sizeof *logits);
    views[view_count++] = (fth_tensor_view){
        "output", FTH_F32, FTH_SHAPE(plan.batch * fth_rows_per_sample(output.dims[0]), output.dims[1]), logits};
    for (int i = 0; i < steps; i++) {
        descend(&step, (float)atof(arguments[6]));
        if (i + 1 < steps)
            FTH_TRY(model_step_run(&step, plan, NULL));
    }
    FTH_TRY(name_after(&step, views, MOST_VIEWS, &view_count));
    memcpy(step.vectors.gradients, gradients, size * sizeof *gradients);
    FTH_TRY(model_step_write(&step, arguments[2], views, view_count));
    (void)parameters;

out:
    free(gradients);
    model_step_close(&step);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 6 && argc != 8) {
        fprintf(stderr, "usage: exported_step NET.pt2 BATCH OUT DEVICE PRECISION [STEPS RATE]\n");
        return 2;
    }
    if (run(argc - 1, argv + 1) == FTH_OK)
        return 0;
    fprintf(stderr, "exported_step: %s\n", fth_error_message());
    return 1;
}
