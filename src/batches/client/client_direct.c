/* See client_direct.h. */
#include "batches/client/client_direct.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "store/store.h"

#define RETRY_S 2.0

struct fth_direct {
    char *address, version[65];
    uint64_t seed;
    double validation_fraction;
    bool random_split;

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    pthread_t thread;
    bool opening, joinable;
    fth_stop stop;              /* asked when it is freed */
    fth_store_switch *requests; /* of an opening */
    double failed_at;
    fth_status status; /* of the last try */
    char message[1024];
    fth_dataset *dataset;      /* NULL: not open */
    fth_sample_maker **makers; /* that nobody uses */
    size_t maker_count, maker_capacity;
};

fth_status fth_direct_create(const fth_described_set *set, fth_direct **direct)
{
    fth_status status = fth_allocate(1, sizeof **direct, direct);
    if (status != FTH_OK)
        return status;
    fth_direct *own = *direct;
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
        fth_direct_free(own);
        *direct = NULL;
    }
    return status;
}

void fth_direct_free(fth_direct *direct)
{
    if (!direct)
        return;
    fth_stop_ask(&direct->stop, FTH_STOP_REQUEST, INFINITY, "close", "the data set is closed");
    if (direct->requests)
        fth_store_switch_off(direct->requests);
    if (direct->joinable)
        pthread_join(direct->thread, NULL);
    for (size_t i = 0; i < direct->maker_count; i++)
        fth_sample_maker_free(direct->makers[i]);
    free(direct->makers);
    fth_dataset_free(direct->dataset);
    fth_store_switch_free(direct->requests);
    pthread_cond_destroy(&direct->changed);
    pthread_mutex_destroy(&direct->mutex);
    pthread_mutex_destroy(&direct->stop.mutex);
    free(direct->address);
    free(direct);
}

/* ---- opening ---- */

static fth_status open_data(fth_direct *direct, fth_dataset **dataset)
{
    fth_status status = FTH_OK;
    char version[65];
    const fth_dataset_options options = {.seed = direct->seed,
                                         .validation_fraction = direct->validation_fraction,
                                         .random_split = direct->random_split,
                                         .threads = 2,
                                         .stop = &direct->stop};

    FTH_REQUIRE(direct->address, FTH_UNSUPPORTED, "the coordinator does not say where the data is");
    FTH_TRY(fth_dataset_open(direct->address, &options, dataset));
    FTH_TRY(fth_dataset_version(*dataset, version));
    FTH_REQUIRE(strcmp(version, direct->version) == 0, FTH_INVALID,
                "%s is not the data that the coordinator has: it was changed, or is other data of that name here",
                direct->address);

out:
    if (status != FTH_OK) {
        fth_dataset_free(*dataset);
        *dataset = NULL;
    }
    return status;
}

static void *open_in_background(void *context)
{
    fth_direct *direct = context;
    fth_dataset *dataset = NULL;
    fth_store_switch_use(direct->requests);
    fth_status status = open_data(direct, &dataset);
    fth_store_switch_use(NULL);
    pthread_mutex_lock(&direct->mutex);
    direct->dataset = dataset;
    direct->status = status;
    snprintf(direct->message, sizeof direct->message, "%s", status == FTH_OK ? "" : fth_error_message());
    direct->failed_at = fth_clock_seconds();
    direct->opening = false;
    pthread_cond_broadcast(&direct->changed);
    pthread_mutex_unlock(&direct->mutex);
    return NULL;
}

/* With the mutex held. */
static void start_opening(fth_direct *direct)
{
    if (direct->joinable)
        pthread_join(direct->thread, NULL); /* it has ended: nothing is being opened */
    direct->joinable = fth_thread_start(&direct->thread, "open-direct", open_in_background, direct) == 0;
    direct->opening = direct->joinable;
}

/* With the mutex held: waits until it is open. */
static fth_status wait_open(fth_direct *direct, fth_deadline deadline)
{
    struct timespec until = fth_deadline_timespec(deadline);
    while (!direct->dataset) {
        if (!direct->opening && (direct->status == FTH_OK || fth_clock_seconds() - direct->failed_at > RETRY_S))
            start_opening(direct);
        if (pthread_cond_clockwait(&direct->changed, &direct->mutex, CLOCK_MONOTONIC, &until) != 0 && !direct->dataset)
            return direct->status == FTH_OK
                       ? fth_fail(FTH_TIMEOUT, "the data is being opened")
                       : fth_fail(FTH_TIMEOUT, "the data cannot be read directly either: %s", direct->message);
    }
    return FTH_OK;
}

