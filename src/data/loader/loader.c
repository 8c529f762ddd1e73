/* Batches made ahead of need, by threads, in order.
 *
 * Batch n lives in slot n % slots of a ring. A thread takes the next piece of it once its slot is
 * free (the whole batch for sets in memory, some images where they are decoded, so that all threads
 * work on the batch needed next), fills it without holding the lock, and who fills the last piece
 * marks the slot ready; fth_loader_next() hands slots out by number, so who fills what, and when,
 * changes nothing. A slot:
 *
 *     free -> being filled -> ready -> lent -> free
 *             (by threads)             (until the next call of fth_loader_next)
 *
 * With `released` counting the batches whose slots came back, batch n may be started when n <
 * released + slots. Where a loader has only every stride-th batch, the ring counts those it has. A
 * failure stays in its slot, and later batches are not started: the caller meets it at the same
 * batch every time. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/process.h"
#include "data/image/image_set.h"
#include "data/source/provided_set.h"
#include "data/text/text_feed.h"

enum { MAX_THREADS = 256, MAX_PIECE = 16 };
enum { SHALLOW_RING_SLOTS = 8, DEEP_RING_SLOTS = 64, DEEP_RING_BYTES = 1 << 20 };

typedef struct fth_loader_slot {
    fth_batch batch;
    float *images;
    fth_recipe *recipes;
    int32_t *labels;
    int64_t missing; /* samples that no thread has given back yet */
    bool ready;
    fth_status status;
    char message[512];
} fth_loader_slot;

/* What a thread keeps to itself. */
typedef struct fth_loader_tools {
    uint8_t *scratch;         /* for images as they are */
    fth_image_worker *worker; /* for images that are transformed */
} fth_loader_tools;

/* How far the data set knows what comes. */
typedef struct fth_loader_ahead {
    int64_t place, position; /* the first sample it has not been told of: the batch, as the ring counts, and its place
                              * in that */
    bool busy;               /* a thread is telling it */
} fth_loader_ahead;

/* Three parts, separated by their locks: what is set once, the ring with its threads, and the queue
 * that `mutex` guards. Only this file sees them. */
struct fth_loader {
    const fth_dataset *dataset;
    fth_loader_options options;
    fth_sampler sampler;
    int64_t epochs_later;    /* than the batches say: in the order and in random choices */
    fth_transform transform; /* of images that are transformed */
    int64_t samples;         /* of an epoch, in this loader's share */
    int64_t batches_per_epoch;
    void *session;       /* of a provider that has loaders' sessions; else NULL */
    bool borrowed;       /* the session is somebody else's */
    bool finished;       /* batches come from it as they are: there are no threads and no ring */
    fth_text_feed *text; /* of text: likewise, since batches are made when they are asked for */
    int64_t end;         /* the count after the last batch */
    int64_t piece;       /* samples that a thread takes at a time */
    bool fetched;        /* images come from far away, and the set wants to know which come next */

    fth_loader_slot *slots;
    int64_t slot_count;
    pthread_t *threads;
    int thread_count;
    fth_loader_tools tools; /* of who asks for samples by index */

    atomic_bool stop;
    pthread_mutex_t mutex; /* guards what follows, and the slots' states */
    pthread_cond_t may_fill, may_take;
    int64_t next_to_fill, next_to_take, released;
    int64_t position; /* samples of next_to_fill already taken */
    bool lent;        /* the slot of batch next_to_take - 1 is out */
    bool failed;      /* some slot holds a failure */
    fth_loader_ahead ahead;
};

/* A run of samples of one batch: what a thread takes at a time. */
typedef struct fth_loader_piece {
    int64_t place;                /* of the batch, as the ring counts */
    int64_t number, epoch, first; /* the batch; the epoch of its order; its first sample's place in that */
    int64_t begin, end;           /* in the batch */
} fth_loader_piece;

static fth_status get_tools(const fth_loader *loader, fth_loader_tools *tools)
{
    fth_status status = fth_dataset_is_transformed(loader->dataset)
                            ? fth_image_worker_create(&tools->worker)
                            : fth_allocate(fth_raw_bytes(loader->dataset), 1, &tools->scratch);
    if (tools->worker)
        tools->worker->patience.stop = &loader->stop;
    return status;
}

