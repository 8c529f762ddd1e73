/* Max pooling that propagates NaN, in any layout; see nan_max_pool.c. Called by pool.c. */
#ifndef FTH_BACKEND_CPU_NAN_MAX_POOL_H
#define FTH_BACKEND_CPU_NAN_MAX_POOL_H

#include "backend/cpu/cpu_internal.h"

/* Strides are in elements; the places of the maxima have y's. */
typedef struct nan_max_pool {
    int32_t kernel[2], stride[2], padding[2];
    int32_t in[2], out[2];
    int32_t groups, channels; /* `channels` are adjacent; an image has `groups` of them, padding included */
    int64_t batch, x_image, x_group, x_row, x_column, y_image, y_group, y_row, y_column;
    bool bf16, wide; /* `wide`: a place takes four bytes */
} nan_max_pool;

static inline int64_t nan_max_pool_item_bytes(const nan_max_pool *p)
{
    return p->bf16 ? sizeof(uint16_t) : sizeof(float);
}

static inline int64_t nan_max_pool_place_bytes(const nan_max_pool *p)
{
    return p->wide ? sizeof(int32_t) : sizeof(uint8_t);
}

/* Pools one row of outputs of one group of channels. The first maximum wins, and a NaN always does.
 * `where` may be NULL. */
typedef struct nan_max_pool_kernels {
    void (*pool_row)(const nan_max_pool *p, int32_t row, const char *x, char *y, char *where);
} nan_max_pool_kernels;

/* `y` is the output's layout, in the input's order of dimensions. `where` is the layout of the
 * places of the maxima, as oneDNN's backward pass reads them; NULL: they are not wanted. */
fth_status cpu_nan_max_pool(fth_plan *plan, const fth_node *node, const cpu_format *y, const cpu_format *where);

#endif
