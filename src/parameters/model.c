/* See model.h. */
#include "parameters/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "model/exported_model.h"
#include "parameters/record.h"
#include "train/engine/snapshot.h"
#include "train/model/hub_folder.h"
#include "train/model/run_network.h"
#include "train/setup/text_data.h"

/* ---- opening ---- */

/* Checks that --data, for validation, matches the shards. */
static fth_status check_against_shards(const fth_shard_manifest *shards, const fth_dataset_info *info, const char *data)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(info->modality == FTH_MODALITY_IMAGES, FTH_INVALID, "--data %s is text, but --shards hold images",
                data);
    FTH_REQUIRE(shards->channels == info->channels && shards->height == info->height && shards->width == info->width,
                FTH_INVALID, "the images of --data %s are %dx%dx%d, but those of --shards are %dx%dx%d", data,
                info->channels, info->height, info->width, shards->channels, shards->height, shards->width);
    FTH_REQUIRE(shards->classes == info->classes, FTH_INVALID, "--data %s has %s, but --shards have %d", data,
                FTH_COUNTED(info->classes, "class"), shards->classes);
    for (int i = 0; i < info->classes; i++)
        FTH_REQUIRE(strcmp(shards->class_names[i], info->class_names[i]) == 0, FTH_INVALID,
                    "class %d of --data %s is '%s', but that of --shards is '%s'", i, data, info->class_names[i],
                    shards->class_names[i]);
    FTH_REQUIRE(shards->held_out.fraction == 0 || info->held_out.fraction == 0 ||
                    info->count[FTH_TRAIN] == shards->samples,
                FTH_INVALID,
                "--data %s would validate with training samples: it leaves %" PRId64
                " for training, and --shards have %" PRId64,
                data, info->count[FTH_TRAIN], shards->samples);

out:
    return status;
}

/* Chooses the validation split. A continued run keeps its own, which in older versions was random.
 * */
static fth_status choose_split(fth_served_model *model, const char *checkpoints)
{
    fth_status status = FTH_OK;
    json_t *run = NULL;
    char *folder = NULL;
    fth_validation_split split = FTH_SPLIT_STRATIFIED;

    if (!fth_usual_is_open(model->train, "validation-split"))
        return FTH_OK;
    folder = fth_served_record_find(model->train, checkpoints);
    if (folder) {
        FTH_TRY(fth_record_read_run(folder, &run));
        const char *before =
            json_string_value(json_object_get(json_object_get(run, "configuration"), "validation-split"));
        split = !before || strcmp(before, "random") == 0 ? FTH_SPLIT_RANDOM : FTH_SPLIT_STRATIFIED;
    }
    model->adapted.data.validation_split = split;

out:
    json_decref(run);
    free(folder);
    return status;
}

/* If the shards' data set has no validation part, validates with the samples that the shards leave
 * out. */
static fth_status open_validation(fth_served_model *model)
{
    fth_train_options used = *model->train; /* with lent texts */
    if (model->shards && model->shards->held_out.fraction > 0) {
        used.seed = (int64_t)model->shards->held_out.seed;
        used.data.validation_fraction = model->shards->held_out.fraction;
        used.data.validation_split = model->shards->held_out.by_class ? FTH_SPLIT_STRATIFIED : FTH_SPLIT_RANDOM;
    }
    return fth_service_open_data(&used, model->tokenizer, &model->dataset);
}

/* Finds the tokenizer of the continued run, of --vocab or of --weights. */
static fth_status find_tokenizer(fth_served_model *model, const char *checkpoints)
{
    const fth_train_options *train = model->train;
    fth_status status = FTH_OK;
    char *folder = fth_served_record_find(train, checkpoints);
    char *path = folder ? fth_path_join(folder, FTH_RUN_TOKENIZER) : NULL;

    if (path && fth_file_exists(path))
        status = fth_tokenizer_open(path, &model->tokenizer);
    else
        status = fth_options_find_tokenizer(train, &model->tokenizer);
    free(folder);
    free(path);
    return status;
}

fth_status fth_parameters_find_network(fth_train_options *train, const char *checkpoints)
{
    const bool remote = checkpoints && fth_store_is_url(checkpoints); /* local ones are kept with the run */
    char *folder = fth_served_record_find(train, remote ? NULL : checkpoints);
    fth_status status = fth_run_network_find(train, folder);
    free(folder);
    return status;
}

/* Finds the exported network that the options name: that of the continued run, or the file's.
 * Images get the size that it takes. */
