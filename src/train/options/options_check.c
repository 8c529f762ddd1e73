/* What must hold between the options of a run, beyond what the table says of each. What a strategy
 * asks of them is in its row (strategy.h). */
#include <stdlib.h>
#include <string.h>

#include "model/exported_model.h"
#include "train/model/classifier.h"
#include "train/setup/text_data.h"
#include "train/setup/usual.h"
#include "train/train_internal.h"

/* Without --model, the one that --weights are of. A file that cannot be read leaves it open: a run
 * that is continued does not need the file, and a new one reports what is wrong when it opens
 * it. */
static fth_status take_model_of_weights(fth_train_options *options)
{
    fth_status status = FTH_OK;
    fth_weights *weights = NULL;
    fth_model_facts facts = {0};
    fth_model_fit fit = {0};

    if (!*options->weights || !fth_usual_needs_data(options) || fth_weights_open(options->weights, &weights) != FTH_OK)
        return FTH_OK;
    FTH_TRY(fth_model_facts_of_file(weights, options->weights, &facts));
    if (facts.network) {
        FTH_TRY(fth_model_facts_find_model(&facts, options->weights, &fit.model));
        options->own.network = fit.model;
    } else if (!facts.model || fth_model_find(facts.model, &fit.model) != FTH_OK) {
        FTH_TRY(fth_model_recognize(weights, &fit));
    }
    if (!fit.model)
        FTH_TRY(fth_model_facts_fail_unknown(options->weights));
    free(options->model);
    options->model = fth_format("%s", fit.model->name);

out:
    fth_model_fit_release(&fit);
    fth_model_facts_release(&facts);
    fth_weights_free(weights);
    return status;
}

fth_status fth_train_options_resolve(fth_train_options *options)
{
    fth_status status = FTH_OK;
    char *model = NULL;

    FTH_TRY(take_model_of_weights(options));
    FTH_REQUIRE(!fth_usual_needs_data(options) || strcmp(options->stem, fth_model_stems[0]) == 0, FTH_INVALID,
                "--stem %s says of which kind a ResNet is: give --model too", options->stem);
    if (!fth_exported_model_is_name(options->model)) {
        FTH_TRY(fth_model_apply_stem(options->model, options->stem, &model));
        free(options->model);
        options->model = model;
    }
    free(options->stem);
    options->stem = fth_format("%s", fth_model_stems[0]);

out:
    return status;
}

fth_status fth_train_options_read_run(fth_train_options *options, const json_t *configuration, const char *origin)
{
    fth_status status = fth_options_from_json(&fth_train_option_table, options, configuration, origin);
    if (status == FTH_OK && !json_object_get(configuration, "validation-split"))
        options->data.validation_split = FTH_SPLIT_RANDOM;
    return status;
}

/* How images are varied and normalized is said once, or alike. */
static fth_status check_images(const fth_train_options *options)
{
    const char *const transforms[] = {options->images.transform, options->images.validation_transform};
    fth_normalization asked;
    char text[FTH_NORMALIZATION_TEXT];
    if (strcmp(options->images.augment, "none") != 0 && *options->images.transform)
        return fth_fail(FTH_INVALID,
                        "--augment %s and --transform both vary training images: give one of them (--transform has "
                        "pad-crop=4 and flip)",
                        options->images.augment);
    if (fth_normalization_parse(options->images.normalize, &asked) != FTH_OK || asked.channels == 0)
        return FTH_OK; /* the table checks the text */
    for (size_t i = 0; i < FTH_COUNT_OF(transforms); i++) {
        fth_normalization said = fth_transform_get_normalization(transforms[i]);
        fth_normalization_format(&said, text);
        if (said.channels > 0 && !fth_normalization_equal(&asked, &said))
            return fth_fail(FTH_INVALID, "--normalize %s and normalize=%s in --%s differ: leave one of them out",
                            options->images.normalize, text, i == 0 ? "transform" : "validation-transform");
    }
    return FTH_OK;
}

