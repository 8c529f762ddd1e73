/* Consumers: the processes of jobs. A consumer's window is the batches that it reaches within the
 * lookahead. Each batch has one need per item, which is in a list of the step and in one of the
 * item:
 *
 *     consumer -> steps (a ring) -> needs -> items -> needs (also of other consumers)
 *
 * When a consumer advances, the needs of the passed steps are removed and steps are added at the
 * end: the work is proportional to the batches passed, whatever the number of jobs and items. See
 * scheduler_internal.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "batches/scheduler/scheduler_internal.h"

static const double unknown_interval_s = 0.1;
static const double least_interval_s = 0.005; /* equal for all that only wait, however long each has to */
static const double time_to_take_s = 2;       /* for a consumer to take what it waited for, before it counts as stuck */
static const double rank_s = 1e-6;            /* orders consumers that begin to wait at the same time */
static const double pace_memory = 0.85;       /* weight of the old value, per batch */
enum { FIRST_STEPS = 8, MIN_STEPS = 4, MAX_STEPS = 1024, MAX_NEEDS_OF_JOB = 1 << 15, NEXT_EPOCH_PART = 8 };
static const double least_lead_s = 0.5, order_times = 4;

/* ---- times ---- */

static fth_consumer_step *step_at(const fth_consumer *consumer, uint32_t turn)
{
    return &consumer->steps[turn & (consumer->step_capacity - 1)];
}

int64_t fth_consumer_number(const fth_consumer *consumer, uint32_t turn)
{
    return consumer->next + (int64_t)(turn - consumer->first) * consumer->stride;
}

/* When it will ask for its next batch. Waiting consumers are served in the order in which they
 * began to wait, so that with little memory each gets a complete batch and time to take it. A
 * consumer that could have advanced is expected to stay busy for as long again as it has been. */
static double next_time(const fth_scheduler *scheduler, const fth_consumer *consumer, double interval_s)
{
    double due = consumer->moved_s + interval_s, now = scheduler->now_s;
    bool ready = consumer->first != consumer->end_turn && step_at(consumer, consumer->first)->missing == 0;
    if (consumer->asked_s > 0) {
        if (!ready || now < consumer->answered_s + time_to_take_s)
            return consumer->asked_s;
        due = consumer->answered_s;
    }
    return due >= now ? due : ready ? now + (now - due) : now;
}

double fth_consumer_lead_s(const fth_scheduler *scheduler, const fth_consumer *consumer)
{
    return least_lead_s + order_times * fth_scheduler_group(scheduler, consumer->job->group)->order_s;
}

double fth_consumer_time(const fth_scheduler *scheduler, const fth_consumer *consumer, uint32_t turn)
{
    double interval = consumer->interval_s > 0 ? consumer->interval_s : unknown_interval_s;
    double next = next_time(scheduler, consumer, interval);
    return turn == consumer->first ? next : fmax(next, scheduler->now_s) + (turn - consumer->first) * interval;
}

