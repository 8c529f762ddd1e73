/* Who prepares items, and what they failed at: an item is tried again by a maker that has not
 * failed at it, or, where there is no such, by one that has, after a longer pause. See
 * scheduler_internal.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batches/scheduler/scheduler_internal.h"

static const double maker_expires_s = 30; /* without asking for work */
static const double own_pause_s = 0.4; /* how much longer a maker waits before what it failed at itself, for each try */

int fth_makers_find(fth_makers *makers, const char *name, double now_s)
{
    int found = 0;
    while (found < makers->count && strncmp(makers->names[found], name, FTH_MAKER_NAME - 1) != 0)
        found++;
    if (found == makers->count) {
        if (makers->count < FTH_MAX_MAKERS)
            makers->count++;
        else /* in place of the one that has not been seen for longest */
            for (int i = found = 0; i < FTH_MAX_MAKERS; i++)
                found = makers->seen_s[i] < makers->seen_s[found] ? i : found;
        snprintf(makers->names[found], FTH_MAKER_NAME, "%s", name);
    }
    makers->seen_s[found] = now_s;
    return found;
}

fth_trouble *fth_makers_trouble(fth_scheduler *scheduler, uint32_t item)
{
    fth_makers *makers = &scheduler->makers;
    fth_known_item *known = &scheduler->items.items[item];
    if (known->trouble)
        return makers->troubles[known->trouble - 1];
    size_t place = 0;
    while (place < makers->trouble_count && makers->troubles[place])
        place++;
    fth_trouble *trouble = NULL;
    if (fth_grow(&makers->troubles, place, &makers->trouble_capacity, sizeof *makers->troubles) != FTH_OK ||
        fth_grow(&makers->again, makers->again_count, &makers->again_capacity, sizeof *makers->again) != FTH_OK ||
        fth_allocate(1, sizeof *trouble, &trouble) != FTH_OK)
        return NULL;
    makers->troubles[place] = trouble;
    if (place == makers->trouble_count)
        makers->trouble_count++;
    makers->again[makers->again_count++] = item;
    known->trouble = (uint32_t)place + 1;
    return trouble;
}

void fth_makers_forget(fth_scheduler *scheduler, uint32_t item)
{
    fth_makers *makers = &scheduler->makers;
    fth_known_item *known = &scheduler->items.items[item];
    if (!known->trouble)
        return;
    free(makers->troubles[known->trouble - 1]);
    makers->troubles[known->trouble - 1] = NULL;
    known->trouble = 0;
    for (size_t i = 0; i < makers->again_count; i++)
        if (makers->again[i] == item)
            makers->again[i--] = makers->again[--makers->again_count];
}

bool fth_makers_has_other(const fth_makers *makers, int maker, double now_s)
{
    for (int i = 0; i < makers->count; i++)
        if (i != maker && makers->seen_s[i] > now_s - maker_expires_s)
            return true;
    return false;
}

/* When a maker that has failed at it may try it again. */
static double own_retry_s(const fth_trouble *trouble)
{
    return trouble->retry_s + own_pause_s * trouble->tries;
}

bool fth_makers_may_try(const fth_scheduler *scheduler, uint32_t item, int maker, double now_s)
{
    const fth_makers *makers = &scheduler->makers;
    uint32_t number = scheduler->items.items[item].trouble;
    if (!number)
        return true;
    const fth_trouble *trouble = makers->troubles[number - 1];
    if (now_s < trouble->retry_s)
        return false;
    bool others = false; /* that can */
    for (int i = 0; i < makers->count; i++)
        others = others || (!(trouble->makers >> i & 1) && makers->seen_s[i] > now_s - maker_expires_s);
    if (maker == FTH_ANY_MAKER ? others : !(trouble->makers >> maker & 1))
        return true;
    return !others && now_s >= own_retry_s(trouble);
}

double fth_makers_next_try(const fth_scheduler *scheduler, double now_s)
{
    double next = INFINITY;
    for (size_t i = 0; i < scheduler->makers.again_count; i++) {
        const fth_known_item *known = &scheduler->items.items[scheduler->makers.again[i]];
        const fth_trouble *trouble = scheduler->makers.troubles[known->trouble - 1];
        if (known->state != FTH_ITEM_WAITING)
            continue;
        double time = trouble->retry_s > now_s ? trouble->retry_s : own_retry_s(trouble);
        if (time > now_s)
            next = fmin(next, time);
    }
    return next;
}
