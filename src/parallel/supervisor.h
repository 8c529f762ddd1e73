/* Several processes, supervised: started together, watched, started again when one is lost, and
 * ended together within a deadline. Processes of this program, or of one that runs it elsewhere
 * (ssh).
 *
 *     start -> running -> exit status 0                 done
 *                 ^    -> exit status 75                done, if it means stopped and saved
 *                 |    -> exit status 1 or 2            failed: so does the whole, with the last
 *                 |                                     line that it wrote
 *                 |    -> a signal, or another status   lost: starts again after a pause that
 *                 '------------ pause <--------'        doubles each time, until it was lost more
 *                                                       than max_restarts times
 *
 * A supervised process ends with its supervisor: see fth_supervisor_follow_parent(). Not safe for
 * several threads. */
#ifndef FTH_PARALLEL_SUPERVISOR_H
#define FTH_PARALLEL_SUPERVISOR_H

#include "base/base.h"
#include "base/child.h"

typedef struct fth_supervisor fth_supervisor;

typedef struct fth_supervisor_options {
    const char *program; /* the file to run */
    /* Where what process N writes to standard error is appended to N.txt; 1 for the first. NULL:
     * prepare() says where it goes, and last_message() what it was. */
    const char *folder;
    int count, max_restarts;
    double first_pause_s;  /* before a process that was lost a second time starts again; the first time there is none */
    double steady_after_s; /* losses before a process that has run for this long do not count; 0: they do */
    bool may_stop;         /* exit status 75 is no loss */
    void *context;
    /* Adds the arguments of process `number` (1 for the first), the program's name first. Called at
     * each start. */
    fth_status (*add_arguments)(void *context, int number, fth_words *words);
    /* Optional, after that: adds to its environment ("NAME=value"), and sets the descriptors it
     * gets. */
    fth_status (*prepare)(void *context, int number, fth_words *variables, fth_child_options *child);
    /* Optional: what messages call it; else "worker 1". */
    void (*write_name)(void *context, int number, char *name, size_t size);
    /* Where there is no folder: the last line that it wrote; free() it. */
    char *(*last_message)(void *context, int number);
    /* Optional: whether one that is lost too often may be given up, as long as there are others. */
    bool (*may_lose)(void *context);
    /* Optional: process `number` has ended. */
    void (*on_end)(void *context, int number, pid_t process, const fth_child_end *end);
} fth_supervisor_options;

/* Starts all of them. On failure those that had started are ended. */
fth_status fth_supervisor_start(const fth_supervisor_options *options, fth_supervisor **supervisor);
/* Collects those that have ended and starts lost ones again. FTH_PEER_LOST if one failed or was
 * lost too often. Does not wait: to be called every few hundredths of a second. */
fth_status fth_supervisor_look(fth_supervisor *supervisor);
/* How many are running or will be started again. 0: all are done. */
int fth_supervisor_left(const fth_supervisor *supervisor);
/* Passes a signal on to every process that runs. */
void fth_supervisor_signal(const fth_supervisor *supervisor, int number);
/* From here on none starts again, and no end is a failure. */
void fth_supervisor_let_end(fth_supervisor *supervisor);
/* Asks all of them to stop (SIGTERM), waits, and kills those that are left at the deadline. None
 * starts again. */
void fth_supervisor_stop(fth_supervisor *supervisor, fth_deadline deadline);
void fth_supervisor_free(fth_supervisor *supervisor); /* kills what still runs; NULL is fine */

/* Call it first in a process that may be supervised: the kernel then kills the process when its
 * supervisor ends for any reason. Otherwise it would keep running and hold what its successor
 * needs. FTH_PEER_LOST if its supervisor is gone. */
fth_status fth_supervisor_follow_parent(void);

#endif