static fth_status find_network(fth_served_model *model, const char *checkpoints)
{
    fth_status status = FTH_OK;
    int64_t size = 0;

    FTH_TRY(fth_parameters_find_network(&model->adapted, checkpoints));
    FTH_TRY(fth_run_network_choose_size(model->train, &size, &model->sizing_transform));
    if (size > 0)
        model->adapted.images.size = size;
    if (model->sizing_transform)
        model->adapted.images.validation_transform = model->sizing_transform;

out:
    return status;
}

/* Chooses the network and its optimizer if the options leave them to the data. */
static fth_status choose_model(fth_served_model *model)
{
    const fth_dataset_info images = {.channels = model->input.channels,
                                     .height = model->input.height,
                                     .width = model->input.width,
                                     .classes = model->classes};
    const fth_dataset_info *info = model->dataset ? fth_dataset_get_info(model->dataset) : &images;
    const bool open = fth_usual_needs_data(model->train);
    fth_status status = fth_usual_find(model->train, info, &model->usual);
    if (status != FTH_OK)
        return status;
    if (open)
        fth_log_info("no --model given: training %s, the default for %s", model->usual.model,
                     info->modality == FTH_MODALITY_TEXT ? "text" : "such images");
    model->adapted.model = (char *)(uintptr_t)model->usual.model; /* lent */
    model->adapted.optimizer.name = (char *)(uintptr_t)model->usual.optimizer;
    model->adapted.optimizer.lr = model->usual.lr;
    return fth_options_check_length(model->train);
}

/* Takes the facts about texts from the data, and fits the model to its tokenizer. */
static fth_status take_text(fth_served_model *model, const fth_dataset_info *info)
{
    fth_status status = FTH_OK;

    if (info->modality != FTH_MODALITY_TEXT)
        return FTH_OK;
    model->input.longest = info->text.longest;
    model->task = fth_task_of_labels(info->text.label);
    FTH_TRY(fth_options_fit_vocabulary(model->train, info, &model->fitting_model));
    if (model->fitting_model)
        model->adapted.model = model->fitting_model;

out:
    return status;
}

/* The engine's options that describe samples and labels. */
static fth_engine_options describe_sample(const fth_served_model *model)
{
    return (fth_engine_options){.channels = model->input.channels,
                                .height = model->input.height,
                                .width = model->input.width,
                                .longest = model->input.longest,
                                .task = model->task,
                                .classes = model->classes};
}

static fth_status open_data(fth_served_model *model, const fth_parameters_options *options)
{
    fth_status status = FTH_OK;
    const fth_train_options *train = options->train;
    const fth_shard_manifest *shards = model->shards;

    FTH_TRY(find_network(model, options->checkpoints));
    model->input.channels = shards ? shards->channels : options->channels;
    model->input.height = shards ? shards->height : options->height;
    model->input.width = shards ? shards->width : options->width;
    model->classes = shards ? shards->classes : options->classes;
    model->epoch_samples = shards ? shards->samples : options->epoch_samples;
    if (options->has_data) {
        FTH_TRY(fth_options_check_length(train));
        FTH_TRY(find_tokenizer(model, options->checkpoints));
        FTH_TRY(choose_split(model, options->checkpoints));
        FTH_TRY(open_validation(model));
        const fth_dataset_info *info = fth_dataset_get_info(model->dataset);
        if (shards)
            FTH_TRY(check_against_shards(shards, info, train->data.address));
        model->input.channels = info->channels;
        model->input.height = info->height;
        model->input.width = info->width;
        model->classes = info->classes;
        if (model->epoch_samples == 0)
            model->epoch_samples = info->count[FTH_TRAIN];
        FTH_REQUIRE(info->count[FTH_VALIDATION] > 0, FTH_INVALID, "%s has no samples to validate with",
                    train->data.address);
        FTH_TRY(choose_model(model));
        FTH_TRY(take_text(model, info));
        model->input.normalization = info->normalization;
    } else if (shards && !*train->images.normalize) {
        model->input.normalization = shards->normalization;
    } else {
        FTH_TRY(fth_service_find_normalization(train, &model->input.normalization));
        if (model->input.normalization.channels > 0)
            FTH_TRY(fth_normalization_spread(&model->input.normalization, model->input.channels,
                                             &model->input.normalization));
    }
    if (!model->dataset)
        FTH_TRY(choose_model(model));
    const fth_engine_options sample = describe_sample(model);
    fth_service_describe_input(&sample, model->dataset ? fth_dataset_get_info(model->dataset)->text.tokenizer : NULL,
                               model->input.text, sizeof model->input.text);

out:
    return status;
}

