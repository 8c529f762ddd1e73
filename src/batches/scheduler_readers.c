/* Jobs and their readers. A reader's window is the batches that it comes to within the lookahead; each has needs, one for each
 * item that it uses, which are in a list of the step and in one of the item:
 *
 *     reader -> steps (a ring) -> needs -> items -> needs (of other readers, too)
 *
 * When a reader moves on, the needs of what it passed are taken out and the window is opened at its end: work in proportion to
 * what it passed, whatever the number of jobs and items. See scheduler_internal.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "batches/scheduler_internal.h"

static const double unknown_interval_s = 0.1;
static const double time_to_take_s = 2; /* what a reader waited for, before it counts as stuck */
static const double rank_s = 1e-6;      /* between readers that begin to wait at the same time */
static const double job_expires_s = 60; /* without readers */
static const double pace_memory = 0.85; /* weight of what was known, for a batch */
enum { FIRST_STEPS = 8, MIN_STEPS = 2, MAX_STEPS = 1024, MAX_NEEDS_OF_JOB = 1 << 15 };
enum { MEMO_BITS = 11, MEMOS = 1 << MEMO_BITS };

/* ---- groups ---- */

static fth_item_group *group_at(const fth_scheduler *scheduler, uint32_t number)
{
    return number ? &scheduler->groups[number - 1] : NULL;
}

