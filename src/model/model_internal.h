/* Layers as PyTorch has them: an op with its parameters created, named and initialized. */
#ifndef FTH_MODEL_MODEL_INTERNAL_H
#define FTH_MODEL_MODEL_INTERNAL_H

#include "graph/ops.h"
#include "model/model.h"

typedef enum fth_layer_init {
    FTH_LAYER_DEFAULT,         /* nn.Conv2d and nn.Linear: weight and bias U(±1/sqrt(fan_in)) */
    FTH_LAYER_KAIMING_FAN_IN,  /* kaiming_normal_: weight N(0, sqrt(2/fan_in)), bias as by default */
    FTH_LAYER_KAIMING_FAN_OUT, /* torchvision: weight N(0, sqrt(2/fan_out)), bias 0 */
    FTH_LAYER_SMALL_NORMAL     /* torchvision's VGG classifier: weight N(0, 0.01), bias 0 */
} fth_layer_init;

typedef struct fth_layer_convolution_options {
    int filters, kernel, stride, padding;
    bool bias, relu;
    fth_layer_init init;
} fth_layer_convolution_options;

/* Parameters "<prefix>.weight" and, if asked for, "<prefix>.bias". */
fth_status fth_layer_convolution(fth_graph *graph, const char *prefix, fth_layer_convolution_options options,
                                 fth_value x, fth_value *y);

/* "<prefix>.weight" and "<prefix>.bias" (1 and 0), buffers "<prefix>.running_mean" and "<prefix>.running_var" (0 and 1)
 * and the counter "<prefix>.num_batches_tracked". */
fth_status fth_layer_batch_norm(fth_graph *graph, const char *prefix, bool relu, fth_value residual_or_none,
                                fth_value x, fth_value *y);

/* Parameters "<prefix>.weight" and "<prefix>.bias"; x must be flat. */
fth_status fth_layer_linear(fth_graph *graph, const char *prefix, int outputs, bool relu, fth_layer_init init,
                            fth_value x, fth_value *y);

/* Square windows. */
fth_status fth_layer_max_pool(fth_graph *graph, int kernel, int stride, int padding, fth_value x, fth_value *y);

/* Dropout unless the options leave it out. */
fth_status fth_layer_dropout(fth_graph *graph, const fth_model_options *options, float probability, fth_value x,
                             fth_value *y);

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
