/* Choices for a new job, by the cost of items so far: the cache format, and where it begins. See
 * scheduler.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batches/scheduler/scheduler_internal.h"

/* Before anything is measured: a photograph of 500 × 375 pixels. */
static const fth_costs usual_costs = {
    .fetch_s = 0.001, .decode_s = 0.003, .transform_s = 0.001, .bytes = 562500, .fetched_bytes = 60000};
enum { UNKNOWN_SHARE = 8 }; /* of the cache: the assumed size of an item while none of its group is known */
static const double memory_bytes_per_s = 4e9; /* of one thread, reading what others wrote */
static const double memory_share = 0.8;       /* of the cache, for a whole set */

void fth_costs_add(fth_costs *costs, const fth_prefetch_result *result)
{
    if (result->samples <= 0)
        return;
    double samples = (double)result->samples;
    costs->samples += result->samples;
    double known = (double)costs->samples, weight = fmax(samples / known, fmin(samples / 4096, 1));
    costs->fetch_s += weight * (result->fetch_s / samples - costs->fetch_s);
    costs->decode_s += weight * (result->decode_s / samples - costs->decode_s);
    costs->transform_s += weight * (result->transform_s / samples - costs->transform_s);
    costs->bytes += weight * ((double)result->receipt.size_bytes / samples - costs->bytes);
    costs->fetched_bytes += weight * ((double)result->fetched_bytes / samples - costs->fetched_bytes);
}

uint64_t fth_scheduler_expected_bytes(const fth_scheduler *scheduler, const fth_known_item *item)
{
    const fth_item_group *group = fth_scheduler_group(scheduler, item->group);
    double most = (double)scheduler->options.memory_bytes;
    if (group->mean_bytes > 0)
        return (uint64_t)fmin(group->mean_bytes, most);
    return group->making > 0 ? scheduler->options.memory_bytes / UNKNOWN_SHARE : 0; /* the first item shows the size */
}

/* ---- cache format ---- */

static bool same_order(const fth_job_spec *a, const fth_job_spec *b)
{
    return strcmp(a->version, b->version) == 0 && a->split == b->split && a->shuffle == b->shuffle &&
           (!a->shuffle || a->order_seed == b->order_seed);
}

static bool is_active(const fth_scheduled_job *job)
{
    return !job->expired;
}

/* An active job with the same batches, apart from rotation; NULL: none. */
static const fth_scheduled_job *find_twin(const fth_scheduler *scheduler, const fth_job_spec *spec)
{
    fth_item_id sequence = fth_job_sequence_id(spec);
    for (size_t i = 0; i < scheduler->job_count; i++) {
        const fth_scheduled_job *job = scheduler->jobs[i];
        if (is_active(job) && fth_item_id_equal(fth_job_sequence_id(&job->spec), sequence))
            return job;
    }
    return NULL;
}

static int count_relatives(const fth_scheduler *scheduler, const fth_job_spec *spec)
{
    int count = 0;
    for (size_t i = 0; i < scheduler->job_count; i++)
        count += is_active(scheduler->jobs[i]) && same_order(&scheduler->jobs[i]->spec, spec);
    return count;
}

/* The cost of a sample, measured on any kind of item that contains samples. `measured`: not just
 * assumed. */
static fth_costs sample_costs(const fth_scheduler *scheduler, bool *measured)
{
    const fth_costs *encoded = &scheduler->costs[FTH_ITEM_ENCODED], *decoded = &scheduler->costs[FTH_ITEM_DECODED],
                    *batches = &scheduler->costs[FTH_ITEM_BATCH];
    const fth_costs *best = decoded->samples > 0 ? decoded : batches->samples > 0 ? batches : NULL;
    fth_costs costs = usual_costs;
    *measured = best != NULL;
    if (best) {
        costs.decode_s = best->decode_s;
        costs.fetch_s = best->fetch_s;
        costs.fetched_bytes = best->fetched_bytes;
    }
    if (encoded->samples > 0) {
        costs.fetch_s = encoded->fetch_s;
        costs.fetched_bytes = encoded->fetched_bytes;
    }
    if (decoded->samples > 0)
        costs.bytes = decoded->bytes;
    else if (best && costs.fetched_bytes > 0) /* in the usual proportion of photographs */
        costs.bytes = usual_costs.bytes / usual_costs.fetched_bytes * costs.fetched_bytes;
    return costs;
}