static void free_tools(fth_loader_tools *tools)
{
    free(tools->scratch);
    fth_image_worker_free(tools->worker);
}

static fth_status load_provided(const fth_loader *loader, const fth_loader_tools *tools, int64_t epoch, int64_t sample,
                                float *image, int32_t *label)
{
    const fth_loader_options *options = &loader->options;
    fth_provided_request request = {.session = loader->session,
                                    .split = options->split,
                                    .sample = sample,
                                    .epoch = epoch,
                                    .seed = options->seed,
                                    .transform = &loader->transform,
                                    .key = fth_augment_key(options->seed, epoch, sample),
                                    .augmentation = options->augmentation,
                                    .stop = &loader->stop};
    return fth_provided_load(loader->dataset, &request, tools->worker, image, label);
}

static fth_status load_sample(const fth_loader *loader, const fth_loader_tools *tools, int64_t epoch, int64_t sample,
                              float *image, int32_t *label)
{
    const fth_loader_options *options = &loader->options;
    if (loader->dataset->provided)
        return load_provided(loader, tools, epoch, sample, image, label);
    if (tools->worker) {
        fth_random_key key = fth_augment_key(options->seed, epoch, sample);
        return fth_sample_transform(loader->dataset, options->split, sample, &loader->transform, key, tools->worker,
                                    image, label);
    }
    const uint8_t *pixels;
    fth_status status = fth_dataset_look(loader->dataset, options->split, sample, tools->scratch, &pixels, label);
    if (status == FTH_OK)
        fth_augment(fth_dataset_get_info(loader->dataset), &options->augmentation, options->seed, epoch, sample, pixels,
                    image);
    return status;
}

static fth_status note_sample(const fth_loader *loader, const fth_loader_tools *tools, int64_t epoch, int64_t sample,
                              fth_recipe *recipe, int32_t *label)
{
    const fth_loader_options *options = &loader->options;
    const uint8_t *pixels; /* whoever asks for recipes has them */
    *recipe = fth_augment_choose(&options->augmentation, options->seed, epoch, sample);
    return fth_dataset_look(loader->dataset, options->split, sample, tools->scratch, &pixels, label);
}

static fth_status fill(const fth_loader *loader, const fth_loader_tools *tools, const fth_loader_piece *piece,
                       fth_loader_slot *slot)
{
    const fth_dataset_info *info = fth_dataset_get_info(loader->dataset);
    size_t image_size = fth_image_bytes(info);
    for (int64_t i = piece->begin; i < piece->end && !atomic_load_explicit(&loader->stop, memory_order_relaxed); i++) {
        int64_t sample = fth_sampler_index(&loader->sampler, piece->epoch, piece->first + i);
        fth_status status = slot->recipes
                                ? note_sample(loader, tools, piece->epoch, sample, &slot->recipes[i], &slot->labels[i])
                                : load_sample(loader, tools, piece->epoch, sample,
                                              slot->images + (size_t)i * image_size, &slot->labels[i]);
        if (status != FTH_OK)
            return fth_fail_within(status, "batch %lld, sample %lld of %s", (long long)piece->number, (long long)sample,
                                   info->name);
    }
    return FTH_OK;
}

/* ---- the ring; with the mutex held ---- */

static bool may_start(const fth_loader *loader)
{
    return loader->next_to_fill < loader->released + loader->slot_count;
}

/* The number of the batch that is the ring's `count`-th. */
static int64_t batch_number(const fth_loader *loader, int64_t count)
{
    int64_t first = loader->options.first_batch;
    return first + (count - first) * loader->options.stride;
}

