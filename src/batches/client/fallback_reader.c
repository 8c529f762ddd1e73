/* See fallback_reader.h. */
#include "batches/client/fallback_reader.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "store/store.h"

#define RETRY_S 2.0

struct fth_fallback_reader {
    char *address, version[65];
    uint64_t seed;
    double validation_fraction;
    bool random_split;

    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t changed;
    pthread_t thread;
    bool opening, joinable;
    fth_stop stop;              /* requested when it is freed */
    fth_store_switch *requests; /* while opening */
    double failed_at;
    fth_status status; /* of the last try */
    char message[1024];
    fth_dataset *dataset;        /* NULL: not open */
    fth_sample_reader **readers; /* unused ones */
    size_t reader_count, reader_capacity;
};

fth_status fth_fallback_reader_create(const fth_described_set *set, fth_fallback_reader **fallback)
{
    fth_status status = fth_allocate(1, sizeof **fallback, fallback);
    if (status != FTH_OK)
        return status;
    fth_fallback_reader *own = *fallback;
    pthread_mutex_init(&own->mutex, NULL);
    pthread_cond_init(&own->changed, NULL);
    pthread_mutex_init(&own->stop.mutex, NULL);
    status = fth_store_switch_create(NULL, NULL, &own->requests);
    own->seed = set->source.seed;
    own->validation_fraction = set->source.validation_fraction;
    own->random_split = set->source.random_split;
    snprintf(own->version, sizeof own->version, "%s", set->set.version);
    if (status == FTH_OK && set->source.address && !(own->address = fth_format("%s", set->source.address)))
        status = fth_fail(FTH_NO_MEMORY, "no memory for an address");
    if (status != FTH_OK) {
        fth_fallback_reader_free(own);
        *fallback = NULL;
    }
    return status;
}

void fth_fallback_reader_free(fth_fallback_reader *fallback)
{
    if (!fallback)
        return;
    fth_stop_ask(&fallback->stop, FTH_STOP_REQUEST, INFINITY, "close", "the data set is closed");
    if (fallback->requests)
        fth_store_switch_off(fallback->requests);
    if (fallback->joinable)
        pthread_join(fallback->thread, NULL);
    for (size_t i = 0; i < fallback->reader_count; i++)
        fth_sample_reader_free(fallback->readers[i]);
    free(fallback->readers);
    fth_dataset_free(fallback->dataset);
    fth_store_switch_free(fallback->requests);
    pthread_cond_destroy(&fallback->changed);
    pthread_mutex_destroy(&fallback->mutex);
    pthread_mutex_destroy(&fallback->stop.mutex);
    free(fallback->address);
    free(fallback);
}

/* ---- opening ---- */

static fth_status open_data(fth_fallback_reader *fallback, fth_dataset **dataset)
{
    fth_status status = FTH_OK;
    char version[65];
    const fth_dataset_options options = {.seed = fallback->seed,
                                         .validation_fraction = fallback->validation_fraction,
                                         .random_split = fallback->random_split,
                                         .threads = 2,
                                         .stop = &fallback->stop};

    FTH_REQUIRE(fallback->address, FTH_UNSUPPORTED, "the coordinator does not say where the data is");
    FTH_TRY(fth_dataset_open(fallback->address, &options, dataset));
    FTH_TRY(fth_dataset_version(*dataset, version));
    FTH_REQUIRE(strcmp(version, fallback->version) == 0, FTH_INVALID,
                "%s is not the coordinator's data: it has changed, or is other data of that name", fallback->address);

out:
    if (status != FTH_OK) {
        fth_dataset_free(*dataset);
        *dataset = NULL;
    }
    return status;
}

static void *open_in_background(void *context)
{
    fth_fallback_reader *fallback = context;
    fth_dataset *dataset = NULL;
    fth_store_switch_use(fallback->requests);
    fth_status status = open_data(fallback, &dataset);
    fth_store_switch_use(NULL);
    pthread_mutex_lock(&fallback->mutex);
    fallback->dataset = dataset;
    fallback->status = status;
    snprintf(fallback->message, sizeof fallback->message, "%s", status == FTH_OK ? "" : fth_error_message());
    fallback->failed_at = fth_clock_seconds();
    fallback->opening = false;
    pthread_cond_broadcast(&fallback->changed);
    pthread_mutex_unlock(&fallback->mutex);
    return NULL;
}

/* With the mutex held. */
static void start_opening(fth_fallback_reader *fallback)
{
    if (fallback->joinable)
        pthread_join(fallback->thread, NULL); /* it has ended: nothing is being opened */
    fallback->joinable = fth_thread_start(&fallback->thread, "open-direct", open_in_background, fallback) == 0;
    fallback->opening = fallback->joinable;
}