/* Loads --weights, or those in the file of an exported network: a server that continues needs them
 * only if it has no checkpoint, which shows later. */
static fth_status load_weights(fth_served_model *model, bool resumed)
{
    fth_status status = FTH_OK;
    const char *path = *model->train->weights ? model->train->weights : NULL;
    fth_weights *weights = NULL;

    if (!path && !(resumed && !fth_file_exists(model->train->model)))
        FTH_TRY(fth_run_network_find_weights(model->train, &path));
    if (!path)
        return FTH_OK;
    FTH_TRY(fth_weights_open(path, &weights));
    FTH_TRY(fth_engine_load_weights(model->engine, weights, true, path, NULL));

out:
    fth_weights_free(weights);
    return status;
}

static fth_status open_engine(fth_served_model *model, bool resumed)
{
    fth_status status = FTH_OK;
    const fth_train_options *train = model->train;
    fth_engine_options engine = describe_sample(model);
    engine.train = train;
    engine.training_samples = model->epoch_samples > 0 ? model->epoch_samples : train->batch;

    FTH_TRY(fth_device_open("cpu", &(fth_device_options){.threads = (int)train->threads}, &model->device));
    FTH_TRY(fth_engine_create(&engine, model->device, &model->engine));
    FTH_TRY(fth_layout_create(fth_engine_graph(model->engine), &model->layout));
    model->vectors = fth_service_get_vectors(model->engine);
    /* room for an index and a value of each number, names and metadata */
    model->max_body_bytes = model->layout->packed_floats * 8 + (uint64_t)model->layout->count * 1024 + (256 << 10);
    FTH_TRY(load_weights(model, resumed));

out:
    return status;
}

/* Computes the length of training from the options and the data. */
static fth_status set_length(fth_served_model *model, const fth_parameters_options *options)
{
    fth_status status = FTH_OK;
    const fth_train_options *train = model->train;
    const fth_consistency *consistency = &options->consistency;
    double rate = 0;

    if (model->epoch_samples > 0) {
        bool counted = consistency->kind == FTH_CONSISTENCY_SYNC && consistency->count > 0;
        int64_t samples = train->batch * (counted ? consistency->count : 1);
        model->updates_per_epoch = (model->epoch_samples + samples - 1) / samples;
    }
    if (options->ends_by_epochs && train->limits.epochs > 0) {
        FTH_REQUIRE(model->epoch_samples > 0 || train->limits.steps > 0, FTH_INVALID,
                    "--epochs ends the training, but the size of an epoch is unknown: give --data, "
                    "--epoch-samples, or --steps instead");
        model->end_samples = train->limits.epochs * model->epoch_samples;
    }
    FTH_TRY(
        fth_service_rate(train, 1, 0, model->updates_per_epoch, &rate)); /* checks that the schedule can be computed */

out:
    return status;
}

fth_status fth_served_model_open(const fth_parameters_options *options, const fth_shard_manifest *shards,
                                 fth_served_model **result)
{
    fth_status status = FTH_OK;
    fth_served_model *model = NULL;
    char *folder = fth_served_record_find(options->train, options->checkpoints);

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *model, &model));
    model->adapted = *options->train;
    model->train = &model->adapted;
    model->shards = shards;
    FTH_TRY(open_data(model, options));
    FTH_TRY(set_length(model, options));
    FTH_TRY(open_engine(model, folder != NULL));
    *result = model;
    model = NULL;

out:
    free(folder);
    fth_served_model_free(model);
    return status;
}

void fth_served_model_free(fth_served_model *model)
{
    if (!model)
        return;
    fth_layout_free(model->layout);
    fth_engine_free(model->engine);
    fth_device_close(model->device);
    fth_dataset_free(model->dataset);
    fth_tokenizer_free(model->tokenizer);
    free(model->fitting_model);
    free(model->sizing_transform);
    free(model);
}

/* ---- the learning rate ---- */

double fth_served_model_base_rate(const fth_served_model *model)
{
    return fth_engine_learning_rate(model->engine);
}

double fth_served_model_rate(const fth_served_model *model, int64_t version)
{
    double rate = 0, base = fth_served_model_base_rate(model);
    return fth_service_rate(model->train, base, version, model->updates_per_epoch, &rate) == FTH_OK ? rate : base;
}

