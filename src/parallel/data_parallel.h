/* The parts of --strategy data-parallel, for the files data_parallel*.c alone. */
#ifndef FTH_PARALLEL_DATA_PARALLEL_H
#define FTH_PARALLEL_DATA_PARALLEL_H

#include "parallel/data_parallel_exchange.h"
#include "parallel/data_parallel_group.h"
#include "parallel/data_parallel_shard.h"
#include "parallel/data_parallel_times.h"
#include "train/loop/strategy.h"

/* What this worker's batches of one update add up to. */
typedef struct fth_update_tally {
    double loss; /* sum over the samples */
    int64_t correct, samples;
    bool diverged; /* a batch's loss is not finite: the next exchange tells all workers, and they stop together */
} fth_update_tally;

typedef struct fth_data_parallel {
    fth_engine *engine; /* NULL before connect() */
    fth_stop *stop;     /* NULL: nobody can ask */
    fth_worker_group *group;
    fth_gradient_exchange *exchange;
    fth_update_shards *shards; /* NULL: each worker makes whole updates */
    fth_worker_times *times;
    fth_update_tally tally;
    int64_t number;            /* of the update that was started last */
    const char *activity;      /* as the rendezvous knows it */
    int64_t next_batch;        /* after the last one that is part of an update, or of one being made */
    fth_device_group *devices; /* of the members, which sum gradients themselves; NULL: through the host */
    float *buffers_before;     /* the update that is being made; on the device, NULL where there are none */
    double awaited;            /* batches of the state that this worker got, or was getting when the group ended */
    bool in_step;              /* it has the state that a group had in common, and updates made since */
    bool finishing;            /* all of them end or stop */
    bool apart;                /* it has left, and exchanges nothing any more */
    char ended[64];            /* why all of them end */
    json_t *events;            /* for the record */
} fth_data_parallel;

/* data_parallel_agree.c: see fth_strategy.agree. */
fth_status fth_data_parallel_agree(fth_data_parallel *self, fth_intent *intent);

/* data_parallel_devices.c: opens a group of the members' devices where each has one of its own and
 * they can sum (NCCL), in all members or in none. */
fth_status fth_data_parallel_open_devices(fth_data_parallel *self, const fth_train_options *options);
void fth_data_parallel_close_devices(fth_data_parallel *self);

/* data_parallel_state.c: see fth_strategy.synchronize. */
fth_status fth_data_parallel_synchronize(fth_data_parallel *self, json_t **position);
/* Buffers are moved by computing a batch, before its update is certain. Keeps them, before an
 * update's first batch; and puts them back where the update was not made, so that its batches can
 * be computed again. */
fth_status fth_data_parallel_keep_buffers(fth_data_parallel *self);
fth_status fth_data_parallel_put_buffers_back(fth_data_parallel *self);
/* Gives all workers the buffers (running statistics of batch norms) of rank 0. */
fth_status fth_data_parallel_share_buffers(fth_data_parallel *self);

#endif
