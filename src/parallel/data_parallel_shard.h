/* The sharded update (--shard-update): each worker updates a range of the parameters, and all
 * ranges are gathered then. Of the optimizer's state it keeps its own range, and that of the next
 * worker, which it updates too: when a worker is lost, the one before it has its state.
 *
 *     create -> settle, spread (all workers have all of the state), begin_group -> update ...
 *         -> settle, spread, ...
 *
 * State that a worker does not keep takes no memory, where that is the host's. The numbers are
 * those of an update by everyone.
 *
 * An update is made in two halves: the ranges are updated, and gathered beside the parameters; when
 * all of them are there, they become the parameters. Where that fails, settle() decides by what
 * other workers have come to whether the update counts. */
#ifndef FTH_PARALLEL_DATA_PARALLEL_SHARD_H
#define FTH_PARALLEL_DATA_PARALLEL_SHARD_H

#include "parallel/data_parallel_group.h"
#include "train/engine/engine_peers.h"

typedef struct fth_update_shards fth_update_shards;

/* The engine must outlive it. `values` is memory of the host for as many floats as there are
 * gradients: the gradients themselves where they are there. It is used once they have been. */
fth_status fth_update_shards_create(fth_engine *engine, float *values, fth_update_shards **shards);
void fth_update_shards_free(fth_update_shards *shards);

/* An update that failed here is taken back, unless it was `completed` elsewhere: then this worker's
 * ranges are part of it. */
fth_status fth_update_shards_settle(fth_update_shards *shards, bool completed);
/* In every worker of a new group: afterwards all have all of the state. `furthest` is a rank that
 * has it where nobody has been in a group before. FTH_IO if a part is lost: that of neighbours that
 * were lost at once. */
fth_status fth_update_shards_spread(fth_update_shards *shards, fth_worker_group *group, int furthest);
/* From now on this worker has its range of this group's. */
void fth_update_shards_begin_group(fth_update_shards *shards, const fth_group_view *view);

/* Instead of fth_engine_update() and fth_engine_check_update(). */
fth_status fth_update_shards_update(fth_update_shards *shards, fth_worker_group *group, double learning_rate,
                                    int64_t update);
/* True if this worker has all of the state by itself, and of the last update that was made. */
bool fth_update_shards_is_whole(const fth_update_shards *shards);
/* Before a checkpoint is taken, in every worker: all of them have all of the state, until the next
 * update. */
fth_status fth_update_shards_gather(fth_update_shards *shards, fth_worker_group *group);

#endif
