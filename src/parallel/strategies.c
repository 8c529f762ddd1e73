/* The strategies by name, and training with one of them. */
#include "parallel/parallel_internal.h"
#include "parallel/supervisor.h"

const fth_strategy *const fth_strategies[] = {
#define ROW(name) &fth_strategy_##name,
    FTH_STRATEGIES(ROW)
#undef ROW
        NULL,
};

fth_status fth_parallel_train(fth_train_options *options, const char *program, const fth_train_observer *observer,
                              fth_stop *stop, fth_train_outcome *outcome)
{
    const fth_strategy *strategy = NULL;
    fth_status status = fth_strategy_find(fth_strategies, options->strategy, &strategy);
    if (status != FTH_OK)
        return status;
    if (strategy->supervise && strategy->starts_processes(options))
        return strategy->supervise(options, program, observer, stop, outcome);
    return fth_train(options, fth_strategies, observer, stop, outcome);
}

fth_status fth_parallel_follow_parent(void)
{
    return fth_supervisor_follow_parent();
}
