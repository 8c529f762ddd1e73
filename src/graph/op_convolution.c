/* convolution: the rule and its gradients. See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status check_attributes(const fth_convolution_attributes *attributes)
{
    for (int i = 0; i < 2; i++) {
        if (attributes->stride[i] < 1 || attributes->dilation[i] < 1 || attributes->padding[i] < 0)
            return fth_fail(FTH_INVALID,
                            "stride %d, dilation %d, padding %d: the first two must be at least 1, the last 0",
                            attributes->stride[i], attributes->dilation[i], attributes->padding[i]);
    }
    if (attributes->groups < 1)
        return fth_fail(FTH_INVALID, "%d groups; there must be at least 1", attributes->groups);
    return FTH_OK;
}

/* Output height (axis 0) or width (axis 1); below 1 if the kernel does not fit. */
static int64_t output_size(const fth_convolution_attributes *attributes, int axis, int64_t input, int64_t kernel)
{
    int64_t reach = (int64_t)attributes->dilation[axis] * (kernel - 1) + 1;
    int64_t room = input + 2 * (int64_t)attributes->padding[axis] - reach;
    return room < 0 ? 0 : room / attributes->stride[axis] + 1;
}

static fth_status infer(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_convolution_attributes *attributes = attributes_pointer;

    FTH_TRY(fth_rule_check_count(input_count, 2, 3));
    FTH_TRY(check_attributes(attributes));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the input", 4));
    const fth_shape *x = &inputs[0].shape, *weight = &inputs[1].shape;
    FTH_REQUIRE(inputs[1].dtype == FTH_F32 && weight->rank == 4, FTH_INVALID,
                "the weight has shape %s; it must be F32 (out, in / groups, height, width)", FTH_SHAPE_TEXT(weight));
    int64_t channels = x->dims[1], filters = weight->dims[0], groups = attributes->groups;
    FTH_REQUIRE(channels % groups == 0 && filters % groups == 0, FTH_INVALID,
                "%lld input and %lld output channels do not both divide into %lld groups", (long long)channels,
                (long long)filters, (long long)groups);
    FTH_REQUIRE(weight->dims[1] == channels / groups, FTH_INVALID, "the weight %s is for %s, but the input %s has %lld",
                FTH_SHAPE_TEXT(weight), FTH_COUNTED(weight->dims[1] * groups, "channel"), FTH_SHAPE_TEXT(x),
                (long long)channels);
    if (input_count == 3)
        FTH_TRY(fth_rule_check_shape(&inputs[2], "the bias", &FTH_SHAPE(filters)));

    int64_t height = output_size(attributes, 0, x->dims[2], weight->dims[2]);
    int64_t width = output_size(attributes, 1, x->dims[3], weight->dims[3]);
    FTH_REQUIRE(height >= 1 && width >= 1, FTH_INVALID,
                "a %lld×%lld kernel (dilation %d×%d) does not fit a %lld×%lld input (padding %d×%d)",
                (long long)weight->dims[2], (long long)weight->dims[3], attributes->dilation[0],
                attributes->dilation[1], (long long)x->dims[2], (long long)x->dims[3], attributes->padding[0],
                attributes->padding[1]);
    outputs[0] = (fth_type){FTH_F32, FTH_SHAPE(x->dims[0], filters, height, width)};

out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    const fth_convolution_attributes *attributes = node->attributes;
    return fth_rule_build_weighted_gradient(graph, node, attributes->relu, &fth_op_convolution_grad_weights,
                                            &fth_op_convolution_grad_input, output_gradients[0], input_gradients);
}

const fth_op fth_op_convolution = {
    .name = "convolution",
    .attributes_size = sizeof(fth_convolution_attributes),
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

static fth_status infer_grad_input(const void *attributes_pointer, const fth_type *inputs, int input_count,
                                   fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_convolution_attributes *attributes = attributes_pointer;
    fth_type forward[2], y;

    FTH_TRY(fth_rule_check_count(input_count, 2, 2));
    forward[0] = (fth_type){FTH_F32, attributes->input_shape};
    forward[1] = inputs[1];
    FTH_TRY(infer(attributes, forward, 2, &y));
    FTH_TRY(fth_rule_check_shape(&inputs[0], "the output's gradient", &y.shape));
    outputs[0] = forward[0];

out:
    return status;
}

/* Of a transposed convolution: backward, it is the convolution itself. */
static fth_status build_transposed_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                            fth_value *input_gradients)
{
    fth_status status = FTH_OK;
    const fth_value dy = output_gradients[0];
    fth_value parameters[2];

    if (fth_rule_wants(graph, node, 1)) {
        FTH_TRY(fth_graph_add_node(graph, &fth_op_convolution_grad_weights, node->attributes,
                                   (fth_value[]){dy, node->inputs[0]}, 2, parameters));
        input_gradients[1] = parameters[0];
    }
    if (fth_rule_wants(graph, node, 0))
        FTH_TRY(fth_graph_add_node(graph, &fth_op_convolution, node->attributes, (fth_value[]){dy, node->inputs[1]}, 2,
                                   &input_gradients[0]));

out:
    return status;
}

