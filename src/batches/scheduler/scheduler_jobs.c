/* Jobs, and the groups of items that they share: all samples of a split, or the batches of a
 * sequence. An item outside all windows is settled here: it is kept for a job that needs it later,
 * or not. See scheduler_internal.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batches/scheduler/scheduler_internal.h"

static const double job_expires_s = 60; /* without consumers */
enum { MEMO_BITS = 11, MEMOS = 1 << MEMO_BITS };

/* ---- groups ---- */

fth_item_group *fth_scheduler_group(const fth_scheduler *scheduler, uint32_t number)
{
    return number ? &scheduler->groups[number - 1] : NULL;
}

static fth_batch_memo *memo_at(const fth_item_group *group, int64_t place)
{
    return &group->memos[(uint64_t)place * UINT64_C(0x9e3779b97f4a7c15) >> (64 - MEMO_BITS)];
}

static void forget_memo(const fth_item_group *group, int64_t place, uint32_t item)
{
    fth_batch_memo *memo = memo_at(group, place);
    if (memo->item == item)
        memo->item = 0;
}

/* Adds an item to a group. */
static void put_in_group(fth_scheduler *scheduler, uint32_t item, uint32_t number, int64_t place)
{
    fth_known_item *known = &scheduler->items.items[item];
    fth_item_group *group = fth_scheduler_group(scheduler, number);
    if (known->group != number)
        group->making += known->state == FTH_ITEM_BEING_MADE;
    known->group = number;
    known->kind = (uint8_t)group->kind;
    known->place = place;
}

static bool is_in_use(const fth_item_group *group)
{
    return group->jobs > 0;
}

/* Samples that were in the cache from the start. */
static void claim_found_samples(fth_scheduler *scheduler, const fth_job_spec *spec, uint32_t number)
{
    fth_item_group *group = fth_scheduler_group(scheduler, number);
    if (!scheduler->items.oldest[FTH_LIST_FOUND])
        return;
    for (int64_t sample = 0; sample < group->set_count; sample++) {
        uint32_t item = fth_item_table_find(&scheduler->items, fth_job_sample_id(spec, group->kind, sample));
        if (!item)
            continue;
        group->samples[sample] = item;
        put_in_group(scheduler, item, number, sample);
        if (scheduler->items.items[item].list == FTH_LIST_FOUND)
            fth_item_table_move(&scheduler->items, item, FTH_LIST_LATER);
    }
}

static fth_status join_group(fth_scheduler *scheduler, fth_scheduled_job *job)
{
    fth_status status = FTH_OK;
    const fth_job_spec *spec = &job->spec;
    bool batches = job->kind == FTH_ITEM_BATCH;
    fth_item_id signature = batches ? fth_job_sequence_id(spec) : fth_job_sample_id(spec, job->kind, -1);
    uint32_t *samples = NULL;
    fth_batch_memo *memos = NULL;
    size_t place = scheduler->group_count;

    for (size_t i = 0; i < scheduler->group_count; i++) {
        if (is_in_use(&scheduler->groups[i]) && fth_item_id_equal(scheduler->groups[i].signature, signature)) {
            FTH_REQUIRE(scheduler->groups[i].set_count == job->set_count, FTH_INVALID,
                        "job: %s has two sample counts in one version", spec->data);
            scheduler->groups[i].jobs++;
            job->group = (uint32_t)i + 1;
            return FTH_OK;
        }
        if (!is_in_use(&scheduler->groups[i]))
            place = i;
    }
    if (batches)
        FTH_TRY(fth_allocate(MEMOS, sizeof *memos, &memos));
    else
        FTH_TRY(fth_allocate((size_t)job->set_count, sizeof *samples, &samples));
    FTH_TRY(fth_grow(&scheduler->groups, place, &scheduler->group_capacity, sizeof *scheduler->groups));
    scheduler->groups[place] = (fth_item_group){.signature = signature,
                                                .kind = job->kind,
                                                .recurring = !batches || (!fth_job_is_random(spec) && !spec->shuffle),
                                                .set_count = job->set_count,
                                                .samples = samples,
                                                .memos = memos,
                                                .jobs = 1};
    samples = NULL;
    memos = NULL;
    if (place == scheduler->group_count)
        scheduler->group_count++;
    job->group = (uint32_t)place + 1;
    if (!batches)
        claim_found_samples(scheduler, spec, job->group);

out:
    free(samples);
    free(memos);
    return status;
}

/* Reconsiders items that were kept for the jobs of a group. */
static void settle_group(fth_scheduler *scheduler, uint32_t number)
{
    for (uint32_t item = scheduler->items.newest[FTH_LIST_LATER], older; item; item = older) {
        older = scheduler->items.items[item].older;
        if (scheduler->items.items[item].group == number)
            fth_item_settle(scheduler, item);
    }
}

