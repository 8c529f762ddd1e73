/* See setup.h. */
#include "train/setup/setup.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batches/client/client.h"
#include "model/exported_model.h"
#include "train/model/classifier.h"
#include "train/model/run_network.h"
#include "train/options/precision.h"
#include "train/setup/test_part.h"
#include "train/setup/usual.h"

static fth_status make_loader_options(const fth_setup *setup, fth_split split, int64_t first_batch,
                                      fth_loader_options *result);

/* ---- opening ---- */

/* The exported network that the options name: a server's, that of the run, or the file's. */
static fth_status find_network(fth_run_selection *selection, const fth_strategy *strategy, const fth_stop *stop)
{
    fth_status status = FTH_OK;
    fth_train_options *options = &selection->options;
    char *text = NULL;

    if (strategy->get_network && fth_exported_model_is_name(options->model))
        FTH_TRY(strategy->get_network(options, stop, &text));
    FTH_TRY(text ? fth_run_network_take(options, text, options->server.url)
                 : fth_run_network_find(options, selection->folder));

out:
    free(text);
    return status;
}

/* What can be wrong with names and paths shows before data is read or fetched. A run that is
 * continued no longer needs the weights that it started from. */
static fth_status check_names(fth_run_selection *selection, const fth_strategy *strategy, const fth_stop *stop)
{
    fth_status status = FTH_OK;
    const fth_model *model = NULL;
    fth_weights *weights = NULL;

    FTH_TRY(find_network(selection, strategy, stop));
    if (!fth_usual_needs_data(&selection->options))
        FTH_TRY(fth_train_options_find_model(&selection->options, &model));
    const char *path = selection->options.weights;
    FTH_REQUIRE(!fth_store_is_url(path), FTH_INVALID,
                "training starts from files, and %s is in a store; copy it first: farthing store cp '%s' .", path,
                path);
    if (*path && !selection->run)
        FTH_TRY(fth_weights_open(path, &weights));

out:
    fth_weights_free(weights);
    return status;
}

static fth_status check_data(const fth_setup *setup, const fth_run_selection *selection)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = fth_dataset_get_info(setup->dataset);
    int64_t count = info->count[FTH_TRAIN];

    FTH_REQUIRE(count > 0, FTH_INVALID, "%s holds no training samples", setup->options->data.address);
    FTH_REQUIRE(info->count[FTH_VALIDATION] > 0, FTH_INVALID,
                "%s leaves no samples for validation; raise --validation-fraction", setup->options->data.address);
    FTH_REQUIRE(fth_share_samples(setup->share, count) > 0, FTH_INVALID, "share %s is empty: %s has only %s",
                setup->options->data.share, setup->options->data.address, FTH_COUNTED(count, "training sample"));
    FTH_REQUIRE(fth_dataset_has_accuracy(info) || setup->goal.kind != FTH_GOAL_ACCURACY, FTH_INVALID,
                "--until %s: a regression has no accuracy; give a loss instead (--until loss=0.05)",
                setup->options->limits.until);
    FTH_REQUIRE(fth_dataset_has_accuracy(info) || setup->options->saving.best_by != FTH_BEST_BY_ACCURACY, FTH_INVALID,
                "--best-by accuracy: a regression has no accuracy; leave it out to keep the model of the lowest loss");
    if (selection->run) {
        const json_t *data = json_object_get(selection->run, "data");
        int64_t before = json_integer_value(json_object_get(data, "training_samples"));
        FTH_REQUIRE(before == count, FTH_INVALID,
                    "%s has %s, but had %" PRId64
                    " when %s was started: a run continues only with the data it began with",
                    setup->options->data.address, FTH_COUNTED(count, "training sample"), before,
                    selection->folder ? selection->folder : selection->id);
        FTH_TRY(fth_text_check_tokenizer(info, data, selection->folder ? selection->folder : selection->id));
    }

out:
    return status;
}

