/* Opening the device and the data set at the same time: starting a compute library and reading
 * files both take a while. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/process.h"
#include "base/size.h"
#include "batches/client/client.h"
#include "train/train_internal.h"

typedef struct data_opening {
    const fth_train_options *options;
    const fth_text_known *text;
    const fth_stop *stop;
    bool whole; /* nothing is held out */
    fth_dataset *dataset;
    fth_status status;
    double seconds;
    char message[1024];
    pthread_mutex_t mutex; /* of `done` */
    pthread_cond_t changed;
    bool done;
} data_opening;

static void *open_data(void *context)
{
    data_opening *opening = context;
    const fth_train_options *options = opening->options;
    const double began_s = fth_clock_seconds();
    const fth_store_options store = {.s3_endpoint = options->store.s3_endpoint,
                                     .s3_region = options->store.s3_region,
                                     .s3_style = options->store.s3_style};
    fth_dataset_options dataset_options = {
        .stop = opening->stop,
        .whole = opening->whole,
        .store = &store,
        .disk_cache_folder = options->data.cache_folder,
        .schemes = fth_batches_schemes,
        .seed = (uint64_t)options->seed,
        .validation_fraction = options->data.validation_fraction,
        .random_split = options->data.validation_split == FTH_SPLIT_RANDOM,
        .threads = options->data.loader_threads > 0 ? (int)options->data.loader_threads : 2,
        .image_size = (int)options->images.size,
        .transform = options->images.transform,
        .validation_transform = options->images.validation_transform,
        .max_bad_images = options->images.max_bad > 0 ? options->images.max_bad : 1e-12,
        .decoded_cache_bytes = (uint64_t)options->images.decoded_cache_mb << 20,
        .text = fth_text_options_make(options, opening->text)};
    opening->status = fth_normalization_parse(options->images.normalize, &dataset_options.normalization);
    if (opening->status == FTH_OK && *options->data.cache)
        opening->status = fth_size_parse(options->data.cache, &dataset_options.disk_cache_bytes);
    if (opening->status == FTH_OK)
        opening->status = options->own.images
                              ? fth_dataset_create(options->own.images, &dataset_options, &opening->dataset)
                              : fth_dataset_open(options->data.address, &dataset_options, &opening->dataset);
    if (opening->status != FTH_OK) /* messages belong to a thread */
        snprintf(opening->message, sizeof opening->message, "%s", fth_error_message());
    opening->seconds = fth_clock_seconds() - began_s;
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
    bool said = false;
    pthread_mutex_lock(&opening->mutex);
    while (!opening->done) {
        struct timespec until = fth_deadline_timespec(fth_deadline_in(look_every_s));
        pthread_cond_clockwait(&opening->changed, &opening->mutex, CLOCK_MONOTONIC, &until);
        if (!opening->done && !said && fth_clock_seconds() - began_s > quiet_s) {
            fth_log_info("reading %s ...", opening->options->data.address);
            said = true;
        }
    }
    pthread_mutex_unlock(&opening->mutex);
}

fth_status fth_open_whole_data(const fth_train_options *options, const fth_text_known *text, const fth_stop *stop,
                               fth_dataset **dataset)
{
    data_opening opening = {.options = options,
                            .text = text,
                            .stop = stop,
                            .whole = true,
                            .mutex = PTHREAD_MUTEX_INITIALIZER,
                            .changed = PTHREAD_COND_INITIALIZER};
    open_data(&opening);
    *dataset = opening.dataset;
    return opening.status; /* with its message */
}

fth_status fth_open_device_and_data(const fth_train_options *options, const fth_text_known *text, const fth_stop *stop,
                                    fth_device **device, fth_dataset **dataset, double *data_s)
{
    data_opening opening = {.options = options,
                            .text = text,
                            .stop = stop,
                            .mutex = PTHREAD_MUTEX_INITIALIZER,
                            .changed = PTHREAD_COND_INITIALIZER};
    double began_s = fth_clock_seconds();
    pthread_t thread;
    bool threaded = fth_thread_start(&thread, "open-data", open_data, &opening) == 0;
    fth_status status = FTH_OK;
    if (device)
        status = fth_device_open(options->device, &(fth_device_options){.threads = (int)options->threads}, device);
    if (threaded) {
        wait_for_data(&opening, began_s);
        pthread_join(thread, NULL);
    } else {
        open_data(&opening);
    }
    *dataset = opening.dataset;
    if (data_s)
        *data_s = opening.seconds;
    if (status == FTH_OK && opening.status != FTH_OK)
        status = fth_fail(opening.status, "%s", opening.message);
    return status == FTH_OK ? fth_train_options_check_kind(options, fth_dataset_get_info(*dataset)) : status;
}
