/* Networks of your own, layer by layer or from PyTorch (fth_network_open), for classifying images.
 *
 *     fth_network *network;
 *     fth_network_create("mine", 1, 28, 28, &network);
 *     fth_layer x = fth_network_input(network);
 *     x = fth_network_convolution(network, x, "conv1", 16, 3, 1, 1);
 *     x = fth_network_relu(network, x);
 *     x = fth_network_max_pool(network, x, 2, 2, 0);
 *     x = fth_network_linear(network, fth_network_flatten(network, x), "fc", 10);
 *     if (fth_network_finish(network, x) != FTH_OK)
 *         puts(fth_error_message());
 *
 * A function that adds a layer takes the layers it reads and returns the one it adds. If it fails
 * it returns FTH_NO_LAYER; so does every later call, and fth_network_finish() then returns the
 * first failure. Only that call needs to be checked. Shapes are checked as layers are added: images
 * are (batch, channels, height, width), flattened features (batch, features).
 *
 * Layers with parameters have a name, and their parameters PyTorch's names and initial values:
 * "conv1.weight", "conv1.bias". They are the names of tensors in model files.
 *
 * A network is built by one thread. Once finished it does not change, and any number of trainings
 * and predictors may use it, from any threads; it must outlive them. */
#ifndef FARTHING_NETWORK_H
#define FARTHING_NETWORK_H

#include <farthing/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fth_network fth_network;

/* A layer's number in its network: 0 for the input, then 1, 2, ... It means nothing in another
 * network, and using it there is noticed only if that network has no layer of that number, or one
 * of the wrong shape. */
typedef int fth_layer;
#define FTH_NO_LAYER (-1)

/* Begins a network for images of this size. `name` is its name in records and model files: letters,
 * digits, '.', '_' and '-', and not the name of a built-in model. The caller owns *network and
 * frees it with fth_network_free(). */
FTH_API fth_status fth_network_create(const char *name, int channels, int height, int width, fth_network **network);
/* Opens a network that PyTorch's torch.export wrote, "net.pt2" (docs/pytorch.md): it is finished,
 * and trainings of it start with the weights in the file, unless the option "reinitialize" is
 * "true". The caller owns *network. */
FTH_API fth_status fth_network_open(const char *path, fth_network **network);
/* NULL is fine. */
FTH_API void fth_network_free(fth_network *network);

/* The layer that the images come from. */
FTH_API fth_layer fth_network_input(fth_network *network);

/* Square kernels; parameters "<name>.weight" (filters, channels, kernel, kernel) and "<name>.bias"
 * (filters). */
FTH_API fth_layer fth_network_convolution(fth_network *network, fth_layer x, const char *name, int filters, int kernel,
                                          int stride, int padding);
/* The same without a bias, as it is used before a batch norm. */
FTH_API fth_layer fth_network_convolution_without_bias(fth_network *network, fth_layer x, const char *name, int filters,
                                                       int kernel, int stride, int padding);

/* Fully connected; x must be flat. Parameters "<name>.weight" (outputs, features) and "<name>.bias"
 * (outputs). */
FTH_API fth_layer fth_network_linear(fth_network *network, fth_layer x, const char *name, int outputs);

/* Over images, per channel: parameters "<name>.weight" and "<name>.bias", buffers
 * "<name>.running_mean" and "<name>.running_var"; momentum 0.1, epsilon 1e-5. */
FTH_API fth_layer fth_network_batch_norm(fth_network *network, fth_layer x, const char *name);

FTH_API fth_layer fth_network_relu(fth_network *network, fth_layer x);
FTH_API fth_layer fth_network_gelu(fth_network *network, fth_layer x);

/* Square windows. The average counts padding. */
FTH_API fth_layer fth_network_max_pool(fth_network *network, fth_layer x, int kernel, int stride, int padding);
FTH_API fth_layer fth_network_average_pool(fth_network *network, fth_layer x, int kernel, int stride, int padding);
/* To (batch, channels, height, width) of the given size, whatever that of x; 1, 1 averages whole
 * images. */
FTH_API fth_layer fth_network_adaptive_average_pool(fth_network *network, fth_layer x, int height, int width);

/* (batch, ...) to (batch, features). */
FTH_API fth_layer fth_network_flatten(fth_network *network, fth_layer x);

/* In training sets each number to 0 with this probability, below 1, and scales up the rest. */
FTH_API fth_layer fth_network_dropout(fth_network *network, fth_layer x, double probability);

/* a + b, of one shape: a residual connection. */
FTH_API fth_layer fth_network_add(fth_network *network, fth_layer a, fth_layer b);
/* Channels (or features) of a, then of b. */
FTH_API fth_layer fth_network_concat(fth_network *network, fth_layer a, fth_layer b);

/* Makes `logits` the output: (batch, classes), before a softmax. Nothing can be added after this.
 * If a layer could not be added, returns that failure, with its message. */
FTH_API fth_status fth_network_finish(fth_network *network, fth_layer logits);

#ifdef __cplusplus
}
#endif

#endif
