/* exp, tanh and the normal distribution in single precision, without branches or calls, so that loops over them
 * vectorize. NaN stays NaN. Largest relative errors, measured at 4 million points against double precision: 1e-7 for
 * exp, 2e-7 for tanh; for the normal distribution 6e-7 for |x| up to 3, then more, as x² / 2 is rounded: 1.3e-6 at 8,
 * 4e-6 at 13. */
#ifndef FTH_BACKEND_CPU_VECTOR_MATH_H
#define FTH_BACKEND_CPU_VECTOR_MATH_H

#include <stdint.h>

static inline float vector_power_of_two(uint32_t exponent_bits)
{
    union {
        uint32_t bits;
        float number;
    } value = {.bits = exponent_bits << 23};
    return value.number;
}

/* e to the x, clamped to its value at 88.7; 0 below -87. Computed as 2 to a whole number times a
 * polynomial of the rest. */
static inline float vector_exp(float x)
{
    const float largest = 88.7f, smallest = -87.3f;
    x = x > largest ? largest : x;
    x = x < smallest ? smallest : x;
    union {
        float number;
        uint32_t bits;
    } whole = {.number = x * 1.44269504f + 12582912.0f}; /* 1.5 * 2^23: the low bits are the nearest whole number */
    const float n = whole.number - 12582912.0f;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f; /* ln 2 in two parts */
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1;
    return p * 2 * vector_power_of_two(whole.bits + 126); /* n may be 128, too large for an exponent by itself */
}

/* A polynomial near 0, where the difference below would lose digits. */
static inline float vector_tanh(float x)
{
    const float a = x < 0 ? -x : x, s = x * x;
    float p = -5.70498872745e-3f;
    p = p * s + 2.06390887954e-2f;
    p = p * s - 5.37397155531e-2f;
    p = p * s + 1.33314422036e-1f;
    p = p * s - 3.33332819422e-1f;
    p = p * s * x + x;
    const float large = 1 - 2 / (vector_exp(2 * a) + 1);
    return a < 0.625f ? p : x < 0 ? -large : large;
}

/* The standard normal distribution Φ(x) and its density φ(x). erfc(u) is exp(-u²) times a
 * polynomial of 1 / (1 + u/2), fitted for the least relative error on [0, 12]. */
typedef struct vector_normal {
    float distribution, density;
} vector_normal;

static inline vector_normal vector_normal_of(float x)
{
    const float a = x < 0 ? -x : x;
    const float power = vector_exp(-0.5f * x * x);
    const float t = 1 / (1 + 0.353553391f * a); /* u is a / sqrt(2) */
    float p = -0.0593627467751503f;
    p = p * t + 0.28600919246673584f;
    p = p * t - 0.49017074704170227f;
    p = p * t + 0.2814663052558899f;
    p = p * t - 0.02896658144891262f;
    p = p * t + 0.2036764919757843f;
    p = p * t + 0.2428540587425232f;
    p = p * t + 0.28240954875946045f;
    p = p * t + 0.28208446502685547f;
    const float tail = 0.5f * power * p * t;
    return (vector_normal){.distribution = x < 0 ? tail : 1 - tail, .density = 0.398942280f * power};
}

/* ---- for expressions ---- */

/* The same as vector_exp(), but infinite beyond what a float can hold. */
static inline float vector_exp_unlimited(float x)
{
    const float e = vector_exp(x);
    return x > 88.7228394f ? __builtin_inff() : x < -103.97f ? 0 : e;
}

static inline float vector_logistic(float x)
{
    return 1 / (1 + vector_exp_unlimited(-x));
}

/* The exponent, and a polynomial of what is left, between sqrt(1/2) and sqrt(2). */
static inline float vector_log(float x)
{
    const float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x; /* subnormal numbers */
    union {
        float number;
        int32_t bits;
    } value = {.number = scaled}, rest;
    const int32_t exponent = (value.bits - 0x3f3504f3) >> 23; /* sqrt(1/2) is 0x3f3504f3 */
    rest.bits = value.bits - (int32_t)((uint32_t)exponent << 23);
    const float f = rest.number - 1, s = f * f;
    const float n = (float)exponent - (x < 1.17549435e-38f ? 23.0f : 0.0f);
    float p = 7.0376836292e-2f;
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    const float y = (f * s * p - n * 2.12194440e-4f) - 0.5f * s + f + n * 0.693359375f;
    const float special = x == 0 ? -__builtin_inff() : x < 0 ? __builtin_nanf("") : x; /* infinite, or NaN */
    return (x > 0) & (x <= 3.40282347e38f) ? y : special;
}

/* log(1 + x); the second factor makes up for the rounding of 1 + x. */
static inline float vector_log1p(float x)
{
    const float u = 1 + x, d = u - 1;
    const float y = vector_log(u) * (x / d);
    return d == 0 ? x : u <= 3.40282347e38f ? y : u;
}

/* exp(x) - 1: a series near 0. */
static inline float vector_expm1(float x)
{
    float p = 2.48015873e-5f;
    p = p * x + 1.98412698e-4f;
    p = p * x + 1.38888889e-3f;
    p = p * x + 8.33333333e-3f;
    p = p * x + 4.16666667e-2f;
    p = p * x + 1.66666667e-1f;
    p = p * x + 0.5f;
    p = p * x * x + x;
    const float large = vector_exp_unlimited(x) - 1;
    return (x < 0.5f) & (x > -0.5f) ? p : large;
}

/* A series near 0. */
static inline float vector_erf(float x)
{
    const float a = x < 0 ? -x : x, s = x * x;
    float p = 1.44632e-6f;
    p = p * s - 1.492565e-5f;
    p = p * s + 1.2055333e-4f;
    p = p * s - 8.5483270e-4f;
    p = p * s + 5.2239776e-3f;
    p = p * s - 2.6866171e-2f;
    p = p * s + 1.12837917e-1f;
    p = p * s - 3.76126389e-1f;
    p = p * s + 1.12837917f;
    const float large = 2 * vector_normal_of(a * 1.41421356f).distribution - 1;
    return a < 0.8f ? p * x : x < 0 ? -large : large;
}

#endif
