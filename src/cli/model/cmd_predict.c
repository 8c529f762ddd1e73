/* farthing predict: predicts the classes of images or texts with a trained model. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "batches/client/client.h"
#include "cli/model/predict_cli.h"
#include "cli/model/weights.h"
#include "tensor/tensor.h"
#include "train/model/classifier.h"

#define AT(member)              offsetof(predict_options, member)
#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, predict_options, member)

static const fth_option predict_rows[] = {
    FTH_MODEL_FLAG_ROWS(AT(model)),
    {ROW("data", TEXT, data), .address = true, .argument = "NAME|FOLDER", .list = fth_dataset_choice,
     .help = "data set to take classes, size and normalization from, if the file does not have them"},
    {ROW("classes", TEXT, classes), .argument = "FILE",
     .help = "file with the names of the classes, one per line, if the model's file does not have them"},
    {ROW("top", INTEGER, top), .fallback = "5", .argument = "N", .help = "classes to show", .minimum = 1,
     .maximum = 1e6},
    {ROW("device", TEXT, device), .fallback = "cpu", .argument = "NAME", .help = "back end that computes"},
    {ROW("threads", INTEGER, threads), .fallback = "0", .argument = "N",
     .help = "threads that compute; 0: one per core", .minimum = 0, .maximum = 4096},
    {ROW("json", SWITCH, json), .help = "print JSON, one object per image or text"},
    {ROW("logits", SWITCH, logits), .help = "with --json: the model's output for all classes as well"},
    {ROW("text", TEXT, text.text), .argument = "TEXT", .help = "a text to predict", .group = "Text"},
    {ROW("pair", TEXT, text.pair), .argument = "TEXT", .help = "with --text: the second text of a pair"},
    {ROW("vocab", TEXT, text.vocab), .argument = "FILE|FOLDER",
     .help = "tokenizer, if neither the weights nor their folder have one"},
    {ROW("text-column", TEXT, text.text_column), .argument = "NAME|N",
     .help = "of tables: column of the text, by name or number from 1; several are joined"},
    {ROW("pair-column", TEXT, text.pair_column), .argument = "NAME|N",
     .help = "of tables: column of the second text of a pair"},
    FTH_S3_FLAG_ROWS(AT(s3)),
};
static const fth_option_table predict_table = FTH_OPTION_TABLE(predict_rows, predict_options);

/* ---- pictures ---- */

/* Pictures are predicted in groups: each run converts the weights to the kernels' layouts, which
 * takes longer than a single small picture. */
enum { PICTURES_AT_A_TIME = 32 };

typedef struct picture_group {
    const predict_options *options;
    const fth_classifier *classifier;
    const char *paths[PICTURES_AT_A_TIME];
    int count;
    float *planes, *logits; /* room for as many */
    int failed;
} picture_group;

static fth_status print_picture(const predict_options *options, const fth_model_facts *facts, const char *name,
                                const float *logits)
{
    return fth_cli_print_prediction(options, facts, &(fth_predicted){.image = name}, logits);
}

static size_t picture_floats(const fth_model_facts *facts)
{
    return (size_t)facts->channels * (size_t)facts->height * (size_t)facts->width;
}

static fth_status open_group(const predict_options *options, const fth_classifier *classifier, picture_group *group)
{
    fth_status status = FTH_OK;
    const fth_model_facts *facts = fth_classifier_facts(classifier);
    *group = (picture_group){.options = options, .classifier = classifier};
    FTH_TRY(fth_allocate_aligned(PICTURES_AT_A_TIME * picture_floats(facts) * sizeof(float), &group->planes));
    FTH_TRY(fth_allocate((size_t)PICTURES_AT_A_TIME * (size_t)facts->classes, sizeof(float), &group->logits));

out:
    return status;
}

static void release_group(picture_group *group)
{
    free(group->planes);
    free(group->logits);
}

