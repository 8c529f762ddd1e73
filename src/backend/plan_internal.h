/* The inside of a plan, shared by plan.c, plan_memory.c and plan_run.c.
 *
 * Main plan values have the numbers of their graph values; values added by kernels come after them.
 * Values that share memory (in-place results, views) form a family with one root; a family is
 * placed as one area. */
#ifndef FTH_BACKEND_PLAN_INTERNAL_H
#define FTH_BACKEND_PLAN_INTERNAL_H

#include "backend/kernel.h"

enum { MAX_OVERWRITTEN = 2 };

typedef struct plan_value {
    fth_storage storage;
    size_t vector_offset; /* floats (or integers as large), for values in flat vectors and constants */
    void *layout;
    size_t size_bytes;
    fth_plan_value alias_of;              /* towards the family's root; none for a root */
    fth_plan_value copy_of;               /* none: not a copy */
    fth_plan_value over[MAX_OVERWRITTEN]; /* operands that it may overwrite, the preferred first */
    int over_count;
    int last_reader; /* main values: last node that reads it; INT_MAX: kept to the end; -1: none */
    void *data;
} plan_value;

typedef struct plan_step {
    fth_step step;
    int node;            /* of the graph: being prepared when the step was added */
    size_t ready_floats; /* gradients final once this step is done; 0: no more than before */
} plan_step;

struct fth_plan {
    const fth_graph *graph;
    fth_device *device;
    fth_plan_options options;
    int node_count; /* of the graph, in this mode */
    bool *needed;   /* nodes whose results are read or kept */
    int threads;
    int current_node;
    void *notes; /* the back end's, while the plan is made */

    plan_value *values;
    size_t value_count, value_capacity;
    plan_step *steps;
    size_t step_count, step_capacity;

    size_t constant_floats;
    void *constants; /* on the device, from the first bind on; NULL: there are none */

    size_t arena_bytes;
    size_t *area_of; /* root -> offset in the arena */
    bool bound;
    float *gradients;  /* the bound vector */
    void *captured[2]; /* the back end's recordings of one run, where it makes any: alone, and with an update */
    const fth_updater *updater; /* of the second */
};

/* The value whose memory this one has. */
fth_plan_value fth_plan_root(const fth_plan *plan, fth_plan_value value);

/* Makes this thread the device's, with the plan's number of threads. */
void fth_plan_enter(const fth_plan *plan);

/* plan_memory.c: gives every arena value its place, by the steps that read and write it. */
fth_status fth_plan_place_values(fth_plan *plan);
/* Finds after which step which gradients are final. */
fth_status fth_plan_find_ready_ranges(fth_plan *plan);

/* plan_run.c: FTH_TIMEOUT, or FTH_INTERRUPTED. */
fth_status fth_plan_check_time(fth_deadline deadline, const fth_stop *stop);

/* plan_run.c: forgets what was recorded. */
void fth_plan_drop_recordings(fth_plan *plan);

#endif