/* An item with needs must have a group: that of a job that needs it. */
static void move_to_group_of_need(fth_scheduler *scheduler, uint32_t item)
{
    const fth_item_need *need = &scheduler->needs.at[scheduler->items.items[item].needs];
    const fth_consumer *consumer = scheduler->consumers[need->consumer];
    const fth_scheduled_job *job = consumer->job;
    put_in_group(scheduler, item, job->group, fth_job_place(job, fth_consumer_number(consumer, need->turn)));
}

static void leave_group(fth_scheduler *scheduler, uint32_t number)
{
    fth_item_group *group = fth_scheduler_group(scheduler, number);
    if (--group->jobs > 0) {
        if (!group->recurring)
            settle_group(scheduler, number);
        return;
    }
    for (uint32_t item = 1; item < scheduler->items.count; item++) {
        fth_known_item *known = &scheduler->items.items[item];
        if (known->group != number)
            continue;
        known->group = 0;
        if (known->needs) /* of a job of another sequence that contains this batch */
            move_to_group_of_need(scheduler, item);
        if (known->list == FTH_LIST_LATER)
            fth_item_table_move(&scheduler->items, item, group->recurring ? FTH_LIST_FOUND : FTH_LIST_SPENT);
    }
    free(group->samples);
    free(group->memos);
    *group = (fth_item_group){0};
}

/* ---- jobs ---- */

