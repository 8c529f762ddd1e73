/* Maximum pooling of one image, vectors along the channels. */
#include <math.h>

#include "backend/portable/level/level.h"
#include "backend/vector/vector.h"

/* Rows or columns [begin, end) of the input under output `out`. */
INLINE void window_of(const portable_pool *p, int axis, int64_t out, int64_t size, int64_t *begin, int64_t *end)
{
    const int64_t first = out * p->stride[axis] - p->padding[axis], last = first + p->kernel[axis];
    *begin = first < 0 ? 0 : first;
    *end = last > size ? size : last;
}

static void max_pool(const portable_pool *p, const float *x, float *y, int32_t *where)
{
    for (int64_t oh = 0; oh < p->out_height; oh++)
        for (int64_t ow = 0; ow < p->out_width; ow++) {
            int64_t top, bottom, left, right;
            window_of(p, 0, oh, p->height, &top, &bottom);
            window_of(p, 1, ow, p->width, &left, &right);
            for (int64_t c = 0; c < p->channels; c += LANES) {
                const int64_t count = p->channels - c, out = (oh * p->out_width + ow) * p->channels + c;
                vector best = (vector){0} - INFINITY;
                vector_mask best_at = (vector_mask){0} + (int32_t)(top * p->width + left);
                for (int64_t h = top; h < bottom; h++)
                    for (int64_t w = left; w < right; w++) {
                        const vector value = load_part(x + (h * p->width + w) * p->channels + c, count);
                        /* larger; or the first NaN, which wins over numbers */
                        const vector_mask better = (value > best) | ((value != value) & (best == best));
                        best = blend(better, value, best);
                        best_at = (better & (int32_t)(h * p->width + w)) | (~better & best_at);
                    }
                store_part(y + out, best, count);
                store_integers_part(where + out, best_at, count);
            }
        }
}

static void max_pool_gradient(const portable_pool *p, const float *dy, const int32_t *where, float *dx)
{
    memset(dx, 0, (size_t)(p->height * p->width * p->channels) * sizeof *dx);
    for (int64_t oh = 0; oh < p->out_height; oh++)
        for (int64_t ow = 0; ow < p->out_width; ow++) {
            int64_t top, bottom, left, right;
            window_of(p, 0, oh, p->height, &top, &bottom);
            window_of(p, 1, ow, p->width, &left, &right);
            for (int64_t c = 0; c < p->channels; c += LANES) {
                const int64_t count = p->channels - c, out = (oh * p->out_width + ow) * p->channels + c;
                const vector gradient = load_part(dy + out, count);
                const vector_mask at = load_integers_part(where + out, count);
                for (int64_t h = top; h < bottom; h++)
                    for (int64_t w = left; w < right; w++) {
                        float *to = dx + (h * p->width + w) * p->channels + c;
                        const vector_mask here = at == (int32_t)(h * p->width + w);
                        store_part(to, load_part(to, count) + (vector)(here & (vector_mask)gradient), count);
                    }
            }
        }
}
