/* Where the pixels of a resized image come from, as in PyTorch
 * (aten/src/ATen/native/UpSample.h), in f32. Shared by the back ends; compiles as C and as CUDA. */
#ifndef FTH_BACKEND_RESIZE_PLACE_H
#define FTH_BACKEND_RESIZE_PLACE_H

#include <stdbool.h>

#ifndef __cplusplus
#include "graph/ops.h"
#endif

#ifdef __CUDACC__
#define FTH_RESIZE_RULE static __host__ __device__ __forceinline__
#else
#define FTH_RESIZE_RULE static inline
#endif

/* Rows or columns. */
typedef struct fth_resize_axis {
    int in, out;
    float scale; /* input pixels for an output pixel */
    bool bilinear, align_corners;
} fth_resize_axis;

/* An output is (1 - weight) * in[first] + weight * in[second]; in[first] alone where the two are
 * the same. */
typedef struct fth_resize_place {
    int first, second;
    float weight; /* 0 where they are the same */
} fth_resize_place;

#ifndef __cplusplus
static inline fth_resize_axis fth_resize_axis_of(const fth_resize_attributes *a, int axis, int64_t in)
{
    fth_resize_axis r = {(int)in, axis == 0 ? a->height : a->width, 0, a->bilinear, a->align_corners};
    const double factor = a->scale_factors[axis];
    if (a->align_corners)
        r.scale = r.out > 1 ? (float)(r.in - 1) / (float)(r.out - 1) : 0;
    else
        r.scale = factor > 0 ? (float)(1 / factor) : (float)r.in / (float)r.out;
    return r;
}
#endif

FTH_RESIZE_RULE fth_resize_place fth_resize_place_of(const fth_resize_axis *r, int out)
{
    fth_resize_place at = {out, out, 0};
    if (r->in == r->out)
        return at;
    if (!r->bilinear) {
        const int from = r->out == 2 * r->in ? out / 2 : (int)((float)out * r->scale);
        at.first = at.second = from < r->in ? from : r->in - 1;
        return at;
    }
    float from = r->align_corners ? r->scale * (float)out : r->scale * ((float)out + 0.5f) - 0.5f;
    from = from < 0 ? 0 : from;
    at.first = (int)from < r->in ? (int)from : r->in - 1;
    at.second = at.first + 1 < r->in ? at.first + 1 : at.first;
    at.weight = at.second > at.first ? from - (float)at.first : 0;
    return at;
}

#endif
