/* Batches made ahead of need, by threads, in order.
 *
 * Batch n lives in slot n % slots of a ring. A thread takes the next number once its slot is free, fills the slot
 * without holding the lock, and marks it ready; fth_loader_next() hands slots out by number, so who fills what, and
 * when, changes nothing. A slot:
 *
 *     free -> being filled -> ready -> lent -> free
 *             (by one thread)          (until the next call of fth_loader_next)
 *
 * With `released` counting the batches whose slots came back, batch n may be started when n < released + slots.
 * A failure stays in its slot, and later batches are not started: the caller meets it at the same batch every time. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/data_internal.h"

enum { MAX_THREADS = 256 };

typedef struct fth_loader_slot {
    fth_batch batch;
    float *images;
    int32_t *labels;
    bool ready;
    fth_status status;
    char message[512];
} fth_loader_slot;

struct fth_loader {
    const fth_dataset *dataset;
    fth_loader_options options;
    fth_sampler sampler;
    int64_t batches_per_epoch;
    int64_t end; /* the number after the last batch */

    fth_loader_slot *slots;
    int64_t slot_count;
    pthread_t *threads;
    int thread_count;

    atomic_bool stop;
    pthread_mutex_t mutex; /* guards what follows, and slot.ready */
    pthread_cond_t may_fill, may_take;
    int64_t next_to_fill, next_to_take, released;
    bool lent;   /* the slot of batch next_to_take - 1 is out */
    bool failed; /* some slot holds a failure */
};

static fth_status fill(fth_loader *loader, int64_t number, uint8_t *scratch, fth_loader_slot *slot)
{
    const fth_loader_options *options = &loader->options;
    const fth_dataset_info *info = fth_dataset_get_info(loader->dataset);
    size_t image_size = fth_image_bytes(info);
    double begin = fth_clock_seconds();
    int64_t epoch = number / loader->batches_per_epoch;
    int64_t first = number % loader->batches_per_epoch * options->batch;
    int64_t left = loader->sampler.count - first, count = left < options->batch ? left : options->batch;

    for (int64_t i = 0; i < count && !atomic_load_explicit(&loader->stop, memory_order_relaxed); i++) {
        int64_t sample = fth_sampler_index(&loader->sampler, epoch, first + i);
        const uint8_t *pixels;
        fth_status status =
            fth_dataset_look(loader->dataset, options->split, sample, scratch, &pixels, &slot->labels[i]);
        if (status != FTH_OK)
            return fth_fail_within(status, "batch %lld, sample %lld of %s", (long long)number, (long long)sample,
                                   info->name);
        fth_augment(info, &options->augmentation, options->seed, epoch, sample, pixels,
                    slot->images + (size_t)i * image_size);
    }
    slot->batch = (fth_batch){.images = slot->images,
                              .labels = slot->labels,
                              .count = count,
                              .number = number,
                              .epoch = epoch,
                              .decode_seconds = fth_clock_seconds() - begin};
    return FTH_OK;
}

static void *work(void *argument)
{
    fth_loader *loader = argument;
    uint8_t *scratch = NULL;
    fth_status no_scratch = fth_allocate(fth_image_bytes(fth_dataset_get_info(loader->dataset)), 1, &scratch);

    pthread_mutex_lock(&loader->mutex);
    for (;;) {
        while (!loader->stop && !loader->failed && loader->next_to_fill < loader->end &&
               loader->next_to_fill >= loader->released + loader->slot_count)
            pthread_cond_wait(&loader->may_fill, &loader->mutex); /* ended by next() or free() */
        if (loader->stop || loader->failed || loader->next_to_fill >= loader->end)
            break;
        int64_t number = loader->next_to_fill++;
        fth_loader_slot *slot = &loader->slots[number % loader->slot_count];
        pthread_mutex_unlock(&loader->mutex);

        slot->status = no_scratch != FTH_OK ? no_scratch : fill(loader, number, scratch, slot);
        if (slot->status != FTH_OK)
            snprintf(slot->message, sizeof slot->message, "%s", fth_error_message());

        pthread_mutex_lock(&loader->mutex);
        slot->ready = true;
        if (slot->status != FTH_OK) {
            loader->failed = true;
            pthread_cond_broadcast(&loader->may_fill);
        }
        if (number == loader->next_to_take)
            pthread_cond_signal(&loader->may_take);
    }
    pthread_mutex_unlock(&loader->mutex);
    free(scratch);
    return NULL;
}

static fth_status check_options(const fth_dataset_info *info, const fth_loader_options *options)
{
    fth_status status = FTH_OK;
    int64_t count = info->count[options->split];
    int padding = options->augmentation.crop_padding;
    FTH_REQUIRE(count > 0, FTH_INVALID, "the data set %s has zero images to load", info->name);
    FTH_REQUIRE(options->batch >= 1, FTH_INVALID, "a batch of %lld samples; it needs at least 1",
                (long long)options->batch);
    FTH_REQUIRE(options->batch <= count, FTH_INVALID, "a batch of %lld is larger than the %lld %s images of %s",
                (long long)options->batch, (long long)count, options->split == FTH_TRAIN ? "training" : "validation",
                info->name);
    FTH_REQUIRE(options->threads >= 1 && options->threads <= MAX_THREADS, FTH_INVALID,
                "%d loader threads; there may be 1 to %d", options->threads, MAX_THREADS);
    FTH_REQUIRE(options->first_batch >= 0 && options->batch_limit >= 0, FTH_INVALID,
                "the first batch (%lld) and the limit of batches (%lld) cannot be negative",
                (long long)options->first_batch, (long long)options->batch_limit);
    FTH_REQUIRE(padding >= 0 && padding <= info->height && padding <= info->width, FTH_INVALID,
                "crop padding of %d pixels; images of %d × %d allow 0 to %d", padding, info->height, info->width,
                info->height < info->width ? info->height : info->width);

out:
    return status;
}

