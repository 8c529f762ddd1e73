/* The strategies there are. A new one is a file beside this one and a row here. */
#include "parallel/parallel_internal.h"

const fth_strategy *const fth_strategies[] = {&fth_strategy_single, &fth_strategy_hogwild,
                                              &fth_strategy_parameter_server, NULL};
