/* Evaluating weights: an engine without a trainer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/exported_model.h"
#include "train/model/classifier.h"
#include "train/train_internal.h"

/* Images are prepared as the weights file says, where options do not say it. `facts` outlives the
 * options, and so does `normalize`, which has room for FTH_NORMALIZATION_TEXT. */
static void follow_file(const fth_model_facts *facts, char *normalize, fth_train_options *options)
{
    if (!fth_options_say_normalization(options) && facts->normalization.channels > 0) {
        fth_normalization_format(&facts->normalization, normalize);
        options->images.normalize = normalize;
    }
    if (options->images.size > 0 || fth_transform_has_size(options->images.transform) ||
        fth_transform_has_size(options->images.validation_transform))
        return;
    if (!*options->images.validation_transform && facts->transform)
        options->images.validation_transform = facts->transform;
    if (facts->height == facts->width && !fth_transform_has_size(options->images.validation_transform))
        options->images.size = facts->height;
}

/* A file that says nothing of its images is of the size that an exported network takes. A size that
 * is no square must be said by the transform. */
static fth_status complete_size(const fth_model *network, fth_model_facts *facts)
{
    const char *steps = facts->transform ? facts->transform : "";
    if (network && fth_exported_model_text(network) && facts->height == 0 && network->height > 1) {
        facts->height = network->height;
        facts->width = network->width;
    }
    if (facts->height <= 1 || facts->height == facts->width || fth_transform_has_size(steps))
        return FTH_OK;
    char *text = fth_format("size=%dx%d%s%s", facts->height, facts->width, *steps ? "," : "", steps);
    if (!text)
        return fth_fail(FTH_NO_MEMORY, "no memory for a transform");
    free(facts->transform);
    facts->transform = text;
    return FTH_OK;
}

/* A run's transform for training is of no use here, and must not contradict the size that is asked
 * for. Its normalization counts where nothing else says one. `normalize` is as above. */
static void leave_out_training(char *normalize, fth_train_options *options)
{
    const fth_normalization trained = fth_transform_get_normalization(options->images.transform);
    if (options->images.size == 0 && !fth_transform_has_size(options->images.validation_transform))
        return; /* it says the size */
    options->images.transform += strlen(options->images.transform);
    if (trained.channels > 0 && !fth_options_say_normalization(options)) {
        fth_normalization_format(&trained, normalize);
        options->images.normalize = normalize;
    }
}

/* What the weights file says of text: lists that the data set borrows. */
typedef struct text_of_file {
    fth_tokenizer *tokenizer;
    const char **class_names; /* ends with NULL; they are the facts' */
} text_of_file;

/* True if the classes have names that labels may have: many a model on the hub calls them LABEL_0,
 * LABEL_1, ... */
static bool has_names(const fth_model_facts *facts)
{
    return facts->class_names && (facts->text.longest > 0 || strcmp(facts->class_names[0], "LABEL_0") != 0);
}

/* Text is cut and labelled as the weights file says, and has its tokenizer, unless options say
 * otherwise. */
static fth_status follow_text(const fth_weights *weights, const fth_model_facts *facts, fth_train_options *options,
                              text_of_file *text)
{
    fth_status status = FTH_OK;
    const fth_option_table *table = &fth_train_option_table;

    if (*options->text.vocab)
        FTH_TRY(fth_tokenizer_open(options->text.vocab, &text->tokenizer));
    else
        FTH_TRY(fth_weights_find_tokenizer(weights, options->weights, &text->tokenizer));
    if (facts->text.longest > 0 && !fth_options_is_set(table, options, "max-length"))
        options->text.max_length = facts->text.longest;
    if (facts->text.longest > 0 || facts->text.task != FTH_TASK_CLASSES)
        options->text.task = facts->text.task;
    if (has_names(facts)) {
        FTH_TRY(fth_allocate((size_t)facts->classes + 1, sizeof *text->class_names, &text->class_names));
        for (int i = 0; i < facts->classes; i++)
            text->class_names[i] = facts->class_names[i];
    }

out:
    return status;
}

/* A line on standard error, where the file says nothing or options say something else. */
static void warn_about_normalization(const fth_train_options *options, const fth_model_facts *of_file,
                                     const fth_dataset_info *info)
{
    fth_model_facts assumed = {.normalization = info->normalization};
    if (info->modality == FTH_MODALITY_TEXT)
        return;
    if (of_file->normalization.channels > 0)
        fth_model_facts_warn_override(of_file, &info->normalization, options->weights);
    else if (!fth_options_say_normalization(options))
        fth_model_facts_warn_assumed(&assumed, options->weights);
}

/* The model's outputs are compared with the data's classes by their order. A class that has another
 * place in the data makes every number wrong; other names altogether may be the same classes under
 * other names. */
