/* Networks of a program's own: see farthing/network.h.
 *
 * A network is a list of layers. Each is added twice: to a graph of the network's own, when the
 * program adds it, so that what does not fit shows at once; and to the graph of every engine, by
 * build_network(), which is the `build` of an fth_model made for the network. There a ReLU that
 * alone reads a layer becomes part of it, as kernels prefer it. */
#include <stdlib.h>
#include <string.h>

#include "api/api_internal.h"
#include "model/exported_model.h"
#include "model/layers.h"

enum { MOST_LAYERS = 10000, MOST_FILTERS = 1 << 20, LARGEST_SIDE = 1 << 14, MESSAGE_SIZE = 1024, NAME_SIZE = 80 };

typedef enum layer_kind {
    LAYER_INPUT,
    LAYER_CONVOLUTION,
    LAYER_LINEAR,
    LAYER_BATCH_NORM,
    LAYER_RELU,
    LAYER_GELU,
    LAYER_MAX_POOL,
    LAYER_AVERAGE_POOL,
    LAYER_ADAPTIVE_POOL,
    LAYER_FLATTEN,
    LAYER_DROPOUT,
    LAYER_ADD,
    LAYER_CONCAT
} layer_kind;

typedef struct network_layer {
    layer_kind kind;
    char name[NAME_SIZE]; /* "" for layers without parameters */
    fth_layer inputs[2];
    int input_count;
    int size;                    /* filters, outputs; height of an adaptive pooling */
    int kernel, stride, padding; /* kernel: width of an adaptive pooling */
    bool bias;
    double probability;

    fth_value value; /* in the network's own graph */
    int readers;     /* layers that read this one */
} network_layer;

struct fth_network {
    char *name;
    fth_model model;
    const fth_model *exported; /* of a network from a file: used instead, and there are no layers */
    fth_graph *graph;          /* for checking */
    network_layer *layers;
    size_t count, capacity;
    fth_layer output; /* FTH_NO_LAYER: not finished */

    fth_status failure; /* the first */
    char message[MESSAGE_SIZE];
};

/* ---- graphs ---- */

static bool takes_relu(layer_kind kind)
{
    return kind == LAYER_CONVOLUTION || kind == LAYER_LINEAR || kind == LAYER_BATCH_NORM || kind == LAYER_ADD;
}

/* Adds one layer to a graph; x are the values of its inputs. `relu`: with a ReLU behind it. */
static fth_status add_to_graph(fth_graph *graph, const fth_model_options *options, const network_layer *layer,
                               bool relu, const fth_value *x, fth_value *y)
{
    const fth_pool_attributes pool = {.kernel = {layer->kernel, layer->kernel},
                                      .stride = {layer->stride, layer->stride},
                                      .padding = {layer->padding, layer->padding},
                                      .count_padding = true};
    const fth_layer_convolution_options convolution = {.filters = layer->size,
                                                       .kernel = layer->kernel,
                                                       .stride = layer->stride,
                                                       .padding = layer->padding,
                                                       .bias = layer->bias,
                                                       .relu = relu};
    switch (layer->kind) {
    case LAYER_INPUT: break; /* is there */
    case LAYER_CONVOLUTION: return fth_layer_convolution(graph, layer->name, convolution, x[0], y);
    case LAYER_LINEAR: return fth_layer_linear(graph, layer->name, layer->size, relu, FTH_LAYER_DEFAULT, x[0], y);
    case LAYER_BATCH_NORM: return fth_layer_batch_norm(graph, layer->name, relu, FTH_NO_VALUE, x[0], y);
    case LAYER_RELU: return fth_op_add_relu(graph, x[0], y);
    case LAYER_GELU: return fth_op_add_gelu(graph, x[0], y);
    case LAYER_MAX_POOL: return fth_op_add_max_pool(graph, pool, x[0], y);
    case LAYER_AVERAGE_POOL: return fth_op_add_average_pool(graph, pool, x[0], y);
    case LAYER_ADAPTIVE_POOL: return fth_op_add_adaptive_average_pool(graph, layer->size, layer->kernel, x[0], y);
    case LAYER_FLATTEN: return fth_op_add_flatten(graph, x[0], y);
    case LAYER_DROPOUT: return fth_layer_dropout(graph, options, (float)layer->probability, x[0], y);
    case LAYER_ADD: return fth_op_add_add(graph, relu, x[0], x[1], y);
    case LAYER_CONCAT: return fth_op_add_concat(graph, 1, x, 2, y);
    }
    return fth_fail(FTH_INVALID, "unknown kind of layer");
}

