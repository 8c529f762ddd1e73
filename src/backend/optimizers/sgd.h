/* Stochastic gradient descent, as torch.optim.SGD:
 *
 *     g += decay * p;  m = momentum * m + g, from m = 0;  p -= lr * (nesterov: g + momentum * m, else m)
 *
 * and without momentum p -= lr * g. */
#ifndef FTH_BACKEND_OPTIMIZERS_SGD_H
#define FTH_BACKEND_OPTIMIZERS_SGD_H

#include <math.h>

#include "backend/update.h"

#define FTH_RULES_OF_sgd(RULE)                                                                                         \
    RULE(sgd, 0)                                                                                                       \
    RULE(sgd_momentum, 1)                                                                                              \
    RULE(sgd_nesterov, 1)

typedef struct fth_sgd_numbers {
    float rate, decay, momentum;
} fth_sgd_numbers;

typedef fth_sgd_numbers fth_sgd_momentum_numbers;
typedef fth_sgd_numbers fth_sgd_nesterov_numbers;

static inline void fth_sgd_prepare(const fth_update_arguments *a, fth_sgd_numbers *n)
{
    n->rate = a->learning_rate;
    n->decay = a->weight_decay;
    n->momentum = a->momentum;
}

#define fth_sgd_momentum_prepare fth_sgd_prepare
#define fth_sgd_nesterov_prepare fth_sgd_prepare

FTH_UPDATE_RULE void fth_sgd(const fth_sgd_numbers *n, float g, float *p, float *first, float *second)
{
    (void)first;
    (void)second;
    *p -= n->rate * (g + n->decay * *p);
}

FTH_UPDATE_RULE void fth_sgd_momentum(const fth_sgd_numbers *n, float g, float *p, float *m, float *second)
{
    (void)second;
    *m = n->momentum * *m + (g + n->decay * *p);
    *p -= n->rate * *m;
}

FTH_UPDATE_RULE void fth_sgd_nesterov(const fth_sgd_numbers *n, float g, float *p, float *m, float *second)
{
    (void)second;
    float gradient = g + n->decay * *p;
    *m = n->momentum * *m + gradient;
    *p -= n->rate * (gradient + n->momentum * *m);
}

static inline const char *fth_sgd_choose_rule(const fth_update_arguments *a)
{
    return a->momentum > 0 ? a->nesterov ? "sgd_nesterov" : "sgd_momentum" : "sgd";
}

/* |a + b| <= |a| + |b| through the update's formula, in double. */
static inline double fth_sgd_bound(const fth_update_arguments *a, double largest, fth_update_bounds *bounds)
{
    double gradient = largest * a->gradient_scale + a->weight_decay * bounds->parameter, direction = gradient;
    if (a->momentum > 0) {
        bounds->state[0] = a->momentum * bounds->state[0] + gradient;
        direction = a->nesterov ? gradient + a->momentum * bounds->state[0] : bounds->state[0];
    }
    bounds->parameter += a->learning_rate * direction;
    return fmax(bounds->parameter, fmax(direction, bounds->state[0]));
}

FTH_OPTIMIZER(sgd, .summary = "lr 0.01 unless given", .default_lr = 0.01, .takes_momentum = true,
              .vectors = {"momentum_buffer"}, .choose_rule = fth_sgd_choose_rule, .bound = fth_sgd_bound);

#endif
