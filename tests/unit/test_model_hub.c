/* Folders from the Hugging Face hub: names of tensors, which BERT they are of, and config.json. */
#include "support.h"

#include "model/bert.h"
#include "model/hub.h"

static const char small[] = "bert(layers=2,hidden=8,heads=2,intermediate=16,vocabulary=20,positions=12)";
static const char small_config[] =
    "{\"model_type\": \"bert\", \"num_hidden_layers\": 2, \"hidden_size\": 8, \"num_attention_heads\": 2, "
    "\"intermediate_size\": 16, \"vocab_size\": 20, \"max_position_embeddings\": 12}";

static fth_graph *create_graph(int classes)
{
    const fth_model *model = NULL;
    fth_graph *graph = NULL;
    const fth_model_options options = {.longest = 12, .classes = classes};
    assert_int_equal(fth_model_find(small, &model), FTH_OK);
    assert_int_equal(fth_model_create_graph(model, &options, &graph), FTH_OK);
    return graph;
}

/* How a file calls a network's parameter; NULL leaves it out. */
typedef const char *(*namer)(const char *name, char *buffer, size_t size);

enum { MAX_TENSORS = 64, NAME_SIZE = 128, FLOATS = 256 };

/* Writes the tensors of a BERT, and `others` (NULL at the end) beside them, as model.safetensors of
 * the test's folder. */
static void write_weights(namer name_of, const char *const *others)
{
    static const float zeros[FLOATS];
    static char names[MAX_TENSORS][NAME_SIZE];
    fth_tensor_view views[MAX_TENSORS];
    size_t count = 0;
    char path[TEST_MAX_PATH];
    fth_file *file = NULL;
    fth_graph *graph = create_graph(3);

    for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
        const fth_value_info *info = fth_graph_value(graph, v);
        const char *name = info->kind == FTH_VALUE_PARAMETER ? name_of(info->name, names[count], NAME_SIZE) : NULL;
        assert_true(count < MAX_TENSORS && (!name || fth_shape_count(&info->type.shape) <= FLOATS));
        if (name)
            views[count++] = (fth_tensor_view){name, FTH_F32, info->type.shape, zeros};
    }
    for (size_t i = 0; others[i]; i++)
        views[count++] = (fth_tensor_view){others[i], FTH_F32, FTH_SHAPE(2), zeros};
    assert_int_equal(fth_file_create(test_path(path, "model.safetensors"), &file), FTH_OK);
    assert_int_equal(fth_safetensors_write(file, views, count, NULL, 0), FTH_OK);
    assert_int_equal(fth_file_publish(file), FTH_OK);
    fth_file_free(file);
    fth_graph_free(graph);
}

static const char *as_it_is(const char *name, char *buffer, size_t size)
{
    (void)buffer, (void)size;
    return name;
}

/* As a BertModel by itself. */
static const char *bare(const char *name, char *buffer, size_t size)
{
    snprintf(buffer, size, "%s", name + strlen("bert."));
    return strncmp(name, "bert.", 5) == 0 ? buffer : NULL;
}

static const char *within(const char *name, char *buffer, size_t size)
{
    char inner[NAME_SIZE];
    if (!bare(name, inner, sizeof inner))
        return NULL;
    snprintf(buffer, size, "0.auto_model.%s", inner);
    return buffer;
}

/* As converted from TensorFlow for pretraining: without classifier, in a wrapper. */
static const char *old(const char *name, char *buffer, size_t size)
{
    const char *norm = strstr(name, "LayerNorm.");
    if (strncmp(name, "bert.", 5) != 0)
        return NULL;
    if (norm)
        snprintf(buffer, size, "model.%.*sLayerNorm.%s", (int)(norm - name), name,
                 strcmp(norm, "LayerNorm.weight") == 0 ? "gamma" : "beta");
    else
        snprintf(buffer, size, "model.%s", name);
    return buffer;
}

static const char *no_pooler(const char *name, char *buffer, size_t size)
{
    return strstr(name, "pooler") ? NULL : bare(name, buffer, size);
}

static fth_weights *open_folder(void)
{
    fth_weights *weights = NULL;
    if (fth_weights_open(test_folder, &weights) != FTH_OK)
        fail_msg("%s", fth_error_message());
    return weights;
}

