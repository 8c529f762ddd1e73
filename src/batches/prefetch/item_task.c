/* See item_task.h.
 *
 *     fth_prefetch_tools   a thread's decoder and buffers (fth_sample_reader)
 *     fth_item_task        an item in progress: begin -> pieces, by several threads -> end
 *
 * The entry's memory belongs to the cache from the beginning. A piece writes only its own images
 * and labels; their totals are guarded by the task's mutex. */
#include "batches/prefetch/item_task.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/printable.h"
#include "batches/payload.h"
#include "data/source/provider.h"

/* A store that keeps failing is given up for an order after this long: the job may reach it, and
 * another try uses what has arrived. */
#define FAILING_S 3.0

enum { PIECE_SAMPLES = 8 };

/* ---- threads ---- */

struct fth_prefetch_tools {
    fth_prefetch_set *set;
    const atomic_bool *stop;
    fth_sample_reader *reader;
};

fth_status fth_prefetch_tools_create(fth_prefetch_set *set, const atomic_bool *stop, fth_prefetch_tools **thread)
{
    fth_status status = fth_allocate(1, sizeof **thread, thread);
    if (status != FTH_OK)
        return status;
    (*thread)->set = set;
    (*thread)->stop = stop;
    status = fth_sample_reader_create(fth_prefetch_set_dataset(set), &(*thread)->reader);
    if (status != FTH_OK) {
        fth_prefetch_tools_free(*thread);
        *thread = NULL;
    }
    return status;
}

void fth_prefetch_tools_free(fth_prefetch_tools *thread)
{
    if (!thread)
        return;
    fth_sample_reader_free(thread->reader);
    free(thread);
}

fth_prefetch_set *fth_prefetch_tools_set(const fth_prefetch_tools *thread)
{
    return thread->set;
}

/* ---- items in progress ---- */

struct fth_item_task {
    fth_prefetch_set *set;
    fth_order order;
    fth_cache *cache;
    fth_deadline deadline;

    void *entry; /* the cache's memory; NULL: none yet */
    uint64_t entry_bytes;
    float *images;
    int64_t *labels;
    int64_t image_size;  /* floats */
    fth_batch_plan plan; /* for a sample only count, which is 1 */

    atomic_llong next;       /* first sample of the batch without a thread */
    atomic_bool look_around; /* the cache may have encoded samples of the batch */

    pthread_mutex_t mutex; /* guards the members below */
    fth_prefetch_result sum;
    json_t *bad; /* [[sample, name, cause], ...] */
    fth_status status;
    char message[768];
};

static void free_task(fth_item_task *task)
{
    if (!task)
        return;
    if (task->entry)
        fth_cache_cancel(task->cache, task->entry);
    free(task->plan.samples);
    json_decref(task->bad);
    pthread_mutex_destroy(&task->mutex);
    free(task);
}

static fth_status check_order(const fth_prefetch_set *set, const fth_order *order)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = fth_dataset_get_info(fth_prefetch_set_dataset(set));
    int64_t count = info->count[order->spec.split];

    /* FTH_IO, since other prefetchers may have that version. */
    FTH_REQUIRE(strcmp(order->spec.version, fth_prefetch_set_version(set)) == 0, FTH_IO,
                "%s has version %.12s here, and %.12s is asked for: the data has changed, or is other data", info->name,
                fth_prefetch_set_version(set), order->spec.version);
    if (order->kind == FTH_ITEM_BATCH)
        FTH_TRY(fth_job_spec_check(&order->spec, count));
    else
        FTH_REQUIRE(order->number < count, FTH_INVALID, "%s: there is no sample %" PRId64 " among %" PRId64, info->name,
                    order->number, count);
    FTH_REQUIRE(order->number >= 0 && order->spec.rotation >= 0, FTH_INVALID,
                "incomplete order: number and rotation must be set");

out:
    return status;
}