/* The samples of the batch that is the ring's `place`-th. */
static fth_batch describe_batch(const fth_loader *loader, int64_t place)
{
    int64_t number = batch_number(loader, place), batch = loader->options.batch;
    int64_t left = loader->samples - number % loader->batches_per_epoch * batch, whole = left < batch ? left : batch;
    return (fth_batch){.count = fth_part_samples(loader->options.part, whole),
                       .whole = whole,
                       .first = fth_part_begin(loader->options.part, whole),
                       .number = number,
                       .epoch = number / loader->batches_per_epoch};
}

/* The samples [begin, end) of a batch. */
static fth_loader_piece describe_piece(const fth_loader *loader, int64_t place, const fth_batch *batch, int64_t begin,
                                       int64_t end)
{
    return (fth_loader_piece){.place = place,
                              .number = batch->number,
                              .epoch = batch->epoch + loader->epochs_later,
                              .first = batch->number % loader->batches_per_epoch * loader->options.batch + batch->first,
                              .begin = begin,
                              .end = end};
}

/* Takes the next piece of the batch being filled; after its last one the next batch is begun. */
static fth_loader_piece take_piece(fth_loader *loader, fth_loader_slot **slot)
{
    int64_t place = loader->next_to_fill, begin = loader->position;
    fth_batch batch = describe_batch(loader, place);
    int64_t end = batch.count - begin < loader->piece ? batch.count : begin + loader->piece;
    *slot = &loader->slots[place % loader->slot_count];
    if (begin == 0) {
        (*slot)->missing = batch.count;
        (*slot)->batch = batch;
        (*slot)->batch.images = (*slot)->images;
        (*slot)->batch.recipes = (*slot)->recipes;
        (*slot)->batch.labels = (*slot)->labels;
    }
    loader->position = end;
    if (end == batch.count) {
        loader->position = 0;
        loader->next_to_fill++;
    }
    return describe_piece(loader, place, &batch, begin, end);
}

/* ---- what will be needed soon ---- */

/* How many samples beyond the next one to be taken the data set knows. */
static int64_t count_ahead(fth_loader *loader)
{
    fth_loader_ahead *ahead = &loader->ahead;
    if (ahead->place < loader->next_to_fill ||
        (ahead->place == loader->next_to_fill && ahead->position < loader->position)) {
        ahead->place = loader->next_to_fill; /* what has been taken is fetched by whoever took it */
        ahead->position = loader->position;
    }
    return (ahead->place - loader->next_to_fill) * loader->options.batch + ahead->position - loader->position;
}

/* Tells a set whose images have to be fetched which come next. With the mutex held, which is let go
 * meanwhile; one thread does it at a time. */
static void tell_ahead(fth_loader *loader)
{
    enum { AHEAD = 512, PART = 64 };
    fth_loader_ahead *ahead = &loader->ahead;
    if (ahead->busy)
        return;
    ahead->busy = true;
    for (bool room = true; room && !loader->stop && count_ahead(loader) < AHEAD && ahead->place < loader->end;) {
        int64_t samples[PART];
        fth_batch batch = describe_batch(loader, ahead->place);
        int64_t end = batch.count - ahead->position < PART ? batch.count : ahead->position + PART;
        fth_loader_piece piece = describe_piece(loader, ahead->place, &batch, ahead->position, end);
        size_t count = (size_t)(piece.end - piece.begin);
        pthread_mutex_unlock(&loader->mutex);
        for (int64_t i = piece.begin; i < piece.end; i++)
            samples[i - piece.begin] = fth_sampler_index(&loader->sampler, piece.epoch, piece.first + i);
        size_t noted = loader->dataset->provided
                           ? fth_provided_expect(loader->dataset, loader->session, samples, count)
                           : fth_dataset_expect(loader->dataset, loader->options.split, samples, count, 0);
        pthread_mutex_lock(&loader->mutex);
        room = noted == count;
        ahead->position += (int64_t)noted;
        if (ahead->position == batch.count) {
            ahead->position = 0;
            ahead->place++;
        }
    }
    ahead->busy = false;
}

/* What a piece took. */
typedef struct fth_loader_times {
    double decode_seconds, fetch_seconds;
} fth_loader_times;