static fth_status check_fit(const fth_model *model, const fth_model_options *options)
{
    if (options->channels == model->channels && options->height == model->height && options->width == model->width &&
        options->classes == model->classes)
        return FTH_OK;
    return fth_fail(FTH_INVALID,
                    "the network %s is for images of %d×%d×%d (channels × height × width) and %d classes, and the "
                    "data has %d×%d×%d and %d",
                    model->name, model->channels, model->height, model->width, model->classes, options->channels,
                    options->height, options->width, options->classes);
}

/* The ReLU that is to become part of layer `i`, or 0: there is none. */
static size_t find_relu(const fth_network *network, size_t i)
{
    if (!takes_relu(network->layers[i].kind) || network->layers[i].readers != 1 || network->output == (fth_layer)i)
        return 0;
    for (size_t j = i + 1; j < network->count; j++)
        if (network->layers[j].input_count > 0 && network->layers[j].inputs[0] == (fth_layer)i)
            return network->layers[j].kind == LAYER_RELU ? j : 0;
    return 0;
}

static fth_status build_network(const fth_model *model, fth_graph *graph, const fth_model_options *options,
                                fth_value images, fth_value *logits)
{
    fth_status status = FTH_OK;
    const fth_network *network = model->details;
    fth_value *values = NULL;

    FTH_TRY(check_fit(model, options));
    FTH_TRY(fth_allocate(network->count, sizeof *values, &values));
    values[0] = images;
    for (size_t i = 1; i < network->count; i++)
        values[i] = FTH_NO_VALUE;
    for (size_t i = 1; i < network->count; i++) {
        const network_layer *layer = &network->layers[i];
        if (values[i] != FTH_NO_VALUE) /* a ReLU that the layer before it has done */
            continue;
        fth_value x[2] = {FTH_NO_VALUE, FTH_NO_VALUE};
        for (int j = 0; j < layer->input_count; j++)
            x[j] = values[layer->inputs[j]];
        size_t relu = find_relu(network, i);
        FTH_TRY(add_to_graph(graph, options, layer, relu != 0, x, &values[i]));
        if (relu != 0)
            values[relu] = values[i];
    }
    *logits = values[network->output];

out:
    free(values);
    return status;
}

/* ---- building ---- */

/* Keeps the first failure, for fth_network_finish(). */
static fth_layer fail(fth_network *network, fth_status status)
{
    if (network->failure == FTH_OK) {
        network->failure = status;
        snprintf(network->message, sizeof network->message, "%s", fth_error_message());
    }
    return FTH_NO_LAYER;
}

static fth_status check_inputs(const fth_network *network, const network_layer *layer)
{
    if (network->output != FTH_NO_LAYER)
        return fth_fail(FTH_INVALID, "the network %s is finished; nothing can be added to it", network->name);
    for (int i = 0; i < layer->input_count; i++)
        if (layer->inputs[i] < 0 || (size_t)layer->inputs[i] >= network->count)
            return fth_fail(FTH_INVALID, "%d is not a layer of the network %s", layer->inputs[i], network->name);
    if (network->count >= MOST_LAYERS)
        return fth_fail(FTH_INVALID, "the network %s has more than %d layers", network->name, MOST_LAYERS);
    return FTH_OK;
}

static fth_status check_range(const network_layer *layer, const char *what, int value, int smallest, int largest)
{
    if (value >= smallest && value <= largest)
        return FTH_OK;
    return fth_fail(FTH_INVALID, "layer %s: %s %d is not in %d to %d", *layer->name ? layer->name : "pooling", what,
                    value, smallest, largest);
}

