/* cifar-cnn: the network of PyTorch's CIFAR-10 tutorial. */
#include "model/model_internal.h"

static fth_status build(const fth_model *model, fth_graph *graph, const fth_model_options *options, fth_value images,
                        fth_value *logits)
{
    fth_status status = FTH_OK;
    fth_layer_convolution_options convolution = {.filters = 6, .kernel = 5, .stride = 1, .bias = true};
    fth_value x = images;

    FTH_TRY(fth_model_check_size(model, options, 16));
    FTH_TRY(fth_layer_convolution(graph, "conv1", convolution, x, &x));
    FTH_TRY(fth_layer_max_pool(graph, 2, 2, 0, x, &x));
    FTH_TRY(fth_op_add_relu(graph, x, &x));
    convolution.filters = 16;
    FTH_TRY(fth_layer_convolution(graph, "conv2", convolution, x, &x));
    FTH_TRY(fth_layer_max_pool(graph, 2, 2, 0, x, &x));
    FTH_TRY(fth_op_add_relu(graph, x, &x));
    FTH_TRY(fth_op_add_flatten(graph, x, &x));
    FTH_TRY(fth_layer_linear(graph, "fc1", 120, true, FTH_LAYER_DEFAULT, x, &x));
    FTH_TRY(fth_layer_linear(graph, "fc2", 84, true, FTH_LAYER_DEFAULT, x, &x));
    FTH_TRY(fth_layer_linear(graph, "fc3", options->classes, false, FTH_LAYER_DEFAULT, x, logits));

out:
    return status;
}

const fth_model fth_model_cifar_cnn = {
    .name = "cifar-cnn",
    .summary = "two 5×5 convolutions and three dense layers, as in PyTorch's CIFAR-10 tutorial",
    .channels = 3,
    .height = 32,
    .width = 32,
    .classes = 10,
    .build = build,
};
