/* Batches of images that threads make ahead of need, in order.
 *
 * Batch n lies in slot n % slots of a ring. A thread takes the next piece of a batch once its slot
 * is free. A piece is the whole batch for images in memory; where images are decoded it is some of
 * them, so that all threads work on the batch that is needed next. The thread fills its piece
 * without holding the lock, and the last piece makes the slot ready. fth_loader_next() hands slots
 * out by number, so the result does not depend on which thread fills what, or when. A slot:
 *
 *     free -> being filled -> ready -> lent -> free
 *             (by threads)             (until the next call of fth_loader_next)
 *
 * `released` counts the batches whose slots are free again: batch n may be started when n <
 * released + slots. With a stride, the ring counts the batches that this loader gives. A failure
 * stays in its slot and no later batch is started, so it is reported at the same batch every
 * time. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/process.h"
#include "data/image/image_set.h"
#include "data/loader/loader.h"

enum { MAX_PIECE = 16, SHALLOW_RING_SLOTS = 8, DEEP_RING_SLOTS = 64, DEEP_RING_BYTES = 1 << 20 };

typedef struct ring_slot {
    fth_batch batch;
    float *images;
    fth_recipe *recipes;
    int32_t *labels;
    int64_t missing; /* samples that no thread has finished yet */
    bool ready;
    fth_status status;
    char message[512];
} ring_slot;

/* The batches being made. */
typedef struct batch_ring {
    ring_slot *slots;
    int64_t slot_count;
    int64_t piece; /* samples that a thread takes at a time */
    pthread_t *threads;
    int thread_count;

    atomic_bool stop;
    pthread_mutex_t mutex; /* guards what follows, and the slots' states */
    pthread_cond_t may_fill, may_take;
    int64_t next_to_fill, next_to_take, released;
    int64_t position; /* samples of next_to_fill already taken */
    bool lent;        /* the slot of batch next_to_take - 1 is lent */
    bool failed;      /* some slot holds a failure */
    /* The first sample that has not been announced to the data set: its batch and its position
     * there. */
    int64_t told_place, told_position;
    bool telling; /* one thread at a time announces */
} batch_ring;

/* One thread's buffers. */
typedef struct loader_tools {
    uint8_t *scratch;         /* for images as they are stored */
    fth_image_worker *worker; /* for images that are transformed or come from a provider */
} loader_tools;

typedef struct image_loader {
    fth_loader base;
    const fth_dataset *dataset;
    fth_loader_options options;
    fth_batch_sequence sequence;
    fth_transform transform; /* of sets that are transformed */
    void *session;           /* of a provider; or NULL */
    bool owns_session;
    batch_ring ring;    /* without slots: the loader gives samples by index */
    loader_tools tools; /* for samples by index */
} image_loader;

/* Consecutive samples of one batch. */
typedef struct loader_piece {
    int64_t place;                /* of the batch in the ring */
    int64_t number, epoch, first; /* the batch; the epoch that orders it; its first sample's position in that order */
    int64_t begin, end;           /* in the batch */
} loader_piece;

/* ---- samples ---- */

static fth_status create_tools(const image_loader *loader, loader_tools *tools)
{
    fth_status status = fth_dataset_is_transformed(loader->dataset)
                            ? fth_image_worker_create(&tools->worker)
                            : fth_allocate(fth_raw_bytes(loader->dataset), 1, &tools->scratch);
    if (tools->worker)
        tools->worker->patience.stop = &loader->ring.stop;
    return status;
}

static void free_tools(loader_tools *tools)
{
    free(tools->scratch);
    fth_image_worker_free(tools->worker);
}

static fth_status load_sample(const image_loader *loader, const loader_tools *tools, int64_t epoch, int64_t sample,
                              float *image, int32_t *label)
{
    const fth_loader_options *options = &loader->options;
    const uint8_t *pixels;
    if (tools->worker) {
        const fth_sample_request request = {.session = loader->session,
                                            .split = options->split,
                                            .sample = sample,
                                            .epoch = epoch,
                                            .seed = options->seed,
                                            .transform = &loader->transform,
                                            .key = fth_augment_key(options->seed, epoch, sample),
                                            .augmentation = options->augmentation,
                                            .stop = &loader->ring.stop};
        return fth_sample_load(loader->dataset, &request, tools->worker, image, label);
    }
    fth_status status = fth_dataset_look(loader->dataset, options->split, sample, tools->scratch, &pixels, label);
    if (status == FTH_OK)
        fth_augment(&loader->dataset->info, &options->augmentation, options->seed, epoch, sample, pixels, image);
    return status;
}