static fth_status check_windows(const network_layer *layer)
{
    fth_status status = FTH_OK;
    FTH_TRY(check_range(layer, "kernel", layer->kernel, 1, LARGEST_SIDE));
    FTH_TRY(check_range(layer, "stride", layer->stride, 1, LARGEST_SIDE));
    FTH_TRY(check_range(layer, "padding", layer->padding, 0, LARGEST_SIDE));

out:
    return status;
}

static fth_status check_rank(const network_layer *layer, const fth_shape *x, int rank)
{
    if (x->rank == rank)
        return FTH_OK;
    return fth_fail(FTH_INVALID, "layer %s: its input is %s", *layer->name ? layer->name : "pooling",
                    rank == 2 ? "images; flatten them first" : "flat; it takes images (channels, height, width)");
}

static fth_status check_weights(const network_layer *layer, const fth_shape *x)
{
    const double most = 2e9, area = layer->kind == LAYER_CONVOLUTION ? (double)layer->kernel * layer->kernel : 1;
    const double weights = (double)layer->size * (double)x->dims[1] * area;
    if (weights <= most)
        return FTH_OK;
    return fth_fail(FTH_INVALID, "layer %s: %.3g weights; at most %.3g are possible", layer->name, weights, most);
}

/* What the rules of ops take for granted. */
static fth_status check_sizes(const fth_network *network, const network_layer *layer)
{
    fth_status status = FTH_OK;
    const fth_shape x = fth_graph_value(network->graph, network->layers[layer->inputs[0]].value)->type.shape;

    switch (layer->kind) {
    case LAYER_CONVOLUTION:
        FTH_TRY(check_rank(layer, &x, 4));
        FTH_TRY(check_range(layer, "the number of filters", layer->size, 1, MOST_FILTERS));
        FTH_TRY(check_windows(layer));
        FTH_TRY(check_weights(layer, &x));
        break;
    case LAYER_LINEAR:
        FTH_TRY(check_rank(layer, &x, 2));
        FTH_TRY(check_range(layer, "the number of outputs", layer->size, 1, MOST_FILTERS));
        FTH_TRY(check_weights(layer, &x));
        break;
    case LAYER_BATCH_NORM: FTH_TRY(check_rank(layer, &x, 4)); break;
    case LAYER_MAX_POOL:
    case LAYER_AVERAGE_POOL:
        FTH_TRY(check_rank(layer, &x, 4));
        FTH_TRY(check_windows(layer));
        break;
    case LAYER_ADAPTIVE_POOL:
        FTH_TRY(check_rank(layer, &x, 4));
        FTH_TRY(check_range(layer, "the height", layer->size, 1, LARGEST_SIDE));
        FTH_TRY(check_range(layer, "the width", layer->kernel, 1, LARGEST_SIDE));
        break;
    default: break;
    }

out:
    return status;
}

static fth_status check_layer_name(const fth_network *network, const char *name)
{
    fth_status status = fth_api_check_name("a layer's name", name);
    for (size_t i = 0; status == FTH_OK && i < network->count; i++)
        if (strcmp(network->layers[i].name, name) == 0)
            status = fth_fail(FTH_INVALID, "the network %s already has a layer named %s", network->name, name);
    return status;
}

static fth_layer add_layer(fth_network *network, network_layer layer, const char *name)
{
    fth_status status = FTH_OK;

    if (!network || network->failure != FTH_OK)
        return FTH_NO_LAYER;
    if (name) {
        FTH_TRY(check_layer_name(network, name));
        snprintf(layer.name, sizeof layer.name, "%s", name);
    }
    FTH_TRY(check_inputs(network, &layer));
    FTH_TRY(check_sizes(network, &layer));
    fth_value x[2] = {FTH_NO_VALUE, FTH_NO_VALUE};
    for (int i = 0; i < layer.input_count; i++)
        x[i] = network->layers[layer.inputs[i]].value;
    FTH_TRY(add_to_graph(network->graph, &(fth_model_options){0}, &layer, false, x, &layer.value));
    FTH_TRY(fth_grow(&network->layers, network->count, &network->capacity, sizeof *network->layers));
    for (int i = 0; i < layer.input_count; i++)
        network->layers[layer.inputs[i]].readers++;
    network->layers[network->count++] = layer;

out:
    return status == FTH_OK ? (fth_layer)(network->count - 1) : fail(network, status);
}

