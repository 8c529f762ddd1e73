/* See data_parallel_exchange.h. */
#include "parallel/data_parallel_exchange.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "parallel/scaling_model.h"

enum {
    BUCKET_ALIGNMENT = 256, /* floats */
    PROBE_FLOATS = 1 << 19, /* with which the bandwidth is measured */
    PROBES = 3,
    TIMELINE_POINTS = 256,
    TUNED_AT = 3 /* the update of a group before which buckets are cut by what was measured: the first ones are slow */
};

/* How fast this worker's backward pass finishes gradients. */
typedef struct fth_backward_timeline {
    double began_s;
    fth_ready_point points[TIMELINE_POINTS];
    size_t count;
} fth_backward_timeline;

/* What the training thread and the exchange thread have in common. */
typedef struct fth_bucket_queue {
    pthread_mutex_t mutex; /* guards all of it */
    pthread_cond_t changed;
    size_t bucket;    /* floats */
    size_t ready;     /* floats that are final */
    size_t exchanged; /* floats that are sums */
    bool under_way;   /* an update's gradients are being exchanged */
    bool busy;        /* the thread is in a call of the collective */
    bool closed;
    fth_status status;
    char message[512];
} fth_bucket_queue;

struct fth_gradient_exchange {
    fth_engine *engine;
    fth_gradient_exchange_options options;
    fth_shared_memory *memory;
    float *values; /* in it: the engine's gradients, or a copy of them on the host */
    size_t count;  /* floats */
    bool on_host;  /* the engine's own are in `values` */
    fth_gradients_watch watch;
    int64_t finished;

    fth_collective *collective; /* of the present group, as what follows */
    int rank, workers;
    bool overlaps; /* the thread exchanges, beside the backward pass */
    fth_scaling_cost cost;
    fth_backward_timeline timeline;
    int64_t updates;

    pthread_t thread;
    bool has_thread;
    fth_bucket_queue queue;
};

/* ---- the thread ---- */

/* True if there is a bucket to exchange; with the mutex held. */
static bool has_bucket(const fth_gradient_exchange *exchange)
{
    const fth_bucket_queue *queue = &exchange->queue;
    const size_t end = queue->exchanged + queue->bucket;
    return queue->under_way && queue->exchanged < exchange->count &&
           queue->ready >= (end < exchange->count ? end : exchange->count);
}

static void *exchange_buckets(void *context)
{
    fth_gradient_exchange *exchange = context;
    fth_bucket_queue *queue = &exchange->queue;

    pthread_mutex_lock(&queue->mutex);
    for (;;) {
        while (!queue->closed && !has_bucket(exchange))
            pthread_cond_wait(&queue->changed, &queue->mutex); /* ended by start(), ready() or free() */
        if (queue->closed)
            break;
        const size_t begin = queue->exchanged, left = exchange->count - begin;
        const size_t floats = queue->bucket < left ? queue->bucket : left;
        queue->busy = true;
        pthread_mutex_unlock(&queue->mutex);

        fth_status status =
            fth_collective_all_reduce(exchange->collective, exchange->values + begin, floats, exchange->options.wire);

        pthread_mutex_lock(&queue->mutex);
        queue->busy = false;
        queue->exchanged += floats;
        if (status != FTH_OK) {
            queue->status = status;
            queue->under_way = false;
            snprintf(queue->message, sizeof queue->message, "%s", fth_error_message());
        }
        pthread_cond_broadcast(&queue->changed);
    }
    pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

static void set_ready(fth_gradient_exchange *exchange, size_t floats)
{
    fth_bucket_queue *queue = &exchange->queue;
    pthread_mutex_lock(&queue->mutex);
    queue->ready = floats;
    if (!queue->busy && has_bucket(exchange))
        pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
}

/* Until the floats before `end` are sums. */
static fth_status wait_for_sums(fth_gradient_exchange *exchange, size_t end)
{
    fth_bucket_queue *queue = &exchange->queue;
    pthread_mutex_lock(&queue->mutex);
    while (queue->status == FTH_OK && queue->exchanged < end)
        pthread_cond_wait(&queue->changed, &queue->mutex); /* calls of a collective have a timeout */
    fth_status status = queue->status;
    if (status != FTH_OK)
        fth_set_error("%s", queue->message);
    pthread_mutex_unlock(&queue->mutex);
    return status;
}

/* From the backward pass. */
static void on_ready(void *context, size_t floats)
{
    fth_gradient_exchange *exchange = context;
    fth_backward_timeline *timeline = &exchange->timeline;
    if (timeline->count < TIMELINE_POINTS)
        timeline->points[timeline->count++] =
            (fth_ready_point){.seconds = fth_clock_seconds() - timeline->began_s, .ready_floats = floats};
    else
        timeline->points[TIMELINE_POINTS - 1] =
            (fth_ready_point){.seconds = fth_clock_seconds() - timeline->began_s, .ready_floats = floats};
    set_ready(exchange, floats);
}

/* ---- making one ---- */

fth_status fth_gradient_exchange_create(fth_engine *engine, const fth_gradient_exchange_options *options,
                                        fth_gradient_exchange **result)
{
    fth_status status = FTH_OK;
    fth_gradient_exchange *exchange = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *exchange, &exchange));
    *exchange =
        (fth_gradient_exchange){.engine = engine,
                                .options = *options,
                                .count = fth_engine_get_sizes(engine).trained,
                                .on_host = fth_engine_device(engine)->backend->host_memory,
                                .watch = {exchange, on_ready},
                                .queue = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER}};
    FTH_TRY(fth_shared_memory_create((exchange->count + 1) * sizeof(float), &exchange->memory));
    exchange->values = fth_shared_memory_get(exchange->memory);
    if (exchange->on_host)
        FTH_TRY(fth_engine_move_gradients(engine, exchange->values));
    *result = exchange;
    exchange = NULL;