static fth_status start_threads(fth_loader *loader)
{
    sigset_t all, before; /* signals are for the main thread */
    int failure = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (failure == 0 && loader->thread_count < loader->options.threads) {
        failure = pthread_create(&loader->threads[loader->thread_count], NULL, work, loader);
        loader->thread_count += failure == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return loader->thread_count > 0 ? FTH_OK : fth_fail(FTH_NO_MEMORY, "cannot start a loader thread");
}

fth_status fth_loader_open(const fth_dataset *dataset, const fth_loader_options *options, fth_loader **loader)
{
    fth_status status = FTH_OK;
    fth_loader *opened = NULL;
    const fth_dataset_info *info = fth_dataset_get_info(dataset);

    FTH_TRY(check_options(info, options));
    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    pthread_mutex_init(&opened->mutex, NULL);
    pthread_cond_init(&opened->may_fill, NULL);
    pthread_cond_init(&opened->may_take, NULL);
    opened->dataset = dataset;
    opened->options = *options;
    opened->sampler = (fth_sampler){options->seed, info->count[options->split], options->shuffle};
    opened->batches_per_epoch = fth_batches_per_epoch(opened->sampler.count, options->batch);
    opened->end = options->batch_limit > 0 ? options->batch_limit : INT64_MAX;
    opened->next_to_fill = opened->next_to_take = opened->released = options->first_batch;

    int64_t remaining = opened->end > options->first_batch ? opened->end - options->first_batch : 1;
    opened->slot_count = 2 * options->threads + 2;
    if (opened->slot_count > remaining)
        opened->slot_count = remaining;
    FTH_TRY(fth_allocate((size_t)opened->slot_count, sizeof *opened->slots, &opened->slots));
    for (int64_t i = 0; i < opened->slot_count; i++) {
        fth_loader_slot *slot = &opened->slots[i];
        FTH_TRY(fth_allocate_aligned((size_t)options->batch * fth_image_bytes(info) * sizeof(float), &slot->images));
        FTH_TRY(fth_allocate((size_t)options->batch, sizeof *slot->labels, &slot->labels));
    }
    FTH_TRY(fth_allocate((size_t)options->threads, sizeof *opened->threads, &opened->threads));
    FTH_TRY(start_threads(opened));
    *loader = opened;
    opened = NULL;

out:
    fth_loader_free(opened);
    return status;
}

void fth_loader_free(fth_loader *loader)
{
    if (!loader)
        return;
    pthread_mutex_lock(&loader->mutex);
    loader->stop = true;
    pthread_cond_broadcast(&loader->may_fill);
    pthread_mutex_unlock(&loader->mutex);
    for (int i = 0; i < loader->thread_count; i++)
        pthread_join(loader->threads[i], NULL); /* each leaves after at most one sample */
    for (int64_t i = 0; loader->slots && i < loader->slot_count; i++) {
        free(loader->slots[i].images);
        free(loader->slots[i].labels);
    }
    pthread_cond_destroy(&loader->may_fill);
    pthread_cond_destroy(&loader->may_take);
    pthread_mutex_destroy(&loader->mutex);
    free(loader->slots);
    free(loader->threads);
    free(loader);
}

fth_status fth_loader_next(fth_loader *loader, fth_deadline deadline, const fth_batch **batch)
{
    fth_status status = FTH_OK;
    struct timespec until = fth_deadline_timespec(deadline);

    *batch = NULL;
    pthread_mutex_lock(&loader->mutex);
    if (loader->lent) {
        loader->lent = false;
        loader->released++;
        pthread_cond_signal(&loader->may_fill); /* one slot: work for one thread */
    }
    int64_t number = loader->next_to_take;
    if (number >= loader->end)
        goto out;
    fth_loader_slot *slot = &loader->slots[number % loader->slot_count];
    /* A slot freed just now is not ready until filled again; a failure further on leaves earlier batches to come. */
    while (!slot->ready)
        if (pthread_cond_clockwait(&loader->may_take, &loader->mutex, CLOCK_MONOTONIC, &until) != 0 && !slot->ready) {
            status = fth_fail(FTH_TIMEOUT, "waited in vain for batch %lld from %d loader threads", (long long)number,
                              loader->thread_count);
            goto out;
        }
    if (slot->status != FTH_OK) {
        status = fth_fail(slot->status, "%s", slot->message);
        goto out;
    }
    slot->ready = false; /* lent; the number in the ring moves on */
    loader->lent = true;
    loader->next_to_take++;
    *batch = &slot->batch;

out:
    pthread_mutex_unlock(&loader->mutex);
    return status;
}
