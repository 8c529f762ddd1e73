/* The strategies there are. */
#include <string.h>

#include "parallel/parallel_internal.h"

const fth_strategy *const fth_strategy_list[] = {&fth_strategy_single, &fth_strategy_hogwild,
                                                 &fth_strategy_parameter_server, NULL};

fth_status fth_strategy_find(const char *name, const fth_strategy **strategy)
{
    enum { MAX_STRATEGIES = 16 };
    const char *names[MAX_STRATEGIES + 1] = {NULL};
    for (size_t i = 0; fth_strategy_list[i]; i++) {
        *strategy = fth_strategy_list[i];
        if (strcmp((*strategy)->name, name) == 0)
            return FTH_OK;
        if (i < MAX_STRATEGIES)
            names[i] = (*strategy)->name;
    }
    *strategy = NULL;
    const char *nearest = fth_nearest_name(name, names);
    return fth_fail(FTH_INVALID, "there is no strategy \"%s\"; %s%s%s", name, nearest ? "did you mean " : "there is ",
                    nearest ? nearest : names[0], nearest ? "?" : "");
}
