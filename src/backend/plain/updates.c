/* Flat vectors: updates, sum and norm. */
#include "backend/plain/plain.h"

#include <math.h>

#include "backend/optimizers.h"

/* Each rule of optimizers.h as a loop. */
#define KERNEL_OF(rule, vectors)                                                                                       \
    static fth_status run_##rule(fth_device *device, const fth_update_arguments *arguments, float *parameters,         \
                                 const float *gradients, float *const *state, size_t count)                            \
    {                                                                                                                  \
        fth_##rule##_numbers numbers;                                                                                  \
        (void)device;                                                                                                  \
        (void)state;                                                                                                   \
        fth_##rule##_prepare(arguments, &numbers);                                                                     \
        for (size_t i = 0; i < count; i++) {                                                                           \
            float none = 0;                                                                                            \
            fth_##rule(&numbers, gradients[i] * arguments->gradient_scale, &parameters[i],                             \
                       (vectors) > 0 ? &state[0][i] : &none, (vectors) > 1 ? &state[1][i] : &none);                    \
            if (arguments->diverged && !isfinite(parameters[i]))                                                       \
                *arguments->diverged = true;                                                                           \
        }                                                                                                              \
        return FTH_OK;                                                                                                 \
    }
FTH_UPDATE_RULES(KERNEL_OF)

#define ROW_OF(rule, vectors) {#rule, vectors, run_##rule},
const fth_update_kernel plain_updates[] = {FTH_UPDATE_RULES(ROW_OF){NULL, 0, NULL}};

fth_status plain_add_vectors(fth_device *device, float *to, const float *from, size_t count)
{
    (void)device;
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
    return FTH_OK;
}

/* Blocks of a fixed size, summed in order: the order of additions that every back end can keep
 * to. */
enum { NORM_BLOCK = 4096 };

fth_status plain_norm(fth_device *device, const float *values, size_t count, double *norm)
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
