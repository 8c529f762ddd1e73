/* What the files of models share: the list's rows, freezing, checks. */
#ifndef FTH_MODEL_MODEL_INTERNAL_H
#define FTH_MODEL_MODEL_INTERNAL_H

#include "model/layers.h"

/* Sets the parameters aside that the comma-separated patterns match: '*' and '?' stand for any text and any character,
 * and a layer's name for all its parameters. A pattern that matches none is an error that names the nearest layer. */
fth_status fth_model_freeze(const fth_model *model, fth_graph *graph, const char *patterns);

/* Fails if the images are smaller than a network can take: "cifar-cnn needs images of at least 16×16, not 8×8". */
fth_status fth_model_check_size(const fth_model *model, const fth_model_options *options, int smallest);

/* The rows of fth_model_list, each in its family's file. */
extern const fth_model fth_model_linear, fth_model_mnist_cnn, fth_model_cifar_cnn;
extern const fth_model fth_model_resnet18, fth_model_resnet34, fth_model_resnet50, fth_model_resnet101;
extern const fth_model fth_model_resnet18_small, fth_model_resnet34_small, fth_model_resnet50_small,
    fth_model_resnet101_small;
extern const fth_model fth_model_resnet20, fth_model_resnet32, fth_model_resnet44, fth_model_resnet56,
    fth_model_resnet110;
extern const fth_model fth_model_vgg11, fth_model_vgg13, fth_model_vgg16, fth_model_vgg19;
extern const fth_model fth_model_vgg11_bn, fth_model_vgg13_bn, fth_model_vgg16_bn, fth_model_vgg19_bn;

#endif
