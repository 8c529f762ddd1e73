/* The guardian: stops a run in time when its training thread does not.
 *
 * A notice is a deadline. The training thread checks for it between updates and inside evaluations,
 * and then saves what still fits (stop_plan.h). It may not get that far, though: an update may be
 * long, a library call may not return, data may still be opening. So a thread of its own watches
 * the clock:
 *
 *     nothing is unsaved (start-up)     a second of grace, then the process ends
 *     in an update that ends too late   what is already snapshotted is published, then the process ends
 *     the training thread is saving     it is left alone until the deadline
 *     a request, not a preemption       the time is up, and it is not an update of usual length or a disk that is slow
 *
 * The process is ended by the observer (src/cli); where there is none, the training thread takes as
 * long as it takes. */
#ifndef FTH_TRAIN_GUARDIAN_H
#define FTH_TRAIN_GUARDIAN_H

#include "train/save/saver.h"

typedef struct fth_guardian fth_guardian;

/* Watches `stop` from now on; NULL: there is nothing to watch. `observer` may be NULL. All outlive
 * the guardian. */
fth_status fth_guardian_create(fth_stop *stop, const fth_train_observer *observer, fth_reporter *reporter,
                               fth_guardian **guardian);
void fth_guardian_free(fth_guardian *guardian);

/* Listens for notices of preemption from `sources` (spot.h) until it is freed. */
fth_status fth_guardian_listen(fth_guardian *guardian, const char *sources);
/* After the state is stored: lets the cloud know that this machine may go. */
void fth_guardian_acknowledge(fth_guardian *guardian);
/* Records what notice sources report besides notices (events named "news"). */
void fth_guardian_report_messages(fth_guardian *guardian);

/* What is brought to safety before the process is ended; NULL while there is none. Not owned: when
 * setting returns, the guardian no longer uses what was set before. It does not return if the
 * process is being ended meanwhile. */
typedef struct fth_guarded_run {
    fth_run_store *run_store;
    fth_saver *saver;
    const char *best_path; /* of the best model so far */
} fth_guarded_run;
void fth_guardian_set_run(fth_guardian *guardian, const fth_guarded_run *run);

/* Says what the training thread does next. Does not return if the process is being ended
 * meanwhile. */
void fth_guardian_enter(fth_guardian *guardian, fth_phase phase);
/* The run is set up, and `step` updates were done before: between updates from now on. */
void fth_guardian_begin_training(fth_guardian *guardian, int64_t step);
/* The update that was entered is done, and `step` of them in all: between updates again. */
void fth_guardian_end_step(fth_guardian *guardian, int64_t step);
double fth_guardian_get_step_s(fth_guardian *guardian); /* mean of the last few updates; 0: none yet */

/* Reports how a preemption's notice was used, in the record and the log; nothing for other reasons
 * to stop. */
void fth_guardian_report_notice(fth_guardian *guardian, const fth_stop_reason *reason);
/* Ends the process, whose threads may be waiting for a store that does not answer. Returns where
 * there is no one to end it, or the guardian is doing so already. */
void fth_guardian_end_process(fth_guardian *guardian);

#endif