/* With the mutex held: waits until it is open. */
static fth_status wait_open(fth_fallback_reader *fallback, fth_deadline deadline)
{
    struct timespec until = fth_deadline_timespec(deadline);
    while (!fallback->dataset) {
        if (!fallback->opening && (fallback->status == FTH_OK || fth_clock_seconds() - fallback->failed_at > RETRY_S))
            start_opening(fallback);
        if (pthread_cond_clockwait(&fallback->changed, &fallback->mutex, CLOCK_MONOTONIC, &until) != 0 &&
            !fallback->dataset)
            return fallback->status == FTH_OK
                       ? fth_fail(FTH_TIMEOUT, "the data is being opened")
                       : fth_fail(FTH_TIMEOUT, "the data cannot be read directly either: %s", fallback->message);
    }
    return FTH_OK;
}

void fth_fallback_reader_explain(fth_fallback_reader *fallback, char *text, size_t size)
{
    char why[768];
    bool failing;
    pthread_mutex_lock(&fallback->mutex);
    if (fallback->dataset && fth_dataset_explain(fallback->dataset, why, sizeof why))
        snprintf(text, size, "the data cannot be read directly: %s", why);
    else if (fallback->dataset)
        snprintf(text, size, "reading the data directly takes long");
    else if (fallback->opening && fth_store_switch_explain(fallback->requests, &failing, why, sizeof why))
        snprintf(text, size, "the data cannot be read directly: %s", why);
    else if (fallback->status == FTH_OK)
        snprintf(text, size, "opening the data directly takes long");
    else
        snprintf(text, size, "the data cannot be read directly: %s", fallback->message);
    pthread_mutex_unlock(&fallback->mutex);
}

size_t fth_fallback_reader_expect(fth_fallback_reader *fallback, fth_split split, const int64_t *samples, size_t count)
{
    pthread_mutex_lock(&fallback->mutex);
    const fth_dataset *dataset = fallback->dataset; /* stays open once it is */
    pthread_mutex_unlock(&fallback->mutex);
    return dataset ? fth_dataset_expect(dataset, split, samples, count, 0) : 0;
}

bool fth_fallback_reader_is_refused(fth_fallback_reader *fallback)
{
    pthread_mutex_lock(&fallback->mutex);
    bool refused = !fallback->dataset && (fallback->status == FTH_INVALID || fallback->status == FTH_UNSUPPORTED);
    pthread_mutex_unlock(&fallback->mutex);
    return refused;
}

fth_status fth_fallback_reader_open(fth_fallback_reader *fallback, fth_deadline deadline)
{
    pthread_mutex_lock(&fallback->mutex);
    struct timespec until = fth_deadline_timespec(deadline);
    bool timed_out = false;
    if (!fallback->dataset && !fallback->opening)
        start_opening(fallback);
    while (fallback->opening && !timed_out)
        timed_out = pthread_cond_clockwait(&fallback->changed, &fallback->mutex, CLOCK_MONOTONIC, &until) != 0;
    fth_status status = fallback->dataset   ? FTH_OK
                        : fallback->opening ? fth_fail(FTH_TIMEOUT, "%s is not open yet", fallback->address)
                                            : fth_fail(fallback->status, "%s", fallback->message);
    pthread_mutex_unlock(&fallback->mutex);
    return status;
}

/* ---- samples ---- */

static fth_status take_reader(fth_fallback_reader *fallback, fth_deadline deadline, fth_sample_reader **reader)
{
    pthread_mutex_lock(&fallback->mutex);
    fth_status status = wait_open(fallback, deadline);
    if (status == FTH_OK && fallback->reader_count > 0)
        *reader = fallback->readers[--fallback->reader_count];
    else if (status == FTH_OK)
        status = fth_sample_reader_create(fallback->dataset, reader);
    pthread_mutex_unlock(&fallback->mutex);
    return status;
}

void fth_fallback_reader_give_back(fth_fallback_reader *fallback, fth_sample_reader *reader)
{
    pthread_mutex_lock(&fallback->mutex);
    if (fth_grow(&fallback->readers, fallback->reader_count, &fallback->reader_capacity, sizeof *fallback->readers) ==
        FTH_OK)
        fallback->readers[fallback->reader_count++] = reader;
    else
        fth_sample_reader_free(reader);
    pthread_mutex_unlock(&fallback->mutex);
}

fth_status fth_fallback_reader_take(fth_fallback_reader *fallback, bool decoded, fth_split split, int64_t sample,
                                    fth_deadline deadline, fth_raw_sample *raw, fth_sample_reader **reader,
                                    double *decode_s)
{
    fth_status status = take_reader(fallback, deadline, reader);
    if (status != FTH_OK)
        return status;
    fth_raw_sample stored;
    const double before_s = fth_sample_reader_decode_seconds(*reader);
    const fth_patience patience = {.stop = &fallback->stop.asked, .deadline = deadline};
    status = fth_sample_reader_read(*reader, split, sample, &patience, &stored);
    if (status == FTH_OK && decoded)
        status = fth_sample_reader_decode(*reader, &stored, raw);
    else
        *raw = stored;
    *decode_s = fth_sample_reader_decode_seconds(*reader) - before_s;
    return status; /* the name of an unreadable sample is lent, too, so the caller returns the reader in any case */
}
