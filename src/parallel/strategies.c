/* The strategies there are. */
#include <string.h>

#include "parallel/parallel_internal.h"

static const fth_strategy *const strategies[] = {&fth_strategy_single, &fth_strategy_hogwild,
                                                 &fth_strategy_parameter_server};

fth_status fth_strategy_find(const char *name, const fth_strategy **strategy)
{
    const char *names[FTH_COUNT_OF(strategies) + 1] = {NULL};
    for (size_t i = 0; i < FTH_COUNT_OF(strategies); i++) {
        *strategy = strategies[i];
        if (strcmp((*strategy)->name, name) == 0)
            return FTH_OK;
        names[i] = (*strategy)->name;
    }
    *strategy = NULL;
    const char *nearest = fth_nearest_name(name, names);
    return fth_fail(FTH_INVALID, "there is no strategy \"%s\"; %s%s%s", name, nearest ? "did you mean " : "there is ",
                    nearest ? nearest : names[0], nearest ? "?" : "");
}
