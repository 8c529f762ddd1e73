/* The optimizers by name. Their arithmetic is each back end's (fth_update_kernel): one fused loop over flat vectors. */
#include <string.h>

#include "train/train_internal.h"

static bool sgd_needs_vectors(const fth_train_options *options)
{
    return options->momentum > 0;
}

static const fth_optimizer optimizers[] = {
    {.name = "sgd", .default_lr = 0.01, .vectors = {"momentum_buffer"}, .needs_vectors = sgd_needs_vectors},
    {.name = "adamw", .default_lr = 0.001, .vectors = {"exp_avg", "exp_avg_sq"}},
};

fth_status fth_optimizer_find(const char *name, const fth_optimizer **optimizer)
{
    for (size_t i = 0; i < FTH_COUNT_OF(optimizers); i++) {
        *optimizer = &optimizers[i];
        if (strcmp((*optimizer)->name, name) == 0)
            return FTH_OK;
    }
    return fth_fail(FTH_INVALID, "there is no optimizer \"%s\"", name);
}
