/* How a trainer begins: device, data, engine and record are opened, and the newest checkpoint, if this run has one,
 * is restored. Nothing is written before everything that can be wrong with the options or the data has been checked. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "train/classifier.h"
#include "train/trainer_internal.h"

enum { CROP_PADDING = 4 };

/* The data set is opened beside the device: reading files and starting a compute library both take a while. */
typedef struct data_opening {
    const fth_train_options *options;
    const fth_stop *stop;
    fth_dataset *dataset;
    fth_status status;
    char message[1024];
    pthread_mutex_t mutex; /* of `done` */
    pthread_cond_t changed;
    bool done;
} data_opening;

static void *open_data(void *context)
{
    data_opening *opening = context;
    const fth_train_options *options = opening->options;
    fth_dataset_options dataset_options = {.stop = opening->stop,
                                           .seed = (uint64_t)options->seed,
                                           .validation_fraction = options->validation_fraction,
                                           .threads = options->loader_threads > 0 ? (int)options->loader_threads : 2,
                                           .image_size = (int)options->image_size,
                                           .transform = options->transform,
                                           .validation_transform = options->validation_transform,
                                           .max_bad_images =
                                               options->max_bad_images > 0 ? options->max_bad_images : 1e-12,
                                           .decoded_cache_bytes = (uint64_t)options->decoded_cache_mb << 20};
    opening->status = fth_normalization_parse(options->normalize, &dataset_options.normalization);
    if (opening->status == FTH_OK)
        opening->status = options->own.images
                              ? fth_dataset_create(options->own.images, &dataset_options, &opening->dataset)
                              : fth_dataset_open(options->data, &dataset_options, &opening->dataset);
    if (opening->status != FTH_OK) /* messages belong to a thread */
        snprintf(opening->message, sizeof opening->message, "%s", fth_error_message());
    pthread_mutex_lock(&opening->mutex);
    opening->done = true;
    pthread_cond_signal(&opening->changed);
    pthread_mutex_unlock(&opening->mutex);
    return NULL;
}

/* Says what takes so long, if it does. */
static void wait_for_data(data_opening *opening, double began_s)
{
    const double quiet_s = 1, look_every_s = 0.1;
    bool told = false;
    pthread_mutex_lock(&opening->mutex);
    while (!opening->done) {
        struct timespec until = fth_deadline_timespec(fth_deadline_in(look_every_s));
        pthread_cond_clockwait(&opening->changed, &opening->mutex, CLOCK_MONOTONIC, &until);
        if (!opening->done && !told && fth_clock_seconds() - began_s > quiet_s) {
            fth_log_info("reading %s ...", opening->options->data);
            told = true;
        }
    }
    pthread_mutex_unlock(&opening->mutex);
}

