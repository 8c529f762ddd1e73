/* Every op on every back end: the reference against central differences, the others against the
 * reference, in training and in evaluation, on odd sizes. A new op gets rows here, and a build
 * function unless it is an activation. */
#include "backend/kernel.h"
#include "op_harness.h"

#include <math.h>

/* One network: the op's input is (batch, channels, height, width). Fields that an op does not use
 * stay zero. */
typedef struct op_case {
    const char *name;
    fth_status (*build)(fth_graph *graph, const struct op_case *with, fth_value x, fth_value *y);
    int batch, channels, height, width;
    int outputs;   /* convolution, linear: output channels or features */
    int kernel[2]; /* convolution */
    bool bias, relu, residual, kinks;
    bool fixed; /* batch norm by its running statistics */
    fth_convolution_attributes convolution;
    fth_pool_attributes pool;
    int output[2];         /* adaptive pooling */
    int output_padding[2]; /* transposed convolution */
    fth_resize_attributes resize;
    fth_status (*activation)(fth_graph *graph, fth_value x, fth_value *y);
    float probability, label_smoothing;
} op_case;

enum { IMAGE_CHANNELS = 3, CLASSES = 5 };

/* ---- building ---- */

static fth_initializer uniform(int64_t fan_in)
{
    double bound = 1;
    while (bound * bound * (double)fan_in > 3)
        bound *= 0.8;
    return (fth_initializer){FTH_INIT_UNIFORM, bound};
}

static const fth_initializer zero = {FTH_INIT_CONSTANT, 0}, one = {FTH_INIT_CONSTANT, 1};

static const fth_shape *shape_of(const fth_graph *graph, fth_value value)
{
    return &fth_graph_value(graph, value)->type.shape;
}

static fth_status flatten(fth_graph *graph, fth_value x, fth_value *y)
{
    *y = x;
    return shape_of(graph, x)->rank == 2 ? FTH_OK : fth_op_add_flatten(graph, x, y);
}

static fth_status add_convolution(fth_graph *graph, const char *name, fth_convolution_attributes attributes,
                                  int outputs, const int kernel[2], bool bias, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    char text[64];
    fth_value weight, shift = FTH_NO_VALUE;
    int64_t channels = shape_of(graph, x)->dims[1] / attributes.groups;

    snprintf(text, sizeof text, "%s.weight", name);
    FTH_TRY(fth_graph_add_parameter(graph, text, FTH_SHAPE(outputs, channels, kernel[0], kernel[1]),
                                    uniform(channels * kernel[0] * kernel[1]), &weight));
    snprintf(text, sizeof text, "%s.bias", name);
    if (bias)
        FTH_TRY(fth_graph_add_parameter(graph, text, FTH_SHAPE(outputs), zero, &shift));
    FTH_TRY(fth_op_add_convolution(graph, attributes, x, weight, shift, y));
out:
    return status;
}

static fth_status add_linear(fth_graph *graph, const char *name, int outputs, bool bias, bool relu, fth_value x,
                             fth_value *y)
{
    fth_status status = FTH_OK;
    char text[64];
    fth_value weight, shift = FTH_NO_VALUE;
    int64_t features;

    FTH_TRY(flatten(graph, x, &x));
    features = shape_of(graph, x)->dims[1];
    snprintf(text, sizeof text, "%s.weight", name);
    FTH_TRY(fth_graph_add_parameter(graph, text, FTH_SHAPE(outputs, features), uniform(features), &weight));
    snprintf(text, sizeof text, "%s.bias", name);
    if (bias)
        FTH_TRY(fth_graph_add_parameter(graph, text, FTH_SHAPE(outputs), zero, &shift));
    FTH_TRY(fth_op_add_linear(graph, relu, x, weight, shift, y));
out:
    return status;
}

static const fth_convolution_attributes dense = {.stride = {1, 1}, .padding = {0, 0}, .dilation = {1, 1}, .groups = 1};

/* A second path of the same shape as `x`, for ops that take two. */
static fth_status add_branch(fth_graph *graph, const char *name, int outputs, fth_value x, fth_value *y)
{
    return add_convolution(graph, name, dense, outputs, (const int[]){1, 1}, true, x, y);
}

/* images -> 1x1 convolution -> the op -> linear -> loss */
static void build_network(const op_case *with, op_network *network)
{
    fth_graph *graph = NULL;
    fth_value images, labels, x, y, logits, loss;

    op_check(fth_graph_create(&graph));
    op_check(fth_graph_add_input(graph, "images", FTH_F32,
                                 FTH_SHAPE(FTH_BATCH, IMAGE_CHANNELS, with->height, with->width), &images));
    op_check(fth_graph_add_input(graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels));
    op_check(add_branch(graph, "front", with->channels, images, &x));
    op_check(with->build(graph, with, x, &y));
    op_check(flatten(graph, y, &y));
    int64_t features = shape_of(graph, y)->dims[1];
    op_check(add_linear(graph, "head", CLASSES, true, false, y, &logits));
    op_check(fth_op_add_softmax_cross_entropy(graph, with->label_smoothing, logits, labels, &loss));
    fth_graph_set_outputs(graph, logits, loss);
    op_check(fth_graph_differentiate(graph));

    op_network_create(network, graph, with->batch, 5);
    op_network_randomize(network, 5);
    network->label_smoothing = with->label_smoothing;
    network->kinks = with->kinks || with->relu;
    network->reduction = (int64_t)with->batch * with->height * with->width;
    int64_t window = (int64_t)with->channels * with->kernel[0] * with->kernel[1];
    network->reduction = features > network->reduction ? features : network->reduction;
    network->reduction = window > network->reduction ? window : network->reduction;
}

/* ---- the ops ---- */

static fth_convolution_attributes complete(const op_case *with)
{
    fth_convolution_attributes attributes = with->convolution;
    for (int axis = 0; axis < 2; axis++) {
        attributes.stride[axis] = attributes.stride[axis] > 0 ? attributes.stride[axis] : 1;
        attributes.dilation[axis] = attributes.dilation[axis] > 0 ? attributes.dilation[axis] : 1;
    }
    attributes.groups = attributes.groups > 0 ? attributes.groups : 1;
    attributes.relu = with->relu;
    return attributes;
}

static fth_status build_convolution(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    return add_convolution(graph, "op", complete(with), with->outputs, with->kernel, with->bias, x, y);
}

static fth_status build_transposed(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    const fth_convolution_attributes attributes = complete(with);
    const int64_t channels = shape_of(graph, x)->dims[1], outputs = with->outputs / attributes.groups;
    fth_value weight, shift = FTH_NO_VALUE;

    FTH_TRY(fth_graph_add_parameter(graph, "op.weight", FTH_SHAPE(channels, outputs, with->kernel[0], with->kernel[1]),
                                    uniform(outputs * with->kernel[0] * with->kernel[1]), &weight));
    if (with->bias)
        FTH_TRY(fth_graph_add_parameter(graph, "op.bias", FTH_SHAPE(with->outputs), zero, &shift));
    FTH_TRY(fth_op_add_transposed_convolution(graph, attributes, with->output_padding, x, weight, shift, y));
out:
    return status;
}

static fth_status build_resize(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    return fth_op_add_resize(graph, with->resize, x, y);
}

static fth_status build_linear(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    return add_linear(graph, "op", with->outputs, with->bias, with->relu, x, y);
}

static fth_status build_batch_norm(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_value scale, shift, mean, variance, residual = FTH_NO_VALUE;
    const fth_batch_norm_attributes attributes = {
        .epsilon = 1e-5f, .momentum = 0.1f, .relu = with->relu, .residual = with->residual, .fixed = with->fixed};

    if (with->residual)
        FTH_TRY(add_branch(graph, "branch", with->channels, x, &residual));
    FTH_TRY(fth_graph_add_parameter(graph, "op.weight", FTH_SHAPE(with->channels), one, &scale));
    FTH_TRY(fth_graph_add_parameter(graph, "op.bias", FTH_SHAPE(with->channels), zero, &shift));
    FTH_TRY(fth_graph_add_buffer(graph, "op.running_mean", FTH_SHAPE(with->channels), zero, &mean));
    FTH_TRY(fth_graph_add_buffer(graph, "op.running_var", FTH_SHAPE(with->channels), one, &variance));
    FTH_TRY(fth_op_add_batch_norm(graph, attributes, x, scale, shift, mean, variance, residual, y));
out:
    return status;
}

