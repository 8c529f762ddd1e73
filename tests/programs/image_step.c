/* One training step of a model for images, without dropout, for comparisons with other programs:
 *
 *     image_step MODEL WEIGHTS BATCH OUT DEVICE PRECISION [smooth]
 *
 * BATCH is a safetensors file with images (N C H W, F32) and labels (I32). OUT gets the logits, the
 * loss and the gradients, each parameter's under its name. With "smooth", the network has no jumps
 * (smooth_graph.h). */
#include <stdio.h>
#include <string.h>

#include "model_step.h"
#include "smooth_graph.h"

static fth_status run(char **arguments, bool smooth)
{
    fth_status status = FTH_OK;
    const char *weights = arguments[1], *batch = arguments[2];
    model_step step = {0};
    const fth_model *model;
    fth_graph *graph = NULL;

    FTH_TRY(fth_model_find(arguments[0], &model));
    FTH_TRY(model_step_open(weights, batch, &step));
    const fth_tensor_view *images = fth_safetensors_find(step.batch, "images");
    FTH_REQUIRE(images && images->shape.rank == 4, FTH_INVALID, "%s has no images", batch);
    fth_model_fit fit = {0};
    FTH_TRY(fth_model_recognize(step.weights, &fit));
    const fth_model_options options = {.channels = (int)images->shape.dims[1],
                                       .height = (int)images->shape.dims[2],
                                       .width = (int)images->shape.dims[3],
                                       .classes = fit.classes,
                                       .no_dropout = true};
    fth_model_fit_release(&fit);
    FTH_TRY(fth_model_create_graph(model, &options, &graph));
    if (smooth) {
        FTH_TRY(smooth_graph_create(graph, &step.graph));
    } else {
        step.graph = graph;
        graph = NULL;
    }
    FTH_TRY(fth_device_open(arguments[4], &(fth_device_options){0}, &step.device));
    FTH_TRY(model_step_load(weights, &step));
    const fth_plan_options plan = {.batch = images->shape.dims[0],
                                   .mode = FTH_PLAN_TRAIN,
                                   .precision =
                                       strcmp(arguments[5], "bf16") == 0 ? FTH_PRECISION_BF16 : FTH_PRECISION_F32};
    FTH_TRY(model_step_run(&step, plan, NULL));
    const fth_tensor_view outputs[] = {{"logits", FTH_F32, FTH_SHAPE(plan.batch, options.classes), step.logits},
                                       {"loss", FTH_F32, FTH_SHAPE(2), step.loss}};
    FTH_TRY(model_step_write(&step, arguments[3], outputs, FTH_COUNT_OF(outputs)));
    fprintf(stderr, "%s\n", step.device->description);

out:
    fth_graph_free(graph);
    model_step_close(&step);
    return status;
}

int main(int argc, char **argv)
{
    const bool smooth = argc == 8 && strcmp(argv[7], "smooth") == 0;
    if (argc != 7 && !smooth) {
        fprintf(stderr, "usage: image_step MODEL WEIGHTS BATCH OUT DEVICE PRECISION [smooth]\n");
        return 2;
    }
    if (run(argv + 1, smooth) == FTH_OK)
        return 0;
    fprintf(stderr, "image_step: %s\n", fth_error_message());
    return 1;
}