static void test_names_in_files(void **state)
{
    static const struct {
        namer name_of;
        const char *others[4];
        const char *lacking; /* what is missing then, all of which is allowed to be */
        size_t left_out;
    } cases[] = {
        {as_it_is, {"bert.embeddings.position_ids", NULL}, "", 1},
        {bare, {"embeddings.position_ids", "embeddings.token_type_ids", NULL}, "classifier.", 2},
        {within, {"2.linear.weight", NULL}, "classifier.", 1},
        {old, {"model.cls.predictions.bias", "model.cls.seq_relationship.bias", NULL}, "classifier.", 2},
        {no_pooler, {NULL}, "bert.pooler. classifier.", 0},
    };
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        fth_model_fit fit = {0};
        write_weights(cases[i].name_of, cases[i].others);
        fth_weights *weights = open_folder();
        fth_graph *graph = create_graph(3);
        assert_int_equal(fth_model_recognize(weights, &fit), FTH_OK);
        assert_non_null(fit.model);
        assert_true(fit.fits);
        /* of 8 numbers there are no heads of 64 */
        assert_string_equal(fit.model->name,
                            "bert(layers=2,hidden=8,heads=1,intermediate=16,vocabulary=20,positions=12)");
        assert_int_equal(fit.classes, *cases[i].lacking ? 2 : 3);
        fth_model_fit_release(&fit);

        assert_int_equal(fth_model_narrow_weights(graph, "x", weights), FTH_OK);
        assert_int_equal(fth_weights_describe(weights).left_out_count, cases[i].left_out);
        size_t found = 0;
        for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
            const fth_value_info *info = fth_graph_value(graph, v);
            if (info->kind != FTH_VALUE_PARAMETER)
                continue;
            bool may_lack = fth_model_may_lack(graph, v);
            assert_int_equal(may_lack, strstr(info->name, "pooler") || strstr(info->name, "classifier"));
            const fth_tensor_view *view = fth_weights_find(weights, info->name);
            found += view != NULL;
            char layer[16];
            snprintf(layer, sizeof layer, "%.11s", info->name);
            bool lacks = may_lack && strstr(cases[i].lacking, layer);
            assert_int_equal(view == NULL, lacks);
        }
        assert_int_equal(found, fth_weights_count(weights));
        fth_graph_free(graph);
        fth_weights_free(weights);
    }
}

static const char *twice(const char *name, char *buffer, size_t size)
{
    snprintf(buffer, size, "a.%s", name);
    return buffer;
}

static void test_two_encoders(void **state)
{
    fth_model_fit fit = {0};
    (void)state;
    write_weights(twice, (const char *const[]){"b.bert.embeddings.word_embeddings.weight", NULL});
    fth_weights *weights = open_folder();
    assert_int_equal(fth_model_recognize(weights, &fit), FTH_INVALID);
    assert_message_has("two parts are BERTs, a.bert.* and b.bert.*");
    fth_weights_free(weights);
}

static void test_a_config_decides(void **state)
{
    fth_model_fit fit = {0};
    (void)state;
    write_weights(as_it_is, (const char *const[]){NULL});
    test_write_text("config.json", small_config);
    fth_weights *weights = open_folder();
    assert_string_equal(fth_weights_folder(weights), test_folder);
    assert_string_equal(fth_weights_config(weights), small_config);
    assert_int_equal(fth_model_recognize(weights, &fit), FTH_OK);
    assert_string_equal(fit.model->name, small);
    fth_model_fit_release(&fit);
    fth_weights_free(weights);

    test_write_text("config.json", "{\"model_type\": \"roberta\"}");
    weights = open_folder();
    assert_int_equal(fth_model_recognize(weights, &fit), FTH_UNSUPPORTED);
    assert_message_has("config.json: models of type \"roberta\" are not supported");
    fth_weights_free(weights);

    test_write_text("config.json", "{");
    weights = open_folder();
    assert_int_equal(fth_model_recognize(weights, &fit), FTH_CORRUPT);
    assert_message_has("config.json: not a JSON object");
    fth_weights_free(weights);
}