/* What most networks are made of: layouts must survive from op to op. */
static fth_status build_block(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_value wide;
    fth_convolution_attributes same = dense;

    same.padding[0] = same.padding[1] = 1;
    FTH_TRY(add_convolution(graph, "first", same, with->channels, (const int[]){3, 3}, false, x, &wide));
    FTH_TRY(build_batch_norm(graph, with, wide, &wide));
    FTH_TRY(add_convolution(graph, "second", same, with->channels, (const int[]){3, 3}, true, wide, &wide));
    FTH_TRY(fth_op_add_add(graph, with->relu, wide, x, &wide));
    FTH_TRY(fth_op_add_max_pool(graph, with->pool, wide, y));
out:
    return status;
}

/* The same depth without kinks, so that nothing but rounding is between two back ends. */
static fth_status build_smooth_block(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_value wide;
    fth_convolution_attributes same = dense;

    same.padding[0] = same.padding[1] = 1;
    FTH_TRY(add_convolution(graph, "first", same, with->channels, (const int[]){3, 3}, false, x, &wide));
    FTH_TRY(build_batch_norm(graph, with, wide, &wide));
    FTH_TRY(fth_op_add_gelu(graph, wide, &wide));
    FTH_TRY(add_convolution(graph, "second", same, with->channels, (const int[]){3, 3}, true, wide, &wide));
    FTH_TRY(fth_op_add_add(graph, false, wide, x, &wide));
    FTH_TRY(fth_op_add_average_pool(graph, with->pool, wide, y));
out:
    return status;
}

static fth_status build_activation(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    return with->activation(graph, x, y);
}

static fth_status build_flat_activation(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    FTH_TRY(add_linear(graph, "op", with->outputs, true, false, x, &x));
    FTH_TRY(with->activation(graph, x, y));
out:
    return status;
}

static fth_status build_max_pool(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    return fth_op_add_max_pool(graph, with->pool, x, y);
}

/* Back ends may compute the two as one. */
static fth_status build_pooled_convolution(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    FTH_TRY(build_convolution(graph, with, x, &x));
    FTH_TRY(fth_op_add_max_pool(graph, with->pool, x, y));
out:
    return status;
}

/* Back ends may compute the gradient of the two as one. */
static fth_status build_relu_convolution(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_op_add_relu(graph, x, &x));
    FTH_TRY(build_convolution(graph, with, x, y));
out:
    return status;
}

/* Back ends may compute the last gradients of x and their sum as one. */
static fth_status build_branches(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_convolution_attributes attributes = dense;
    fth_value first, second;
    for (int axis = 0; axis < 2; axis++)
        attributes.stride[axis] = with->convolution.stride[axis];
    FTH_TRY(add_convolution(graph, "first", attributes, with->outputs, with->kernel, false, x, &first));
    FTH_TRY(add_convolution(graph, "second", attributes, with->outputs, with->kernel, true, x, &second));
    FTH_TRY(fth_op_add_add(graph, false, first, second, &first));
    FTH_TRY(add_convolution(graph, "third", attributes, with->outputs, with->kernel, false, x, &second));
    FTH_TRY(fth_op_add_add(graph, false, first, second, y));
out:
    return status;
}

/* Here they may not: the convolution has another reader. */
static fth_status build_convolution_pooled_twice(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_value parts[2];
    FTH_TRY(build_convolution(graph, with, x, &x));
    FTH_TRY(fth_op_add_max_pool(graph, with->pool, x, &parts[0]));
    FTH_TRY(fth_op_add_average_pool(graph, with->pool, x, &parts[1]));
    FTH_TRY(fth_op_add_concat(graph, 1, parts, 2, y));
out:
    return status;
}

static fth_status build_average_pool(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    return fth_op_add_average_pool(graph, with->pool, x, y);
}

static fth_status build_adaptive_pool(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    return fth_op_add_adaptive_average_pool(graph, with->output[0], with->output[1], x, y);
}

static fth_status build_global_pool(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    (void)with;
    return fth_op_add_global_average_pool(graph, x, y);
}

static fth_status build_add(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_value other;
    FTH_TRY(add_branch(graph, "branch", with->channels, x, &other));
    FTH_TRY(fth_op_add_add(graph, with->relu, x, other, y));
out:
    return status;
}

/* A value added to itself: its gradient comes twice from one node. */
static fth_status build_add_self(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    return fth_op_add_add(graph, with->relu, x, x, y);
}

static fth_status build_concat(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_value parts[3] = {x};
    FTH_TRY(add_branch(graph, "branch1", with->outputs, x, &parts[1]));
    FTH_TRY(add_branch(graph, "branch2", 2, x, &parts[2]));
    FTH_TRY(fth_op_add_concat(graph, 1, parts, 3, y));
out:
    return status;
}

/* With the strided pooling of one element before it, the shortcut of CIFAR's ResNets. */
static fth_status build_pad(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    const fth_pool_attributes every_other = {.kernel = {1, 1}, .stride = {2, 2}};
    FTH_TRY(fth_op_add_average_pool(graph, every_other, x, &x));
    FTH_TRY(fth_op_add_pad(graph, (fth_pad_attributes){.axis = 1, .before = with->outputs, .after = with->outputs / 2},
                           x, y));
out:
    return status;
}

static fth_status build_flatten(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    (void)with;
    return fth_op_add_flatten(graph, x, y);
}

static fth_status build_dropout(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    return fth_op_add_dropout(graph, with->probability, x, y);
}

/* Two dropouts with different masks, the second on features. */
static fth_status build_two_dropouts(fth_graph *graph, const op_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_op_add_dropout(graph, with->probability, x, &x));
    FTH_TRY(add_linear(graph, "op", with->outputs, true, with->relu, x, &x));
    FTH_TRY(fth_op_add_dropout(graph, 0.5f, x, y));
out:
    return status;
}

/* ---- the cases ---- */

#define INPUT(n, c, h, w) .batch = (n), .channels = (c), .height = (h), .width = (w)
#define CONVOLUTION(n, c, h, w, o, kh, kw)                                                                             \
    .build = build_convolution, INPUT(n, c, h, w), .outputs = (o), .kernel = {(kh), (kw)}
#define TRANSPOSED(n, c, h, w, o, kh, kw)                                                                              \
    .build = build_transposed, INPUT(n, c, h, w), .outputs = (o), .kernel = {(kh), (kw)}
#define RESIZE(n, c, h, w, to_h, to_w, ...)                                                                            \
    .build = build_resize, INPUT(n, c, h, w), .resize = {.height = (to_h), .width = (to_w), __VA_ARGS__}
#define POOLED(n, c, h, w, o)                                                                                          \
    .build = build_pooled_convolution, INPUT(n, c, h, w), .outputs = (o), .kernel = {3, 3}, .kinks = true,             \
    .pool = {.kernel = {2, 2}, .stride = {2, 2}}
#define ACTIVATION(name)      .build = build_activation, .activation = fth_op_add_##name
#define FLAT_ACTIVATION(name) .build = build_flat_activation, .activation = fth_op_add_##name
#define POOL(k, s, p)         .pool = {.kernel = {(k), (k)}, .stride = {(s), (s)}, .padding = {(p), (p)}}