const fth_item_group *fth_scheduler_group(const fth_scheduler *scheduler, const fth_known_item *item)
{
    return group_at(scheduler, item->group);
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

static bool is_in_use(const fth_item_group *group)
{
    return group->jobs > 0;
}

/* Samples of a cache from before. */
static void claim_found_samples(fth_scheduler *scheduler, const fth_job_spec *spec, uint32_t number)
{
    fth_item_group *group = group_at(scheduler, number);
    if (!scheduler->items.oldest[FTH_LIST_FOUND])
        return;
    for (int64_t sample = 0; sample < group->set_count; sample++) {
        uint32_t item = fth_item_table_find(&scheduler->items, fth_job_sample_id(spec, group->kind, sample));
        if (!item)
            continue;
        fth_known_item *known = &scheduler->items.items[item];
        group->samples[sample] = item;
        known->group = number;
        known->kind = (uint8_t)group->kind;
        known->place = sample;
        if (known->list == FTH_LIST_FOUND)
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

/* Looks again at items that were kept for jobs of a group. */
static void settle_group(fth_scheduler *scheduler, uint32_t number)
{
    for (uint32_t item = scheduler->items.newest[FTH_LIST_LATER], older; item; item = older) {
        older = scheduler->items.items[item].older;
        if (scheduler->items.items[item].group == number)
            fth_item_settle(scheduler, item);
    }
}

static void leave_group(fth_scheduler *scheduler, uint32_t number)
{
    fth_item_group *group = group_at(scheduler, number);
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
        if (known->list == FTH_LIST_LATER)
            fth_item_table_move(&scheduler->items, item, group->recurring ? FTH_LIST_FOUND : FTH_LIST_SPENT);
    }
    free(group->samples);
    free(group->memos);
    *group = (fth_item_group){0};
}

/* ---- jobs ---- */

/* Where the job is, or would have to be put. */
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
    free(job->readers);
    free(job->plan);
    free(job);
}

fth_status fth_scheduler_add_job(fth_scheduler *scheduler, uint64_t id, const fth_job_spec *spec, int64_t set_count,
                                 double now_s)
{
    fth_status status = FTH_OK;
    fth_scheduled_job *job = NULL;
    size_t place = job_place(scheduler, id);

    FTH_REQUIRE(!fth_scheduler_find_job(scheduler, id), FTH_INVALID, "job %llu is known already",
                (unsigned long long)id);
    FTH_REQUIRE(spec->form != FTH_FORM_AUTO, FTH_INVALID, "job %llu: what is cached for it is not chosen",
                (unsigned long long)id);
    FTH_TRY(fth_job_spec_check(spec, set_count));
    FTH_TRY(fth_grow(&scheduler->jobs, scheduler->job_count, &scheduler->job_capacity, sizeof *scheduler->jobs));
    FTH_TRY(fth_allocate(1, sizeof *job, &job));
    FTH_TRY(fth_allocate((size_t)spec->batch, sizeof *job->plan, &job->plan));
    job->id = id;
    job->spec = *spec;
    job->set_count = set_count;
    job->per_epoch = fth_job_batches_per_epoch(spec, set_count);
    job->kind = spec->form == FTH_FORM_BATCHES   ? FTH_ITEM_BATCH
                : spec->form == FTH_FORM_DECODED ? FTH_ITEM_DECODED
                                                 : FTH_ITEM_ENCODED;
    job->left_s = now_s;
    FTH_TRY(join_group(scheduler, job));
    job->serial = ++scheduler->last_serial;
    memmove(scheduler->jobs + place + 1, scheduler->jobs + place,
            (scheduler->job_count - place) * sizeof *scheduler->jobs);
    scheduler->jobs[place] = job;
    scheduler->job_count++;
    job = NULL;

out:
    free_job(job);
    return status;
}

static void close_reader(fth_scheduler *scheduler, fth_reader *reader);

void fth_scheduler_remove_job(fth_scheduler *scheduler, uint64_t id)
{
    fth_scheduled_job *job = fth_scheduler_find_job(scheduler, id);
    if (!job)
        return;
    while (job->reader_count > 0)
        close_reader(scheduler, job->readers[job->reader_count - 1]);
    size_t place = job_place(scheduler, id);
    memmove(scheduler->jobs + place, scheduler->jobs + place + 1,
            (scheduler->job_count - place - 1) * sizeof *scheduler->jobs);
    scheduler->job_count--;
    leave_group(scheduler, job->group);
    free_job(job);
}

bool fth_job_is_active(const fth_scheduled_job *job)
{
    return job->reader_count > 0;
}

int64_t fth_job_position(const fth_scheduled_job *job)
{
    int64_t position = job->reader_count > 0 ? INT64_MAX : job->position;
    for (size_t i = 0; i < job->reader_count; i++)
        position = job->readers[i]->next < position ? job->readers[i]->next : position;
    return position;
}

void fth_job_expire(fth_scheduler *scheduler)
{
    for (size_t i = 0; i < scheduler->job_count; i++) {
        fth_scheduled_job *job = scheduler->jobs[i];
        if (fth_job_is_active(job) || job->expired || scheduler->now_s < job->left_s + job_expires_s)
            continue;
        job->expired = true;
        settle_group(scheduler, job->group);
    }
}

/* Where in the order of its group a batch begins, over all epochs; and the batch that a job has there, or -1. */
static int64_t place_of_batch(const fth_scheduled_job *job, int64_t number)
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

/* Samples of all parts of a batch. */
static int64_t whole_of_batch(const fth_scheduled_job *job, int64_t number)
{
    int64_t left = fth_share_samples(job->spec.share, job->set_count) - number % job->per_epoch * job->spec.batch;
    return left < job->spec.batch ? left : job->spec.batch;
}

/* ---- when ---- */

static fth_reader_step *step_at(const fth_reader *reader, uint32_t turn)
{
    return &reader->steps[turn & (reader->step_capacity - 1)];
}

int64_t fth_reader_number(const fth_reader *reader, uint32_t turn)
{
    return reader->next + (int64_t)(turn - reader->first) * reader->stride;
}

/* When it will ask for its next batch. Those that wait come in the order in which they began to, so that in little memory
 * each gets its batch complete, and some time to take it. Who could have moved on is busy for who knows how long: as long again as it
 * has been. */
static double next_time(const fth_scheduler *scheduler, const fth_reader *reader, double interval_s)
{
    double due = reader->moved_s + interval_s, now = scheduler->now_s;
    bool ready = reader->first != reader->end_turn && step_at(reader, reader->first)->missing == 0;
    if (reader->asked_s > 0) {
        if (!ready || now < reader->answered_s + time_to_take_s)
            return reader->asked_s;
        due = reader->answered_s;
    }
    return due >= now ? due : ready ? now + (now - due) : now;
}

double fth_reader_time(const fth_scheduler *scheduler, const fth_reader *reader, uint32_t turn)
{
    double interval = reader->interval_s > 0 ? reader->interval_s : unknown_interval_s;
    double next = next_time(scheduler, reader, interval);
    return turn == reader->first ? next : fmax(next, scheduler->now_s) + (turn - reader->first) * interval;
}

double fth_item_needed_s(const fth_scheduler *scheduler, uint32_t item, uint32_t *earliest)
{
    double needed = INFINITY;
    for (uint32_t need = scheduler->items.items[item].needs; need; need = scheduler->needs[need].next) {
        const fth_need *each = &scheduler->needs[need];
        double time = fth_reader_time(scheduler, scheduler->readers[each->reader], each->turn);
        if (time < needed) {
            needed = time;
            if (earliest)
                *earliest = need;
        }
    }
    return needed;
}

/* ---- needs ---- */

static uint32_t take_need(fth_scheduler *scheduler)
{
    uint32_t need = scheduler->free_need;
    if (need) {
        scheduler->free_need = scheduler->needs[need].next;
        return need;
    }
    need = scheduler->need_count > 0 ? scheduler->need_count : 1;
    size_t capacity = scheduler->need_capacity;
    if (fth_grow(&scheduler->needs, need, &capacity, sizeof *scheduler->needs) != FTH_OK)
        return 0;
    scheduler->need_capacity = (uint32_t)capacity;
    scheduler->need_count = need + 1;
    return need;
}

static bool add_need(fth_scheduler *scheduler, fth_reader *reader, uint32_t turn, uint32_t item)
{
    uint32_t need = take_need(scheduler);
    if (!need)
        return false;
    fth_known_item *known = &scheduler->items.items[item];
    fth_reader_step *step = step_at(reader, turn);
    scheduler->needs[need] =
        (fth_need){.item = item, .next = known->needs, .sibling = step->needs, .reader = reader->index, .turn = turn};
    if (known->needs)
        scheduler->needs[known->needs].previous = need;
    known->needs = need;
    step->needs = step->untried = need;
    step->missing += known->state != FTH_ITEM_READY;
    if (known->list != FTH_LIST_NONE)
        fth_item_table_move(&scheduler->items, item, FTH_LIST_NONE);
    if (known->state == FTH_ITEM_UNKNOWN)
        fth_item_table_set_state(&scheduler->items, item, FTH_ITEM_WAITING, 0);
    if (known->state == FTH_ITEM_FAILED && reader->fresh) { /* a job that begins again: so do the tries */
        fth_makers_forget(scheduler, item);
        fth_item_table_set_state(&scheduler->items, item, FTH_ITEM_WAITING, 0);
        fth_needs_rewind(scheduler, item);
    }
    return true;
}

/* Takes a need out of its item's list, and frees it. */
static void end_need(fth_scheduler *scheduler, uint32_t number)
{
    fth_need *need = &scheduler->needs[number];
    uint32_t item = need->item;
    *(need->previous ? &scheduler->needs[need->previous].next : &scheduler->items.items[item].needs) = need->next;
    if (need->next)
        scheduler->needs[need->next].previous = need->previous;
    *need = (fth_need){.next = scheduler->free_need};
    scheduler->free_need = number;
    if (!scheduler->items.items[item].needs)
        fth_item_settle(scheduler, item);
}

void fth_needs_ready(fth_scheduler *scheduler, uint32_t item)
{
    for (uint32_t need = scheduler->items.items[item].needs; need; need = scheduler->needs[need].next) {
        fth_reader *reader = scheduler->readers[scheduler->needs[need].reader];
        fth_reader_step *step = step_at(reader, scheduler->needs[need].turn);
        step->missing--;
        if (reader->asked_s == 0 || scheduler->needs[need].turn != reader->first)
            continue;
        if (step->missing == 0)
            reader->answered_s = scheduler->now_s;
        if (reader->waiting_s > 0)
            reader->waited_s += scheduler->now_s - reader->waiting_s;
        reader->waiting_s = 0;
    }
}

void fth_needs_missing(fth_scheduler *scheduler, uint32_t item)
{
    for (uint32_t need = scheduler->items.items[item].needs; need; need = scheduler->needs[need].next)
        step_at(scheduler->readers[scheduler->needs[need].reader], scheduler->needs[need].turn)->missing++;
}

void fth_needs_rewind(fth_scheduler *scheduler, uint32_t item)
{
    for (uint32_t need = scheduler->items.items[item].needs; need; need = scheduler->needs[need].next) {
        fth_reader *reader = scheduler->readers[scheduler->needs[need].reader];
        uint32_t turn = scheduler->needs[need].turn;
        fth_reader_step *step = step_at(reader, turn);
        step->untried = step->needs;
        if (turn - reader->first < reader->untried - reader->first)
            reader->untried = turn;
    }
}

uint32_t fth_reader_candidate(fth_scheduler *scheduler, fth_reader *reader)
{
    for (; reader->untried != reader->end_turn; reader->untried++) {
        fth_reader_step *step = step_at(reader, reader->untried);
        for (; step->untried; step->untried = scheduler->needs[step->untried].sibling) {
            uint32_t item = scheduler->needs[step->untried].item;
            const fth_known_item *known = &scheduler->items.items[item];
            if (known->state == FTH_ITEM_WAITING && !known->trouble)
                return item;
        }
    }
    return 0;
}

/* ---- items without needs ---- */

/* Whether a job will ask for a batch of its group. */
static bool is_awaited(const fth_scheduler *scheduler, const fth_known_item *known)
{
    for (size_t i = 0; i < scheduler->job_count; i++) {
        const fth_scheduled_job *job = scheduler->jobs[i];
        if (job->group != known->group || job->expired)
            continue;
        if (batch_at_place(job, known->place) >= fth_job_position(job))
            return true;
    }
    return false;
}

void fth_item_drop(fth_scheduler *scheduler, uint32_t item)
{
    fth_known_item *known = &scheduler->items.items[item];
    fth_item_group *group = group_at(scheduler, known->group);
    fth_makers_forget(scheduler, item);
    if (group && group->samples)
        group->samples[known->place] = 0;
    if (group && group->memos)
        forget_memo(group, known->place, item);
    for (size_t i = 0; known->wanted && i < scheduler->wanted_count; i++)
        if (scheduler->wanted[i] == item) {
            scheduler->wanted_count--;
            memmove(scheduler->wanted + i, scheduler->wanted + i + 1,
                    (scheduler->wanted_count - i) * sizeof *scheduler->wanted);
            break;
        }
    fth_item_table_forget(&scheduler->items, item);
}

void fth_item_settle(fth_scheduler *scheduler, uint32_t item)
{
    const fth_known_item *known = &scheduler->items.items[item];
    const fth_item_group *group = group_at(scheduler, known->group);
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

/* ---- windows ---- */

static bool make_step_room(fth_reader *reader)
{
    uint32_t count = reader->end_turn - reader->first;
    if (count < reader->step_capacity)
        return true;
    fth_reader_step *grown = NULL;
    uint32_t capacity = reader->step_capacity > 0 ? 2 * reader->step_capacity : FIRST_STEPS;
    if (fth_allocate(capacity, sizeof *grown, &grown) != FTH_OK)
        return false;
    for (uint32_t turn = reader->first; turn != reader->end_turn; turn++)
        grown[turn & (capacity - 1)] = *step_at(reader, turn);
    free(reader->steps);
    reader->steps = grown;
    reader->step_capacity = capacity;
    return true;
}

static uint32_t find_sample(fth_scheduler *scheduler, const fth_scheduled_job *job, int64_t sample)
{
    uint32_t *place = &group_at(scheduler, job->group)->samples[sample];
    if (*place)
        return *place;
    uint32_t item = fth_item_table_add(&scheduler->items, fth_job_sample_id(&job->spec, job->kind, sample));
    *place = item;
    if (item) {
        fth_known_item *known = &scheduler->items.items[item];
        known->group = job->group;
        known->kind = (uint8_t)job->kind;
        known->place = sample;
    }
    return item;
}

static uint32_t find_batch(fth_scheduler *scheduler, const fth_scheduled_job *job, int64_t number)
{
    int64_t place = place_of_batch(job, number), whole = whole_of_batch(job, number);
    fth_item_group *group = group_at(scheduler, job->group);
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
    if (known->group) /* the same samples came up before, and nothing about them is random: the later place counts */
        forget_memo(group, known->place, item);
    known->group = job->group;
    known->kind = FTH_ITEM_BATCH;
    known->place = place;
    *memo = (fth_batch_memo){.place = place, .whole = whole, .item = item};
    return item;
}

static bool open_batch(fth_scheduler *scheduler, fth_reader *reader, uint32_t turn, int64_t number)
{
    fth_scheduled_job *job = reader->job;
    if (fth_part_samples(job->spec.part, whole_of_batch(job, number)) == 0)
        return true; /* an empty part needs nothing */
    uint32_t item = find_batch(scheduler, job, number);
    return item && add_need(scheduler, reader, turn, item);
}

static bool open_samples(fth_scheduler *scheduler, fth_reader *reader, uint32_t turn, int64_t number)
{
    fth_scheduled_job *job = reader->job;
    fth_batch_plan plan = {.samples = job->plan};
    fth_job_plan_batch(&job->spec, job->set_count, number, &plan);
    for (int64_t i = plan.count; i-- > 0;) { /* each need is put before the others of its step */
        uint32_t item = find_sample(scheduler, job, plan.samples[i]);
        if (!item || !add_need(scheduler, reader, turn, item))
            return false;
    }
    return true;
}

/* Adds the batch after the last of the window. False: no memory, and it stays as it is; what the job then lacks, it
 * asks for when it is there. */
static bool open_step(fth_scheduler *scheduler, fth_reader *reader)
{
    if (!make_step_room(reader))
        return false;
    uint32_t turn = reader->end_turn++;
    int64_t number = fth_reader_number(reader, turn);
    *step_at(reader, turn) = (fth_reader_step){0};
    return (reader->job->kind == FTH_ITEM_BATCH ? open_batch : open_samples)(scheduler, reader, turn, number);
}

static void count_use(fth_scheduled_job *job, const fth_known_item *known, int64_t samples)
{
    if (known->state != FTH_ITEM_READY)
        return;
    job->samples += (uint64_t)samples;
    if (known->job != job->serial)
        job->decoded_by_others += known->decoded;
}

/* Takes the first step out of the window; `used`: its batch was taken. */
static void close_step(fth_scheduler *scheduler, fth_reader *reader, bool used)
{
    fth_scheduled_job *job = reader->job;
    uint32_t turn = reader->first;
    int64_t number = reader->next, samples = 1;
    if (job->kind == FTH_ITEM_BATCH) {
        samples = fth_part_samples(job->spec.part, whole_of_batch(job, number));
    }
    if (reader->untried == reader->first)
        reader->untried++;
    reader->first++;
    reader->next += reader->stride;
    for (uint32_t need = step_at(reader, turn)->needs, sibling; need; need = sibling) {
        sibling = scheduler->needs[need].sibling;
        if (used)
            count_use(job, &scheduler->items.items[scheduler->needs[need].item], samples);
        end_need(scheduler, need);
    }
}

static void close_window(fth_scheduler *scheduler, fth_reader *reader)
{
    while (reader->first != reader->end_turn)
        close_step(scheduler, reader, false);
    reader->untried = reader->first;
}

/* How many batches ahead a reader is prepared for. */
static uint32_t window_steps(const fth_scheduler *scheduler, const fth_reader *reader)
{
    const fth_scheduled_job *job = reader->job;
    const fth_item_group *group = group_at(scheduler, job->group);
    bool batches = job->kind == FTH_ITEM_BATCH;
    double items = batches ? 1 : (double)fth_part_samples(job->spec.part, job->spec.batch);
    double steps = reader->interval_s > 0 ? ceil(scheduler->options.lookahead_s / reader->interval_s) : FIRST_STEPS;
    double most = batches ? MAX_STEPS : MAX_NEEDS_OF_JOB / (items > 1 ? items : 1) / (double)job->reader_count;
    if (group->mean_bytes > 0)
        most = fmin(most, (double)scheduler->options.memory_bytes / (group->mean_bytes * (items > 1 ? items : 1)) + 1);
    steps = fmin(steps, most);
    return steps > MIN_STEPS ? (uint32_t)steps : MIN_STEPS;
}

static void open_window(fth_scheduler *scheduler, fth_reader *reader)
{
    uint32_t steps = window_steps(scheduler, reader);
    while (reader->end_turn - reader->first < steps &&
           (reader->end == 0 || fth_reader_number(reader, reader->end_turn) < reader->end))
        if (!open_step(scheduler, reader))
            break;
    reader->fresh = false;
}

/* ---- readers ---- */

static fth_reader *find_reader(const fth_scheduled_job *job, int process)
{
    for (size_t i = 0; i < job->reader_count; i++)
        if (job->readers[i]->process == process)
            return job->readers[i];
    return NULL;
}

static fth_reader *create_reader(fth_scheduler *scheduler, fth_scheduled_job *job, int process)
{
    fth_status status = FTH_OK;
    fth_reader *reader = NULL;
    size_t index = 0;
    while (index < scheduler->reader_count && scheduler->readers[index])
        index++;
    FTH_TRY(fth_grow(&scheduler->readers, index, &scheduler->reader_capacity, sizeof *scheduler->readers));
    FTH_TRY(fth_grow(&job->readers, job->reader_count, &job->reader_capacity, sizeof *job->readers));
    FTH_TRY(fth_allocate(1, sizeof *reader, &reader));
    reader->job = job;
    reader->process = process;
    reader->index = (uint32_t)index;
    job->readers[job->reader_count++] = scheduler->readers[index] = reader;
    if (index == scheduler->reader_count)
        scheduler->reader_count++;
    job->expired = false;

out:
    return status == FTH_OK ? reader : NULL;
}

static void close_reader(fth_scheduler *scheduler, fth_reader *reader)
{
    fth_scheduled_job *job = reader->job;
    int64_t position = fth_job_position(job);
    close_window(scheduler, reader);
    size_t place = 0;
    while (job->readers[place] != reader)
        place++;
    job->readers[place] = job->readers[--job->reader_count];
    if (job->reader_count == 0) {
        job->position = position;
        job->left_s = scheduler->now_s;
    }
    scheduler->readers[reader->index] = NULL;
    free(reader->steps);
    free(reader);
}

/* Puts a reader elsewhere than where it was coming to. */
static void jump(fth_scheduler *scheduler, fth_reader *reader, int64_t next, int64_t stride, int64_t end, double now_s)
{
    close_window(scheduler, reader);
    reader->next = next;
    reader->stride = stride;
    reader->end = end;
    reader->moved_s = now_s;
    reader->asked_s = reader->answered_s = reader->waited_s = reader->waiting_s = 0;
    reader->fresh = true;
}

static void learn_pace(fth_reader *reader, int64_t steps, double now_s)
{
    double waited = reader->waited_s + (reader->waiting_s > 0 ? now_s - reader->waiting_s : 0);
    double passed = now_s - reader->moved_s;
    double interval = fmax(passed - waited, passed / 16) / (double)steps;
    double weight = reader->interval_s > 0 ? pow(pace_memory, (double)steps) : 0;
    reader->interval_s = fmax(weight * reader->interval_s + (1 - weight) * interval, 1e-6);
    reader->moved_s = now_s;
    reader->asked_s = reader->answered_s = reader->waited_s = reader->waiting_s = 0;
}

void fth_scheduler_set_position(fth_scheduler *scheduler, uint64_t id, int process, int64_t next, int64_t stride,
                                int64_t end, double now_s)
{
    scheduler->now_s = fmax(scheduler->now_s, now_s);
    fth_scheduled_job *job = fth_scheduler_find_job(scheduler, id);
    if (!job || next < 0 || stride < 0 || end < 0)
        return;
    stride = stride > 0 ? stride : 1;
    fth_reader *reader = find_reader(job, process);
    if (reader && reader->next == next && reader->stride == stride && reader->end == end)
        return;
    if (!reader) {
        reader = create_reader(scheduler, job, process);
        if (!reader)
            return;
        jump(scheduler, reader, next, stride, end, now_s);
    } else if (reader->stride != stride || reader->end != end || next < reader->next ||
               (next - reader->next) % stride != 0) {
        jump(scheduler, reader, next, stride, end, now_s);
    } else {
        learn_pace(reader, (next - reader->next) / stride, now_s);
        while (reader->next < next && reader->first != reader->end_turn)
            close_step(scheduler, reader, true);
        reader->next = next;
    }
    open_window(scheduler, reader);
}

void fth_scheduler_remove_process(fth_scheduler *scheduler, uint64_t id, int process)
{
    fth_scheduled_job *job = fth_scheduler_find_job(scheduler, id);
    fth_reader *reader = job ? find_reader(job, process) : NULL;
    if (reader)
        close_reader(scheduler, reader);
}

double fth_scheduler_pace(const fth_scheduler *scheduler, uint64_t id)
{
    const fth_scheduled_job *job = fth_scheduler_find_job(scheduler, id);
    double pace = 0;
    for (size_t i = 0; job && i < job->reader_count; i++)
        pace += job->readers[i]->interval_s > 0 ? 1 / job->readers[i]->interval_s : 0;
    return pace;
}

bool fth_scheduler_want(fth_scheduler *scheduler, uint64_t id, fth_item_id item_id, double now_s)
{
    scheduler->now_s = fmax(scheduler->now_s, now_s);
    uint32_t item = fth_item_table_find(&scheduler->items, item_id);
    bool known = false;
    for (uint32_t need = item ? scheduler->items.items[item].needs : 0; need; need = scheduler->needs[need].next) {
        fth_reader *reader = scheduler->readers[scheduler->needs[need].reader];
        if (reader->job->id != id)
            continue;
        known = true;
        if (scheduler->needs[need].turn != reader->first)
            continue;
        if (reader->asked_s == 0)
            reader->asked_s = now_s + rank_s * reader->index;
        if (reader->waiting_s == 0)
            reader->waiting_s = now_s;
    }
    if (!known)
        return false;
    fth_known_item *wanted = &scheduler->items.items[item];
    bool to_come = wanted->state == FTH_ITEM_WAITING || wanted->state == FTH_ITEM_BEING_MADE;
    if (to_come && !wanted->wanted &&
        fth_grow(&scheduler->wanted, scheduler->wanted_count, &scheduler->wanted_capacity, sizeof *scheduler->wanted) ==
            FTH_OK) {
        scheduler->wanted[scheduler->wanted_count++] = item;
        wanted->wanted = true;
    }
    return true;
}

/* ---- figures and the end ---- */

bool fth_scheduler_get_job_figures(const fth_scheduler *scheduler, uint64_t id, fth_scheduler_job_figures *figures)
{
    const fth_scheduled_job *job = fth_scheduler_find_job(scheduler, id);
    if (!job)
        return false;
    *figures = (fth_scheduler_job_figures){.position = fth_job_position(job),
                                           .pace = fth_scheduler_pace(scheduler, id),
                                           .samples = job->samples,
                                           .decoded_for_it = job->decoded_for_it,
                                           .decoded_by_others = job->decoded_by_others};
    for (size_t i = 0; i < job->reader_count; i++) {
        const fth_reader *reader = job->readers[i];
        for (uint32_t turn = reader->first; turn != reader->end_turn && step_at(reader, turn)->missing == 0; turn++)
            figures->ready_ahead++;
    }
    return true;
}

void fth_readers_release(fth_scheduler *scheduler)
{
    for (size_t i = 0; i < scheduler->reader_count; i++)
        if (scheduler->readers[i]) {
            free(scheduler->readers[i]->steps);
            free(scheduler->readers[i]);
        }
    for (size_t i = 0; i < scheduler->job_count; i++)
        free_job(scheduler->jobs[i]);
    for (size_t i = 0; i < scheduler->group_count; i++) {
        free(scheduler->groups[i].samples);
        free(scheduler->groups[i].memos);
    }
    free(scheduler->readers);
    free(scheduler->jobs);
    free(scheduler->groups);
    free(scheduler->needs);
    free(scheduler->wanted);
}
