/* Kernels, and the inside of a plan as they see it while it is made. For back ends; who runs plans
 * needs plan.h.
 *
 * A kernel adds the steps that compute one node. A plan value is one buffer in one layout. Each
 * graph value has a main one; a kernel may add others (the same value in another layout, scratch).
 * Its layout is the back end's own struct. */
#ifndef FTH_BACKEND_KERNEL_H
#define FTH_BACKEND_KERNEL_H

#include "backend/plan.h"
#include "graph/ops.h"

struct fth_kernel {
    const fth_op *op;
    /* Adds the steps that compute `node` in `plan`. */
    fth_status (*prepare)(fth_plan *plan, const fth_node *node);
};

/* A struct, so that the compiler does not take it for a graph value; fth_plan_value_of() leads from
 * one to the other. */
typedef struct fth_plan_value {
    int32_t index; /* -1: none */
} fth_plan_value;

#define FTH_NO_PLAN_VALUE ((fth_plan_value){-1})

static inline bool fth_plan_value_exists(fth_plan_value value)
{
    return value.index >= 0;
}

static inline bool fth_plan_value_equal(fth_plan_value a, fth_plan_value b)
{
    return a.index == b.index;
}

typedef enum fth_storage {
    FTH_IN_ARENA,
    FTH_IN_PARAMETERS,
    FTH_IN_GRADIENTS,
    FTH_IN_BUFFERS,
    FTH_IN_CONSTANTS /* the plan's own memory, filled once */
} fth_storage;

enum { FTH_MAX_STEP_VALUES = 32 };

typedef struct fth_step {
    char name[80]; /* op and implementation, for profiles */
    void *state;   /* the step owns it, from fth_plan_add_step() on, also if that fails */
    fth_status (*bind)(void *state, const fth_plan *plan); /* addresses are known; may be NULL */
    fth_status (*run)(void *state, const fth_run *run);
    void (*release)(void *state); /* may be NULL: then free() */
    int read_count, write_count;
    fth_plan_value reads[FTH_MAX_STEP_VALUES], writes[FTH_MAX_STEP_VALUES]; /* scratch counts as written */
} fth_step;

fth_status fth_plan_add_step(fth_plan *plan, const fth_step *step);

fth_device *fth_plan_device(const fth_plan *plan);
/* How many threads it runs on: the device's, or 1 for a small plan. */
int fth_plan_threads(const fth_plan *plan);
fth_plan_options fth_plan_get_options(const fth_plan *plan);
const fth_graph *fth_plan_graph(const fth_plan *plan);
/* What the back end's plan_begin() gave, until its plan_end(). */
void *fth_plan_notes(const fth_plan *plan);

/* The main plan value of a graph value. */
fth_plan_value fth_plan_value_of(const fth_plan *plan, fth_value value);
/* A further buffer in the arena, to be described by the caller. */
fth_status fth_plan_add_value(fth_plan *plan, fth_plan_value *value);

/* The graph's type with the batch and the tokens filled in (main values only). */
fth_type fth_plan_type(const fth_plan *plan, fth_value value);

/* The first dimension as the graph has it: tokens, some rows for each sample, or a fixed size. */
int64_t fth_plan_graph_rows(const fth_plan *plan, fth_value value);
/* Number of such a value's first row in the whole batch, from which dropout counts; 0 where the
 * size is fixed. */
static inline uint64_t fth_run_first_row(const fth_run *run, int64_t graph_rows)
{
    return graph_rows == FTH_TOKENS ? run->first_token : run->first_sample * (uint64_t)fth_rows_per_sample(graph_rows);
}

/* The back end's layout of a value; NULL until set. Copied in. size_bytes is the buffer's physical
 * size. */
const void *fth_plan_layout(const fth_plan *plan, fth_plan_value value);
fth_status fth_plan_set_layout(fth_plan *plan, fth_plan_value value, const void *layout, size_t layout_size,
                               size_t size_bytes);

/* Copies: a kernel notes that `copy` holds the same numbers as `of` in another layout, so that
 * later nodes can find it. Gives the copies of `of` one after the other, starting after `previous`
 * (FTH_NO_PLAN_VALUE: the first); the same after the last. */
void fth_plan_note_copy(fth_plan *plan, fth_plan_value copy, fth_plan_value of);
fth_plan_value fth_plan_next_copy(const fth_plan *plan, fth_plan_value of, fth_plan_value previous);

/* Whether the node being prepared is one of the backward pass. */
bool fth_plan_is_backward(const fth_plan *plan);

/* Lets the step that writes `written` put it in the memory of `read`, which the same step reads.
 * The kernel promises that each element of `read` is read before the same element of `written` is
 * written. Call it once for each operand of which this is true. Once all steps are known, the plan
 * reuses the memory of the first such operand that nothing else needs: no later step, and no other
 * operand of this step. Either value may be none. */
void fth_plan_may_overwrite(fth_plan *plan, fth_plan_value written, fth_plan_value read);
/* Makes `value` a view: the numbers of `of`, in the same memory. */
void fth_plan_set_view(fth_plan *plan, fth_plan_value value, fth_plan_value of);
/* True if any later node reads `value` or a flat vector keeps it: kernels may skip unused
 * outputs. */
bool fth_plan_is_used(const fth_plan *plan, fth_value value);
fth_storage fth_plan_storage(const fth_plan *plan, fth_plan_value value);

/* Sums over the peers of a run, in place, for kernels of synchronized plans; nothing where there
 * are none. */
fth_status fth_plan_sum_over_peers(const fth_run *run, double *values, size_t count);

/* The address; valid from bind on. */
void *fth_plan_data(const fth_plan *plan, fth_plan_value value);

#endif