void fth_direct_explain(fth_direct *direct, char *text, size_t size)
{
    char why[768];
    bool failing;
    pthread_mutex_lock(&direct->mutex);
    if (direct->dataset && fth_dataset_explain(direct->dataset, why, sizeof why))
        snprintf(text, size, "the data cannot be read directly: %s", why);
    else if (direct->dataset)
        snprintf(text, size, "reading the data directly takes long");
    else if (direct->opening && fth_store_switch_explain(direct->requests, &failing, why, sizeof why))
        snprintf(text, size, "the data cannot be read directly: %s", why);
    else if (direct->status == FTH_OK)
        snprintf(text, size, "opening the data directly takes long");
    else
        snprintf(text, size, "the data cannot be read directly: %s", direct->message);
    pthread_mutex_unlock(&direct->mutex);
}

size_t fth_direct_expect(fth_direct *direct, fth_split split, const int64_t *samples, size_t count)
{
    pthread_mutex_lock(&direct->mutex);
    const fth_dataset *dataset = direct->dataset; /* which stays, once it is open */
    pthread_mutex_unlock(&direct->mutex);
    return dataset ? fth_dataset_expect(dataset, split, samples, count, 0) : 0;
}

bool fth_direct_is_refused(fth_direct *direct)
{
    pthread_mutex_lock(&direct->mutex);
    bool refused = !direct->dataset && (direct->status == FTH_INVALID || direct->status == FTH_UNSUPPORTED);
    pthread_mutex_unlock(&direct->mutex);
    return refused;
}

fth_status fth_direct_open(fth_direct *direct, fth_deadline deadline)
{
    pthread_mutex_lock(&direct->mutex);
    struct timespec until = fth_deadline_timespec(deadline);
    bool timed_out = false;
    if (!direct->dataset && !direct->opening)
        start_opening(direct);
    while (direct->opening && !timed_out)
        timed_out = pthread_cond_clockwait(&direct->changed, &direct->mutex, CLOCK_MONOTONIC, &until) != 0;
    fth_status status = direct->dataset   ? FTH_OK
                        : direct->opening ? fth_fail(FTH_TIMEOUT, "%s is not open yet", direct->address)
                                          : fth_fail(direct->status, "%s", direct->message);
    pthread_mutex_unlock(&direct->mutex);
    return status;
}

/* ---- samples ---- */

static fth_status take_maker(fth_direct *direct, fth_deadline deadline, fth_sample_maker **maker)
{
    pthread_mutex_lock(&direct->mutex);
    fth_status status = wait_open(direct, deadline);
    if (status == FTH_OK && direct->maker_count > 0)
        *maker = direct->makers[--direct->maker_count];
    else if (status == FTH_OK)
        status = fth_sample_maker_create(direct->dataset, maker);
    pthread_mutex_unlock(&direct->mutex);
    return status;
}

void fth_direct_give_back(fth_direct *direct, fth_sample_maker *maker)
{
    pthread_mutex_lock(&direct->mutex);
    if (fth_grow(&direct->makers, direct->maker_count, &direct->maker_capacity, sizeof *direct->makers) == FTH_OK)
        direct->makers[direct->maker_count++] = maker;
    else
        fth_sample_maker_free(maker);
    pthread_mutex_unlock(&direct->mutex);
}

fth_status fth_direct_take(fth_direct *direct, bool decoded, fth_split split, int64_t sample, fth_deadline deadline,
                           fth_raw_sample *raw, fth_sample_maker **maker, double *decode_s)
{
    fth_status status = take_maker(direct, deadline, maker);
    if (status != FTH_OK)
        return status;
    fth_raw_sample stored;
    const double before_s = fth_sample_maker_decode_seconds(*maker);
    const fth_patience patience = {.stop = &direct->stop.asked, .deadline = deadline};
    status = fth_sample_maker_read(*maker, split, sample, &patience, &stored);
    if (status == FTH_OK && decoded)
        status = fth_sample_maker_decode(*maker, &stored, raw);
    else
        *raw = stored;
    *decode_s = fth_sample_maker_decode_seconds(*maker) - before_s;
    return status; /* the name of one that cannot be read is lent, too: the caller gives the maker back either way */
}
