/* Adam with decoupled weight decay, as PyTorch's torch.optim.AdamW. */
#include <math.h>

#include "train/optimizer.h"

/* |a + b| <= |a| + |b| through the update's formula, in double. */
static double bound(const fth_update_arguments *a, double largest, fth_update_bounds *bounds)
{
    double gradient = largest * a->gradient_scale, step_size = a->learning_rate / (1 - pow(a->beta1, (double)a->step));
    double *first = &bounds->state[0], *second = &bounds->state[1];
    *first = a->beta1 * *first + (1 - a->beta1) * gradient;
    *second = a->beta2 * *second + (1 - a->beta2) * gradient * gradient;
    bounds->parameter = bounds->parameter * (1 + a->learning_rate * a->weight_decay) + step_size * *first / a->epsilon;
    return fmax(fmax(bounds->parameter, gradient), fmax(*first, *second));
}

const fth_optimizer fth_optimizer_adamw = {.name = "adamw",
                                           .summary = "lr 0.001 unless given",
                                           .default_lr = 0.001,
                                           .vectors = {"exp_avg", "exp_avg_sq"},
                                           .bound = bound};