static const op_case cases[] = {
    {"convolution 3x3", CONVOLUTION(3, 3, 7, 9, 7, 3, 3)},
    {"convolution 3x3, bias", CONVOLUTION(3, 7, 8, 5, 17, 3, 3), .bias = true},
    {"convolution 3x3, padding 1", CONVOLUTION(8, 16, 9, 9, 16, 3, 3), .bias = true,
     .convolution = {.padding = {1, 1}}},
    {"convolution 3x3, padding 1, 32 to 32", CONVOLUTION(3, 32, 14, 14, 32, 3, 3), .convolution = {.padding = {1, 1}}},
    {"convolution 3x3, padding 1, 64 to 64", CONVOLUTION(8, 64, 8, 8, 64, 3, 3), .bias = true,
     .convolution = {.padding = {1, 1}}},
    {"convolution 3x3, padding 1, 17 to 3, relu", CONVOLUTION(3, 17, 6, 7, 3, 3, 3), .bias = true, .relu = true,
     .convolution = {.padding = {1, 1}}},
    {"convolution 3x3, relu, no bias", CONVOLUTION(8, 3, 7, 7, 16, 3, 3), .relu = true},
    {"convolution 3x3, relu, 32 to 64", CONVOLUTION(3, 32, 12, 12, 64, 3, 3), .bias = true, .relu = true},
    {"convolution 3x3, relu, 32 to 64, broken tiles", CONVOLUTION(5, 32, 15, 17, 64, 3, 3), .bias = true, .relu = true},
    {"convolution 3x3, padding 2 and 1, 48 to 112", CONVOLUTION(7, 48, 13, 11, 112, 3, 3), .bias = true,
     .convolution = {.padding = {2, 1}}},
    {"convolution 3x3, padding 0 and 3, 80 to 16", CONVOLUTION(7, 80, 11, 10, 16, 3, 3),
     .convolution = {.padding = {0, 3}}},
    {"convolution 3x3, padding 1, 80 to 176", CONVOLUTION(13, 80, 7, 6, 176, 3, 3), .bias = true,
     .convolution = {.padding = {1, 1}}},
    {"convolution 3x3, padding 1, 528 to 16, relu", CONVOLUTION(49, 528, 4, 3, 16, 3, 3), .relu = true,
     .convolution = {.padding = {1, 1}}},
    {"relu, convolution 3x3", .build = build_relu_convolution, INPUT(5, 32, 15, 17), .outputs = 64, .kernel = {3, 3},
     .kinks = true, .convolution = {.padding = {1, 0}}},
    {"convolution 3x3, max pool", POOLED(6, 32, 14, 14, 32), .bias = true},
    {"convolution 3x3, max pool, 16 to 16", POOLED(6, 16, 14, 14, 16), .bias = true},
    {"convolution 3x3, max pool, odd map, padding 1", POOLED(6, 16, 15, 13, 48), .convolution = {.padding = {1, 1}}},
    {"convolution 3x3, max pool, padding 2 and 0", POOLED(7, 32, 8, 15, 16), .bias = true,
     .convolution = {.padding = {2, 0}}},
    {"convolution 3x3, max pool, padding 1 and 0", POOLED(7, 32, 8, 15, 16), .bias = true,
     .convolution = {.padding = {1, 0}}},
    {"convolution 3x3, relu, max pool", POOLED(6, 32, 14, 14, 32), .bias = true, .relu = true},
    {"convolution 3x3, pooled twice", .build = build_convolution_pooled_twice, INPUT(6, 32, 14, 14), .outputs = 32,
     .kernel = {3, 3}, .bias = true, .kinks = true, POOL(2, 2, 0)},
    {"convolution 3x3, padding 1, on 2x2", CONVOLUTION(17, 32, 2, 2, 48, 3, 3), .bias = true,
     .convolution = {.padding = {1, 1}}},
    {"convolution 3x3, padding 1, on 3x2, relu", CONVOLUTION(9, 16, 3, 2, 16, 3, 3), .relu = true,
     .convolution = {.padding = {1, 1}}},
    {"convolution 3x3, padding 1, stride 2, on 4x4", CONVOLUTION(15, 48, 4, 4, 32, 3, 3), .bias = true,
     .convolution = {.padding = {1, 1}, .stride = {2, 2}}},
    {"convolution 3x3, padding 1, stride 2", CONVOLUTION(3, 32, 14, 14, 48, 3, 3),
     .convolution = {.padding = {1, 1}, .stride = {2, 2}}},
    {"convolution 3x3, padding 1, stride 2, 16x16, bias", CONVOLUTION(7, 16, 16, 16, 80, 3, 3), .bias = true,
     .convolution = {.padding = {1, 1}, .stride = {2, 2}}},
    {"convolution 3x3, stride 2, odd map, relu", CONVOLUTION(5, 48, 15, 17, 16, 3, 3), .bias = true, .relu = true,
     .convolution = {.stride = {2, 2}}},
    {"convolution 3x3, padding 0 and 1, stride 2, even and odd map", CONVOLUTION(3, 16, 12, 11, 64, 3, 3),
     .convolution = {.padding = {0, 1}, .stride = {2, 2}}},
    {"convolution 3x3, padding 2 and 3, stride 2, relu", CONVOLUTION(4, 80, 6, 5, 32, 3, 3), .relu = true,
     .convolution = {.padding = {2, 3}, .stride = {2, 2}}},
    {"convolution 3x3, padding 1, stride 2, on 3x4", CONVOLUTION(17, 32, 3, 4, 16, 3, 3), .bias = true,
     .convolution = {.padding = {1, 1}, .stride = {2, 2}}},
    {"convolution 3x3, padding 1, stride 2, more than a group", CONVOLUTION(27, 16, 22, 20, 16, 3, 3),
     .convolution = {.padding = {1, 1}, .stride = {2, 2}}},
    {"convolution 5x3, padding 3 and 2, stride 3 and 1, dilation 1 and 2", CONVOLUTION(8, 16, 10, 9, 80, 5, 3),
     .convolution = {.padding = {3, 2}, .stride = {3, 1}, .dilation = {1, 2}}},
    {"convolution 1x1", CONVOLUTION(8, 17, 5, 3, 32, 1, 1)},
    {"convolution 1x1, stride 2", CONVOLUTION(3, 16, 7, 6, 32, 1, 1), .convolution = {.stride = {2, 2}}},
    {"convolution 1x1, bias, relu", CONVOLUTION(3, 32, 9, 7, 80, 1, 1), .bias = true, .relu = true},
    {"convolution 1x1, 272 to 48", CONVOLUTION(2, 272, 5, 5, 48, 1, 1), .bias = true},
    {"convolution 1x1, 16 to 304, relu", CONVOLUTION(1, 16, 15, 16, 304, 1, 1), .relu = true},
    {"convolution 1x1, a batch of one pixel", CONVOLUTION(1, 48, 1, 1, 32, 1, 1), .bias = true},
    {"convolution 1x1, strides 3 and 2, bias", CONVOLUTION(5, 32, 8, 9, 48, 1, 1), .bias = true,
     .convolution = {.stride = {3, 2}}},
    {"convolution 1x1, stride 2 to 2x1", CONVOLUTION(7, 48, 3, 2, 16, 1, 1), .bias = true,
     .convolution = {.stride = {2, 2}}},
    {"convolution 1x1 of 2x1, 32 to 96", CONVOLUTION(33, 32, 2, 1, 96, 1, 1), .bias = true},
    {"convolution 1x1, branches", .build = build_branches, INPUT(3, 48, 5, 7), .outputs = 64, .kernel = {1, 1},
     .convolution = {.stride = {1, 1}}},
    {"convolution 1x1, branches, stride 2", .build = build_branches, INPUT(3, 32, 6, 7), .outputs = 16,
     .kernel = {1, 1}, .convolution = {.stride = {2, 2}}},
    {"convolution 1x1, branches of 1x1", .build = build_branches, INPUT(5, 32, 1, 1), .outputs = 16, .kernel = {1, 1},
     .convolution = {.stride = {1, 1}}},
    {"convolution 1x1, one channel", CONVOLUTION(3, 1, 4, 4, 1, 1, 1), .bias = true},
    {"convolution 1x1 of 1x1", CONVOLUTION(8, 7, 1, 1, 5, 1, 1), .bias = true},
    {"convolution 5x5", CONVOLUTION(3, 6, 12, 12, 16, 5, 5), .bias = true, .relu = true},
    {"convolution 3x3, few channels, wide rows", CONVOLUTION(3, 3, 5, 40, 7, 3, 3), .bias = true, .relu = true,
     .convolution = {.padding = {1, 1}}},
    {"convolution 5x5, few channels, two vectors and a rest", CONVOLUTION(2, 5, 7, 38, 13, 5, 5), .bias = true,
     .convolution = {.padding = {2, 1}}},
    {"convolution 7x3, few channels, padding up to the kernel", CONVOLUTION(3, 16, 9, 17, 15, 7, 3), .bias = true,
     .convolution = {.padding = {6, 2}}},
    {"convolution 5x5, batch 1", CONVOLUTION(1, 1, 9, 8, 6, 5, 5), .bias = true},
    {"convolution 7x7, stride 2, padding 3", CONVOLUTION(3, 3, 15, 17, 16, 7, 7),
     .convolution = {.stride = {2, 2}, .padding = {3, 3}}},
    {"convolution 3x3, stride 2, padding 1", CONVOLUTION(8, 16, 9, 8, 32, 3, 3), .bias = true,
     .convolution = {.stride = {2, 2}, .padding = {1, 1}}},
    {"convolution 3x1, uneven stride and padding", CONVOLUTION(3, 7, 8, 11, 5, 3, 1), .bias = true,
     .convolution = {.stride = {1, 3}, .padding = {2, 0}}},
    {"convolution 2x4", CONVOLUTION(1, 3, 6, 9, 17, 2, 4), .convolution = {.padding = {1, 2}}},
    {"convolution that leaves a rest, stride 3", CONVOLUTION(3, 3, 9, 10, 7, 2, 2), .convolution = {.stride = {3, 3}}},
    {"convolution dilation 2", CONVOLUTION(3, 16, 9, 10, 7, 3, 3), .bias = true,
     .convolution = {.dilation = {2, 2}, .padding = {2, 2}}},
    {"convolution dilation 3x1, stride 2", CONVOLUTION(3, 3, 12, 9, 17, 3, 3), .relu = true, .bias = true,
     .convolution = {.dilation = {3, 1}, .stride = {2, 2}, .padding = {1, 1}}},
    {"convolution 2 groups", CONVOLUTION(3, 16, 7, 7, 32, 3, 3), .bias = true,
     .convolution = {.groups = 2, .padding = {1, 1}}},
    {"convolution 3 groups of odd size", CONVOLUTION(3, 9, 6, 5, 15, 3, 3), .convolution = {.groups = 3}},
    {"convolution depthwise 16", CONVOLUTION(3, 16, 9, 9, 16, 3, 3), .bias = true,
     .convolution = {.groups = 16, .padding = {1, 1}}},
    {"convolution depthwise 7, stride 2, relu", CONVOLUTION(8, 7, 8, 7, 7, 3, 3), .bias = true, .relu = true,
     .convolution = {.groups = 7, .padding = {1, 1}, .stride = {2, 2}}},
    {"convolution depthwise 48, 12x13", CONVOLUTION(3, 48, 12, 13, 48, 3, 3), .bias = true,
     .convolution = {.groups = 48, .padding = {1, 1}}},
    {"convolution depthwise 24, one padded block, relu", CONVOLUTION(5, 24, 7, 7, 24, 3, 3), .bias = true, .relu = true,
     .convolution = {.groups = 24, .padding = {1, 1}}},
    {"convolution depthwise 32, stride 2", CONVOLUTION(4, 32, 14, 14, 32, 3, 3),
     .convolution = {.groups = 32, .padding = {1, 1}, .stride = {2, 2}}},
    {"convolution depthwise 40, stride 2, odd map, padding 0", CONVOLUTION(3, 40, 11, 8, 40, 3, 3), .bias = true,
     .convolution = {.groups = 40, .stride = {2, 2}}},
    {"convolution depthwise 16, strides 1 and 2, padding 2 and 3", CONVOLUTION(2, 16, 9, 10, 16, 3, 3),
     .convolution = {.groups = 16, .stride = {1, 2}, .padding = {2, 3}}},
    {"convolution depthwise 5x5", CONVOLUTION(3, 32, 7, 9, 32, 5, 5), .bias = true,
     .convolution = {.groups = 32, .padding = {2, 2}}},
    {"convolution depthwise 5x5, stride 2, relu", CONVOLUTION(3, 20, 15, 14, 20, 5, 5), .bias = true, .relu = true,
     .convolution = {.groups = 20, .padding = {2, 2}, .stride = {2, 2}}},
    {"convolution depthwise 7x7", CONVOLUTION(2, 32, 14, 15, 32, 7, 7), .bias = true,
     .convolution = {.groups = 32, .padding = {3, 3}}},
    {"convolution depthwise 7x7 on 4x3", CONVOLUTION(3, 16, 4, 3, 16, 7, 7), .bias = true,
     .convolution = {.groups = 16, .padding = {3, 3}}},
    {"convolution depthwise 7x3, stride 2", CONVOLUTION(3, 16, 13, 12, 16, 7, 3), .bias = true,
     .convolution = {.groups = 16, .padding = {3, 1}, .stride = {2, 2}}},
    {"convolution depthwise, dilation 2", CONVOLUTION(3, 32, 10, 9, 32, 3, 3), .bias = true,
     .convolution = {.groups = 32, .padding = {2, 2}, .dilation = {2, 2}}},
    {"convolution depthwise, dilation 3 and 2, stride 2", CONVOLUTION(3, 16, 13, 12, 16, 3, 3),
     .convolution = {.groups = 16, .padding = {2, 2}, .dilation = {3, 2}, .stride = {2, 2}}},
    {"convolution depthwise 4x2", CONVOLUTION(3, 16, 8, 9, 16, 4, 2), .convolution = {.groups = 16}},
    {"convolution depthwise, batch 1, 40x70", CONVOLUTION(1, 16, 40, 70, 16, 3, 3), .bias = true,
     .convolution = {.groups = 16, .padding = {1, 1}}},
    {"convolution depthwise, batch 70", CONVOLUTION(70, 16, 4, 4, 16, 3, 3), .bias = true,
     .convolution = {.groups = 16, .padding = {1, 1}}},
    {"convolution 8 groups of 4", CONVOLUTION(3, 32, 12, 13, 32, 3, 3), .bias = true,
     .convolution = {.groups = 8, .padding = {1, 1}}},
    {"convolution 10 groups of 4, stride 2, relu", CONVOLUTION(3, 40, 9, 10, 40, 3, 3), .bias = true, .relu = true,
     .convolution = {.groups = 10, .padding = {1, 1}, .stride = {2, 2}}},
    {"convolution 4 groups of 8", CONVOLUTION(5, 32, 7, 7, 32, 3, 3), .convolution = {.groups = 4, .padding = {1, 1}}},
    {"convolution 6 groups of 8, stride 2, padding 0", CONVOLUTION(3, 48, 8, 9, 48, 3, 3), .bias = true,
     .convolution = {.groups = 6, .stride = {2, 2}}},
    {"convolution 3 groups of 16", CONVOLUTION(3, 48, 8, 7, 48, 3, 3), .bias = true,
     .convolution = {.groups = 3, .padding = {1, 1}}},
    {"convolution 2 groups of 16, stride 2", CONVOLUTION(3, 32, 9, 8, 32, 3, 3),
     .convolution = {.groups = 2, .padding = {1, 1}, .stride = {2, 2}}},
    {"convolution 9 groups of 2", CONVOLUTION(3, 18, 6, 7, 18, 3, 3), .bias = true,
     .convolution = {.groups = 9, .padding = {1, 1}}},
    {"convolution 4 groups of 4, 5x5", CONVOLUTION(3, 16, 8, 7, 16, 5, 5), .bias = true,
     .convolution = {.groups = 4, .padding = {2, 2}}},
    {"convolution 8 groups of 4 to 8", CONVOLUTION(3, 32, 6, 7, 64, 3, 3), .convolution = {.groups = 8}},
    {"convolution depthwise with multiplier", CONVOLUTION(1, 3, 6, 6, 6, 3, 3), .convolution = {.groups = 3}},

    {"convolution 1x3 of one row", CONVOLUTION(3, 16, 1, 19, 24, 1, 3), .bias = true,
     .convolution = {.padding = {0, 1}}},
    {"convolution 1x5 of one row, stride 2, dilation 2", CONVOLUTION(5, 7, 1, 23, 9, 1, 5),
     .convolution = {.padding = {0, 3}, .stride = {1, 2}, .dilation = {1, 2}}},
    {"convolution 1x7 of one row, depthwise", CONVOLUTION(3, 16, 1, 19, 16, 1, 7),
     .convolution = {.padding = {0, 3}, .groups = 16}},

    {"transposed convolution 2x2, stride 2", TRANSPOSED(3, 16, 5, 6, 32, 2, 2), .convolution = {.stride = {2, 2}}},
    {"transposed convolution 3x3, stride 2, padding 1, output padding 1", TRANSPOSED(3, 32, 6, 5, 16, 3, 3),
     .convolution = {.stride = {2, 2}, .padding = {1, 1}}, .output_padding = {1, 1}},
    {"transposed convolution 4x4, stride 2, padding 1", TRANSPOSED(2, 7, 5, 4, 9, 4, 4),
     .convolution = {.stride = {2, 2}, .padding = {1, 1}}},
    {"transposed convolution 3x3, padding 1", TRANSPOSED(8, 32, 7, 7, 16, 3, 3), .convolution = {.padding = {1, 1}}},
    {"transposed convolution 3x2, uneven, dilation 2 and 1", TRANSPOSED(3, 5, 4, 6, 3, 3, 2),
     .convolution = {.stride = {3, 2}, .dilation = {2, 1}, .padding = {1, 0}}, .output_padding = {2, 0}},
    {"transposed convolution 1x1, 16 to 48", TRANSPOSED(3, 16, 5, 7, 48, 1, 1)},
    {"transposed convolution 3x3, 2 groups", TRANSPOSED(3, 16, 5, 5, 32, 3, 3),
     .convolution = {.stride = {2, 2}, .groups = 2}},
    {"transposed convolution 4x4, depthwise", TRANSPOSED(3, 16, 5, 5, 16, 4, 4),
     .convolution = {.stride = {2, 2}, .padding = {1, 1}, .groups = 16}},

    {"resize nearest, doubled", RESIZE(3, 16, 4, 5, 8, 10)},
    {"resize nearest, 5x7 to 8x3", RESIZE(3, 7, 5, 7, 8, 3)},
    {"resize nearest by 1.5", RESIZE(2, 3, 5, 7, 7, 10, .scale_factors = {1.5, 1.5})},
    {"resize nearest to its own size", RESIZE(2, 17, 5, 4, 5, 4)},
    {"resize bilinear, doubled", RESIZE(3, 16, 4, 5, 8, 10, .bilinear = true)},
    {"resize bilinear, 5x7 to 8x3", RESIZE(3, 7, 5, 7, 8, 3, .bilinear = true)},
    {"resize bilinear by 2.5, of one row", RESIZE(3, 5, 1, 9, 1, 22, .bilinear = true, .scale_factors = {1, 2.5})},
    {"resize bilinear, corners aligned", RESIZE(3, 32, 4, 5, 11, 7, .bilinear = true, .align_corners = true)},
    {"resize bilinear to 1x1, corners aligned", RESIZE(3, 3, 4, 5, 1, 1, .bilinear = true, .align_corners = true)},

    {"linear", .build = build_linear, INPUT(3, 7, 3, 3), .outputs = 17, .bias = true},
    {"linear, no bias", .build = build_linear, INPUT(8, 3, 5, 4), .outputs = 32},
    {"linear, relu", .build = build_linear, INPUT(8, 16, 4, 4), .outputs = 33, .bias = true, .relu = true},
    {"linear, relu, no bias, batch 1", .build = build_linear, INPUT(1, 1, 5, 3), .outputs = 1, .relu = true},
    {"linear, many features", .build = build_linear, INPUT(21, 7, 17, 19), .outputs = 80, .bias = true, .relu = true},
    {"linear, many features, no bias", .build = build_linear, INPUT(16, 16, 12, 11), .outputs = 128},
    {"linear, few rows, many weights", .build = build_linear, INPUT(5, 7, 17, 19), .outputs = 470, .bias = true,
     .relu = true},
    {"linear, 8 rows, many weights, no bias", .build = build_linear, INPUT(8, 16, 12, 11), .outputs = 499},
    {"linear, one row, many weights", .build = build_linear, INPUT(1, 16, 16, 8), .outputs = 513, .bias = true},
    {"linear, 40 rows", .build = build_linear, INPUT(40, 5, 4, 4), .outputs = 37, .bias = true, .relu = true},
    {"linear, 64 rows, no bias", .build = build_linear, INPUT(64, 16, 3, 3), .outputs = 48},
    {"linear, one feature", .build = build_linear, INPUT(3, 1, 1, 1), .outputs = 7, .bias = true},

    {"batch norm", .build = build_batch_norm, INPUT(8, 7, 5, 3)},
    {"batch norm 16", .build = build_batch_norm, INPUT(3, 16, 6, 6)},
    {"batch norm 17, relu", .build = build_batch_norm, INPUT(8, 17, 4, 5), .relu = true},
    {"batch norm 32, relu", .build = build_batch_norm, INPUT(3, 32, 7, 7), .relu = true},
    {"batch norm, residual", .build = build_batch_norm, INPUT(3, 16, 5, 5), .residual = true},
    {"batch norm, residual, relu", .build = build_batch_norm, INPUT(8, 16, 5, 7), .residual = true, .relu = true},
    {"batch norm 3, residual, relu", .build = build_batch_norm, INPUT(3, 3, 4, 3), .residual = true, .relu = true},
    {"batch norm, one channel, batch 1", .build = build_batch_norm, INPUT(1, 1, 7, 6)},
    {"batch norm of 1x1", .build = build_batch_norm, INPUT(8, 7, 1, 1), .relu = true},
    {"fixed batch norm", .build = build_batch_norm, INPUT(3, 7, 5, 6), .fixed = true},
    {"fixed batch norm 17, relu", .build = build_batch_norm, INPUT(3, 17, 4, 5), .relu = true, .fixed = true},
    {"fixed batch norm 16, residual, relu", .build = build_batch_norm, INPUT(8, 16, 5, 7), .residual = true,
     .relu = true, .fixed = true},

    {"block 16", .build = build_block, INPUT(3, 16, 8, 8), .relu = true, POOL(2, 2, 0)},
    {"block 17, residual", .build = build_block, INPUT(3, 17, 7, 9), .relu = true, .residual = true, POOL(3, 2, 1)},
    {"block 32", .build = build_block, INPUT(8, 32, 6, 6), .kinks = true, POOL(2, 2, 0)},
    {"smooth block 16", .build = build_smooth_block, INPUT(3, 16, 8, 8), POOL(2, 2, 0)},
    {"smooth block 17, residual", .build = build_smooth_block, INPUT(3, 17, 7, 9), .residual = true, POOL(3, 2, 1)},
    {"smooth block 32", .build = build_smooth_block, INPUT(8, 32, 6, 6), POOL(2, 2, 0)},

    {"relu", ACTIVATION(relu), INPUT(3, 7, 5, 5), .kinks = true},
    {"relu 16", ACTIVATION(relu), INPUT(8, 16, 3, 7), .kinks = true},
    {"gelu", ACTIVATION(gelu), INPUT(3, 7, 5, 5)},
    {"gelu 32", ACTIVATION(gelu), INPUT(8, 32, 3, 4)},
    {"gelu of features", FLAT_ACTIVATION(gelu), INPUT(3, 3, 4, 4), .outputs = 33},
    {"gelu by tanh", ACTIVATION(gelu_tanh), INPUT(3, 7, 5, 5)},
    {"gelu by tanh of features", FLAT_ACTIVATION(gelu_tanh), INPUT(3, 3, 4, 4), .outputs = 33},
    {"tanh", ACTIVATION(tanh), INPUT(3, 7, 5, 5)},
    {"tanh of features", FLAT_ACTIVATION(tanh), INPUT(3, 3, 4, 4), .outputs = 33},

    {"max pool 2", .build = build_max_pool, INPUT(3, 16, 8, 8), .kinks = true, POOL(2, 2, 0)},
    {"max pool 2 that leaves a rest", .build = build_max_pool, INPUT(3, 7, 7, 9), .kinks = true, POOL(2, 2, 0)},
    {"max pool 2 of wide rows", .build = build_max_pool, INPUT(2, 3, 5, 71), .kinks = true, POOL(2, 2, 0)},
    {"max pool 3, stride 2, padding 1", .build = build_max_pool, INPUT(8, 17, 9, 8), .kinks = true, POOL(3, 2, 1)},
    {"max pool 3, stride 1, overlapping", .build = build_max_pool, INPUT(1, 3, 6, 5), .kinks = true, POOL(3, 1, 0)},
    {"max pool 1x3", .build = build_max_pool, INPUT(3, 3, 5, 9), .kinks = true,
     .pool = {.kernel = {1, 3}, .stride = {1, 2}, .padding = {0, 1}}},
    {"average pool 2", .build = build_average_pool, INPUT(3, 16, 8, 8), POOL(2, 2, 0)},
    {"average pool 3, padding not counted", .build = build_average_pool, INPUT(3, 7, 7, 8), POOL(3, 2, 1)},
    {"average pool 3, padding counted", .build = build_average_pool, INPUT(8, 17, 7, 7),
     .pool = {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .count_padding = true}},
    {"average pool 3x2, uneven", .build = build_average_pool, INPUT(1, 3, 8, 9),
     .pool = {.kernel = {3, 2}, .stride = {1, 2}, .padding = {1, 0}, .count_padding = true}},
    {"max pool 3, stride 2, up", .build = build_max_pool, INPUT(3, 16, 8, 10), .kinks = true,
     .pool = {.kernel = {3, 3}, .stride = {2, 2}, .ceil = true}},
    {"max pool 2, up", .build = build_max_pool, INPUT(3, 3, 7, 5), .kinks = true,
     .pool = {.kernel = {2, 2}, .stride = {2, 2}, .ceil = true}},
    {"max pool 3, stride 2, padding 1, up", .build = build_max_pool, INPUT(3, 17, 8, 9), .kinks = true,
     .pool = {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .ceil = true}},
    {"max pool 2, stride 3, up", .build = build_max_pool, INPUT(3, 7, 6, 7), .kinks = true,
     .pool = {.kernel = {2, 2}, .stride = {3, 3}, .ceil = true}},
    {"convolution 3x3, max pool, up", .build = build_pooled_convolution, INPUT(6, 32, 15, 13), .outputs = 32,
     .kernel = {3, 3}, .kinks = true, .pool = {.kernel = {2, 2}, .stride = {2, 2}, .ceil = true}},
    {"average pool 3, stride 2, up", .build = build_average_pool, INPUT(3, 16, 8, 10),
     .pool = {.kernel = {3, 3}, .stride = {2, 2}, .ceil = true, .count_padding = true}},
    {"average pool 3, stride 2, padding 1, up", .build = build_average_pool, INPUT(3, 7, 8, 7),
     .pool = {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .ceil = true, .count_padding = true}},
    {"average pool 3x2, padding not counted, up", .build = build_average_pool, INPUT(3, 17, 8, 9),
     .pool = {.kernel = {3, 2}, .stride = {2, 2}, .padding = {1, 1}, .ceil = true}},
    {"adaptive pool to 1x1", .build = build_adaptive_pool, INPUT(3, 16, 7, 5), .output = {1, 1}},
    {"adaptive pool to 3x2", .build = build_adaptive_pool, INPUT(3, 7, 8, 7), .output = {3, 2}},
    {"adaptive pool to 7x7 from 3x3", .build = build_adaptive_pool, INPUT(3, 3, 3, 3), .output = {7, 7}},
    {"adaptive pool to its own size", .build = build_adaptive_pool, INPUT(3, 16, 7, 7), .output = {7, 7}},
    {"adaptive pool to 2x2 of 8x8", .build = build_adaptive_pool, INPUT(3, 17, 8, 8), .output = {2, 2}},
    {"global pool", .build = build_global_pool, INPUT(8, 32, 7, 7)},
    {"global pool of 3 channels", .build = build_global_pool, INPUT(1, 3, 5, 6)},

    {"add", .build = build_add, INPUT(3, 7, 5, 5)},
    {"add, relu", .build = build_add, INPUT(8, 16, 4, 3), .relu = true},
    {"add 17, relu", .build = build_add, INPUT(3, 17, 5, 5), .relu = true},
    {"add 80 to its 1x1 convolution, relu", .build = build_add, INPUT(3, 80, 5, 7), .relu = true},
    {"add to itself", .build = build_add_self, INPUT(3, 16, 5, 4)},
    {"add to itself, relu", .build = build_add_self, INPUT(3, 7, 5, 4), .relu = true},
    {"concat of odd sizes", .build = build_concat, INPUT(3, 7, 5, 4), .outputs = 17},
    {"concat of 16 and 32", .build = build_concat, INPUT(8, 16, 3, 5), .outputs = 32},
    {"pad of odd sizes", .build = build_pad, INPUT(3, 7, 5, 4), .outputs = 5},
    {"pad of 16 by 8", .build = build_pad, INPUT(4, 16, 8, 8), .outputs = 8},
    {"pad on one side", .build = build_pad, INPUT(2, 3, 1, 3), .outputs = 1},
    {"flatten", .build = build_flatten, INPUT(3, 17, 5, 4)},

    {"dropout 0.25", .build = build_dropout, INPUT(3, 7, 5, 5), .probability = 0.25f},
    {"dropout 0.5 of 16", .build = build_dropout, INPUT(8, 16, 4, 4), .probability = 0.5f},
    {"dropout 0", .build = build_dropout, INPUT(3, 3, 3, 3), .probability = 0},
    {"two dropouts", .build = build_two_dropouts, INPUT(3, 17, 4, 3), .outputs = 33, .probability = 0.25f,
     .relu = true},

    {"cross-entropy, smoothing 0.1", .build = build_flatten, INPUT(8, 3, 4, 4), .label_smoothing = 0.1f},
    {"cross-entropy, smoothing 0.5, batch 1", .build = build_flatten, INPUT(1, 3, 4, 4), .label_smoothing = 0.5f},
};