/* Where the job is, or would be inserted. */
static size_t job_place(const fth_scheduler *scheduler, uint64_t id)
{
    size_t low = 0, high = scheduler->job_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (scheduler->jobs[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

fth_scheduled_job *fth_scheduler_find_job(const fth_scheduler *scheduler, uint64_t id)
{
    size_t place = job_place(scheduler, id);
    return place < scheduler->job_count && scheduler->jobs[place]->id == id ? scheduler->jobs[place] : NULL;
}

static void free_job(fth_scheduled_job *job)
{
    if (!job)
        return;
    free(job->consumers);
    free(job->plan);
    free(job);
}

fth_status fth_scheduler_add_job(fth_scheduler *scheduler, uint64_t id, const fth_job_spec *spec, int64_t set_count,
                                 double now_s)
{
    fth_status status = FTH_OK;
    fth_scheduled_job *job = NULL;
    size_t place = job_place(scheduler, id);

    FTH_REQUIRE(!fth_scheduler_find_job(scheduler, id), FTH_INVALID, "job %llu already exists", (unsigned long long)id);
    FTH_REQUIRE(spec->format != FTH_FORMAT_AUTO, FTH_INVALID, "job %llu: its cache format is not chosen",
                (unsigned long long)id);
    FTH_TRY(fth_job_spec_check(spec, set_count));
    FTH_TRY(fth_grow(&scheduler->jobs, scheduler->job_count, &scheduler->job_capacity, sizeof *scheduler->jobs));
    FTH_TRY(fth_allocate(1, sizeof *job, &job));
    FTH_TRY(fth_allocate((size_t)spec->batch, sizeof *job->plan, &job->plan));
    job->id = id;
    job->spec = *spec;
    job->set_count = set_count;
    job->per_epoch = fth_job_batches_per_epoch(spec, set_count);
    job->kind = spec->format == FTH_FORMAT_BATCHES   ? FTH_ITEM_BATCH
                : spec->format == FTH_FORMAT_DECODED ? FTH_ITEM_DECODED
                                                     : FTH_ITEM_ENCODED;
    job->left_s = now_s;
    FTH_TRY(join_group(scheduler, job));
    memmove(scheduler->jobs + place + 1, scheduler->jobs + place,
            (scheduler->job_count - place) * sizeof *scheduler->jobs);
    scheduler->jobs[place] = job;
    scheduler->job_count++;
    job = NULL;

out:
    free_job(job);
    return status;
}

void fth_scheduler_remove_job(fth_scheduler *scheduler, uint64_t id)
{
    fth_scheduled_job *job = fth_scheduler_find_job(scheduler, id);
    if (!job)
        return;
    while (job->consumer_count > 0)
        fth_consumer_close(scheduler, job->consumers[job->consumer_count - 1]);
    size_t place = job_place(scheduler, id);
    memmove(scheduler->jobs + place, scheduler->jobs + place + 1,
            (scheduler->job_count - place - 1) * sizeof *scheduler->jobs);
    scheduler->job_count--;
    leave_group(scheduler, job->group);
    free_job(job);
}

bool fth_job_is_active(const fth_scheduled_job *job)
{
    return job->consumer_count > 0;
}

int64_t fth_job_position(const fth_scheduled_job *job)
{
    int64_t position = job->consumer_count > 0 ? INT64_MAX : job->position;
    for (size_t i = 0; i < job->consumer_count; i++)
        position = job->consumers[i]->next < position ? job->consumers[i]->next : position;
    return position;
}

void fth_jobs_expire(fth_scheduler *scheduler)
{
    for (size_t i = 0; i < scheduler->job_count; i++) {
        fth_scheduled_job *job = scheduler->jobs[i];
        if (fth_job_is_active(job) || job->expired || scheduler->now_s < job->left_s + job_expires_s)
            continue;
        job->expired = true;
        settle_group(scheduler, job->group);
    }
}

/* Items that a process of the job needs per batch. */
static double items_per_batch(const fth_scheduled_job *job)
{
    return job->kind == FTH_ITEM_BATCH ? 1 : fmax(1, (double)fth_part_samples(job->spec.part, job->spec.batch));
}

static void refuse(fth_scheduler *scheduler, fth_scheduled_job *job, const char *reason)
{
    snprintf(job->refusal, sizeof job->refusal, "%s", reason);
    for (size_t i = 0; i < job->consumer_count; i++)
        fth_consumer_clear(scheduler, job->consumers[i]);
}

void fth_jobs_refuse(fth_scheduler *scheduler, uint32_t group, const char *reason)
{
    for (size_t i = 0; i < scheduler->job_count; i++)
        if (scheduler->jobs[i]->group == group && !*scheduler->jobs[i]->refusal)
            refuse(scheduler, scheduler->jobs[i], reason);
}

void fth_jobs_refuse_too_large(fth_scheduler *scheduler, uint32_t number)
{
    const fth_item_group *group = fth_scheduler_group(scheduler, number);
    const double memory_bytes = (double)scheduler->options.memory_bytes;
    char reason[sizeof scheduler->jobs[0]->refusal];
    for (size_t i = 0; i < scheduler->job_count; i++) {
        fth_scheduled_job *job = scheduler->jobs[i];
        double items = items_per_batch(job), batch_bytes = items * group->mean_bytes;
        /* A few samples say little about the others, unless they are far too large. */
        bool known = (double)group->made >= fmin(64, items / 4);
        if (job->group != number || *job->refusal || batch_bytes <= (known ? 1 : 2) * memory_bytes)
            continue;
        snprintf(reason, sizeof reason,
                 "a batch takes %.1f MB, more than the %.1f MB that the cache may fill: increase --cache-memory, or "
                 "use smaller batches",
                 batch_bytes / 1e6, memory_bytes / 1e6);
        refuse(scheduler, job, reason);
    }
}

const fth_job_spec *fth_scheduler_job_spec(const fth_scheduler *scheduler, uint64_t id)
{
    const fth_scheduled_job *job = fth_scheduler_find_job(scheduler, id);
    return job ? &job->spec : NULL;
}

const char *fth_scheduler_refusal(const fth_scheduler *scheduler, uint64_t id)
{
    const fth_scheduled_job *job = fth_scheduler_find_job(scheduler, id);
    return job && *job->refusal ? job->refusal : NULL;
}

const char *fth_scheduler_next_refusal(fth_scheduler *scheduler, const fth_job_spec **spec)
{
    for (size_t i = 0; i < scheduler->job_count; i++) {
        fth_scheduled_job *job = scheduler->jobs[i];
        if (!*job->refusal || job->refusal_told)
            continue;
        job->refusal_told = true;
        *spec = &job->spec;
        return job->refusal;
    }
    return NULL;
}

/* The position of a batch in the order of its group, over all epochs; and the job's batch at a
 * position, or -1. */
int64_t fth_job_place(const fth_scheduled_job *job, int64_t number)
{
    int64_t of = job->spec.share.of > 1 ? job->spec.share.of : 1, count = job->set_count;
    int64_t rotation = job->spec.rotation > 0 ? job->spec.rotation : 0;
    int64_t begin = number % job->per_epoch * job->spec.batch * of + rotation % count;
    return (number / job->per_epoch + rotation / count) * count + begin % count;
}

static int64_t batch_at_place(const fth_scheduled_job *job, int64_t place)
{
    int64_t of = job->spec.share.of > 1 ? job->spec.share.of : 1;
    int64_t rotation = job->spec.rotation > 0 ? job->spec.rotation : 0, count = job->set_count;
    int64_t epoch = place / count - rotation / count;
    int64_t begin = (place % count - rotation % count + count) % count;
    if (epoch < 0 || begin % (of * job->spec.batch) != 0)
        return -1;
    return epoch * job->per_epoch + begin / of / job->spec.batch;
}

/* Samples of a batch, over all parts. */
int64_t fth_job_whole(const fth_scheduled_job *job, int64_t number)
{
    int64_t left = fth_share_samples(job->spec.share, job->set_count) - number % job->per_epoch * job->spec.batch;
    return left < job->spec.batch ? left : job->spec.batch;
}

/* ---- items of jobs ---- */

uint32_t fth_job_find_sample(fth_scheduler *scheduler, const fth_scheduled_job *job, int64_t sample)
{
    uint32_t *place = &fth_scheduler_group(scheduler, job->group)->samples[sample];
    if (*place)
        return *place;
    uint32_t item = fth_item_table_add(&scheduler->items, fth_job_sample_id(&job->spec, job->kind, sample));
    *place = item;
    if (item)
        put_in_group(scheduler, item, job->group, sample);
    return item;
}

uint32_t fth_job_find_batch(fth_scheduler *scheduler, const fth_scheduled_job *job, int64_t number)
{
    int64_t place = fth_job_place(job, number), whole = fth_job_whole(job, number);
    fth_item_group *group = fth_scheduler_group(scheduler, job->group);
    fth_batch_memo *memo = memo_at(group, place);
    if (memo->item && memo->place == place && memo->whole == whole)
        return memo->item;
    fth_batch_plan plan = {.samples = job->plan};
    fth_job_plan_batch(&job->spec, job->set_count, number, &plan);
    uint32_t item = fth_item_table_add(&scheduler->items, fth_job_batch_id(&job->spec, &plan));
    if (!item || (scheduler->items.items[item].group && scheduler->items.items[item].group != job->group))
        return item; /* another sequence has the same batch */
    fth_known_item *known = &scheduler->items.items[item];
    if (group->mean_bytes == 0 && known->state == FTH_ITEM_READY)
        group->mean_bytes = (double)known->size_bytes;
    if (known->group) /* the same samples occurred before, with nothing random: the later place counts */
        forget_memo(group, known->place, item);
    put_in_group(scheduler, item, job->group, place);
    *memo = (fth_batch_memo){.place = place, .whole = whole, .item = item};
    return item;
}

/* ---- items without needs ---- */

/* The end of the job: its batches are below this. */
static int64_t job_end(const fth_scheduled_job *job)
{
    int64_t end = job->consumer_count > 0 ? 0 : INT64_MAX;
    for (size_t i = 0; i < job->consumer_count; i++) {
        int64_t own = job->consumers[i]->end > 0 ? job->consumers[i]->end : INT64_MAX;
        end = own > end ? own : end;
    }
    return end;
}

/* Whether a job still needs a batch of its group. */
static bool is_awaited(const fth_scheduler *scheduler, const fth_known_item *known)
{
    for (size_t i = 0; i < scheduler->job_count; i++) {
        const fth_scheduled_job *job = scheduler->jobs[i];
        if (job->group != known->group || job->expired)
            continue;
        int64_t number = batch_at_place(job, known->place);
        if (number >= fth_job_position(job) && number < job_end(job))
            return true;
    }
    return false;
}

void fth_item_drop(fth_scheduler *scheduler, uint32_t item)
{
    fth_known_item *known = &scheduler->items.items[item];
    fth_item_group *group = fth_scheduler_group(scheduler, known->group);
    fth_item_failure_forget(scheduler, item);
    if (group && group->samples)
        group->samples[known->place] = 0;
    if (group && group->memos)
        forget_memo(group, known->place, item);
    for (size_t i = 0; known->wanted && i < scheduler->wanted.count; i++)
        if (scheduler->wanted.items[i] == item) {
            scheduler->wanted.count--;
            memmove(scheduler->wanted.items + i, scheduler->wanted.items + i + 1,
                    (scheduler->wanted.count - i) * sizeof *scheduler->wanted.items);
            break;
        }
    fth_item_table_forget(&scheduler->items, item);
}

void fth_item_settle(fth_scheduler *scheduler, uint32_t item)
{
    const fth_known_item *known = &scheduler->items.items[item];
    const fth_item_group *group = fth_scheduler_group(scheduler, known->group);
    if (known->state == FTH_ITEM_BEING_MADE)
        return; /* settled when it is done */
    if (known->state != FTH_ITEM_READY) {
        fth_item_drop(scheduler, item);
        return;
    }
    fth_item_list list = !group                                             ? FTH_LIST_FOUND
                         : group->recurring || is_awaited(scheduler, known) ? FTH_LIST_LATER
                                                                            : FTH_LIST_SPENT;
    if (list != known->list)
        fth_item_table_move(&scheduler->items, item, list);
}

void fth_jobs_release(fth_scheduler *scheduler)
{
    for (size_t i = 0; i < scheduler->job_count; i++)
        free_job(scheduler->jobs[i]);
    for (size_t i = 0; i < scheduler->group_count; i++) {
        free(scheduler->groups[i].samples);
        free(scheduler->groups[i].memos);
    }
    free(scheduler->jobs);
    free(scheduler->groups);
}
