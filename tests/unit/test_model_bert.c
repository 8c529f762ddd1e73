/* BERT: its names and config.json, parameters, tasks. */
#include "support.h"

#include <jansson.h>

#include "graph/ops.h"
#include "model/bert.h"

static const fth_model *find(const char *name)
{
    const fth_model *model = NULL;
    if (fth_model_find(name, &model) != FTH_OK)
        fail_msg("%s: %s", name, fth_error_message());
    return model;
}

static fth_graph *create(const char *name, const fth_model_options *options)
{
    fth_graph *graph = NULL;
    if (fth_model_create_graph(find(name), options, &graph) != FTH_OK)
        fail_msg("%s: %s", name, fth_error_message());
    return graph;
}

static int count_ops(const fth_graph *graph, const fth_op *op)
{
    int count = 0;
    for (int i = 0; i < fth_graph_forward_node_count(graph); i++)
        count += fth_graph_node(graph, i)->op == op;
    return count;
}

static const fth_value_info *get(const fth_graph *graph, const char *name)
{
    fth_value value = fth_graph_find(graph, name);
    if (value == FTH_NO_VALUE)
        fail_msg("there is no %s", name);
    return fth_graph_value(graph, value);
}

static void assert_shape(const fth_graph *graph, const char *name, fth_shape shape)
{
    char text[128];
    fth_shape_format(&get(graph, name)->type.shape, text, sizeof text);
    if (!fth_shape_equal(&get(graph, name)->type.shape, &shape))
        fail_msg("%s has shape %s", name, text);
}

/* ---- names ---- */

static void test_each_shape_has_one_name(void **state)
{
    static const struct {
        const char *asked, *name;
    } cases[] = {
        {"bert-base", "bert-base"},
        {"bert", "bert-base"},
        {"bert()", "bert-base"},
        {"bert(layers=4,hidden=256,heads=4,intermediate=1024)", "bert-mini"},
        {"bert-mini(vocabulary=8192)", "bert-mini(vocabulary=8192)"},
        {"bert-base(layers=4,heads=4,hidden=256,intermediate=1024,vocabulary=8192)", "bert-mini(vocabulary=8192)"},
        {"bert(layers=30)", "bert(layers=30)"},
        {"bert-tiny(layers=3)", "bert(layers=3,hidden=128,heads=2,intermediate=512)"},
        {"bert-tiny(dropout=0, attention_dropout=0.05)", "bert-tiny(dropout=0,attention_dropout=0.05)"},
        {"bert-tiny(dropout=1e-1)", "bert-tiny"},
        {"minilm(activation=gelu_tanh)", "minilm(activation=gelu_new)"},
        {"minilm(epsilon=1e-5,classifier_dropout=0.3)", "minilm(epsilon=1e-05,classifier_dropout=0.3)"},
    };
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        assert_string_equal(find(cases[i].asked)->name, cases[i].name);
        assert_ptr_equal(find(cases[i].asked), find(cases[i].name));
    }
    assert_int_equal(find("bert-mini(vocabulary=8192)")->vocabulary, 8192);
    assert_int_equal(find("bert(positions=64)")->longest, 64);
    char *full = NULL;
    assert_int_equal(fth_model_apply_stem("bert(layers=12)", "standard", &full), FTH_OK);
    assert_string_equal(full, "bert-base");
    free(full);
}

static void test_wrong_names(void **state)
{
    static const struct {
        const char *name, *message;
    } cases[] = {
        {"bert-mimi", "did you mean \"bert-mini\"?"},
        {"bert(layer=3)", "unknown \"layer\"; did you mean \"layers\"?"},
        {"bert(zzzzzzzzzz=3)", "there are layers, hidden, heads"},
        {"bert(layers)", "\"layers\" has no value"},
        {"bert(layers=)", "expected a number"},
        {"bert(layers=3x)", "expected a number"},
        {"bert(layers=0)", "it must be from 1 to 256"},
        {"bert(layers=2.5)", "it must be a whole number"},
        {"bert(layers=nan)", "it must be from 1 to 256"},
        {"bert(layers=3", "the closing parenthesis is missing"},
        {"bert(", "the closing parenthesis is missing"},
        {"bert(heads=5)", "hidden is 768, which 5 heads do not divide"},
        {"bert(activation=swish)", "the activation \"swish\" is not supported"},
        {"bert(dropout=1)", "it must be from 0 to 0.99"},
        {"resnet18(layers=2)", "there is no model"},
    };
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        const fth_model *model = NULL;
        assert_true(fth_model_find(cases[i].name, &model) != FTH_OK);
        assert_message_has(cases[i].message);
        assert_null(model);
    }
}

