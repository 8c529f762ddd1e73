/* mnist-cnn: the network of PyTorch's MNIST example. The example drops out before it flattens; here
 * it is the other way round, which is the same function and keeps dropout on plain features. So is
 * ReLU after pooling, on a quarter of the numbers: its gradient is 2 % of a step less. */
#include "model/model_internal.h"

static fth_status build(const fth_model *model, fth_graph *graph, const fth_model_options *options, fth_value images,
                        fth_value *logits)
{
    fth_status status = FTH_OK;
    fth_layer_convolution_options convolution = {.filters = 32, .kernel = 3, .stride = 1, .bias = true, .relu = true};
    fth_value x = images;

    FTH_TRY(fth_model_check_size(model, options, 6));
    FTH_TRY(fth_layer_convolution(graph, "conv1", convolution, x, &x));
    convolution.filters = 64;
    convolution.relu = false;
    FTH_TRY(fth_layer_convolution(graph, "conv2", convolution, x, &x));
    FTH_TRY(fth_layer_max_pool(graph, 2, 2, 0, x, &x));
    FTH_TRY(fth_op_add_relu(graph, x, &x));
    FTH_TRY(fth_op_add_flatten(graph, x, &x));
    FTH_TRY(fth_layer_dropout(graph, options, 0.25F, x, &x));
    FTH_TRY(fth_layer_linear(graph, "fc1", 128, true, FTH_LAYER_DEFAULT, x, &x));
    FTH_TRY(fth_layer_dropout(graph, options, 0.5F, x, &x));
    FTH_TRY(fth_layer_linear(graph, "fc2", options->classes, false, FTH_LAYER_DEFAULT, x, logits));

out:
    return status;
}

const fth_model fth_model_mnist_cnn = {
    .name = "mnist-cnn",
    .summary = "two 3×3 convolutions and two dense layers, as in PyTorch's MNIST example",
    .channels = 1,
    .height = 28,
    .width = 28,
    .classes = 10,
    .build = build,
};