/* ---- the tests ---- */

static const fth_run plain_run = {.seed = 3, .step = 7, .gradient_scale = 1};

static void test_differences(void **state)
{
    const op_case *with = *state;
    op_network network;
    build_network(with, &network);
    int differences = op_check_differences(&network, op_device("reference"), with->name);
    op_network_free(&network);
    assert_int_equal(differences, 0);
}

static bool computes(const char *name, fth_precision precision)
{
    fth_device *device = op_device(name);
    return device && device->backend->check_precision(device, precision) == FTH_OK;
}

static int compare_with_reference(const op_network *network, fth_plan_mode mode, const op_result *wanted,
                                  const char *name, fth_precision precision, const char *case_name)
{
    static const char *const precisions[] = {"f32", "bf16", "f16", "tf32"}; /* by fth_precision */
    char who[160];
    op_result found;
    if (!computes(name, precision))
        return 0;
    snprintf(who, sizeof who, "%s on %s, %s, %s", case_name, name, precisions[precision],
             mode == FTH_PLAN_TRAIN ? "training" : "evaluation");
    op_run_once(network, op_device(name), mode, precision, &plain_run, &found);
    int differences = op_compare(network, &found, wanted, precision, who);
    op_result_free(&found);
    return differences;
}

/* In precisions from `first` to `last`, where a device has one of them. */
static void compare_devices(const op_case *with, fth_precision first, fth_precision last, const char *const *names,
                            size_t name_count)
{
    int differences = 0;
    bool any = false;
    op_network network;
    for (int precision = (int)first; precision <= (int)last; precision++)
        for (size_t i = 0; i < name_count; i++)
            any = any || computes(names[i], (fth_precision)precision);
    if (!any)
        return;
    build_network(with, &network);
    for (int mode = FTH_PLAN_TRAIN; mode <= FTH_PLAN_EVALUATE; mode++) {
        op_result wanted;
        op_run_once(&network, op_device("reference"), (fth_plan_mode)mode, FTH_PRECISION_F32, &plain_run, &wanted);
        for (int precision = (int)first; precision <= (int)last; precision++)
            for (size_t i = 0; i < name_count; i++)
                differences += compare_with_reference(&network, (fth_plan_mode)mode, &wanted, names[i],
                                                      (fth_precision)precision, with->name);
        op_result_free(&wanted);
    }
    op_network_free(&network);
    assert_int_equal(differences, 0);
}

