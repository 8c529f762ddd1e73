/* Autodiff: which nodes the backward part has, and in which order the flat vector holds
 * parameters. */
#include "support.h"

#include "graph/graph.h"
#include "graph/ops.h"

static const fth_initializer zero = {FTH_INIT_CONSTANT, 0};

typedef struct network {
    fth_graph *graph;
    fth_value images, labels;
} network;

static network create(void)
{
    network net = {NULL, FTH_NO_VALUE, FTH_NO_VALUE};
    assert_int_equal(fth_graph_create(&net.graph), FTH_OK);
    assert_int_equal(fth_graph_add_input(net.graph, "images", FTH_F32, FTH_SHAPE(FTH_BATCH, 2, 6, 6), &net.images),
                     FTH_OK);
    assert_int_equal(fth_graph_add_input(net.graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &net.labels), FTH_OK);
    return net;
}

static fth_value parameter(fth_graph *graph, const char *name, fth_shape shape)
{
    fth_value value = FTH_NO_VALUE;
    assert_int_equal(fth_graph_add_parameter(graph, name, shape, zero, &value), FTH_OK);
    return value;
}

static fth_value convolve(fth_graph *graph, fth_value x, const char *weight_name, int filters, bool relu)
{
    fth_convolution_attributes attributes = {
        .stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .groups = 1, .relu = relu};
    int64_t channels = fth_graph_value(graph, x)->type.shape.dims[1];
    fth_value weight = parameter(graph, weight_name, FTH_SHAPE(filters, channels, 3, 3)), y = FTH_NO_VALUE;
    assert_int_equal(fth_op_add_convolution(graph, attributes, x, weight, FTH_NO_VALUE, &y), FTH_OK);
    return y;
}

/* Flattens, adds a linear layer "fc" and the loss, differentiates. */
static void finish(network net, fth_value x)
{
    fth_value logits = FTH_NO_VALUE, loss = FTH_NO_VALUE;
    assert_int_equal(fth_op_add_flatten(net.graph, x, &x), FTH_OK);
    int64_t features = fth_graph_value(net.graph, x)->type.shape.dims[1];
    fth_value weight = parameter(net.graph, "fc.weight", FTH_SHAPE(5, features));
    fth_value bias = parameter(net.graph, "fc.bias", FTH_SHAPE(5));
    assert_int_equal(fth_op_add_linear(net.graph, false, x, weight, bias, &logits), FTH_OK);
    assert_int_equal(fth_op_add_softmax_cross_entropy(net.graph, 0, logits, net.labels, &loss), FTH_OK);
    fth_graph_set_outputs(net.graph, logits, loss);
    assert_int_equal(fth_graph_differentiate(net.graph), FTH_OK);
}

static int count_backward(const fth_graph *graph, const fth_op *op)
{
    int count = 0;
    for (int i = fth_graph_forward_node_count(graph); i < fth_graph_node_count(graph); i++)
        count += fth_graph_node(graph, i)->op == op;
    return count;
}

/* Every node reads only what exists before it; every parameter gradient points back to its
 * parameter. */
static void check_sound(const fth_graph *graph)
{
    for (int i = 0; i < fth_graph_node_count(graph); i++) {
        const fth_node *node = fth_graph_node(graph, i);
        for (int k = 0; k < node->input_count; k++)
            assert_true(fth_graph_value(graph, node->inputs[k])->producer < i);
        for (int k = 0; k < node->output_count; k++)
            assert_int_equal(fth_graph_value(graph, node->outputs[k])->producer, i);
    }
    for (int i = 0; i < fth_graph_value_count(graph); i++) {
        const fth_value_info *value = fth_graph_value(graph, i);
        if (value->kind != FTH_VALUE_PARAMETER || value->gradient == FTH_NO_VALUE)
            continue;
        const fth_value_info *gradient = fth_graph_value(graph, value->gradient);
        assert_int_equal(gradient->gradient_of, i);
        assert_true(fth_shape_equal(&gradient->type.shape, &value->type.shape));
    }
}

