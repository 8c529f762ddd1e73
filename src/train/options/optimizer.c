/* See optimizer.h. */
#include "train/options/optimizer.h"

#include <string.h>

#include "backend/optimizers.h"
#include "base/base.h"

static const fth_optimizer *const optimizers[] = {
#define ROW(name, none) &fth_optimizer_##name,
    FTH_OPTIMIZERS(ROW, )
#undef ROW
};

fth_choice fth_optimizer_choice(size_t index)
{
    if (index >= FTH_COUNT_OF(optimizers))
        return (fth_choice){.name = index == FTH_COUNT_OF(optimizers) ? "auto" : NULL,
                            .summary = "sgd, and adamw for text"};
    return (fth_choice){.name = optimizers[index]->name, .summary = optimizers[index]->summary};
}

const char *fth_optimizer_default(void)
{
    return fth_optimizer_sgd.name;
}

fth_status fth_optimizer_find(const char *name, const fth_optimizer **optimizer)
{
    for (size_t i = 0; i < FTH_COUNT_OF(optimizers); i++) {
        *optimizer = optimizers[i];
        if (strcmp(optimizers[i]->name, name) == 0)
            return FTH_OK;
    }
    return fth_fail_choice("optimizer", name, fth_optimizer_choice);
}
