/* See text_data.h. */
#include "train/setup/text_data.h"

#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "train/setup/usual.h"
#include "train/train_internal.h"

const char *const fth_task_names[] = {"classes", "regression", "multi-label", NULL};

fth_task fth_task_find(const char *name)
{
    int task = 0;
    while (task < FTH_TASK_COUNT && strcmp(fth_task_names[task], name) != 0)
        task++;
    return (fth_task)task;
}

static const fth_label_kind labels_of[] = {[FTH_TASK_CLASSES] = FTH_LABEL_CLASS,
                                           [FTH_TASK_REGRESSION] = FTH_LABEL_NUMBER,
                                           [FTH_TASK_MULTI_LABEL] = FTH_LABEL_SET};

fth_task fth_task_of_labels(fth_label_kind kind)
{
    int task = 0;
    while (task < FTH_TASK_COUNT - 1 && labels_of[task] != kind)
        task++;
    return (fth_task)task;
}

bool fth_dataset_has_accuracy(const fth_dataset_info *info)
{
    return info->modality != FTH_MODALITY_TEXT || info->text.label != FTH_LABEL_NUMBER;
}

fth_label_kind fth_task_get_labels(fth_task task)
{
    return labels_of[task < FTH_TASK_COUNT ? task : FTH_TASK_CLASSES];
}

fth_text_options fth_text_options_make(const fth_train_options *options, const fth_text_known *known)
{
    return (fth_text_options){.tokenizer = known ? known->tokenizer : NULL,
                              .vocabulary = (int)options->text.vocab_size,
                              .longest = (int)options->text.max_length,
                              .text_column = options->text.text_column,
                              .pair_column = options->text.pair_column,
                              .label_column = options->text.label_column,
                              .label = fth_task_get_labels(options->text.task),
                              .class_names = known ? known->class_names : NULL};
}

/* ---- the tokenizer ---- */

static bool holds_tokenizer(const char *folder)
{
    static const char *const names[] = {"tokenizer.json", "vocab.txt"};
    bool found = false;
    for (size_t i = 0; i < FTH_COUNT_OF(names) && !found; i++) {
        char *path = fth_path_join(folder, names[i]);
        found = path && fth_file_exists(path);
        free(path);
    }
    return found;
}

fth_status fth_tokenizer_parse_metadata(const char *text, const char *path, fth_tokenizer **tokenizer)
{
    char *origin = fth_format("%s: its metadata \"tokenizer\"", path);
    fth_status status = fth_tokenizer_parse(text, strlen(text), origin ? origin : path, tokenizer);
    free(origin);
    return status;
}

fth_status fth_weights_find_tokenizer(const fth_weights *weights, const char *path, fth_tokenizer **tokenizer)
{
    *tokenizer = NULL;
    const char *text = fth_weights_metadata(weights, "farthing") ? fth_weights_metadata(weights, "tokenizer") : NULL;
    if (text)
        return fth_tokenizer_parse_metadata(text, path, tokenizer);
    const char *folder = fth_weights_folder(weights);
    return folder && holds_tokenizer(folder) ? fth_tokenizer_open(folder, tokenizer) : FTH_OK;
}

fth_status fth_options_find_tokenizer(const fth_train_options *options, fth_tokenizer **tokenizer)
{
    fth_status status = FTH_OK;
    fth_weights *weights = NULL;

    *tokenizer = NULL;
    if (*options->text.vocab)
        return fth_tokenizer_open(options->text.vocab, tokenizer);
    if (!*options->weights)
        return FTH_OK;
    FTH_TRY(fth_weights_open(options->weights, &weights));
    FTH_TRY(fth_weights_find_tokenizer(weights, options->weights, tokenizer));

out:
    fth_weights_free(weights);
    return status;
}

void fth_tokenizer_get_digest(const fth_tokenizer *tokenizer, char digest[65])
{
    char *json = fth_tokenizer_to_json(tokenizer);
    *digest = '\0';
    if (json)
        fth_hex_sha256(json, strlen(json), digest);
    free(json);
}

fth_status fth_text_check_tokenizer(const fth_dataset_info *info, const json_t *data, const char *run)
{
    const char *before = json_string_value(json_object_get(data, "tokenizer"));
    char now[65] = "";
    if (info->modality == FTH_MODALITY_TEXT)
        fth_tokenizer_get_digest(info->text.tokenizer, now);
    if (!before || strcmp(before, now) == 0)
        return FTH_OK;
    return fth_fail(FTH_INVALID,
                    "%s was started with another tokenizer than the one there is now, and its weights fit only that: "
                    "put back its " FTH_RUN_TOKENIZER
                    " as it was (`farthing export --to huggingface` takes it from a model)",
                    run);
}

/* ---- for the record ---- */

void fth_text_describe(const fth_dataset_info *info, json_t *data)
{
    static const char *const of_images[] = {"channels", "height", "width", "normalization"};
    for (size_t i = 0; i < FTH_COUNT_OF(of_images); i++)
        json_object_del(data, of_images[i]);
    json_object_set_new(data, "kind", json_string("text"));
    json_object_set_new(data, "task", json_string(fth_task_names[fth_task_of_labels(info->text.label)]));
    json_object_set_new(data, "vocabulary", json_integer(fth_tokenizer_size(info->text.tokenizer)));
    char digest[65];
    fth_tokenizer_get_digest(info->text.tokenizer, digest);
    if (*digest)
        json_object_set_new(data, "tokenizer", json_string(digest));
    json_object_set_new(data, "longest", json_integer(info->text.longest));
}

/* ---- for the engine ---- */

fth_status fth_options_check_length(const fth_train_options *options)
{
    const fth_model *model = NULL;
    if (fth_usual_needs_data(options))
        return FTH_OK; /* asked again when it is chosen */
    fth_status status = fth_train_options_find_model(options, &model);
    if (status != FTH_OK || !model->build_text || options->text.max_length <= model->longest)
        return status;
    return fth_fail(FTH_INVALID, "--max-length %lld is more than the %d tokens that %s can take",
                    (long long)options->text.max_length, model->longest, model->name);
}

void fth_engine_options_take_data(fth_engine_options *options, const fth_dataset_info *info)
{
    options->channels = info->channels;
    options->height = info->height;
    options->width = info->width;
    options->classes = info->classes;
    options->longest = info->modality == FTH_MODALITY_TEXT ? info->text.longest : 0;
    if (!options->train || !options->train->text.by_length) {
        options->mean_length = info->text.mean_length;
        options->length_deviation = info->text.length_deviation;
    }
    options->task = info->modality == FTH_MODALITY_TEXT ? fth_task_of_labels(info->text.label) : FTH_TASK_CLASSES;
}
