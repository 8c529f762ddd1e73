/* Batches of a leased shard, in the order that the server and all workers agree on
 * (fth_shard_sampler()). The calling thread reads and normalizes images: no other threads, and
 * memory for one batch. */
#ifndef FTH_FUNCTIONS_SHARD_BATCHES_H
#define FTH_FUNCTIONS_SHARD_BATCHES_H

#include "data/data.h"
#include "parameters/client.h"

typedef struct fth_shard_batches fth_shard_batches;

/* The training part of the data set is the shard; the data set outlives the batches. `batch`: the
 * most samples asked for at once. */
fth_status fth_shard_batches_open(const fth_dataset *dataset, const fth_shard_lease *lease, int64_t batch,
                                  fth_shard_batches **batches);
void fth_shard_batches_free(fth_shard_batches *batches);

/* The samples at `count` positions of the lease's epoch from `position` on; lent until the next
 * call. */
fth_status fth_shard_batches_get(fth_shard_batches *batches, int64_t position, int64_t count, fth_batch *batch);

#endif
