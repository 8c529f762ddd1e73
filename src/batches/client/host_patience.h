/* How long a client waits for its host. Without a clock or lock: callers pass the time.
 *
 * A host that has delivered nothing for 2 s is asked whether it is alive. If it is alive but slow,
 * the client waits 4 s in all. After that it is impatient: it waits only briefly, until an item
 * that was waited for arrives or 10 s have passed. Items that were already there do not count,
 * because samples of an earlier epoch are found while nothing new is made. */
#ifndef FTH_BATCHES_CLIENT_HOST_PATIENCE_H
#define FTH_BATCHES_CLIENT_HOST_PATIENCE_H

#include <stdbool.h>

/* All zero at first. */
typedef struct fth_host_patience {
    double waiting_since_s; /* since when nothing has arrived that is waited for; 0: nothing is waited for */
    double asked_at_s;      /* when the host was last asked whether it is alive */
    double looked_at_s;     /* when its connection was last checked */
    double impatient_until_s;
} fth_host_patience;

/* The client waits for an item. Gives for how long nothing has arrived, and in *left_s how much
 * longer to wait: not above 0 when its patience has just ended. */
double fth_host_patience_wait(fth_host_patience *patience, double now_s, double *left_s);
/* True if the host must be asked whether it is alive; of several threads, one asks. */
bool fth_host_patience_must_ask(fth_host_patience *patience, double waiting_s, double now_s);
/* An item has arrived, which the client waited for or not. True if the connection has not been
 * checked for a second: the host may be gone, with only its memory left. */
bool fth_host_patience_note_item(fth_host_patience *patience, bool waited, double now_s);
/* There is another connection. */
void fth_host_patience_stop_waiting(fth_host_patience *patience);
/* Ends the patience: the host has lost what it needs to deliver. */
void fth_host_patience_end(fth_host_patience *patience, double now_s);

#endif
