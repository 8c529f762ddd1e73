/* The objects of one training, lent to those that act on several of them. The trainer creates and
 * frees them; train/loop/trainer.c says in which order. */
#ifndef FTH_TRAIN_RUN_PARTS_H
#define FTH_TRAIN_RUN_PARTS_H

#include "train/loop/strategy_session.h"
#include "train/loop/validator.h"
#include "train/run/run_owner.h"

typedef struct fth_run_parts {
    fth_run_selection *selection;
    fth_setup *setup;
    fth_position *position;
    fth_stop *stop; /* may be NULL */
    fth_reporter *reporter;
    fth_spending *spending;
    fth_deadline_watchdog *watchdog;
    fth_strategy_session *session;
    fth_validator *validator; /* NULL until the setup is open */
    fth_run_owner *owner;
    struct fth_recovery *recovery; /* recovery.h */
} fth_run_parts;

#endif
