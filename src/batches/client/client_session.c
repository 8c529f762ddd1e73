/* See client_session.h.
 *
 * Finished batches: batch n is looked up by its id. While the cache does not have it, a loader over
 * the same data set finishes samples that are read directly; it is closed when the cache has the
 * next batch again. */
#include "batches/client/client_session.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batches/payload.h"

#define REGISTER_S       10.0
#define REGISTER_AGAIN_S 1.0 /* if registering later is possible */
#define STEP_S           0.25

/* Batches that a loader starts before they are requested. Some of them are unused when a run
 * ends. */
enum { LOADED_AHEAD = 4 };

struct fth_session {
    fth_session_options how;
    fth_loader_options options;
    fth_job_spec spec;
    fth_cache_source *source;
    int64_t set_count;
    int64_t passed;            /* batches before it are counted; -1: none yet */
    atomic_ullong images_read; /* directly */
    atomic_bool directly;      /* the last sample was read directly */

    pthread_mutex_t spare_mutex; /* guards the next member */
    fth_cache_source *spare;     /* for samples outside the job's order; NULL: not needed so far */

    /* For finished batches; used by the loader's thread only. */
    fth_batch_plan plan; /* of the last batch */
    int64_t next, end;   /* numbers */
    fth_batch batch;
    int32_t *labels;
    fth_item_lease lease;
    char *text;          /* strings of the leased entry */
    fth_loader *loader;  /* reads directly; or NULL */
    int64_t loader_next; /* number of its next batch */
};

/* ---- opening ---- */

static fth_status make_spec(const fth_session_options *how, const fth_loader_options *options, fth_job_spec *spec)
{
    fth_status status = FTH_OK;
    const fth_batches_address *address = how->address;
    char *preparation = fth_dataset_describe_preparation(how->dataset, options->split);

    *spec = (fth_job_spec){.split = options->split,
                           .augmentation = options->augmentation,
                           .batch = options->batch,
                           .shuffle = options->shuffle,
                           .sharing = address->sharing,
                           .order_seed = options->seed,
                           .augment_seed = options->seed,
                           .share = options->share,
                           .part = options->part,
                           .rotation = options->shuffle ? how->rotation : 0,
                           .format = how->format};
    if (options->share.of > 1 || options->part.of > 1) { /* processes that register separately must agree */
        spec->rotation = spec->rotation < 0 ? 0 : spec->rotation;
        spec->format = spec->format == FTH_FORMAT_AUTO ? FTH_FORMAT_BATCHES : spec->format;
    }
    FTH_REQUIRE(preparation, FTH_NO_MEMORY, "no memory for a transform");
    FTH_REQUIRE(strlen(preparation) < sizeof spec->transform, FTH_INVALID,
                "the transform is too long for the batch cache: %s", preparation);
    snprintf(spec->transform, sizeof spec->transform, "%s", preparation);
    snprintf(spec->data, sizeof spec->data, "%s", address->name);
    snprintf(spec->version, sizeof spec->version, "%s", how->version);

out:
    free(preparation);
    return status;
}

/* Uses the job's earlier registration, by this process or another, if it is the same job. */
static bool take_known(const fth_session_options *how, fth_job_spec *spec)
{
    if (!how->known)
        return false;
    const fth_job_spec *known = &how->known->spec;
    fth_job_spec same = *spec;
    if (spec->sharing != FTH_SHARE_NONE)
        same.order_seed = known->order_seed;
    if (spec->sharing == FTH_SHARE_ALL)
        same.augment_seed = known->augment_seed;
    if (known->sharing != spec->sharing || !fth_job_has_same_batches(&same, known) ||
        (spec->format != FTH_FORMAT_AUTO && spec->format != known->format) ||
        (spec->rotation >= 0 && spec->rotation != known->rotation))
        return false;
    *spec = *known;
    return true;
}

/* True if nothing is left for the coordinator to choose, so that the session can begin without
 * it. */
