/* The applying thread: takes one item after another and is the only one to change the model.
 *
 * A gradient:
 *
 *     taken -> checked against its worker: registered? new sequence? how stale? of the samples that come next of their
 *              shard (dealer.h)? and its numbers (fth_updates_check)
 *              |-> logged -> its shard's place moves, added -> [step] -> answered
 *              |-> refused: nothing has changed
 *              |-> deferred (bounded): others' gradients would become too old; looked at again when one of those has
 *                  come, or its lease is over
 *
 * What is logged is applied, now or by the next process; what was not logged was not acknowledged.
 * A step is made when the last gradient it takes is there; where one came that completes it, its
 * record says so, so that a replay steps at the same place; where a worker left instead, a record
 * of its own does. */
#ifndef FTH_PARAMETERS_APPLIER_H
#define FTH_PARAMETERS_APPLIER_H

#include "parameters/intake.h"
#include "parameters/saver.h"
#include "parameters/shard_leases.h"
#include "parameters/snapshots.h"
#include "parameters/worker_totals.h"

typedef struct fth_applier fth_applier;

typedef struct fth_applier_options {
    const fth_served_model *model;
    fth_served_position *position;
    fth_updates *updates;
    fth_journal *journal;
    fth_workers *workers;
    fth_intake *intake;
    fth_parameter_snapshots *snapshots;
    fth_shard_leases *leases;
    fth_served_usage *usage;
    fth_served_saver *saver;
    fth_worker_totals *totals;
    fth_served_record *record;
    fth_parameters_metrics *metrics;
    fth_health *health;
    fth_consistency consistency;
    bool keyed;      /* requests are signed */
    double gather_s; /* that sync:N waits for its workers at the beginning */
} fth_applier_options;

/* Starts the thread. From then on it alone uses updates, journal, saver, meters, dealer and usage.
 * Everything outlives the applier. */
fth_status fth_applier_start(const fth_applier_options *options, fth_applier **applier);
/* Returns when the thread has applied what the intake, which must be closed, still had. NULL is
 * fine. */
void fth_applier_join(fth_applier *applier);
/* After fth_applier_join(): a last step event. */
void fth_applier_report_last(fth_applier *applier);
void fth_applier_free(fth_applier *applier);

#endif