/* The device, the data set and the engine. */
static fth_status open_engine(fth_setup *setup, fth_run_selection *selection, const fth_stop *stop)
{
    fth_status status = FTH_OK;
    fth_train_options *options = &selection->options;
    bool normalization_assumed = false;

    FTH_TRY(fth_adapt_normalization(selection, setup->strategy, &normalization_assumed));
    FTH_TRY(fth_adapt_batch_cache(selection));
    FTH_TRY(fth_adapt_split(selection));
    fth_adapt_threads(options, selection->processors);
    FTH_TRY(fth_options_check_length(options));
    FTH_TRY(fth_run_network_fit_images(options));
    FTH_TRY(fth_adapt_tokenizer(selection, &setup->tokenizer));
    FTH_TRY(fth_open_device_and_data(options, &(fth_text_known){.tokenizer = setup->tokenizer}, stop, &setup->device,
                                     &setup->dataset, &setup->read_s));
    FTH_TRY(check_data(setup, selection));
    const fth_dataset_info *info = fth_dataset_get_info(setup->dataset);
    int64_t samples = fth_share_samples(setup->share, info->count[FTH_TRAIN]);
    fth_adapt_batch(options, samples);
    FTH_TRY(fth_adapt_check_split(selection, info, setup->configuration));
    FTH_TRY(fth_adapt_model(selection, setup->strategy, info, setup->configuration));
    FTH_TRY(fth_adapt_vocabulary(selection, info));
    if (normalization_assumed && info->modality == FTH_MODALITY_IMAGES)
        fth_model_facts_warn_assumed(&(fth_model_facts){.normalization = info->normalization}, options->weights);
    fth_engine_options engine_options = {.train = options,
                                         .training_samples = samples,
                                         .dataset = setup->dataset,
                                         .precision_before =
                                             json_string_value(json_object_get(selection->run, "precision"))};
    fth_engine_options_take_data(&engine_options, info);
    FTH_TRY(fth_engine_create(&engine_options, setup->device, &setup->engine));
    if (setup->strategy->optimizer != FTH_OPTIMIZER_OF_SERVER)
        FTH_TRY(fth_test_part_open(options, setup->dataset, stop, &setup->test, &setup->test_address));
    fth_precision_advise(options->precision, setup->device, fth_engine_graph(setup->engine), options->batch);

out:
    return status;
}

static fth_workload get_workload(const fth_setup *setup)
{
    const double vectors = 4; /* as an optimizer with two has */
    double parameters = (double)fth_graph_trainable_count(fth_engine_graph(setup->engine));
    return (fth_workload){.images_per_step = setup->options->batch * setup->options->optimizer.accumulate,
                          .validation_images = fth_dataset_get_info(setup->dataset)->count[FTH_VALIDATION],
                          .checkpoint_bytes = vectors * sizeof(float) * parameters};
}

/* Before the run is recorded, and in a dry run, which opens none. */
static fth_status check_loaders(const fth_setup *setup)
{
    fth_status status = FTH_OK;
    fth_loader_options options;

    for (fth_split split = FTH_TRAIN; split <= FTH_VALIDATION; split++) {
        FTH_TRY(make_loader_options(setup, split, 0, &options));
        FTH_TRY(fth_loader_check(setup->dataset, &options));
    }

out:
    return status;
}

fth_status fth_setup_open(fth_run_selection *selection, const fth_strategy *strategy, const fth_stop *stop,
                          fth_spending *spending, fth_setup *setup, fth_position *position)
{
    fth_status status = FTH_OK;
    const fth_train_options *options = &selection->options;

    *setup = (fth_setup){.options = options,
                         .adapted = &selection->options,
                         .processors = selection->processors,
                         .of_peer = selection->of_peer,
                         .strategy = strategy};
    FTH_TRY(fth_goal_parse(options->limits.until, &setup->goal));
    FTH_TRY(fth_data_share_parse(options->data.share, &setup->share));
    FTH_TRY(fth_schedule_find(options->schedule.name, &setup->schedule));
    fth_spending_begin_identify(spending, options->store.watch);
    FTH_TRY(check_names(selection, strategy, stop));
    setup->configuration = fth_options_to_json(&fth_train_option_table, options, false);
    FTH_REQUIRE(setup->configuration, FTH_NO_MEMORY, "no memory for the run's configuration");
    FTH_TRY(open_engine(setup, selection, stop));
    FTH_TRY(fth_position_begin(setup->engine, options, setup->schedule,
                               fth_engine_get_options(setup->engine)->training_samples, position));
    FTH_TRY(fth_spending_find_price(spending, &selection->options, selection->run));
    fth_spending_set_workload(spending, get_workload(setup));
    FTH_TRY(check_loaders(setup));

out:
    return status;
}