static bool complete_spec(const fth_session_options *how, fth_job_spec *spec)
{
    const bool shares = spec->sharing != FTH_SHARE_NONE,
               known = how->known && how->known->spec.sharing == spec->sharing;
    if (shares && known)
        spec->order_seed = how->known->spec.order_seed;
    if (spec->sharing == FTH_SHARE_ALL && known)
        spec->augment_seed = how->known->spec.augment_seed;
    return spec->format != FTH_FORMAT_AUTO && spec->rotation >= 0 && (!shares || known);
}

fth_status fth_session_open(const fth_session_options *how, fth_loader_options *options, fth_session **session)
{
    fth_status status = FTH_OK;
    fth_session *opened = NULL;
    const fth_dataset_info *info = fth_dataset_get_info(how->dataset);

    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    pthread_mutex_init(&opened->spare_mutex, NULL);
    opened->how = *how;
    FTH_TRY(make_spec(how, options, &opened->spec));
    const bool known = take_known(how, &opened->spec), complete = known || complete_spec(how, &opened->spec);
    const fth_registration_time time = !complete   ? FTH_REGISTER_NOW
                                       : how->away ? FTH_REGISTER_LATER
                                                   : FTH_REGISTER_NOW_OR_LATER;
    FTH_TRY(fth_cache_source_open(how->address, &opened->spec, known ? how->known->job : 0, time,
                                  fth_deadline_in(complete ? REGISTER_AGAIN_S : REGISTER_S), &opened->source));
    options->own_order = true;
    options->order_seed = opened->spec.order_seed;
    options->seed = opened->spec.augment_seed;
    options->rotation = opened->spec.rotation;
    opened->options = *options;
    if (opened->options.stride == 0)
        opened->options.stride = 1;
    opened->set_count = info->count[options->split];
    opened->next = opened->loader_next = options->first_batch;
    opened->end = options->batch_limit > 0 ? options->batch_limit : INT64_MAX;
    opened->passed = -1;
    FTH_TRY(fth_allocate((size_t)options->batch, sizeof *opened->plan.samples, &opened->plan.samples));
    FTH_TRY(fth_allocate((size_t)options->batch, sizeof *opened->labels, &opened->labels));
    if (opened->next < opened->end) /* else it needs no batches, and only keeps the job alive */
        fth_session_moved(opened, options->first_batch);
    *session = opened;
    opened = NULL;

out:
    if (status == FTH_PEER_LOST || status == FTH_TIMEOUT)
        status = fth_fail_within(status, "cannot register with the batch cache at %s:%d", how->address->host,
                                 how->address->port);
    fth_session_close(opened);
    return status;
}

void fth_session_close(fth_session *session)
{
    if (!session)
        return;
    fth_loader_free(session->loader);
    fth_item_lease_release(&session->lease);
    fth_cache_source_close(session->source);
    fth_cache_source_close(session->spare);
    pthread_mutex_destroy(&session->spare_mutex);
    free(session->plan.samples);
    free(session->labels);
    free(session->text);
    free(session);
}

const fth_job_spec *fth_session_spec(const fth_session *session)
{
    return &session->spec;
}

fth_cache_source *fth_session_source(const fth_session *session)
{
    return session->source;
}

uint64_t fth_session_images_read(const fth_session *session)
{
    return atomic_load(&session->images_read);
}

/* Counts the batches taken since the last position. */
static void count_samples(fth_session *session, int64_t next)
{
    const fth_job_spec *spec = &session->spec;
    const int64_t per_epoch = fth_job_batches_per_epoch(spec, session->set_count),
                  samples = fth_share_samples(spec->share, session->set_count);
    int64_t taken = 0, at = session->passed;
    for (; at >= 0 && at < next && !session->options.by_index; at += session->options.stride) {
        int64_t left = samples - at % per_epoch * spec->batch;
        taken += fth_part_samples(spec->part, left < spec->batch ? left : spec->batch);
    }
    session->passed = next;
    if (taken > 0)
        fth_cache_source_count(session->source, FTH_SLOT_SAMPLES, (uint64_t)taken);
}

