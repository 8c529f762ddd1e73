/* Attention among sequences of one length (dot_product_attention in ops.h), task by task, for back
 * ends in host memory: this one, which takes one after the other, and the CPU's, whose threads share
 * them.
 *
 * A task is a head of a sequence, or, where the mask's gradient is wanted, all heads and sequences
 * that add to one part of it, so that sums have the same order for any number of threads. Where
 * these would be few tasks, each part is made of several sums, which product_attention_end() adds
 * up. */
#ifndef FTH_BACKEND_PORTABLE_PRODUCT_ATTENTION_H
#define FTH_BACKEND_PORTABLE_PRODUCT_ATTENTION_H

#include "backend/kernel.h"
#include "backend/portable/level/level.h"

/* A node as it is planned. */
typedef struct product_attention {
    const portable_level *level;
    const fth_dot_product_attention_attributes *attributes;
    int64_t sequences, rows_per_sample; /* rows of queries */
    int32_t size, value_size;           /* features of a head */
    int32_t mask_entries, mask_heads, mask_queries;
    int32_t sums; /* of each part of the mask's gradient; 0: it is not wanted */
    bool training, bf16;
} product_attention;

/* Which values a node has: those of the op and its gradient, by their numbers there. */
typedef struct product_values {
    fth_value query, key, value, mask;     /* key and value: none if they are packed */
    fth_value y, statistics, dy;           /* dy: of the gradient */
    fth_value dquery, dkey, dvalue, dmask; /* of the gradient; dmask: none if it is not wanted */
} product_values;

/* Their addresses; NULL for none. */
typedef struct product_tensors {
    const void *query, *key, *value;
    const float *mask;
    void *y;                      /* op: written */
    float *statistics;            /* op: written; gradient: read */
    const void *dy;               /* gradient */
    void *dquery, *dkey, *dvalue; /* gradient; each may take the place of what it belongs to */
    float *dmask, *mask_sums;     /* gradient; mask_sums: product_attention_mask_floats() */
} product_tensors;

product_values product_attention_values(const fth_plan *plan, const fth_node *node);
product_attention product_attention_of(const fth_plan *plan, const fth_node *node, const portable_level *level,
                                       bool bf16);
/* What a task needs; threads need one each. */
int64_t product_attention_scratch_floats(const product_attention *p, bool gradient);
/* Room for the sums of the mask's gradient; 0 if there is one of each. */
int64_t product_attention_mask_floats(const product_attention *p);

/* Runs task `at`, from 0 to product_attention_tasks(). */
int64_t product_attention_tasks(const product_attention *p);
void product_attention_run_task(const product_attention *p, const product_tensors *tensors, const fth_run *run,
                                int64_t at, float *scratch);
/* After all tasks. */
void product_attention_end(const product_attention *p, const product_tensors *tensors);

#endif