static void compare(const op_case *with, fth_precision precision)
{
    static const char *const names[] = {OP_DEVICES};
    compare_devices(with, precision, precision, names, FTH_COUNT_OF(names));
}

/* Convolutions in f32 and bf16, by each of the CPU's ways wherever it can. */
static void test_each_way(void **state)
{
    static const char *const names[] = {"cpu depthwise", "cpu narrow",    "cpu winograd", "cpu strided",
                                        "cpu pixelwise", "cpu pointwise", "cpu direct"};
    compare_devices(*state, FTH_PRECISION_F32, FTH_PRECISION_BF16, names, FTH_COUNT_OF(names));
}

static void test_f32(void **state)
{
    compare(*state, FTH_PRECISION_F32);
}

static void test_bf16(void **state)
{
    compare(*state, FTH_PRECISION_BF16);
}

/* Only GPUs have it. */
static void test_f16(void **state)
{
    if (op_device("cuda") == NULL)
        skip();
    compare(*state, FTH_PRECISION_F16);
}

/* ---- NaN goes through every op, as in PyTorch ---- */

/* Where the samples from the second on (of a batch of one: the first) have a NaN, in all
 * channels. */
static const int nan_places[][2] = {{0, 0}, {1, 1}, {0, 1}, {1, 0}};

