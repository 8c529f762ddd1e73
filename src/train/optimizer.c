/* The optimizers by name. Their arithmetic is each back end's (fth_update_kernel): one fused loop over flat vectors. */
#include <math.h>
#include <string.h>

#include "train/train_internal.h"

static bool sgd_needs_vectors(const fth_train_options *options)
{
    return options->momentum > 0;
}

/* |a + b| <= |a| + |b| through the update's formula, in double. */
static double sgd_bound(const fth_update_arguments *a, double largest, fth_update_bounds *bounds)
{
    double gradient = largest * a->gradient_scale + a->weight_decay * bounds->parameter, direction = gradient;
    if (a->momentum > 0) {
        bounds->state[0] = a->momentum * bounds->state[0] + gradient;
        direction = a->nesterov ? gradient + a->momentum * bounds->state[0] : bounds->state[0];
    }
    bounds->parameter += a->learning_rate * direction;
    return fmax(bounds->parameter, fmax(direction, bounds->state[0]));
}

static double adamw_bound(const fth_update_arguments *a, double largest, fth_update_bounds *bounds)
{
    double gradient = largest * a->gradient_scale, step_size = a->learning_rate / (1 - pow(a->beta1, (double)a->step));
    double *first = &bounds->state[0], *second = &bounds->state[1];
    *first = a->beta1 * *first + (1 - a->beta1) * gradient;
    *second = a->beta2 * *second + (1 - a->beta2) * gradient * gradient;
    bounds->parameter = bounds->parameter * (1 + a->learning_rate * a->weight_decay) + step_size * *first / a->epsilon;
    return fmax(fmax(bounds->parameter, gradient), fmax(*first, *second));
}

static const fth_optimizer optimizers[] = {
    {.name = "sgd",
     .default_lr = 0.01,
     .vectors = {"momentum_buffer"},
     .needs_vectors = sgd_needs_vectors,
     .bound = sgd_bound},
    {.name = "adamw", .default_lr = 0.001, .vectors = {"exp_avg", "exp_avg_sq"}, .bound = adamw_bound},
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