fth_cache_format fth_scheduler_choose_format(const fth_scheduler *scheduler, const fth_job_spec *spec,
                                             int64_t set_count, bool files, char why[256])
{
    bool measured;
    fth_costs costs = sample_costs(scheduler, &measured);
    const char *basis = measured ? "measured" : "assumed";
    double set_bytes = costs.bytes * (double)set_count, memory = (double)scheduler->options.memory_bytes;
    double read_s = costs.bytes / memory_bytes_per_s;
    const fth_scheduled_job *twin = find_twin(scheduler, spec);
    int relatives = count_relatives(scheduler, spec);

    if (spec->format != FTH_FORMAT_AUTO) {
        snprintf(why, 256, "%s: as requested", fth_cache_format_name(spec->format));
        return spec->format;
    }
    if (!files) {
        snprintf(why, 256, "batches: the images are not files, so there is nothing to decode");
        return FTH_FORMAT_BATCHES;
    }
    if (twin) {
        snprintf(why, 256, "%s: another job has the same batches", fth_cache_format_name(twin->spec.format));
        return twin->spec.format;
    }
    if (spec->sharing == FTH_SHARE_NONE) {
        snprintf(why, 256,
                 "batches: order and augmentation are the job's own, bit for bit as without the "
                 "cache; with share=order, jobs share decoded images");
        return FTH_FORMAT_BATCHES;
    }
    bool fits = set_bytes <= memory_share * memory;
    bool worth_it = costs.decode_s > 2 * read_s;
    bool others_differ = relatives > 0 || spec->sharing == FTH_SHARE_ORDER;
    if (worth_it && (fits || others_differ) && !(spec->sharing == FTH_SHARE_ALL && relatives == 0)) {
        snprintf(why, 256,
                 "decoded: decoding takes %.2f ms a sample (%s), reading it from memory %.2f ms; the set has %.1f GB "
                 "decoded, %s the %.1f GB of the cache; %d other %s its order",
                 1e3 * costs.decode_s, basis, 1e3 * read_s, set_bytes / 1e9, fits ? "which fit in" : "more than",
                 memory / 1e9, relatives, relatives == 1 ? "job has" : "jobs have");
        return FTH_FORMAT_DECODED;
    }
    if (others_differ && !worth_it) {
        snprintf(
            why, 256,
            "encoded: decoding takes only %.2f ms a sample (%s), fetching %.2f ms; jobs prepare samples differently"
            "samples",
            1e3 * costs.decode_s, basis, 1e3 * costs.fetch_s);
        return FTH_FORMAT_ENCODED;
    }
    snprintf(why, 256, "batches: jobs that share everything need each batch once; decoding takes %.2f ms a sample (%s)",
             1e3 * costs.decode_s, basis);
    return FTH_FORMAT_BATCHES;
}

/* ---- where a job begins ---- */

/* Whether everything that a job would need from `begin`, the start of an epoch, to `place`, in that
 * epoch or at its end, is cached. */
static bool has_all_between(const fth_scheduler *scheduler, const fth_job_spec *spec, int64_t set_count, int64_t begin,
                            int64_t place)
{
    fth_job_spec joining = *spec;
    int64_t *samples = NULL, passed = place - begin, of = spec->share.of > 1 ? spec->share.of : 1;
    joining.rotation = begin;
    uint64_t items = (uint64_t)(spec->format == FTH_FORMAT_BATCHES ? passed / spec->batch / of : passed / of);
    if (items > scheduler->items.counts[FTH_ITEM_READY]) /* no need to look */
        return false;
    if (fth_allocate((size_t)spec->batch, sizeof *samples, &samples) != FTH_OK)
        return false;
    bool there = true;
    for (int64_t number = 0; there && number * spec->batch * of < passed; number++) {
        fth_batch_plan plan = {.samples = samples};
        fth_job_plan_batch(&joining, set_count, number, &plan);
        if (spec->format == FTH_FORMAT_BATCHES) {
            there = fth_scheduler_state(scheduler, fth_job_batch_id(&joining, &plan), NULL, NULL) == FTH_ITEM_READY;
            continue;
        }
        fth_item_kind kind = spec->format == FTH_FORMAT_DECODED ? FTH_ITEM_DECODED : FTH_ITEM_ENCODED;
        for (int64_t i = 0; there && i < plan.count; i++)
            there = fth_scheduler_state(scheduler, fth_job_sample_id(&joining, kind, samples[i]), NULL, NULL) ==
                    FTH_ITEM_READY;
    }
    free(samples);
    return there;
}

int64_t fth_scheduler_choose_rotation(const fth_scheduler *scheduler, const fth_job_spec *spec, int64_t set_count)
{
    int64_t front = 0, of = spec->share.of > 1 ? spec->share.of : 1;
    if (spec->sharing == FTH_SHARE_NONE)
        return 0;
    for (size_t i = 0; i < scheduler->job_count; i++) {
        const fth_scheduled_job *job = scheduler->jobs[i];
        if (!fth_job_is_active(job) || !same_order(&job->spec, spec) || job->set_count != set_count)
            continue;
        int64_t place = fth_job_place(job, fth_job_position(job));
        front = place > front ? place : front;
    }
    int64_t begin = front - front % set_count;
    if (!has_all_between(scheduler, spec, set_count, begin, front))
        return begin + front % set_count / (spec->batch * of) * spec->batch * of;
    while (begin > 0 && has_all_between(scheduler, spec, set_count, begin - set_count, begin))
        begin -= set_count;
    return begin;
}