static int nan_place_of(const op_network *network, int64_t sample)
{
    int64_t place = network->batch == 1 ? sample : sample - 1;
    return place >= 0 && place < (int64_t)FTH_COUNT_OF(nan_places) ? (int)place : -1;
}

static void spoil_images(const op_case *with, op_network *network)
{
    for (int64_t n = 0; n < network->batch; n++) {
        int place = nan_place_of(network, n);
        for (int c = 0; place >= 0 && c < IMAGE_CHANNELS; c++) {
            int row = nan_places[place][0] < with->height ? nan_places[place][0] : 0;
            int column = nan_places[place][1] < with->width ? nan_places[place][1] : 0;
            network->images[((n * IMAGE_CHANNELS + c) * with->height + row) * with->width + column] = NAN;
        }
    }
}

static bool any_nan(const float *values, size_t count)
{
    bool found = false;
    for (size_t i = 0; i < count; i++)
        found = found || values[i] != values[i];
    return found;
}

static int expect_alike(const char *who, const char *part, bool found, bool wanted)
{
    if (found == wanted)
        return 0;
    print_message("  DIFFERS %s: %s: %s NaN\n", who, part, found ? "has a" : "lost its");
    return 1;
}

static bool image_has_nan(const op_network *network, int64_t sample)
{
    const fth_shape *images = shape_of(network->graph, fth_graph_find(network->graph, "images"));
    size_t pixels = (size_t)(images->dims[1] * images->dims[2] * images->dims[3]);
    return any_nan(network->images + (size_t)sample * pixels, pixels);
}

