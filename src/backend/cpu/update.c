/* The flat vectors: optimizer updates as one fused loop, sums and norms. Work is split into fixed
 * blocks, so results do not depend on the number of threads.
 *
 * The update loops return 0 if every parameter is finite afterwards. They are limited by memory, so
 * checking a value that is in a register anyway costs nothing. */
#include <float.h>
#include <math.h>

#include "backend/cpu/cpu_internal.h"
#include "backend/optimizers.h"

enum { BLOCK = 16384 };

static inline size_t block_length(size_t begin, size_t count)
{
    return count - begin < BLOCK ? count - begin : BLOCK;
}

static inline int not_finite(float number)
{
    return !(fabsf(number) <= FLT_MAX);
}

typedef int update_block(const fth_update_numbers *numbers, float scale, float *restrict p, const float *restrict g,
                         float *restrict first, float *restrict second, size_t count);

/* Each rule's loop over a block. Vectors that a rule does not have are NULL. */
#define BLOCK_OF(rule, vectors)                                                                                        \
    CPU_VECTORIZED static int rule##_block(const fth_update_numbers *numbers, float scale, float *restrict p,          \
                                           const float *restrict g, float *restrict first, float *restrict second,     \
                                           size_t count)                                                               \
    {                                                                                                                  \
        const fth_##rule##_numbers n = numbers->rule;                                                                  \
        int diverged = 0;                                                                                              \
        for (size_t i = 0; i < count; i++) {                                                                           \
            float none = 0;                                                                                            \
            fth_##rule(&n, g[i] * scale, &p[i], (vectors) > 0 ? &first[i] : &none,                                     \
                       (vectors) > 1 ? &second[i] : &none);                                                            \
            diverged |= not_finite(p[i]);                                                                              \
        }                                                                                                              \
        return diverged;                                                                                               \
    }
FTH_UPDATE_RULES(BLOCK_OF)

static fth_status run_update(fth_device *device, fth_update_rule rule, update_block *run, int vectors,
                             const fth_update_arguments *a, float *parameters, const float *gradients,
                             float *const *state, size_t count)
{
    fth_update_numbers numbers;
    int diverged = 0;
    fth_update_prepare(rule, a, &numbers);
    fth_backend_cpu.enter(device, device->threads);
#pragma omp parallel for schedule(static) reduction(| : diverged) if (count > 4 * BLOCK)
    for (size_t at = 0; at < count; at += BLOCK)
        diverged |=
            run(&numbers, a->gradient_scale, parameters + at, gradients + at, vectors > 0 ? state[0] + at : NULL,
                vectors > 1 ? state[1] + at : NULL, block_length(at, count));
    if (diverged && a->diverged)
        *a->diverged = true;
    return FTH_OK;
}

#define KERNEL_OF(rule, vectors)                                                                                       \
    static fth_status run_##rule(fth_device *device, const fth_update_arguments *a, float *parameters,                 \
                                 const float *gradients, float *const *state, size_t count)                            \
    {                                                                                                                  \
        return run_update(device, FTH_UPDATE_RULE_##rule, rule##_block, vectors, a, parameters, gradients, state,      \
                          count);                                                                                      \
    }
FTH_UPDATE_RULES(KERNEL_OF)

#define ROW_OF(rule, vectors) {#rule, vectors, run_##rule},
const fth_update_kernel cpu_updates[] = {FTH_UPDATE_RULES(ROW_OF){NULL, 0, NULL}};

CPU_VECTORIZED static void add_block(float *restrict to, const float *restrict from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

fth_status cpu_vector_add(fth_device *device, float *to, const float *from, size_t count)
{
    fth_backend_cpu.enter(device, device->threads);
#pragma omp parallel for schedule(static) if (count > 4 * BLOCK)
    for (size_t at = 0; at < count; at += BLOCK)
        add_block(to + at, from + at, block_length(at, count));
    return FTH_OK;
}

/* Eight running sums, so that additions do not wait for each other. */
static double sum_of_squares(const float *values, size_t count)
{
    double sums[8] = {0};
    for (size_t i = 0; i < count; i++)
        sums[i % 8] += (double)values[i] * values[i];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/* Sums of blocks are on the stack, some at a time, and are added in order. */
fth_status cpu_vector_norm(fth_device *device, const float *values, size_t count, double *norm)
{
    enum { AT_A_TIME = 256 };
    double sums[AT_A_TIME], total = 0;
    size_t blocks = (count + BLOCK - 1) / BLOCK;
    fth_backend_cpu.enter(device, device->threads);
    for (size_t first = 0; first < blocks; first += AT_A_TIME) {
        size_t here = blocks - first < AT_A_TIME ? blocks - first : AT_A_TIME;
#pragma omp parallel for schedule(static) if (here > 4)
        for (size_t b = 0; b < here; b++)
            sums[b] = sum_of_squares(values + (first + b) * BLOCK, block_length((first + b) * BLOCK, count));
        for (size_t b = 0; b < here; b++)
            total += sums[b];
    }
    *norm = sqrt(total);
    return FTH_OK;
}
