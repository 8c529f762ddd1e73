/* See hub.h. What transformers itself assumes where a file is silent: two labels, called LABEL_0
 * and LABEL_1; one label is a regression. */
#include "model/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/bert_internal.h"

enum { MAX_CLASSES = 1 << 20 };

static const char *const task_names[FTH_TASK_COUNT] = {
    [FTH_TASK_CLASSES] = "single_label_classification",
    [FTH_TASK_REGRESSION] = "regression",
    [FTH_TASK_MULTI_LABEL] = "multi_label_classification",
};

void fth_hub_config_release(fth_hub_config *config)
{
    for (int i = 0; config->class_names && i < config->classes; i++)
        free(config->class_names[i]);
    free(config->class_names);
    *config = (fth_hub_config){0};
}

/* ---- reading ---- */

static fth_status read_labels(const json_t *labels, fth_hub_config *config)
{
    fth_status status = FTH_OK;
    size_t count = json_object_size(labels);

    FTH_REQUIRE(count >= 1 && count <= MAX_CLASSES, FTH_CORRUPT, "\"id2label\" has %zu labels", count);
    FTH_TRY(fth_allocate(count, sizeof *config->class_names, &config->class_names));
    config->classes = (int)count;
    for (size_t i = 0; i < count; i++) {
        char key[16];
        snprintf(key, sizeof key, "%zu", i);
        const char *name = json_string_value(json_object_get(labels, key));
        FTH_REQUIRE(name, FTH_CORRUPT, "\"id2label\" has no label %zu", i);
        config->class_names[i] = fth_format("%s", name);
    }

out:
    return status;
}

static fth_status read_task(const json_t *json, fth_hub_config *config)
{
    const json_t *problem = json_object_get(json, "problem_type");
    config->task = config->classes == 1 ? FTH_TASK_REGRESSION : FTH_TASK_CLASSES;
    if (!problem || json_is_null(problem))
        return FTH_OK;
    for (int i = 0; i < FTH_TASK_COUNT; i++) {
        if (json_is_string(problem) && strcmp(json_string_value(problem), task_names[i]) == 0) {
            config->task = (fth_task)i;
            return FTH_OK;
        }
    }
    return fth_fail(FTH_UNSUPPORTED, "its \"problem_type\" is unknown");
}

fth_status fth_hub_config_read(const char *text, const char *origin, fth_hub_config *config)
{
    fth_status status = FTH_OK;
    json_t *json = json_loads(text, 0, NULL);
    const json_t *labels = json_object_get(json, "id2label");

    *config = (fth_hub_config){0};
    FTH_REQUIRE(json_is_object(json), FTH_CORRUPT, "not a JSON object");
    if (json_is_object(labels))
        FTH_TRY(read_labels(labels, config));
    FTH_TRY(read_task(json, config));

out:
    json_decref(json);
    if (status == FTH_OK)
        return FTH_OK;
    fth_hub_config_release(config);
    return fth_fail_within(status, "%s", origin);
}

/* ---- writing ---- */

/* Names may be no UTF-8, which JSON must be, or be missing: then they are what transformers calls
 * them. */
static int add_labels(json_t *json, const fth_hub_config *config)
{
    json_t *names = json_object(), *ids = json_object();
    int failed = 0;
    for (int i = 0; i < config->classes; i++) {
        char key[16], fallback[32];
        snprintf(key, sizeof key, "%d", i);
        snprintf(fallback, sizeof fallback, "LABEL_%d", i);
        json_t *name = config->class_names ? json_string(config->class_names[i]) : NULL;
        if (!name)
            name = json_string(fallback);
        failed |= json_object_set(names, key, name);
        failed |= json_object_set_new(ids, json_string_value(name), json_integer(i));
        json_decref(name);
    }
    return failed | json_object_set_new(json, "id2label", names) | json_object_set_new(json, "label2id", ids);
}

fth_status fth_hub_config_write(const fth_model *model, const fth_hub_config *config, char **text)
{
    fth_status status = FTH_OK;
    json_t *json = NULL;

    *text = NULL;
    FTH_REQUIRE(model->build_text == fth_bert_build, FTH_UNSUPPORTED,
                "%s has no place in transformers; text models (bert-...) do", model->name);
    json = json_pack("{s:[s], s:s, s:s, s:i, s:b}", "architectures", "BertForSequenceClassification", "torch_dtype",
                     "float32", "problem_type", task_names[config->task], "pad_token_id", 0, "use_cache", 1);
    FTH_REQUIRE(json, FTH_NO_MEMORY, "out of memory");
    FTH_TRY(fth_bert_config_write(model->details, json));
    FTH_REQUIRE(!add_labels(json, config), FTH_NO_MEMORY, "out of memory");
    if (config->weights)
        json_object_set_new(json, "transformers_weights", json_string(config->weights));
    *text = json_dumps(json, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(9));
    FTH_REQUIRE(*text, FTH_NO_MEMORY, "out of memory");

out:
    json_decref(json);
    return status;
}