static fth_status predict_group(picture_group *group)
{
    fth_status status = FTH_OK;
    const fth_model_facts *facts = fth_classifier_facts(group->classifier);
    if (group->count == 0)
        goto out;
    FTH_TRY(fth_engine_predict(fth_classifier_engine(group->classifier), group->planes, group->count, group->logits));
    for (int i = 0; i < group->count; i++)
        FTH_TRY(
            print_picture(group->options, facts, group->paths[i], group->logits + (size_t)i * (size_t)facts->classes));

out:
    group->count = 0;
    return status;
}

/* A picture that cannot be read is reported, and the others are still predicted. */
static fth_status add_picture(picture_group *group, const char *path)
{
    const fth_model_facts *facts = fth_classifier_facts(group->classifier);
    fth_image_target target = {.channels = facts->channels,
                               .height = facts->height,
                               .width = facts->width,
                               .normalization = facts->normalization,
                               .transform = facts->transform};
    if (fth_image_load(path, &target, group->planes + (size_t)group->count * picture_floats(facts)) != FTH_OK) {
        fth_log_error("%s", fth_error_message());
        group->failed++;
        return FTH_OK;
    }
    group->paths[group->count++] = path;
    return group->count == PICTURES_AT_A_TIME ? predict_group(group) : FTH_OK;
}

/* A safetensors file with a preprocessed tensor "images" (N, C, H, W), for comparisons with other
 * programs. */
static fth_status predict_tensor(const predict_options *options, const fth_classifier *classifier, const char *path)
{
    fth_status status = FTH_OK;
    const fth_model_facts *facts = fth_classifier_facts(classifier);
    fth_safetensors *tensors = NULL;
    float *images = NULL, *logits = NULL;
    char name[4096];

    FTH_TRY(fth_safetensors_open(path, &tensors));
    const fth_tensor_view *view = fth_safetensors_find(tensors, "images");
    FTH_REQUIRE(view && view->shape.rank == 4 && view->shape.dims[0] > 0, FTH_INVALID,
                "%s has no tensor \"images\" of shape (N, C, H, W)", path);
    fth_shape wanted = FTH_SHAPE(view->shape.dims[0], facts->channels, facts->height, facts->width);
    if (!fth_shape_equal(&view->shape, &wanted)) {
        char found[96], expected[96];
        fth_shape_format(&view->shape, found, sizeof found);
        fth_shape_format(&wanted, expected, sizeof expected);
        status = fth_fail(FTH_INVALID, "%s: \"images\" is %s, and the model takes %s", path, found, expected);
        goto out;
    }
    int64_t count = wanted.dims[0];
    size_t floats = (size_t)fth_shape_count(&wanted);
    FTH_TRY(fth_allocate_aligned(floats * sizeof *images, &images));
    FTH_TRY(fth_allocate((size_t)count * (size_t)facts->classes, sizeof *logits, &logits));
    FTH_TRY(fth_tensor_view_to_f32(view, images, floats));
    FTH_TRY(fth_engine_predict(fth_classifier_engine(classifier), images, count, logits));
    for (int64_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s[%lld]", path, (long long)i);
        FTH_TRY(print_picture(options, facts, name, logits + i * facts->classes));
    }

out:
    free(images);
    free(logits);
    fth_safetensors_free(tensors);
    return status;
}

/* ---- the command ---- */

static bool ends_in(const char *text, const char *ending)
{
    size_t length = strlen(text), ending_length = strlen(ending);
    return length > ending_length && strcasecmp(text + length - ending_length, ending) == 0;
}

typedef struct path_list {
    char **paths;
    size_t count, capacity;
    fth_skipped_files skipped; /* in folders */
} path_list;

/* Reads what flags say about the model. Names and paths are checked first, as reading data may take
 * a while. */
