/* linear: softmax regression on the pixels, the baseline that a network must beat. */
#include "model/model_internal.h"

static fth_status build(const fth_model *model, fth_graph *graph, const fth_model_options *options, fth_value images,
                        fth_value *logits)
{
    fth_status status = FTH_OK;
    fth_value x = images;

    FTH_TRY(fth_model_check_size(model, options, 1));
    FTH_TRY(fth_op_add_flatten(graph, x, &x));
    FTH_TRY(fth_layer_linear(graph, "fc", options->classes, false, FTH_LAYER_DEFAULT, x, logits));

out:
    return status;
}

const fth_model fth_model_linear = {
    .name = "linear",
    .summary = "softmax regression on the pixels: the baseline to beat",
    .channels = 1,
    .height = 28,
    .width = 28,
    .classes = 10,
    .build = build,
};
