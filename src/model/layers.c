/* See layers.h. */
#include <math.h>
#include <stdio.h>

#include "model/layers.h"

enum { NAME_SIZE = 128 };

/* "<prefix>.<suffix>" in `name`; prefixes are the models' own and short. */
static const char *join(char name[NAME_SIZE], const char *prefix, const char *suffix)
{
    snprintf(name, NAME_SIZE, "%s.%s", prefix, suffix);
    return name;
}

static fth_initializer constant(double amount)
{
    return (fth_initializer){FTH_INIT_CONSTANT, amount};
}

static fth_initializer weight_init(fth_layer_init init, int64_t fan_in, int64_t fan_out)
{
    switch (init) {
    case FTH_LAYER_KAIMING_FAN_IN: return (fth_initializer){FTH_INIT_NORMAL, sqrt(2.0 / (double)fan_in)};
    case FTH_LAYER_KAIMING_FAN_OUT: return (fth_initializer){FTH_INIT_NORMAL, sqrt(2.0 / (double)fan_out)};
    case FTH_LAYER_SMALL_NORMAL: return (fth_initializer){FTH_INIT_NORMAL, 0.01};
    case FTH_LAYER_DEFAULT: break;
    }
    return (fth_initializer){FTH_INIT_UNIFORM, 1 / sqrt((double)fan_in)};
}

static fth_initializer bias_init(fth_layer_init init, int64_t fan_in)
{
    bool uniform = init == FTH_LAYER_DEFAULT || init == FTH_LAYER_KAIMING_FAN_IN;
    return uniform ? weight_init(FTH_LAYER_DEFAULT, fan_in, 0) : constant(0);
}

fth_status fth_layer_convolution(fth_graph *graph, const char *prefix, fth_layer_convolution_options options,
                                 fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    char name[NAME_SIZE];
    fth_value weight = FTH_NO_VALUE, bias = FTH_NO_VALUE;
    int64_t channels = fth_graph_value(graph, x)->type.shape.dims[1];
    int64_t area = (int64_t)options.kernel * options.kernel;

    FTH_TRY(fth_graph_add_parameter(graph, join(name, prefix, "weight"),
                                    FTH_SHAPE(options.filters, channels, options.kernel, options.kernel),
                                    weight_init(options.init, channels * area, options.filters * area), &weight));
    if (options.bias)
        FTH_TRY(fth_graph_add_parameter(graph, join(name, prefix, "bias"), FTH_SHAPE(options.filters),
                                        bias_init(options.init, channels * area), &bias));
    fth_convolution_attributes attributes = {
        .stride = {options.stride, options.stride},
        .padding = {options.padding, options.padding},
        .dilation = {1, 1},
        .groups = 1,
        .relu = options.relu,
    };
    status = fth_op_add_convolution(graph, attributes, x, weight, bias, y);
    if (status != FTH_OK)
        status = fth_fail_within(status, "layer %s", prefix);

out:
    return status;
}

fth_status fth_layer_batch_norm(fth_graph *graph, const char *prefix, bool relu, fth_value residual_or_none,
                                fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    char name[NAME_SIZE];
    fth_value scale, shift, mean, variance;
    fth_shape channels = FTH_SHAPE(fth_graph_value(graph, x)->type.shape.dims[1]);
    fth_batch_norm_attributes attributes = {.epsilon = 1e-5F, .momentum = 0.1F, .relu = relu};

    FTH_TRY(fth_graph_add_parameter(graph, join(name, prefix, "weight"), channels, constant(1), &scale));
    FTH_TRY(fth_graph_add_parameter(graph, join(name, prefix, "bias"), channels, constant(0), &shift));
    FTH_TRY(fth_graph_add_buffer(graph, join(name, prefix, "running_mean"), channels, constant(0), &mean));
    FTH_TRY(fth_graph_add_buffer(graph, join(name, prefix, "running_var"), channels, constant(1), &variance));
    FTH_TRY(fth_graph_add_counter(graph, join(name, prefix, "num_batches_tracked")));
    status = fth_op_add_batch_norm(graph, attributes, x, scale, shift, mean, variance, residual_or_none, y);
    if (status != FTH_OK)
        status = fth_fail_within(status, "layer %s", prefix);

out:
    return status;
}

fth_status fth_layer_linear(fth_graph *graph, const char *prefix, int outputs, bool relu, fth_layer_init init,
                            fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    char name[NAME_SIZE];
    fth_value weight, bias;
    int64_t features = fth_graph_value(graph, x)->type.shape.dims[1];

    FTH_TRY(fth_graph_add_parameter(graph, join(name, prefix, "weight"), FTH_SHAPE(outputs, features),
                                    weight_init(init, features, outputs), &weight));
    FTH_TRY(fth_graph_add_parameter(graph, join(name, prefix, "bias"), FTH_SHAPE(outputs), bias_init(init, features),
                                    &bias));
    status = fth_op_add_linear(graph, relu, x, weight, bias, y);
    if (status != FTH_OK)
        status = fth_fail_within(status, "layer %s", prefix);

out:
    return status;
}

fth_status fth_layer_max_pool(fth_graph *graph, int kernel, int stride, int padding, fth_value x, fth_value *y)
{
    fth_pool_attributes attributes = {
        .kernel = {kernel, kernel},
        .stride = {stride, stride},
        .padding = {padding, padding},
    };
    return fth_op_add_max_pool(graph, attributes, x, y);
}

fth_status fth_layer_dropout(fth_graph *graph, const fth_model_options *options, float probability, fth_value x,
                             fth_value *y)
{
    if (options->no_dropout) {
        *y = x;
        return FTH_OK;
    }
    return fth_op_add_dropout(graph, probability, x, y);
}
