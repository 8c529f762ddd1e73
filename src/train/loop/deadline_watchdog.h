/* The watchdog: stops a run in time when its training thread does not.
 *
 * A notice is a deadline. The training thread checks for it between updates and inside evaluations,
 * and then saves what still fits (stop_plan.h). It may not get that far, though: an update may be
 * long, a library call may not return, data may still be opening. So a thread of its own watches
 * the clock:
 *
 *     nothing is unsaved (start-up)     a second of grace, then the process ends
 *     in an update that ends too late   what is already snapshotted is published, then the process
 *                                       ends
 *     the training thread is saving     it is left alone until the deadline
 *     a request, not a preemption       the time is up, and it is not an update of usual length or
 *                                       a disk that is slow
 *
 * The process is ended by the observer (src/cli); where there is none, the training thread takes as
 * long as it takes. */
#ifndef FTH_TRAIN_DEADLINE_WATCHDOG_H
#define FTH_TRAIN_DEADLINE_WATCHDOG_H

#include "train/save/saver.h"

typedef struct fth_deadline_watchdog fth_deadline_watchdog;

/* Watches `stop` from now on; NULL: nothing. `observer` may be NULL. All outlive the watchdog. */
fth_status fth_deadline_watchdog_create(fth_stop *stop, const fth_train_observer *observer, fth_reporter *reporter,
                                        fth_deadline_watchdog **watchdog);
void fth_deadline_watchdog_free(fth_deadline_watchdog *watchdog);

/* Listens for notices of preemption from `sources` (spot.h) until it is freed. */
fth_status fth_deadline_watchdog_listen(fth_deadline_watchdog *watchdog, const char *sources);
/* After the state is stored: tells the cloud that this machine may be stopped. */
void fth_deadline_watchdog_acknowledge(fth_deadline_watchdog *watchdog);
/* Records what notice sources report besides notices (events named "news"). */
void fth_deadline_watchdog_report_messages(fth_deadline_watchdog *watchdog);

/* What is saved before the process ends; NULL: nothing yet. Lent: when setting returns, the
 * watchdog no longer uses the previous value. Does not return if the process is ending. */
typedef struct fth_watched_run {
    fth_run_store *run_store;
    fth_saver *saver;
    const char *best_path; /* of the best model so far */
} fth_watched_run;
void fth_deadline_watchdog_set_run(fth_deadline_watchdog *watchdog, const fth_watched_run *run);

/* Enters the training thread's next phase. Does not return if the process is ending. */
void fth_deadline_watchdog_enter(fth_deadline_watchdog *watchdog, fth_phase phase);
/* The run is set up at `step`: between updates from now on. */
void fth_deadline_watchdog_begin_training(fth_deadline_watchdog *watchdog, int64_t step);
/* The update is done, and `step` updates in all: between updates again. */
void fth_deadline_watchdog_end_step(fth_deadline_watchdog *watchdog, int64_t step);
double
fth_deadline_watchdog_get_step_s(fth_deadline_watchdog *watchdog); /* mean of the last few updates; 0: none yet */

/* Reports how the time of a preemption notice was used, in the record and the log; nothing for
 * other stops. */
void fth_deadline_watchdog_report_notice(fth_deadline_watchdog *watchdog, const fth_stop_reason *reason);
/* Ends the process, whose threads may be waiting for a store that does not answer. Returns if there
 * is no observer to end it, or the watchdog is already doing so. */
void fth_deadline_watchdog_end_process(fth_deadline_watchdog *watchdog);

#endif
