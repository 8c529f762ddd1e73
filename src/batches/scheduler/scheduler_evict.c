/* Eviction when memory is short: first items that no job needs soon, then those needed last, which
 * is Belady's rule with expected times. Finding the latter takes a look at every item, so some
 * hundreds are found at a time, and no more often than pays. See scheduler.h. */
#include <math.h>
#include <stdlib.h>

#include "batches/scheduler/scheduler_internal.h"

/* How much later an item must be needed to make room for another, since it has cost something. */
static const double least_gain_s = 0.5;
static const double candidates_age_s = 0.02; /* for each of so many items: */
enum { ITEMS_PER_LOOK = 5000 };

static int compare_candidates(const void *first, const void *second)
{
    const double *a = first, *b = second; /* needed_s is the first member */
    return (*a < *b) - (*a > *b);
}

static bool is_candidate(const fth_known_item *known)
{
    return known->state == FTH_ITEM_READY && known->needs;
}

/* Adds an item to a heap whose root is needed first; a full heap drops its root. */
static void offer_candidate(fth_eviction_candidates *candidates, uint32_t item, double needed_s)
{
    size_t at = 0;
    if (candidates->count == FTH_MAX_EVICTION_CANDIDATES) {
        if (needed_s <= candidates->list[0].needed_s)
            return;
        for (;;) {
            size_t child = 2 * at + 1;
            if (child + 1 < candidates->count &&
                candidates->list[child + 1].needed_s < candidates->list[child].needed_s)
                child++;
            if (child >= candidates->count || candidates->list[child].needed_s >= needed_s)
                break;
            candidates->list[at] = candidates->list[child];
            at = child;
        }
    } else {
        at = candidates->count++;
        for (; at > 0 && candidates->list[(at - 1) / 2].needed_s > needed_s; at = (at - 1) / 2)
            candidates->list[at] = candidates->list[(at - 1) / 2];
    }
    candidates->list[at].needed_s = needed_s;
    candidates->list[at].item = item;
}

static void find_candidates(fth_scheduler *scheduler)
{
    fth_eviction_candidates *candidates = &scheduler->candidates;
    candidates->count = candidates->at = 0;
    candidates->made_s = scheduler->now_s;
    for (uint32_t item = 1; item < scheduler->items.count; item++)
        if (is_candidate(&scheduler->items.items[item]))
            offer_candidate(candidates, item, fth_item_needed_s(scheduler, item, NULL));
    qsort(candidates->list, candidates->count, sizeof *candidates->list, compare_candidates);
}

/* Whether the items needed after `limit_s` have that many bytes. */
static bool candidates_cover(fth_scheduler *scheduler, uint64_t bytes, double limit_s)
{
    fth_eviction_candidates *candidates = &scheduler->candidates;
    double age = candidates_age_s * (1 + (double)scheduler->items.count / ITEMS_PER_LOOK);
    if (scheduler->now_s >= candidates->made_s + age || candidates->made_s == 0)
        find_candidates(scheduler);
    uint64_t covered = 0;
    for (size_t i = candidates->at; i < candidates->count && candidates->list[i].needed_s > limit_s && covered < bytes;
         i++) {
        const fth_known_item *known = &scheduler->items.items[candidates->list[i].item];
        covered += is_candidate(known) ? known->size_bytes : 0;
    }
    return covered >= bytes;
}

bool fth_scheduler_has_room(fth_scheduler *scheduler, uint64_t size_bytes, double needed_s, fth_urgency urgency)
{
    const fth_item_table *items = &scheduler->items;
    uint64_t used = fth_item_table_used(items), memory = scheduler->options.memory_bytes;
    if (used + size_bytes <= memory)
        return true;
    uint64_t lacking = used + size_bytes - memory;
    uint64_t unused = items->list_bytes[FTH_LIST_SPENT] + items->list_bytes[FTH_LIST_FOUND];
    uint64_t later = items->list_bytes[FTH_LIST_LATER];
    if (lacking <= unused)
        return true;
    if (urgency == FTH_AHEAD)
        return false; /* items that jobs need later are worth more than a longer lead */
    if (lacking <= unused + later || used == unused + later) /* alone, an item may be tried that is too large */
        return true;
    return candidates_cover(scheduler, lacking - unused - later, needed_s + (urgency == FTH_NOW ? 0 : least_gain_s));
}

/* The next item to drop; 0: none. */
static uint32_t choose_candidate(fth_scheduler *scheduler, bool *looked)
{
    const fth_item_table *items = &scheduler->items;
    fth_eviction_candidates *candidates = &scheduler->candidates;
    if (items->oldest[FTH_LIST_SPENT])
        return items->oldest[FTH_LIST_SPENT];
    if (items->oldest[FTH_LIST_FOUND])
        return items->oldest[FTH_LIST_FOUND];
    if (items->newest[FTH_LIST_LATER])
        return items->newest[FTH_LIST_LATER];
    for (;;) {
        while (candidates->at < candidates->count) {
            uint32_t item = candidates->list[candidates->at].item;
            double needed_s = candidates->list[candidates->at].needed_s;
            candidates->at++;
            if (is_candidate(&items->items[item]) &&
                fth_item_needed_s(scheduler, item, NULL) >= needed_s - least_gain_s)
                return item;
        }
        if (*looked)
            return 0;
        find_candidates(scheduler);
        *looked = true;
    }
}

size_t fth_scheduler_evict(fth_scheduler *scheduler, uint64_t needed_bytes, double now_s, fth_item_id *ids, size_t room)
{
    scheduler->now_s = fmax(scheduler->now_s, now_s);
    uint64_t used = fth_item_table_used(&scheduler->items), memory = scheduler->options.memory_bytes;
    uint64_t goal = used > memory ? used - memory : 0, freed = 0;
    size_t count = 0;
    bool looked = false;
    goal = goal > needed_bytes ? goal : needed_bytes;
    if (goal > 0)
        fth_jobs_expire(scheduler);
    while (freed < goal && count < room) {
        uint32_t item = choose_candidate(scheduler, &looked);
        if (!item)
            break;
        ids[count++] = scheduler->items.items[item].id;
        freed += scheduler->items.items[item].size_bytes;
        scheduler->totals.evicted++;
        if (!scheduler->items.items[item].needs) {
            fth_item_drop(scheduler, item);
            continue;
        }
        fth_item_table_set_state(&scheduler->items, item, FTH_ITEM_WAITING, 0);
        fth_needs_missing(scheduler, item);
        fth_needs_rewind(scheduler, item);
    }
    return count;
}