/* NaN in the logits of the same samples, in the loss, and in the same gradients and statistics. A
 * convolution may read what its windows leave out, times 0: a sample whose own NaN is there may
 * lose its logits to it. */
static int compare_nans(const op_network *network, const op_result *found, const op_result *wanted, bool gradients,
                        const char *who)
{
    const fth_graph *graph = network->graph;
    int differences = 0;
    bool unread = false;
    for (int64_t n = 0; n < network->batch; n++) {
        char part[32];
        bool has = any_nan(found->logits + n * CLASSES, CLASSES), had = any_nan(wanted->logits + n * CLASSES, CLASSES);
        snprintf(part, sizeof part, "logits of sample %d", (int)n);
        unread = unread || (has && !had && image_has_nan(network, n));
        if (!(has && image_has_nan(network, n)))
            differences += expect_alike(who, part, has, had);
    }
    if (unread)
        return differences;
    differences += expect_alike(who, "loss", any_nan(found->loss, 1), any_nan(wanted->loss, 1));
    for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
        const fth_value_info *info = fth_graph_value(graph, v);
        size_t count = (size_t)(info->kind == FTH_VALUE_PARAMETER || info->kind == FTH_VALUE_BUFFER
                                    ? fth_shape_count(&info->type.shape)
                                    : 0);
        if (info->kind == FTH_VALUE_BUFFER)
            differences += expect_alike(who, info->name, any_nan(found->buffers + info->offset, count),
                                        any_nan(wanted->buffers + info->offset, count));
        if (gradients && info->kind == FTH_VALUE_PARAMETER && info->gradient != FTH_NO_VALUE)
            differences += expect_alike(who, info->name, any_nan(found->gradients + info->offset, count),
                                        any_nan(wanted->gradients + info->offset, count));
    }
    return differences;
}

/* All back ends and precisions against the reference, in both modes. */
static int compare_nans_everywhere(const op_network *network, bool gradients, const char *what)
{
    static const char *const names[] = {OP_DEVICES};
    static const char *const precisions[] = {"f32", "bf16", "f16", "tf32"}; /* by fth_precision */
    int differences = 0;
    for (int mode = FTH_PLAN_TRAIN; mode <= FTH_PLAN_EVALUATE; mode++) {
        op_result wanted, found;
        op_run_once(network, op_device("reference"), (fth_plan_mode)mode, FTH_PRECISION_F32, &plain_run, &wanted);
        for (size_t d = 0; d < FTH_COUNT_OF(names); d++) {
            fth_device *device = op_device(names[d]);
            for (int precision = 0; device && precision < (int)FTH_COUNT_OF(precisions); precision++) {
                char who[200];
                if (device->backend->check_precision(device, (fth_precision)precision) != FTH_OK)
                    continue;
                snprintf(who, sizeof who, "%s on %s, %s, %s", what, names[d], precisions[precision],
                         mode == FTH_PLAN_TRAIN ? "training" : "evaluation");
                op_run_once(network, device, (fth_plan_mode)mode, (fth_precision)precision, &plain_run, &found);
                differences += compare_nans(network, &found, &wanted, gradients && mode == FTH_PLAN_TRAIN, who);
                op_result_free(&found);
            }
        }
        op_result_free(&wanted);
    }
    return differences;
}

static void test_nan_in_images(void **state)
{
    const op_case *with = *state;
    op_network network;
    build_network(with, &network);
    spoil_images(with, &network);
    int differences = compare_nans_everywhere(&network, true, with->name);
    op_network_free(&network);
    assert_int_equal(differences, 0);
}

/* A sample of nothing but NaN: where a ReLU's gradient took NaN for a negative number, no gradient
 * would tell. */
static void test_nan_alone(void **state)
{
    const op_case *with = *state;
    op_network network;
    build_network(with, &network);
    for (int i = 0; i < IMAGE_CHANNELS * with->height * with->width; i++)
        network.images[i] = NAN;
    int differences = compare_nans_everywhere(&network, true, with->name);
    op_network_free(&network);
    assert_int_equal(differences, 0);
}

/* One NaN in each parameter and each statistic in turn. What the gradients are then does not
 * matter: the loss tells. */
static void test_nan_in_weights(void **state)
{
    const op_case *with = *state;
    op_network network;
    int differences = 0;
    build_network(with, &network);
    for (fth_value v = 0; v < fth_graph_value_count(network.graph); v++) {
        const fth_value_info *info = fth_graph_value(network.graph, v);
        char what[160];
        if ((info->kind != FTH_VALUE_PARAMETER && info->kind != FTH_VALUE_BUFFER) ||
            strncmp(info->name, "head", 4) == 0 || strncmp(info->name, "front", 5) == 0)
            continue;
        float *values = (info->kind == FTH_VALUE_PARAMETER ? network.parameters : network.buffers) + info->offset;
        float *last = &values[fth_shape_count(&info->type.shape) - 1], before = *last;
        *last = NAN;
        snprintf(what, sizeof what, "%s, NaN in %s", with->name, info->name);
        differences += compare_nans_everywhere(&network, false, what);
        *last = before;
    }
    op_network_free(&network);
    assert_int_equal(differences, 0);
}

/* The reference itself, by PyTorch's rule: a sample's NaN shows in its own logits, and through the
 * statistics of batch norm in everybody's. */
static void test_nan_in_the_reference(void **state)
{
    const op_case *with = *state;
    op_network network;
    build_network(with, &network);
    spoil_images(with, &network);
    for (int mode = FTH_PLAN_TRAIN; mode <= FTH_PLAN_EVALUATE; mode++) {
        op_result result;
        bool mixes = with->build == build_batch_norm && mode == FTH_PLAN_TRAIN && !with->fixed;
        op_run_once(&network, op_device("reference"), (fth_plan_mode)mode, FTH_PRECISION_F32, &plain_run, &result);
        for (int64_t n = 0; n < network.batch; n++)
            assert_int_equal(any_nan(result.logits + n * CLASSES, CLASSES), mixes || nan_place_of(&network, n) >= 0);
        for (fth_value v = 0; mode == FTH_PLAN_TRAIN && v < fth_graph_value_count(network.graph); v++) {
            const fth_value_info *info = fth_graph_value(network.graph, v);
            if (info->kind == FTH_VALUE_PARAMETER)
                assert_true(any_nan(result.gradients + info->offset, (size_t)fth_shape_count(&info->type.shape)));
        }
        op_result_free(&result);
    }
    op_network_free(&network);
}

static void test_every_op_has_kernels(void **state)
{
    (void)state;
    static const char *const names[] = {"reference", OP_DEVICES};
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        fth_device *device = op_device(names[i]);
        for (int o = 0; device != NULL && fth_op_list[o] != NULL; o++) {
            bool found = false;
            for (int k = 0; device->backend->kernels[k] != NULL; k++)
                found = found || device->backend->kernels[k]->op == fth_op_list[o];
            if (!found)
                fail_msg("%s has no kernel for %s", names[i], fth_op_list[o]->name);
        }
    }
}

