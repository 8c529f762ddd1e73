/* Dealing out shards (shards.h) over the wire: who asks for one and gets it, waits for it or hears
 * that none is left; and the places, which move with the gradients.
 *
 *     /takeShard --> a shard is free: logged if a worker brought it, leased, answered with an address
 *          |---> all are with others: held, and looked at again when one is free, until its time is over
 *          |---> none is left, or the training has ended: 409 finished
 *
 * The applying thread's own: what it answers is true of the weights at that moment. */
#ifndef FTH_PARAMETERS_SHARD_LEASES_H
#define FTH_PARAMETERS_SHARD_LEASES_H

#include "parameters/intake.h"
#include "parameters/shard_listing.h"

typedef struct fth_shard_leases fth_shard_leases;

typedef struct fth_shard_leases_options {
    fth_shards *shards;
    const fth_shard_listing *listing; /* or NULL: only what workers bring */
    fth_served_position *position;
    fth_journal *journal;
    fth_workers *workers;
    fth_intake *intake; /* that requests come from */
    fth_parameters_metrics *metrics;
} fth_shard_leases_options;

/* Everything in the options outlives the leases. */
fth_status fth_shard_leases_create(const fth_shard_leases_options *options, fth_shard_leases **leases);
/* After fth_shard_leases_close(). */
void fth_shard_leases_free(fth_shard_leases *leases);

/* Answer, or hold, a request of a live worker; the request is the leases's from then on. */
void fth_shard_leases_take(fth_shard_leases *leases, fth_server_request *request);
void fth_shard_leases_return(fth_shard_leases *leases, fth_server_request *request);
/* Answers with the table. */
void fth_shard_leases_list(fth_shard_leases *leases, fth_server_request *request);

/* Whether the samples of a gradient are what comes next of their shard; also where it is of
 * none. */
fth_refusal fth_shard_leases_check(const fth_shard_leases *leases, const fth_gradient *gradient,
                                   char message[FTH_MAX_REFUSAL]);
/* The gradient is in the log: its shard's place moves. Before the step that it is part of. */
fth_status fth_shard_leases_move(fth_shard_leases *leases, const fth_gradient *gradient);
/* The worker has gone; `lost`: without a word. What it held is free. */
void fth_shard_leases_remove_worker(fth_shard_leases *leases, const char *worker, bool lost);

/* Answers those that can be answered by now. *next_s is lowered to when the next one's time is
 * over. */
void fth_shard_leases_answer_waiting(fth_shard_leases *leases, double *next_s);
/* Refuses the requests that still wait. */
void fth_shard_leases_close(fth_shard_leases *leases);

/* As step events have it: how many shards are listed, held and done; NULL where there are none. */
json_t *fth_shard_leases_describe(const fth_shard_leases *leases);

#endif
