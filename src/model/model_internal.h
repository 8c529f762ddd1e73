/* What the files of models share: the list of models, freezing, checks. */
#ifndef FTH_MODEL_MODEL_INTERNAL_H
#define FTH_MODEL_MODEL_INTERNAL_H

#include "model/layers.h"

/* Sets the parameters aside that the comma-separated patterns match: '*' and '?' stand for any text
 * and any character, and a layer's name for all its parameters. A pattern that matches none is an
 * error that names the nearest layer. */
fth_status fth_model_freeze(const fth_model *model, fth_graph *graph, const char *patterns);

/* Fails if the images are smaller than a network can take: "cifar-cnn needs images of at least
 * 16×16, not 8×8". */
fth_status fth_model_check_size(const fth_model *model, const fth_model_options *options, int smallest);

/* Every model, in the order in which `farthing models` lists them; a new one is a file of this
 * folder that defines fth_model_NAME, and its row here. */
#define FTH_MODELS(ROW)                                                                                                \
    ROW(linear)                                                                                                        \
    ROW(mnist_cnn)                                                                                                     \
    ROW(cifar_cnn)                                                                                                     \
    ROW(resnet20)                                                                                                      \
    ROW(resnet32)                                                                                                      \
    ROW(resnet44)                                                                                                      \
    ROW(resnet56)                                                                                                      \
    ROW(resnet110)                                                                                                     \
    ROW(resnet18)                                                                                                      \
    ROW(resnet34)                                                                                                      \
    ROW(resnet50)                                                                                                      \
    ROW(resnet101)                                                                                                     \
    ROW(resnet18_small)                                                                                                \
    ROW(resnet34_small)                                                                                                \
    ROW(resnet50_small)                                                                                                \
    ROW(resnet101_small)                                                                                               \
    ROW(vgg11)                                                                                                         \
    ROW(vgg13)                                                                                                         \
    ROW(vgg16)                                                                                                         \
    ROW(vgg19)                                                                                                         \
    ROW(vgg11_bn)                                                                                                      \
    ROW(vgg13_bn)                                                                                                      \
    ROW(vgg16_bn)                                                                                                      \
    ROW(vgg19_bn)                                                                                                      \
    ROW(vgg19_narrow)                                                                                                  \
    ROW(bert_tiny)                                                                                                     \
    ROW(bert_mini)                                                                                                     \
    ROW(bert_small)                                                                                                    \
    ROW(minilm)                                                                                                        \
    ROW(bert_base)

#define FTH_DECLARE(name) extern const fth_model fth_model_##name;
FTH_MODELS(FTH_DECLARE)
#undef FTH_DECLARE

#endif
