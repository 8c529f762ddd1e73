/* See classifier.h. */
#include "train/model/classifier.h"

#include <stdlib.h>
#include <string.h>

#include "model/exported_model.h"
#include "train/setup/text_data.h"
#include "train/train_internal.h"

struct fth_classifier {
    fth_model_facts facts;
    fth_tokenizer *tokenizer;  /* NULL: it takes images */
    fth_train_options options; /* defaults, but for the model: an engine is made of them */
    fth_device *device;
    fth_engine *engine;
    fth_weights_report report;
};

/* What was said wins, field by field; but a file that says of which model it is knows better.
 * `origin` is whose the facts are, for messages. */
static fth_status lay_over(const fth_model_facts *given, const char *origin, fth_model_facts *facts)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_model_facts_agree(origin, facts->model, given->model));
    if (given->model && !facts->network) {
        free(facts->model);
        facts->model = fth_format("%s", given->model);
    }
    if (given->channels > 0)
        facts->channels = given->channels;
    if (given->height > 0) {
        if (given->height != facts->height || given->width != facts->width) { /* its transform is for another size */
            free(facts->transform);
            facts->transform = NULL;
        }
        facts->height = given->height;
        facts->width = given->width;
    }
    if (given->text.longest > 0)
        facts->text.longest = given->text.longest;
    if (given->text.tokenizer) {
        free(facts->text.tokenizer);
        facts->text.tokenizer = fth_format("%s", given->text.tokenizer);
    }
    if (given->classes > 0 && (given->classes != facts->classes || given->class_names)) {
        fth_model_facts old = {.classes = facts->classes, .class_names = facts->class_names};
        facts->class_names = NULL;
        fth_model_facts_release(&old);
        facts->classes = given->classes;
    }
    if (given->class_names) {
        FTH_TRY(fth_allocate((size_t)given->classes, sizeof *facts->class_names, &facts->class_names));
        for (int i = 0; i < given->classes; i++)
            facts->class_names[i] = fth_format("%s", given->class_names[i]);
    }
    if (given->normalization.channels > 0 && (!given->normalization_assumed || facts->normalization.channels == 0)) {
        fth_model_facts_warn_override(facts, &given->normalization, origin);
        facts->normalization = given->normalization;
        facts->normalization_assumed = given->normalization_assumed;
    }
    if (given->transform) {
        free(facts->transform);
        facts->transform = fth_format("%s", given->transform);
    }

out:
    return status;
}

/* The rows of the head in the file are the classes. */
static fth_status count_classes(const fth_model *model, const fth_weights *weights, fth_model_facts *facts)
{
    fth_status status = FTH_OK;
    fth_graph *graph = NULL;
    fth_model_options options = {.channels = facts->channels,
                                 .height = facts->height,
                                 .width = facts->width,
                                 .longest = facts->text.longest,
                                 .classes = model->classes};

    FTH_TRY(fth_model_create_graph(model, &options, &graph));
    fth_model_head head = fth_model_find_head(graph);
    const fth_tensor_view *view =
        head.weight == FTH_NO_VALUE ? NULL : fth_weights_find(weights, fth_graph_value(graph, head.weight)->name);
    facts->classes = model->classes;
    if (view && view->shape.rank == 2 && view->shape.dims[0] >= 1 && view->shape.dims[0] <= 1 << 20)
        facts->classes = (int)view->shape.dims[0];

out:
    fth_graph_free(graph);
    return status;
}

/* The tokenizer that the facts have, or that lies beside the weights. */
static fth_status open_tokenizer(const fth_weights *weights, const char *path, fth_classifier *classifier)
{
    fth_status status = FTH_OK;
    fth_text_facts *text = &classifier->facts.text;
    fth_tokenizer **tokenizer = &classifier->tokenizer;

    if (text->tokenizer) {
        FTH_TRY(fth_tokenizer_parse_metadata(text->tokenizer, path, tokenizer));
        goto out;
    }
    FTH_TRY(fth_weights_find_tokenizer(weights, path, tokenizer));
    FTH_REQUIRE(*tokenizer, FTH_INVALID,
                "%s says nothing of the tokenizer that its model was trained with: give --vocab FILE", path);
    FTH_REQUIRE(text->tokenizer = fth_tokenizer_to_json(*tokenizer), FTH_NO_MEMORY, "no memory for the tokenizer");

out:
    return status;
}

/* What nobody said of a model for text. */
static fth_status complete_text(const fth_weights *weights, const fth_model *model, const char *path,
                                fth_classifier *classifier)
{
    fth_status status = FTH_OK;
    fth_model_facts *facts = &classifier->facts;

    if (facts->text.longest == 0 || facts->text.longest > model->longest)
        facts->text.longest = model->longest;
    if (facts->classes == 0)
        FTH_TRY(count_classes(model, weights, facts));
    FTH_TRY(open_tokenizer(weights, path, classifier));
    FTH_REQUIRE(fth_tokenizer_size(classifier->tokenizer) <= model->vocabulary, FTH_INVALID,
                "the tokenizer has %s, but the model of %s knows only %d",
                FTH_COUNTED(fth_tokenizer_size(classifier->tokenizer), "token"), path, model->vocabulary);

out:
    return status;
}