/* A task is compared by its value: that of a configuration counts as well as one that was given. */
fth_status fth_train_options_check_kind(const fth_train_options *options, const fth_dataset_info *info)
{
    static const char *const of_text[] = {"vocab",       "vocab-size",   "max-length", "text-column",
                                          "pair-column", "label-column", "by-length"};
    const fth_model *model = NULL;
    if (info->modality == FTH_MODALITY_TEXT)
        return FTH_OK;
    if (!fth_usual_needs_data(options) && fth_train_options_find_model(options, &model) == FTH_OK && model->build_text)
        return FTH_OK; /* the engine refuses the model */
    if (options->text.task != FTH_TASK_CLASSES)
        return fth_fail(FTH_INVALID, "--task %s is for text; %s has images, whose labels are classes: leave --task out",
                        fth_task_names[options->text.task], info->name);
    for (size_t i = 0; i < FTH_COUNT_OF(of_text); i++)
        if (fth_options_is_set(&fth_train_option_table, options, of_text[i]))
            return fth_fail(FTH_INVALID, "--%s is for text; %s has images: leave it out", of_text[i], info->name);
    return FTH_OK;
}

fth_status fth_train_options_check(const fth_train_options *options)
{
    const fth_option_table *table = &fth_train_option_table;
    const fth_optimizer *optimizer = NULL;
    fth_status status = FTH_OK;
    if (strcmp(options->optimizer.name, FTH_AUTO) != 0)
        status = fth_optimizer_find(options->optimizer.name, &optimizer);
    if (status != FTH_OK)
        return status;
    if (options->optimizer.lr <= 0 && fth_options_is_set(table, options, "lr"))
        return fth_fail(FTH_INVALID, "--lr must be above 0 (leave it out for the optimizer's default)");
    if (options->limits.epochs == 0 && fth_options_is_set(table, options, "epochs"))
        return fth_fail(FTH_INVALID, "--epochs must be at least 1, not 0 (leave it out for no such limit)");
    if (options->limits.steps == 0 && fth_options_is_set(table, options, "steps"))
        return fth_fail(FTH_INVALID, "--steps must be at least 1, not 0 (leave it out for no such limit)");
    if (options->reinitialize && !fth_exported_model_is_name(options->model))
        return fth_fail(FTH_INVALID, "--reinitialize is for networks that PyTorch exported (--model net.pt2)");
    if (options->reinitialize && *options->weights)
        return fth_fail(FTH_INVALID, "--reinitialize draws new weights; leave out --weights %s", options->weights);
    if (options->optimizer.label_smoothing > 0 && options->text.task != FTH_TASK_CLASSES)
        return fth_fail(FTH_INVALID, "--label-smoothing is for --task classes, not for %s",
                        fth_task_names[options->text.task]);
    if (options->optimizer.nesterov && optimizer && !optimizer->takes_momentum)
        return fth_fail(FTH_INVALID, "--optimizer %s takes no --nesterov; sgd does", options->optimizer.name);
    if (options->optimizer.nesterov && options->optimizer.momentum <= 0)
        return fth_fail(FTH_INVALID, "--nesterov needs a --momentum above 0");
    if (options->freeze_statistics && !*options->freeze)
        return fth_fail(FTH_INVALID,
                        "--freeze-statistics applies to the layers that --freeze names; give --freeze too");
    if (strncmp(options->store.checkpoints, "http://", 7) == 0 ||
        strncmp(options->store.checkpoints, "https://", 8) == 0)
        return fth_fail(
            FTH_INVALID,
            "--checkpoints %.*s: web servers are for reading alone; a run lives in s3://, gs://, az:// or a "
            "folder (an S3 server's own address goes into --s3-endpoint)",
            (int)strcspn(options->store.checkpoints, "?#"), options->store.checkpoints);
    if (*options->store.checkpoints && *options->resume && strcmp(options->resume, "auto") != 0)
        return fth_fail(FTH_INVALID, "--checkpoints names the run and continues it by itself; leave out --resume %s",
                        options->resume);
    return check_images(options);
}