/* Allocates the batch, and finds the place of its images. */
static fth_status begin_batch(fth_item_task *task, fth_sample_reader *reader)
{
    fth_status status = FTH_OK;
    const fth_job_spec *spec = &task->order.spec;
    const fth_dataset_info *info = fth_dataset_get_info(fth_prefetch_set_dataset(task->set));
    int shape[3];
    char id[FTH_ITEM_ID_TEXT];

    FTH_TRY(fth_sample_reader_shape(reader, spec->transform, shape));
    FTH_TRY(fth_allocate((size_t)spec->batch, sizeof *task->plan.samples, &task->plan.samples));
    fth_job_plan_batch(spec, info->count[spec->split], task->order.number, &task->plan);
    fth_item_id_format(task->order.id, id);
    FTH_REQUIRE(fth_item_id_equal(task->order.id, fth_job_batch_id(spec, &task->plan)), FTH_INVALID,
                "order: item %s is not batch %" PRId64, id, task->order.number);
    const fth_batch_payload payload = {.count = task->plan.count,
                                       .number = task->plan.number,
                                       .epoch = task->plan.epoch,
                                       .channels = shape[0],
                                       .height = shape[1],
                                       .width = shape[2]};
    task->image_size = (int64_t)shape[0] * shape[1] * shape[2];
    task->entry_bytes = fth_batch_entry_bytes(&payload);
    FTH_REQUIRE(task->entry_bytes > 0 && payload.count > 0, FTH_INVALID,
                "batch %" PRId64 " of %" PRId64 " images of %d × %d × %d is empty, or far too large", task->plan.number,
                task->plan.count, shape[0], shape[1], shape[2]);
    FTH_TRY(fth_cache_begin(task->cache, task->entry_bytes, &task->entry));
    FTH_TRY(fth_batch_entry_begin(&payload, task->entry, task->entry_bytes, &task->images, &task->labels));
    fth_sample_reader_expect(reader, spec->split, task->plan.samples, task->plan.count, task->order.needed_s);

out:
    return status;
}

fth_status fth_item_task_begin(fth_prefetch_tools *thread, const fth_order *order, fth_cache *cache,
                               fth_deadline deadline, fth_item_task **task)
{
    fth_status status = FTH_OK;
    fth_item_task *begun = NULL;

    FTH_TRY(check_order(thread->set, order));
    FTH_TRY(fth_allocate(1, sizeof *begun, &begun));
    pthread_mutex_init(&begun->mutex, NULL);
    begun->set = thread->set;
    begun->order = *order;
    begun->cache = cache;
    begun->deadline = deadline;
    begun->plan.count = 1;
    atomic_init(&begun->look_around, fth_prefetch_set_has_files(thread->set));
    if (order->kind == FTH_ITEM_BATCH)
        FTH_TRY(begin_batch(begun, thread->reader));
    else
        fth_sample_reader_expect(thread->reader, order->spec.split, &order->number, 1, order->needed_s);
    *task = begun;
    begun = NULL;

out:
    free_task(begun);
    return status;
}

/* ---- pieces ---- */

/* Some samples of a batch, made by one thread, and their cost. */
typedef struct batch_piece {
    fth_item_task *task;
    fth_prefetch_tools *thread;
    int64_t begin, end;
    bool done[PIECE_SAMPLES]; /* made from the cache */
    fth_prefetch_result cost;
} batch_piece;

static void add_cost(fth_item_task *task, const fth_prefetch_result *cost)
{
    pthread_mutex_lock(&task->mutex);
    task->sum.fetch_s += cost->fetch_s;
    task->sum.decode_s += cost->decode_s;
    task->sum.transform_s += cost->transform_s;
    task->sum.fetched_bytes += cost->fetched_bytes;
    task->sum.samples += cost->samples;
    task->sum.decoded += cost->decoded;
    pthread_mutex_unlock(&task->mutex);
}

/* With the mutex held. */
static bool is_listed(const fth_item_task *task, int64_t sample)
{
    for (size_t i = 0; i < json_array_size(task->bad); i++)
        if (json_integer_value(json_array_get(json_array_get(task->bad, i), 0)) == sample)
            return true;
    return false;
}

/* Adds an unusable sample. A batch lists each once, as far as there is room. */
static void add_bad(fth_item_task *task, const fth_bad_sample *bad)
{
    pthread_mutex_lock(&task->mutex);
    if (is_listed(task, bad->sample))
        goto out;
    if (task->sum.bad++ == 0) {
        fth_printable_copy(task->sum.bad_name, sizeof task->sum.bad_name, bad->name);
        fth_printable_copy(task->sum.bad_reason, sizeof task->sum.bad_reason, bad->reason);
    }
    if (!task->bad)
        task->bad = json_array();
    if (json_array_size(task->bad) < (size_t)task->plan.count)
        json_array_append_new(task->bad, json_pack("[I, s, s]", (json_int_t)bad->sample, bad->name, bad->reason));

out:
    pthread_mutex_unlock(&task->mutex);
}

static void fail_task(fth_item_task *task, fth_status status)
{
    pthread_mutex_lock(&task->mutex);
    if (task->status == FTH_OK) {
        task->status = status;
        snprintf(task->message, sizeof task->message, "%s", fth_error_message());
    }
    pthread_mutex_unlock(&task->mutex);
    atomic_store(&task->next, task->plan.count); /* the other pieces are useless now */
}

