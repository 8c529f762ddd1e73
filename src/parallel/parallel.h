/* Strategies: how a training step is carried out. One file each. */
#ifndef FTH_PARALLEL_PARALLEL_H
#define FTH_PARALLEL_PARALLEL_H

#include "train/loop/strategy.h"

extern const fth_strategy *const fth_strategies[]; /* NULL-terminated */

/* Trains as fth_train() does, or with processes that the strategy starts here. `program` is the
 * file that they run: this program. May change `options`. */
fth_status fth_parallel_train(fth_train_options *options, const char *program, const fth_train_observer *observer,
                              fth_stop *stop, fth_train_outcome *outcome);

/* Call it first in a process that may be one of those: it then ends with the one that started
 * it. */
fth_status fth_parallel_follow_parent(void);

/* A worker process of --strategy hogwild --processes: works for the process that started it and
 * shares the memory behind `descriptor`. The program runs it for this (hidden) command, with both
 * numbers as arguments. */
#define FTH_HOGWILD_COMMAND "hogwild-worker"
fth_status fth_hogwild_worker_run(int descriptor, int worker);

#endif
