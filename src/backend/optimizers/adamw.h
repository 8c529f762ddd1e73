/* Adam with decoupled weight decay, as torch.optim.AdamW:
 *
 *     p -= lr * decay * p;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;
 *     p -= lr * m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + epsilon) */
#ifndef FTH_BACKEND_OPTIMIZERS_ADAMW_H
#define FTH_BACKEND_OPTIMIZERS_ADAMW_H

#include <math.h>

#include "backend/update.h"

#define FTH_RULES_OF_adamw(RULE) RULE(adamw, 2)

typedef struct fth_adamw_numbers {
    float rate, decay, beta1, beta2, epsilon;
    float step_size, second_correction;
} fth_adamw_numbers;

/* The corrections of both moments (Kingma and Ba) in double: beta2^step is close to 1. */
static inline void fth_adamw_prepare(const fth_update_arguments *a, fth_adamw_numbers *n)
{
    n->rate = a->learning_rate;
    n->decay = a->weight_decay;
    n->beta1 = a->beta1;
    n->beta2 = a->beta2;
    n->epsilon = a->epsilon;
    n->step_size = (float)(a->learning_rate / (1 - pow(a->beta1, (double)a->step)));
    n->second_correction = (float)(1 / sqrt(1 - pow(a->beta2, (double)a->step)));
}

FTH_UPDATE_RULE void fth_adamw(const fth_adamw_numbers *n, float g, float *p, float *m, float *v)
{
    const float keep = 1 - n->rate * n->decay;
    *m = n->beta1 * *m + (1 - n->beta1) * g;
    *v = n->beta2 * *v + (1 - n->beta2) * g * g;
    *p = *p * keep - n->step_size * *m / (sqrtf(*v) * n->second_correction + n->epsilon);
}

/* |a + b| <= |a| + |b| through the update's formula, in double. */
static inline double fth_adamw_bound(const fth_update_arguments *a, double largest, fth_update_bounds *bounds)
{
    double gradient = largest * a->gradient_scale, step_size = a->learning_rate / (1 - pow(a->beta1, (double)a->step));
    double *first = &bounds->state[0], *second = &bounds->state[1];
    *first = a->beta1 * *first + (1 - a->beta1) * gradient;
    *second = a->beta2 * *second + (1 - a->beta2) * gradient * gradient;
    bounds->parameter = bounds->parameter * (1 + a->learning_rate * a->weight_decay) + step_size * *first / a->epsilon;
    return fmax(fmax(bounds->parameter, gradient), fmax(*first, *second));
}

FTH_OPTIMIZER(adamw, .summary = "lr 0.001 unless given", .default_lr = 0.001, .vectors = {"exp_avg", "exp_avg_sq"},
              .bound = fth_adamw_bound);

#endif
