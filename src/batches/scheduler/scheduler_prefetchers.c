/* The prefetchers and their failures: an item is retried by a prefetcher that has not failed at it
 * or, if there is none, by one that has, after a longer pause. See scheduler_internal.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batches/scheduler/scheduler_internal.h"

static const double prefetcher_expires_s = 30; /* without asking for orders */
/* How much longer a prefetcher waits before it retries its own failures, per try. */
static const double own_pause_s = 0.4;

int fth_prefetcher_list_find(fth_prefetcher_list *prefetchers, const char *name, double now_s)
{
    int found = 0;
    while (found < prefetchers->count && strncmp(prefetchers->names[found], name, FTH_PREFETCHER_NAME - 1) != 0)
        found++;
    if (found == prefetchers->count) {
        if (prefetchers->count < FTH_MAX_PREFETCHERS)
            prefetchers->count++;
        else /* replaces the one not seen for longest */
            for (int i = found = 0; i < FTH_MAX_PREFETCHERS; i++)
                found = prefetchers->seen_s[i] < prefetchers->seen_s[found] ? i : found;
        snprintf(prefetchers->names[found], FTH_PREFETCHER_NAME, "%s", name);
    }
    prefetchers->seen_s[found] = now_s;
    return found;
}

fth_item_failure *fth_item_failure_add(fth_scheduler *scheduler, uint32_t item)
{
    fth_prefetcher_list *prefetchers = &scheduler->prefetchers;
    fth_known_item *known = &scheduler->items.items[item];
    if (known->failure)
        return prefetchers->failures[known->failure - 1];
    size_t place = 0;
    while (place < prefetchers->failure_count && prefetchers->failures[place])
        place++;
    fth_item_failure *failure = NULL;
    if (fth_grow(&prefetchers->failures, place, &prefetchers->failure_capacity, sizeof *prefetchers->failures) !=
            FTH_OK ||
        fth_grow(&prefetchers->again, prefetchers->again_count, &prefetchers->again_capacity,
                 sizeof *prefetchers->again) != FTH_OK ||
        fth_allocate(1, sizeof *failure, &failure) != FTH_OK)
        return NULL;
    prefetchers->failures[place] = failure;
    if (place == prefetchers->failure_count)
        prefetchers->failure_count++;
    prefetchers->again[prefetchers->again_count++] = item;
    known->failure = (uint32_t)place + 1;
    return failure;
}

void fth_item_failure_forget(fth_scheduler *scheduler, uint32_t item)
{
    fth_prefetcher_list *prefetchers = &scheduler->prefetchers;
    fth_known_item *known = &scheduler->items.items[item];
    if (!known->failure)
        return;
    free(prefetchers->failures[known->failure - 1]);
    prefetchers->failures[known->failure - 1] = NULL;
    known->failure = 0;
    for (size_t i = 0; i < prefetchers->again_count; i++)
        if (prefetchers->again[i] == item)
            prefetchers->again[i--] = prefetchers->again[--prefetchers->again_count];
}

bool fth_prefetcher_list_has_other(const fth_prefetcher_list *prefetchers, int prefetcher, double now_s)
{
    for (int i = 0; i < prefetchers->count; i++)
        if (i != prefetcher && prefetchers->seen_s[i] > now_s - prefetcher_expires_s)
            return true;
    return false;
}

/* When a prefetcher that has failed at an item may retry it. */
static double own_retry_s(const fth_item_failure *failure)
{
    return failure->retry_s + own_pause_s * failure->tries;
}

bool fth_prefetcher_may_try(const fth_scheduler *scheduler, uint32_t item, int prefetcher, double now_s)
{
    const fth_prefetcher_list *prefetchers = &scheduler->prefetchers;
    uint32_t number = scheduler->items.items[item].failure;
    if (!number)
        return true;
    const fth_item_failure *failure = prefetchers->failures[number - 1];
    if (now_s < failure->retry_s)
        return false;
    bool others = false; /* active ones without a failure */
    for (int i = 0; i < prefetchers->count; i++)
        others = others || (!(failure->prefetchers >> i & 1) && prefetchers->seen_s[i] > now_s - prefetcher_expires_s);
    if (prefetcher == FTH_ANY_PREFETCHER ? others : !(failure->prefetchers >> prefetcher & 1))
        return true;
    return !others && now_s >= own_retry_s(failure);
}

double fth_prefetchers_next_try(const fth_scheduler *scheduler, double now_s)
{
    double next = INFINITY;
    for (size_t i = 0; i < scheduler->prefetchers.again_count; i++) {
        const fth_known_item *known = &scheduler->items.items[scheduler->prefetchers.again[i]];
        const fth_item_failure *failure = scheduler->prefetchers.failures[known->failure - 1];
        if (known->state != FTH_ITEM_WAITING)
            continue;
        double time = failure->retry_s > now_s ? failure->retry_s : own_retry_s(failure);
        if (time > now_s)
            next = fmin(next, time);
    }
    return next;
}
