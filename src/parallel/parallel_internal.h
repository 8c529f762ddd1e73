/* The list of strategies, each in its own file. */
#ifndef FTH_PARALLEL_PARALLEL_INTERNAL_H
#define FTH_PARALLEL_PARALLEL_INTERNAL_H

#include "parallel/parallel.h"

/* Every strategy, in the order of --help; a new one is a file that defines fth_strategy_NAME, and
 * its row here. */
#define FTH_STRATEGIES(ROW)                                                                                            \
    ROW(single)                                                                                                        \
    ROW(hogwild)                                                                                                       \
    ROW(parameter_server)                                                                                              \
    ROW(data_parallel)

#define FTH_DECLARE(name) extern const fth_strategy fth_strategy_##name;
FTH_STRATEGIES(FTH_DECLARE)
#undef FTH_DECLARE

/* A server and its workers on this machine (local_server.c): fth_strategy.supervise of
 * parameter-server. Sets options->name to that of the run that is resumed. */
fth_status fth_local_server_run(fth_train_options *options, const char *program, const fth_train_observer *observer,
                                fth_stop *stop, fth_train_outcome *outcome);
/* Whether the options suit it, beyond what suits a worker. */
fth_status fth_local_server_check(const fth_train_options *options);

#endif