fth_status fth_network_create(const char *name, int channels, int height, int width, fth_network **result)
{
    fth_status status = FTH_OK;
    fth_network *network = NULL;
    const fth_model *built_in = NULL;
    network_layer input = {.kind = LAYER_INPUT};
    fth_value labels;

    FTH_TRY(fth_api_check_not_null(result, "the place for the network"));
    *result = NULL;
    FTH_TRY(fth_api_check_name("the network's name", name));
    FTH_REQUIRE(fth_model_find(name, &built_in) != FTH_OK, FTH_INVALID,
                "%s is the name of a built-in model; give your network another", name);
    FTH_REQUIRE(channels >= 1 && height >= 1 && width >= 1 && channels <= FTH_MAX_CHANNELS && height <= LARGEST_SIDE &&
                    width <= LARGEST_SIDE,
                FTH_INVALID, "the network %s cannot be for images of %d×%d×%d (channels × height × width)", name,
                channels, height, width);
    FTH_TRY(fth_allocate(1, sizeof *network, &network));
    network->output = FTH_NO_LAYER;
    network->name = fth_format("%s", name);
    FTH_REQUIRE(network->name, FTH_NO_MEMORY, "no memory for a network");
    network->model = (fth_model){.name = network->name,
                                 .summary = "a network of this program's own",
                                 .channels = channels,
                                 .height = height,
                                 .width = width,
                                 .build = build_network,
                                 .details = network};
    FTH_TRY(fth_graph_create(&network->graph));
    FTH_TRY(fth_graph_add_input(network->graph, "images", FTH_F32, FTH_SHAPE(FTH_BATCH, channels, height, width),
                                &input.value));
    FTH_TRY(fth_graph_add_input(network->graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels));
    FTH_TRY(fth_grow(&network->layers, 0, &network->capacity, sizeof *network->layers));
    network->layers[network->count++] = input;
    *result = network;
    network = NULL;

out:
    fth_network_free(network);
    return status;
}

fth_status fth_network_open(const char *path, fth_network **result)
{
    fth_status status = FTH_OK;
    fth_network *network = NULL;

    FTH_TRY(fth_api_check_not_null(result, "the place for the network"));
    *result = NULL;
    FTH_REQUIRE(path && fth_exported_model_is_name(path), FTH_INVALID,
                "%s is not the name of a network that PyTorch exported: NAME.pt2", path ? path : "NULL");
    FTH_TRY(fth_allocate(1, sizeof *network, &network));
    network->output = 0; /* finished */
    network->name = fth_format("%s", path);
    FTH_REQUIRE(network->name, FTH_NO_MEMORY, "no memory for a network");
    FTH_TRY(fth_exported_model_open(path, &network->exported));
    *result = network;
    network = NULL;

out:
    fth_network_free(network);
    return status;
}

void fth_network_free(fth_network *network)
{
    if (!network)
        return;
    fth_graph_free(network->graph);
    free(network->layers);
    free(network->name);
    free(network);
}

fth_layer fth_network_input(fth_network *network)
{
    return network ? 0 : FTH_NO_LAYER;
}

/* A layer that reads x, of a kind with nothing else to say. */
static network_layer reading(layer_kind kind, fth_layer x)
{
    return (network_layer){.kind = kind, .inputs = {x}, .input_count = 1};
}

static network_layer windows(layer_kind kind, fth_layer x, int kernel, int stride, int padding)
{
    network_layer layer = reading(kind, x);
    layer.kernel = kernel;
    layer.stride = stride;
    layer.padding = padding;
    return layer;
}

fth_layer fth_network_convolution(fth_network *network, fth_layer x, const char *name, int filters, int kernel,
                                  int stride, int padding)
{
    network_layer layer = windows(LAYER_CONVOLUTION, x, kernel, stride, padding);
    layer.size = filters;
    layer.bias = true;
    return add_layer(network, layer, name ? name : "");
}

fth_layer fth_network_convolution_without_bias(fth_network *network, fth_layer x, const char *name, int filters,
                                               int kernel, int stride, int padding)
{
    network_layer layer = windows(LAYER_CONVOLUTION, x, kernel, stride, padding);
    layer.size = filters;
    return add_layer(network, layer, name ? name : "");
}

