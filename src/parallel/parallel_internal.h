/* The strategies, each in its own file; listed in strategies.c. */
#ifndef FTH_PARALLEL_PARALLEL_INTERNAL_H
#define FTH_PARALLEL_PARALLEL_INTERNAL_H

#include "parallel/parallel.h"

extern const fth_strategy fth_strategy_parameter_server, fth_strategy_single, fth_strategy_hogwild;

#endif
