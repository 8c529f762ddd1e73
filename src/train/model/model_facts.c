/* What model files say about themselves: see classifier.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/exported_model.h"
#include "model/hub.h"
#include "train/model/classifier.h"
#include "train/model/run_network.h"
#include "train/setup/text_data.h"

enum { MAX_CLASSES = 1 << 20, MAX_SIDE = 1 << 16, MAX_CLASS_FILE = 1 << 26, MAX_TOKENS = 1 << 16 };

static void release_names(fth_model_facts *facts)
{
    for (int i = 0; facts->class_names && i < facts->classes; i++)
        free(facts->class_names[i]);
    free(facts->class_names);
    facts->class_names = NULL;
}

void fth_model_facts_release(fth_model_facts *facts)
{
    release_names(facts);
    free(facts->model);
    free(facts->transform);
    free(facts->network);
    free(facts->text.tokenizer);
    *facts = (fth_model_facts){0};
}

fth_status fth_model_facts_of_data(const fth_dataset *dataset, fth_model_facts *facts)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = fth_dataset_get_info(dataset);

    facts->classes = info->classes;
    if (info->class_names) {
        FTH_TRY(fth_allocate((size_t)info->classes, sizeof *facts->class_names, &facts->class_names));
        for (int i = 0; i < info->classes; i++)
            facts->class_names[i] = fth_format("%s", info->class_names[i]);
    }
    if (info->modality == FTH_MODALITY_TEXT) {
        facts->text.longest = info->text.longest;
        facts->text.task = fth_task_of_labels(info->text.label);
        facts->text.tokenizer = fth_tokenizer_to_json(info->text.tokenizer);
        FTH_REQUIRE(facts->text.tokenizer, FTH_NO_MEMORY, "no memory for the tokenizer");
        goto out;
    }
    facts->channels = info->channels;
    facts->height = info->height;
    facts->width = info->width;
    facts->normalization = info->normalization;
    facts->transform = fth_dataset_describe_transform(dataset, FTH_VALIDATION);

out:
    return status;
}

fth_status fth_model_facts_of_run(const fth_train_options *options, const fth_dataset *dataset, fth_model_facts *facts)
{
    fth_status status = fth_model_facts_of_data(dataset, facts);
    const char *network = fth_run_network_text(options);
    facts->model = fth_format("%s", fth_exported_model_short_name(options->model));
    if (network)
        facts->network = fth_format("%s", network);
    if (facts->text.longest > 0)
        facts->text.longest = (int)options->text.max_length;
    return status;
}

fth_status fth_model_facts_read_classes(const char *path, fth_model_facts *facts)
{
    fth_status status = FTH_OK;
    char *text = NULL, *rest = NULL;
    size_t size = 0, count = 0;

    FTH_TRY(fth_file_read_all(path, MAX_CLASS_FILE, &text, &size));
    for (size_t i = 0; i < size; i++)
        count += text[i] == '\n';
    release_names(facts);
    facts->classes = 0;
    FTH_TRY(fth_allocate(count + 1, sizeof *facts->class_names, &facts->class_names));
    for (char *line = strtok_r(text, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest))
        facts->class_names[facts->classes++] = fth_format("%s", line);
    FTH_REQUIRE(facts->classes >= 2, FTH_INVALID, "%s: classes are expected there, one a line", path);

out:
    free(text);
    return status;
}

/* ---- what is not known for sure ---- */

void fth_model_facts_warn_assumed(const fth_model_facts *facts, const char *origin)
{
    char text[2 * FTH_NORMALIZATION_TEXT];
    fth_normalization_describe(&facts->normalization, text);
    fth_log_warning("%s does not say how its model's images are normalized; assuming %s: set it with --normalize",
                    origin, text);
}

void fth_model_facts_warn_override(const fth_model_facts *of_file, const fth_normalization *used, const char *origin)
{
    char theirs[FTH_NORMALIZATION_TEXT], ours[FTH_NORMALIZATION_TEXT];
    if (of_file->normalization.channels == 0 || fth_normalization_equal(&of_file->normalization, used))
        return;
    fth_normalization_format(&of_file->normalization, theirs);
    fth_normalization_format(used, ours);
    fth_log_warning("%s was trained with images normalized as %s; using %s, as asked", origin, theirs, ours);
}

/* ---- as metadata ---- */

static char *normalization_text(const fth_normalization *normalization)
{
    json_t *json = fth_normalization_to_json(normalization);
    char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(json);
    return text;
}

static char *classes_text(const fth_model_facts *facts)
{
    json_t *json = json_array();
    for (int i = 0; i < facts->classes; i++) {
        /* A folder's name may be no UTF-8, which JSON must be; its number is better than no file at
         * all. */
        json_t *name = facts->class_names ? json_string(facts->class_names[i]) : NULL;
        json_array_append_new(json, name ? name : json_sprintf("%d", i));
    }
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    return text;
}

static void add_entry(fth_model_metadata *metadata, const char *key, const char *value)
{
    metadata->entries[metadata->count++] = (fth_metadata_entry){key, value};
}

