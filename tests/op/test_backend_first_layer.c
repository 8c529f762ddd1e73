/* Convolutions that read the images themselves, as a network's first layer does: back ends treat
 * those in ways of their own (channels padded, pixels folded). Every back end against the
 * reference, in every precision it has. */
#include "op_harness.h"

typedef struct first_layer {
    const char *name;
    int batch, channels, size, outputs, kernel, padding, stride;
    bool relu;
} first_layer;

static const first_layer layers[] = {
    {"resnet", 3, 3, 32, 64, 7, 3, 2, false},
    {"resnet, odd size", 2, 3, 31, 16, 7, 3, 2, false},
    {"vgg", 2, 3, 16, 64, 3, 1, 1, true},
    {"mnist", 4, 1, 28, 32, 3, 0, 1, true},
    {"stride 2, 3x3", 2, 4, 16, 24, 3, 1, 2, true},
    {"stride 2, 5x5", 2, 2, 20, 8, 5, 2, 2, false},
    {"stride 2, 4x4", 2, 3, 16, 8, 4, 1, 2, false},
    {"stride 2, no padding", 2, 1, 18, 8, 3, 0, 2, false},
    {"five channels", 2, 5, 12, 16, 7, 3, 2, false},
    {"patches", 2, 3, 32, 16, 4, 0, 4, false},
};

static void build(const first_layer *with, op_network *network)
{
    fth_graph *graph = NULL;
    fth_value images, labels, weight, bias, x, logits, loss;
    const fth_initializer small = {FTH_INIT_UNIFORM, 0.15};
    const fth_convolution_attributes attributes = {.stride = {with->stride, with->stride},
                                                   .padding = {with->padding, with->padding},
                                                   .dilation = {1, 1},
                                                   .groups = 1,
                                                   .relu = with->relu};
    op_check(fth_graph_create(&graph));
    op_check(fth_graph_add_input(graph, "images", FTH_F32, FTH_SHAPE(FTH_BATCH, with->channels, with->size, with->size),
                                 &images));
    op_check(fth_graph_add_input(graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels));
    op_check(fth_graph_add_parameter(
        graph, "conv.weight", FTH_SHAPE(with->outputs, with->channels, with->kernel, with->kernel), small, &weight));
    op_check(fth_graph_add_parameter(graph, "conv.bias", FTH_SHAPE(with->outputs), small, &bias));
    op_check(fth_op_add_convolution(graph, attributes, images, weight, bias, &x));
    op_check(fth_op_add_flatten(graph, x, &x));
    const int64_t features = fth_graph_value(graph, x)->type.shape.dims[1];
    op_check(fth_graph_add_parameter(graph, "head.weight", FTH_SHAPE(5, features), small, &weight));
    op_check(fth_op_add_linear(graph, false, x, weight, FTH_NO_VALUE, &logits));
    op_check(fth_op_add_softmax_cross_entropy(graph, 0, logits, labels, &loss));
    fth_graph_set_outputs(graph, logits, loss);
    op_check(fth_graph_differentiate(graph));
    op_network_create(network, graph, with->batch, 5);
    op_network_randomize(network, 5);
    network->reduction = features;
    network->kinks = with->relu;
}

static void test_layer(void **state)
{
    static const char *const devices[] = {OP_DEVICES};
    static const struct {
        const char *name;
        fth_precision precision, tolerance;
    } precisions[] = {{"f32", FTH_PRECISION_F32, FTH_PRECISION_F32},
                      {"bf16", FTH_PRECISION_BF16, FTH_PRECISION_BF16},
                      {"f16", FTH_PRECISION_F16, FTH_PRECISION_BF16},
                      {"tf32", FTH_PRECISION_TF32, FTH_PRECISION_BF16}};
    const first_layer *with = *state;
    const fth_run run = {.seed = 1, .step = 1, .gradient_scale = 1};
    int differences = 0;
    op_network network;
    op_result wanted;
    build(with, &network);
    op_run_once(&network, op_device("reference"), FTH_PLAN_TRAIN, FTH_PRECISION_F32, &run, &wanted);
    for (size_t d = 0; d < FTH_COUNT_OF(devices); d++)
        for (size_t p = 0; p < FTH_COUNT_OF(precisions); p++) {
            fth_device *device = op_device(devices[d]);
            char who[160];
            op_result found;
            if (device == NULL || device->backend->check_precision(device, precisions[p].precision) != FTH_OK)
                continue;
            snprintf(who, sizeof who, "%s on %s, %s", with->name, devices[d], precisions[p].name);
            op_run_once(&network, device, FTH_PLAN_TRAIN, precisions[p].precision, &run, &found);
            differences += op_compare(&network, &found, &wanted, precisions[p].tolerance, who);
            op_result_free(&found);
        }
    op_result_free(&wanted);
    op_network_free(&network);
    assert_int_equal(differences, 0);
}

int main(void)
{
    struct CMUnitTest tests[FTH_COUNT_OF(layers)];
    for (size_t i = 0; i < FTH_COUNT_OF(layers); i++)
        tests[i] =
            (struct CMUnitTest){.name = layers[i].name, .test_func = test_layer, .initial_state = (void *)&layers[i]};
    return _cmocka_run_group_tests("first layers on every back end", tests, FTH_COUNT_OF(layers), NULL,
                                   op_close_devices);
}
