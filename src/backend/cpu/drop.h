/* The random numbers of dropout, in a form that the compiler vectorizes. */
#ifndef FTH_BACKEND_CPU_DROP_H
#define FTH_BACKEND_CPU_DROP_H

#include "graph/ops.h"

/* Which elements are dropped, and the factor for the others. */
typedef struct cpu_drop {
    fth_random_key key;
    uint32_t threshold;
    float scale;
} cpu_drop;

static inline cpu_drop cpu_drop_of(uint64_t seed, uint64_t step, uint32_t id, float probability)
{
    return (cpu_drop){.key = fth_dropout_key(seed, step, id),
                      .threshold = fth_dropout_threshold(probability),
                      .scale = 1 / (1 - probability)};
}

enum { CPU_DRAWS = 4096 }; /* at most, in one call */

/* Random bits of consecutive elements. */
typedef union cpu_draws {
    uint64_t pairs[CPU_DRAWS / 2 + 1];
    uint32_t elements[CPU_DRAWS + 2]; /* little-endian: the low half is the even element */
} cpu_draws;

/* Draws the bits of `count` elements, the first of which has the number `number`. */
static inline __attribute__((always_inline)) const uint32_t *cpu_draw(const cpu_drop *drop, uint64_t number,
                                                                      int64_t count, cpu_draws *draws)
{
    for (int64_t i = 0; i < count / 2 + 1; i++)
        draws->pairs[i] = fth_random_bits(drop->key, number / 2 + (uint64_t)i);
    return draws->elements + number % 2;
}

/* The factor for an element; a dropped NaN stays NaN. For a loop to be vectorized, `drop` must be a
 * copy of its own that no store can alias. */
static inline float cpu_drop_factor(const cpu_drop *drop, uint32_t draw)
{
    return draw >= drop->threshold ? drop->scale : 0;
}

#endif