static void give_piece(fth_loader *loader, const fth_loader_piece *piece, fth_loader_slot *slot, fth_status status,
                       fth_loader_times times)
{
    slot->batch.decode_seconds += times.decode_seconds;
    slot->batch.fetch_seconds += times.fetch_seconds;
    slot->missing -= piece->end - piece->begin;
    if (status != FTH_OK && slot->status == FTH_OK) {
        slot->status = status;
        snprintf(slot->message, sizeof slot->message, "%s", fth_error_message());
        loader->failed = true;
        pthread_cond_broadcast(&loader->may_fill);
    }
    /* Pieces are taken in order, so earlier batches will be whole; one that failed is never handed
     * out. */
    slot->ready = slot->missing == 0 || slot->status != FTH_OK;
    if (slot->ready && piece->place == loader->next_to_take)
        pthread_cond_signal(&loader->may_take);
}

static fth_status fill_timed(const fth_loader *loader, const fth_loader_tools *tools, const fth_loader_piece *piece,
                             fth_loader_slot *slot, fth_loader_times *times)
{
    fth_image_worker *worker = tools->worker;
    if (worker)
        worker->read_seconds = worker->fetch_seconds = 0;
    double begin = fth_clock_seconds();
    fth_status status = fill(loader, tools, piece, slot);
    times->decode_seconds = fth_clock_seconds() - begin - (worker ? worker->read_seconds : 0);
    times->fetch_seconds = worker ? worker->fetch_seconds : 0;
    return status;
}

static void *work(void *argument)
{
    fth_loader *loader = argument;
    fth_loader_tools tools = {0};
    fth_status ill_equipped = get_tools(loader, &tools);

    pthread_mutex_lock(&loader->mutex);
    for (;;) {
        if (loader->fetched)
            tell_ahead(loader);
        while (!loader->stop && !loader->failed && loader->next_to_fill < loader->end && !may_start(loader))
            pthread_cond_wait(&loader->may_fill, &loader->mutex); /* ended by next() or free() */
        if (loader->stop || loader->failed || loader->next_to_fill >= loader->end)
            break;
        fth_loader_slot *slot;
        fth_loader_piece piece = take_piece(loader, &slot);
        pthread_mutex_unlock(&loader->mutex);

        fth_status status = ill_equipped;
        fth_loader_times times = {0};
        if (status == FTH_OK)
            status = fill_timed(loader, &tools, &piece, slot, &times);

        pthread_mutex_lock(&loader->mutex);
        give_piece(loader, &piece, slot, status, times);
    }
    pthread_mutex_unlock(&loader->mutex);
    free_tools(&tools);
    return NULL;
}

/* ---- opening and closing ---- */

static fth_status check_text_options(const fth_dataset *dataset, const fth_loader_options *options)
{
    fth_status status = FTH_OK;
    const char *name = dataset->info.name;
    FTH_REQUIRE(!options->augmentation.flip && options->augmentation.crop_padding == 0, FTH_INVALID,
                "--augment is for images; %s is text", name);
    FTH_REQUIRE(!options->by_index && !options->recipes, FTH_UNSUPPORTED,
                "%s is text, which comes in batches and not as single images", name);
    FTH_REQUIRE(options->batch <= INT32_MAX / (dataset->info.text.longest + 1), FTH_INVALID,
                "a batch of %lld texts of up to %s is too large", (long long)options->batch,
                FTH_COUNTED(dataset->info.text.longest, "token"));

out:
    return status;
}