void fth_session_moved(fth_session *session, int64_t next)
{
    const fth_loader_options *options = &session->options;
    int64_t end = options->batch_limit;
    count_samples(session, next);
    if (end == 0 && options->expected_end > 0 && next <= options->expected_end)
        end = options->expected_end + (session->spec.format == FTH_FORMAT_BATCHES ? 0 : LOADED_AHEAD * options->stride);
    fth_cache_source_set_position(session->source, next, options->stride, end);
}

/* ---- samples ---- */

/* Where a raw sample was lent from: the cache, or the fallback reader. */
typedef struct sample_lease {
    fth_item_lease lease;
    char *text;
    fth_fallback_reader *fallback;
    fth_sample_reader *reader;
} sample_lease;

void fth_sample_give_back(fth_raw_sample *raw)
{
    sample_lease *lent = raw->lease;
    if (!lent)
        return;
    fth_item_lease_release(&lent->lease);
    if (lent->reader)
        fth_fallback_reader_give_back(lent->fallback, lent->reader);
    free(lent->text);
    free(lent);
    *raw = (fth_raw_sample){0};
}

fth_status fth_sample_lend_directly(fth_fallback_reader *fallback, bool decoded, fth_split split, int64_t sample,
                                    fth_deadline deadline, fth_raw_sample *raw, double *decode_s)
{
    sample_lease *lent = NULL;
    fth_status status = fth_allocate(1, sizeof *lent, &lent);
    if (status != FTH_OK)
        return status;
    *lent = (sample_lease){.fallback = fallback};
    status = fth_fallback_reader_take(fallback, decoded, split, sample, deadline, raw, &lent->reader, decode_s);
    raw->lease = lent;
    if (status == FTH_PEER_LOST || status == FTH_IO) /* the bucket may be back in a moment */
        status = fth_fail(FTH_TIMEOUT, "%s", fth_error_message());
    if (status != FTH_OK && status != FTH_CORRUPT)
        fth_sample_give_back(raw);
    return status;
}

/* Reads a leased entry. FTH_CORRUPT, with the sample's name: the sample cannot be read.
 * FTH_INVALID: the entry is something else. */
static fth_status read_sample(const fth_item_lease *lease, bool decoded, fth_raw_sample *raw, char **text)
{
    fth_sample_payload payload;
    if (fth_sample_entry_read(lease->pin.entry, lease->pin.size_bytes, &payload, text) != FTH_OK ||
        (!payload.error && (payload.kind == FTH_ITEM_DECODED) != decoded && !(payload.width > 0)))
        return FTH_INVALID;
    *raw = (fth_raw_sample){.bytes = payload.bytes,
                            .size_bytes = payload.size_bytes,
                            .width = payload.width,
                            .height = payload.height,
                            .channels = payload.channels,
                            .planar = payload.planar,
                            .label = payload.label,
                            .name = payload.name};
    return payload.error ? fth_fail(FTH_CORRUPT, "%s", payload.error) : FTH_OK;
}

static fth_status take_directly(fth_session *session, int64_t sample, fth_deadline deadline, fth_raw_sample *raw)
{
    const double began_s = fth_clock_seconds();
    double decode_s = 0;
    fth_status status = fth_sample_lend_directly(session->how.fallback, session->spec.format == FTH_FORMAT_DECODED,
                                                 session->options.split, sample, deadline, raw, &decode_s);
    if (status == FTH_OK || status == FTH_CORRUPT) {
        atomic_fetch_add(&session->images_read, 1);
        fth_cache_source_count(session->source, FTH_SLOT_FETCH_NS,
                               (uint64_t)((fth_clock_seconds() - began_s - decode_s) * 1e9));
        fth_cache_source_count(session->source, FTH_SLOT_DECODE_NS, (uint64_t)(decode_s * 1e9));
    }
    return status;
}