/* The recipe of an image instead of the image. */
static fth_status load_recipe(const image_loader *loader, const loader_tools *tools, int64_t epoch, int64_t sample,
                              fth_recipe *recipe, int32_t *label)
{
    const fth_loader_options *options = &loader->options;
    const uint8_t *pixels;
    *recipe = fth_augment_choose(&options->augmentation, options->seed, epoch, sample);
    return fth_dataset_look(loader->dataset, options->split, sample, tools->scratch, &pixels, label);
}

static fth_status fill(const image_loader *loader, const loader_tools *tools, const loader_piece *piece,
                       ring_slot *slot)
{
    const fth_dataset_info *info = &loader->dataset->info;
    const atomic_bool *stop = &loader->ring.stop;
    size_t image_size = fth_image_bytes(info);
    for (int64_t i = piece->begin; i < piece->end && !atomic_load_explicit(stop, memory_order_relaxed); i++) {
        int64_t sample = fth_sampler_index(&loader->sequence.sampler, piece->epoch, piece->first + i);
        fth_status status = slot->recipes
                                ? load_recipe(loader, tools, piece->epoch, sample, &slot->recipes[i], &slot->labels[i])
                                : load_sample(loader, tools, piece->epoch, sample,
                                              slot->images + (size_t)i * image_size, &slot->labels[i]);
        if (status != FTH_OK)
            return fth_fail_within(status, "batch %lld, sample %lld of %s", (long long)piece->number, (long long)sample,
                                   info->name);
    }
    return FTH_OK;
}

/* ---- the ring; with the mutex held ---- */

static bool may_start(const batch_ring *ring)
{
    return ring->next_to_fill < ring->released + ring->slot_count;
}

static loader_piece describe_piece(const image_loader *loader, int64_t place, const fth_batch *batch, int64_t begin,
                                   int64_t end)
{
    return (loader_piece){.place = place,
                          .number = batch->number,
                          .epoch = fth_batch_sequence_epoch(&loader->sequence, batch),
                          .first = fth_batch_sequence_position(&loader->sequence, batch) + batch->first,
                          .begin = begin,
                          .end = end};
}

/* Takes the next piece of the batch being filled; after its last one the next batch is started. */
static loader_piece take_piece(image_loader *loader, ring_slot **slot)
{
    batch_ring *ring = &loader->ring;
    int64_t place = ring->next_to_fill, begin = ring->position;
    fth_batch batch = fth_batch_sequence_describe(&loader->sequence, place);
    int64_t end = batch.count - begin < ring->piece ? batch.count : begin + ring->piece;
    *slot = &ring->slots[place % ring->slot_count];
    if (begin == 0) {
        (*slot)->missing = batch.count;
        (*slot)->batch = batch;
        (*slot)->batch.images = (*slot)->images;
        (*slot)->batch.recipes = (*slot)->recipes;
        (*slot)->batch.labels = (*slot)->labels;
    }
    ring->position = end;
    if (end == batch.count) {
        ring->position = 0;
        ring->next_to_fill++;
    }
    return describe_piece(loader, place, &batch, begin, end);
}

/* How many samples have been announced, from the next one to be taken on. */
static int64_t count_told(image_loader *loader)
{
    batch_ring *ring = &loader->ring;
    if (ring->told_place < ring->next_to_fill ||
        (ring->told_place == ring->next_to_fill && ring->told_position < ring->position)) {
        ring->told_place = ring->next_to_fill; /* samples that were taken are being fetched */
        ring->told_position = ring->position;
    }
    return (ring->told_place - ring->next_to_fill) * loader->options.batch + ring->told_position - ring->position;
}

/* Announces the next samples to a set that has to fetch them. Releases the mutex meanwhile; one
 * thread does it at a time. */
static void tell_ahead(image_loader *loader)
{
    enum { AHEAD = 512, PART = 64 };
    batch_ring *ring = &loader->ring;
    if (ring->telling)
        return;
    ring->telling = true;
    for (bool room = true;
         room && !ring->stop && count_told(loader) < AHEAD && ring->told_place < loader->sequence.end;) {
        int64_t samples[PART];
        fth_batch batch = fth_batch_sequence_describe(&loader->sequence, ring->told_place);
        int64_t end = batch.count - ring->told_position < PART ? batch.count : ring->told_position + PART;
        loader_piece piece = describe_piece(loader, ring->told_place, &batch, ring->told_position, end);
        size_t count = (size_t)(piece.end - piece.begin);
        pthread_mutex_unlock(&ring->mutex);
        for (int64_t i = piece.begin; i < piece.end; i++)
            samples[i - piece.begin] = fth_sampler_index(&loader->sequence.sampler, piece.epoch, piece.first + i);
        size_t noted =
            fth_dataset_expect_for_session(loader->dataset, loader->session, loader->options.split, samples, count, 0);
        pthread_mutex_lock(&ring->mutex);
        room = noted == count;
        ring->told_position += (int64_t)noted;
        if (ring->told_position == batch.count) {
            ring->told_position = 0;
            ring->told_place++;
        }
    }
    ring->telling = false;
}