static fth_status read_given(const predict_options *options, const char *weights_path, fth_model_facts *given)
{
    fth_status status = FTH_OK;
    const fth_model *model = NULL;
    fth_weights *weights = NULL;
    fth_dataset *dataset = NULL;
    fth_tokenizer *tokenizer = NULL;

    if (*options->model.name) {
        FTH_TRY(fth_model_apply_stem(options->model.name, options->model.stem, &given->model));
        FTH_TRY(fth_model_find(given->model, &model));
    }
    FTH_TRY(fth_weights_open(weights_path, &weights));

    if (*options->data) {
        const fth_store_options store = fth_s3_store_options(&options->s3, 0);
        fth_dataset_options data_options = {.seed = 1,
                                            .store = &store,
                                            .validation_fraction = 0.1,
                                            .schemes = fth_batches_schemes,
                                            .image_size = (int)options->model.size};
        FTH_TRY(fth_dataset_open(options->data, &data_options, &dataset));
        FTH_TRY(fth_model_facts_of_data(dataset, given));
        given->normalization_assumed = true; /* the file's own normalization takes precedence */
    }
    if (*options->text.vocab) {
        FTH_TRY(fth_tokenizer_open(options->text.vocab, &tokenizer));
        free(given->text.tokenizer);
        FTH_REQUIRE(given->text.tokenizer = fth_tokenizer_to_json(tokenizer), FTH_NO_MEMORY,
                    "no memory for the tokenizer");
    }
    if (*options->classes)
        FTH_TRY(fth_model_facts_read_classes(options->classes, given));
    if (options->model.size > 0)
        given->height = given->width = (int)options->model.size;
    if (*options->model.normalize) {
        FTH_TRY(fth_normalization_parse(options->model.normalize, &given->normalization));
        given->normalization_assumed = false;
    }

out:
    fth_weights_free(weights);
    fth_dataset_free(dataset);
    fth_tokenizer_free(tokenizer);
    return status;
}

/* Tensors are fed to the model as they are. */
static bool is_tensor_file(const char *path)
{
    return ends_in(path, ".safetensors");
}

static bool any_picture(const path_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (!is_tensor_file(list->paths[i]))
            return true;
    return false;
}

/* ---- folders ---- */

enum { MAX_FOLDER_DEPTH = 32 };

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static fth_status add_path(path_list *list, char *path)
{
    fth_status status = !path ? fth_fail(FTH_NO_MEMORY, "no memory for a path")
                              : fth_grow(&list->paths, list->count, &list->capacity, sizeof *list->paths);
    if (status == FTH_OK)
        list->paths[list->count++] = path;
    else
        free(path);
    return status;
}

/* The pictures in a folder and those within it, by name. */
static fth_status list_pictures(const char *folder, int depth, path_list *list)
{
    fth_status status = FTH_OK;
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, is_visible, alphasort);

    FTH_REQUIRE(count >= 0, FTH_IO, "cannot read folder %s: %s", folder, strerror(errno));
    FTH_REQUIRE(depth < MAX_FOLDER_DEPTH, FTH_INVALID, "%s: folders within each other, more than %d deep", folder,
                MAX_FOLDER_DEPTH);
    for (int i = 0; i < count && status == FTH_OK; i++) {
        char *path = fth_path_join(folder, entries[i]->d_name);
        if (fth_folder_exists(path)) {
            status = list_pictures(path, depth + 1, list);
            free(path);
        } else if (fth_image_name_fits(entries[i]->d_name)) {
            status = add_path(list, path);
        } else {
            if (path && fth_image_path_is_skipped(entries[i]->d_name))
                fth_skipped_files_add(&list->skipped, path);
            free(path);
        }
    }

out:
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return status;
}

static void warn_of_skipped(const fth_skipped_files *skipped)
{
    char *text = skipped->count > 0 ? fth_skipped_files_describe(skipped) : NULL;
    if (text)
        fth_log_warning("%s", text);
    free(text);
}

/* The arguments, with folders replaced by the pictures in them. */
static fth_status list_arguments(const fth_arguments *arguments, path_list *list)
{
    fth_status status = FTH_OK;
    for (int i = 0; i < arguments->count; i++) {
        const char *argument = arguments->positional[i];
        size_t before = list->count;
        if (!fth_folder_exists(argument)) {
            FTH_TRY(add_path(list, fth_format("%s", argument)));
            continue;
        }
        FTH_TRY(list_pictures(argument, 0, list));
        FTH_REQUIRE(list->count > before, FTH_INVALID, "%s holds no pictures (.jpg, .jpeg, .jpe, .png)", argument);
    }

out:
    warn_of_skipped(&list->skipped);
    return status;
}