fth_status fth_model_facts_to_metadata(const fth_model_facts *facts, fth_model_metadata *metadata)
{
    fth_status status = FTH_OK;
    *metadata = (fth_model_metadata){.entries = {{"format", "pt"}, {"farthing", FTH_VERSION}}, .count = 2};
    if (facts->model)
        add_entry(metadata, "model", facts->model);
    if (facts->text.longest > 0) {
        metadata->owned[0] = fth_format("%d", facts->text.longest);
        add_entry(metadata, "max_length", metadata->owned[0]);
        add_entry(metadata, "task", fth_task_names[facts->text.task]);
    } else {
        metadata->owned[0] = fth_format("%dx%dx%d", facts->channels, facts->height, facts->width);
        add_entry(metadata, "input", metadata->owned[0]);
    }
    if (facts->text.tokenizer)
        add_entry(metadata, "tokenizer", facts->text.tokenizer);
    metadata->owned[1] = classes_text(facts);
    FTH_REQUIRE(metadata->owned[1], FTH_NO_MEMORY, "no memory for the names of the classes");
    add_entry(metadata, "classes", metadata->owned[1]);
    if (facts->normalization.channels > 0 && !facts->normalization_assumed) {
        metadata->owned[2] = normalization_text(&facts->normalization);
        FTH_REQUIRE(metadata->owned[2], FTH_NO_MEMORY, "no memory for the normalization");
        add_entry(metadata, "normalization", metadata->owned[2]);
    }
    if (facts->transform)
        add_entry(metadata, "transform", facts->transform);
    if (facts->network)
        add_entry(metadata, "network", facts->network);

out:
    return status;
}

void fth_model_metadata_release(fth_model_metadata *metadata)
{
    for (size_t i = 0; i < FTH_COUNT_OF(metadata->owned); i++)
        free(metadata->owned[i]);
    *metadata = (fth_model_metadata){0};
}

/* ---- from metadata, which anybody may have written ---- */

static fth_status read_classes(const char *text, const char *origin, fth_model_facts *facts)
{
    fth_status status = FTH_OK;
    json_t *json = json_loads(text, 0, NULL);
    size_t count = json_array_size(json);

    const size_t fewest = facts->text.task == FTH_TASK_CLASSES ? 2 : 1;

    FTH_REQUIRE(count >= fewest && count <= MAX_CLASSES, FTH_CORRUPT, "%s: its metadata has no valid \"classes\"",
                origin);
    FTH_TRY(fth_allocate(count, sizeof *facts->class_names, &facts->class_names));
    facts->classes = (int)count;
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(json, i));
        FTH_REQUIRE(name, FTH_CORRUPT, "%s: its metadata has no valid \"classes\"", origin);
        facts->class_names[i] = fth_format("%s", name);
    }

out:
    json_decref(json);
    return status;
}

static fth_status read_normalization(const char *text, const char *origin, fth_model_facts *facts)
{
    json_t *json = json_loads(text, 0, NULL);
    bool valid = fth_normalization_from_json(json, facts->channels, &facts->normalization);
    json_decref(json);
    return valid ? FTH_OK : fth_fail(FTH_CORRUPT, "%s: its metadata has no valid \"normalization\"", origin);
}

static fth_status read_text(const fth_weights *weights, const char *origin, fth_model_facts *facts)
{
    fth_status status = FTH_OK;
    const char *longest = fth_weights_metadata(weights, "max_length"), *task = fth_weights_metadata(weights, "task");
    const char *tokenizer = fth_weights_metadata(weights, "tokenizer");

    if (!longest)
        return FTH_OK;
    facts->text.longest = atoi(longest);
    facts->text.task = task ? fth_task_find(task) : FTH_TASK_CLASSES;
    FTH_REQUIRE(facts->text.longest >= 1 && facts->text.longest <= MAX_TOKENS, FTH_CORRUPT,
                "%s: its metadata has no valid \"max_length\"", origin);
    FTH_REQUIRE(facts->text.task < FTH_TASK_COUNT, FTH_CORRUPT, "%s: its metadata has no valid \"task\"", origin);
    if (tokenizer)
        facts->text.tokenizer = fth_format("%s", tokenizer);

out:
    return status;
}

/* What the config.json of a folder from the hub says of classes and task. */
static fth_status read_hub_config(const fth_weights *weights, fth_model_facts *facts)
{
    fth_status status = FTH_OK;
    const char *text = fth_weights_config(weights);
    fth_hub_config config = {0};
    char *path = NULL;

    if (!text || !*text)
        return FTH_OK;
    path = fth_path_join(fth_weights_folder(weights), "config.json");
    FTH_TRY(fth_hub_config_read(text, path, &config));
    facts->text.task = config.task;
    facts->classes = config.classes;
    facts->class_names = config.class_names;
    config = (fth_hub_config){0};

out:
    fth_hub_config_release(&config);
    free(path);
    return status;
}

