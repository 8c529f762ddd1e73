/* The life of an item. See scheduler.h and scheduler_internal.h.
 *
 *                   overdue: also given to a second prefetcher
 *     waiting -> being made -> ready -> (dropped, lost) -> waiting, or forgotten if not needed
 *        ^            |
 *        +-- failed, with tries left; otherwise it has failed for good */
#include "batches/scheduler/scheduler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "batches/scheduler/scheduler_internal.h"

enum { DEFAULT_TRIES = 3 };
static const uint32_t steps_ahead = 2; /* of a consumer, or the time below */
static const double default_lookahead_s = 10;
static const double first_pause_s = 0.2; /* after a failure; doubled each time */
static const double longest_pause_s = 2;
static const int memory_patience = 10; /* times as many tries if only room is missing, which a reader may hold */
/* An item that a process waits for goes to a second prefetcher when it takes this long, and this
 * many times as long as usual. */
static const double overdue_s = 1.5, overdue_times = 4;
static const double next_look_s = 1; /* when no event is expected */
static const double next_look_for_room_s = 0.02;

fth_status fth_scheduler_create(const fth_scheduler_options *options, fth_scheduler **scheduler)
{
    fth_status status = fth_allocate(1, sizeof **scheduler, scheduler);
    if (status != FTH_OK)
        return status;
    fth_scheduler_options *own = &(*scheduler)->options;
    *own = *options;
    own->max_tries = own->max_tries > 0 ? own->max_tries : DEFAULT_TRIES;
    own->lookahead_s = own->lookahead_s > 0 ? own->lookahead_s : default_lookahead_s;
    return FTH_OK;
}

void fth_scheduler_free(fth_scheduler *scheduler)
{
    if (!scheduler)
        return;
    fth_consumers_release(scheduler);
    fth_jobs_release(scheduler);
    for (size_t i = 0; i < scheduler->prefetchers.failure_count; i++)
        free(scheduler->prefetchers.failures[i]);
    free(scheduler->prefetchers.failures);
    free(scheduler->prefetchers.again);
    fth_item_table_release(&scheduler->items);
    free(scheduler);
}

static void move_clock(fth_scheduler *scheduler, double now_s)
{
    scheduler->now_s = fmax(scheduler->now_s, now_s);
}

/* ---- what comes next ---- */

static void stop_wanting(fth_scheduler *scheduler, uint32_t item)
{
    fth_known_item *known = &scheduler->items.items[item];
    if (!known->wanted)
        return;
    known->wanted = false;
    size_t kept = 0;
    for (size_t i = 0; i < scheduler->wanted.count; i++)
        if (scheduler->wanted.items[i] != item)
            scheduler->wanted.items[kept++] = scheduler->wanted.items[i];
    scheduler->wanted.count = kept;
}

/* Whether another prefetcher has taken so long that this one should make the item as well. */
static bool is_overdue(const fth_scheduler *scheduler, uint32_t item, int prefetcher)
{
    const fth_known_item *known = &scheduler->items.items[item];
    const fth_item_group *group = fth_scheduler_group(scheduler, known->group);
    if (!group || known->state != FTH_ITEM_BEING_MADE || /* no group: its jobs are gone */
        scheduler->now_s < known->taken_s + fmax(overdue_s, overdue_times * group->order_s))
        return false;
    return prefetcher == FTH_ANY_PREFETCHER
               ? fth_prefetcher_list_has_other(&scheduler->prefetchers, known->prefetcher, scheduler->now_s)
               : prefetcher != known->prefetcher;
}

/* Of the wanted items that this prefetcher may try, the one waited for longest; 0: none. */
static uint32_t find_wanted(const fth_scheduler *scheduler, int prefetcher, double *needed_s)
{
    uint32_t found = 0;
    *needed_s = INFINITY;
    for (size_t i = 0; i < scheduler->wanted.count; i++) {
        uint32_t item = scheduler->wanted.items[i];
        if ((scheduler->items.items[item].state != FTH_ITEM_WAITING && !is_overdue(scheduler, item, prefetcher)) ||
            !fth_prefetcher_may_try(scheduler, item, prefetcher, scheduler->now_s))
            continue;
        double time = fth_item_needed_s(scheduler, item, NULL);
        if (time < *needed_s) {
            *needed_s = time;
            found = item;
        }
    }
    return found;
}

/* The first item of a group is made alone, unless a process waits for others: it shows their
 * size. */