/* For files that are made of this model. */
static fth_status keep_network(const fth_model *model, fth_model_facts *facts)
{
    char *name = fth_format("%s", fth_exported_model_short_name(model->name));
    free(facts->model);
    facts->model = name;
    if (!facts->network)
        facts->network = fth_format("%s", fth_exported_model_text(model));
    return name && facts->network ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for the text of a network");
}

/* What nobody said is as the model was published, with the constants that its kind of pictures is
 * known by. */
static fth_status complete(const fth_weights *weights, const fth_classifier_options *options,
                           fth_classifier *classifier)
{
    fth_status status = FTH_OK;
    const fth_model *model = options->network;
    fth_model_facts *facts = &classifier->facts;

    FTH_TRY(fth_model_facts_recognize(weights, options->weights, facts));
    if (!model)
        FTH_TRY(fth_model_facts_find_model(facts, options->weights, &model));
    if (fth_exported_model_text(model)) {
        classifier->options.own.network = model;
        FTH_TRY(keep_network(model, facts));
    }
    if (model->build_text) {
        status = complete_text(weights, model, options->weights, classifier);
        goto out;
    }
    if (facts->channels == 0)
        facts->channels = model->channels;
    if (facts->height == 0) {
        facts->height = model->height;
        facts->width = model->width;
    }
    if (facts->classes == 0)
        FTH_TRY(count_classes(model, weights, facts));
    if (facts->normalization.channels == 0) {
        facts->normalization = fth_normalization_guess(facts->channels, facts->height, facts->width);
        facts->normalization_assumed = true;
    }
    FTH_TRY(fth_normalization_spread(&facts->normalization, facts->channels, &facts->normalization));
    if (!facts->transform)
        facts->transform = facts->height == facts->width && facts->height >= 128
                               ? fth_format("resize=%d,centre-crop=%d", facts->height * 8 / 7, facts->height)
                               : fth_format("resize=%dx%d", facts->height, facts->width);

out:
    return status;
}

fth_status fth_classifier_open(const fth_classifier_options *options, fth_classifier **result)
{
    fth_status status = FTH_OK;
    fth_classifier *classifier = NULL;
    fth_weights *weights = NULL;
    const fth_option_table *table = &fth_train_option_table;

    *result = NULL;
    FTH_TRY(fth_weights_open(options->weights, &weights));
    FTH_TRY(fth_allocate(1, sizeof *classifier, &classifier));
    FTH_TRY(fth_options_set_defaults(table, &classifier->options));
    fth_model_facts *facts = &classifier->facts;
    FTH_TRY(fth_model_facts_of_file(weights, options->weights, facts));
    if (options->network) {
        FTH_REQUIRE(!facts->model || strcmp(facts->model, fth_exported_model_short_name(options->network->name)) == 0,
                    FTH_INVALID, "%s is of the model %s, not of the network %s", options->weights, facts->model,
                    options->network->name);
        if (!facts->model)
            facts->model = fth_format("%s", options->network->name);
        classifier->options.own.network = options->network;
    }
    if (options->given)
        FTH_TRY(lay_over(options->given, options->weights, facts));
    FTH_TRY(complete(weights, options, classifier));
    FTH_TRY(fth_options_set(table, &classifier->options, "model", facts->model, "the model"));

    const char *device = options->device ? options->device : "auto";
    FTH_TRY(fth_device_open(device, &(fth_device_options){.threads = options->threads}, &classifier->device));
    fth_engine_options engine_options = {.train = &classifier->options,
                                         .channels = facts->channels,
                                         .height = facts->height,
                                         .width = facts->width,
                                         .longest = facts->text.longest,
                                         .task = facts->text.task,
                                         .classes = facts->classes,
                                         .training_samples = 1,
                                         .evaluate_only = true};
    FTH_TRY(fth_engine_create(&engine_options, classifier->device, &classifier->engine));
    FTH_TRY(fth_engine_load_weights(classifier->engine, weights, false, options->weights, &classifier->report));
    *result = classifier;
    classifier = NULL;

out:
    fth_classifier_free(classifier);
    fth_weights_free(weights);
    return status;
}

void fth_classifier_free(fth_classifier *classifier)
{
    if (!classifier)
        return;
    fth_engine_free(classifier->engine);
    fth_device_close(classifier->device);
    fth_tokenizer_free(classifier->tokenizer);
    fth_options_release(&fth_train_option_table, &classifier->options);
    fth_model_facts_release(&classifier->facts);
    free(classifier);
}

const fth_tokenizer *fth_classifier_tokenizer(const fth_classifier *classifier)
{
    return classifier->tokenizer;
}

const fth_model_facts *fth_classifier_facts(const fth_classifier *classifier)
{
    return &classifier->facts;
}

fth_engine *fth_classifier_engine(const fth_classifier *classifier)
{
    return classifier->engine;
}

int64_t fth_classifier_batches(const fth_classifier *classifier)
{
    return classifier->report.batches;
}
