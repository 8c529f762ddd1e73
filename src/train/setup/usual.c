/* See usual.h. */
#include "train/setup/usual.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "model/exported_model.h"
#include "train/options/optimizer.h"

bool fth_usual_needs_data(const fth_train_options *options)
{
    return !options->own.network && strcmp(options->model, FTH_AUTO) == 0;
}

bool fth_usual_is_open(const fth_train_options *options, const char *name)
{
    return (strcmp(name, "model") == 0 && fth_usual_needs_data(options)) ||
           (strcmp(name, "optimizer") == 0 && strcmp(options->optimizer.name, FTH_AUTO) == 0) ||
           (strcmp(name, "validation-split") == 0 && options->data.validation_split == FTH_SPLIT_AUTO) ||
           (strcmp(name, "lr") == 0 && options->optimizer.lr <= 0);
}

/* The first row that the images fit. */
static const char *choose_model(const fth_dataset_info *info)
{
    static const struct {
        int most_channels, longest_side;
        const char *model;
    } of_images[] = {{1, 32, "mnist-cnn"}, {INT_MAX, 64, "resnet18-small"}, {INT_MAX, INT_MAX, "resnet18"}};
    const int side = info->height > info->width ? info->height : info->width;
    size_t row = 0;

    if (info->modality == FTH_MODALITY_TEXT)
        return "bert-mini";
    while (info->channels > of_images[row].most_channels || side > of_images[row].longest_side)
        row++;
    return of_images[row].model;
}

static double choose_rate(const fth_train_options *options, const fth_model *model, const fth_optimizer *optimizer)
{
    const bool by_model = strcmp(options->optimizer.name, FTH_AUTO) == 0 && model && model->usual_optimizer;
    if (options->optimizer.lr > 0)
        return options->optimizer.lr;
    if (!by_model)
        return optimizer->default_lr;
    return *options->weights ? model->usual_rate_of_tuning : model->usual_rate;
}

fth_status fth_usual_find(const fth_train_options *options, const fth_dataset_info *info, fth_usual *usual)
{
    fth_status status = FTH_OK;
    const fth_model *model = options->own.network;
    const fth_optimizer *optimizer = NULL;

    *usual = (fth_usual){.model = fth_usual_needs_data(options) ? choose_model(info) : options->model,
                         .optimizer = options->optimizer.name};
    if (!model && !fth_exported_model_is_name(usual->model)) /* whose file a run that is continued does not need */
        FTH_TRY(fth_model_find(usual->model, &model));
    if (strcmp(options->optimizer.name, FTH_AUTO) == 0)
        usual->optimizer = model && model->usual_optimizer ? model->usual_optimizer : fth_optimizer_default();
    FTH_TRY(fth_optimizer_find(usual->optimizer, &optimizer));
    usual->lr = choose_rate(options, model, optimizer);

out:
    return status;
}

static fth_status set_text(const char *value, char **text)
{
    if (strcmp(*text, value) == 0)
        return FTH_OK;
    char *copy = fth_format("%s", value);
    if (!copy)
        return fth_fail(FTH_NO_MEMORY, "no memory for the options");
    free(*text);
    *text = copy;
    return FTH_OK;
}

fth_status fth_usual_apply(fth_train_options *options, const fth_dataset_info *info)
{
    fth_status status = FTH_OK;
    fth_usual usual;

    FTH_TRY(fth_usual_find(options, info, &usual));
    FTH_TRY(set_text(usual.model, &options->model));
    FTH_TRY(set_text(usual.optimizer, &options->optimizer.name));
    options->optimizer.lr = usual.lr;

out:
    return status;
}
