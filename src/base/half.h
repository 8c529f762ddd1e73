/* Floats of 16 bits, f16 and bf16, to and from those of 32: rounded to the nearest, ties to even.
 * This does not use the compiler's own type, which not every compiler has on every machine. There
 * are no branches, so that loops can be vectorized. */
#ifndef FTH_BASE_HALF_H
#define FTH_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t fth_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float fth_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A NaN stays one: its highest bit of the mantissa is set, as the lower ones go. */
static inline uint16_t fth_bf16_from_float(float value)
{
    uint32_t bits = fth_float_bits(value), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
}

static inline float fth_bf16_to_float(uint16_t bits)
{
    return fth_float_of_bits((uint32_t)bits << 16);
}

/* Numbers below the least normal one are rounded by the addition of one whose last bit is theirs;
 * the others as integers, where a carry into the exponent is right, up to infinity. */
static inline uint16_t fth_f16_from_float(float value)
{
    const uint32_t infinity = 0x7f800000, too_large = 143u << 23, normal = 113u << 23, aligner = 126u << 23;
    uint32_t bits = fth_float_bits(value), sign = bits & 0x80000000, size = bits ^ sign;
    uint32_t small = fth_float_bits(fth_float_of_bits(size < normal ? size : 0) + fth_float_of_bits(aligner)) - aligner;
    uint32_t middle = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    uint32_t large = size > infinity ? 0x7e00 : 0x7c00;
    uint32_t half = size >= too_large ? large : size < normal ? small : middle;
    return (uint16_t)(half | sign >> 16);
}

static inline float fth_f16_to_float(uint16_t half)
{
    const uint32_t exponent_mask = 0x7c00u << 13, normal = 113u << 23;
    uint32_t shifted = (half & 0x7fffu) << 13, exponent = shifted & exponent_mask, sign = (half & 0x8000u) << 16;
    uint32_t middle = shifted + (112u << 23), large = shifted + (224u << 23);
    uint32_t small = fth_float_bits(fth_float_of_bits(shifted + normal) - fth_float_of_bits(normal));
    uint32_t bits = exponent == exponent_mask ? large : exponent == 0 ? small : middle;
    return fth_float_of_bits(bits | sign);
}

#endif