fth_status fth_loader_check(const fth_dataset *dataset, const fth_loader_options *options)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    int64_t count = fth_share_samples(options->share, info->count[options->split]);
    int padding = options->augmentation.crop_padding;
    const char *noun = dataset->text ? "text" : "image";
    FTH_REQUIRE(count > 0, FTH_INVALID, "the data set %s has zero %ss to load", info->name, noun);
    FTH_REQUIRE(options->batch >= 1, FTH_INVALID, "a batch of %lld samples; it needs at least 1",
                (long long)options->batch);
    FTH_REQUIRE(options->batch <= count, FTH_INVALID, "a batch of %lld is larger than the %lld %s %ss of %s",
                (long long)options->batch, (long long)count, options->split == FTH_TRAIN ? "training" : "validation",
                noun, info->name);
    FTH_REQUIRE(options->threads >= 0 && options->threads <= MAX_THREADS, FTH_INVALID,
                "%d loader threads; there may be 1 to %d, or 0 to have it chosen", options->threads, MAX_THREADS);
    FTH_REQUIRE(options->first_batch >= 0 && options->batch_limit >= 0, FTH_INVALID,
                "the first batch (%lld) and the limit of batches (%lld) cannot be negative",
                (long long)options->first_batch, (long long)options->batch_limit);
    FTH_REQUIRE(options->stride >= 0, FTH_INVALID, "every %lld-th batch: the stride cannot be negative",
                (long long)options->stride);
    FTH_REQUIRE(!options->by_length || dataset->text, FTH_INVALID, "batches by length are for text; %s has images",
                info->name);
    if (dataset->text) {
        FTH_TRY(check_text_options(dataset, options));
        goto out;
    }
    FTH_REQUIRE(padding >= 0 && padding <= info->height && padding <= info->width, FTH_INVALID,
                "crop padding of %d pixels; images of %d × %d allow 0 to %d", padding, info->height, info->width,
                info->height < info->width ? info->height : info->width);
    FTH_REQUIRE(!dataset->files || (padding == 0 && !options->augmentation.flip), FTH_INVALID,
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
    return count < MAX_THREADS ? count : MAX_THREADS;
}

/* Threads, the size of a piece and of the ring. Where all threads share a batch, few slots keep
 * them busy. */
static void choose_sizes(fth_loader *loader)
{
    fth_loader_options *options = &loader->options;
    bool transformed = fth_dataset_is_transformed(loader->dataset);
    if (options->threads == 0)
        options->threads = transformed ? count_cores() : 1;
    loader->piece = options->batch;
    loader->slot_count = 2 * options->threads + 2;
    if (transformed) {
        int64_t share = options->batch / (2 * options->threads);
        loader->piece = share < 1 ? 1 : share > MAX_PIECE ? MAX_PIECE : share;
        loader->slot_count = 2 + (options->threads * loader->piece + options->batch - 1) / options->batch;
    } else {
        /* Small batches are used up in less time than a busy machine needs to wake a thread: keep
         * many of them. */
        int64_t image_bytes = (int64_t)(fth_image_bytes(&loader->dataset->info) * sizeof(float));
        int64_t batch_bytes = options->batch * (options->recipes ? (int64_t)sizeof(fth_recipe) : image_bytes);
        int64_t deep =
            DEEP_RING_BYTES / batch_bytes < DEEP_RING_SLOTS ? DEEP_RING_BYTES / batch_bytes : DEEP_RING_SLOTS;
        if (deep > loader->slot_count)
            loader->slot_count = deep;
    }
    int64_t remaining = loader->end > options->first_batch ? loader->end - options->first_batch : 1;
    if (loader->slot_count > remaining)
        loader->slot_count = remaining;
}

static fth_status start_threads(fth_loader *loader)
{
    int failure = 0;
    while (failure == 0 && loader->thread_count < loader->options.threads) {
        failure = fth_thread_start(&loader->threads[loader->thread_count], "loader", work, loader);
        loader->thread_count += failure == 0;
    }
    return loader->thread_count > 0 ? FTH_OK : fth_fail(FTH_NO_MEMORY, "cannot start a loader thread");
}

/* Where the ring's count of batches ends. */
static int64_t count_end(const fth_loader_options *options)
{
    if (options->batch_limit == 0)
        return INT64_MAX;
    int64_t left = options->batch_limit > options->first_batch ? options->batch_limit - options->first_batch : 0;
    return options->first_batch + (left + options->stride - 1) / options->stride;
}