/* ---- config.json ---- */

static fth_status read_config(const char *text, fth_bert_config *config)
{
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    fth_status status = fth_bert_config_read(json, "x/config.json", config);
    json_decref(json);
    return status;
}

static void test_config_files(void **state)
{
    fth_bert_config config, again;
    (void)state;
    assert_int_equal(
        read_config("{\"model_type\": \"bert\", \"hidden_size\": 384, \"num_hidden_layers\": 6, \"intermediate_size\": "
                    "1536, \"num_attention_heads\": 12, \"hidden_act\": \"gelu\", \"classifier_dropout\": null, "
                    "\"layer_norm_eps\": 1e-12, \"pad_token_id\": 0, \"id2label\": {\"0\": \"a\"}}",
                    &config),
        FTH_OK);
    char *name = fth_bert_config_name(&config);
    assert_string_equal(name, "minilm");
    free(name);

    config = *(const fth_bert_config *)find("bert-tiny(activation=relu,types=1,classifier_dropout=0.2)")->details;
    json_t *json = json_object();
    assert_int_equal(fth_bert_config_write(&config, json), FTH_OK);
    assert_string_equal(json_string_value(json_object_get(json, "hidden_act")), "relu");
    assert_int_equal(json_integer_value(json_object_get(json, "type_vocab_size")), 1);
    assert_int_equal(fth_bert_config_read(json, "x", &again), FTH_OK);
    name = fth_bert_config_name(&again);
    assert_string_equal(name, "bert-tiny(types=1,activation=relu,classifier_dropout=0.2)");
    free(name);
    json_decref(json);
}

static void test_config_files_that_do_not_fit(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"{\"model_type\": \"gpt2\"}", "x/config.json: models of type \"gpt2\" are not supported"},
        {"{\"position_embedding_type\": \"relative_key\"}", "position_embedding_type \"relative_key\""},
        {"{\"is_decoder\": true}", "decoders are not supported"},
        {"{\"hidden_size\": \"768\"}", "\"hidden_size\" is no number"},
        {"{\"hidden_act\": 3}", "\"hidden_act\" is no text"},
        {"{\"hidden_size\": -1}", "hidden is -1"},
        {"{\"hidden_size\": 770}", "12 heads do not divide"},
        {"[]", "not a JSON object"},
    };
    fth_bert_config config;
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        assert_true(read_config(cases[i].text, &config) != FTH_OK);
        assert_message_has(cases[i].message);
    }
}

/* ---- the network ---- */

static void test_names_and_shapes(void **state)
{
    const fth_model_options options = {.longest = 128, .classes = 4};
    (void)state;
    fth_graph *graph = create("bert-tiny(vocabulary=100)", &options);
    assert_shape(graph, "tokens", FTH_SHAPE(FTH_TOKENS));
    assert_shape(graph, "ends", FTH_SHAPE(FTH_BATCH));
    assert_shape(graph, "labels", FTH_SHAPE(FTH_BATCH));
    assert_shape(graph, "bert.embeddings.word_embeddings.weight", FTH_SHAPE(100, 128));
    assert_shape(graph, "bert.embeddings.position_embeddings.weight", FTH_SHAPE(512, 128));
    assert_shape(graph, "bert.embeddings.token_type_embeddings.weight", FTH_SHAPE(2, 128));
    assert_shape(graph, "bert.embeddings.LayerNorm.weight", FTH_SHAPE(128));
    assert_shape(graph, "bert.encoder.layer.1.attention.self.value.bias", FTH_SHAPE(128));
    assert_shape(graph, "bert.encoder.layer.1.attention.output.dense.weight", FTH_SHAPE(128, 128));
    assert_shape(graph, "bert.encoder.layer.1.intermediate.dense.weight", FTH_SHAPE(512, 128));
    assert_shape(graph, "bert.encoder.layer.1.output.dense.weight", FTH_SHAPE(128, 512));
    assert_shape(graph, "bert.pooler.dense.weight", FTH_SHAPE(128, 128));
    assert_shape(graph, "classifier.weight", FTH_SHAPE(4, 128));
    fth_model_head head = fth_model_find_head(graph);
    assert_int_equal(head.weight, fth_graph_find(graph, "classifier.weight"));
    fth_graph_free(graph);
}