static void test_chain(void **state)
{
    (void)state;
    network net = create();
    fth_value x = convolve(net.graph, net.images, "conv1", 4, true);
    x = convolve(net.graph, x, "conv2", 3, true);
    int forward = 5;
    finish(net, x);
    check_sound(net.graph);
    assert_int_equal(fth_graph_forward_node_count(net.graph), forward);
    /* Nothing flows to the images: one gradient of an input for two convolutions. */
    assert_int_equal(count_backward(net.graph, &fth_op_convolution_grad_input), 1);
    assert_int_equal(count_backward(net.graph, &fth_op_convolution_grad_weights), 2);
    assert_int_equal(count_backward(net.graph, &fth_op_relu_grad), 2);
    assert_int_equal(count_backward(net.graph, &fth_op_add), 0);
    assert_ptr_equal(fth_graph_node(net.graph, forward)->op, &fth_op_softmax_cross_entropy_grad);

    /* The last layer's gradients are finished first, and each view begins at a multiple of 16
     * floats. */
    static const char *const order[] = {"fc.weight", "fc.bias", "conv2", "conv1"};
    size_t at = 0;
    for (size_t i = 0; i < FTH_COUNT_OF(order); i++) {
        const fth_value_info *value = fth_graph_value(net.graph, fth_graph_find(net.graph, order[i]));
        assert_int_equal(value->offset, at);
        at += fth_align_up((size_t)fth_shape_count(&value->type.shape), 16);
    }
    assert_int_equal(fth_graph_parameter_floats(net.graph), at);
    assert_int_equal(fth_graph_buffer_floats(net.graph), 0);
    assert_int_equal(fth_graph_differentiate(net.graph), FTH_INVALID);
    fth_graph_free(net.graph);
}

/* x is read by three nodes: two additions sum its gradients. */
static void test_fan_out_is_summed(void **state)
{
    (void)state;
    network net = create();
    fth_value x = convolve(net.graph, net.images, "stem", 4, false), y = FTH_NO_VALUE;
    fth_value a = convolve(net.graph, x, "a", 4, false), b = convolve(net.graph, x, "b", 4, false);
    assert_int_equal(fth_op_add_add(net.graph, true, a, b, &y), FTH_OK);
    assert_int_equal(fth_op_add_add(net.graph, false, y, x, &y), FTH_OK);
    finish(net, y);
    check_sound(net.graph);
    assert_int_equal(count_backward(net.graph, &fth_op_add), 2);
    assert_int_equal(count_backward(net.graph, &fth_op_relu_grad), 1);
    assert_int_equal(count_backward(net.graph, &fth_op_convolution_grad_input), 2);
    fth_graph_free(net.graph);
}

/* One weight used twice: its gradient is the sum, finished after both. */
static void test_shared_parameter(void **state)
{
    (void)state;
    network net = create();
    fth_convolution_attributes attributes = {.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .groups = 1};
    fth_value weight = parameter(net.graph, "shared", FTH_SHAPE(2, 2, 3, 3)), x = net.images;
    for (int i = 0; i < 2; i++)
        assert_int_equal(fth_op_add_convolution(net.graph, attributes, x, weight, FTH_NO_VALUE, &x), FTH_OK);
    finish(net, x);
    check_sound(net.graph);
    fth_value gradient = fth_graph_value(net.graph, weight)->gradient;
    const fth_node *producer = fth_graph_node(net.graph, fth_graph_value(net.graph, gradient)->producer);
    assert_ptr_equal(producer->op, &fth_op_add);
    fth_graph_free(net.graph);
}

static void test_concat_slices_only_what_is_wanted(void **state)
{
    (void)state;
    network net = create();
    fth_value a = convolve(net.graph, net.images, "a", 3, false), y = FTH_NO_VALUE;
    assert_int_equal(fth_op_add_concat(net.graph, 1, (fth_value[]){net.images, a}, 2, &y), FTH_OK);
    finish(net, y);
    check_sound(net.graph);
    assert_int_equal(count_backward(net.graph, &fth_op_slice), 1);
    for (int i = fth_graph_forward_node_count(net.graph); i < fth_graph_node_count(net.graph); i++) {
        const fth_node *node = fth_graph_node(net.graph, i);
        if (node->op == &fth_op_slice) {
            const fth_slice_attributes *slice = node->attributes;
            assert_int_equal(slice->begin, 2);
            assert_int_equal(slice->end, 5);
        }
    }
    fth_graph_free(net.graph);
}

static fth_value normalize(fth_graph *graph, fth_value x, bool relu, fth_value residual)
{
    fth_batch_norm_attributes attributes = {.epsilon = 1e-5F, .momentum = 0.1F, .relu = relu};
    fth_value scale = parameter(graph, "scale", FTH_SHAPE(2)), shift = parameter(graph, "shift", FTH_SHAPE(2));
    fth_value mean = FTH_NO_VALUE, variance = FTH_NO_VALUE, y = FTH_NO_VALUE;
    assert_int_equal(fth_graph_add_buffer(graph, "mean", FTH_SHAPE(2), zero, &mean), FTH_OK);
    assert_int_equal(fth_graph_add_buffer(graph, "variance", FTH_SHAPE(2), zero, &variance), FTH_OK);
    assert_int_equal(fth_op_add_batch_norm(graph, attributes, x, scale, shift, mean, variance, residual, &y), FTH_OK);
    return y;
}

