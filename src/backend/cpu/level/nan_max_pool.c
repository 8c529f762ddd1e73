/* Max pooling that propagates NaN, row by row. See nan_max_pool.h. */
#include "backend/cpu/nan_max_pool.h"
#include "backend/vector/vector.h"

/* The cells of a window that are inside the input. */
typedef struct window {
    int32_t begin[2], end[2]; /* in the window */
    int64_t corner[2];        /* the input's row and column of the window's first cell */
} window;

static window window_of(const nan_max_pool *p, int32_t row, int32_t column)
{
    const int32_t at[2] = {row, column};
    window w;
    for (int i = 0; i < 2; i++) {
        const int32_t corner = at[i] * p->stride[i] - p->padding[i];
        w.corner[i] = corner;
        w.begin[i] = corner < 0 ? -corner : 0;
        w.end[i] = p->in[i] - corner < p->kernel[i] ? p->in[i] - corner : p->kernel[i];
    }
    return w;
}

INLINE vector load_cell(const nan_max_pool *p, const char *corner, int32_t i, int32_t j, int64_t count, const bool bf16)
{
    const int64_t at = i * p->x_row + j * p->x_column;
    return bf16 ? load_bf16_part((const uint16_t *)corner + at, count) : load_part((const float *)corner + at, count);
}

/* Up to LANES channels of one output. */
INLINE void pool_cell(const nan_max_pool *p, const window *w, const char *x, char *y, char *where, int64_t count,
                      const bool bf16)
{
    const char *corner =
        x + (w->corner[0] * p->x_row + w->corner[1] * p->x_column) * (int64_t)(bf16 ? sizeof(uint16_t) : sizeof(float));
    vector best = load_cell(p, corner, w->begin[0], w->begin[1], count, bf16);
    vector_mask places = (vector_mask){0} + (w->begin[0] * p->kernel[1] + w->begin[1]);
    for (int32_t i = w->begin[0]; i < w->end[0]; i++) {
        for (int32_t j = w->begin[1]; j < w->end[1]; j++)
            challenge(load_cell(p, corner, i, j, count, bf16), i * p->kernel[1] + j, &best, &places);
    }
    if (bf16)
        store_bf16_part((uint16_t *)y, best, count);
    else
        store_part((float *)y, best, count);
    if (where && p->wide)
        store_integers_part((int32_t *)where, places, count);
    else if (where)
        store_bytes_part((uint8_t *)where, places, count);
}

INLINE void pool_columns(const nan_max_pool *p, int32_t row, const char *x, char *y, char *where, const bool bf16)
{
    const int64_t item = nan_max_pool_item_bytes(p), place = nan_max_pool_place_bytes(p);
    for (int32_t column = 0; column < p->out[1]; column++) {
        const window w = window_of(p, row, column);
        int64_t c = 0, at = column * p->y_column;
        for (; c + LANES <= p->channels; c += LANES, at += LANES)
            pool_cell(p, &w, x + c * item, y + at * item, where ? where + at * place : NULL, LANES, bf16);
        if (c < p->channels)
            pool_cell(p, &w, x + c * item, y + at * item, where ? where + at * place : NULL, p->channels - c, bf16);
    }
}

static void pool_row(const nan_max_pool *p, int32_t row, const char *x, char *y, char *where)
{
    if (p->bf16)
        pool_columns(p, row, x, y, where, true);
    else
        pool_columns(p, row, x, y, where, false);
}

const nan_max_pool_kernels AT_LEVEL(nan_max_pool) = {.pool_row = pool_row};