/* What is in the batches: all of it follows from the options. */
static fth_status plan_batches(fth_loader *loader)
{
    fth_loader_options *options = &loader->options;
    const fth_dataset *dataset = loader->dataset;
    loader->sampler = (fth_sampler){.seed = options->own_order ? options->order_seed : options->seed,
                                    .count = dataset->info.count[options->split],
                                    .shuffle = options->shuffle,
                                    .share = options->share};
    if (options->own_order && options->rotation > 0) {
        loader->sampler.rotation = options->rotation % loader->sampler.count;
        loader->epochs_later = options->rotation / loader->sampler.count;
    }
    loader->samples = fth_share_samples(options->share, loader->sampler.count);
    loader->batches_per_epoch = fth_batches_per_epoch(loader->samples, options->batch);
    loader->transform = dataset->transforms[options->split];
    loader->fetched = dataset->provided ? loader->session && fth_provided_expects(dataset)
                                        : dataset->images && dataset->images->places.kind->expect;
    if (options->stride == 0)
        options->stride = 1;
    loader->end = count_end(options);
    loader->next_to_fill = loader->next_to_take = loader->released = options->first_batch;
    return dataset->transformed && !dataset->files
               ? fth_transform_augment(&options->augmentation, dataset->raw_height, &loader->transform)
               : FTH_OK;
}

static fth_status start_ring(fth_loader *loader)
{
    fth_status status = FTH_OK;
    const fth_loader_options *options = &loader->options;
    const size_t images_bytes = (size_t)options->batch * fth_image_bytes(&loader->dataset->info) * sizeof(float);

    choose_sizes(loader);
    FTH_TRY(fth_allocate((size_t)loader->slot_count, sizeof *loader->slots, &loader->slots));
    for (int64_t i = 0; i < loader->slot_count; i++) {
        fth_loader_slot *slot = &loader->slots[i];
        if (options->recipes)
            FTH_TRY(fth_allocate((size_t)options->batch, sizeof *slot->recipes, &slot->recipes));
        else
            FTH_TRY(fth_allocate_aligned(images_bytes, &slot->images));
        FTH_TRY(fth_allocate((size_t)options->batch, sizeof *slot->labels, &slot->labels));
    }
    FTH_TRY(fth_allocate((size_t)options->threads, sizeof *loader->threads, &loader->threads));
    FTH_TRY(start_threads(loader));

out:
    return status;
}

/* `session`: of somebody else; NULL: one of its own, if there are any. */
static fth_status open_loader(const fth_dataset *dataset, const fth_loader_options *options, void *session,
                              fth_loader **loader)
{
    fth_status status = FTH_OK;
    fth_loader *opened = NULL;

    FTH_TRY(fth_loader_check(dataset, options));
    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    pthread_mutex_init(&opened->mutex, NULL);
    pthread_cond_init(&opened->may_fill, NULL);
    pthread_cond_init(&opened->may_take, NULL);
    opened->dataset = dataset;
    opened->options = *options;
    opened->session = session;
    opened->borrowed = session != NULL;
    if (dataset->provided && !session)
        FTH_TRY(fth_provided_open_session(dataset, &opened->options, &opened->finished, &opened->session));
    FTH_TRY(plan_batches(opened));
    FTH_REQUIRE(!options->by_index || !opened->finished, FTH_INVALID,
                "the cache has finished batches of %s for this job; samples by index need form=decoded or form=encoded",
                dataset->info.name);
    if (options->by_index)
        FTH_TRY(get_tools(opened, &opened->tools));
    else if (dataset->text)
        FTH_TRY(fth_text_feed_create(dataset, &opened->options, &opened->sampler, &opened->text));
    else if (!opened->finished)
        FTH_TRY(start_ring(opened));
    *loader = opened;
    opened = NULL;

out:
    fth_loader_free(opened);
    return status;
}

fth_status fth_loader_open(const fth_dataset *dataset, const fth_loader_options *options, fth_loader **loader)
{
    return open_loader(dataset, options, NULL, loader);
}

