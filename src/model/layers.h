/* Layers as PyTorch has them: an op with its parameters created, named and initialized. */
#ifndef FTH_MODEL_LAYERS_H
#define FTH_MODEL_LAYERS_H

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

/* "<prefix>.weight" and "<prefix>.bias" (1 and 0), buffers "<prefix>.running_mean" and
 * "<prefix>.running_var" (0 and 1) and the counter "<prefix>.num_batches_tracked". */
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

#endif
