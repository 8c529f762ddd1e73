/* Stochastic gradient descent, as torch.optim.SGD:
 *
 *     g += decay * p;  m = momentum * m + g, from m = 0;  p -= lr * (nesterov: g + momentum * m, else m)
 *
 * and without momentum p -= lr * g. */
#ifndef FTH_BACKEND_OPTIMIZERS_SGD_H
#define FTH_BACKEND_OPTIMIZERS_SGD_H

#include "backend/update.h"

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

#endif