static fth_status check_classes(const fth_train_options *options, const fth_model_facts *of_file,
                                const fth_dataset_info *info)
{
    int differing = -1;
    if (!of_file->class_names || !info->class_names || of_file->classes != info->classes)
        return FTH_OK; /* the engine compares the counts */
    for (int i = info->classes - 1; i >= 0; i--) {
        if (strcmp(of_file->class_names[i], info->class_names[i]) == 0)
            continue;
        differing = i;
        for (int j = 0; j < info->classes; j++)
            if (strcmp(of_file->class_names[i], info->class_names[j]) == 0)
                return fth_fail(FTH_INVALID,
                                "the class %s is number %d in %s but number %d in %s: the model cannot be measured on "
                                "it; use data with the classes that it was trained on",
                                of_file->class_names[i], i + 1, options->weights, j + 1, options->data.address);
    }
    if (differing >= 0)
        fth_log_warning("the model was trained on classes of other names than those of %s (number %d: %s there, %s "
                        "here); they are taken to be the same, in this order",
                        options->data.address, differing + 1, of_file->class_names[differing],
                        info->class_names[differing]);
    return FTH_OK;
}

fth_status fth_evaluate(const fth_train_options *options, fth_confusion **confusion, fth_evaluation *evaluation)
{
    fth_status status = FTH_OK;
    fth_device *device = NULL;
    fth_dataset *dataset = NULL;
    fth_engine *engine = NULL;
    fth_weights *weights = NULL;
    fth_loader *loader = NULL;
    fth_model_facts of_file = {0};
    text_of_file text = {0};
    fth_train_options used = *options; /* lends its texts */
    char normalize[FTH_NORMALIZATION_TEXT];
    fth_confusion *found = NULL;

    if (confusion)
        *confusion = NULL;
    FTH_REQUIRE(*options->weights, FTH_INVALID, "nothing to evaluate: give --weights FILE");
    FTH_TRY(fth_weights_open(options->weights, &weights));
    FTH_TRY(fth_model_facts_of_file(weights, options->weights, &of_file));
    FTH_TRY(complete_size(options->own.network, &of_file));
    leave_out_training(normalize, &used);
    follow_file(&of_file, normalize, &used);
    FTH_TRY(follow_text(weights, &of_file, &used, &text));
    FTH_TRY(fth_open_device_and_data(&used,
                                     &(fth_text_known){.tokenizer = text.tokenizer, .class_names = text.class_names},
                                     NULL, &device, &dataset, NULL));
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    warn_about_normalization(options, &of_file, info);
    FTH_REQUIRE(info->count[FTH_VALIDATION] > 0, FTH_INVALID, "%s has no samples to evaluate with",
                options->data.address);
    FTH_TRY(check_classes(options, &of_file, info));
    FTH_TRY(fth_options_check_vocabulary(options, info));
    fth_engine_options engine_options = {
        .train = options, .training_samples = info->count[FTH_TRAIN], .evaluate_only = true};
    fth_engine_options_take_data(&engine_options, info);
    FTH_TRY(fth_engine_create(&engine_options, device, &engine));
    FTH_TRY(fth_engine_load_weights(engine, weights, false, options->weights, NULL));

    int64_t batch = fth_engine_evaluation_batch(engine, options->batch, info->count[FTH_VALIDATION]);
    fth_loader_options loader_options = {.split = FTH_VALIDATION,
                                         .batch = batch,
                                         .seed = (uint64_t)options->seed,
                                         .threads = (int)options->data.loader_threads,
                                         .batch_limit = fth_batches_per_epoch(info->count[FTH_VALIDATION], batch)};
    FTH_TRY(fth_loader_open(dataset, &loader_options, &loader));
    if (confusion && engine_options.task == FTH_TASK_CLASSES)
        FTH_TRY(fth_confusion_create(info->classes, info->class_names, &found));
    FTH_TRY(fth_engine_evaluate(engine, loader, NULL, (fth_deadline){INFINITY}, found, evaluation));
    if (confusion) {
        *confusion = found;
        found = NULL;
    }
    if (!fth_dataset_has_accuracy(info))
        evaluation->accuracy = NAN;
    if (!isfinite(evaluation->loss))
        FTH_TRY(fth_engine_fail_diverged(engine, "the loss is not finite"));

out:
    fth_confusion_free(found);
    fth_loader_free(loader);
    fth_engine_free(engine);
    fth_dataset_free(dataset);
    fth_device_close(device);
    fth_tokenizer_free(text.tokenizer);
    free(text.class_names);
    fth_weights_free(weights);
    fth_model_facts_release(&of_file);
    return status;
}
