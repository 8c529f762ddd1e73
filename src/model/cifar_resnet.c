/* The ResNets for CIFAR-10 of the original paper (He et al., 2015, section 4.2), with the names,
 * the initialization and the shortcuts of the implementation that most published weights are of
 * (akamaster/pytorch_resnet_cifar10). Where a block halves the picture and doubles the channels,
 * its shortcut takes every other row and column and adds channels of zeros, half before and half
 * after ("option A"): it has no parameters. */
#include <stdio.h>

#include "model/model_internal.h"

typedef struct cifar_resnet {
    int blocks; /* in each stage */
} cifar_resnet;

enum { STAGES = 3, WIDTH = 16 };

static fth_status add_unit(fth_graph *graph, const char *block, int number, int filters, int stride,
                           fth_value residual_or_none, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    char prefix[64];
    const fth_layer_convolution_options convolution = {
        .filters = filters, .kernel = 3, .stride = stride, .padding = 1, .init = FTH_LAYER_KAIMING_FAN_IN};

    snprintf(prefix, sizeof prefix, "%sconv%d", block, number);
    FTH_TRY(fth_layer_convolution(graph, prefix, convolution, x, &x));
    snprintf(prefix, sizeof prefix, "%sbn%d", block, number);
    FTH_TRY(fth_layer_batch_norm(graph, prefix, true, residual_or_none, x, y));

out:
    return status;
}

static fth_status add_shortcut(fth_graph *graph, int filters, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    const fth_pool_attributes every_other = {.kernel = {1, 1}, .stride = {2, 2}};
    const int64_t missing = filters - fth_graph_value(graph, x)->type.shape.dims[1];

    FTH_TRY(fth_op_add_average_pool(graph, every_other, x, &x));
    FTH_TRY(fth_op_add_pad(
        graph, (fth_pad_attributes){.axis = 1, .before = missing / 2, .after = missing - missing / 2}, x, y));

out:
    return status;
}

static fth_status build(const fth_model *model, fth_graph *graph, const fth_model_options *options, fth_value images,
                        fth_value *logits)
{
    fth_status status = FTH_OK;
    const cifar_resnet *net = model->details;
    fth_value x = images;

    FTH_TRY(fth_model_check_size(model, options, 1)); /* every layer is padded, so any size comes through */
    FTH_TRY(add_unit(graph, "", 1, WIDTH, 1, FTH_NO_VALUE, x, &x));
    for (int stage = 0; stage < STAGES; stage++) {
        for (int i = 0; i < net->blocks; i++) {
            char block[32];
            const int filters = WIDTH << stage, stride = stage > 0 && i == 0 ? 2 : 1;
            fth_value residual = x;
            snprintf(block, sizeof block, "layer%d.%d.", stage + 1, i);
            if (stride != 1)
                FTH_TRY(add_shortcut(graph, filters, x, &residual));
            FTH_TRY(add_unit(graph, block, 1, filters, stride, FTH_NO_VALUE, x, &x));
            FTH_TRY(add_unit(graph, block, 2, filters, 1, residual, x, &x));
        }
    }
    FTH_TRY(fth_op_add_global_average_pool(graph, x, &x));
    FTH_TRY(fth_op_add_flatten(graph, x, &x));
    FTH_TRY(fth_layer_linear(graph, "linear", options->classes, false, FTH_LAYER_KAIMING_FAN_IN, x, logits));

out:
    return status;
}

#define CIFAR_RESNET(depth)                                                                                            \
    const fth_model fth_model_resnet##depth = {                                                                        \
        .name = "resnet" #depth,                                                                                       \
        .summary = "residual network of " #depth " layers for CIFAR-10, as in its paper",                              \
        .channels = 3,                                                                                                 \
        .height = 32,                                                                                                  \
        .width = 32,                                                                                                   \
        .classes = 10,                                                                                                 \
        .build = build,                                                                                                \
        .details = &(const cifar_resnet){((depth)-2) / 6},                                                             \
    }

CIFAR_RESNET(20);
CIFAR_RESNET(32);
CIFAR_RESNET(44);
CIFAR_RESNET(56);
CIFAR_RESNET(110);