out:
    fth_gradient_exchange_free(exchange);
    return status;
}

void fth_gradient_exchange_free(fth_gradient_exchange *exchange)
{
    if (!exchange)
        return;
    fth_bucket_queue *queue = &exchange->queue;
    if (exchange->has_thread) {
        pthread_mutex_lock(&queue->mutex);
        queue->closed = true;
        pthread_cond_broadcast(&queue->changed);
        pthread_mutex_unlock(&queue->mutex);
        pthread_join(exchange->thread, NULL);
    }
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->mutex);
    fth_shared_memory_free(exchange->memory);
    free(exchange);
}

const fth_shared_memory *fth_gradient_exchange_memory(const fth_gradient_exchange *exchange)
{
    return exchange->memory;
}

/* ---- the size of buckets ---- */

static size_t align(size_t floats)
{
    return (floats + BUCKET_ALIGNMENT - 1) / BUCKET_ALIGNMENT * BUCKET_ALIGNMENT;
}

/* With no thread in the collective. */
static void set_bucket(fth_gradient_exchange *exchange, size_t floats)
{
    fth_bucket_queue *queue = &exchange->queue;
    pthread_mutex_lock(&queue->mutex);
    queue->bucket = floats < exchange->count ? align(floats > 0 ? floats : 1) : exchange->count;
    pthread_mutex_unlock(&queue->mutex);
}

/* The shortest time of a sum of that many floats. */
static fth_status time_sums(fth_gradient_exchange *exchange, float *values, size_t count, double *seconds)
{
    fth_status status = FTH_OK;

    *seconds = INFINITY;
    for (int i = 0; i < PROBES; i++) {
        double began = fth_clock_seconds();
        FTH_TRY(fth_collective_all_reduce(exchange->collective, values, count, exchange->options.wire));
        *seconds = fmin(*seconds, fth_clock_seconds() - began);
    }

out:
    return status;
}

/* What a sum costs in this group, as rank 0 measures it. */
static fth_status measure_cost(fth_gradient_exchange *exchange)
{
    fth_status status = FTH_OK;
    const size_t probed = exchange->count < PROBE_FLOATS ? exchange->count : PROBE_FLOATS;
    double few_s, many_s;
    float *values = NULL;

    FTH_TRY(fth_allocate_aligned((probed + 1) * sizeof *values, &values));
    memset(values, 0, (probed + 1) * sizeof *values);
    FTH_TRY(time_sums(exchange, values, 1, &few_s));
    FTH_TRY(time_sums(exchange, values, probed, &many_s));
    exchange->cost = (fth_scaling_cost){
        .fixed_s = few_s, .seconds_per_byte = fmax(many_s - few_s, 0) / (double)(probed * sizeof *values)};

out:
    free(values);
    return status;
}

/* Before anything is known of the backward pass: with buckets of s floats the exchange ends about
 * one bucket and all fixed costs after it, s * per_float + count / s * fixed, which is least
 * here. */
static size_t guess_bucket(const fth_gradient_exchange *exchange)
{
    const double per_float = fmax(exchange->cost.seconds_per_byte * sizeof(float), 1e-12);
    return (size_t)sqrt((double)exchange->count * exchange->cost.fixed_s / per_float);
}

/* By the timeline of the update before. */
static size_t choose_bucket(const fth_gradient_exchange *exchange)
{
    const fth_backward_timeline *timeline = &exchange->timeline;
    if (timeline->count == 0 || timeline->points[timeline->count - 1].ready_floats != exchange->count)
        return guess_bucket(exchange);
    const fth_worker_profile profile = {.compute_s = timeline->points[timeline->count - 1].seconds,
                                        .timeline = timeline->points,
                                        .timeline_count = timeline->count};
    const fth_scaling_exchange costs = {.cost = exchange->cost,
                                        .workers = exchange->workers,
                                        .bytes_per_float =
                                            sizeof(float)}; /* the cost was measured on the wire's type */
    return fth_scaling_choose_bucket(&profile, &costs);
}

