/* ResNet (He et al., 2015) as torchvision builds it: in bottleneck blocks the 3×3 convolution has
 * the stride. Each block's last batch norm adds the residual and applies the ReLU, y = relu(bn(x) +
 * residual).
 *
 * "-small" is for small pictures: the first convolution is 3×3 with stride 1, and no pooling
 * follows it. People get it from torchvision's by conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False) and
 * maxpool = nn.Identity(). */
#include <stdio.h>

#include "model/model_internal.h"

typedef struct resnet {
    int blocks[4];   /* in each stage */
    bool bottleneck; /* 1×1, 3×3, 1×1 instead of 3×3, 3×3 */
    bool small;      /* 3×3 stem */
} resnet;

enum { STAGES = 4, BOTTLENECK_EXPANSION = 4 };

static fth_status add_convolution(fth_graph *graph, const char *prefix, int filters, int kernel, int stride,
                                  fth_value x, fth_value *y)
{
    return fth_layer_convolution(graph, prefix,
                                 (fth_layer_convolution_options){.filters = filters,
                                                                 .kernel = kernel,
                                                                 .stride = stride,
                                                                 .padding = kernel / 2,
                                                                 .init = FTH_LAYER_KAIMING_FAN_OUT},
                                 x, y);
}

/* Convolution `number` of a block and its batch norm: "<block>.conv1", "<block>.bn1". */
static fth_status add_unit(fth_graph *graph, const char *block, int number, int filters, int kernel, int stride,
                           fth_value residual_or_none, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    char prefix[64];

    snprintf(prefix, sizeof prefix, "%s.conv%d", block, number);
    FTH_TRY(add_convolution(graph, prefix, filters, kernel, stride, x, &x));
    snprintf(prefix, sizeof prefix, "%s.bn%d", block, number);
    FTH_TRY(fth_layer_batch_norm(graph, prefix, true, residual_or_none, x, y));

out:
    return status;
}

static fth_status add_block(fth_graph *graph, const resnet *net, const char *block, int width, int stride, fth_value x,
                            fth_value *y)
{
    fth_status status = FTH_OK;
    char prefix[64];
    fth_value residual = x, inner = x;
    int filters = net->bottleneck ? width * BOTTLENECK_EXPANSION : width;

    if (stride != 1 || fth_graph_value(graph, x)->type.shape.dims[1] != filters) {
        snprintf(prefix, sizeof prefix, "%s.downsample.0", block);
        FTH_TRY(add_convolution(graph, prefix, filters, 1, stride, x, &residual));
        snprintf(prefix, sizeof prefix, "%s.downsample.1", block);
        FTH_TRY(fth_layer_batch_norm(graph, prefix, false, FTH_NO_VALUE, residual, &residual));
    }
    if (net->bottleneck) {
        FTH_TRY(add_unit(graph, block, 1, width, 1, 1, FTH_NO_VALUE, inner, &inner));
        FTH_TRY(add_unit(graph, block, 2, width, 3, stride, FTH_NO_VALUE, inner, &inner));
        FTH_TRY(add_unit(graph, block, 3, filters, 1, 1, residual, inner, y));
    } else {
        FTH_TRY(add_unit(graph, block, 1, width, 3, stride, FTH_NO_VALUE, inner, &inner));
        FTH_TRY(add_unit(graph, block, 2, width, 3, 1, residual, inner, y));
    }

out:
    return status;
}

static fth_status build(const fth_model *model, fth_graph *graph, const fth_model_options *options, fth_value images,
                        fth_value *logits)
{
    fth_status status = FTH_OK;
    const resnet *net = model->details;
    fth_value x = images;

    FTH_TRY(fth_model_check_size(model, options, 1)); /* every layer is padded, so any size comes through */
    FTH_TRY(add_convolution(graph, "conv1", 64, net->small ? 3 : 7, net->small ? 1 : 2, x, &x));
    FTH_TRY(fth_layer_batch_norm(graph, "bn1", true, FTH_NO_VALUE, x, &x));
    if (!net->small)
        FTH_TRY(fth_layer_max_pool(graph, 3, 2, 1, x, &x));
    for (int stage = 0; stage < STAGES; stage++) {
        for (int i = 0; i < net->blocks[stage]; i++) {
            char block[32];
            snprintf(block, sizeof block, "layer%d.%d", stage + 1, i);
            FTH_TRY(add_block(graph, net, block, 64 << stage, stage > 0 && i == 0 ? 2 : 1, x, &x));
        }
    }
    FTH_TRY(fth_op_add_global_average_pool(graph, x, &x));
    FTH_TRY(fth_op_add_flatten(graph, x, &x));
    FTH_TRY(fth_layer_linear(graph, "fc", options->classes, false, FTH_LAYER_DEFAULT, x, logits));

out:
    return status;
}

#define RESNET_ROW(identifier, title, text, side, count, ...)                                                          \
    const fth_model identifier = {                                                                                     \
        .name = title,                                                                                                 \
        .summary = text,                                                                                               \
        .channels = 3,                                                                                                 \
        .height = side,                                                                                                \
        .width = side,                                                                                                 \
        .classes = count,                                                                                              \
        .build = build,                                                                                                \
        .details = &(const resnet){__VA_ARGS__},                                                                       \
    }
#define RESNET(depth, text, ...)                                                                                       \
    RESNET_ROW(fth_model_resnet##depth, "resnet" #depth, text, 224, 1000, __VA_ARGS__);                                \
    RESNET_ROW(fth_model_resnet##depth##_small, "resnet" #depth "-small",                                              \
               "resnet" #depth " with a 3×3 stem, for small pictures (--stem small)", 32, 10, .small = true,           \
               __VA_ARGS__)

RESNET(18, "residual network of 18 layers, as in torchvision", .blocks = {2, 2, 2, 2});
RESNET(34, "residual network of 34 layers, as in torchvision", .blocks = {3, 4, 6, 3});
RESNET(50, "residual network of 50 layers in bottleneck blocks", .blocks = {3, 4, 6, 3}, .bottleneck = true);
RESNET(101, "residual network of 101 layers in bottleneck blocks", .blocks = {3, 4, 23, 3}, .bottleneck = true);
