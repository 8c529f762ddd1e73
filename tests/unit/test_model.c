/* Models: names, parameter counts, sizes that fit and sizes that do not. */
#include "support.h"

#include "graph/ops.h"
#include "model/model.h"

static const fth_model *find(const char *name)
{
    const fth_model *model = NULL;
    assert_int_equal(fth_model_find(name, &model), FTH_OK);
    return model;
}

static fth_graph *create(const fth_model *model, const fth_model_options *options)
{
    fth_graph *graph = NULL;
    assert_int_equal(fth_model_create_graph(model, options, &graph), FTH_OK);
    return graph;
}

static void assert_value(const fth_graph *graph, const char *name, fth_value_kind kind, fth_shape shape)
{
    fth_value value = fth_graph_find(graph, name);
    if (value == FTH_NO_VALUE)
        fail_msg("there is no %s", name);
    const fth_value_info *info = fth_graph_value(graph, value);
    assert_int_equal(info->kind, kind);
    if (!fth_shape_equal(&info->type.shape, &shape)) {
        char text[128];
        fth_shape_format(&info->type.shape, text, sizeof text);
        fail_msg("%s has shape %s", name, text);
    }
}

static int count_ops(const fth_graph *graph, const fth_op *op)
{
    int count = 0;
    for (int i = 0; i < fth_graph_forward_node_count(graph); i++)
        count += fth_graph_node(graph, i)->op == op;
    return count;
}

/* The counts that PyTorch's and torchvision's documentation gives. */
static void test_parameter_counts(void **state)
{
    static const struct {
        const char *name;
        int64_t count;
        int tensors; /* of torch's state_dict */
    } expected[] = {
        {"linear", 7850, 2},
        {"mnist-cnn", 1199882, 8},
        {"cifar-cnn", 62006, 10},
        {"resnet18", 11689512, 122},
        {"resnet34", 21797672, 218},
        {"resnet50", 25557032, 320},
        {"resnet101", 44549160, 626},
        {"vgg11", 132863336, 22},
        {"vgg13", 133047848, 26},
        {"vgg16", 138357544, 32},
        {"vgg19", 143667240, 38},
        {"vgg11-bn", 132868840, 62},
        {"vgg13-bn", 133053736, 76},
        {"vgg16-bn", 138365992, 97},
        {"vgg19-bn", 143678248, 118},
        {"vgg19-narrow", 2695472, 38},
        /* akamaster's README rounds these to 0.27, 0.46, 0.66, 0.85 and 1.7 million */
        {"resnet20", 269722, 116},
        {"resnet32", 464154, 188},
        {"resnet44", 658586, 260},
        {"resnet56", 853018, 332},
        {"resnet110", 1727962, 656},
        /* torchvision's with conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False) and 10 classes */
        {"resnet18-small", 11173962, 122},
        {"resnet34-small", 21282122, 218},
        {"resnet50-small", 23520842, 320},
        {"resnet101-small", 42512970, 626},
        /* transformers' BertForSequenceClassification */
        {"bert-tiny", 4386178, 41},
        {"bert-mini", 11171074, 73},
        {"bert-small", 28764674, 73},
        {"minilm", 22713986, 105},
        {"bert-base", 109483778, 201},
    };
    (void)state;
    size_t listed = 0;
    while (fth_model_list[listed])
        listed++;
    assert_int_equal(listed, FTH_COUNT_OF(expected));
    for (size_t i = 0; i < FTH_COUNT_OF(expected); i++) {
        const fth_model *model = find(expected[i].name);
        fth_model_options options = fth_model_published(model);
        fth_graph *graph = create(model, &options);
        assert_int_equal(fth_graph_trainable_count(graph), expected[i].count);
        int tensors = fth_graph_counter_count(graph);
        for (int value = 0; value < fth_graph_value_count(graph); value++) {
            const fth_value_info *info = fth_graph_value(graph, value);
            tensors += info->kind == FTH_VALUE_PARAMETER || info->kind == FTH_VALUE_BUFFER;
            assert_true(info->kind != FTH_VALUE_PARAMETER || info->gradient != FTH_NO_VALUE);
        }
        assert_int_equal(tensors, expected[i].tensors);
        fth_graph_free(graph);
    }
}