static void finish_piece(batch_ring *ring, const loader_piece *piece, ring_slot *slot, fth_status status)
{
    slot->missing -= piece->end - piece->begin;
    if (status != FTH_OK && slot->status == FTH_OK) {
        slot->status = status;
        snprintf(slot->message, sizeof slot->message, "%s", fth_error_message());
        ring->failed = true;
        pthread_cond_broadcast(&ring->may_fill);
    }
    /* Pieces are taken in order, so earlier batches will be completed; a failed one is never handed
     * out. */
    slot->ready = slot->missing == 0 || slot->status != FTH_OK;
    if (slot->ready && piece->place == ring->next_to_take)
        pthread_cond_signal(&ring->may_take);
}

/* ---- threads ---- */

static void *work(void *argument)
{
    image_loader *loader = argument;
    batch_ring *ring = &loader->ring;
    loader_tools tools = {0};
    const fth_status created = create_tools(loader, &tools);
    fth_image_worker *worker = tools.worker;

    pthread_mutex_lock(&ring->mutex);
    for (;;) {
        if (loader->dataset->expects)
            tell_ahead(loader);
        while (!ring->stop && !ring->failed && ring->next_to_fill < loader->sequence.end && !may_start(ring))
            pthread_cond_wait(&ring->may_fill, &ring->mutex); /* ended by next() or free() */
        if (ring->stop || ring->failed || ring->next_to_fill >= loader->sequence.end)
            break;
        ring_slot *slot;
        loader_piece piece = take_piece(loader, &slot);
        pthread_mutex_unlock(&ring->mutex);

        if (worker)
            worker->read_seconds = worker->fetch_seconds = 0;
        const double begin_s = fth_clock_seconds();
        fth_status status = created == FTH_OK ? fill(loader, &tools, &piece, slot) : created;
        const double seconds = fth_clock_seconds() - begin_s;

        pthread_mutex_lock(&ring->mutex);
        slot->batch.decode_seconds += seconds - (worker ? worker->read_seconds : 0);
        slot->batch.fetch_seconds += worker ? worker->fetch_seconds : 0;
        finish_piece(ring, &piece, slot, status);
    }
    pthread_mutex_unlock(&ring->mutex);
    free_tools(&tools);
    return NULL;
}

/* ---- opening and closing ---- */

fth_status fth_image_loader_check(const fth_dataset *dataset, const fth_loader_options *options)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = &dataset->info;
    int padding = options->augmentation.crop_padding;

    FTH_REQUIRE(padding >= 0 && padding <= info->height && padding <= info->width, FTH_INVALID,
                "crop padding of %d pixels; images of %d × %d allow 0 to %d", padding, info->height, info->width,
                info->height < info->width ? info->height : info->width);
    FTH_REQUIRE(!dataset->raw.files || (padding == 0 && !options->augmentation.flip), FTH_INVALID,
                "image files are varied by a transform (--transform pad-crop=%d,flip), not by --augment",
                padding > 0 ? padding : 4);
    FTH_REQUIRE(!fth_dataset_is_transformed(dataset) || !options->recipes, FTH_INVALID,
                "images that are transformed cannot be made by recipes");

out:
    return status;
}

static int count_cores(void)
{
    int count = fth_processors_usable();
    return count < FTH_MAX_LOADER_THREADS ? count : FTH_MAX_LOADER_THREADS;
}