static bool is_being_measured(const fth_scheduler *scheduler, const fth_scheduled_job *job)
{
    const fth_item_group *group = fth_scheduler_group(scheduler, job->group);
    return group->mean_bytes == 0 && group->making > 0;
}

/* Whether an item begun later might be late. */
static bool is_soon(const fth_scheduler *scheduler, const fth_consumer *consumer, double needed_s)
{
    return consumer->untried - consumer->first < steps_ahead ||
           needed_s < scheduler->now_s + fth_consumer_lead_s(scheduler, consumer);
}

/* The item needed first of all that must be made; 0: none. */
static uint32_t find_due(fth_scheduler *scheduler, int prefetcher, double *needed_s, fth_urgency *urgency)
{
    uint32_t found = 0;
    *needed_s = INFINITY;
    for (size_t i = 0; i < scheduler->consumer_count; i++) {
        fth_consumer *consumer = scheduler->consumers[i];
        bool open = consumer && !is_being_measured(scheduler, consumer->job);
        uint32_t item = open ? fth_consumer_candidate(scheduler, consumer) : 0;
        double time = item ? fth_consumer_time(scheduler, consumer, consumer->untried) : INFINITY;
        if (time < *needed_s) {
            *needed_s = time;
            bool waits = consumer->asked_s > 0 && consumer->untried == consumer->first;
            *urgency = waits ? FTH_NOW : is_soon(scheduler, consumer, time) ? FTH_SOON : FTH_AHEAD;
            found = item;
        }
    }
    for (size_t i = 0; i < scheduler->prefetchers.again_count; i++) {
        uint32_t item = scheduler->prefetchers.again[i];
        if (scheduler->items.items[item].state != FTH_ITEM_WAITING ||
            !fth_prefetcher_may_try(scheduler, item, prefetcher, scheduler->now_s))
            continue;
        double time = fth_item_needed_s(scheduler, item, NULL);
        if (time < *needed_s) {
            *needed_s = time;
            *urgency = FTH_SOON;
            found = item;
        }
    }
    return found;
}

static void give(fth_scheduler *scheduler, uint32_t item, uint64_t size_bytes, int prefetcher, fth_order *order)
{
    uint32_t earliest = 0;
    const double needed_s = fth_item_needed_s(scheduler, item, &earliest);
    const fth_item_need *need = &scheduler->needs.at[earliest];
    const fth_consumer *consumer = scheduler->consumers[need->consumer];
    fth_known_item *known = &scheduler->items.items[item];
    known->job = consumer->job->id;
    known->taken_s = scheduler->now_s;
    known->prefetcher = (uint8_t)prefetcher;
    if (known->state != FTH_ITEM_BEING_MADE) /* it may be overdue */
        fth_scheduler_group(scheduler, known->group)->making++;
    fth_item_table_set_state(&scheduler->items, item, FTH_ITEM_BEING_MADE, size_bytes);
    *order =
        (fth_order){.id = known->id,
                    .kind = (fth_item_kind)known->kind,
                    .spec = consumer->job->spec,
                    .needed_s = needed_s,
                    .number = known->kind == FTH_ITEM_BATCH ? fth_consumer_number(consumer, need->turn) : known->place};
}

/* The item that `prefetcher` should make now; 0: none. *blocked: there is one, but no room. */
static uint32_t choose(fth_scheduler *scheduler, int prefetcher, uint64_t *size_bytes, bool *blocked)
{
    double needed_s;
    fth_urgency urgency = FTH_NOW;
    uint32_t item = find_wanted(scheduler, prefetcher, &needed_s);
    if (!item)
        item = find_due(scheduler, prefetcher, &needed_s, &urgency);
    *blocked = false;
    if (!item)
        return 0;
    *size_bytes = fth_scheduler_expected_bytes(scheduler, &scheduler->items.items[item]);
    if (scheduler->items.items[item].state == FTH_ITEM_BEING_MADE)
        *size_bytes = scheduler->items.items[item].size_bytes; /* for which there is room already */
    else
        *blocked = !fth_scheduler_has_room(scheduler, *size_bytes, needed_s, urgency);
    return *blocked ? 0 : item;
}

