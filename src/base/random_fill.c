/* See random.h: many normal draws at once, for initial weights.
 *
 * A hundred million calls of log() and cos() take seconds. Here both are polynomials in loops
 * without branches, which become vector instructions: some ten times as fast. Only +, -, *, / and
 * sqrt are used, each rounded as IEEE 754 says (CMakeLists.txt keeps the compiler from fusing
 * them), so the numbers are the same on every machine, whatever instructions it has, and whatever
 * its C library. They are fth_random_normal()'s up to the last bits of a double.
 *
 *     logarithm    k = 2^e m with m around 1; log m = 2 atanh((m - 1) / (m + 1)), a series in the
 *                  odd powers
 *     cosine       cos 2πt = sin 2πy with y = 1/4 - min(t, 1 - t), which is within a quarter turn
 *                  of 0 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/random.h"
#include "base/vectorized.h"

enum { BLOCK = 512, MANTISSA_BITS = 52 };

#define TWO_TO_52      0x1p52
#define TWO_TO_52_BITS 0x4330000000000000u /* with a whole number below 2^52 in the low bits: that number + 2^52 */
#define ONE_BITS       0x3ff0000000000000u
#define ROOT_HALF_BITS 0x3fe6a09e00000000u /* about: m lies in [√½, √2) */
#define LN_2           0.6931471805599453
#define TWO_PI         6.283185307179586

/* BLOCK draws from `first` on. Bits and doubles change into one another by memcpy of whole
 * arrays. */
FTH_VECTORIZED static void fill_block(fth_random_key key, uint64_t first, double deviation, float *to)
{
    uint64_t bits[BLOCK], exponent_bits[BLOCK];
    double k[BLOCK], m[BLOCK], e[BLOCK], t[BLOCK];

    for (int i = 0; i < BLOCK; i++) {
        uint64_t draw = fth_random_bits(key, first + (uint64_t)i);
        bits[i] = TWO_TO_52_BITS + (draw >> 32) + 1; /* 1 to 2^32 */
        exponent_bits[i] = TWO_TO_52_BITS + (draw & 0xffffffffu);
    }
    memcpy(k, bits, sizeof k);
    memcpy(t, exponent_bits, sizeof t);
    for (int i = 0; i < BLOCK; i++) {
        k[i] -= TWO_TO_52;
        t[i] = (t[i] - TWO_TO_52) * 0x1p-32; /* [0, 1) */
    }
    memcpy(bits, k, sizeof bits);
    for (int i = 0; i < BLOCK; i++) {
        uint64_t shifted = bits[i] + (ONE_BITS - ROOT_HALF_BITS);
        exponent_bits[i] = TWO_TO_52_BITS + (shifted >> MANTISSA_BITS);
        bits[i] = (shifted & ((UINT64_C(1) << MANTISSA_BITS) - 1)) + ROOT_HALF_BITS;
    }
    memcpy(m, bits, sizeof m);
    memcpy(e, exponent_bits, sizeof e);
    for (int i = 0; i < BLOCK; i++) {
        double exponent = e[i] - (TWO_TO_52 + 1023 + 32); /* of k / 2^32, which is in (0, 1] */
        double s = (m[i] - 1) / (m[i] + 1), z = s * s;    /* z < 0.0295: the first term left out is below 2^-55 */
        double series = 1.0 / 19;
        series = series * z + 1.0 / 17;
        series = series * z + 1.0 / 15;
        series = series * z + 1.0 / 13;
        series = series * z + 1.0 / 11;
        series = series * z + 1.0 / 9;
        series = series * z + 1.0 / 7;
        series = series * z + 1.0 / 5;
        series = series * z + 1.0 / 3;
        series = series * z + 1.0;
        double radius = sqrt(-2 * (exponent * LN_2 + 2 * s * series));

        double folded = t[i] < 1 - t[i] ? t[i] : 1 - t[i];
        double angle = TWO_PI * (0.25 - folded), w = angle * angle; /* Taylor's series of the sine, to angle^21 */
        double sine = 1.0 / (20 * 21);
        sine = 1 - w * sine;
        sine = 1 - w * (1.0 / (18 * 19)) * sine;
        sine = 1 - w * (1.0 / (16 * 17)) * sine;
        sine = 1 - w * (1.0 / (14 * 15)) * sine;
        sine = 1 - w * (1.0 / (12 * 13)) * sine;
        sine = 1 - w * (1.0 / (10 * 11)) * sine;
        sine = 1 - w * (1.0 / (8 * 9)) * sine;
        sine = 1 - w * (1.0 / (6 * 7)) * sine;
        sine = 1 - w * (1.0 / (4 * 5)) * sine;
        sine = 1 - w * (1.0 / (2 * 3)) * sine;
        to[i] = (float)(deviation * (radius * (angle * sine)));
    }
}

void fth_random_fill_normal(fth_random_key key, uint64_t first, size_t count, double deviation, float *to)
{
    float rest[BLOCK];
    for (; count >= BLOCK; count -= BLOCK, first += BLOCK, to += BLOCK)
        fill_block(key, first, deviation, to);
    if (count == 0)
        return;
    fill_block(key, first, deviation, rest);
    memcpy(to, rest, count * sizeof *to);
}
