/* VGG (Simonyan and Zisserman, 2014) as torchvision builds it, with and without batch norm.
 * torchvision numbers the modules of "features" one by one, ReLU and pooling included, so the
 * numbers in parameter names have gaps. Without batch norm, the ReLU before a pooling comes after
 * it, on a quarter of the numbers: the same function, and a back end can pool what a convolution
 * computes before it is written to memory. */
#include <stdio.h>

#include "model/model_internal.h"

typedef struct vgg {
    int convolutions[5]; /* in each stage; a pooling ends it */
    bool batch_norm;
    int narrowing; /* layers have this part of the published width */
} vgg;

enum { STAGES = 5, SMALLEST = 32, POOLED = 7, HIDDEN = 4096 };

static fth_status add_features(fth_graph *graph, const vgg *net, fth_value x, fth_value *y)
{
    static const int filters[STAGES] = {64, 128, 256, 512, 512};
    fth_status status = FTH_OK;
    char prefix[32];
    int module = 0;

    for (int stage = 0; stage < STAGES; stage++) {
        for (int i = 0; i < net->convolutions[stage]; i++) {
            fth_layer_convolution_options convolution = {
                .filters = filters[stage] / net->narrowing,
                .kernel = 3,
                .stride = 1,
                .padding = 1,
                .bias = true,
                .relu = !net->batch_norm && i + 1 < net->convolutions[stage],
                .init = FTH_LAYER_KAIMING_FAN_OUT,
            };
            snprintf(prefix, sizeof prefix, "features.%d", module++);
            FTH_TRY(fth_layer_convolution(graph, prefix, convolution, x, &x));
            if (net->batch_norm) {
                snprintf(prefix, sizeof prefix, "features.%d", module++);
                FTH_TRY(fth_layer_batch_norm(graph, prefix, true, FTH_NO_VALUE, x, &x));
            }
            module++; /* the ReLU */
        }
        FTH_TRY(fth_layer_max_pool(graph, 2, 2, 0, x, &x));
        module++;
        if (!net->batch_norm)
            FTH_TRY(fth_op_add_relu(graph, x, &x));
    }
    *y = x;

out:
    return status;
}

static fth_status build(const fth_model *model, fth_graph *graph, const fth_model_options *options, fth_value images,
                        fth_value *logits)
{
    fth_status status = FTH_OK;
    fth_value x = images;
    const vgg *net = model->details;
    const int hidden = HIDDEN / net->narrowing;

    FTH_TRY(fth_model_check_size(model, options, SMALLEST));
    FTH_TRY(add_features(graph, net, x, &x));
    const fth_shape *features = &fth_graph_value(graph, x)->type.shape;
    if (features->dims[2] != POOLED || features->dims[3] != POOLED)
        FTH_TRY(fth_op_add_adaptive_average_pool(graph, POOLED, POOLED, x, &x));
    FTH_TRY(fth_op_add_flatten(graph, x, &x));
    FTH_TRY(fth_layer_linear(graph, "classifier.0", hidden, true, FTH_LAYER_SMALL_NORMAL, x, &x));
    FTH_TRY(fth_layer_dropout(graph, options, 0.5F, x, &x));
    FTH_TRY(fth_layer_linear(graph, "classifier.3", hidden, true, FTH_LAYER_SMALL_NORMAL, x, &x));
    FTH_TRY(fth_layer_dropout(graph, options, 0.5F, x, &x));
    FTH_TRY(fth_layer_linear(graph, "classifier.6", options->classes, false, FTH_LAYER_SMALL_NORMAL, x, logits));

out:
    return status;
}

#define VGG_ROW(identifier, title, text, with_batch_norm, part, ...)                                                   \
    const fth_model identifier = {                                                                                     \
        .name = title,                                                                                                 \
        .summary = text,                                                                                               \
        .channels = 3,                                                                                                 \
        .height = 224,                                                                                                 \
        .width = 224,                                                                                                  \
        .classes = 1000,                                                                                               \
        .build = build,                                                                                                \
        .details = &(const vgg){.convolutions = {__VA_ARGS__}, .batch_norm = with_batch_norm, .narrowing = part},      \
    }
#define VGG(depth, ...)                                                                                                \
    VGG_ROW(fth_model_vgg##depth, "vgg" #depth, "VGG of " #depth " layers, as in torchvision", false, 1, __VA_ARGS__); \
    VGG_ROW(fth_model_vgg##depth##_bn, "vgg" #depth "-bn", "VGG of " #depth " layers with batch norm", true, 1,        \
            __VA_ARGS__)

VGG(11, 1, 1, 2, 2, 2);
VGG(13, 2, 2, 2, 2, 2);
VGG(16, 2, 2, 3, 3, 3);
VGG(19, 2, 2, 4, 4, 4);
VGG_ROW(fth_model_vgg19_narrow, "vgg19-narrow", "VGG of 19 layers, an eighth as wide: 1/64 of the parameters", false, 8,
        2, 2, 4, 4, 4);
