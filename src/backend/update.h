/* Updates of the flat vectors: what an optimizer is, what it is given, and the macros with which
 * one is written.
 *
 * A rule says how one parameter changes. It is written once, in a file of optimizers/, in plain
 * arithmetic that C and CUDA both compile; every back end makes its own fused loop of it
 * (optimizers.h). */
#ifndef FTH_BACKEND_UPDATE_H
#define FTH_BACKEND_UPDATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fth_update_arguments {
    float learning_rate, momentum, weight_decay, beta1, beta2, epsilon;
    bool nesterov;
    float gradient_scale; /* clipping: the gradient is multiplied by this first */
    int64_t step;         /* 1 for the first update */
    bool *diverged;       /* set if a parameter is no longer finite, by back ends in host memory; may be NULL */
} fth_update_arguments;

/* Parameters that are updated by the same numbers, as a parameter group of PyTorch's optimizers. */
typedef struct fth_update_group {
    float rate, decay; /* what learning_rate and weight_decay are multiplied by */
} fth_update_group;

/* Neighbours in the flat vector that belong to one group. */
typedef struct fth_update_range {
    size_t end; /* it begins where the range before ends, the first at 0 */
    int group;
} fth_update_range;

enum { FTH_MAX_UPDATE_GROUPS = 256 };

/* All groups of a model, and which of its parameters belong to which. Without any, all are updated
 * alike. */
typedef struct fth_update_groups {
    const fth_update_group *groups;
    int group_count; /* at most FTH_MAX_UPDATE_GROUPS */
    const fth_update_range *ranges;
    int range_count; /* they cover the whole vector */
} fth_update_groups;

/* The numbers by which one group is updated. */
static inline fth_update_arguments fth_update_group_arguments(const fth_update_arguments *all, fth_update_group group)
{
    fth_update_arguments arguments = *all;
    arguments.learning_rate *= group.rate;
    arguments.weight_decay *= group.decay;
    return arguments;
}

enum { FTH_MAX_OPTIMIZER_VECTORS = 2 };

/* No number of a vector is larger in magnitude than its bound. */
typedef struct fth_update_bounds {
    double parameter, state[FTH_MAX_OPTIMIZER_VECTORS];
} fth_update_bounds;

/* What the trainer knows of an optimizer. */
typedef struct fth_optimizer {
    const char *name, *summary;
    double default_lr;
    bool takes_momentum; /* --momentum and --nesterov */
    /* Vectors besides the parameters, by PyTorch's names; NULL-terminated. A rule has all of them
     * or none. */
    const char *vectors[FTH_MAX_OPTIMIZER_VECTORS + 1];
    /* Optional: the rule for these arguments, which do not change during a run (learning_rate,
     * gradient_scale and step are not set). Without it, the rule of the optimizer's name. */
    const char *(*choose_rule)(const fth_update_arguments *arguments);
    /* Optional: moves the bounds to what holds after an update by gradients of at most `largest`,
     * and gives the largest magnitude that its arithmetic can meet on the way. Without it, a
     * parameter server makes each update on trial. */
    double (*bound)(const fth_update_arguments *arguments, double largest, fth_update_bounds *bounds);
} fth_optimizer;

/* FTH_OPTIMIZER(NAME, .summary = "...", ...) defines fth_optimizer_NAME; device code has no use for
 * it. */
#ifdef __CUDACC__
#define FTH_OPTIMIZER(...) struct fth_optimizer /* only declared */
#else
#define FTH_OPTIMIZER(optimizer, ...)                                                                                  \
    static const fth_optimizer fth_optimizer_##optimizer = {.name = #optimizer, __VA_ARGS__}
#endif

/* Inlined into the loops, so that each of them is vectorized, and fused, for its own instruction
 * set. */
#ifdef __CUDACC__
#define FTH_UPDATE_RULE static __host__ __device__ __forceinline__
#else
#define FTH_UPDATE_RULE static inline __attribute__((always_inline))
#endif

#endif