const fth_op fth_op_convolution_grad_input = {
    .name = "convolution_grad_input",
    .attributes_size = sizeof(fth_convolution_attributes),
    .output_count = 1,
    .infer = infer_grad_input,
    .build_gradient = build_transposed_gradient,
};

static fth_status infer_grad_weights(const void *attributes_pointer, const fth_type *inputs, int input_count,
                                     fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_convolution_attributes *attributes = attributes_pointer;
    fth_type forward[2], y;

    FTH_TRY(fth_rule_check_count(input_count, 2, 2));
    FTH_TRY(fth_rule_check_float(&inputs[0], "the input", 4));
    FTH_TRY(fth_rule_check_float(&inputs[1], "the output's gradient", 4));
    FTH_REQUIRE(attributes->groups >= 1, FTH_INVALID, "%d groups; there must be at least 1", attributes->groups);
    int64_t filters = inputs[1].shape.dims[1];
    forward[0] = inputs[0];
    forward[1] = (fth_type){FTH_F32, FTH_SHAPE(filters, inputs[0].shape.dims[1] / attributes->groups,
                                               attributes->kernel[0], attributes->kernel[1])};
    FTH_TRY(infer(attributes, forward, 2, &y));
    FTH_TRY(fth_rule_check_shape(&inputs[1], "the output's gradient", &y.shape));
    outputs[0] = forward[1];
    outputs[1] = (fth_type){FTH_F32, FTH_SHAPE(filters)};

out:
    return status;
}

const fth_op fth_op_convolution_grad_weights = {
    .name = "convolution_grad_weights",
    .attributes_size = sizeof(fth_convolution_attributes),
    .output_count = 2,
    .infer = infer_grad_weights,
};

fth_status fth_op_add_convolution(fth_graph *graph, fth_convolution_attributes attributes, fth_value x,
                                  fth_value weight, fth_value bias_or_none, fth_value *y)
{
    const fth_value_info *input = fth_graph_value(graph, x), *weights = fth_graph_value(graph, weight);
    if (input)
        attributes.input_shape = input->type.shape;
    for (int i = 0; i < 2 && weights && weights->type.shape.rank == 4; i++)
        attributes.kernel[i] = (int)weights->type.shape.dims[2 + i];
    return fth_graph_add_node(graph, &fth_op_convolution, &attributes, (fth_value[]){x, weight, bias_or_none},
                              bias_or_none == FTH_NO_VALUE ? 2 : 3, y);
}

/* The shape of a transposed convolution's output: the input of the convolution that it is the
 * gradient of. */
static fth_status find_transposed_output(const fth_convolution_attributes *attributes, const int output_padding[2],
                                         const fth_type *x, const fth_shape *weight, fth_shape *output)
{
    fth_status status = FTH_OK;
    FTH_TRY(check_attributes(attributes));
    FTH_TRY(fth_rule_check_float(x, "the input", 4));
    FTH_REQUIRE(weight->rank == 4 && weight->dims[0] == x->shape.dims[1], FTH_INVALID,
                "the weight has shape %s; it must be (in, out / groups, height, width) with %lld channels in",
                FTH_SHAPE_TEXT(weight), (long long)x->shape.dims[1]);
    *output = FTH_SHAPE(x->shape.dims[0], weight->dims[1] * attributes->groups, 0, 0);
    for (int i = 0; i < 2; i++) {
        FTH_REQUIRE(output_padding[i] >= 0 && output_padding[i] < attributes->stride[i], FTH_UNSUPPORTED,
                    "output padding %d with stride %d; it must be at least 0 and less than the stride",
                    output_padding[i], attributes->stride[i]);
        output->dims[2 + i] = (x->shape.dims[2 + i] - 1) * attributes->stride[i] - 2 * (int64_t)attributes->padding[i] +
                              (int64_t)attributes->dilation[i] * (weight->dims[2 + i] - 1) + 1 + output_padding[i];
        FTH_REQUIRE(output->dims[2 + i] >= 1, FTH_INVALID, "a padding of %d leaves nothing of the output",
                    attributes->padding[i]);
    }
out:
    return status;
}

fth_status fth_op_add_transposed_convolution(fth_graph *graph, fth_convolution_attributes attributes,
                                             const int output_padding[2], fth_value x, fth_value weight,
                                             fth_value bias_or_none, fth_value *y)
{
    fth_status status = FTH_OK;
    const fth_value_info *input = fth_graph_value(graph, x), *weights = fth_graph_value(graph, weight);

    FTH_REQUIRE(input && weights, FTH_INVALID, "a transposed convolution of a value that is not in the graph");
    FTH_REQUIRE(bias_or_none == FTH_NO_VALUE, FTH_UNSUPPORTED, "a transposed convolution with a bias");
    FTH_TRY(find_transposed_output(&attributes, output_padding, &input->type, &weights->type.shape,
                                   &attributes.input_shape));
    for (int i = 0; i < 2; i++)
        attributes.kernel[i] = (int)weights->type.shape.dims[2 + i];
    FTH_REQUIRE(!attributes.relu, FTH_UNSUPPORTED, "a transposed convolution with a ReLU inside");
    FTH_TRY(fth_graph_add_node(graph, &fth_op_convolution_grad_input, &attributes, (fth_value[]){x, weight}, 2, y));
out:
    return status;
}