bool fth_scheduler_take(fth_scheduler *scheduler, const char *prefetcher, double now_s, fth_order *order)
{
    uint64_t size_bytes;
    bool blocked;
    move_clock(scheduler, now_s);
    int number = fth_prefetcher_list_find(&scheduler->prefetchers, prefetcher, now_s);
    uint32_t item = choose(scheduler, number, &size_bytes, &blocked);
    if (item)
        give(scheduler, item, size_bytes, number, order);
    return item != 0;
}

double fth_scheduler_next_event(fth_scheduler *scheduler, double now_s)
{
    uint64_t size_bytes;
    bool blocked;
    move_clock(scheduler, now_s);
    if (choose(scheduler, FTH_ANY_PREFETCHER, &size_bytes, &blocked))
        return now_s;
    double next = fmin(now_s + next_look_s, fth_prefetchers_next_try(scheduler, now_s));
    return blocked ? fmin(next, now_s + next_look_for_room_s) : next;
}

/* ---- outcomes ---- */

static void end_order(fth_scheduler *scheduler, uint32_t item)
{
    const fth_known_item *known = &scheduler->items.items[item];
    fth_item_group *group = fth_scheduler_group(scheduler, known->group);
    if (!group || known->state != FTH_ITEM_BEING_MADE)
        return;
    double passed = scheduler->now_s - known->taken_s;
    group->making--;
    group->order_s = group->order_s > 0 ? 0.9 * group->order_s + 0.1 * passed : passed;
}

static void set_ready(fth_scheduler *scheduler, uint32_t item, const fth_receipt *receipt)
{
    bool was_ready = scheduler->items.items[item].state == FTH_ITEM_READY;
    scheduler->items.items[item].checksum = receipt->checksum;
    fth_item_table_set_state(&scheduler->items, item, FTH_ITEM_READY, receipt->size_bytes);
    stop_wanting(scheduler, item);
    fth_item_failure_forget(scheduler, item);
    if (!was_ready)
        fth_needs_ready(scheduler, item);
    if (!scheduler->items.items[item].needs)
        fth_item_settle(scheduler, item);
}

static void count_result(fth_scheduler *scheduler, fth_item_kind kind, const fth_prefetch_result *result)
{
    fth_scheduler_figures *totals = &scheduler->totals;
    totals->prepared++;
    totals->decoded_images += (uint64_t)result->decoded;
    totals->fetched_bytes += result->fetched_bytes;
    totals->bad_samples += (uint64_t)result->bad;
    totals->fetch_s += result->fetch_s;
    totals->decode_s += result->decode_s;
    totals->transform_s += result->transform_s;
    fth_costs_add(&scheduler->costs[kind], result);
}

void fth_scheduler_done(fth_scheduler *scheduler, const fth_order *order, const fth_prefetch_result *result,
                        double now_s)
{
    move_clock(scheduler, now_s);
    count_result(scheduler, order->kind, result);
    uint32_t item = fth_item_table_add(&scheduler->items, order->id);
    if (!item)
        return; /* it stays in the cache, unknown, until the cache is cleared */
    fth_known_item *known = &scheduler->items.items[item];
    known->kind = (uint8_t)order->kind;
    known->decoded = (uint32_t)result->decoded;
    fth_scheduled_job *job = fth_scheduler_find_job(scheduler, known->job);
    if (job)
        job->decoded_for_it += known->decoded;
    end_order(scheduler, item);
    fth_item_group *group = fth_scheduler_group(scheduler, known->group);
    double size = (double)result->receipt.size_bytes;
    const uint32_t number = known->group;
    if (group) {
        group->made++;
        group->mean_bytes = group->mean_bytes > 0 ? 0.9 * group->mean_bytes + 0.1 * size : size;
    }
    set_ready(scheduler, item, &result->receipt);
    if (group)
        fth_jobs_refuse_too_large(scheduler, number);
}

