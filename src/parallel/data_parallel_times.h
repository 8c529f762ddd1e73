/* Where each worker's time goes, for the record: at the end of each epoch, and of the run, all of
 * them put together what they measured. */
#ifndef FTH_PARALLEL_DATA_PARALLEL_TIMES_H
#define FTH_PARALLEL_DATA_PARALLEL_TIMES_H

#include <jansson.h>

#include "parallel/data_parallel_group.h"

/* What a worker's training thread does. */
typedef enum fth_worker_activity {
    FTH_WORKER_COMPUTES,  /* forward and backward passes */
    FTH_WORKER_LOADS,     /* waits for a batch */
    FTH_WORKER_EXCHANGES, /* waits for the exchange of gradients, as far as that goes beyond the backward pass */
    FTH_WORKER_WAITS,     /* for slower workers */
    FTH_WORKER_UPDATES,
    FTH_WORKER_ACTIVITIES /* how many there are */
} fth_worker_activity;

typedef struct fth_worker_times fth_worker_times;

fth_status fth_worker_times_create(fth_worker_times **times);
void fth_worker_times_free(fth_worker_times *times);

/* The time since the last call, or since the last pause, went to this. */
void fth_worker_times_add(fth_worker_times *times, fth_worker_activity activity);
/* It went to something else. */
void fth_worker_times_pause(fth_worker_times *times);

/* In every worker: puts together what all of them measured since the last call, as the event
 * "ranks"; NULL if that was nothing. */
fth_status fth_worker_times_gather(fth_worker_times *times, fth_worker_group *group, json_t **event);

#endif
