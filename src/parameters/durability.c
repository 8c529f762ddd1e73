/* --durability: how much an acknowledged gradient survives; see parameters.h. */
#include <string.h>

#include "base/base.h"
#include "parameters/parameters.h"

static const fth_choice names[] = {
    [FTH_DURABILITY_CHECKPOINT] = {"checkpoint", "no log: updates after a checkpoint are lost"},
    [FTH_DURABILITY_KILL] = {"kill", "a log: survives a killed process"},
    [FTH_DURABILITY_POWER] = {"power", "a synced log: survives a power failure"},
};

fth_choice fth_durability_choice(size_t index)
{
    return index < FTH_COUNT_OF(names) ? names[index] : (fth_choice){0};
}

fth_status fth_durability_find(const char *name, fth_durability *durability)
{
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        *durability = (fth_durability)i;
        if (strcmp(names[i].name, name) == 0)
            return FTH_OK;
    }
    return fth_fail_choice("durability", name, fth_durability_choice);
}