/* ---- describing and saving ---- */

json_t *fth_served_model_describe(const fth_served_model *model, const fth_parameters_options *options)
{
    char identity[17], consistency[32], lease[32];
    const fth_dataset_info *info = model->dataset ? fth_dataset_get_info(model->dataset) : NULL;
    json_t *configuration = fth_options_to_json(&fth_train_option_table, options->train, false);
    fth_options_identity(&fth_train_option_table, options->train, identity);
    fth_consistency_format(options->consistency, consistency, sizeof consistency);
    json_object_set_new(configuration, "strategy", json_string("parameter-server"));
    json_object_set_new(configuration, "validation-split",
                        json_string(fth_validation_split_names[model->train->data.validation_split]));
    json_object_set_new(configuration, "model", json_string(model->usual.model));
    json_object_set_new(configuration, "optimizer", json_string(model->usual.optimizer));
    json_object_set_new(configuration, "lr", json_real(fth_served_model_base_rate(model)));
    json_object_set_new(configuration, "consistency", json_string(consistency));
    snprintf(lease, sizeof lease, "%gs", options->lease_s); /* as text, which `train` reads back */
    json_object_set_new(configuration, "lease", json_string(lease));
    const char *name = info ? info->name : model->shards ? model->shards->dataset : "the workers'";
    if (!info)
        json_object_set_new(configuration, "data", json_string(name));
    json_t *run = json_pack("{s:s, s:o, s:{s:s, s:i, s:i, s:i, s:i, s:I, s:I}, s:I}", "identity", identity,
                            "configuration", configuration, "data", "name", name, "classes", model->classes, "channels",
                            model->input.channels, "height", model->input.height, "width", model->input.width,
                            "training_samples", (json_int_t)model->epoch_samples, "validation_samples",
                            (json_int_t)(info ? info->count[FTH_VALIDATION] : 0), "parameters",
                            (json_int_t)fth_graph_trainable_count(fth_engine_graph(model->engine)));
    if (run && info && info->modality == FTH_MODALITY_TEXT)
        fth_text_describe(info, json_object_get(run, "data"));
    return run;
}

/* The facts for the model file: the data set's, or the options' about the workers' images. */
static fth_status describe_facts(const fth_served_model *model, fth_model_facts *facts)
{
    if (model->dataset)
        return fth_model_facts_of_run(model->train, model->dataset, facts);
    const char *network = fth_run_network_text(model->train);
    *facts = (fth_model_facts){.model = fth_format("%s", fth_exported_model_short_name(model->train->model)),
                               .network = network ? fth_format("%s", network) : NULL,
                               .channels = model->input.channels,
                               .height = model->input.height,
                               .width = model->input.width,
                               .classes = model->classes,
                               .normalization = model->input.normalization};
    return FTH_OK;
}

fth_status fth_served_model_write_files(const fth_served_model *model, const char *folder)
{
    fth_status status = FTH_OK;
    fth_model_facts facts = {0};

    FTH_TRY(fth_run_network_write(model->train, folder));
    if (model->input.longest == 0)
        return FTH_OK;
    FTH_TRY(describe_facts(model, &facts));
    FTH_TRY(
        fth_hub_folder_write(folder, &facts, fth_dataset_get_info(model->dataset)->text.tokenizer, "last.safetensors"));

out:
    fth_model_facts_release(&facts);
    return status;
}

fth_status fth_served_model_save_last(const fth_served_model *model, int64_t version, const char *folder)
{
    fth_status status = FTH_OK;
    fth_model_facts facts = {0};
    fth_model_metadata metadata = {0};
    fth_snapshot *snapshot = NULL;
    char *path = fth_path_join(folder, "last.safetensors");
    size_t count = 0;

    FTH_TRY(fth_engine_lend_model(model->engine, version, &snapshot));
    FTH_TRY(fth_snapshot_check_finite(snapshot));
    const fth_tensor_view *views = fth_snapshot_file_views(snapshot, &count);
    FTH_TRY(describe_facts(model, &facts));
    FTH_TRY(fth_model_facts_to_metadata(&facts, &metadata));
    FTH_TRY(fth_model_file_save(path, views, count, metadata.entries, metadata.count));

out:
    fth_model_metadata_release(&metadata);
    fth_model_facts_release(&facts);
    fth_snapshot_free(snapshot);
    free(path);
    return status;
}