static fth_status finish_sample(batch_piece *piece, int64_t place, const fth_raw_sample *raw)
{
    const fth_item_task *task = piece->task;
    const fth_job_spec *spec = &task->order.spec;
    const fth_finish finish = {.preparation = spec->transform,
                               .augmentation = spec->augmentation,
                               .seed = spec->augment_seed,
                               .epoch = task->plan.order_epoch,
                               .sample = task->plan.samples[place]};
    fth_sample_reader *reader = piece->thread->reader;
    double begin = fth_clock_seconds(), decoded = fth_sample_reader_decode_seconds(reader);
    fth_status status = fth_sample_reader_finish(reader, raw, &finish, task->images + place * task->image_size);
    decoded = fth_sample_reader_decode_seconds(reader) - decoded;
    piece->cost.decode_s += decoded;
    piece->cost.transform_s += fth_clock_seconds() - begin - decoded;
    if (status == FTH_OK) {
        task->labels[place] = raw->label;
        piece->cost.samples++;
        piece->cost.decoded += raw->width == 0;
    }
    return status;
}

static fth_status read_sample(batch_piece *piece, int64_t sample, fth_raw_sample *raw)
{
    double begin = fth_clock_seconds();
    const fth_patience patience = {
        .stop = piece->thread->stop, .deadline = piece->task->deadline, .failing_s = FAILING_S};
    fth_status status =
        fth_sample_reader_read(piece->thread->reader, piece->task->order.spec.split, sample, &patience, raw);
    piece->cost.fetch_s += fth_clock_seconds() - begin;
    if (status == FTH_OK && raw->width == 0)
        piece->cost.fetched_bytes += raw->size_bytes;
    return status;
}

/* Makes a sample of the batch, or the next one that can be read, as a loader does. */
static fth_status make_sample(batch_piece *piece, int64_t place)
{
    fth_item_task *task = piece->task;
    fth_prefetch_set *set = task->set;
    const fth_dataset_info *info = fth_dataset_get_info(fth_prefetch_set_dataset(set));
    fth_split split = task->order.spec.split;
    int64_t count = info->count[split], first = task->plan.samples[place];

    for (int64_t tries = 0; tries < count; tries++) {
        int64_t sample = (first + tries) % count;
        const fth_bad_sample *bad = fth_prefetch_set_find_bad(set, split, sample);
        if (!bad) {
            fth_raw_sample raw;
            fth_status status = read_sample(piece, sample, &raw);
            if (status == FTH_OK)
                status = finish_sample(piece, place, &raw);
            if (status == FTH_OK)
                return FTH_OK;
            if (status != FTH_CORRUPT || !fth_prefetch_set_has_files(set))
                return fth_fail_within(status, "batch %" PRId64 ", sample %" PRId64 " (%s) of %s", task->plan.number,
                                       sample, raw.name ? raw.name : "", info->name);
            status = fth_prefetch_set_note_bad(set, split, sample, raw.name, &bad);
            if (status != FTH_OK)
                return status;
        }
        add_bad(task, bad);
        if (fth_deadline_passed(task->deadline))
            return fth_fail(FTH_TIMEOUT, "batch %" PRId64 " of %s was not finished in time", task->plan.number,
                            info->name);
    }
    return fth_fail(FTH_CORRUPT, "%s: none of %s can be read", info->name, FTH_COUNTED(count, "image"));
}

/* ---- samples that the cache has ---- */

static void take_cached(void *context, size_t which, const void *entry, uint64_t size_bytes)
{
    batch_piece *piece = context;
    fth_sample_payload sample;
    char *text = NULL;
    if (fth_sample_entry_read(entry, size_bytes, &sample, &text) == FTH_OK && !sample.error) {
        const fth_raw_sample raw = {
            .bytes = sample.bytes, .size_bytes = sample.size_bytes, .label = sample.label, .name = sample.name};
        /* If it cannot be decoded it is read again, which gives the right name for the message. */
        piece->done[which] = finish_sample(piece, piece->begin + (int64_t)which, &raw) == FTH_OK;
    }
    free(text);
}

/* Uses encoded samples that other jobs have needed. If the first piece finds none, the others do
 * not look. */
static void use_cached(batch_piece *piece)
{
    fth_item_id ids[PIECE_SAMPLES] = {0};
    const fth_item_task *task = piece->task;
    size_t count = (size_t)(piece->end - piece->begin);
    bool found = false;
    for (size_t i = 0; i < count; i++)
        ids[i] = fth_job_sample_id(&task->order.spec, FTH_ITEM_ENCODED, task->plan.samples[piece->begin + (int64_t)i]);
    if (fth_cache_get(task->cache, ids, count, task->deadline, take_cached, piece) != FTH_OK)
        memset(piece->done, 0, sizeof piece->done); /* as if there were none */
    for (size_t i = 0; i < count; i++)
        found = found || piece->done[i];
    if (!found)
        atomic_store_explicit(&piece->task->look_around, false, memory_order_relaxed);
}