fth_status fth_open_device_and_data(const fth_train_options *options, const fth_stop *stop, fth_device **device,
                                    fth_dataset **dataset)
{
    data_opening opening = {
        .options = options, .stop = stop, .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    double began_s = fth_clock_seconds();
    pthread_t thread;
    bool threaded = fth_thread_start(&thread, "open-data", open_data, &opening) == 0;
    fth_status status =
        fth_device_open(options->device, &(fth_device_options){.threads = (int)options->threads}, device);
    if (threaded) {
        wait_for_data(&opening, began_s);
        pthread_join(thread, NULL);
    } else {
        open_data(&opening);
    }
    *dataset = opening.dataset;
    if (status == FTH_OK && opening.status != FTH_OK)
        status = fth_fail(opening.status, "%s", opening.message);
    return status;
}

/* Workers that share this process's memory make images themselves, right where they compute with them: from loader to
 * trainer to worker a batch would move between cores three times, which costs cifar-cnn a fifth of its speed. */
static bool workers_make_images(const fth_trainer *trainer)
{
    return trainer->strategy->makes_images && trainer->strategy->makes_images(trainer->options) &&
           trainer->device->backend->host_memory && !fth_dataset_is_transformed(trainer->dataset);
}

fth_status fth_trainer_open_loader(fth_trainer *trainer, fth_split split, fth_loader **loader)
{
    const fth_train_options *options = trainer->options;
    bool training = split == FTH_TRAIN;
    int64_t count = fth_dataset_get_info(trainer->dataset)->count[split];
    fth_loader_options loader_options = {
        .split = split,
        .batch = training ? options->batch : fth_engine_evaluation_batch(trainer->engine, count),
        .seed = (uint64_t)options->seed,
        .shuffle = training,
        .recipes = trainer->data_on_device || (training && workers_make_images(trainer)),
        .threads = (int)options->loader_threads};
    if (training) {
        loader_options.augmentation.flip = strncmp(options->augment, "flip", 4) == 0;
        loader_options.augmentation.crop_padding = strstr(options->augment, "crop") ? CROP_PADDING : 0;
        loader_options.first_batch = trainer->position.state.batches;
        loader_options.share = trainer->share;
    } else {
        loader_options.batch_limit = fth_batches_per_epoch(count, loader_options.batch);
    }
    return fth_loader_open(trainer->dataset, &loader_options, loader);
}

/* A whole batch and, if there is one, the short last batch. */
static fth_status prepare_batches(fth_trainer *trainer, int64_t samples, int64_t batch, fth_plan_mode mode)
{
    fth_status status = fth_engine_prepare(trainer->engine, batch, mode);
    if (status == FTH_OK && samples % batch != 0)
        status = fth_engine_prepare(trainer->engine, samples % batch, mode);
    return status;
}

fth_status fth_trainer_prepare(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    const int64_t *count = fth_dataset_get_info(trainer->dataset)->count;
    int64_t evaluated = fth_engine_evaluation_batch(trainer->engine, count[FTH_VALIDATION]);

    if (!trainer->strategy->has_workers)
        FTH_TRY(prepare_batches(trainer, fth_share_samples(trainer->share, count[FTH_TRAIN]), trainer->options->batch,
                                FTH_PLAN_TRAIN));
    FTH_TRY(prepare_batches(trainer, count[FTH_VALIDATION], evaluated, FTH_PLAN_EVALUATE));
    trainer->prepared = true;

out:
    return status;
}

static fth_status check_data(const fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = fth_dataset_get_info(trainer->dataset);
    int64_t count = info->count[FTH_TRAIN];

    FTH_REQUIRE(count > 0, FTH_INVALID, "%s holds no training images", trainer->options->data);
    FTH_REQUIRE(info->count[FTH_VALIDATION] > 0, FTH_INVALID,
                "%s leaves no images for validation; raise --validation-fraction", trainer->options->data);
    FTH_REQUIRE(fth_share_samples(trainer->share, count) > 0, FTH_INVALID, "share %s is empty: %s has only %s",
                trainer->options->share, trainer->options->data, FTH_COUNTED(count, "training image"));
    if (trainer->beginning.run) {
        const json_t *data = json_object_get(trainer->beginning.run, "data");
        int64_t before = json_integer_value(json_object_get(data, "training_samples"));
        FTH_REQUIRE(before == count, FTH_INVALID,
                    "%s has %s, but had %" PRId64
                    " when %s was started: a run goes on only with the data it began with",
                    trainer->options->data, FTH_COUNTED(count, "training image"), before, trainer->beginning.folder);
    }

out:
    return status;
}

fth_status fth_trainer_load_weights(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    fth_weights *weights = NULL;
    const char *path = trainer->options->weights;

    if (!*path)
        return FTH_OK;
    FTH_TRY(fth_weights_open(path, &weights));
    FTH_TRY(fth_engine_load_weights(trainer->engine, weights, true, path, &trainer->weights));
    trainer->position.state.counter_start = trainer->weights.batches;
    snprintf(trainer->weights_format, sizeof trainer->weights_format, "%s", fth_weights_describe(weights).format);
    if (*trainer->weights.head_note)
        fth_log_info("%s", trainer->weights.head_note);

out:
    fth_weights_free(weights);
    return status;
}

/* What can be wrong with names and paths shows before data is read or fetched. A run that goes on no longer needs the
 * weights that it started from. */
static fth_status check_names(const fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    const fth_model *model = NULL;
    fth_weights *weights = NULL;

    FTH_TRY(fth_train_options_find_model(trainer->options, &model));
    const char *path = trainer->options->weights;
    FTH_REQUIRE(!fth_store_is_url(path), FTH_INVALID,
                "training starts from files, and %s is in a store; copy it first: farthing store cp '%s' .", path,
                path);
    if (*path && !trainer->beginning.folder)
        FTH_TRY(fth_weights_open(path, &weights));

out:
    fth_weights_free(weights);
    return status;
}

static fth_status open_engine(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    const fth_train_options *options = trainer->options;

    FTH_TRY(check_names(trainer));
    trainer->configuration = fth_options_to_json(&fth_train_option_table, options, false);
    FTH_REQUIRE(trainer->configuration, FTH_NO_MEMORY, "no memory for the run's configuration");
    FTH_TRY(fth_trainer_adapt_normalization(trainer));
    FTH_TRY(fth_open_device_and_data(options, trainer->stop, &trainer->device, &trainer->dataset));
    FTH_TRY(check_data(trainer));
    fth_trainer_adapt_batch(trainer);
    const fth_dataset_info *info = fth_dataset_get_info(trainer->dataset);
    if (trainer->normalization_assumed)
        fth_model_facts_warn_assumed(&(fth_model_facts){.normalization = info->normalization}, options->weights);
    fth_engine_options engine_options = {.train = options,
                                         .channels = info->channels,
                                         .height = info->height,
                                         .width = info->width,
                                         .classes = info->classes,
                                         .training_samples = fth_share_samples(trainer->share, info->count[FTH_TRAIN]),
                                         .dataset = trainer->dataset,
                                         .precision_before =
                                             json_string_value(json_object_get(trainer->beginning.run, "precision"))};
    FTH_TRY(fth_engine_create(&engine_options, trainer->device, &trainer->engine));
    trainer->base_rate = fth_engine_learning_rate(trainer->engine);
    FTH_TRY(fth_position_begin(trainer->engine, options, trainer->schedule, engine_options.training_samples,
                               &trainer->position));

out:
    return status;
}

/* run.json, but for the machine. */
static json_t *describe_run(const fth_trainer *trainer)
{
    const fth_dataset_info *data = fth_dataset_get_info(trainer->dataset);
    char normalization[FTH_NORMALIZATION_TEXT];
    fth_normalization_format(&data->normalization, normalization);
    return json_pack("{s:s, s:O, s:I, s:{s:s, s:i, s:i, s:i, s:i, s:s, s:I, s:I}, s:I, s:s}", "identity",
                     trainer->beginning.identity, "configuration", trainer->configuration, "batch",
                     (json_int_t)trainer->options->batch, "data", "name", data->name, "classes", data->classes,
                     "channels", data->channels, "height", data->height, "width", data->width, "normalization",
                     normalization, "training_samples", (json_int_t)data->count[FTH_TRAIN], "validation_samples",
                     (json_int_t)data->count[FTH_VALIDATION], "parameters",
                     (json_int_t)fth_graph_trainable_count(fth_engine_graph(trainer->engine)), "precision",
                     fth_engine_precision(trainer->engine));
}

/* run.json's "machine". */
static json_t *describe_machine(const fth_trainer *trainer)
{
    json_t *machine = fth_machine_describe(trainer->device);
    if (machine)
        fth_spending_describe_machine(trainer->spending, machine);
    return machine;
}

/* The run as it goes on from here, with what was given now. */
static fth_status configure_record(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    json_t *description = describe_run(trainer), *machine = describe_machine(trainer);

    FTH_REQUIRE(description, FTH_NO_MEMORY, "no memory for the run's description");
    FTH_TRY(fth_record_configure(fth_reporter_get_record(trainer->reporter), description, machine));

out:
    json_decref(description);
    json_decref(machine);
    return status;
}

static fth_status create_record(fth_trainer *trainer, fth_record **record)
{
    fth_status status = FTH_OK;
    const fth_train_options *options = trainer->options;
    json_t *description = describe_run(trainer), *machine = describe_machine(trainer);
    char *hint = NULL;

    FTH_REQUIRE(description, FTH_NO_MEMORY, "no memory for the run's description");
    size_t length = strlen(options->data);
    while (length > 1 && options->data[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin > 0 && options->data[begin - 1] != '/')
        begin--;
    hint = fth_format("%s-%.*s", options->model, (int)(length - begin), options->data + begin);
    fth_record_sweep(options->runs, trainer->beginning.identity);
    FTH_TRY(fth_record_create(options->runs, options->name, hint, description, machine, record));
    if (*options->resume && *options->name)
        fth_log_info("there is no run %s to resume in %s; starting it", options->name, options->runs);
    else if (*options->resume)
        fth_log_info("nothing to resume for this configuration in %s; starting a new run, %s", options->runs,
                     fth_record_id(*record));

out:
    free(hint);
    json_decref(description);
    json_decref(machine);
    return status;
}

static fth_status open_record(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    fth_record *record = NULL;

    if (trainer->beginning.folder)
        FTH_TRY(fth_record_resume(trainer->beginning.folder, &record));
    else
        FTH_TRY(create_record(trainer, &record));
    fth_reporter_open(trainer->reporter, &(fth_report_sources){.record = record,
                                                               .run_store = trainer->run_store,
                                                               .position = &trainer->position,
                                                               .spending = trainer->spending,
                                                               .options = trainer->options,
                                                               .device = trainer->device,
                                                               .dataset = trainer->dataset});
    const char *folder = fth_record_folder(record);
    trainer->last_path = fth_path_join(folder, "last.safetensors");
    trainer->best_path = fth_path_join(folder, "best.safetensors");
    FTH_TRY(fth_trainer_open_store(trainer));

out:
    return status;
}

fth_status fth_trainer_open(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    const fth_train_options *options = trainer->options;

    FTH_TRY(fth_goal_parse(options->until, &trainer->goal));
    FTH_TRY(fth_data_share_parse(options->share, &trainer->share));
    FTH_TRY(fth_trainer_begin_interval(trainer));
    FTH_TRY(fth_schedule_find(options->schedule, &trainer->schedule));
    fth_spending_begin_identify(trainer->spending, options->watch);
    FTH_TRY(open_engine(trainer));
    FTH_TRY(fth_spending_find_price(trainer->spending, &trainer->beginning.options, trainer->beginning.run));
    fth_spending_set_workload(
        trainer->spending,
        &(fth_workload){.images_per_step = options->batch * options->accumulate,
                        .validation_images = fth_dataset_get_info(trainer->dataset)->count[FTH_VALIDATION],
                        .checkpoint_bytes =
                            4.0 * 4.0 * (double)fth_graph_trainable_count(fth_engine_graph(trainer->engine))});

out:
    return status;
}

fth_status fth_trainer_begin(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    const fth_train_options *options = trainer->options;

    FTH_TRY(fth_trainer_open(trainer));
    if (trainer->strategy->connect)
        FTH_TRY(trainer->strategy->connect(trainer->engine, options, trainer->stop, &trainer->strategy_state));
    bool resumed = trainer->beginning.folder != NULL, restored = false;
    if (!resumed)
        FTH_TRY(fth_trainer_load_weights(trainer));
    FTH_TRY(open_record(trainer));
    if (resumed)
        FTH_TRY(fth_trainer_bring_local_copy(trainer));
    if (resumed)
        FTH_TRY(fth_trainer_restore(trainer, &restored));
    if (resumed && !restored) /* killed before its first checkpoint */
        FTH_TRY(fth_trainer_load_weights(trainer));
    if (resumed) /* only now: what cannot go on stays as it was */
        FTH_TRY(configure_record(trainer));
    FTH_TRY(fth_trainer_begin_store(trainer, resumed));
    if (trainer->strategy->keeps_data_on_device)
        FTH_TRY(fth_engine_keep_data(trainer->engine, trainer->dataset, &trainer->data_on_device));
    FTH_TRY(
        fth_trainer_open_loader(trainer, FTH_TRAIN, &trainer->loader)); /* its threads work while the plan is made */
    if (!trainer->strategy->has_workers)
        FTH_TRY(fth_engine_prepare(trainer->engine, options->batch, FTH_PLAN_TRAIN));
    FTH_TRY(trainer->strategy->open(trainer->engine, options, &trainer->strategy_state));

    fth_position_start_clock(&trainer->position);
    trainer->saved_at_s = trainer->position.state.elapsed_s;
    trainer->saved_step = trainer->position.step;
    fth_reporter_begin(trainer->reporter);
    trainer->restored_step = trainer->position.step;
    fth_engine_sizes sizes = fth_engine_get_sizes(trainer->engine);
    trainer->state_bytes =
        (sizes.parameters + sizes.buffers + (size_t)sizes.state_count * sizes.trained) * sizeof(float);
    fth_checkpoint_warn_of_space(&trainer->saving.place, trainer->state_bytes);
    trainer->begun = true;
    fth_reporter_write_start(trainer->reporter, &(fth_start_facts){.resumed = resumed,
                                                                   .strategy = trainer->strategy,
                                                                   .strategy_state = trainer->strategy_state,
                                                                   .parameters = fth_graph_trainable_count(
                                                                       fth_engine_graph(trainer->engine))});
    if (resumed)
        fth_trainer_check_best(trainer);
    if (*trainer->weights_format)
        fth_reporter_write_weights(trainer->reporter, trainer->weights_format, trainer->weights.head_note);

out:
    return status;
}
