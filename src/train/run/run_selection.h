/* Where a run begins: at step 0, or where an earlier process stopped; and with which options.
 *
 *     no --resume          a new run
 *     --resume             the newest run of this configuration: continued if unfinished, done if
 *                          finished; else a new one. Without any option of a configuration: the
 *                          newest unfinished run, else the newest
 *     --resume ID|FOLDER   that run with its stored configuration; options given now win over
 *                          stored ones, and a limit given now replaces all the limits it had
 *     --resume --name ID   that run if it exists, else a new one of that name
 *     --checkpoints URL    the run in that store, if there is one, whose other options must be the
 *                          same; a limit given now replaces all the limits it had, but does not
 *                          shorten it
 *
 * A limit is how long to train: --epochs, --steps, --for, --until. */
#ifndef FTH_TRAIN_RUN_SELECTION_H
#define FTH_TRAIN_RUN_SELECTION_H

#include "train/train_internal.h"

typedef struct fth_run_selection {
    fth_train_options options; /* all of them: defaults, stored configuration, flags; limits and learning rate set */
    char identity[17];
    char *id;             /* of the run, where it is known before there is a record; NULL: the record says it */
    double created_s;     /* of a new run that takes the place of one that never took a step; 0: it is created now */
    char *folder;         /* of the run to continue; NULL: a new one, or a peer has it */
    json_t *run;          /* run.json of the run to continue; NULL: a new one */
    bool finished;        /* there is nothing left to do */
    bool of_peer;         /* a peer has found it, and has the weights of a new run */
    char lease_group[24]; /* of the processes that train it together; "": it has no lease, or this process alone */
    bool stored;          /* its store (--checkpoints) has its run.json */
    size_t stored_bytes;  /* of its events that the store has */
    int processors;       /* of this machine that are for this process; 0: all */
} fth_run_selection;

/* Where to begin on this machine, without a store. */
fth_status fth_run_selection_find(const fth_train_options *asked, fth_run_selection *selection);
void fth_run_selection_release(fth_run_selection *selection);
/* Fills in what depends on other options, so that equal runs have equal configurations. */
fth_status fth_run_selection_complete(fth_train_options *options);

/* ---- for a run in a store ---- */

/* The options and identity alone, where the run is found elsewhere. */
fth_status fth_run_selection_prepare(const fth_train_options *asked, fth_run_selection *selection);
/* Takes over the limits of a stored configuration where none was given; with `follow` in any
 * case. */
fth_status fth_run_selection_take_limits(fth_run_selection *selection, const json_t *stored, bool follow);
/* FTH_INVALID if a limit is lower than the stored one of its kind. */
fth_status fth_run_selection_check_longer(const fth_run_selection *selection, const json_t *stored);
/* Takes over what is kept as the best model, unless that is given now. The run.json is set. */
fth_status fth_run_selection_keep_best_by(fth_run_selection *selection);
/* Sets `finished` if the run ended and no limit given now asks for more. The folder and run.json
 * are set. */
fth_status fth_run_selection_check_finished(fth_run_selection *selection);
/* Sets `finished` back if its budget ended the run, and there is a larger one now. */
fth_status fth_run_selection_check_budget(fth_run_selection *selection);

#endif