static fth_status make_piece(batch_piece *piece)
{
    fth_status status = FTH_OK;
    if (atomic_load_explicit(&piece->task->look_around, memory_order_relaxed))
        use_cached(piece);
    for (int64_t i = piece->begin; i < piece->end && status == FTH_OK; i++)
        if (!piece->done[i - piece->begin])
            status = make_sample(piece, i);
    return status;
}

/* ---- samples as items ---- */

/* Writes a sample as an entry, and keeps the receipt. */
static fth_status put_sample(fth_item_task *task, const fth_sample_payload *sample)
{
    fth_status status = FTH_OK;
    task->entry_bytes = fth_sample_entry_bytes(sample);
    FTH_REQUIRE(task->entry_bytes > 0, FTH_NO_MEMORY, "no memory for sample %" PRId64, task->order.number);
    FTH_TRY(fth_cache_begin(task->cache, task->entry_bytes, &task->entry));
    FTH_TRY(fth_sample_entry_write(sample, task->order.id, task->entry, &task->sum.receipt));

out:
    return status;
}

static fth_status make_item(batch_piece *piece)
{
    fth_status status = FTH_OK;
    fth_item_task *task = piece->task;
    const fth_order *order = &task->order;
    fth_sample_reader *reader = piece->thread->reader;
    fth_raw_sample raw;
    const fth_bad_sample *bad = NULL;

    status = read_sample(piece, order->number, &raw);
    if (status == FTH_OK && order->kind == FTH_ITEM_DECODED) {
        double decoded = fth_sample_reader_decode_seconds(reader);
        piece->cost.decoded = raw.width == 0;
        status = fth_sample_reader_decode(reader, &raw, &raw);
        piece->cost.decode_s += fth_sample_reader_decode_seconds(reader) - decoded;
    }
    fth_sample_payload payload = {.kind = order->kind,
                                  .bytes = raw.bytes,
                                  .size_bytes = raw.size_bytes,
                                  .width = raw.width,
                                  .height = raw.height,
                                  .channels = raw.channels,
                                  .planar = raw.planar,
                                  .label = raw.label,
                                  .name = raw.name};
    if (status == FTH_CORRUPT) { /* for good: all jobs must know */
        FTH_TRY(fth_prefetch_set_note_bad(task->set, order->spec.split, order->number, raw.name, &bad));
        add_bad(task, bad);
        payload.error = bad->reason;
    } else if (status != FTH_OK) {
        status = fth_fail_within(status, "sample %" PRId64 " (%s)", order->number, raw.name ? raw.name : "");
        goto out;
    }
    piece->cost.samples = 1;
    FTH_TRY(put_sample(task, &payload));

out:
    return status;
}

/* ---- whole items ---- */

int64_t fth_item_task_left(const fth_item_task *task)
{
    int64_t left = task->plan.count - atomic_load_explicit(&task->next, memory_order_relaxed);
    return left > 0 ? left : 0;
}

bool fth_item_task_run_piece(fth_item_task *task, fth_prefetch_tools *thread)
{
    int64_t begin = atomic_fetch_add(&task->next, PIECE_SAMPLES), count = task->plan.count;
    if (begin >= count)
        return false;
    batch_piece piece = {.task = task, .thread = thread, .begin = begin};
    piece.end = begin + PIECE_SAMPLES < count ? begin + PIECE_SAMPLES : count;
    fth_status status = FTH_OK;
    if (fth_deadline_passed(task->deadline))
        status = fth_fail(FTH_TIMEOUT, "item was not finished in time");
    else
        status = (task->order.kind == FTH_ITEM_BATCH ? make_piece : make_item)(&piece);
    add_cost(task, &piece.cost);
    if (status != FTH_OK)
        fail_task(task, status);
    return true;
}

void fth_item_task_stop(fth_item_task *task)
{
    fail_task(task, fth_fail(FTH_INTERRUPTED, "stopped"));
}

static fth_status seal_batch(fth_item_task *task)
{
    char *bad = task->bad ? json_dumps(task->bad, JSON_COMPACT) : NULL;
    fth_status status = fth_batch_entry_finish(task->entry, task->entry_bytes, task->order.id, bad, &task->sum.receipt);
    free(bad);
    return status;
}

fth_status fth_item_task_end(fth_item_task *task, fth_prefetch_result *result)
{
    fth_status status = FTH_OK;

    if (task->status != FTH_OK) {
        status = fth_fail(task->status, "%s", task->message);
        goto out;
    }
    if (task->order.kind == FTH_ITEM_BATCH)
        FTH_TRY(seal_batch(task));
    void *entry = task->entry;
    task->entry = NULL; /* owned by put */
    FTH_TRY(fth_cache_put(task->cache, entry, &task->sum.receipt));
    *result = task->sum;

out:
    free_task(task);
    return status;
}
