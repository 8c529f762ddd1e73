/* Flat vectors: the optimizers (as torch.optim.SGD and torch.optim.AdamW define them), sum and norm. */
#include "backend/reference/reference.h"

#include <math.h>

static void note_result(const fth_update_arguments *arguments, float parameter)
{
    if (arguments->spoiled && !isfinite(parameter))
        *arguments->spoiled = true;
}

/* g = scale * gradient + decay * p;  m = momentum * m + g, from m = 0;  p -= lr * (nesterov: g + momentum * m, else m).
 * Without momentum, p -= lr * g. */
static fth_status run_sgd(fth_device *device, const fth_update_arguments *arguments, float *parameters,
                          const float *gradients, float *const *state, size_t count)
{
    (void)device;
    const double learning_rate = arguments->learning_rate, momentum = arguments->momentum;
    for (size_t i = 0; i < count; i++) {
        double p = parameters[i];
        double change = (double)arguments->gradient_scale * gradients[i] + (double)arguments->weight_decay * p;
        if (arguments->momentum != 0) {
            float *m = &state[0][i];
            *m = (float)(momentum * *m + change);
            change = arguments->nesterov ? change + momentum * *m : *m;
        }
        parameters[i] = (float)(p - learning_rate * change);
        note_result(arguments, parameters[i]);
    }
    return FTH_OK;
}

/* p -= lr * decay * p;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;
 * p -= lr * m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + epsilon) */
static fth_status run_adamw(fth_device *device, const fth_update_arguments *arguments, float *parameters,
                            const float *gradients, float *const *state, size_t count)
{
    (void)device;
    const double learning_rate = arguments->learning_rate, beta1 = arguments->beta1, beta2 = arguments->beta2;
    const double correction1 = 1 - pow(beta1, (double)arguments->step);
    const double correction2 = 1 - pow(beta2, (double)arguments->step);
    for (size_t i = 0; i < count; i++) {
        double g = (double)arguments->gradient_scale * gradients[i];
        double m = beta1 * state[0][i] + (1 - beta1) * g;
        double v = beta2 * state[1][i] + (1 - beta2) * g * g;
        double p = parameters[i] * (1 - learning_rate * arguments->weight_decay);
        state[0][i] = (float)m;
        state[1][i] = (float)v;
        parameters[i] = (float)(p - learning_rate * (m / correction1) / (sqrt(v / correction2) + arguments->epsilon));
        note_result(arguments, parameters[i]);
    }
    return FTH_OK;
}

const fth_update_kernel reference_updates[] = {
    {"sgd", run_sgd},
    {"adamw", run_adamw},
    {NULL, NULL},
};

fth_status reference_add_vectors(fth_device *device, float *to, const float *from, size_t count)
{
    (void)device;
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
    return FTH_OK;
}

/* Blocks of a fixed size, summed in order: the order of additions that every back end can keep to. */
enum { NORM_BLOCK = 4096 };

fth_status reference_norm(fth_device *device, const float *values, size_t count, double *norm)
{
    (void)device;
    double total = 0;
    for (size_t begin = 0; begin < count; begin += NORM_BLOCK) {
        size_t end = count - begin < NORM_BLOCK ? count : begin + NORM_BLOCK;
        double block = 0;
        for (size_t i = begin; i < end; i++)
            block += (double)values[i] * values[i];
        total += block;
    }
    *norm = sqrt(total);
    return FTH_OK;
}
