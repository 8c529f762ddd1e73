/* Vectors of floats, as wide as the instructions this is compiled for. Kernels are written over this header alone and compiled once
 * per level (level.h); what the compiler's vector types cannot say is said in instructions of the processor here, and nowhere
 * else. */
#ifndef FTH_BACKEND_VECTOR_H
#define FTH_BACKEND_VECTOR_H

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

/* The name of what is compiled once per level: AT_LEVEL(narrow) is narrow_avx2 at that level. */
#define AT_LEVEL_OF(name, level)    name##_##level
#define AT_LEVEL_NAMED(name, level) AT_LEVEL_OF(name, level)
#define AT_LEVEL(name)              AT_LEVEL_NAMED(name, LEVEL)

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

/* ---- shuffles ---- */

/* Lanes of `a` and, numbered on from there, of `b`. The numbers are constants. */
#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (vector_mask){__VA_ARGS__})
#endif

#if VECTOR_BYTES == 64
#define EVEN_NUMBERS 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD_NUMBERS  1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define LOW_PAIRS    0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_PAIRS   8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif VECTOR_BYTES == 32
#define EVEN_NUMBERS 0, 2, 4, 6, 8, 10, 12, 14
#define ODD_NUMBERS  1, 3, 5, 7, 9, 11, 13, 15
#define LOW_PAIRS    0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_PAIRS   4, 12, 5, 13, 6, 14, 7, 15
#else
#define EVEN_NUMBERS 0, 2, 4, 6
#define ODD_NUMBERS  1, 3, 5, 7
#define LOW_PAIRS    0, 4, 1, 5
#define HIGH_PAIRS   2, 6, 3, 7
#endif

/* Every second one of two vectors that lie behind each other. */
INLINE vector even_lanes(vector first, vector second)
{
    return SHUFFLE(first, second, EVEN_NUMBERS);
}

INLINE vector odd_lanes(vector first, vector second)
{
    return SHUFFLE(first, second, ODD_NUMBERS);
}

/* The reverse: even and odd ones in turns, the first LANES of them and the others. */
INLINE vector low_pairs(vector even, vector odd)
{
    return SHUFFLE(even, odd, LOW_PAIRS);
}

INLINE vector high_pairs(vector even, vector odd)
{
    return SHUFFLE(even, odd, HIGH_PAIRS);
}

/* ---- bytes ---- */

typedef uint8_t vector_bytes __attribute__((vector_size(LANES)));

/* The first `count` of them, as integers; the others are 0. */
INLINE vector_mask load_bytes_part(const uint8_t *from, int64_t count)
{
    vector_bytes bytes = {0};
    memcpy(&bytes, from, count >= LANES ? sizeof bytes : (size_t)count);
    return __builtin_convertvector(bytes, vector_mask);
}

INLINE void store_bytes_part(uint8_t *to, vector_mask v, int64_t count)
{
    const vector_bytes bytes = __builtin_convertvector(v, vector_bytes);
    memcpy(to, &bytes, count >= LANES ? sizeof bytes : (size_t)count);
}

/* ---- maxima ---- */

/* Takes over `value` where it is larger or NaN, and notes its index there. Nothing takes over from a NaN. */
INLINE void challenge(vector value, int32_t index, vector *best, vector_mask *winner)
{
    const vector_mask wins = ~(value <= *best) & (*best == *best);
    *best = select(wins, value, *best);
    *winner = (wins & index) | (~wins & *winner);
}

/* ---- sums of lanes ---- */

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
