/* Options adapted to text: the tokenizer that a run has, and a model that fits it. */
#include <stdlib.h>
#include <string.h>

#include "model/bert.h"
#include "train/setup/setup.h"

/* The folder of a run that is continued: this process's, or that of a peer, which may be on this
 * machine; free() it. NULL: a new run. */
static char *find_run_folder(const fth_run_selection *selection)
{
    if (selection->folder)
        return fth_format("%s", selection->folder);
    return selection->run && selection->id ? fth_path_join(selection->options.saving.runs, selection->id) : NULL;
}

static bool is_of_text(const json_t *run)
{
    const char *kind = json_string_value(json_object_get(json_object_get(run, "data"), "kind"));
    return kind && strcmp(kind, "text") == 0;
}

fth_status fth_adapt_tokenizer(const fth_run_selection *selection, fth_tokenizer **tokenizer)
{
    fth_status status = FTH_OK;
    char *folder = find_run_folder(selection);
    char *path = folder ? fth_path_join(folder, FTH_RUN_TOKENIZER) : NULL;
    const bool begun = selection->folder && fth_record_has_begun(selection->folder);

    *tokenizer = NULL;
    if (path && fth_file_exists(path)) {
        FTH_TRY(fth_tokenizer_open(path, tokenizer));
        goto out;
    }
    FTH_REQUIRE(!begun || !is_of_text(selection->run), FTH_CORRUPT,
                "%s is missing, and a run continues only with the tokenizer it began with; a model file of the run has "
                "it too: farthing export --to huggingface",
                path);
    if (!begun) /* one that has begun needs neither --vocab nor --weights any more */
        FTH_TRY(fth_options_find_tokenizer(&selection->options, tokenizer));

out:
    free(folder);
    free(path);
    return status;
}

fth_status fth_options_check_vocabulary(const fth_train_options *options, const fth_dataset_info *info)
{
    fth_status status = FTH_OK;
    const fth_model *model = NULL;

    FTH_TRY(fth_train_options_find_model(options, &model));
    if (info->modality != FTH_MODALITY_TEXT || !model->build_text || !(*options->weights || options->own.network))
        return FTH_OK;
    const int size = fth_tokenizer_size(info->text.tokenizer);
    FTH_REQUIRE(size <= model->vocabulary, FTH_INVALID,
                "the tokenizer has %s, but %s knows only %d: use the tokenizer that it was trained with (--vocab)",
                FTH_COUNTED(size, "token"), *options->weights ? options->weights : model->name, model->vocabulary);

out:
    return status;
}

fth_status fth_options_fit_vocabulary(const fth_train_options *options, const fth_dataset_info *info, char **name)
{
    fth_status status = FTH_OK;
    const fth_model *model = NULL;
    fth_bert_config config;

    *name = NULL;
    FTH_TRY(fth_options_check_vocabulary(options, info));
    FTH_TRY(fth_train_options_find_model(options, &model));
    if (info->modality != FTH_MODALITY_TEXT || !model->build_text)
        return FTH_OK;
    const int size = fth_tokenizer_size(info->text.tokenizer);
    if (size == model->vocabulary || *options->weights || options->own.network ||
        !fth_bert_config_parse(model->name, &config, &status))
        goto out;
    FTH_TRY(status);
    config.vocabulary = size;
    *name = fth_bert_config_name(&config);
    FTH_REQUIRE(*name, FTH_NO_MEMORY, "no memory for the name of a model");

out:
    return status;
}

fth_status fth_adapt_vocabulary(fth_run_selection *selection, const fth_dataset_info *info)
{
    fth_train_options *options = &selection->options;
    char *name = NULL;
    fth_status status = fth_options_fit_vocabulary(options, info, &name);
    if (status == FTH_OK && name) {
        free(options->model);
        options->model = name;
    }
    return status;
}