bool fth_scheduler_failed(fth_scheduler *scheduler, const fth_order *order, const char *prefetcher, fth_status status,
                          const char *reason, double now_s)
{
    move_clock(scheduler, now_s);
    uint32_t item = fth_item_table_find(&scheduler->items, order->id);
    int number = fth_prefetcher_list_find(&scheduler->prefetchers, prefetcher, now_s);
    if (!item || scheduler->items.items[item].state != FTH_ITEM_BEING_MADE ||
        scheduler->items.items[item].prefetcher != number)
        return false; /* it is done, or a second prefetcher has it */
    end_order(scheduler, item);
    if (!scheduler->items.items[item].needs) {
        fth_item_drop(scheduler, item);
        return false;
    }
    fth_item_failure *failure = fth_item_failure_add(scheduler, item);
    bool hopeless = status == FTH_INVALID || status == FTH_UNSUPPORTED || status == FTH_NO_SPACE || !failure;
    if (failure) {
        int tries = status == FTH_NO_MEMORY ? ++failure->lacked_room : ++failure->tries;
        int most = scheduler->options.max_tries * (status == FTH_NO_MEMORY ? memory_patience : 1);
        failure->status = status;
        snprintf(failure->reason, sizeof failure->reason, "%s", reason);
        failure->retry_s = now_s + fmin(first_pause_s * pow(2, tries - 1), longest_pause_s);
        if (status != FTH_NO_MEMORY) /* which is the cache's failure */
            failure->prefetchers |= UINT64_C(1) << number;
        hopeless = hopeless || tries >= most;
    }
    if (!hopeless) {
        scheduler->totals.tried_again++;
        fth_item_table_set_state(&scheduler->items, item, FTH_ITEM_WAITING, 0);
        return false;
    }
    scheduler->totals.failed_for_good++;
    fth_item_table_set_state(&scheduler->items, item, FTH_ITEM_FAILED, 0);
    stop_wanting(scheduler, item);
    if (status == FTH_NO_SPACE && order->kind == FTH_ITEM_BATCH)
        fth_jobs_refuse(scheduler, scheduler->items.items[item].group, reason);
    return true;
}

void fth_scheduler_found(fth_scheduler *scheduler, const fth_receipt *receipt)
{
    uint32_t item = fth_item_table_add(&scheduler->items, receipt->id);
    if (item && scheduler->items.items[item].state != FTH_ITEM_BEING_MADE)
        set_ready(scheduler, item, receipt);
}

void fth_scheduler_lost(fth_scheduler *scheduler, fth_item_id id)
{
    uint32_t item = fth_item_table_find(&scheduler->items, id);
    if (!item || scheduler->items.items[item].state != FTH_ITEM_READY)
        return;
    scheduler->totals.lost++;
    if (!scheduler->items.items[item].needs) {
        fth_item_drop(scheduler, item);
        return;
    }
    fth_item_table_set_state(&scheduler->items, item, FTH_ITEM_WAITING, 0);
    fth_needs_missing(scheduler, item);
    fth_needs_rewind(scheduler, item);
}

fth_item_state fth_scheduler_state(const fth_scheduler *scheduler, fth_item_id id, fth_receipt *receipt,
                                   const char **reason)
{
    uint32_t item = fth_item_table_find(&scheduler->items, id);
    if (!item)
        return FTH_ITEM_UNKNOWN;
    const fth_known_item *known = &scheduler->items.items[item];
    if (receipt && known->state == FTH_ITEM_READY)
        *receipt = (fth_receipt){.id = id, .size_bytes = known->size_bytes, .checksum = known->checksum};
    if (reason && known->state == FTH_ITEM_FAILED)
        *reason = known->failure ? scheduler->prefetchers.failures[known->failure - 1]->reason : "out of memory";
    return (fth_item_state)known->state;
}

bool fth_scheduler_needs(const fth_scheduler *scheduler, fth_item_id id)
{
    uint32_t item = fth_item_table_find(&scheduler->items, id);
    return item && scheduler->items.items[item].needs;
}

const char *fth_scheduler_lacks_room(const fth_scheduler *scheduler, fth_item_id id)
{
    uint32_t item = fth_item_table_find(&scheduler->items, id);
    uint32_t failure = item ? scheduler->items.items[item].failure : 0;
    const fth_item_failure *known = failure ? scheduler->prefetchers.failures[failure - 1] : NULL;
    return known && known->lacked_room > 1 ? known->reason : NULL;
}

void fth_scheduler_get_figures(const fth_scheduler *scheduler, fth_scheduler_figures *figures)
{
    const fth_item_table *items = &scheduler->items;
    *figures = scheduler->totals;
    figures->memory_bytes = scheduler->options.memory_bytes;
    figures->ready_items = items->counts[FTH_ITEM_READY];
    figures->ready_bytes = items->bytes[FTH_ITEM_READY];
    figures->making = items->counts[FTH_ITEM_BEING_MADE];
    figures->waiting = items->counts[FTH_ITEM_WAITING];
    figures->failed = items->counts[FTH_ITEM_FAILED];
}