/* A plan has no memory of its runs: the same inputs give the same bits again, after others in
 * between. */
static void test_runs_repeat(void **state)
{
    const op_case *with = *state;
    static const char *const names[] = {"reference", OP_DEVICES};
    op_network network;
    build_network(with, &network);
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        fth_device *device = op_device(names[i]);
        op_session session;
        op_result first, second;
        if (device == NULL)
            continue;
        op_session_open(&session, &network, device, FTH_PLAN_TRAIN, FTH_PRECISION_F32);
        op_session_run(&session, &plain_run);
        op_session_read(&session, &first);
        network.images[0] += 1;
        op_session_run(&session, &(fth_run){.seed = 4, .step = 9, .gradient_scale = 1});
        network.images[0] -= 1;
        op_session_run(&session, &plain_run);
        op_session_read(&session, &second);
        assert_memory_equal(first.logits, second.logits, first.logit_count * sizeof(float));
        assert_memory_equal(first.gradients, second.gradients,
                            fth_graph_parameter_floats(network.graph) * sizeof(float));
        op_result_free(&first);
        op_result_free(&second);
        op_session_close(&session);
    }
    op_network_free(&network);
}

/* gradient_scale multiplies every gradient and nothing else. */
static void test_gradient_scale(void **state)
{
    static const char *const names[] = {"reference", OP_DEVICES};
    op_network network;
    build_network(*state, &network);
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        fth_device *device = op_device(names[i]);
        op_result whole, half;
        if (device == NULL)
            continue;
        op_run_once(&network, device, FTH_PLAN_TRAIN, FTH_PRECISION_F32, &plain_run, &whole);
        op_run_once(&network, device, FTH_PLAN_TRAIN, FTH_PRECISION_F32,
                    &(fth_run){.seed = 3, .step = 7, .gradient_scale = 0.5f}, &half);
        assert_true(whole.loss[0] == half.loss[0]);
        for (size_t g = 0; g < fth_graph_parameter_floats(network.graph); g++)
            assert_true(half.gradients[g] == 0.5f * whole.gradients[g]); /* exact: a power of two */
        op_result_free(&whole);
        op_result_free(&half);
    }
    op_network_free(&network);
}

/* Depthwise and grouped convolutions add up in an order that does not depend on the threads. */
static void test_threads_agree(void **state)
{
    fth_device *device = op_device("cpu depthwise");
    op_network network;
    op_result found[3];
    if (!device)
        skip();
    build_network(*state, &network);
    for (int i = 0; i < 3; i++) {
        op_session session;
        op_session_open_plan(&session, &network, device, (fth_plan_options){.mode = FTH_PLAN_TRAIN, .threads = i + 1});
        op_session_run(&session, &plain_run);
        op_session_read(&session, &found[i]);
        op_session_close(&session);
    }
    const char *const names[] = {"op.weight", "op.bias"};
    for (size_t p = 0; p < FTH_COUNT_OF(names); p++) {
        const fth_value_info *info = fth_graph_value(network.graph, fth_graph_find(network.graph, names[p]));
        const size_t bytes = (size_t)fth_shape_count(&info->type.shape) * sizeof(float);
        for (int i = 1; i < 3; i++)
            assert_memory_equal(found[i].gradients + info->offset, found[0].gradients + info->offset, bytes);
    }
    for (int i = 0; i < 3; i++)
        op_result_free(&found[i]);
    op_network_free(&network);
}

typedef struct ready_record {
    size_t last, calls;
    bool in_order;
} ready_record;

static void record_ready(void *context, size_t ready_floats)
{
    ready_record *record = context;
    record->in_order = record->in_order && ready_floats > record->last;
    record->last = ready_floats;
    record->calls++;
}

/* Gradients become ready as a growing prefix that ends at the whole vector. */
static void test_gradients_become_ready(void **state)
{
    static const char *const names[] = {"reference", OP_DEVICES};
    op_network network;
    build_network(*state, &network);
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        fth_device *device = op_device(names[i]);
        ready_record record = {.in_order = true};
        fth_run run = plain_run;
        op_result result;
        if (device == NULL)
            continue;
        run.gradients_ready = record_ready;
        run.gradients_context = &record;
        op_run_once(&network, device, FTH_PLAN_TRAIN, FTH_PRECISION_F32, &run, &result);
        assert_true(record.in_order);
        assert_true(record.calls >= 2);
        assert_int_equal(record.last, fth_graph_parameter_floats(network.graph));
        op_result_free(&result);
    }
    op_network_free(&network);
}

static const op_case *find_case(const char *name)
{
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++)
        if (strcmp(cases[i].name, name) == 0)
            return &cases[i];
    return NULL;
}

/* Differences take hundreds of runs. The reference's loops do not depend on the size; large cases
 * are there for the blocked kernels of the others. */
static bool is_large(const op_case *with)
{
    int64_t input = (int64_t)with->batch * with->channels * with->height * with->width;
    int64_t window =
        with->outputs > 0 && with->kernel[0] > 0 ? (int64_t)with->outputs * with->kernel[0] * with->kernel[1] : 1;
    return input * window > 400000;
}

/* An argument, a pattern as of cmocka_set_test_filter(), chooses tests: "f32: batch norm*". */
int main(int argc, char **argv)
{
    static struct CMUnitTest tests[8 * FTH_COUNT_OF(cases) + 24];
    static char names[FTH_COUNT_OF(tests)][96];
    static const struct {
        const char *prefix;
        CMUnitTestFunction run;
    } kinds[] = {{"differences", test_differences},
                 {"f32", test_f32},
                 {"by each way", test_each_way},
                 {"bf16", test_bf16},
                 {"f16", test_f16},
                 {"NaN in images", test_nan_in_images},
                 {"nothing but NaN", test_nan_alone},
                 {"NaN in weights", test_nan_in_weights}};
    static const char *const by_rule[] = {"relu",           "max pool 2",          "max pool 3, stride 2, padding 1",
                                          "average pool 2", "global pool",         "adaptive pool to 3x2",
                                          "batch norm",     "batch norm 17, relu", "batch norm, residual, relu",
                                          "add, relu",      "linear, relu",        "convolution 3x3, relu, no bias"};
    size_t count = 0;

    tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_every_op_has_kernels);
    for (size_t k = 0; k < FTH_COUNT_OF(kinds); k++)
        for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
            if (kinds[k].run == test_differences && is_large(&cases[i]))
                continue;
            if ((kinds[k].run == test_nan_alone || kinds[k].run == test_nan_in_weights) && is_large(&cases[i]))
                continue;
            if (kinds[k].run == test_each_way && cases[i].kernel[0] == 0)
                continue;
            snprintf(names[count], sizeof names[count], "%s: %s", kinds[k].prefix, cases[i].name);
            tests[count] = (struct CMUnitTest){
                .name = names[count], .test_func = kinds[k].run, .initial_state = (void *)&cases[i]};
            count++;
        }
    for (size_t i = 0; i < FTH_COUNT_OF(by_rule); i++) {
        snprintf(names[count], sizeof names[count], "NaN in the reference: %s", by_rule[i]);
        tests[count] = (struct CMUnitTest){.name = names[count],
                                           .test_func = test_nan_in_the_reference,
                                           .initial_state = (void *)find_case(by_rule[i])};
        count++;
    }
    void *block = (void *)find_case("block 17, residual"), *dropouts = (void *)find_case("two dropouts");
    tests[count++] = (struct CMUnitTest)cmocka_unit_test_prestate(test_runs_repeat, block);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test_prestate(test_runs_repeat, dropouts);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test_prestate(test_gradient_scale, block);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test_prestate(test_gradients_become_ready, block);
    static const char *const of_threads[] = {"convolution depthwise 48, 12x13", "convolution depthwise, batch 70",
                                             "convolution depthwise, batch 1, 40x70", "convolution 8 groups of 4"};
    for (size_t i = 0; i < FTH_COUNT_OF(of_threads); i++) {
        snprintf(names[count], sizeof names[count], "threads agree: %s", of_threads[i]);
        tests[count] = (struct CMUnitTest){
            .name = names[count], .test_func = test_threads_agree, .initial_state = (void *)find_case(of_threads[i])};
        count++;
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return _cmocka_run_group_tests("ops on every back end", tests, count, NULL, op_close_devices);
}