static void test_torch_names(void **state)
{
    (void)state;
    fth_model_options options = fth_model_published(find("resnet50"));
    fth_graph *graph = create(find("resnet50"), &options);
    assert_value(graph, "images", FTH_VALUE_INPUT, FTH_SHAPE(FTH_BATCH, 3, 224, 224));
    assert_value(graph, "labels", FTH_VALUE_INPUT, FTH_SHAPE(FTH_BATCH));
    assert_value(graph, "conv1.weight", FTH_VALUE_PARAMETER, FTH_SHAPE(64, 3, 7, 7));
    assert_value(graph, "bn1.running_var", FTH_VALUE_BUFFER, FTH_SHAPE(64));
    assert_value(graph, "layer1.0.downsample.0.weight", FTH_VALUE_PARAMETER, FTH_SHAPE(256, 64, 1, 1));
    assert_value(graph, "layer4.0.downsample.1.bias", FTH_VALUE_PARAMETER, FTH_SHAPE(2048));
    assert_value(graph, "layer4.2.conv2.weight", FTH_VALUE_PARAMETER, FTH_SHAPE(512, 512, 3, 3));
    assert_value(graph, "layer4.2.bn3.running_mean", FTH_VALUE_BUFFER, FTH_SHAPE(2048));
    assert_value(graph, "fc.weight", FTH_VALUE_PARAMETER, FTH_SHAPE(1000, 2048));
    assert_int_equal(fth_graph_find(graph, "layer1.1.downsample.0.weight"), FTH_NO_VALUE);
    assert_int_equal(fth_graph_find(graph, "conv1.bias"), FTH_NO_VALUE);
    assert_string_equal(fth_graph_counter(graph, 0), "bn1.num_batches_tracked");
    assert_int_equal(fth_graph_counter_count(graph), 53);
    assert_int_equal(fth_graph_value(graph, fth_graph_find(graph, "fc.weight"))->offset, 0); /* finished first */
    fth_graph_free(graph);

    options = fth_model_published(find("vgg16-bn"));
    graph = create(find("vgg16-bn"), &options);
    assert_value(graph, "features.40.weight", FTH_VALUE_PARAMETER, FTH_SHAPE(512, 512, 3, 3));
    assert_value(graph, "features.41.running_mean", FTH_VALUE_BUFFER, FTH_SHAPE(512));
    assert_value(graph, "classifier.0.weight", FTH_VALUE_PARAMETER, FTH_SHAPE(4096, 25088));
    assert_value(graph, "classifier.6.bias", FTH_VALUE_PARAMETER, FTH_SHAPE(1000));
    fth_graph_free(graph);
}

/* torch: fan_in of a 3×3 convolution over one channel is 9; fan_out of ResNet's first is 64 ·
 * 49. */
static void test_initializers(void **state)
{
    (void)state;
    fth_model_options options = fth_model_published(find("mnist-cnn"));
    fth_graph *graph = create(find("mnist-cnn"), &options);
    const fth_value_info *value = fth_graph_value(graph, fth_graph_find(graph, "conv1.bias"));
    assert_int_equal(value->init.kind, FTH_INIT_UNIFORM);
    assert_true(value->init.amount > 0.33333 && value->init.amount < 0.33334);
    fth_graph_free(graph);
    options = fth_model_published(find("resnet18"));
    graph = create(find("resnet18"), &options);
    value = fth_graph_value(graph, fth_graph_find(graph, "conv1.weight"));
    assert_int_equal(value->init.kind, FTH_INIT_NORMAL);
    assert_true(value->init.amount > 0.025253 && value->init.amount < 0.025255);
    value = fth_graph_value(graph, fth_graph_find(graph, "bn1.running_var"));
    assert_int_equal(value->init.kind, FTH_INIT_CONSTANT);
    assert_true(value->init.amount == 1);
    fth_graph_free(graph);
}

static void test_sizes(void **state)
{
    static const struct {
        const char *name;
        int smallest;
    } cases[] = {{"linear", 1},   {"mnist-cnn", 6}, {"cifar-cnn", 16}, {"resnet18", 1},
                 {"resnet50", 1}, {"vgg11", 32},    {"vgg13-bn", 32}};
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        int size = cases[i].smallest;
        fth_model_options options = {.channels = 2, .height = size, .width = size + 5, .classes = 3};
        fth_graph *graph = create(find(cases[i].name), &options);
        const fth_shape *logits = &fth_graph_value(graph, fth_graph_logits(graph))->type.shape;
        assert_true(fth_shape_equal(logits, &FTH_SHAPE(FTH_BATCH, 3)));
        fth_graph_free(graph);
        graph = NULL;
        options.height--;
        assert_int_equal(fth_model_create_graph(find(cases[i].name), &options, &graph), FTH_INVALID);
        assert_null(graph);
        assert_message_has(cases[i].name);
        char expected[32];
        if (size > 1) {
            snprintf(expected, sizeof expected, "at least %d×%d", size, size);
            assert_message_has(expected);
        }
    }
}

