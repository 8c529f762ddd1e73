/* Doing again what the log says: gradients, steps and workers, as they were applied before the
 * process ended. */
#ifndef FTH_PARAMETERS_REPLAY_H
#define FTH_PARAMETERS_REPLAY_H

#include "parameters/shards.h"
#include "parameters/updates.h"
#include "parameters/usage.h"
#include "parameters/wal.h"
#include "parameters/workers.h"

typedef struct fth_replay {
    const fth_served_model *model;
    fth_served_position *position;
    fth_updates *updates;
    fth_workers *workers;
    fth_shards *shards;
    fth_served_usage *usage;
    fth_parameters_metrics *metrics;
    double clip; /* what the log so far says that gradients are clipped to; below 0: it does not say yet */
} fth_replay;

/* An fth_wal_reader whose context is an fth_replay. */
fth_status fth_replay_record(void *replay, const fth_log_record *record);
int64_t fth_replay_version(void *replay);

#endif
