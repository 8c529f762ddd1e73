/* See test_part.h. */
#include "train/setup/test_part.h"

#include <stdlib.h>
#include <string.h>

#include "batches/client/client.h"
#include "train/model/classifier.h"

/* A folder whose test/ is not its validation part already. */
static char *find_part(const fth_train_options *options)
{
    static const char *const validation[] = {"val", "valid", "validation"};
    bool has_own = false;
    if (*options->data.test)
        return fth_format("%s", options->data.test);
    if (options->own.images || !fth_folder_exists(options->data.address))
        return NULL;
    for (size_t i = 0; i < FTH_COUNT_OF(validation) && !has_own; i++) {
        char *path = fth_path_join(options->data.address, validation[i]);
        has_own = path && fth_folder_exists(path);
        free(path);
    }
    char *path = has_own ? fth_path_join(options->data.address, "test") : NULL;
    if (path && fth_folder_exists(path))
        return path;
    free(path);
    return NULL;
}

/* As validation samples are prepared, but for their normalization; free() it. An empty text would
 * vary samples that are opened as those for training are. */
static char *describe_preparation(const fth_dataset *dataset)
{
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    char *steps = fth_dataset_describe_transform(dataset, FTH_VALIDATION);
    if (!steps || fth_transform_has_size(steps))
        return steps;
    char *text = fth_format("%s%ssize=%dx%d", steps, *steps ? "," : "", info->height, info->width);
    free(steps);
    return text;
}

/* Outputs are compared with classes by their order. */
static fth_status check_classes(const fth_dataset_info *trained, const fth_dataset_info *tested, const char *address)
{
    fth_status status = FTH_OK;

    FTH_REQUIRE(trained->modality == tested->modality, FTH_INVALID, "--test %s has %s, but the training data has %s",
                address, tested->modality == FTH_MODALITY_TEXT ? "text" : "images",
                trained->modality == FTH_MODALITY_TEXT ? "text" : "images");
    FTH_REQUIRE(trained->channels == tested->channels && trained->height == tested->height &&
                    trained->width == tested->width,
                FTH_INVALID, "the images of --test %s are %dx%dx%d, but those for training are %dx%dx%d", address,
                tested->channels, tested->height, tested->width, trained->channels, trained->height, trained->width);
    FTH_REQUIRE(trained->classes == tested->classes, FTH_INVALID, "--test %s has %s, but the training data has %d",
                address, FTH_COUNTED(tested->classes, "class"), trained->classes);
    for (int i = 0; i < trained->classes && trained->class_names && tested->class_names; i++)
        FTH_REQUIRE(strcmp(trained->class_names[i], tested->class_names[i]) == 0, FTH_INVALID,
                    "class %d of --test %s is '%s', but that of the training data is '%s'", i + 1, address,
                    tested->class_names[i], trained->class_names[i]);

out:
    return status;
}

fth_status fth_test_part_open(const fth_train_options *options, const fth_dataset *dataset, const fth_stop *stop,
                              fth_dataset **test, char **address)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    const bool text = info->modality == FTH_MODALITY_TEXT;
    char normalize[FTH_NORMALIZATION_TEXT] = "", *transform = NULL;
    fth_train_options used = *options; /* lends its texts */

    *test = NULL;
    *address = find_part(options);
    if (!*address)
        return FTH_OK;
    FTH_REQUIRE(!fth_batches_is_address(*address), FTH_UNSUPPORTED,
                "--test %s: test samples are read once, and not through a batch cache; give the address of the data",
                *address);
    if (!text) {
        FTH_REQUIRE(transform = describe_preparation(dataset), FTH_NO_MEMORY, "no memory for a transform");
        fth_normalization_format(&info->normalization, normalize);
        used.images.transform = used.images.validation_transform = transform;
        used.images.normalize = normalize;
        used.images.size = 0;
    }
    used.data.address = *address;
    used.own.images = NULL;
    used.images.decoded_cache_mb = 0;
    const fth_text_known known = {.tokenizer = text ? info->text.tokenizer : NULL,
                                  .class_names =
                                      text && info->text.label == FTH_LABEL_CLASS ? info->class_names : NULL};
    FTH_TRY(fth_open_whole_data(&used, &known, stop, test));
    FTH_TRY(check_classes(info, fth_dataset_get_info(*test), *address));

out:
    free(transform);
    return status;
}

/* Test samples in a part of their own, as MNIST's, are those; else it is all of the data. */
static fth_split find_split(const fth_dataset_info *info)
{
    return info->count[FTH_VALIDATION] > 0 ? FTH_VALIDATION : FTH_TRAIN;
}

fth_status fth_test_part_measure(const fth_setup *setup, const char *path, const fth_stop *stop, fth_deadline deadline,
                                 fth_evaluation *evaluation)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = fth_dataset_get_info(setup->test);
    const fth_split split = find_split(info);
    fth_engine_options options = *fth_engine_get_options(setup->engine);
    fth_weights *weights = NULL;
    fth_engine *engine = NULL;
    fth_loader *loader = NULL;

    options.dataset = NULL;
    options.shared = NULL;
    options.precision_before = fth_engine_precision(setup->engine);
    options.evaluate_only = true;
    FTH_TRY(fth_weights_open(path, &weights));
    FTH_TRY(fth_engine_create(&options, setup->device, &engine));
    FTH_TRY(fth_engine_load_weights(engine, weights, false, path, NULL));
    const int64_t batch = fth_engine_evaluation_batch(engine, setup->options->batch, info->count[split]);
    const fth_loader_options loading = {.split = split,
                                        .batch = batch,
                                        .seed = (uint64_t)setup->options->seed,
                                        .threads = (int)setup->options->data.loader_threads,
                                        .batch_limit = fth_batches_per_epoch(info->count[split], batch)};
    FTH_TRY(fth_loader_open(setup->test, &loading, &loader));
    FTH_TRY(fth_engine_evaluate(engine, loader, stop, deadline, NULL, evaluation));

out:
    fth_loader_free(loader);
    fth_engine_free(engine);
    fth_weights_free(weights);
    return status;
}