/* The number of threads, the size of a piece and of the ring. */
static void choose_sizes(image_loader *loader)
{
    batch_ring *ring = &loader->ring;
    fth_loader_options *options = &loader->options;
    bool transformed = fth_dataset_is_transformed(loader->dataset);
    if (options->threads == 0)
        options->threads = transformed ? count_cores() : 1;
    ring->piece = options->batch;
    ring->slot_count = 2 * options->threads + 2;
    if (transformed) { /* all threads share a batch: few slots keep them busy */
        int64_t share = options->batch / (2 * options->threads);
        ring->piece = share < 1 ? 1 : share > MAX_PIECE ? MAX_PIECE : share;
        ring->slot_count = 2 + (options->threads * ring->piece + options->batch - 1) / options->batch;
    } else { /* small batches are used up in less time than a busy machine takes to wake a thread: keep many */
        int64_t image_bytes = (int64_t)(fth_image_bytes(&loader->dataset->info) * sizeof(float));
        int64_t batch_bytes = options->batch * (options->recipes ? (int64_t)sizeof(fth_recipe) : image_bytes);
        int64_t deep =
            DEEP_RING_BYTES / batch_bytes < DEEP_RING_SLOTS ? DEEP_RING_BYTES / batch_bytes : DEEP_RING_SLOTS;
        if (deep > ring->slot_count)
            ring->slot_count = deep;
    }
    int64_t remaining = loader->sequence.end > options->first_batch ? loader->sequence.end - options->first_batch : 1;
    if (ring->slot_count > remaining)
        ring->slot_count = remaining;
}

static fth_status start_threads(image_loader *loader)
{
    batch_ring *ring = &loader->ring;
    int failure = 0;
    while (failure == 0 && ring->thread_count < loader->options.threads) {
        failure = fth_thread_start(&ring->threads[ring->thread_count], "loader", work, loader);
        ring->thread_count += failure == 0;
    }
    return ring->thread_count > 0 ? FTH_OK : fth_fail(FTH_NO_MEMORY, "cannot start a loader thread");
}

static fth_status start_ring(image_loader *loader)
{
    fth_status status = FTH_OK;
    batch_ring *ring = &loader->ring;
    const fth_loader_options *options = &loader->options;
    const size_t images_bytes = (size_t)options->batch * fth_image_bytes(&loader->dataset->info) * sizeof(float);

    choose_sizes(loader);
    ring->next_to_fill = ring->next_to_take = ring->released = options->first_batch;
    FTH_TRY(fth_allocate((size_t)ring->slot_count, sizeof *ring->slots, &ring->slots));
    for (int64_t i = 0; i < ring->slot_count; i++) {
        ring_slot *slot = &ring->slots[i];
        if (options->recipes)
            FTH_TRY(fth_allocate((size_t)options->batch, sizeof *slot->recipes, &slot->recipes));
        else
            FTH_TRY(fth_allocate_aligned(images_bytes, &slot->images));
        FTH_TRY(fth_allocate((size_t)options->batch, sizeof *slot->labels, &slot->labels));
    }
    FTH_TRY(fth_allocate((size_t)options->threads, sizeof *ring->threads, &ring->threads));
    FTH_TRY(start_threads(loader));

out:
    return status;
}

static void free_loader(fth_loader *base)
{
    image_loader *loader = (image_loader *)base;
    batch_ring *ring = &loader->ring;
    pthread_mutex_lock(&ring->mutex);
    ring->stop = true;
    pthread_cond_broadcast(&ring->may_fill);
    pthread_mutex_unlock(&ring->mutex);
    for (int i = 0; i < ring->thread_count; i++)
        pthread_join(ring->threads[i], NULL); /* each leaves after at most one sample */
    if (loader->owns_session && loader->session)
        loader->dataset->kind->close_session(loader->dataset, loader->session);
    free_tools(&loader->tools);
    for (int64_t i = 0; ring->slots && i < ring->slot_count; i++) {
        free(ring->slots[i].images);
        free(ring->slots[i].recipes);
        free(ring->slots[i].labels);
    }
    pthread_cond_destroy(&ring->may_fill);
    pthread_cond_destroy(&ring->may_take);
    pthread_mutex_destroy(&ring->mutex);
    free(ring->slots);
    free(ring->threads);
    free(loader);
}

/* ---- giving ---- */

static fth_status fail_waiting(const image_loader *loader, int64_t number)
{
    char why[1024];
    if (fth_dataset_explain(loader->dataset, why, sizeof why))
        return fth_fail(FTH_TIMEOUT, "timed out waiting for batch %lld: %s", (long long)number, why);
    return fth_fail(FTH_TIMEOUT, "timed out waiting for batch %lld from %s", (long long)number,
                    FTH_COUNTED(loader->ring.thread_count, "loader thread"));
}

/* Frees the lent slot. Waking a thread costs more than filling a small batch, so in a deep ring
 * threads are woken for half of it at once; the next batch lies in the other half. */
