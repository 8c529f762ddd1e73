/* How a training ends.
 *
 *     a limit is reached    all processes finish, the owner of the run saves it, and nobody leaves
 *                           before
 *     interrupted           the owner saves what fits before the deadline; the run can be continued
 *     this machine leaves   it is being preempted, and peers continue without it
 *     fenced                another machine has the run: nothing more is written to the store
 *     failed                the record says why */
#ifndef FTH_TRAIN_ENDING_H
#define FTH_TRAIN_ENDING_H

#include "train/loop/recovery.h"

/* How far the training of this process has come. */
typedef enum fth_run_phase {
    FTH_RUN_SETTING_UP, /* nothing was written: there is nothing to save */
    FTH_RUN_TRAINING,   /* the start was written */
    FTH_RUN_SAVED,      /* the run has ended, and all that comes with its end is saved and recorded */
    FTH_RUN_LEAVING     /* this machine is being preempted, and peers continue without it */
} fth_run_phase;

/* A limit was reached, in all processes: the last validation. */
fth_status fth_ending_finish_training(const fth_run_parts *parts);
/* Then: the owner of the run saves it, for `reason`, and the others wait for that. *event: the last
 * one. Changes *phase. FTH_PEER_LOST if the owner is lost while it saves: another process does
 * it. */
fth_status fth_ending_finish_run(const fth_run_parts *parts, const char *reason, fth_run_phase *phase, json_t **event);

/* Any other end: training returned `status`. FTH_OK if it was interrupted or this process left. */
fth_status fth_ending_conclude(const fth_run_parts *parts, fth_run_phase phase, fth_status status,
                               fth_train_outcome *outcome);

#endif
