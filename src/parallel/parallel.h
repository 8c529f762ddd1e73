/* Strategies: how a training step is carried out. One file each. */
#ifndef FTH_PARALLEL_PARALLEL_H
#define FTH_PARALLEL_PARALLEL_H

#include "train/strategy.h"

extern const fth_strategy *const fth_strategies[]; /* NULL-terminated */

/* A worker process of --strategy hogwild --processes: works for the process that started it and shares the memory
 * behind `descriptor`. The program runs it for this (hidden) command, with both numbers as arguments. */
#define FTH_HOGWILD_COMMAND "hogwild-worker"
fth_status fth_hogwild_worker_run(int descriptor, int worker);

#endif