static void release_lent(const image_loader *loader, batch_ring *ring)
{
    ring->lent = false;
    ring->released++;
    if (ring->piece < loader->options.batch)
        pthread_cond_broadcast(&ring->may_fill);
    else if (ring->slot_count < SHALLOW_RING_SLOTS)
        pthread_cond_signal(&ring->may_fill); /* one slot: work for one thread */
    else if (ring->next_to_fill - ring->released <= ring->slot_count / 2)
        pthread_cond_broadcast(&ring->may_fill);
}

/* With the mutex held. */
static fth_status take_slot(image_loader *loader, fth_deadline deadline, const fth_batch **batch)
{
    batch_ring *ring = &loader->ring;
    struct timespec until = fth_deadline_timespec(deadline);
    if (ring->lent)
        release_lent(loader, ring);
    const int64_t place = ring->next_to_take;
    if (place >= loader->sequence.end)
        return FTH_OK;
    ring_slot *slot = &ring->slots[place % ring->slot_count];
    while (!slot->ready)
        if (pthread_cond_clockwait(&ring->may_take, &ring->mutex, CLOCK_MONOTONIC, &until) != 0 && !slot->ready)
            return fail_waiting(loader, fth_batch_sequence_number(&loader->sequence, place));
    if (slot->status != FTH_OK)
        return fth_fail(slot->status, "%s", slot->message);
    slot->ready = false;
    ring->lent = true;
    ring->next_to_take++;
    *batch = &slot->batch;
    return FTH_OK;
}

static void tell_moved(const image_loader *loader, int64_t next)
{
    if (loader->owns_session && loader->session)
        loader->dataset->kind->moved(loader->dataset, loader->session, next);
}

static fth_status next(fth_loader *base, fth_deadline deadline, const fth_batch **batch)
{
    image_loader *loader = (image_loader *)base;
    if (loader->options.by_index)
        return fth_fail(FTH_INVALID, "a loader that was opened by_index gives no batches");
    pthread_mutex_lock(&loader->ring.mutex);
    fth_status status = take_slot(loader, deadline, batch);
    pthread_mutex_unlock(&loader->ring.mutex);
    if (*batch)
        tell_moved(loader, fth_batch_sequence_number(&loader->sequence, loader->ring.next_to_take));
    return status;
}

static fth_status get(fth_loader *base, int64_t number, int64_t sample, float *image, int32_t *label)
{
    fth_status status = FTH_OK;
    image_loader *loader = (image_loader *)base;
    const fth_batch_sequence *sequence = &loader->sequence;
    const fth_dataset_info *info = &loader->dataset->info;
    const int64_t count = info->count[loader->options.split];

    FTH_REQUIRE(loader->options.by_index && number >= 0 && sample >= 0 && sample < count, FTH_INVALID,
                "sample %lld of batch %lld: %s has samples 0 to %lld", (long long)sample, (long long)number, info->name,
                (long long)count - 1);
    tell_moved(loader, number);
    FTH_TRY(load_sample(loader, &loader->tools, number / sequence->batches_per_epoch + sequence->epochs_later, sample,
                        image, label));

out:
    return status == FTH_OK ? status : fth_fail_within(status, "sample %lld of %s", (long long)sample, info->name);
}

static const fth_loader_kind kind = {.next = next, .get = get, .free = free_loader};

fth_status fth_image_loader_open_for_session(const fth_dataset *dataset, const fth_loader_options *options,
                                             void *session, bool owns_session, fth_loader **opened)
{
    fth_status status = FTH_OK;
    image_loader *loader = NULL;

    FTH_TRY(fth_allocate(1, sizeof *loader, &loader));
    loader->base.kind = &kind;
    pthread_mutex_init(&loader->ring.mutex, NULL);
    pthread_cond_init(&loader->ring.may_fill, NULL);
    pthread_cond_init(&loader->ring.may_take, NULL);
    loader->dataset = dataset;
    loader->options = *options;
    loader->sequence = fth_batch_sequence_create(dataset, options);
    loader->session = session;
    loader->transform = dataset->transforms[options->split];
    if (dataset->transformed && !dataset->raw.files)
        FTH_TRY(fth_transform_augment(&options->augmentation, dataset->raw.height, &loader->transform));
    if (options->by_index)
        FTH_TRY(create_tools(loader, &loader->tools));
    else
        FTH_TRY(start_ring(loader));
    loader->owns_session = owns_session;
    *opened = &loader->base;
    loader = NULL;

out:
    if (loader)
        free_loader(&loader->base);
    return status;
}

fth_status fth_image_loader_open(const fth_dataset *dataset, const fth_loader_options *options, fth_loader **opened)
{
    return fth_image_loader_open_for_session(dataset, options, NULL, true, opened);
}