/* All workers cut alike: as rank 0 does. */
static fth_status share_bucket(fth_gradient_exchange *exchange, size_t floats)
{
    uint64_t chosen = floats;
    fth_status status = fth_collective_broadcast(exchange->collective, &chosen, sizeof chosen, 0);
    if (status == FTH_OK)
        set_bucket(exchange, (size_t)chosen);
    return status;
}

size_t fth_gradient_exchange_bucket(const fth_gradient_exchange *exchange)
{
    return exchange->overlaps ? exchange->queue.bucket * sizeof(float) : 0; /* the thread only reads it */
}

/* ---- groups ---- */

fth_status fth_gradient_exchange_begin_group(fth_gradient_exchange *exchange, fth_collective *collective, int rank,
                                             int workers)
{
    fth_status status = FTH_OK;
    const char *transport = fth_collective_transport(collective);

    exchange->collective = collective;
    exchange->rank = rank;
    exchange->workers = workers;
    exchange->updates = 0;
    exchange->overlaps = workers > 1 && (strcmp(transport, "shm") != 0 || !exchange->on_host);
    set_bucket(exchange, exchange->count);
    if (!exchange->overlaps)
        return FTH_OK;
    if (!exchange->has_thread) {
        exchange->has_thread = fth_thread_start(&exchange->thread, "exchange", exchange_buckets, exchange) == 0;
        FTH_REQUIRE(exchange->has_thread, FTH_NO_MEMORY, "cannot start a thread for the exchange of gradients");
    }
    if (exchange->options.bucket_bytes > 0) {
        set_bucket(exchange, exchange->options.bucket_bytes / sizeof(float));
        return FTH_OK;
    }
    FTH_TRY(measure_cost(exchange));
    FTH_TRY(share_bucket(exchange, guess_bucket(exchange)));

out:
    return status;
}

void fth_gradient_exchange_end_group(fth_gradient_exchange *exchange)
{
    fth_bucket_queue *queue = &exchange->queue;
    pthread_mutex_lock(&queue->mutex);
    queue->under_way = false;
    while (queue->busy)
        pthread_cond_wait(&queue->changed, &queue->mutex);
    pthread_mutex_unlock(&queue->mutex);
    exchange->collective = NULL;
}

bool fth_gradient_exchange_is_busy(fth_gradient_exchange *exchange)
{
    fth_bucket_queue *queue = &exchange->queue;
    pthread_mutex_lock(&queue->mutex);
    bool busy = queue->busy || has_bucket(exchange);
    pthread_mutex_unlock(&queue->mutex);
    return busy;
}

/* ---- updates ---- */

fth_status fth_gradient_exchange_start(fth_gradient_exchange *exchange, const fth_gradients_watch **watch)
{
    fth_status status = FTH_OK;
    fth_bucket_queue *queue = &exchange->queue;

    *watch = NULL;
    if (!exchange->overlaps)
        return FTH_OK;
    if (++exchange->updates == TUNED_AT && exchange->options.bucket_bytes == 0)
        FTH_TRY(share_bucket(exchange, choose_bucket(exchange)));
    pthread_mutex_lock(&queue->mutex);
    queue->ready = queue->exchanged = 0;
    queue->under_way = true;
    queue->status = FTH_OK;
    pthread_mutex_unlock(&queue->mutex);
    exchange->timeline = (fth_backward_timeline){.began_s = fth_clock_seconds()};
    if (exchange->on_host && !exchange->options.after_backward)
        *watch = &exchange->watch;

out:
    return status;
}

/* Out of the device and into it again, while buckets before and behind are exchanged. */
static fth_status exchange_through_host(fth_gradient_exchange *exchange)
{
    fth_status status = FTH_OK;
    fth_device *device = fth_engine_device(exchange->engine);
    float *gradients = fth_engine_get_gradients(exchange->engine);
    const size_t bucket = exchange->queue.bucket, count = exchange->count;

    for (size_t at = 0; at < count; at += bucket) {
        const size_t end = at + bucket < count ? at + bucket : count;
        FTH_TRY(device->backend->copy_out(device, exchange->values + at, gradients + at, (end - at) * sizeof(float)));
        set_ready(exchange, end);
    }
    for (size_t at = 0; at < count; at += bucket) {
        const size_t end = at + bucket < count ? at + bucket : count;
        FTH_TRY(wait_for_sums(exchange, end));
        FTH_TRY(device->backend->copy_in(device, gradients + at, exchange->values + at, (end - at) * sizeof(float)));
    }

out:
    return status;
}

int64_t fth_gradient_exchange_count(const fth_gradient_exchange *exchange)
{
    return exchange->finished;
}

fth_status fth_gradient_exchange_finish(fth_gradient_exchange *exchange)
{
    exchange->finished++;
    if (exchange->workers <= 1)
        return FTH_OK;
    if (!exchange->overlaps)
        return fth_collective_all_reduce(exchange->collective, exchange->values, exchange->count,
                                         exchange->options.wire);
    if (!exchange->on_host)
        return exchange_through_host(exchange);
    set_ready(exchange, exchange->count);
    return wait_for_sums(exchange, exchange->count);
}
