/* Vectors of floats, as wide as the instructions this is compiled for. Kernels use only this header
 * and are compiled once per level (level.h). What the compiler's vector types cannot express is in
 * one header per level (avx512.h, avx2.h, baseline.h), all with the same functions.
 * Processor-specific instructions appear there and nowhere outside this folder. */
#ifndef FTH_BACKEND_VECTOR_H
#define FTH_BACKEND_VECTOR_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#if defined(__AVX512BF16__)
#define LEVEL avx512_bf16
#else
#define LEVEL avx512
#endif
#elif defined(__AVX2__) && defined(__FMA__)
#define VECTOR_BYTES 32
#define LEVEL        avx2
#else
#define VECTOR_BYTES 16
#define LEVEL        baseline
#endif

/* The name of something compiled once per level: at the AVX2 level, AT_LEVEL(narrow) is
 * narrow_avx2. */
#define AT_LEVEL_OF(name, level)    name##_##level
#define AT_LEVEL_NAMED(name, level) AT_LEVEL_OF(name, level)
#define AT_LEVEL(name)              AT_LEVEL_NAMED(name, LEVEL)

typedef float vector __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vector_mask __attribute__((vector_size(VECTOR_BYTES))); /* each lane all ones or zero; or integers */

enum { LANES = VECTOR_BYTES / 4 };

/* Vector registers: how many sums and operands a loop can hold. */
#if VECTOR_BYTES == 64 || defined(__aarch64__)
#define REGISTERS 32
#else
#define REGISTERS 16
#endif

