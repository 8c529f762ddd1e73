/* Trained models: see farthing/predictor.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/api_internal.h"
#include "api/save.h"
#include "train/model/classifier.h"
#include "train/train.h"

struct fth_predictor {
    char *path;
    fth_train_options options; /* as given to open: of evaluation */
    fth_classifier *classifier;
    fth_predictor_info info;
    fth_score score; /* of the last evaluation */
};

static fth_status read_options(const char *const *pairs, fth_train_options *options)
{
    static const char *const known[] = {"model", "device", "threads", "normalize", "image-size", NULL};
    fth_status status = FTH_OK;
    for (; pairs && *pairs; pairs += 2) {
        bool found = false;
        for (size_t i = 0; known[i]; i++)
            found = found || strcmp(pairs[0], known[i]) == 0;
        const char *nearest = found ? NULL : fth_nearest_name(pairs[0], known);
        FTH_REQUIRE(found, FTH_INVALID, "a predictor has no option \"%.80s\"%s%s%s", pairs[0],
                    nearest ? "; did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
        FTH_REQUIRE(pairs[1], FTH_INVALID, "the option %s has no value", pairs[0]);
        FTH_TRY(fth_options_set(&fth_train_option_table, options, pairs[0], pairs[1], "option"));
    }

out:
    return status;
}

/* What the options say about the model; its texts are theirs. */
static fth_status describe_given(const fth_train_options *options, fth_model_facts *given)
{
    if (fth_options_is_set(&fth_train_option_table, options, "model"))
        given->model = options->model;
    given->height = given->width = (int)options->images.size;
    return fth_normalization_parse(options->images.normalize, &given->normalization);
}

fth_status fth_predictor_open(const char *path, const fth_network *network, const char *const *options,
                              fth_predictor **result)
{
    fth_status status = FTH_OK;
    fth_predictor *predictor = NULL;
    fth_model_facts given = {0};
    const fth_model *built_in = NULL;

    FTH_TRY(fth_api_check_not_null(result, "the place for the predictor"));
    *result = NULL;
    FTH_REQUIRE(path && *path, FTH_INVALID, "a model file without a name");
    FTH_TRY(fth_api_check_process());
    FTH_TRY(fth_allocate(1, sizeof *predictor, &predictor));
    FTH_TRY(fth_options_set_defaults(&fth_train_option_table, &predictor->options));
    FTH_TRY(read_options(options, &predictor->options));
    FTH_TRY(describe_given(&predictor->options, &given));
    if (network)
        FTH_TRY(fth_api_network_model(network, &predictor->options.own.network));
    else if (given.model)
        FTH_TRY(fth_model_find(given.model, &built_in));
    predictor->path = fth_format("%s", path);
    FTH_REQUIRE(predictor->path, FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(fth_classifier_open(&(fth_classifier_options){.weights = path,
                                                          .given = &given,
                                                          .network = predictor->options.own.network,
                                                          .device = predictor->options.device,
                                                          .threads = (int)predictor->options.threads},
                                &predictor->classifier));
    FTH_REQUIRE(!fth_classifier_tokenizer(predictor->classifier), FTH_UNSUPPORTED,
                "%s is a model for text; a predictor takes images alone: use farthing predict --text", path);
    const fth_model_facts *facts = fth_classifier_facts(predictor->classifier);
    predictor->info = (fth_predictor_info){.model = facts->model,
                                           .channels = facts->channels,
                                           .height = facts->height,
                                           .width = facts->width,
                                           .classes = facts->classes,
                                           .class_names = (const char *const *)facts->class_names};
    *result = predictor;
    predictor = NULL;

out:
    fth_predictor_free(predictor);
    return status;
}

void fth_predictor_free(fth_predictor *predictor)
{
    if (!predictor)
        return;
    fth_classifier_free(predictor->classifier);
    fth_options_release(&fth_train_option_table, &predictor->options);
    free(predictor->path);
    free(predictor);
}

const fth_predictor_info *fth_predictor_get_info(const fth_predictor *predictor)
{
    return predictor ? &predictor->info : NULL;
}

/* ---- predictions ---- */

/* Logits become probabilities, in place. */
static void apply_softmax(float *row, int classes)
{
    float largest = -INFINITY; /* GCC 12 for arm64 fails on a double that is the fmax() of floats */
    double sum = 0;
    for (int i = 0; i < classes; i++)
        largest = fmaxf(largest, row[i]);
    for (int i = 0; i < classes; i++)
        sum += exp((double)row[i] - largest);
    for (int i = 0; i < classes; i++)
        row[i] = (float)(exp((double)row[i] - largest) / sum);
}

static fth_status predict(fth_predictor *predictor, const float *images, int64_t count, float *probabilities)
{
    fth_status status = fth_api_check_process();
    if (status == FTH_OK)
        status = fth_engine_predict(fth_classifier_engine(predictor->classifier), images, count, probabilities);
    for (int64_t i = 0; status == FTH_OK && i < count; i++)
        apply_softmax(probabilities + i * predictor->info.classes, predictor->info.classes);
    return status;
}

/* As the loader does for validation. */
static void normalize(const fth_predictor *predictor, const uint8_t *pixels, int64_t count, float *images)
{
    const fth_predictor_info *info = &predictor->info;
    const fth_dataset_info like = {.channels = info->channels,
                                   .height = info->height,
                                   .width = info->width,
                                   .normalization = fth_classifier_facts(predictor->classifier)->normalization};
    const size_t size = (size_t)info->channels * (size_t)info->height * (size_t)info->width;
    for (int64_t i = 0; i < count; i++)
        fth_augment(&like, &(fth_augmentation){0}, 0, 0, i, pixels + (size_t)i * size, images + (size_t)i * size);
}

fth_status fth_predictor_run(fth_predictor *predictor, const uint8_t *pixels, int64_t count, float *probabilities)
{
    enum { AT_A_TIME = 256 };
    fth_status status = FTH_OK;
    float *images = NULL;

    FTH_TRY(fth_api_check_not_null(predictor, "predictor"));
    FTH_REQUIRE(count >= 0, FTH_INVALID, "the number of images cannot be %lld", (long long)count);
    if (count == 0)
        goto out;
    FTH_TRY(fth_api_check_not_null(pixels, "the array of pixels"));
    FTH_TRY(fth_api_check_not_null(probabilities, "the place for probabilities"));
    const fth_predictor_info *info = &predictor->info;
    const size_t size = (size_t)info->channels * (size_t)info->height * (size_t)info->width;
    FTH_TRY(fth_allocate((size_t)(count < AT_A_TIME ? count : AT_A_TIME), size * sizeof(float), &images));
    for (int64_t first = 0; first < count; first += AT_A_TIME) {
        const int64_t some = count - first < AT_A_TIME ? count - first : AT_A_TIME;
        normalize(predictor, pixels + (size_t)first * size, some, images);
        FTH_TRY(predict(predictor, images, some, probabilities + first * info->classes));
    }

out:
    free(images);
    return status;
}

fth_status fth_predictor_run_file(fth_predictor *predictor, const char *path, float *probabilities)
{
    fth_status status = FTH_OK;
    float *planes = NULL;

    FTH_TRY(fth_api_check_not_null(predictor, "predictor"));
    FTH_REQUIRE(path && *path, FTH_INVALID, "an image file without a name");
    FTH_TRY(fth_api_check_not_null(probabilities, "the place for probabilities"));
    const fth_model_facts *facts = fth_classifier_facts(predictor->classifier);
    const fth_image_target target = {.channels = facts->channels,
                                     .height = facts->height,
                                     .width = facts->width,
                                     .normalization = facts->normalization,
                                     .transform = facts->transform};
    FTH_TRY(
        fth_allocate((size_t)facts->channels * (size_t)facts->height, (size_t)facts->width * sizeof(float), &planes));
    FTH_TRY(fth_image_load(path, &target, planes));
    FTH_TRY(predict(predictor, planes, 1, probabilities));

out:
    free(planes);
    return status;
}

/* ---- evaluation and files ---- */

fth_status fth_predictor_evaluate(fth_predictor *predictor, const fth_data *data, const fth_score **score)
{
    fth_status status = FTH_OK;
    const fth_option_table *table = &fth_train_option_table;
    fth_evaluation evaluation;

    FTH_TRY(fth_api_check_not_null(predictor, "predictor"));
    FTH_TRY(fth_api_check_not_null(data, "data"));
    FTH_TRY(fth_api_check_not_null(score, "the place for the score"));
    FTH_TRY(fth_api_check_process());
    fth_train_options *options = &predictor->options;
    FTH_TRY(fth_options_set(table, options, "weights", predictor->path, "the model file"));
    FTH_TRY(fth_options_set(table, options, "model", predictor->info.model, "the model"));
    if (!options->own.network) /* of an exported network, which the file carries */
        options->own.network = fth_engine_get_options(fth_classifier_engine(predictor->classifier))->train->own.network;
    FTH_TRY(fth_api_apply_data(data, options));
    FTH_TRY(fth_evaluate(options, NULL, &evaluation));
    predictor->score = (fth_score){.loss = evaluation.loss,
                                   .accuracy = evaluation.accuracy,
                                   .samples = evaluation.samples,
                                   .seconds = evaluation.seconds};
    *score = &predictor->score;

out:
    return status;
}

fth_status fth_predictor_save(fth_predictor *predictor, const char *path)
{
    fth_status status = fth_api_check_not_null(predictor, "predictor");
    if (status != FTH_OK)
        return status;
    const char *ending = path ? strrchr(path, '.') : NULL;
    for (size_t i = 0; ending && fth_save_formats[i]; i++)
        if (strcasecmp(ending + 1, fth_save_formats[i]) == 0)
            return fth_save_model(predictor->classifier, fth_save_formats[i], path);
    return fth_fail(FTH_INVALID, "%s: the ending says how to write it, and must be .safetensors or .onnx",
                    path && *path ? path : "a file without a name");
}