fth_status fth_loader_open_for_session(const fth_dataset *dataset, const fth_loader_options *options, void *session,
                                       fth_loader **loader)
{
    return open_loader(dataset, options, session, loader);
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
    if (loader->dataset && loader->dataset->provided && !loader->borrowed)
        fth_provided_close_session(loader->dataset, loader->session);
    free_tools(&loader->tools);
    fth_text_feed_free(loader->text);
    for (int64_t i = 0; loader->slots && i < loader->slot_count; i++) {
        free(loader->slots[i].images);
        free(loader->slots[i].recipes);
        free(loader->slots[i].labels);
    }
    pthread_cond_destroy(&loader->may_fill);
    pthread_cond_destroy(&loader->may_take);
    pthread_mutex_destroy(&loader->mutex);
    free(loader->slots);
    free(loader->threads);
    free(loader);
}

static const fth_batch *next_text(fth_loader *loader)
{
    const int64_t place = loader->next_to_take;
    if (place >= loader->end)
        return NULL;
    const fth_batch described = describe_batch(loader, place);
    loader->next_to_take++;
    return fth_text_feed_fill(loader->text, described.epoch + loader->epochs_later,
                              described.number % loader->batches_per_epoch * loader->options.batch, &described);
}

static fth_status fail_waiting(const fth_loader *loader, int64_t number)
{
    char why[1024];
    if (fth_dataset_explain(loader->dataset, why, sizeof why))
        return fth_fail(FTH_TIMEOUT, "timed out waiting for batch %lld: %s", (long long)number, why);
    return fth_fail(FTH_TIMEOUT, "timed out waiting for batch %lld from %s", (long long)number,
                    FTH_COUNTED(loader->thread_count, "loader thread"));
}

fth_status fth_loader_next(fth_loader *loader, fth_deadline deadline, const fth_batch **batch)
{
    fth_status status = FTH_OK;
    struct timespec until = fth_deadline_timespec(deadline);

    *batch = NULL;
    if (loader->text) {
        *batch = next_text(loader);
        return FTH_OK;
    }
    if (loader->finished)
        return fth_provided_next(loader->dataset, loader->session, deadline, batch);
    pthread_mutex_lock(&loader->mutex);
    if (loader->lent) {
        loader->lent = false;
        loader->released++;
        /* Waking a thread costs more than filling a small batch: in a deep ring it is done for half
         * of it at once. What is taken next lies in the other half, filled or being filled. */
        int64_t ahead = loader->next_to_fill - loader->released;
        if (loader->piece < loader->options.batch)
            pthread_cond_broadcast(&loader->may_fill);
        else if (loader->slot_count < SHALLOW_RING_SLOTS)
            pthread_cond_signal(&loader->may_fill); /* one slot: work for one thread */
        else if (ahead <= loader->slot_count / 2)
            pthread_cond_broadcast(&loader->may_fill);
    }
    const int64_t place = loader->next_to_take;
    if (place >= loader->end)
        goto out;
    fth_loader_slot *slot = &loader->slots[place % loader->slot_count];
    /* A slot freed just now is not ready until filled again; a failure further on leaves earlier
     * batches to come. */
    while (!slot->ready)
        if (pthread_cond_clockwait(&loader->may_take, &loader->mutex, CLOCK_MONOTONIC, &until) != 0 && !slot->ready) {
            status = fail_waiting(loader, batch_number(loader, place));
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
    if (*batch && loader->session && !loader->borrowed)
        fth_provided_moved(loader->dataset, loader->session, batch_number(loader, place + 1));
    return status;
}

fth_status fth_loader_get(fth_loader *loader, int64_t number, int64_t sample, float *image, int32_t *label)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = fth_dataset_get_info(loader->dataset);
    const int64_t count = info->count[loader->options.split];

    FTH_REQUIRE(loader->options.by_index && number >= 0 && sample >= 0 && sample < count, FTH_INVALID,
                "sample %lld of batch %lld: %s has samples 0 to %lld", (long long)sample, (long long)number, info->name,
                (long long)count - 1);
    fth_provided_moved(loader->dataset, loader->session, number);
    FTH_TRY(load_sample(loader, &loader->tools, number / loader->batches_per_epoch + loader->epochs_later, sample,
                        image, label));

out:
    return status == FTH_OK ? status : fth_fail_within(status, "sample %lld of %s", (long long)sample, info->name);
}