/* The residual's gradient is the batch norm's fourth output behind a ReLU, and dy itself without
 * one. */
static void test_residual_batch_norm(void **state)
{
    (void)state;
    for (int relu = 0; relu < 2; relu++) {
        network net = create();
        fth_value a = convolve(net.graph, net.images, "a", 2, false),
                  b = convolve(net.graph, net.images, "b", 2, false);
        finish(net, normalize(net.graph, a, relu, b));
        check_sound(net.graph);
        assert_int_equal(count_backward(net.graph, &fth_op_relu_grad), 0);
        assert_int_equal(fth_graph_buffer_floats(net.graph), 32);
        const fth_node *norm = NULL, *weights = NULL;
        for (int i = fth_graph_forward_node_count(net.graph); i < fth_graph_node_count(net.graph); i++) {
            const fth_node *node = fth_graph_node(net.graph, i);
            if (node->op == &fth_op_batch_norm_grad)
                norm = node;
            else if (node->op == &fth_op_convolution_grad_weights && !weights)
                weights = node; /* of b: the last convolution of the forward part comes first */
        }
        assert_non_null(norm);
        assert_non_null(weights);
        assert_int_equal(weights->inputs[1], relu ? norm->outputs[3] : norm->inputs[2]);
        fth_graph_free(net.graph);
    }
}

static void test_dropout_gradient_is_the_same_dropout(void **state)
{
    (void)state;
    network net = create();
    fth_value x = convolve(net.graph, net.images, "a", 2, false);
    assert_int_equal(fth_op_add_dropout(net.graph, 0.25F, x, &x), FTH_OK);
    assert_int_equal(fth_op_add_dropout(net.graph, 0.5F, x, &x), FTH_OK);
    finish(net, x);
    assert_int_equal(count_backward(net.graph, &fth_op_dropout), 2);
    uint32_t expected = 1;
    for (int i = fth_graph_forward_node_count(net.graph); i < fth_graph_node_count(net.graph); i++) {
        const fth_node *node = fth_graph_node(net.graph, i);
        if (node->op == &fth_op_dropout)
            assert_int_equal(((const fth_dropout_attributes *)node->attributes)->id, expected--);
    }
    fth_graph_free(net.graph);
}

static void test_unused_parameters_come_last(void **state)
{
    (void)state;
    network net = create();
    fth_value idle = parameter(net.graph, "idle", FTH_SHAPE(3));
    fth_value x = convolve(net.graph, net.images, "a", 2, false);
    finish(net, x);
    const fth_value_info *value = fth_graph_value(net.graph, idle);
    assert_int_equal(value->gradient, FTH_NO_VALUE);
    assert_int_equal(value->offset, fth_graph_parameter_floats(net.graph) - 16);
    fth_graph_free(net.graph);
}

/* Convolutions a, then b and c in a block, then d; b's ReLU makes its gradient read what it
 * computed. */
static network create_with_block(bool block)
{
    network net = create();
    fth_value x = convolve(net.graph, net.images, "a", 2, true);
    if (block)
        assert_int_equal(fth_graph_begin_block(net.graph), FTH_OK);
    x = convolve(net.graph, x, "b", 3, true);
    assert_int_equal(fth_op_add_dropout(net.graph, 0.5F, x, &x), FTH_OK);
    x = convolve(net.graph, x, "c", 2, false);
    if (block)
        fth_graph_end_block(net.graph);
    finish(net, convolve(net.graph, x, "d", 2, false));
    return net;
}

