/* Plans: a graph bound to a device, a batch size and a mode, for those who run them. What kernels
 * need is in kernel.h.
 *
 *     fth_plan_create    each node's kernel chooses layouts, builds its primitives and adds steps;
 *                        lifetimes are then known, and every buffer gets its place in one arena
 *     fth_plan_bind      the arena and the flat vectors get their addresses
 *     fth_plan_run       a loop over the steps: nothing is chosen or allocated any more */
#ifndef FTH_BACKEND_PLAN_H
#define FTH_BACKEND_PLAN_H

#include "backend/backend.h"

typedef enum fth_plan_mode { FTH_PLAN_TRAIN, FTH_PLAN_EVALUATE } fth_plan_mode;

typedef struct fth_plan_options {
    int64_t batch;
    int64_t tokens; /* of graphs with FTH_TOKENS: how many it has room for */
    fth_plan_mode mode;
    fth_precision precision;
    int threads;     /* that compute; 0: the device's, or 1 where more do not pay */
    bool unmeasured; /* it is made to know its size: nothing is measured to choose primitives */
    /* Training: peers have other parts of the batch, and batch norm normalizes by the statistics of
     * the whole (batch_norm_sums.h). */
    bool synchronized;
    fth_deadline
        deadline; /* of making it; at_seconds 0: none. Then FTH_TIMEOUT, or FTH_INTERRUPTED when `stop` is asked */
    const fth_stop *stop;
} fth_plan_options;

/* How many tokens the plan for a batch of `tokens` has room for: at most a sixteenth more, so that
 * batches of like size share one. A pure function, so that a resumed run computes with the same
 * plans. */
int64_t fth_text_capacity(int64_t tokens);

/* The processes that have the other parts of a batch. */
typedef struct fth_peers {
    /* Sums `values` over all of them, in place. All make the same calls in the same order. */
    fth_status (*sum)(void *context, double *values, size_t count);
    void *context;
    /* The same on the device, where it can (fth_backend.collectives); NULL: everything is summed by
     * `sum`. */
    fth_device_group *group;
    size_t bucket_floats; /* gradients that are summed together on the device as soon as they are final; 0: all */
} fth_peers;

/* The flat vectors, on the device. `gradients` may be NULL for evaluation. */
typedef struct fth_vectors {
    float *parameters, *gradients, *buffers;
} fth_vectors;

/* What changes from one run of a plan to the next. */
struct fth_run {
    uint64_t seed;
    uint64_t step; /* number of this training batch: makes dropout a pure function of the position */
    /* Where a part of a batch begins in the whole: dropout is the same for all ways to part it. */
    uint64_t first_sample, first_token;
    float gradient_scale; /* loss gradients are multiplied by this: 1, or a micro-batch's share */

    /* Called whenever more gradients are final: floats [0, ready_floats) of the gradient vector.
     * May be NULL. */
    void (*gradients_ready)(void *context, size_t ready_floats);
    void *gradients_context;

    const fth_peers *peers; /* NULL: this process has the whole batch */
    bool sum_gradients;     /* with a device group: gradients are summed over its members as a part of the run */

    double *step_seconds; /* NULL, or fth_plan_step_count() sums to which each step's time is added */

    /* Where the back end has updaters: the update that follows the run as a part of it; NULL: none.
     * Not together with gradients_ready or step_seconds. */
    fth_updater *updater;
    double learning_rate;
    int64_t update; /* number of the update; 1 for the first */

    /* Between steps, where the host starts each: FTH_TIMEOUT, or FTH_INTERRUPTED. at_seconds 0,
     * NULL: none. */
    fth_deadline deadline;
    const fth_stop *stop;
};

/* The graph and the device must outlive the plan. */
fth_status fth_plan_create(const fth_graph *graph, fth_device *device, fth_plan_options options, fth_plan **plan);
void fth_plan_free(fth_plan *plan);

size_t fth_plan_arena_bytes(const fth_plan *plan);
/* Plans that never run at the same time may share one arena, of the largest size among them. */
fth_status fth_plan_bind(fth_plan *plan, void *arena, fth_vectors vectors);

/* Where an input lies, for devices in host memory: plain, as the graph describes it. Valid from
 * bind on. */
void *fth_plan_input(const fth_plan *plan, fth_value input);
/* Copies a batch's input (plain, as the graph describes it) in, or an output (logits or loss) out,
 * as f32. */
fth_status fth_plan_set_input(fth_plan *plan, fth_value input, const void *host);
/* The same from a data set on the device; for back ends with `batches`. */
fth_status fth_plan_gather_input(fth_plan *plan, fth_value input, const fth_gather *gather);
fth_status fth_plan_get_output(fth_plan *plan, fth_value output, float *host);

fth_status fth_plan_run(fth_plan *plan, const fth_run *run);
/* Sums, by run->peers' group, those of `count` gradients that are in whole buckets before `ready`;
 * all that are left when `ready` is `count`. *summed is how many have been so far. Nothing of what
 * the device is given later waits for it. */
fth_status fth_plan_sum_gradients(fth_device *device, const fth_run *run, float *gradients, size_t ready, size_t count,
                                  size_t *summed);
/* The run of a training plan for a part with no samples: takes part in the sums of batch norm that
 * the others of a synchronized plan make, moves the running statistics as they do, and sets all
 * gradients to zero. Sums of gradients are left to the caller. */
fth_status fth_plan_run_empty(const fth_graph *graph, fth_device *device, fth_vectors vectors, bool synchronized,
                              const fth_run *run);
/* The loss of the run before, as get_output would give it, without waiting for the rest of the run
 * where that is possible. */
fth_status fth_plan_read_loss(fth_plan *plan, float loss[2]);

int fth_plan_step_count(const fth_plan *plan);
const char *fth_plan_step_name(const fth_plan *plan, int step);
/* The node of the graph to which a step belongs; of a step that does the work of several, one of
 * them. */
int fth_plan_step_node(const fth_plan *plan, int step);

#endif
