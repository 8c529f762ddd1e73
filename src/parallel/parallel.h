/* Strategies: how a training step is carried out. One file each. */
#ifndef FTH_PARALLEL_PARALLEL_H
#define FTH_PARALLEL_PARALLEL_H

#include "train/train.h"

extern const fth_strategy *const fth_strategy_list[]; /* ends with NULL */
fth_status fth_strategy_find(const char *name, const fth_strategy **strategy);

#endif
