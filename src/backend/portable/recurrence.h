/* LSTM and GRU (recurrent in ops.h) for back ends in host memory: this one, and the CPU's, whose
 * threads share the sequences, as no step of one depends on another's. */
#ifndef FTH_BACKEND_PORTABLE_RECURRENCE_H
#define FTH_BACKEND_PORTABLE_RECURRENCE_H

#include "backend/kernel.h"
#include "backend/portable/level/level.h"

/* A node as it is planned. */
typedef struct recurrence {
    const portable_level *level;
    const fth_recurrent_attributes *attributes;
    int64_t sequences, hidden, gates; /* gates: G */
} recurrence;

/* The values of the op and of its gradient, by their places in a step; those of one that it does
 * not have are none. The last ones are written. */
enum {
    RECURRENT_PROJECTED,
    RECURRENT_WEIGHT,
    RECURRENT_BIAS,
    RECURRENT_H0,
    RECURRENT_C0,
    RECURRENT_Y,
    RECURRENT_GATES,
    RECURRENT_CELLS,
    RECURRENT_LAST_H,
    RECURRENT_LAST_C,
    RECURRENT_SCRATCH,
    RECURRENT_VALUES,
    RECURRENT_WRITES = RECURRENT_VALUES - RECURRENT_Y
};
enum {
    RECURRENT_GRAD_WEIGHT,
    RECURRENT_GRAD_GATES,
    RECURRENT_GRAD_CELLS,
    RECURRENT_GRAD_Y,
    RECURRENT_GRAD_H0,
    RECURRENT_GRAD_C0,
    RECURRENT_GRAD_DY,
    RECURRENT_GRAD_DLAST_H,
    RECURRENT_GRAD_DLAST_C,
    RECURRENT_GRAD_DPROJECTED,
    RECURRENT_GRAD_DWEIGHT,
    RECURRENT_GRAD_DBIAS,
    RECURRENT_GRAD_DH0,
    RECURRENT_GRAD_DC0,
    RECURRENT_GRAD_SCRATCH,
    RECURRENT_GRAD_VALUES,
    RECURRENT_GRAD_WRITES = RECURRENT_GRAD_VALUES - RECURRENT_GRAD_DPROJECTED
};

recurrence recurrence_of(const fth_plan *plan, const fth_node *node, const portable_level *level);
/* The graph's values in those places, FTH_NO_VALUE for those that are not there or not wanted. */
void recurrence_list(const fth_plan *plan, const fth_node *node, fth_value *values);

int64_t recurrence_scratch_floats(const recurrence *r, bool gradient);

/* `data` are the addresses of the values. Packs the weights; then any thread takes sequences
 * [first, end); when all have been, parts [0, recurrence_weight_parts()) of the weight's gradient;
 * then the bias'. */
void recurrence_begin(const recurrence *r, float *const *data);
void recurrence_run(const recurrence *r, float *const *data, int64_t first, int64_t end);
void recurrence_begin_gradient(const recurrence *r, float *const *data);
void recurrence_run_gradient(const recurrence *r, float *const *data, int64_t first, int64_t end);
int64_t recurrence_weight_parts(const recurrence *r);
void recurrence_run_weights(const recurrence *r, float *const *data, int64_t part);
void recurrence_end_gradient(const recurrence *r, float *const *data);

#endif