/* What qkv_linear wants: three weights, then three biases, each beside the next. */
static void test_query_key_and_value_lie_together(void **state)
{
    static const char *const order[] = {"query.weight", "key.weight", "value.weight",
                                        "query.bias",   "key.bias",   "value.bias"};
    const fth_model_options options = {.longest = 16, .classes = 2};
    (void)state;
    fth_graph *graph = create("bert-tiny", &options);
    for (size_t i = 1; i < FTH_COUNT_OF(order); i++) {
        char before[128], name[128];
        snprintf(before, sizeof before, "bert.encoder.layer.0.attention.self.%s", order[i - 1]);
        snprintf(name, sizeof name, "bert.encoder.layer.0.attention.self.%s", order[i]);
        size_t count = (size_t)fth_shape_count(&get(graph, before)->type.shape);
        assert_int_equal(get(graph, name)->offset, get(graph, before)->offset + count);
    }
    fth_graph_free(graph);
}

static void test_initial_values(void **state)
{
    const fth_model_options options = {.longest = 16, .classes = 2};
    (void)state;
    fth_graph *graph = create("bert-tiny(initializer=0.03)", &options);
    const fth_value_info *weight = get(graph, "bert.encoder.layer.0.output.dense.weight");
    assert_int_equal(weight->init.kind, FTH_INIT_NORMAL);
    assert_true(weight->init.amount == 0.03);
    assert_int_equal(get(graph, "bert.embeddings.word_embeddings.weight")->init.kind, FTH_INIT_NORMAL);
    assert_true(get(graph, "bert.pooler.dense.bias")->init.amount == 0);
    assert_true(get(graph, "bert.encoder.layer.1.output.LayerNorm.weight")->init.amount == 1);
    fth_graph_free(graph);
}

static void test_tasks(void **state)
{
    fth_model_options options = {.longest = 16, .classes = 1, .task = FTH_TASK_REGRESSION};
    fth_graph *graph = NULL;
    (void)state;
    graph = create("bert-tiny", &options);
    assert_int_equal(count_ops(graph, &fth_op_squared_error), 1);
    assert_shape(graph, "targets", FTH_SHAPE(FTH_BATCH, 1));
    assert_int_equal(fth_graph_find(graph, "labels"), FTH_NO_VALUE);
    fth_graph_free(graph);
    options.task = FTH_TASK_MULTI_LABEL;
    options.classes = 5;
    graph = create("bert-tiny", &options);
    assert_int_equal(count_ops(graph, &fth_op_sigmoid_cross_entropy), 1);
    assert_shape(graph, "targets", FTH_SHAPE(FTH_BATCH, 5));
    fth_graph_free(graph);
    graph = NULL;
    options = (fth_model_options){.longest = 16, .classes = 1};
    assert_int_equal(fth_model_create_graph(find("bert-tiny"), &options, &graph), FTH_INVALID);
    assert_message_has("cannot tell 1 class apart");
    options = (fth_model_options){.longest = 513, .classes = 2};
    assert_int_equal(fth_model_create_graph(find("bert-tiny"), &options, &graph), FTH_INVALID);
    assert_message_has("bert-tiny cannot take sequences of 513 tokens; it knows 512 positions");
    assert_null(graph);
}

static void test_dropout_can_be_left_out(void **state)
{
    fth_model_options options = {.longest = 16, .classes = 2};
    (void)state;
    fth_graph *graph = create("bert-tiny", &options);
    assert_int_equal(count_ops(graph, &fth_op_dropout), 2); /* the others are part of layer norms and attention */
    fth_graph_free(graph);
    options.no_dropout = true;
    graph = create("bert-tiny", &options);
    assert_int_equal(count_ops(graph, &fth_op_dropout), 0);
    for (int i = 0; i < fth_graph_node_count(graph); i++) {
        const fth_node *node = fth_graph_node(graph, i);
        if (node->op == &fth_op_layer_norm)
            assert_true(((const fth_layer_norm_attributes *)node->attributes)->probability == 0);
        if (node->op == &fth_op_attention)
            assert_true(((const fth_attention_attributes *)node->attributes)->probability == 0);
    }
    fth_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_shape_has_one_name),
        cmocka_unit_test(test_wrong_names),
        cmocka_unit_test(test_config_files),
        cmocka_unit_test(test_config_files_that_do_not_fit),
        cmocka_unit_test(test_names_and_shapes),
        cmocka_unit_test(test_query_key_and_value_lie_together),
        cmocka_unit_test(test_initial_values),
        cmocka_unit_test(test_tasks),
        cmocka_unit_test(test_dropout_can_be_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