/* From the cache: FTH_OK or FTH_CORRUPT with a lease; or *answer says what to do instead. */
static fth_status take_cached(fth_session *session, fth_cache_source *source, int64_t sample, fth_deadline deadline,
                              fth_raw_sample *raw, fth_cache_answer *answer)
{
    fth_status status = FTH_OK;
    sample_lease *lent = NULL;
    const bool decoded = session->spec.format == FTH_FORMAT_DECODED;
    fth_item_id id = fth_job_sample_id(&session->spec, decoded ? FTH_ITEM_DECODED : FTH_ITEM_ENCODED, sample);

    FTH_TRY(fth_allocate(1, sizeof *lent, &lent));
    *answer = fth_cache_source_get(source, id, deadline, &lent->lease);
    if (*answer == FTH_CACHE_LEASED) {
        status = read_sample(&lent->lease, decoded, raw, &lent->text);
        if (status == FTH_INVALID) {
            fth_cache_source_report_lost(source, id);
            *answer = FTH_CACHE_MISSED;
            status = FTH_OK;
        } else {
            raw->lease = lent;
            lent = NULL;
        }
    }
    fth_raw_sample unused = {.lease = lent};
    fth_sample_give_back(&unused);

out:
    return status;
}

/* A replacement for a bad sample is not in the job's window, so no prefetcher would make it. It is
 * requested as the next item of another job, which reads the samples one by one. */
static fth_status take_unplanned(fth_session *session, int64_t sample, fth_deadline deadline, fth_raw_sample *raw,
                                 fth_cache_answer *answer)
{
    fth_status status = FTH_OK;
    fth_job_spec spec = session->spec;
    spec.batch = 1;
    spec.shuffle = false;
    spec.rotation = 0;
    spec.share = spec.part = (fth_share){0};
    pthread_mutex_lock(&session->spare_mutex);
    if (!session->spare)
        status = fth_cache_source_open(session->how.address, &spec, 0, FTH_REGISTER_NOW, deadline, &session->spare);
    if (status == FTH_OK) {
        fth_cache_source_set_position(session->spare, sample, 1, sample + 1);
        status = take_cached(session, session->spare, sample, deadline, raw, answer);
    } else {
        *answer = FTH_CACHE_MISSED;
        status = FTH_OK;
    }
    pthread_mutex_unlock(&session->spare_mutex);
    return status;
}

size_t fth_session_expect(fth_session *session, const int64_t *samples, size_t count)
{
    if (!atomic_load_explicit(&session->directly, memory_order_relaxed))
        return 0;
    return fth_fallback_reader_expect(session->how.fallback, session->options.split, samples, count);
}

void fth_session_explain(const fth_session *session, char *text, size_t size)
{
    char cause[480], fallback[768];
    fth_status failure = fth_cache_source_explain(session->source, cause, sizeof cause);
    fth_fallback_reader_explain(session->how.fallback, fallback, sizeof fallback);
    snprintf(text, size, "the batch cache at %s:%d %s%s, and %s", session->how.address->host,
             session->how.address->port, failure == FTH_OK ? "does not give it" : "could not make it: ", cause,
             fallback);
}

/* Neither the cache nor this process can read it, for good (access denied): the job fails with both
 * reasons. */
static bool is_hopeless(const fth_session *session)
{
    char cause[480];
    fth_status failure = fth_cache_source_explain(session->source, cause, sizeof cause);
    return (failure == FTH_INVALID || failure == FTH_UNSUPPORTED) &&
           fth_fallback_reader_is_refused(session->how.fallback);
}

static fth_status fail_hopeless(const fth_session *session)
{
    char text[1024];
    fth_session_explain(session, text, sizeof text);
    return fth_fail(FTH_IO, "%s", text);
}

