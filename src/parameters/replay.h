/* Replays the log: gradients, steps, workers and shards, as they were applied before the process
 * ended. */
#ifndef FTH_PARAMETERS_REPLAY_H
#define FTH_PARAMETERS_REPLAY_H

#include "parameters/parts.h"
#include "parameters/wal.h"

typedef struct fth_replay {
    const fth_server_parts *parts;
    double clip; /* the norm that gradients are clipped to at this point of the log; 0: none */
} fth_replay;

/* An fth_wal_reader whose context is an fth_replay. */
fth_status fth_replay_record(void *replay, const fth_log_record *record);
int64_t fth_replay_version(void *replay);

#endif
