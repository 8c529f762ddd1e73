/* The agent's side of its connection to a launcher on another machine (remote_hosts.h): its
 * standard input.
 *
 * A thread reads lines. "stop" and "preempt" ask for a stop of that kind; so does the end of the
 * input, which means that the launcher is gone, or the network to it. */
#ifndef FTH_PARALLEL_REMOTE_CONTROL_H
#define FTH_PARALLEL_REMOTE_CONTROL_H

#include "base/base.h"

typedef struct fth_remote_control fth_remote_control;

#define FTH_REMOTE_STOP    "stop"    /* a person asks: save and end */
#define FTH_REMOTE_PREEMPT "preempt" /* the machine will vanish */

/* `stop` outlives the control. */
fth_status fth_remote_control_start(int descriptor, fth_stop *stop, fth_remote_control **control);
void fth_remote_control_free(fth_remote_control *control); /* NULL is fine */

#endif
