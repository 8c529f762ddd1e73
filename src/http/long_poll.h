/* Long polls: requests that are held until they can be answered, or until a deadline.
 *
 *     add -> answered at once, where that is possible
 *         -> held -> answered after a change (check), or at the deadline at the latest
 *                 -> dropped: the client has closed its connection
 *
 * A service embeds fth_long_poll as the first member of its own kind of request and keeps the
 * waiting ones in an fth_long_polls, guarded by the service's own lock. It calls check() after
 * every change and several times a second. The HTTP server's lock is innermost, so all of this may
 * be called with other locks held. */
#ifndef FTH_HTTP_LONG_POLL_H
#define FTH_HTTP_LONG_POLL_H

#include "http/server.h"

typedef struct fth_long_poll {
    struct fth_long_poll *next;
    fth_exchange *exchange;
    double until_s;
} fth_long_poll;

typedef struct fth_long_polls {
    void *context;
    /* Answers the request if it can; must answer if `last`. True: answered. */
    bool (*answer)(void *context, fth_long_poll *poll, bool last);
    void (*release)(fth_long_poll *poll); /* frees a poll that was answered or dropped */
    fth_long_poll *first;                 /* the longest waiting */
} fth_long_polls;

/* Answers the request, or holds it for at most `seconds`. Takes the poll. */
void fth_long_polls_add(fth_long_polls *polls, fth_long_poll *poll, fth_exchange *exchange, double seconds);
/* Answers the requests that can be answered, and those whose deadline has passed. */
void fth_long_polls_check(fth_long_polls *polls);
/* Drops the requests of clients that have closed their connections; calls `gone`, if not NULL, for
 * each before it is freed. */
void fth_long_polls_drop_abandoned(fth_long_polls *polls, void (*gone)(void *context, const fth_long_poll *poll));
/* Answers all, as at their deadlines. */
void fth_long_polls_end(fth_long_polls *polls);

#endif
