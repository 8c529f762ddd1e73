/* The images of a bf16 convolution as a matrix A: a row is a position in the target map, and the
 * depth runs over the taps of the kernel and the channels of each. See kernels.c. */
#ifndef FTH_BACKEND_CPU_BF16_IMAGES_H
#define FTH_BACKEND_CPU_BF16_IMAGES_H

#include "backend/cpu/bf16.h"
#include "backend/vector/tiles.h"

enum {
    BLOCK_BYTES = 768 << 10, /* of A, for the L2 cache */
    LINE = 64                /* of the cache, bytes */
};

static inline int64_t quotient_up(int64_t number, int64_t unit)
{
    return (number + unit - 1) / unit;
}

static inline int64_t up(int64_t number, int64_t unit)
{
    return quotient_up(number, unit) * unit;
}

static inline int64_t tiles_of(int64_t depth)
{
    return quotient_up(depth, DEPTH);
}

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* One axis of a product: position i reads the source at i * step + offset[t] for each tap t, and
 * writes the target at i * spread + begin. */
typedef struct axis {
    int64_t source, target, positions; /* sizes */
    int64_t step, spread, begin;
    int taps;
    bool dense;                                                 /* offsets are consecutive */
    int32_t offset[BF16_MOST_KERNEL], number[BF16_MOST_KERNEL]; /* number: of the tap in the kernel */
} axis;

typedef struct images {
    int64_t batch, channels; /* of the source */
    axis axes[2];
} images;

images bf16_forward_images(const bf16_product *c);
/* For the gradient of the input, at rows and columns that leave the remainders `phase` when divided
 * by the stride. */
images bf16_backward_images(const bf16_product *c, const int phase[2]);

/* Gathers rows [begin, end) of A, `stride` numbers apart, padded with zeros to whole tiles of
 * depth. */
void bf16_gather(const images *m, const uint16_t *source, int64_t begin, int64_t end, int64_t stride, uint16_t *to);

static inline int64_t row_count(const images *m)
{
    return m->batch * m->axes[0].positions * m->axes[1].positions;
}

static inline int64_t depth_of(const images *m)
{
    return m->axes[0].taps * m->axes[1].taps * m->channels;
}

/* Whether the source can be used as A without gathering. */
static inline bool is_in_place(const images *m)
{
    bool same = m->channels % DEPTH == 0;
    for (int i = 0; i < 2; i++) {
        const axis *a = &m->axes[i];
        same = same && a->taps == 1 && a->offset[0] == 0 && a->step == 1 && a->positions == a->source;
    }
    return same;
}

typedef struct position {
    int64_t image, at[2];
} position;

static inline position position_of(const images *m, int64_t row)
{
    const int64_t columns = m->axes[1].positions, area = m->axes[0].positions * columns;
    return (position){row / area, {row % area / columns, row % columns}};
}

static inline void next_position(const images *m, position *p)
{
    if (++p->at[1] < m->axes[1].positions)
        return;
    p->at[1] = 0;
    if (++p->at[0] < m->axes[0].positions)
        return;
    p->at[0] = 0;
    p->image++;
}

/* The target pixel of a position. */
static inline int64_t target_of(const images *m, const position *p)
{
    const axis *y = &m->axes[0], *x = &m->axes[1];
    return (p->image * y->target + p->at[0] * y->spread + y->begin) * x->target + p->at[1] * x->spread + x->begin;
}

/* The source row or column that a tap reads; -1: outside. */
static inline int64_t source_of(const axis *a, int64_t i, int tap)
{
    const int64_t at = i * a->step + a->offset[tap];
    return at >= 0 && at < a->source ? at : -1;
}

/* Distance between gathered rows in numbers: an odd number of cache lines, so that the rows of a
 * tile do not compete for the same few cache sets. */
static inline int64_t gathered_stride(int64_t depth)
{
    return (tiles_of(depth) | 1) * DEPTH;
}

#endif