fth_status fth_model_facts_of_file(const fth_weights *weights, const char *origin, fth_model_facts *facts)
{
    fth_status status = FTH_OK;
    const char *model = fth_weights_metadata(weights, "model"), *input = fth_weights_metadata(weights, "input");
    const char *classes = fth_weights_metadata(weights, "classes");
    const char *normalization = fth_weights_metadata(weights, "normalization");
    const char *transform = fth_weights_metadata(weights, "transform");
    const char *network = fth_weights_metadata(weights, "network");

    if (!fth_weights_metadata(weights, "farthing"))
        return read_hub_config(weights, facts); /* others may mean something else by these words */
    if (model)
        facts->model = fth_format("%.400s", model);
    if (model && network)
        facts->network = fth_format("%s", network);
    if (input) {
        int length = 0;
        bool read = sscanf(input, "%5dx%5dx%5d%n", &facts->channels, &facts->height, &facts->width, &length) == 3;
        FTH_REQUIRE(read && !input[length] && facts->channels > 0 && facts->channels <= FTH_MAX_CHANNELS &&
                        facts->height > 0 && facts->height <= MAX_SIDE && facts->width > 0 && facts->width <= MAX_SIDE,
                    FTH_CORRUPT, "%s: its metadata has no valid \"input\"", origin);
    }
    FTH_TRY(read_text(weights, origin, facts));
    if (classes && *classes == '[')
        FTH_TRY(read_classes(classes, origin, facts));
    if (normalization && input)
        FTH_TRY(read_normalization(normalization, origin, facts));
    if (transform) {
        FTH_TRY(fth_transform_check(transform));
        facts->transform = fth_format("%s", transform);
    }

out:
    return status;
}

fth_status fth_model_facts_fail_unknown(const char *origin)
{
    if (fth_exported_model_is_name(origin))
        return fth_fail(FTH_INVALID, "%s has a network of its own: give --model %s too", origin, origin);
    return fth_fail(
        FTH_INVALID,
        "%s does not say of which model its weights are, and its tensors are those of none: give --model NAME", origin);
}

fth_status fth_model_facts_recognize(const fth_weights *weights, const char *origin, fth_model_facts *facts)
{
    fth_status status = FTH_OK;
    fth_model_fit fit = {0};

    if (facts->model && (facts->channels > 0 || facts->text.longest > 0))
        return FTH_OK;
    FTH_TRY(fth_model_recognize(weights, &fit));
    if (!facts->model) {
        if (!fit.model)
            FTH_TRY(fth_model_facts_fail_unknown(origin));
        facts->model = fth_format("%s", fit.model->name);
        fth_log_info("%s: its tensors are those of %s", origin, facts->model);
    }
    if (facts->channels == 0 && fit.model && strcmp(fit.model->name, facts->model) == 0)
        facts->channels = fit.channels;

out:
    fth_model_fit_release(&fit);
    return status;
}

fth_status fth_model_facts_agree(const char *origin, const char *in_file, const char *asked_for)
{
    if (!in_file || !asked_for ||
        strcmp(fth_exported_model_short_name(in_file), fth_exported_model_short_name(asked_for)) == 0)
        return FTH_OK;
    return fth_fail(FTH_INVALID, "%s is of the model %s, not of %s: leave out --model", origin, in_file, asked_for);
}

fth_status fth_model_facts_find_model(const fth_model_facts *facts, const char *origin, const fth_model **model)
{
    if (facts->network)
        return fth_exported_model_parse(facts->network, strlen(facts->network), facts->model, origin, model);
    if (fth_exported_model_is_name(facts->model) || fth_model_find(facts->model, model) == FTH_OK)
        return fth_model_find(facts->model, model);
    return fth_fail(FTH_INVALID,
                    "%s is of the network %s, which is not built in; only a program that builds it can use it "
                    "(fth_predictor_open() with that network)",
                    origin, facts->model);
}

fth_status fth_train_options_find_model(const fth_train_options *options, const fth_model **model)
{
    *model = options->own.network;
    return *model ? FTH_OK : fth_model_find(options->model, model);
}

fth_status fth_train_options_adopt_model(fth_train_options *options, bool configured)
{
    fth_status status = FTH_OK;
    fth_weights *weights = NULL;
    fth_model_facts facts = {0};
    const fth_model *model = NULL;
    const bool given = fth_options_is_set(&fth_train_option_table, options, "model");

    if ((given || configured) && !fth_exported_model_is_name(options->model))
        FTH_TRY(fth_train_options_find_model(options, &model));
    FTH_TRY(fth_weights_open(options->weights, &weights));
    FTH_TRY(fth_model_facts_of_file(weights, options->weights, &facts));
    if (given)
        FTH_TRY(fth_model_facts_agree(options->weights, facts.model, options->model));
    if (!facts.network && (given || (configured && !facts.model))) {
        FTH_TRY(fth_train_options_find_model(options, &model));
        if (fth_exported_model_text(model))
            options->own.network = model;
        goto out;
    }
    FTH_TRY(fth_model_facts_recognize(weights, options->weights, &facts));
    FTH_TRY(fth_model_facts_find_model(&facts, options->weights, &model));
    if (fth_exported_model_text(model))
        options->own.network = model;
    free(options->model);
    options->model = facts.model;
    facts.model = NULL;

out:
    fth_model_facts_release(&facts);
    fth_weights_free(weights);
    return status;
}
