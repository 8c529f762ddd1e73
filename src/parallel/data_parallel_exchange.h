/* The exchange of gradients: after it every worker's engine has the sum over all of them.
 *
 *     create -> begin_group (again in every new group) -> start, the backward pass, finish ...
 *         -> free
 *
 * The gradient vector is cut into buckets. A thread sums them over the workers one after the other,
 * each as soon as the backward pass has its gradients, so that most of the exchange goes on beside
 * it:
 *
 *     training thread    start -- backward: ready, ready, ready ... -- finish (waits for the rest)
 *     exchange thread           [bucket 0]  [bucket 1]  ...  [last bucket]
 *
 * Among workers of one machine there is no thread: a sum in memory is work for the cores that
 * compute, so it is made in finish(), by all of them at once.
 *
 * Gradients lie in memory that workers of one machine share. Those of a device with memory of its
 * own are brought to the host and back, bucket by bucket.
 *
 * Every function is for the training thread. */
#ifndef FTH_PARALLEL_DATA_PARALLEL_EXCHANGE_H
#define FTH_PARALLEL_DATA_PARALLEL_EXCHANGE_H

#include "collective/collective.h"
#include "train/engine/engine_peers.h"

typedef struct fth_gradient_exchange fth_gradient_exchange;

typedef struct fth_gradient_exchange_options {
    fth_wire wire;
    bool after_backward; /* not beside it, where the backward pass uses the collective too */
    size_t bucket_bytes; /* 0: chosen by the speed of the exchange and of the backward pass */
} fth_gradient_exchange_options;

/* Moves the engine's gradients to where they can be shared. The engine must outlive the exchange,
 * and train no more once that is freed. */
fth_status fth_gradient_exchange_create(fth_engine *engine, const fth_gradient_exchange_options *options,
                                        fth_gradient_exchange **exchange);
/* Waits for a call of the collective that is under way; abort it first. */
void fth_gradient_exchange_free(fth_gradient_exchange *exchange);

/* What collectives sum in without a copy; for fth_collective_open(). */
const fth_shared_memory *fth_gradient_exchange_memory(const fth_gradient_exchange *exchange);

/* The members are those of `collective`, which must stay until the next call. Measures how fast it
 * is. `rank` is this worker's among `workers`. */
fth_status fth_gradient_exchange_begin_group(fth_gradient_exchange *exchange, fth_collective *collective, int rank,
                                             int workers);
/* Waits until the thread has let go of the collective. */
void fth_gradient_exchange_end_group(fth_gradient_exchange *exchange);
/* Whether the thread is in a call of the collective, or about to make one. */
bool fth_gradient_exchange_is_busy(fth_gradient_exchange *exchange);

/* Before the last backward pass of an update. *watch is what it reports to, lent; NULL: nothing is
 * to be reported. */
fth_status fth_gradient_exchange_start(fth_gradient_exchange *exchange, const fth_gradients_watch **watch);
/* After that backward pass: returns when the engine's gradients are the sums. */
fth_status fth_gradient_exchange_finish(fth_gradient_exchange *exchange);

/* How many there were, in all groups. */
int64_t fth_gradient_exchange_count(const fth_gradient_exchange *exchange);
/* Bytes of a bucket; 0: all gradients travel at once. */
size_t fth_gradient_exchange_bucket(const fth_gradient_exchange *exchange);

#endif