double fth_item_needed_s(const fth_scheduler *scheduler, uint32_t item, uint32_t *earliest)
{
    double needed = INFINITY;
    for (uint32_t need = scheduler->items.items[item].needs; need; need = scheduler->needs.at[need].next) {
        const fth_item_need *each = &scheduler->needs.at[need];
        double time = fth_consumer_time(scheduler, scheduler->consumers[each->consumer], each->turn);
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
    uint32_t need = scheduler->needs.unused;
    if (need) {
        scheduler->needs.unused = scheduler->needs.at[need].next;
        return need;
    }
    need = scheduler->needs.count > 0 ? scheduler->needs.count : 1;
    size_t capacity = scheduler->needs.capacity;
    if (fth_grow(&scheduler->needs.at, need, &capacity, sizeof *scheduler->needs.at) != FTH_OK)
        return 0;
    scheduler->needs.capacity = (uint32_t)capacity;
    scheduler->needs.count = need + 1;
    return need;
}

static bool add_need(fth_scheduler *scheduler, fth_consumer *consumer, uint32_t turn, uint32_t item)
{
    uint32_t need = take_need(scheduler);
    if (!need)
        return false;
    fth_known_item *known = &scheduler->items.items[item];
    fth_consumer_step *step = step_at(consumer, turn);
    scheduler->needs.at[need] = (fth_item_need){
        .item = item, .next = known->needs, .sibling = step->needs, .consumer = consumer->index, .turn = turn};
    if (known->needs)
        scheduler->needs.at[known->needs].previous = need;
    known->needs = need;
    step->needs = step->untried = need;
    step->missing += known->state != FTH_ITEM_READY;
    if (known->list != FTH_LIST_NONE)
        fth_item_table_move(&scheduler->items, item, FTH_LIST_NONE);
    if (known->state == FTH_ITEM_UNKNOWN)
        fth_item_table_set_state(&scheduler->items, item, FTH_ITEM_WAITING, 0);
    if (known->state == FTH_ITEM_FAILED && consumer->fresh) { /* the job restarts, and so do the tries */
        fth_item_failure_forget(scheduler, item);
        fth_item_table_set_state(&scheduler->items, item, FTH_ITEM_WAITING, 0);
        fth_needs_rewind(scheduler, item);
    }
    return true;
}

/* Removes a need from its item's list, and frees it. */
static void end_need(fth_scheduler *scheduler, uint32_t number)
{
    fth_item_need *need = &scheduler->needs.at[number];
    uint32_t item = need->item;
    *(need->previous ? &scheduler->needs.at[need->previous].next : &scheduler->items.items[item].needs) = need->next;
    if (need->next)
        scheduler->needs.at[need->next].previous = need->previous;
    *need = (fth_item_need){.next = scheduler->needs.unused};
    scheduler->needs.unused = number;
    if (!scheduler->items.items[item].needs)
        fth_item_settle(scheduler, item);
}

void fth_needs_ready(fth_scheduler *scheduler, uint32_t item)
{
    for (uint32_t need = scheduler->items.items[item].needs; need; need = scheduler->needs.at[need].next) {
        fth_consumer *consumer = scheduler->consumers[scheduler->needs.at[need].consumer];
        fth_consumer_step *step = step_at(consumer, scheduler->needs.at[need].turn);
        step->missing--;
        if (consumer->asked_s == 0 || scheduler->needs.at[need].turn != consumer->first || step->missing > 0)
            continue;
        consumer->answered_s = scheduler->now_s;
        if (consumer->waiting_s > 0)
            consumer->waited_s += scheduler->now_s - consumer->waiting_s;
        consumer->waiting_s = 0;
    }
}

void fth_needs_missing(fth_scheduler *scheduler, uint32_t item)
{
    for (uint32_t need = scheduler->items.items[item].needs; need; need = scheduler->needs.at[need].next)
        step_at(scheduler->consumers[scheduler->needs.at[need].consumer], scheduler->needs.at[need].turn)->missing++;
}

void fth_needs_rewind(fth_scheduler *scheduler, uint32_t item)
{
    for (uint32_t need = scheduler->items.items[item].needs; need; need = scheduler->needs.at[need].next) {
        fth_consumer *consumer = scheduler->consumers[scheduler->needs.at[need].consumer];
        uint32_t turn = scheduler->needs.at[need].turn;
        fth_consumer_step *step = step_at(consumer, turn);
        step->untried = step->needs;
        if (turn - consumer->first < consumer->untried - consumer->first)
            consumer->untried = turn;
    }
}

uint32_t fth_consumer_candidate(fth_scheduler *scheduler, fth_consumer *consumer)
{
    for (; consumer->untried != consumer->end_turn; consumer->untried++) {
        fth_consumer_step *step = step_at(consumer, consumer->untried);
        for (; step->untried; step->untried = scheduler->needs.at[step->untried].sibling) {
            uint32_t item = scheduler->needs.at[step->untried].item;
            const fth_known_item *known = &scheduler->items.items[item];
            if (known->state == FTH_ITEM_WAITING && !known->failure)
                return item;
        }
    }
    return 0;
}

/* ---- windows ---- */

static bool make_step_room(fth_consumer *consumer)
{
    uint32_t count = consumer->end_turn - consumer->first;
    if (count < consumer->step_capacity)
        return true;
    fth_consumer_step *grown = NULL;
    uint32_t capacity = consumer->step_capacity > 0 ? 2 * consumer->step_capacity : FIRST_STEPS;
    if (fth_allocate(capacity, sizeof *grown, &grown) != FTH_OK)
        return false;
    for (uint32_t turn = consumer->first; turn != consumer->end_turn; turn++)
        grown[turn & (capacity - 1)] = *step_at(consumer, turn);
    free(consumer->steps);
    consumer->steps = grown;
    consumer->step_capacity = capacity;
    return true;
}

static bool open_batch(fth_scheduler *scheduler, fth_consumer *consumer, uint32_t turn, int64_t number)
{
    fth_scheduled_job *job = consumer->job;
    if (fth_part_samples(job->spec.part, fth_job_whole(job, number)) == 0)
        return true; /* an empty part needs nothing */
    uint32_t item = fth_job_find_batch(scheduler, job, number);
    return item && add_need(scheduler, consumer, turn, item);
}

static bool open_samples(fth_scheduler *scheduler, fth_consumer *consumer, uint32_t turn, int64_t number)
{
    fth_scheduled_job *job = consumer->job;
    fth_batch_plan plan = {.samples = job->plan};
    fth_job_plan_batch(&job->spec, job->set_count, number, &plan);
    for (int64_t i = plan.count; i-- > 0;) { /* each need is inserted before the others of its step */
        uint32_t item = fth_job_find_sample(scheduler, job, plan.samples[i]);
        if (!item || !add_need(scheduler, consumer, turn, item))
            return false;
    }
    return true;
}

/* Adds the next batch to the window. False: no memory; missing items are requested when the job
 * waits for them. */
static bool open_step(fth_scheduler *scheduler, fth_consumer *consumer)
{
    if (!make_step_room(consumer))
        return false;
    uint32_t turn = consumer->end_turn++;
    int64_t number = fth_consumer_number(consumer, turn);
    *step_at(consumer, turn) = (fth_consumer_step){0};
    return (consumer->job->kind == FTH_ITEM_BATCH ? open_batch : open_samples)(scheduler, consumer, turn, number);
}

static void count_use(fth_scheduled_job *job, const fth_known_item *known)
{
    if (known->state == FTH_ITEM_READY && known->job != job->id)
        job->decoded_by_others += known->decoded;
}

/* Removes the first step of the window; `used`: its batch was taken. */
static void close_step(fth_scheduler *scheduler, fth_consumer *consumer, bool used)
{
    fth_scheduled_job *job = consumer->job;
    uint32_t turn = consumer->first;
    if (consumer->untried == consumer->first)
        consumer->untried++;
    consumer->first++;
    consumer->next += consumer->stride;
    for (uint32_t need = step_at(consumer, turn)->needs, sibling; need; need = sibling) {
        sibling = scheduler->needs.at[need].sibling;
        if (used)
            count_use(job, &scheduler->items.items[scheduler->needs.at[need].item]);
        end_need(scheduler, need);
    }
}

void fth_consumer_clear(fth_scheduler *scheduler, fth_consumer *consumer)
{
    while (consumer->first != consumer->end_turn)
        close_step(scheduler, consumer, false);
    consumer->untried = consumer->first;
}

/* The length of a consumer's window in batches. */
static uint32_t window_steps(const fth_scheduler *scheduler, const fth_consumer *consumer)
{
    const fth_scheduled_job *job = consumer->job;
    const fth_item_group *group = fth_scheduler_group(scheduler, job->group);
    bool batches = job->kind == FTH_ITEM_BATCH;
    double items = batches ? 1 : fmax(1, (double)fth_part_samples(job->spec.part, job->spec.batch));
    double interval = consumer->interval_s, lookahead = scheduler->options.lookahead_s;
    double steps = interval > 0 ? ceil(lookahead / interval) : FIRST_STEPS;
    double most = batches ? MAX_STEPS : MAX_NEEDS_OF_JOB / items / (double)job->consumer_count;
    if (group->mean_bytes > 0)
        most = fmin(most, (double)scheduler->options.memory_bytes / (group->mean_bytes * items) + 1);
    if (consumer->end == 0) {
        /* It may end with any epoch. Of the next one, only what must be begun is made, and only a
         * part of it. */
        double epoch = (double)job->per_epoch / (double)consumer->stride;
        double left = (double)(job->per_epoch - consumer->next % job->per_epoch) / (double)consumer->stride;
        double lead = interval > 0 ? ceil(fth_consumer_lead_s(scheduler, consumer) / interval) : MIN_STEPS;
        most = fmin(most, left + fmin(lead, epoch / NEXT_EPOCH_PART));
    }
    steps = fmin(steps, most);
    return steps > MIN_STEPS ? (uint32_t)steps : MIN_STEPS;
}

static void open_window(fth_scheduler *scheduler, fth_consumer *consumer)
{
    const bool refused = *consumer->job->refusal;
    uint32_t steps = refused ? 0 : window_steps(scheduler, consumer);
    while (consumer->end_turn - consumer->first < steps &&
           (consumer->end == 0 || fth_consumer_number(consumer, consumer->end_turn) < consumer->end))
        if (!open_step(scheduler, consumer))
            break;
    consumer->fresh = false;
}

/* ---- consumers ---- */

static fth_consumer *find_consumer(const fth_scheduled_job *job, int process)
{
    for (size_t i = 0; i < job->consumer_count; i++)
        if (job->consumers[i]->process == process)
            return job->consumers[i];
    return NULL;
}

static fth_consumer *create_consumer(fth_scheduler *scheduler, fth_scheduled_job *job, int process)
{
    fth_status status = FTH_OK;
    fth_consumer *consumer = NULL;
    size_t index = 0;
    while (index < scheduler->consumer_count && scheduler->consumers[index])
        index++;
    FTH_TRY(fth_grow(&scheduler->consumers, index, &scheduler->consumer_capacity, sizeof *scheduler->consumers));
    FTH_TRY(fth_grow(&job->consumers, job->consumer_count, &job->consumer_capacity, sizeof *job->consumers));
    FTH_TRY(fth_allocate(1, sizeof *consumer, &consumer));
    consumer->job = job;
    consumer->process = process;
    consumer->index = (uint32_t)index;
    job->consumers[job->consumer_count++] = scheduler->consumers[index] = consumer;
    if (index == scheduler->consumer_count)
        scheduler->consumer_count++;
    job->expired = false;

out:
    return status == FTH_OK ? consumer : NULL;
}

void fth_consumer_close(fth_scheduler *scheduler, fth_consumer *consumer)
{
    fth_scheduled_job *job = consumer->job;
    int64_t position = fth_job_position(job);
    fth_consumer_clear(scheduler, consumer);
    size_t place = 0;
    while (job->consumers[place] != consumer)
        place++;
    job->consumers[place] = job->consumers[--job->consumer_count];
    if (job->consumer_count == 0) {
        job->position = position;
        job->left_s = scheduler->now_s;
    }
    scheduler->consumers[consumer->index] = NULL;
    free(consumer->steps);
    free(consumer);
}

/* Moves a consumer to an unexpected position. */
static void jump(fth_scheduler *scheduler, fth_consumer *consumer, int64_t next, int64_t stride, int64_t end,
                 double now_s)
{
    fth_consumer_clear(scheduler, consumer);
    consumer->next = next;
    consumer->stride = stride;
    consumer->end = end;
    consumer->moved_s = now_s;
    consumer->asked_s = consumer->answered_s = consumer->waited_s = consumer->waiting_s = 0;
    consumer->fresh = true;
}

static void learn_pace(fth_consumer *consumer, int64_t steps, double now_s)
{
    double waited = consumer->waited_s + (consumer->waiting_s > 0 ? now_s - consumer->waiting_s : 0);
    double passed = now_s - consumer->moved_s;
    double interval = fmax(passed - waited, fmin(passed, least_interval_s * (double)steps)) / (double)steps;
    double weight = consumer->interval_s > 0 ? pow(pace_memory, (double)steps) : 0;
    consumer->interval_s = fmax(weight * consumer->interval_s + (1 - weight) * interval, 1e-6);
    consumer->moved_s = now_s;
    consumer->asked_s = consumer->answered_s = consumer->waited_s = consumer->waiting_s = 0;
}

/* One of its threads may wait already for something of the batch that is its first now. */
static void go_on_waiting(const fth_scheduler *scheduler, fth_consumer *consumer)
{
    uint32_t need = consumer->first != consumer->end_turn ? step_at(consumer, consumer->first)->needs : 0;
    while (need && !scheduler->items.items[scheduler->needs.at[need].item].wanted)
        need = scheduler->needs.at[need].sibling;
    if (!need)
        return;
    consumer->asked_s = scheduler->now_s + rank_s * consumer->index;
    consumer->waiting_s = scheduler->now_s;
}

void fth_scheduler_set_position(fth_scheduler *scheduler, uint64_t id, int process, int64_t next, int64_t stride,
                                int64_t end, double now_s)
{
    scheduler->now_s = fmax(scheduler->now_s, now_s);
    fth_scheduled_job *job = fth_scheduler_find_job(scheduler, id);
    if (!job || next < 0 || stride < 0 || end < 0)
        return;
    stride = stride > 0 ? stride : 1;
    fth_consumer *consumer = find_consumer(job, process);
    if (consumer && consumer->next == next && consumer->stride == stride && consumer->end == end)
        return;
    if (!consumer) {
        consumer = create_consumer(scheduler, job, process);
        if (!consumer)
            return;
        jump(scheduler, consumer, next, stride, end, now_s);
    } else if (consumer->stride != stride || consumer->end != end || next < consumer->next ||
               (next - consumer->next) % stride != 0) {
        jump(scheduler, consumer, next, stride, end, now_s);
    } else {
        learn_pace(consumer, (next - consumer->next) / stride, now_s);
        for (int passed = 0; consumer->next < next && passed < MAX_STEPS; passed++) { /* also past the window */
            if (consumer->first == consumer->end_turn && (*job->refusal || !open_step(scheduler, consumer)))
                break;
            close_step(scheduler, consumer, true);
        }
        if (consumer->next < next)
            fth_consumer_clear(scheduler, consumer);
        consumer->next = next;
        go_on_waiting(scheduler, consumer);
    }
    open_window(scheduler, consumer);
}

void fth_scheduler_remove_process(fth_scheduler *scheduler, uint64_t id, int process)
{
    fth_scheduled_job *job = fth_scheduler_find_job(scheduler, id);
    fth_consumer *consumer = job ? find_consumer(job, process) : NULL;
    if (consumer)
        fth_consumer_close(scheduler, consumer);
}

double fth_scheduler_pace(const fth_scheduler *scheduler, uint64_t id)
{
    const fth_scheduled_job *job = fth_scheduler_find_job(scheduler, id);
    double pace = 0;
    for (size_t i = 0; job && i < job->consumer_count; i++)
        pace += job->consumers[i]->interval_s > 0 ? 1 / job->consumers[i]->interval_s : 0;
    return pace;
}

bool fth_scheduler_want(fth_scheduler *scheduler, uint64_t id, fth_item_id item_id, double now_s)
{
    scheduler->now_s = fmax(scheduler->now_s, now_s);
    uint32_t item = fth_item_table_find(&scheduler->items, item_id);
    bool known = false;
    for (uint32_t need = item ? scheduler->items.items[item].needs : 0; need; need = scheduler->needs.at[need].next) {
        fth_consumer *consumer = scheduler->consumers[scheduler->needs.at[need].consumer];
        if (consumer->job->id != id)
            continue;
        known = true;
        /* With threads that wait for later batches, it waits for what its first one lacks, too. */
        if (scheduler->needs.at[need].turn != consumer->first && step_at(consumer, consumer->first)->missing == 0)
            continue;
        if (consumer->asked_s == 0)
            consumer->asked_s = now_s + rank_s * consumer->index;
        if (consumer->waiting_s == 0)
            consumer->waiting_s = now_s;
    }
    if (!known)
        return false;
    fth_known_item *wanted = &scheduler->items.items[item];
    bool to_come = wanted->state == FTH_ITEM_WAITING || wanted->state == FTH_ITEM_BEING_MADE;
    if (to_come && !wanted->wanted &&
        fth_grow(&scheduler->wanted.items, scheduler->wanted.count, &scheduler->wanted.capacity,
                 sizeof *scheduler->wanted.items) == FTH_OK) {
        scheduler->wanted.items[scheduler->wanted.count++] = item;
        wanted->wanted = true;
    }
    return true;
}

/* ---- figures and freeing ---- */

bool fth_scheduler_get_job_figures(const fth_scheduler *scheduler, uint64_t id, fth_scheduler_job_figures *figures)
{
    const fth_scheduled_job *job = fth_scheduler_find_job(scheduler, id);
    if (!job)
        return false;
    *figures = (fth_scheduler_job_figures){.position = fth_job_position(job),
                                           .pace = fth_scheduler_pace(scheduler, id),
                                           .decoded_for_it = job->decoded_for_it,
                                           .decoded_by_others = job->decoded_by_others};
    for (size_t i = 0; i < job->consumer_count; i++) {
        const fth_consumer *consumer = job->consumers[i];
        for (uint32_t turn = consumer->first; turn != consumer->end_turn && step_at(consumer, turn)->missing == 0;
             turn++)
            figures->ready_ahead++;
    }
    return true;
}

void fth_consumers_release(fth_scheduler *scheduler)
{
    for (size_t i = 0; i < scheduler->consumer_count; i++)
        if (scheduler->consumers[i]) {
            free(scheduler->consumers[i]->steps);
            free(scheduler->consumers[i]);
        }
    free(scheduler->consumers);
    free(scheduler->needs.at);
    free(scheduler->wanted.items);
}