static fth_status predict_pictures(const predict_options *options, const fth_arguments *arguments,
                                   const fth_classifier *classifier, const char *weights_name)
{
    fth_status status = FTH_OK;
    path_list list = {0};
    picture_group group = {0};

    FTH_REQUIRE(!*options->text.text, FTH_INVALID, "%s takes images, not text", weights_name);
    FTH_TRY(list_arguments(arguments, &list));
    FTH_TRY(open_group(options, classifier, &group));
    if (fth_classifier_facts(classifier)->normalization_assumed && any_picture(&list))
        fth_model_facts_warn_assumed(fth_classifier_facts(classifier), weights_name);
    for (size_t i = 0; i < list.count; i++) {
        const char *path = list.paths[i];
        if (!is_tensor_file(path)) {
            FTH_TRY(add_picture(&group, path));
            continue;
        }
        FTH_TRY(predict_group(&group)); /* results come in the order of the arguments */
        FTH_TRY(predict_tensor(options, classifier, path));
    }
    FTH_TRY(predict_group(&group));
    FTH_REQUIRE(group.failed == 0, FTH_INVALID, "%d of %s could not be predicted; see above", group.failed,
                FTH_COUNTED(list.count, "image"));

out:
    release_group(&group);
    for (size_t i = 0; i < list.count; i++)
        free(list.paths[i]);
    free(list.paths);
    return status;
}

static fth_status predict(const predict_options *options, const fth_arguments *arguments)
{
    fth_status status = FTH_OK;
    fth_model_facts given = {0};
    fth_classifier *classifier = NULL;
    fth_cli_weights weights = {0};
    const fth_store_options store = fth_s3_store_options(&options->s3, 0);

    FTH_TRY(fth_cli_find_weights(options->model.weights, options->model.runs, &store, &weights));
    FTH_TRY(read_given(options, weights.path, &given));
    FTH_TRY(fth_classifier_open(
        &(fth_classifier_options){
            .weights = weights.path, .given = &given, .device = options->device, .threads = (int)options->threads},
        &classifier));
    FTH_TRY(fth_classifier_tokenizer(classifier) ? fth_cli_predict_text(options, arguments, classifier)
                                                 : predict_pictures(options, arguments, classifier, weights.name));

out:
    fth_classifier_free(classifier);
    fth_model_facts_release(&given);
    fth_cli_weights_release(&weights);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    const predict_options *asked = options;
    if (!*asked->model.weights)
        return fth_cli_usage(command, "missing the model: give --weights FILE or --weights RUN");
    if (arguments->count == 0 && !*asked->text.text)
        return fth_cli_usage(command, "missing an image or a text");
    return fth_cli_exit_code(predict(asked, arguments));
}

const fth_command fth_command_predict = {
    .name = "predict",
    .arguments = "--weights FILE|RUN [--model NAME] [--data NAME|--classes FILE] IMAGE|FOLDER...|--text TEXT|FILE...",
    .summary = "predict the classes of images or texts",
    .details = "An IMAGE is a JPEG or PNG file, grey or in colour; or a .safetensors file with a tensor \"images\" "
               "that\nis passed to the model unchanged. A FOLDER stands for all pictures in it and in the folders "
               "below it. Files written\nby farthing know their classes, size and normalization. A model for text "
               "takes --text, and files: lines of text\n(-: standard input), or tables, .csv, .tsv or .jsonl.\n",
    .table = &predict_table,
    .examples =
        (const fth_example[]){{"farthing predict --weights RUN cat.jpg dog.png", "what is in two pictures"},
                              {"farthing predict --weights RUN --text 'Stocks fell on Monday.'", "the class of a text"},
                              {"farthing predict --weights RUN --json lines.txt", "one text per line"},
                              {0}},
    .run = run,
};