void fth_setup_release(fth_setup *setup)
{
    fth_engine_free(setup->engine);
    fth_dataset_free(setup->test);
    free(setup->test_address);
    fth_dataset_free(setup->dataset);
    fth_tokenizer_free(setup->tokenizer);
    fth_device_close(setup->device);
    json_decref(setup->configuration);
    *setup = (fth_setup){0};
}

/* ---- weights, loaders, plans ---- */

fth_status fth_setup_load_weights(fth_setup *setup, fth_position *position)
{
    fth_status status = FTH_OK;
    fth_weights *weights = NULL;
    const char *path = *setup->options->weights ? setup->options->weights : NULL;

    if (!path && setup->strategy->optimizer != FTH_OPTIMIZER_OF_SERVER) {
        status = fth_run_network_find_weights(setup->options, &path);
        if (status != FTH_OK && setup->of_peer)
            return FTH_OK;
        FTH_TRY(status);
    }
    if (!path)
        return FTH_OK;
    FTH_TRY(fth_weights_open(path, &weights));
    FTH_TRY(fth_engine_load_weights(setup->engine, weights, true, path, &setup->weights));
    position->state.counter_start = setup->weights.batches;
    snprintf(setup->weights_format, sizeof setup->weights_format, "%s", fth_weights_describe(weights).format);
    if (*setup->weights.head_note)
        fth_log_info("%s", setup->weights.head_note);

out:
    fth_weights_free(weights);
    return status;
}

fth_status fth_setup_adapt_to_workers(fth_setup *setup, fth_position *position)
{
    fth_train_options *options = setup->adapted;
    const int64_t samples = fth_engine_get_options(setup->engine)->training_samples;
    int64_t batch = options->peers.batch_per_worker * position->state.workers;

    batch = batch < samples ? batch : samples;
    if (batch == 0 || batch == options->batch)
        return FTH_OK;
    options->batch = batch;
    return fth_position_set_batch(position, setup->engine, options, setup->schedule, samples);
}

void fth_setup_set_part(fth_setup *setup, fth_share part)
{
    setup->part = part;
    setup->validation_part = setup->strategy->sum ? part : (fth_share){0};
}

/* Of all parts together: each has as many as are evaluated at a time, or fewer where there are not
 * enough. */
static int64_t find_validation_batch(const fth_setup *setup)
{
    const int64_t count = fth_dataset_get_info(setup->dataset)->count[FTH_VALIDATION];
    const int64_t parts = setup->validation_part.of > 1 ? setup->validation_part.of : 1;
    const int64_t peers = setup->part.of > 1 ? setup->part.of : 1;
    const int64_t trained = (setup->options->batch + peers - 1) / peers; /* the same in all of them */
    const int64_t batch = parts * fth_engine_evaluation_batch(setup->engine, trained, (count + parts - 1) / parts);
    return batch < count ? batch : count;
}

fth_status fth_setup_keep_data(fth_setup *setup)
{
    if (!setup->strategy->keeps_data_on_device)
        return FTH_OK;
    return fth_engine_keep_data(setup->engine, setup->dataset, &setup->data_on_device);
}

/* Workers that share this process's memory make images themselves, right where they compute with
 * them: from loader to trainer to worker a batch would move between cores three times, which costs
 * cifar-cnn a fifth of its speed. */
