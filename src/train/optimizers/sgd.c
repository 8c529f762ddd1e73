/* Stochastic gradient descent with momentum, as PyTorch's torch.optim.SGD. */
#include <math.h>

#include "train/optimizer.h"

static const char *choose_rule(const fth_train_options *options)
{
    return options->momentum > 0 ? options->nesterov ? "sgd_nesterov" : "sgd_momentum" : "sgd";
}

/* |a + b| <= |a| + |b| through the update's formula, in double. */
static double bound(const fth_update_arguments *a, double largest, fth_update_bounds *bounds)
{
    double gradient = largest * a->gradient_scale + a->weight_decay * bounds->parameter, direction = gradient;
    if (a->momentum > 0) {
        bounds->state[0] = a->momentum * bounds->state[0] + gradient;
        direction = a->nesterov ? gradient + a->momentum * bounds->state[0] : bounds->state[0];
    }
    bounds->parameter += a->learning_rate * direction;
    return fmax(bounds->parameter, fmax(direction, bounds->state[0]));
}

const fth_optimizer fth_optimizer_sgd = {.name = "sgd",
                                         .summary = "lr 0.01 unless given",
                                         .default_lr = 0.01,
                                         .takes_nesterov = true,
                                         .vectors = {"momentum_buffer"},
                                         .choose_rule = choose_rule,
                                         .bound = bound};