static fth_status take(fth_session *session, int64_t sample, fth_deadline deadline, fth_raw_sample *raw)
{
    fth_cache_answer answer = FTH_CACHE_MISSED;
    if (session->spec.format != FTH_FORMAT_BATCHES) {
        fth_status status = raw->unplanned ? take_unplanned(session, sample, deadline, raw, &answer)
                                           : take_cached(session, session->source, sample, deadline, raw, &answer);
        if (answer == FTH_CACHE_LEASED)
            atomic_store_explicit(&session->directly, false, memory_order_relaxed);
        if (status != FTH_OK || answer == FTH_CACHE_LEASED)
            return status;
        if (answer == FTH_CACHE_PENDING)
            return fth_fail(FTH_TIMEOUT, "the batch cache at %s:%d has not made sample %lld yet",
                            session->how.address->host, session->how.address->port, (long long)sample);
    }
    atomic_store_explicit(&session->directly, true, memory_order_relaxed);
    fth_status status = take_directly(session, sample, deadline, raw);
    if (status == FTH_TIMEOUT && answer == FTH_CACHE_FAILED && is_hopeless(session))
        return fail_hopeless(session);
    if ((status == FTH_OK || status == FTH_CORRUPT) && session->spec.format != FTH_FORMAT_BATCHES)
        fth_cache_source_count(session->source, FTH_SLOT_MISSES, 1);
    return status;
}

fth_status fth_session_take(fth_session *session, int64_t sample, fth_deadline deadline, fth_raw_sample *raw)
{
    fth_status status = take(session, sample, deadline, raw);
    if (status == FTH_OK && session->options.by_index) /* it belongs to no batch that is counted */
        fth_cache_source_count(session->source, FTH_SLOT_SAMPLES, 1);
    return status;
}

/* ---- finished batches ---- */

/* Notes the samples of the batch that were replaced because they cannot be read: [[sample, name,
 * cause], ...]. */
static fth_status note_bad_samples(const fth_session *session, const char *bad)
{
    fth_status status = FTH_OK;
    json_t *list = bad ? json_loads(bad, 0, NULL) : NULL, *row;
    size_t i;
    json_array_foreach(list, i, row)
    {
        const char *name = json_string_value(json_array_get(row, 1)),
                   *cause = json_string_value(json_array_get(row, 2));
        const json_t *sample = json_array_get(row, 0);
        if (status == FTH_OK && json_is_integer(sample))
            status =
                fth_dataset_note_bad_sample(session->how.dataset, session->options.split, json_integer_value(sample),
                                            name ? name : "a sample", cause ? cause : "unreadable");
    }
    json_decref(list);
    return status;
}

/* Makes the leased entry the current batch. FTH_INVALID: it is not that batch. */
static fth_status read_batch(fth_session *session)
{
    const fth_dataset_info *info = fth_dataset_get_info(session->how.dataset);
    const fth_batch_plan *plan = &session->plan;
    fth_batch_payload payload;
    char *text = NULL;
    if (fth_batch_entry_read(session->lease.pin.entry, session->lease.pin.size_bytes, &payload, &text) != FTH_OK)
        return FTH_INVALID;
    free(session->text);
    session->text = text;
    if (payload.count != plan->count || payload.channels != info->channels || payload.height != info->height ||
        payload.width != info->width)
        return FTH_INVALID;
    for (int64_t i = 0; i < payload.count; i++) {
        if (payload.labels[i] < 0 || payload.labels[i] >= info->classes)
            return FTH_INVALID;
        session->labels[i] = (int32_t)payload.labels[i];
    }
    session->batch = (fth_batch){.images = payload.images,
                                 .labels = session->labels,
                                 .count = plan->count,
                                 .whole = plan->whole,
                                 .first = plan->first,
                                 .number = plan->number,
                                 .epoch = plan->epoch};
    return note_bad_samples(session, payload.bad);
}

/* Opens the fallback loader at the batch that is needed now. */
static fth_status open_loader(fth_session *session)
{
    if (session->loader && session->loader_next == session->next)
        return FTH_OK;
    fth_loader_free(session->loader);
    session->loader = NULL;
    fth_loader_options options = session->options;
    options.first_batch = session->loader_next = session->next;
    return fth_loader_open_for_session(session->how.dataset, &options, session, &session->loader);
}