typedef vector unaligned_vector __attribute__((aligned(4), may_alias));
typedef vector_mask unaligned_mask __attribute__((aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

/* Applies `macro` to each lane number and `d`, for lists of constants. */
#if VECTOR_BYTES == 64
#define EACH_LANE(macro, d)                                                                                            \
    macro(0, d), macro(1, d), macro(2, d), macro(3, d), macro(4, d), macro(5, d), macro(6, d), macro(7, d),            \
        macro(8, d), macro(9, d), macro(10, d), macro(11, d), macro(12, d), macro(13, d), macro(14, d), macro(15, d)
#elif VECTOR_BYTES == 32
#define EACH_LANE(macro, d)                                                                                            \
    macro(0, d), macro(1, d), macro(2, d), macro(3, d), macro(4, d), macro(5, d), macro(6, d), macro(7, d)
#else
#define EACH_LANE(macro, d) macro(0, d), macro(1, d), macro(2, d), macro(3, d)
#endif

#define LANE_ITSELF(lane, d) (lane)
#define LANE_NUMBERS         ((vector_mask){EACH_LANE(LANE_ITSELF, 0)})

/* ---- arithmetic ---- */

INLINE vector broadcast(float value)
{
    return value - (vector){0}; /* a subtraction, to keep the sign of zero */
}

/* a * b + c, rounded once where the level has an FMA instruction. */
INLINE vector multiply_add(vector a, vector b, vector c)
{
    return a * b + c;
}

/* ---- loads and stores ---- */

INLINE vector load(const float *from)
{
    return *(const unaligned_vector *)from;
}

INLINE void store(float *to, vector v)
{
    *(unaligned_vector *)to = v;
}

/* Non-temporal store to an address aligned to VECTOR_BYTES, for large buffers that are not read
 * again soon. Write whole 64-byte lines in sequence. Other threads may read the data after
 * finish_stores(). */
INLINE void store_past_caches(float *to, vector v);
INLINE void finish_stores(void);

/* The first `count` (at least 0) lanes. The others are 0, and their memory is not touched. */
INLINE vector load_part(const float *from, int64_t count);
INLINE void store_part(float *to, vector v, int64_t count);
INLINE vector_mask load_integers_part(const int32_t *from, int64_t count);
INLINE void store_integers_part(int32_t *to, vector_mask v, int64_t count);

/* The same, stored as bytes: integers from 0 to 255. */
INLINE vector_mask load_bytes_part(const uint8_t *from, int64_t count);
INLINE void store_bytes_part(uint8_t *to, vector_mask v, int64_t count);

/* The same, stored as bf16: rounded to nearest, ties to even; NaN stays NaN. AVX512_BF16 flushes
 * subnormal numbers to 0. */
INLINE vector load_bf16_part(const uint16_t *from, int64_t count);
INLINE void store_bf16_part(uint16_t *to, vector v, int64_t count);

/* Stores what load_bf16_part() loaded, bit by bit. */
INLINE void store_bf16_bits_part(uint16_t *to, vector v, int64_t count);

/* Stores two vectors as bf16 to an address aligned to VECTOR_BYTES; non-temporal with AVX-512. */
INLINE void store_bf16_past_caches(uint16_t *to, vector first, vector second);

/* Lane i at i * stride; the stride must fit in 27 bits. */
INLINE vector load_strided_part(const float *from, int64_t stride, int64_t count);
INLINE void store_strided_part(float *to, int64_t stride, vector v, int64_t count);

/* ---- selection ---- */

/* Each lane of `where` is all ones or zero. */
INLINE vector blend(vector_mask where, vector yes, vector no);

/* 0 where v is negative; NaN stays NaN. */
INLINE vector cut_negative(vector v);

/* bits_of_lanes() gives bit i for lane i of a mask; keep_lanes() zeroes the lanes whose bit is
 * clear. */
INLINE uint32_t bits_of_lanes(vector_mask where);
INLINE vector keep_lanes(vector v, uint32_t bits);

/* Replaces `best` by `value`, and `winner` by `index`, where `value` is larger or NaN. A NaN in
 * `best` stays. */
INLINE void challenge(vector value, int32_t index, vector *best, vector_mask *winner);

/* ---- shared by the levels ---- */

/* Copies `count` bytes, at most `most` (a constant power of two up to 16), without a function
 * call. */
INLINE void copy_part(void *to, const void *from, int64_t count, const int most)
{
    if (count >= most) {
        memcpy(to, from, (size_t)most);
        return;
    }
    char *t = to;
    const char *f = from;
#pragma GCC unroll 4
    for (int piece = 8; piece > 0; piece /= 2) {
        if (piece >= most || !(count & piece))
            continue;
        memcpy(t, f, (size_t)piece);
        t += piece;
        f += piece;
    }
}

/* Rounds to bf16, as 16-bit integers. */
INLINE vector_mask bits_of_bf16(vector v)
{
    typedef uint32_t unsigned_vector __attribute__((vector_size(VECTOR_BYTES)));
    const unsigned_vector bits = (unsigned_vector)v;
    const unsigned_vector rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const unsigned_vector is_nan = (unsigned_vector)(v != v);
    return (vector_mask)((is_nan & 0x7fc0) | (~is_nan & rounded));
}

#if VECTOR_BYTES < 64
INLINE void store_bf16_past_caches(uint16_t *to, vector first, vector second)
{
    store_bf16_part(to, first, LANES);
    store_bf16_part(to + LANES, second, LANES);
}

#define LANE_BIT(lane, d) (1 << (lane))
INLINE vector keep_lanes(vector v, uint32_t bits)
{
    const vector_mask bit = {EACH_LANE(LANE_BIT, 0)};
    return (vector)((vector_mask)v & ((((vector_mask){0} + (int32_t)bits) & bit) == bit));
}

INLINE void challenge(vector value, int32_t index, vector *best, vector_mask *winner)
{
    const vector_mask wins = ~(value <= *best) & (*best == *best);
    *best = blend(wins, value, *best);
    *winner = (vector_mask)blend(wins, (vector)((vector_mask){0} + index), (vector)*winner);
}

INLINE vector load_strided_part(const float *from, int64_t stride, int64_t count)
{
    vector v = {0};
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i++)
        v[i] = i < count ? from[i * stride] : 0;
    return v;
}

INLINE void store_strided_part(float *to, int64_t stride, vector v, int64_t count)
{
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i++) {
        if (i < count)
            to[i * stride] = v[i];
    }
}
#endif

#if VECTOR_BYTES == 64
#include "backend/vector/avx512.h"
#elif VECTOR_BYTES == 32
#include "backend/vector/avx2.h"
#else
#include "backend/vector/baseline.h"
#endif

INLINE vector load_strided(const float *from, int64_t stride)
{
    return load_strided_part(from, stride, LANES);
}

INLINE void store_strided(float *to, int64_t stride, vector v)
{
    store_strided_part(to, stride, v, LANES);
}

/* ---- shuffles ---- */

/* Picks lanes of `a` and `b` by constant numbers; those of `b` follow those of `a`. */
#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (vector_mask){__VA_ARGS__})
#endif

#define EVEN_LANE(lane, d) 2 * (lane)
#define ODD_LANE(lane, d)  2 * (lane) + 1
#define PAIR_LANE(lane, d) (lane) / 2 + (d) + (lane) % 2 * LANES

/* Every second lane of two consecutive vectors. */
INLINE vector even_lanes(vector first, vector second)
{
    return SHUFFLE(first, second, EACH_LANE(EVEN_LANE, 0));
}

