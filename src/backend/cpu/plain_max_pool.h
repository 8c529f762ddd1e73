/* 2×2 max pooling of plain images; see plain_max_pool.c. Called by pool.c where it fits. */
#ifndef FTH_BACKEND_CPU_PLAIN_MAX_POOL_H
#define FTH_BACKEND_CPU_PLAIN_MAX_POOL_H

#include "backend/cpu/cpu_internal.h"

/* One row: `count` outputs, and which of the four cells won each, from two rows of inputs; and the
 * reverse. */
typedef struct plain_max_pool_kernels {
    void (*pool_row)(const float *top, const float *bottom, float *y, uint8_t *where, int64_t count);
    void (*unpool_row)(const float *dy, const uint8_t *where, float *top, float *bottom, int64_t count);
} plain_max_pool_kernels;

bool cpu_plain_max_pool_fits(const fth_pool_attributes *attributes, const cpu_format *x);
/* Whether `where` was written by this forward pass. */
bool cpu_plain_max_pool_made(const cpu_format *where);
fth_status cpu_plain_max_pool(fth_plan *plan, const fth_node *node);
fth_status cpu_plain_max_pool_grad(fth_plan *plan, const fth_node *node);

#endif
