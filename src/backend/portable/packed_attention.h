/* Attention of a packed batch, head by head, for back ends in host memory: this one, which takes
 * one after the other, and the CPU's, whose threads share them. */
#ifndef FTH_BACKEND_PORTABLE_PACKED_ATTENTION_H
#define FTH_BACKEND_PORTABLE_PACKED_ATTENTION_H

#include "backend/kernel.h"
#include "backend/portable/level/level.h"

/* A node as it is planned. */
typedef struct packed_attention {
    const portable_level *level;
    fth_attention_attributes attributes;
    bool training, bf16;
    int64_t tokens, sequences, size; /* rows, ends, features of a head */
} packed_attention;

/* Its tensors: all that the op, or its gradient, has. */
typedef struct packed_tensors {
    const void *qkv;
    const int32_t *ends;
    void *y;           /* op: written */
    float *statistics; /* op: written; gradient: read */
    const void *dy;    /* gradient */
    void *dqkv;        /* gradient; may be qkv */
} packed_tensors;

packed_attention packed_attention_of(const fth_plan *plan, const fth_node *node, const portable_level *level,
                                     bool bf16);
/* What one head needs at most; threads need one each. */
int64_t packed_attention_scratch_floats(const packed_attention *p, bool gradient);

/* Checks that sequences follow one another within the rows, none empty or longer than was planned
 * for; and sets to zero what belongs to none of them. */
fth_status packed_attention_begin(const packed_attention *p, const packed_tensors *tensors);
/* One head of one sequence: `at` counts from 0 to sequences * heads. */
void packed_attention_run_head(const packed_attention *p, const packed_tensors *tensors, const fth_run *run, int64_t at,
                               float *scratch);

#endif
