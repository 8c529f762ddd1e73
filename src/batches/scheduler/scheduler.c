/* The events of items: wanted or due -> being made -> ready, or failed. See scheduler.h and
 * scheduler_internal.h.
 *
 *                   overdue: by a second maker, too
 *     waiting -> being made -> ready -> (dropped, lost) -> waiting, or forgotten where nobody needs it
 *        ^            |
 *        +-- failed, and tries are left; then failed for good */
#include "batches/scheduler/scheduler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "batches/scheduler/scheduler_internal.h"

enum { DEFAULT_TRIES = 3 };
static const uint32_t steps_ahead = 2; /* of a consumer, or: */
static const double default_lookahead_s = 10;
static const double first_pause_s = 0.2; /* after a failure; doubled with each */
static const double longest_pause_s = 2;
static const int memory_patience = 10; /* times as many tries where only room is missing: a reader may hold it */
/* What somebody waits for is given to a second maker when it takes this long, and this many times
 * as long as usual. */
static const double overdue_s = 1.5, overdue_times = 4;
static const double next_look_s = 1; /* where nothing is known to happen */
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
    for (size_t i = 0; i < scheduler->makers.trouble_count; i++)
        free(scheduler->makers.troubles[i]);
    free(scheduler->makers.troubles);
    free(scheduler->makers.again);
    fth_item_table_release(&scheduler->items);
    free(scheduler);
}

static void move_clock(fth_scheduler *scheduler, double now_s)
{
    scheduler->now_s = fmax(scheduler->now_s, now_s);
}

/* ---- what is next ---- */

static void stop_wanting(fth_scheduler *scheduler, uint32_t item)
{
    fth_known_item *known = &scheduler->items.items[item];
    if (!known->wanted)
        return;
    known->wanted = false;
    size_t kept = 0;
    for (size_t i = 0; i < scheduler->wanted_count; i++)
        if (scheduler->wanted[i] != item)
            scheduler->wanted[kept++] = scheduler->wanted[i];
    scheduler->wanted_count = kept;
}

/* Whether it takes another maker so long that this one should make it, too. */
static bool is_overdue(const fth_scheduler *scheduler, uint32_t item, int maker)
{
    const fth_known_item *known = &scheduler->items.items[item];
    const fth_item_group *group = fth_scheduler_group(scheduler, known->group);
    if (!group || known->state != FTH_ITEM_BEING_MADE || /* without a group: its jobs have gone meanwhile */
        scheduler->now_s < known->taken_s + fmax(overdue_s, overdue_times * group->preparing_s))
        return false;
    return maker == FTH_ANY_MAKER ? fth_makers_has_other(&scheduler->makers, known->maker, scheduler->now_s)
                                  : maker != known->maker;
}

/* Of what somebody waits for and this maker may try, that of who has waited longest; 0: none. */
static uint32_t find_wanted(const fth_scheduler *scheduler, int maker, double *needed_s)
{
    uint32_t found = 0;
    *needed_s = INFINITY;
    for (size_t i = 0; i < scheduler->wanted_count; i++) {
        uint32_t item = scheduler->wanted[i];
        if ((scheduler->items.items[item].state != FTH_ITEM_WAITING && !is_overdue(scheduler, item, maker)) ||
            !fth_makers_may_try(scheduler, item, maker, scheduler->now_s))
            continue;
        double time = fth_item_needed_s(scheduler, item, NULL);
        if (time < *needed_s) {
            *needed_s = time;
            found = item;
        }
    }
    return found;
}

/* The first item of a group is made alone, unless somebody waits for more: it says how large they
 * are. */
static bool is_being_measured(const fth_scheduler *scheduler, const fth_scheduled_job *job)
{
    const fth_item_group *group = fth_scheduler_group(scheduler, job->group);
    return group->mean_bytes == 0 && group->making > 0;
}

/* Begun later, it might not be there in time. */
static bool is_soon(const fth_scheduler *scheduler, const fth_consumer *consumer, double needed_s)
{
    return consumer->untried - consumer->first < steps_ahead ||
           needed_s < scheduler->now_s + fth_consumer_lead_s(scheduler, consumer);
}

