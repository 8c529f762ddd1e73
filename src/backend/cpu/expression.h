/* pointwise and reduce: expressions of values (expression.c), with the loops of
 * level/expression.c. */
#ifndef FTH_BACKEND_CPU_EXPRESSION_H
#define FTH_BACKEND_CPU_EXPRESSION_H

#include <stdint.h>

#include "backend/program.h"

/* Elements that are computed at a time: a few buffers of them stay in the nearest cache. */
enum { EXPRESSION_CHUNK = 512 };

/* `count` is at most EXPRESSION_CHUNK, except in widen() and narrow(). Operands may be the same
 * memory, not overlap otherwise. */
typedef struct expression_kernels {
    /* The program of inputs[i][0 .. count). `numbers` has a whole chunk of each of the program's,
     * `slots` room for slot_count + 1 chunks. */
    void (*evaluate)(const fth_program *program, const float *const *inputs, const float *numbers, float *slots,
                     int64_t count, float *result);
    void (*widen)(const uint16_t *from, int64_t count, float *to);
    void (*narrow)(const float *from, int64_t count, uint16_t *to);
    /* Zeroes what is behind the first `kept` of every `block` numbers. */
    void (*pad)(float *x, int64_t count, int64_t block, int64_t kept);

    /* fth_reduction: of all numbers; of each with the one before at its place in `to`; and of every
     * block of `block`, which is a divisor of a chunk and of `count`. A mean is a sum. */
    float (*reduce)(int reduction, const float *x, int64_t count);
    void (*combine)(int reduction, const float *x, int64_t count, float *to);
    void (*reduce_blocks)(int reduction, const float *x, int64_t count, int64_t block, float *to);
} expression_kernels;

#endif
