/* See long_poll.h. */
#include "http/long_poll.h"

#include <math.h>

static const double GRACE_S = 60; /* the service answers first; the server's own deadline is a safety net */

void fth_long_polls_add(fth_long_polls *polls, fth_long_poll *poll, fth_exchange *exchange, double seconds)
{
    fth_long_poll **last = &polls->first;
    poll->next = NULL;
    poll->exchange = exchange;
    poll->until_s = fth_clock_seconds() + seconds;
    if (polls->answer(polls->context, poll, seconds <= 0)) {
        polls->release(poll);
        return;
    }
    fth_exchange_hold(exchange, seconds + GRACE_S, 503);
    while (*last)
        last = &(*last)->next;
    *last = poll;
}

/* Answers what can be answered by `now_s`. */
static void answer_until(fth_long_polls *polls, double now_s)
{
    for (fth_long_poll **at = &polls->first; *at;) {
        fth_long_poll *poll = *at;
        if (polls->answer(polls->context, poll, now_s >= poll->until_s)) {
            *at = poll->next;
            polls->release(poll);
        } else {
            at = &poll->next;
        }
    }
}

void fth_long_polls_check(fth_long_polls *polls)
{
    answer_until(polls, fth_clock_seconds());
}

void fth_long_polls_end(fth_long_polls *polls)
{
    answer_until(polls, INFINITY);
}

void fth_long_polls_drop_abandoned(fth_long_polls *polls, void (*gone)(void *context, const fth_long_poll *poll))
{
    for (fth_long_poll **at = &polls->first; *at;) {
        fth_long_poll *poll = *at;
        if (!fth_exchange_is_abandoned(poll->exchange)) {
            at = &poll->next;
            continue;
        }
        *at = poll->next;
        if (gone)
            gone(polls->context, poll);
        fth_exchange_answer(poll->exchange, 503, NULL, NULL, 0); /* nobody reads it; ends the hold */
        polls->release(poll);
    }
}
