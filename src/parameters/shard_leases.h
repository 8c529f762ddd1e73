/* Leases of shards (shards.h) to workers, over the wire; and the shards' positions, which move with
 * the gradients.
 *
 *     /takeShard --> a shard is free: logged if brought, leased, answered with its address
 *          |---> all are leased to others: held until one is free or the request's time is over
 *          |---> none is left, or training has ended: 409 finished
 *
 * Used by the applying thread only, so that each answer is true of the weights at that moment. */
#ifndef FTH_PARAMETERS_SHARD_LEASES_H
#define FTH_PARAMETERS_SHARD_LEASES_H

#include "parameters/intake.h"

typedef struct fth_shard_leases fth_shard_leases;

/* The parts outlive it. */
fth_status fth_shard_leases_create(const fth_server_parts *parts, fth_shard_leases **leases);
/* After fth_shard_leases_close(). */
void fth_shard_leases_free(fth_shard_leases *leases);

/* Answers or holds a request of a live worker, and takes ownership of it. */
void fth_shard_leases_take(fth_shard_leases *leases, fth_server_request *request);
void fth_shard_leases_return(fth_shard_leases *leases, fth_server_request *request);
void fth_shard_leases_list(fth_shard_leases *leases, fth_server_request *request);

/* Whether the gradient's samples are the next ones of its shard, or it belongs to no shard. */
fth_refusal fth_shard_leases_check(const fth_shard_leases *leases, const fth_gradient *gradient,
                                   char message[FTH_MAX_REFUSAL]);
/* Moves the shard's position, once the gradient is logged and before the step it is part of. */
fth_status fth_shard_leases_move(fth_shard_leases *leases, const fth_gradient *gradient);
/* Frees what the worker held. `lost`: its lease ran out; it did not unregister. */
void fth_shard_leases_remove_worker(fth_shard_leases *leases, const char *worker, bool lost);

/* Answers waiting requests where possible. *next_s is lowered to when the next one times out. */
void fth_shard_leases_answer_waiting(fth_shard_leases *leases, double *next_s);
/* Refuses the requests that still wait. */
void fth_shard_leases_close(fth_shard_leases *leases);

/* For step events: how many shards are listed, held and done; NULL without shards. */
json_t *fth_shard_leases_describe(const fth_shard_leases *leases);

#endif
