/* Windows of pooling. */
#ifndef FTH_BACKEND_PLAIN_WINDOW_H
#define FTH_BACKEND_PLAIN_WINDOW_H

#include <stdint.h>

#include "graph/ops.h"

/* Rows and columns [begin, end) of the input under one output element. */
typedef struct plain_window {
    int64_t begin[2], end[2];
} plain_window;

static inline int64_t plain_window_area(const plain_window *at)
{
    return (at->end[0] - at->begin[0]) * (at->end[1] - at->begin[1]);
}

/* The window of output (oh, ow), cut to the input's `size`. */
static inline plain_window plain_pool_window(const fth_pool_attributes *attributes, const int64_t size[2], int64_t oh,
                                             int64_t ow)
{
    plain_window cut;
    const int64_t out[2] = {oh, ow};
    for (int axis = 0; axis < 2; axis++) {
        int64_t begin = out[axis] * attributes->stride[axis] - attributes->padding[axis];
        int64_t end = begin + attributes->kernel[axis];
        cut.begin[axis] = begin < 0 ? 0 : begin;
        cut.end[axis] = end > size[axis] ? size[axis] : end;
    }
    return cut;
}

#endif