static void test_folders_without_weights(void **state)
{
    fth_weights *weights = NULL;
    (void)state;
    assert_int_equal(fth_weights_open(test_folder, &weights), FTH_INVALID);
    assert_message_has("has neither model.safetensors nor pytorch_model.bin");
    assert_null(weights);
    write_weights(as_it_is, (const char *const[]){NULL});
    char path[TEST_MAX_PATH];
    assert_int_equal(fth_weights_open(test_path(path, "model.safetensors"), &weights), FTH_OK);
    assert_null(fth_weights_folder(weights));
    assert_null(fth_weights_config(weights));
    fth_weights_free(weights);
}

/* ---- what it is for ---- */

static void test_config_of_a_task(void **state)
{
    char *names[] = {"World", "Sports", "\xff"}, *text = NULL;
    fth_hub_config config = {.classes = 3, .class_names = names}, again = {0};
    const fth_model *model = NULL;
    fth_bert_config shape;
    (void)state;
    assert_int_equal(fth_model_find(small, &model), FTH_OK);
    assert_int_equal(fth_hub_config_write(model, &config, &text), FTH_OK);
    assert_non_null(strstr(text, "\"BertForSequenceClassification\""));
    assert_int_equal(fth_hub_config_read(text, "x", &again), FTH_OK);
    assert_int_equal(again.task, FTH_TASK_CLASSES);
    assert_int_equal(again.classes, 3);
    assert_string_equal(again.class_names[1], "Sports");
    assert_string_equal(again.class_names[2], "LABEL_2"); /* no UTF-8 */
    fth_hub_config_release(&again);
    json_t *json = json_loads(text, 0, NULL);
    assert_int_equal(fth_bert_config_read(json, "x", &shape), FTH_OK);
    char *name = fth_bert_config_name(&shape);
    assert_string_equal(name, small);
    free(name);
    json_decref(json);
    free(text);

    config = (fth_hub_config){.task = FTH_TASK_MULTI_LABEL, .classes = 2, .weights = "best.safetensors"};
    assert_int_equal(fth_hub_config_write(model, &config, &text), FTH_OK);
    assert_int_equal(fth_hub_config_read(text, "x", &again), FTH_OK);
    assert_int_equal(again.task, FTH_TASK_MULTI_LABEL);
    assert_non_null(strstr(text, "\"transformers_weights\": \"best.safetensors\""));
    fth_hub_config_release(&again);
    free(text);
    assert_int_equal(fth_model_find("resnet18", &model), FTH_OK);
    assert_int_equal(fth_hub_config_write(model, &config, &text), FTH_UNSUPPORTED);
    assert_message_has("resnet18 has no place in transformers");
    assert_null(text);
}

static void test_configs_of_others(void **state)
{
    static const struct {
        const char *text, *message;
        fth_task task;
        int classes;
    } cases[] = {
        {"{}", NULL, FTH_TASK_CLASSES, 0},
        {"{\"id2label\": {\"0\": \"LABEL_0\"}}", NULL, FTH_TASK_REGRESSION, 1},
        {"{\"id2label\": {\"1\": \"b\", \"0\": \"a\"}, \"problem_type\": null}", NULL, FTH_TASK_CLASSES, 2},
        {"{\"problem_type\": \"regression\"}", NULL, FTH_TASK_REGRESSION, 0},
        {"{\"problem_type\": \"ranking\"}", "x: its \"problem_type\" is unknown", 0, 0},
        {"{\"id2label\": {}}", "\"id2label\" has 0 labels", 0, 0},
        {"{\"id2label\": {\"1\": \"b\", \"2\": \"a\"}}", "\"id2label\" has no label 0", 0, 0},
        {"{\"id2label\": {\"0\": 7}}", "\"id2label\" has no label 0", 0, 0},
        {"[", "x: not a JSON object", 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        fth_hub_config config;
        fth_status status = fth_hub_config_read(cases[i].text, "x", &config);
        if (cases[i].message) {
            assert_true(status != FTH_OK);
            assert_message_of(cases[i].text, cases[i].message);
            continue;
        }
        assert_int_equal(status, FTH_OK);
        assert_int_equal(config.task, cases[i].task);
        assert_int_equal(config.classes, cases[i].classes);
        fth_hub_config_release(&config);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_make_folder, test_remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_names_in_files),          TEST(test_two_encoders),     TEST(test_a_config_decides),
        TEST(test_folders_without_weights), TEST(test_config_of_a_task), TEST(test_configs_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
