/* The flat vectors: optimizer updates as one fused loop, sums and norms. Work is split into fixed blocks, so results do
 * not depend on the number of threads.
 *
 * The loops of updates return 0 if every parameter is finite afterwards. They wait for memory, so looking at what is in
 * a register anyway costs nothing. */
#include <float.h>
#include <math.h>

#include "backend/cpu/cpu_internal.h"

enum { BLOCK = 16384 };

static inline size_t block_length(size_t begin, size_t count)
{
    return count - begin < BLOCK ? count - begin : BLOCK;
}

static inline int not_finite(float number)
{
    return !(fabsf(number) <= FLT_MAX);
}

CPU_VECTORIZED static int sgd_plain(const fth_update_arguments *a, float *restrict p, const float *restrict g,
                                    size_t count)
{
    const float rate = a->learning_rate, decay = a->weight_decay, scale = a->gradient_scale;
    int spoiled = 0;
    for (size_t i = 0; i < count; i++) {
        p[i] -= rate * (g[i] * scale + decay * p[i]);
        spoiled |= not_finite(p[i]);
    }
    return spoiled;
}

CPU_VECTORIZED static int sgd_momentum(const fth_update_arguments *a, float *restrict p, const float *restrict g,
                                       float *restrict m, size_t count)
{
    const float rate = a->learning_rate, decay = a->weight_decay, scale = a->gradient_scale, momentum = a->momentum;
    int spoiled = 0;
    for (size_t i = 0; i < count; i++) {
        m[i] = momentum * m[i] + (g[i] * scale + decay * p[i]);
        p[i] -= rate * m[i];
        spoiled |= not_finite(p[i]);
    }
    return spoiled;
}

CPU_VECTORIZED static int sgd_nesterov(const fth_update_arguments *a, float *restrict p, const float *restrict g,
                                       float *restrict m, size_t count)
{
    const float rate = a->learning_rate, decay = a->weight_decay, scale = a->gradient_scale, momentum = a->momentum;
    int spoiled = 0;
    for (size_t i = 0; i < count; i++) {
        float gradient = g[i] * scale + decay * p[i];
        m[i] = momentum * m[i] + gradient;
        p[i] -= rate * (gradient + momentum * m[i]);
        spoiled |= not_finite(p[i]);
    }
    return spoiled;
}

static fth_status note_result(const fth_update_arguments *a, int spoiled)
{
    if (spoiled && a->spoiled)
        *a->spoiled = true;
    return FTH_OK;
}

static fth_status update_sgd(fth_device *device, const fth_update_arguments *a, float *parameters,
                             const float *gradients, float *const *state, size_t count)
{
    int spoiled = 0;
    fth_backend_cpu.enter(device, device->threads);
#pragma omp parallel for schedule(static) reduction(| : spoiled) if (count > 4 * BLOCK)
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t length = block_length(at, count);
        if (a->momentum == 0)
            spoiled |= sgd_plain(a, parameters + at, gradients + at, length);
        else if (a->nesterov)
            spoiled |= sgd_nesterov(a, parameters + at, gradients + at, state[0] + at, length);
        else
            spoiled |= sgd_momentum(a, parameters + at, gradients + at, state[0] + at, length);
    }
    return note_result(a, spoiled);
}

CPU_VECTORIZED static int adamw(const fth_update_arguments *a, float step_size, float second_correction,
                                float *restrict p, const float *restrict g, float *restrict m, float *restrict v,
                                size_t count)
{
    const float beta1 = a->beta1, beta2 = a->beta2, epsilon = a->epsilon, scale = a->gradient_scale;
    const float keep = 1 - a->learning_rate * a->weight_decay;
    int spoiled = 0;
    for (size_t i = 0; i < count; i++) {
        float gradient = g[i] * scale;
        m[i] = beta1 * m[i] + (1 - beta1) * gradient;
        v[i] = beta2 * v[i] + (1 - beta2) * gradient * gradient;
        p[i] = p[i] * keep - step_size * m[i] / (sqrtf(v[i]) * second_correction + epsilon);
        spoiled |= not_finite(p[i]);
    }
    return spoiled;
}

static fth_status update_adamw(fth_device *device, const fth_update_arguments *a, float *parameters,
                               const float *gradients, float *const *state, size_t count)
{
    fth_backend_cpu.enter(device, device->threads);
    /* Bias corrections of both moments (Kingma and Ba), in double: beta2^step is close to 1. */
    const float step_size = (float)(a->learning_rate / (1 - pow(a->beta1, (double)a->step)));
    const float second_correction = (float)(1 / sqrt(1 - pow(a->beta2, (double)a->step)));
    int spoiled = 0;
#pragma omp parallel for schedule(static) reduction(| : spoiled) if (count > 4 * BLOCK)
    for (size_t at = 0; at < count; at += BLOCK)
        spoiled |= adamw(a, step_size, second_correction, parameters + at, gradients + at, state[0] + at, state[1] + at,
                         block_length(at, count));
    return note_result(a, spoiled);
}

const fth_update_kernel cpu_updates[] = {{"sgd", update_sgd}, {"adamw", update_adamw}, {NULL, NULL}};

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

/* Eight running sums, so that the additions do not wait for each other. */
static double sum_of_squares(const float *values, size_t count)
{
    double sums[8] = {0};
    for (size_t i = 0; i < count; i++)
        sums[i % 8] += (double)values[i] * values[i];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/* Sums of blocks are kept on the stack, some at a time, and added in order. */
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