static void test_blocks_are_computed_again(void **state)
{
    (void)state;
    network plain = create_with_block(false), net = create_with_block(true);
    const int forward = fth_graph_forward_node_count(net.graph);
    assert_int_equal(forward, fth_graph_forward_node_count(plain.graph));
    assert_int_equal(count_backward(plain.graph, &fth_op_convolution), 0);
    assert_int_equal(count_backward(net.graph, &fth_op_convolution), 2);
    assert_int_equal(fth_graph_node_count(net.graph), fth_graph_node_count(plain.graph) + 3);
    /* the flat vector has the same order */
    for (fth_value v = 0; v < fth_graph_value_count(plain.graph); v++) {
        const fth_value_info *info = fth_graph_value(plain.graph, v);
        if (info->kind == FTH_VALUE_PARAMETER)
            assert_int_equal(fth_graph_value(net.graph, fth_graph_find(net.graph, info->name))->offset, info->offset);
    }
    for (int n = 0; n < fth_graph_node_count(net.graph); n++) {
        const fth_node *node = fth_graph_node(net.graph, n);
        /* every dropout has the one mask */
        if (node->op == &fth_op_dropout)
            assert_int_equal(((const fth_dropout_attributes *)node->attributes)->id, 0);
        /* what the block computed first is read by the forward part alone, but for what it gives to
         * others */
        for (int i = 0; n >= forward && i < node->input_count; i++) {
            int producer = fth_graph_value(net.graph, node->inputs[i])->producer;
            assert_false(producer == 1 || producer == 2);
        }
    }
    fth_graph_free(plain.graph);
    fth_graph_free(net.graph);
}

static void test_blocks_without_gradients_are_left_alone(void **state)
{
    (void)state;
    network net = create();
    fth_value weight;
    assert_int_equal(fth_graph_begin_block(net.graph), FTH_OK);
    fth_value x = convolve(net.graph, net.images, "a", 2, true);
    fth_graph_end_block(net.graph);
    weight = fth_graph_find(net.graph, "a");
    assert_int_equal(fth_graph_set_trainable(net.graph, weight, false), FTH_OK);
    finish(net, x);
    assert_int_equal(count_backward(net.graph, &fth_op_convolution), 0);
    fth_graph_free(net.graph);
}

static void test_blocks_leave_buffers_alone(void **state)
{
    (void)state;
    network net = create();
    fth_value scale = parameter(net.graph, "scale", FTH_SHAPE(2)), shift = parameter(net.graph, "shift", FTH_SHAPE(2));
    fth_value mean, variance, x, logits, loss;
    assert_int_equal(fth_graph_add_buffer(net.graph, "mean", FTH_SHAPE(2), zero, &mean), FTH_OK);
    assert_int_equal(fth_graph_add_buffer(net.graph, "variance", FTH_SHAPE(2), zero, &variance), FTH_OK);
    assert_int_equal(fth_graph_begin_block(net.graph), FTH_OK);
    assert_int_equal(fth_op_add_batch_norm(net.graph, (fth_batch_norm_attributes){.epsilon = 1e-5F, .momentum = 0.1F},
                                           net.images, scale, shift, mean, variance, FTH_NO_VALUE, &x),
                     FTH_OK);
    fth_graph_end_block(net.graph);
    assert_int_equal(fth_op_add_flatten(net.graph, x, &logits), FTH_OK);
    assert_int_equal(fth_op_add_softmax_cross_entropy(net.graph, 0, logits, net.labels, &loss), FTH_OK);
    fth_graph_set_outputs(net.graph, logits, loss);
    assert_int_equal(fth_graph_differentiate(net.graph), FTH_UNSUPPORTED);
    assert_message_has("batch_norm changes running statistics");
    fth_graph_free(net.graph);
}

static void test_nothing_to_differentiate(void **state)
{
    (void)state;
    network net = create();
    assert_int_equal(fth_graph_differentiate(net.graph), FTH_INVALID);
    fth_value logits = FTH_NO_VALUE, loss = FTH_NO_VALUE;
    assert_int_equal(fth_op_add_flatten(net.graph, net.images, &logits), FTH_OK);
    assert_int_equal(fth_op_add_softmax_cross_entropy(net.graph, 0, logits, net.labels, &loss), FTH_OK);
    fth_graph_set_outputs(net.graph, logits, loss);
    assert_int_equal(fth_graph_differentiate(net.graph), FTH_INVALID);
    assert_message_has("nothing to train");
    fth_graph_free(net.graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_fan_out_is_summed),
        cmocka_unit_test(test_shared_parameter),
        cmocka_unit_test(test_concat_slices_only_what_is_wanted),
        cmocka_unit_test(test_residual_batch_norm),
        cmocka_unit_test(test_dropout_gradient_is_the_same_dropout),
        cmocka_unit_test(test_unused_parameters_come_last),
        cmocka_unit_test(test_blocks_are_computed_again),
        cmocka_unit_test(test_blocks_without_gradients_are_left_alone),
        cmocka_unit_test(test_blocks_leave_buffers_alone),
        cmocka_unit_test(test_nothing_to_differentiate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
