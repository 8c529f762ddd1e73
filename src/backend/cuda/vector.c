/* Flat vectors: the optimizers, sum and norm. One launch each. */
#include <math.h>

#include "backend/cuda/cuda_internal.h"

static fth_status run_sgd(fth_device *device, const fth_update_arguments *a, float *parameters, const float *gradients,
                          float *const *state, size_t count)
{
    const cuda_device *cuda = (cuda_device *)device;
    return cuda_status(cuda_launch_sgd(&cuda->launch, parameters, gradients, a->momentum != 0 ? state[0] : NULL, count,
                                       a->learning_rate, a->momentum, a->weight_decay, a->gradient_scale, a->nesterov),
                       "sgd");
}

static fth_status run_adamw(fth_device *device, const fth_update_arguments *a, float *parameters,
                            const float *gradients, float *const *state, size_t count)
{
    const cuda_device *cuda = (cuda_device *)device;
    const double correction1 = 1 - pow((double)a->beta1, (double)a->step);
    const double correction2 = 1 - pow((double)a->beta2, (double)a->step);
    return cuda_status(cuda_launch_adamw(&cuda->launch, parameters, gradients, state[0], state[1], count,
                                         a->learning_rate, a->weight_decay, a->beta1, a->beta2, a->epsilon,
                                         a->gradient_scale, (float)correction1, (float)correction2),
                       "adamw");
}

const fth_update_kernel cuda_updates[] = {
    {"sgd", run_sgd},
    {"adamw", run_adamw},
    {NULL, NULL},
};

fth_status cuda_vector_add(fth_device *device, float *to, const float *from, size_t count)
{
    const cuda_device *cuda = (cuda_device *)device;
    return cuda_status(cuda_launch_add(&cuda->launch, to, from, count), "adding vectors");
}

fth_status cuda_vector_norm(fth_device *device, const float *values, size_t count, double *norm)
{
    fth_status status = FTH_OK;
    const cuda_device *cuda = (cuda_device *)device;
    double squares = 0;
    CUDA_TRY(cuda_launch_square_sum(&cuda->launch, values, count, cuda->norm_scratch,
                                    cuda->norm_scratch + CUDA_NORM_BLOCKS));
    FTH_TRY(device->backend->copy_out(device, &squares, cuda->norm_scratch + CUDA_NORM_BLOCKS, sizeof squares));
    *norm = sqrt(squares);
out:
    return status;
}