static fth_status read_directly(fth_session *session, fth_deadline deadline, const fth_batch **batch)
{
    fth_status status = open_loader(session);
    if (status == FTH_OK)
        status = fth_loader_next(session->loader, deadline, batch);
    if (status == FTH_OK && *batch) {
        session->loader_next += session->options.stride;
        fth_cache_source_count(session->source, FTH_SLOT_MISSES, 1);
        fth_cache_source_count(session->source, FTH_SLOT_DECODE_NS, (uint64_t)((*batch)->decode_seconds * 1e9));
    }
    return status;
}

/* Looks in the cache once and, if the batch is not there, reads directly for one step. *directly:
 * the batch is being read directly, and the cache, which may come and go meanwhile, is not waited
 * for again. FTH_TIMEOUT: neither has it yet. */
static fth_status try_next(fth_session *session, fth_item_id id, fth_deadline deadline, bool *directly,
                           const fth_batch **batch)
{
    fth_cache_answer answer = FTH_CACHE_MISSED;
    if (!*directly)
        answer = fth_cache_source_get(session->source, id, deadline, &session->lease);
    else if (fth_cache_source_look(session->source, id, &session->lease))
        answer = FTH_CACHE_LEASED;
    if (answer == FTH_CACHE_LEASED) {
        fth_status status = read_batch(session);
        if (status != FTH_INVALID) {
            fth_loader_free(session->loader);
            session->loader = NULL;
            *batch = &session->batch;
            return status;
        }
        fth_item_lease_release(&session->lease);
        fth_cache_source_report_lost(session->source, id);
        answer = FTH_CACHE_MISSED;
    }
    if (answer == FTH_CACHE_PENDING)
        return fth_fail(FTH_TIMEOUT, "the batch cache at %s:%d has not made batch %lld yet", session->how.address->host,
                        session->how.address->port, (long long)session->next);
    *directly = true;
    fth_status status =
        read_directly(session, fth_deadline_in(fmin(fth_deadline_left_seconds(deadline), STEP_S)), batch);
    if (status == FTH_TIMEOUT && is_hopeless(session))
        return fail_hopeless(session);
    if (status == FTH_TIMEOUT) {
        char why[1024];
        fth_session_explain(session, why, sizeof why);
        fth_set_error("batch %lld: %s", (long long)session->next, why);
    }
    return status;
}

fth_status fth_session_next(fth_session *session, fth_deadline deadline, const fth_batch **batch)
{
    fth_status status;
    *batch = NULL;
    fth_item_lease_release(&session->lease);
    if (session->next >= session->end)
        return FTH_OK;
    fth_job_plan_batch(&session->spec, session->set_count, session->next, &session->plan);
    fth_item_id id = fth_job_batch_id(&session->spec, &session->plan);
    if (session->next == session->options.expected_end) /* the run continues past its expected end */
        fth_cache_source_set_position(session->source, session->next, session->options.stride,
                                      session->options.batch_limit);
    if (session->plan.count == 0) { /* an empty part */
        session->batch = (fth_batch){.labels = session->labels,
                                     .whole = session->plan.whole,
                                     .first = session->plan.first,
                                     .number = session->plan.number,
                                     .epoch = session->plan.epoch};
        *batch = &session->batch;
        status = FTH_OK;
    } else {
        bool directly = false;
        do
            status = try_next(session, id, deadline, &directly, batch);
        while (status == FTH_TIMEOUT && !fth_deadline_passed(deadline));
    }
    if (status == FTH_OK) {
        session->next += session->options.stride;
        fth_session_moved(session, session->next);
    }
    return status;
}

bool fth_session_take_lease(fth_session *session, const fth_batch *batch, fth_item_lease *lease)
{
    if (batch != &session->batch || !session->lease.connection)
        return false;
    *lease = session->lease;
    session->lease = (fth_item_lease){0};
    return true;
}