static void test_bad_options(void **state)
{
    (void)state;
    fth_graph *graph = NULL;
    fth_model_options options = fth_model_published(find("mnist-cnn"));
    options.classes = 1;
    assert_int_equal(fth_model_create_graph(find("mnist-cnn"), &options, &graph), FTH_INVALID);
    options.classes = 10;
    options.channels = 0;
    assert_int_equal(fth_model_create_graph(find("mnist-cnn"), &options, &graph), FTH_INVALID);
    options.channels = 1;
    options.label_smoothing = 1;
    assert_int_equal(fth_model_create_graph(find("mnist-cnn"), &options, &graph), FTH_INVALID);
    options.label_smoothing = 0;
    options.height = options.width = INT32_MAX;
    assert_int_equal(fth_model_create_graph(find("mnist-cnn"), &options, &graph), FTH_INVALID);
    assert_null(graph);
}

static void test_dropout_can_be_left_out(void **state)
{
    (void)state;
    static const char *const names[] = {"mnist-cnn", "vgg11"};
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        fth_model_options options = fth_model_published(find(names[i]));
        fth_graph *graph = create(find(names[i]), &options);
        assert_int_equal(count_ops(graph, &fth_op_dropout), 2);
        assert_int_equal(count_ops(graph, &fth_op_adaptive_average_pool), 0); /* 224 pixels end as 7 */
        fth_graph_free(graph);
        options.no_dropout = true;
        graph = create(find(names[i]), &options);
        assert_int_equal(count_ops(graph, &fth_op_dropout), 0);
        fth_graph_free(graph);
    }
}

static void test_nearest_name(void **state)
{
    (void)state;
    const fth_model *model = NULL;
    assert_int_equal(fth_model_find("resnet81", &model), FTH_INVALID);
    assert_message_has("resnet18");
    assert_int_equal(fth_model_find("vgg16_bn", &model), FTH_INVALID);
    assert_message_has("vgg16-bn");
    assert_int_equal(fth_model_find("something else entirely", &model), FTH_INVALID);
    assert_message_has("farthing models");
    assert_null(model);
}

/* The stem is part of the name, so that all that carries a model's name carries it too. */
static void test_stems(void **state)
{
    static const struct {
        const char *name, *stem, *full;
    } cases[] = {{"resnet18", "small", "resnet18-small"},
                 {"resnet18-small", "small", "resnet18-small"},
                 {"resnet50", "standard", "resnet50"},
                 {"resnet18-small", "standard", "resnet18-small"}};
    char *full = NULL;
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        assert_int_equal(fth_model_apply_stem(cases[i].name, cases[i].stem, &full), FTH_OK);
        assert_string_equal(full, cases[i].full);
        free(full);
    }
    assert_int_equal(fth_model_apply_stem("vgg11", "small", &full), FTH_INVALID);
    assert_message_has("vgg11 has no other stem; resnet18,");
    assert_null(full);
    assert_int_equal(fth_model_apply_stem("resnet81", "small", &full), FTH_INVALID);
    assert_message_has("there is no model \"resnet81\"");

    const fth_model_options options = {.channels = 3, .height = 32, .width = 32, .classes = 10};
    fth_graph *graph = create(find("resnet18-small"), &options);
    assert_value(graph, "conv1.weight", FTH_VALUE_PARAMETER, FTH_SHAPE(64, 3, 3, 3));
    assert_int_equal(count_ops(graph, &fth_op_max_pool), 0);
    fth_graph_free(graph);
    graph = create(find("resnet20"), &options);
    assert_value(graph, "layer2.0.conv1.weight", FTH_VALUE_PARAMETER, FTH_SHAPE(32, 16, 3, 3));
    assert_value(graph, "linear.weight", FTH_VALUE_PARAMETER, FTH_SHAPE(10, 64));
    assert_int_equal(count_ops(graph, &fth_op_pad), 2);
    fth_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameter_counts), cmocka_unit_test(test_torch_names),
        cmocka_unit_test(test_initializers),     cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_bad_options),      cmocka_unit_test(test_dropout_can_be_left_out),
        cmocka_unit_test(test_nearest_name),     cmocka_unit_test(test_stems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
