/* The inside of the trainer, shared by the loop (trainer.c) and its validation (trainer_validate.c). */
#ifndef FTH_TRAIN_TRAINER_INTERNAL_H
#define FTH_TRAIN_TRAINER_INTERNAL_H

#include "train/guardian.h"
#include "train/setup.h"

typedef struct fth_validation fth_validation;

typedef struct fth_trainer {
    fth_beginning beginning;
    fth_setup setup;
    const fth_strategy *strategy;
    const fth_train_observer *observer;
    fth_stop *stop;

    void *strategy_state;
    fth_validation *validation; /* beside training; NULL until there is one */
    fth_loader *loader;
    fth_reporter *reporter;
    fth_run_store *run_store; /* what --checkpoints names, or NULL */
    fth_saver *saver;         /* NULL before there is a record */
    fth_guardian *guardian;
    char *last_path, *best_path; /* model files in the run's folder */

    fth_position position;
    bool begun; /* the start was told: from here on there is something to save */
    fth_spending *spending;
    bool finished_elsewhere; /* the strategy says that training is over */
    bool prepared;           /* every plan is there: from here on nothing large is allocated */
    bool unsettled;          /* batches are with the strategy that no result was given for */
} fth_trainer;

void fth_trainer_release(fth_trainer *trainer);

/* ---- validating (trainer_validate.c) ---- */

/* Validates the weights as they are, waiting for it, and keeps them if they are the best; FTH_INTERRUPTED if a stop is
 * asked for meanwhile. */
fth_status fth_trainer_validate(fth_trainer *trainer, fth_deadline deadline, fth_evaluation *evaluation);
fth_status fth_trainer_keep_best(fth_trainer *trainer);
/* The epoch that ended, with its validation if one is due: `beside` training it is begun here, with a copy of the
 * weights, and told when it is done. */
fth_status fth_trainer_finish_epoch(fth_trainer *trainer, bool beside);
/* Begins a validation that an earlier process left undone; tells about one that is done. With `wait` it is waited for;
 * FTH_INTERRUPTED if a stop is asked for meanwhile. */
fth_status fth_trainer_follow_validation(fth_trainer *trainer, bool wait);
/* Ends a validation beside training at once; state.pending keeps what is still to be told. */
void fth_trainer_cancel_validation(fth_trainer *trainer);
void fth_validation_free(fth_validation *validation); /* after cancelling; NULL is fine */

#endif