/* What is needed first of all that has to be prepared; 0: nothing. */
static uint32_t find_due(fth_scheduler *scheduler, int maker, double *needed_s, fth_urgency *urgency)
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
    for (size_t i = 0; i < scheduler->makers.again_count; i++) {
        uint32_t item = scheduler->makers.again[i];
        if (scheduler->items.items[item].state != FTH_ITEM_WAITING ||
            !fth_makers_may_try(scheduler, item, maker, scheduler->now_s))
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

static void give(fth_scheduler *scheduler, uint32_t item, uint64_t size_bytes, int maker, fth_order *order)
{
    uint32_t earliest = 0;
    const double needed_s = fth_item_needed_s(scheduler, item, &earliest);
    const fth_item_need *need = &scheduler->needs[earliest];
    const fth_consumer *consumer = scheduler->consumers[need->consumer];
    fth_known_item *known = &scheduler->items.items[item];
    known->job = consumer->job->id;
    known->taken_s = scheduler->now_s;
    known->maker = (uint8_t)maker;
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

/* What `maker` should prepare now; 0: nothing. *blocked: there is something, but no room. */
static uint32_t choose(fth_scheduler *scheduler, int maker, uint64_t *size_bytes, bool *blocked)
{
    double needed_s;
    fth_urgency urgency = FTH_NOW;
    uint32_t item = find_wanted(scheduler, maker, &needed_s);
    if (!item)
        item = find_due(scheduler, maker, &needed_s, &urgency);
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

bool fth_scheduler_take(fth_scheduler *scheduler, const char *maker, double now_s, fth_order *order)
{
    uint64_t size_bytes;
    bool blocked;
    move_clock(scheduler, now_s);
    int number = fth_makers_find(&scheduler->makers, maker, now_s);
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
    if (choose(scheduler, FTH_ANY_MAKER, &size_bytes, &blocked))
        return now_s;
    double next = fmin(now_s + next_look_s, fth_makers_next_try(scheduler, now_s));
    return blocked ? fmin(next, now_s + next_look_for_room_s) : next;
}

/* ---- what became of it ---- */

static void end_making(fth_scheduler *scheduler, uint32_t item)
{
    const fth_known_item *known = &scheduler->items.items[item];
    fth_item_group *group = fth_scheduler_group(scheduler, known->group);
    if (!group || known->state != FTH_ITEM_BEING_MADE)
        return;
    double passed = scheduler->now_s - known->taken_s;
    group->making--;
    group->preparing_s = group->preparing_s > 0 ? 0.9 * group->preparing_s + 0.1 * passed : passed;
}

static void make_ready(fth_scheduler *scheduler, uint32_t item, const fth_receipt *receipt)
{
    bool was_ready = scheduler->items.items[item].state == FTH_ITEM_READY;
    scheduler->items.items[item].checksum = receipt->checksum;
    fth_item_table_set_state(&scheduler->items, item, FTH_ITEM_READY, receipt->size_bytes);
    stop_wanting(scheduler, item);
    fth_makers_forget(scheduler, item);
    if (!was_ready)
        fth_needs_ready(scheduler, item);
    if (!scheduler->items.items[item].needs)
        fth_item_settle(scheduler, item);
}

static void count_preparation(fth_scheduler *scheduler, fth_item_kind kind, const fth_preparation *preparation)
{
    fth_scheduler_figures *totals = &scheduler->totals;
    totals->prepared++;
    totals->decoded_images += (uint64_t)preparation->decoded;
    totals->fetched_bytes += preparation->fetched_bytes;
    totals->bad_samples += (uint64_t)preparation->bad;
    totals->fetch_s += preparation->fetch_s;
    totals->decode_s += preparation->decode_s;
    totals->transform_s += preparation->transform_s;
    fth_costs_add(&scheduler->costs[kind], preparation);
}

void fth_scheduler_done(fth_scheduler *scheduler, const fth_order *order, const fth_preparation *preparation,
                        double now_s)
{
    move_clock(scheduler, now_s);
    count_preparation(scheduler, order->kind, preparation);
    uint32_t item = fth_item_table_add(&scheduler->items, order->id);
    if (!item)
        return; /* no memory to know it by: it lies in the cache until that is cleared */
    fth_known_item *known = &scheduler->items.items[item];
    known->kind = (uint8_t)order->kind;
    known->decoded = (uint32_t)preparation->decoded;
    fth_scheduled_job *job = fth_scheduler_find_job(scheduler, known->job);
    if (job)
        job->decoded_for_it += known->decoded;
    end_making(scheduler, item);
    fth_item_group *group = fth_scheduler_group(scheduler, known->group);
    double size = (double)preparation->receipt.size_bytes;
    const uint32_t number = known->group;
    if (group) {
        group->made++;
        group->mean_bytes = group->mean_bytes > 0 ? 0.9 * group->mean_bytes + 0.1 * size : size;
    }
    make_ready(scheduler, item, &preparation->receipt);
    if (group)
        fth_jobs_refuse_too_large(scheduler, number);
}

bool fth_scheduler_failed(fth_scheduler *scheduler, const fth_order *order, const char *maker, fth_status status,
                          const char *reason, double now_s)
{
    move_clock(scheduler, now_s);
    uint32_t item = fth_item_table_find(&scheduler->items, order->id);
    int number = fth_makers_find(&scheduler->makers, maker, now_s);
    if (!item || scheduler->items.items[item].state != FTH_ITEM_BEING_MADE ||
        scheduler->items.items[item].maker != number)
        return false; /* it is done, or was overdue and a second maker is at it */
    end_making(scheduler, item);
    if (!scheduler->items.items[item].needs) {
        fth_item_drop(scheduler, item);
        return false;
    }
    fth_trouble *trouble = fth_makers_trouble(scheduler, item);
    bool hopeless = status == FTH_INVALID || status == FTH_UNSUPPORTED || status == FTH_NO_SPACE || !trouble;
    if (trouble) {
        int tries = status == FTH_NO_MEMORY ? ++trouble->lacked_room : ++trouble->tries;
        int most = scheduler->options.max_tries * (status == FTH_NO_MEMORY ? memory_patience : 1);
        trouble->status = status;
        snprintf(trouble->reason, sizeof trouble->reason, "%s", reason);
        trouble->retry_s = now_s + fmin(first_pause_s * pow(2, tries - 1), longest_pause_s);
        if (status != FTH_NO_MEMORY) /* which is the cache's, not the maker's */
            trouble->makers |= UINT64_C(1) << number;
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
        make_ready(scheduler, item, receipt);
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
        *reason = known->trouble ? scheduler->makers.troubles[known->trouble - 1]->reason : "out of memory";
    return (fth_item_state)known->state;
}

const char *fth_scheduler_lacks_room(const fth_scheduler *scheduler, fth_item_id id)
{
    uint32_t item = fth_item_table_find(&scheduler->items, id);
    uint32_t trouble = item ? scheduler->items.items[item].trouble : 0;
    const fth_trouble *known = trouble ? scheduler->makers.troubles[trouble - 1] : NULL;
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
