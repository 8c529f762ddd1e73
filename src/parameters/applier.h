/* The applying thread: takes one request after another. No other thread changes the model.
 *
 * A gradient:
 *
 *     taken -> checked: registered worker? new sequence? how stale? the next samples of its shard?
 *         |             numbers that can be applied?
 *         |-> logged -> its shard's position moves, added -> [step] -> answered
 *         |-> refused: nothing has changed
 *         |-> deferred (bounded): the step would make others' gradients too old;
 *             tried again when one of those arrives or its lease ends
 *
 * A logged gradient is applied, by this process or the next; a gradient that was not logged was not
 * acknowledged. The record of a gradient that completes a step says so; where a worker's leaving
 * completes the step, a record of its own does. A replay therefore steps at the same places. */
#ifndef FTH_PARAMETERS_APPLIER_H
#define FTH_PARAMETERS_APPLIER_H

#include "parameters/intake.h"
#include "parameters/parts.h"
#include "parameters/saver.h"
#include "parameters/shard_leases.h"

typedef struct fth_applier fth_applier;

/* Starts the thread. Only this thread then uses updates, journal, saver, totals, leases and usage.
 * The parts outlive the applier. */
fth_status fth_applier_start(const fth_server_parts *parts, fth_applier **applier);
/* Waits until the thread has emptied the intake, which must be closed. NULL is fine. */
void fth_applier_join(fth_applier *applier);
/* Writes a last step event; after fth_applier_join(). */
void fth_applier_report_last(fth_applier *applier);
void fth_applier_free(fth_applier *applier);

#endif