INLINE vector odd_lanes(vector first, vector second)
{
    return SHUFFLE(first, second, EACH_LANE(ODD_LANE, 0));
}

/* The reverse: interleaves even and odd lanes, giving the first LANES of the result, or the
 * rest. */
INLINE vector low_pairs(vector even, vector odd)
{
    return SHUFFLE(even, odd, EACH_LANE(PAIR_LANE, 0));
}

INLINE vector high_pairs(vector even, vector odd)
{
    return SHUFFLE(even, odd, EACH_LANE(PAIR_LANE, LANES / 2));
}

/* Lane i gets lane i ^ distance; the distance is a constant power of two. */
#define SWAPPED_LANE(lane, d) ((lane) ^ (d))
INLINE vector swap_lanes(vector v, const int distance)
{
    switch (distance) {
    case 1: return SHUFFLE(v, v, EACH_LANE(SWAPPED_LANE, 1));
    case 2: return SHUFFLE(v, v, EACH_LANE(SWAPPED_LANE, 2));
#if VECTOR_BYTES > 16
    case 4: return SHUFFLE(v, v, EACH_LANE(SWAPPED_LANE, 4));
#endif
#if VECTOR_BYTES > 32
    case 8: return SHUFFLE(v, v, EACH_LANE(SWAPPED_LANE, 8));
#endif
    default: return v;
    }
}

/* Each lane gets lane `which` of its group of neighbours: groups of 2, 4, 8 or 16 lanes, at most
 * LANES. Both are constants. */
#define GROUP_LANE(lane, d) ((lane) / ((d) >> 8) * ((d) >> 8) + ((d)&255))
#define GROUP_CASE(group, which)                                                                                       \
    case (group) << 8 | (which):                                                                                       \
        return SHUFFLE(v, v, EACH_LANE(GROUP_LANE, (group) << 8 | (which)));
#define GROUP_CASES_2(group, which) GROUP_CASE(group, which) GROUP_CASE(group, (which) + 1)
#define GROUP_CASES_4(group, which) GROUP_CASES_2(group, which) GROUP_CASES_2(group, (which) + 2)
#define GROUP_CASES_8(group, which) GROUP_CASES_4(group, which) GROUP_CASES_4(group, (which) + 4)
INLINE vector repeat_lane(vector v, const int group, const int which)
{
    switch (group << 8 | which) {
        GROUP_CASES_2(2, 0)
        GROUP_CASES_4(4, 0)
#if VECTOR_BYTES > 16
        GROUP_CASES_8(8, 0)
#endif
#if VECTOR_BYTES > 32
        GROUP_CASES_8(16, 0)
        GROUP_CASES_8(16, 8)
#endif
    default: return v;
    }
}

INLINE float sum_lanes(vector v)
{
    if (LANES > 8)
        v += swap_lanes(v, 8);
    if (LANES > 4)
        v += swap_lanes(v, 4);
    v += swap_lanes(v, 2);
    v += swap_lanes(v, 1);
    return v[0];
}

/* Transposes LANES × LANES numbers: at each distance, swaps those whose row and column differ in
 * that bit. */
#define UPPER_LANE(lane, d) ((lane) & (d) ? LANES + ((lane) ^ (d)) : (lane))
#define LOWER_LANE(lane, d) ((lane) & (d) ? LANES + (lane) : (lane) | (d))
#define TRANSPOSE_PAIR(a, b, d)                                                                                        \
    do {                                                                                                               \
        const vector upper = SHUFFLE(a, b, EACH_LANE(UPPER_LANE, d)), lower = SHUFFLE(a, b, EACH_LANE(LOWER_LANE, d)); \
        (a) = upper;                                                                                                   \
        (b) = lower;                                                                                                   \
    } while (0)
INLINE void transpose_step(vector rows[LANES], const int distance)
{
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) {
        if (i & distance)
            continue;
        switch (distance) {
        case 1: TRANSPOSE_PAIR(rows[i], rows[i | 1], 1); break;
        case 2: TRANSPOSE_PAIR(rows[i], rows[i | 2], 2); break;
#if VECTOR_BYTES > 16
        case 4: TRANSPOSE_PAIR(rows[i], rows[i | 4], 4); break;
#endif
#if VECTOR_BYTES > 32
        case 8: TRANSPOSE_PAIR(rows[i], rows[i | 8], 8); break;
#endif
        }
    }
}

INLINE void transpose(vector rows[LANES])
{
    transpose_step(rows, 1);
    transpose_step(rows, 2);
    if (LANES > 4)
        transpose_step(rows, 4);
    if (LANES > 8)
        transpose_step(rows, 8);
}

#endif