fth_layer fth_network_linear(fth_network *network, fth_layer x, const char *name, int outputs)
{
    network_layer layer = reading(LAYER_LINEAR, x);
    layer.size = outputs;
    return add_layer(network, layer, name ? name : "");
}

fth_layer fth_network_batch_norm(fth_network *network, fth_layer x, const char *name)
{
    return add_layer(network, reading(LAYER_BATCH_NORM, x), name ? name : "");
}

fth_layer fth_network_relu(fth_network *network, fth_layer x)
{
    return add_layer(network, reading(LAYER_RELU, x), NULL);
}

fth_layer fth_network_gelu(fth_network *network, fth_layer x)
{
    return add_layer(network, reading(LAYER_GELU, x), NULL);
}

fth_layer fth_network_max_pool(fth_network *network, fth_layer x, int kernel, int stride, int padding)
{
    return add_layer(network, windows(LAYER_MAX_POOL, x, kernel, stride, padding), NULL);
}

fth_layer fth_network_average_pool(fth_network *network, fth_layer x, int kernel, int stride, int padding)
{
    return add_layer(network, windows(LAYER_AVERAGE_POOL, x, kernel, stride, padding), NULL);
}

fth_layer fth_network_adaptive_average_pool(fth_network *network, fth_layer x, int height, int width)
{
    network_layer layer = reading(LAYER_ADAPTIVE_POOL, x);
    layer.size = height;
    layer.kernel = width;
    return add_layer(network, layer, NULL);
}

fth_layer fth_network_flatten(fth_network *network, fth_layer x)
{
    return add_layer(network, reading(LAYER_FLATTEN, x), NULL);
}

fth_layer fth_network_dropout(fth_network *network, fth_layer x, double probability)
{
    network_layer layer = reading(LAYER_DROPOUT, x);
    layer.probability = probability;
    if (network && network->failure == FTH_OK && !(probability >= 0 && probability < 1))
        return fail(network,
                    fth_fail(FTH_INVALID, "dropout: a probability of %g; it must be in 0 to below 1", probability));
    return add_layer(network, layer, NULL);
}

fth_layer fth_network_add(fth_network *network, fth_layer a, fth_layer b)
{
    return add_layer(network, (network_layer){.kind = LAYER_ADD, .inputs = {a, b}, .input_count = 2}, NULL);
}

fth_layer fth_network_concat(fth_network *network, fth_layer a, fth_layer b)
{
    return add_layer(network, (network_layer){.kind = LAYER_CONCAT, .inputs = {a, b}, .input_count = 2}, NULL);
}

fth_status fth_network_finish(fth_network *network, fth_layer logits)
{
    fth_status status = FTH_OK;
    const network_layer reader = {.inputs = {logits}, .input_count = 1};

    FTH_TRY(fth_api_check_not_null(network, "network"));
    if (network->failure != FTH_OK)
        return fth_fail(network->failure, "%s", network->message);
    FTH_TRY(check_inputs(network, &reader));
    const fth_shape shape = fth_graph_value(network->graph, network->layers[logits].value)->type.shape;
    FTH_REQUIRE(shape.rank == 2 && shape.dims[1] >= 2 && shape.dims[1] <= MOST_FILTERS, FTH_INVALID,
                "the output of the network %s must be (batch, classes), with 2 classes or more: end it with a linear "
                "layer",
                network->name);
    FTH_REQUIRE(fth_graph_value(network->graph, network->layers[logits].value)->needs_gradient, FTH_INVALID,
                "the network %s has nothing to train", network->name);
    network->model.classes = (int)shape.dims[1];
    network->output = logits;

out:
    return status;
}

fth_status fth_api_network_model(const fth_network *network, const fth_model **model)
{
    fth_status status = fth_api_check_not_null(network, "network");
    if (status != FTH_OK)
        return status;
    *model = network->exported ? network->exported : &network->model;
    if (network->output != FTH_NO_LAYER)
        return FTH_OK;
    return fth_fail(FTH_INVALID, "the network %s is not finished: call fth_network_finish() first", network->name);
}