static bool workers_make_images(const fth_setup *setup)
{
    return setup->strategy->makes_images && setup->strategy->makes_images(setup->options) &&
           setup->device->backend->host_memory &&
           fth_dataset_get_info(setup->dataset)->modality == FTH_MODALITY_IMAGES &&
           !fth_dataset_is_transformed(setup->dataset);
}

/* Where the limits of the run end it, if it has any that count batches. */
static int64_t find_expected_end(const fth_setup *setup, int64_t samples)
{
    const fth_train_options *options = setup->options;
    int64_t of_epochs = options->limits.epochs * fth_batches_per_epoch(samples, options->batch);
    int64_t of_steps = options->limits.steps * (options->optimizer.accumulate > 0 ? options->optimizer.accumulate : 1);
    return of_epochs > 0 && (of_steps == 0 || of_epochs < of_steps) ? of_epochs : of_steps;
}

static fth_status make_loader_options(const fth_setup *setup, fth_split split, int64_t first_batch,
                                      fth_loader_options *result)
{
    const fth_train_options *options = setup->options;
    bool training = split == FTH_TRAIN;
    int64_t count = fth_dataset_get_info(setup->dataset)->count[split];
    *result = (fth_loader_options){.split = split,
                                   .batch = training ? options->batch : find_validation_batch(setup),
                                   .seed = (uint64_t)options->seed,
                                   .shuffle = training,
                                   .by_length = training && options->text.by_length,
                                   .recipes = setup->data_on_device || (training && workers_make_images(setup)),
                                   .threads = (int)options->data.loader_threads};
    if (result->threads == 0 && fth_dataset_is_transformed(setup->dataset))
        result->threads = setup->processors;
    if (!training) {
        result->part = setup->validation_part;
        result->batch_limit = fth_batches_per_epoch(count, result->batch);
        return FTH_OK;
    }
    result->first_batch = first_batch;
    result->expected_end = find_expected_end(setup, fth_share_samples(setup->share, count));
    result->share = setup->share;
    result->part = setup->part;
    return fth_augmentation_find(options->images.augment, &result->augmentation);
}

fth_status fth_setup_open_loader(const fth_setup *setup, fth_split split, int64_t first_batch, fth_loader **loader)
{
    fth_loader_options options;
    fth_status status = make_loader_options(setup, split, first_batch, &options);
    return status == FTH_OK ? fth_loader_open(setup->dataset, &options, loader) : status;
}

fth_status fth_setup_settle_data(const fth_setup *setup)
{
    fth_loader_options options;
    fth_status status = make_loader_options(setup, FTH_TRAIN, 0, &options);
    return status == FTH_OK ? fth_batches_settle(setup->dataset, &options) : status;
}

/* The part of a whole batch and, if there is one, of the short last batch. */
static fth_status prepare_batches(const fth_setup *setup, fth_share part, int64_t samples, int64_t batch,
                                  fth_plan_mode mode)
{
    fth_status status = FTH_OK;
    const int64_t sizes[] = {fth_part_samples(part, batch), fth_part_samples(part, samples % batch)};

    for (size_t i = 0; i < FTH_COUNT_OF(sizes); i++)
        if (sizes[i] > 0)
            FTH_TRY(fth_engine_prepare(setup->engine, sizes[i], mode));

out:
    return status;
}

fth_status fth_setup_prepare(const fth_setup *setup)
{
    fth_status status = FTH_OK;
    const int64_t *count = fth_dataset_get_info(setup->dataset)->count;

    if (!setup->strategy->has_workers)
        FTH_TRY(prepare_batches(setup, setup->part, fth_share_samples(setup->share, count[FTH_TRAIN]),
                                setup->options->batch, FTH_PLAN_TRAIN));
    FTH_TRY(prepare_batches(setup, setup->validation_part, count[FTH_VALIDATION], find_validation_batch(setup),
                            FTH_PLAN_EVALUATE));

out:
    return status;
}
