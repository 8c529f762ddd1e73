/* Vectors of floats, as wide as the instructions this is compiled for: the one place that knows them. */
#ifndef FTH_BACKEND_PORTABLE_LEVEL_VECTOR_H
#define FTH_BACKEND_PORTABLE_LEVEL_VECTOR_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define LEVEL        avx512
#elif defined(__AVX2__) && defined(__FMA__)
#define VECTOR_BYTES 32
#define LEVEL        avx2
#else
#define VECTOR_BYTES 16
#define LEVEL        baseline
#endif

typedef float vector __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vector_mask __attribute__((vector_size(VECTOR_BYTES))); /* each all ones or zero; or integers */

enum { LANES = VECTOR_BYTES / 4 };

typedef vector unaligned_vector __attribute__((aligned(4), may_alias));
typedef vector_mask unaligned_mask __attribute__((aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

INLINE vector load(const float *from)
{
    return *(const unaligned_vector *)from;
}

INLINE void store(float *to, vector v)
{
    *(unaligned_vector *)to = v;
}

/* The first `count` of them; the others are 0, and not touched in memory. */
INLINE vector load_part(const float *from, int64_t count)
{
    vector v = {0};
    if (count >= LANES)
        return load(from);
    memcpy(&v, from, (size_t)count * sizeof(float));
    return v;
}

INLINE void store_part(float *to, vector v, int64_t count)
{
    if (count >= LANES)
        store(to, v);
    else
        memcpy(to, &v, (size_t)count * sizeof(float));
}

INLINE vector_mask load_integers_part(const int32_t *from, int64_t count)
{
    vector_mask v = {0};
    if (count >= LANES)
        return *(const unaligned_mask *)from;
    memcpy(&v, from, (size_t)count * sizeof(int32_t));
    return v;
}

INLINE void store_integers_part(int32_t *to, vector_mask v, int64_t count)
{
    if (count >= LANES)
        *(unaligned_mask *)to = v;
    else
        memcpy(to, &v, (size_t)count * sizeof(int32_t));
}

INLINE vector select(vector_mask where, vector yes, vector no)
{
    return (vector)((where & (vector_mask)yes) | (~where & (vector_mask)no));
}

/* 0 where v is negative; NaN stays. */
INLINE vector cut_negative(vector v)
{
    return (vector)(~(v < 0) & (vector_mask)v);
}

/* Numbers of lanes: a constant, from which the compiler makes constants. */
#if VECTOR_BYTES == 64
#define LANE_NUMBERS ((vector_mask){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
#elif VECTOR_BYTES == 32
#define LANE_NUMBERS ((vector_mask){0, 1, 2, 3, 4, 5, 6, 7})
#else
#define LANE_NUMBERS ((vector_mask){0, 1, 2, 3})
#endif

/* Lane i gets that of i ^ distance. */
INLINE vector turn_lanes(vector v, const int distance)
{
    return __builtin_shuffle(v, LANE_NUMBERS ^ distance);
}

INLINE float sum_lanes(vector v)
{
#pragma GCC unroll 4
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        v += turn_lanes(v, distance);
    return v[0];
}

#endif
