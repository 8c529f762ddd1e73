/* The strategies, each in its own file; listed in strategies.c. */
#ifndef FTH_PARALLEL_PARALLEL_INTERNAL_H
#define FTH_PARALLEL_PARALLEL_INTERNAL_H

#include "parallel/parallel.h"

extern const fth_strategy fth_strategy_parameter_server, fth_strategy_single, fth_strategy_hogwild;

/* A server and its workers on this machine (local_server.c): fth_strategy.supervise of parameter-server. Sets
 * options->name to that of the run that is resumed. */
fth_status fth_local_server_run(fth_train_options *options, const char *program, const fth_train_observer *observer,
                                fth_stop *stop, fth_train_outcome *outcome);

#endif
