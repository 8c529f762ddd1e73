/* What still fits before the deadline of a stop: arithmetic on values, for the saver and the
 * watchdog. */
#ifndef FTH_TRAIN_STOP_PLAN_H
#define FTH_TRAIN_STOP_PLAN_H

#include "base/base.h"

/* Measured durations of saving. */
typedef struct fth_save_estimate {
    double save_s;         /* the whole state, from its copy to its manifest */
    bool writing, waiting; /* a save is under way; another waits */
    double rest_s;         /* of the one under way */
} fth_save_estimate;

typedef enum fth_save_choice {
    FTH_SAVE_AFTER,   /* after the save that is under way */
    FTH_SAVE_INSTEAD, /* that is cancelled */
    FTH_SAVE_NOT      /* only the save under way fits */
} fth_save_choice;

/* What to do with unsaved work in the time left. */
fth_save_choice fth_stop_choose_save(const fth_stop_reason *reason, const fth_save_estimate *estimate);

/* Whether this machine's disk is likely to outlive the stop. A preempted machine usually loses its
 * disk; a signal usually leaves it. */
bool fth_stop_spares_disk(const fth_stop_reason *reason);
/* How long to wait for the store, if a copy of `copy_bytes` on this machine is to follow (0: no
 * copy). */
fth_deadline fth_stop_store_deadline(const fth_stop_reason *reason, size_t copy_bytes);
/* The time by which everything is recorded and the process ends. */
fth_deadline fth_stop_leaving_deadline(const fth_stop_reason *reason);

/* What the training thread is doing. */
typedef enum fth_phase {
    FTH_PHASE_BEGIN,   /* nothing to save yet */
    FTH_PHASE_STEP,    /* in an update, which cannot be interrupted */
    FTH_PHASE_BETWEEN, /* checks for stop requests regularly */
    FTH_PHASE_ENDING   /* saving for the last time */
} fth_phase;

typedef struct fth_stop_situation {
    fth_phase phase;
    double since_s; /* fth_clock_seconds() when the phase began */
    double step_s;  /* duration of an update; 0: unknown */
    bool in_store;  /* the run lives in a store */
    fth_save_estimate saving;
} fth_stop_situation;

/* Why the process must end although the training thread has not; NULL: it need not. */
const char *fth_stop_reason_to_abandon(const fth_stop_reason *reason, const fth_stop_situation *situation);

#endif
