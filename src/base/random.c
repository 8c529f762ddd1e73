/* See random.h. The permutation is a Feistel network over the smallest even number of bits that
 * holds `count`, walked until it lands inside: at most four walks on average. Eight rounds, because
 * four leave small counts visibly uneven (places of 5 or 10 items off by 20 to 30 %, measured over
 * many keys); eight leave nothing to measure. */
#include "base/random.h"

#include <assert.h>
#include <math.h>

#include "base/vectorized.h"

fth_random_key fth_random_key_for(uint64_t seed, fth_random_use use)
{
    fth_random_key root = {fth_random_mix(seed + 0x9e3779b97f4a7c15u)};
    return fth_random_fork(root, (uint64_t)use);
}

double fth_random_normal(fth_random_key key, uint64_t counter)
{
    uint64_t bits = fth_random_bits(key, counter);
    double radius_draw = ((double)(bits >> 32) + 1) * 0x1p-32; /* (0, 1] */
    double angle_draw = (double)(uint32_t)bits * 0x1p-32;
    return sqrt(-2 * log(radius_draw)) * cos(6.283185307179586 * angle_draw);
}

/* Half of the bits of the smallest even number of bits that `count` positions need. */
static int choose_half_bits(uint64_t count)
{
    int half_bits = 1;
    while (half_bits < 31 && (count - 1) >> (2 * half_bits) != 0)
        half_bits++;
    return half_bits;
}

/* A permutation of all numbers of 2 * half_bits bits. */
static inline uint64_t permute_bits(fth_random_key key, int half_bits, uint64_t at)
{
    uint64_t mask = (UINT64_C(1) << half_bits) - 1, left = at >> half_bits, right = at & mask;
    for (uint64_t round = 0; round < 8; round++) {
        uint64_t next = left ^ (fth_random_bits(key, (round << 32) | right) & mask);
        left = right;
        right = next;
    }
    return (left << half_bits) | right;
}

uint64_t fth_random_permute(fth_random_key key, uint64_t count, uint64_t position)
{
    assert(position < count);
    if (count <= 1)
        return 0;
    int half_bits = choose_half_bits(count);
    do {
        position = permute_bits(key, half_bits, position);
    } while (position >= count);
    return position;
}

FTH_VECTORIZED static void permute_bits_of_all(fth_random_key key, int half_bits, uint64_t *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = permute_bits(key, half_bits, values[i]);
}

/* All positions take a step together, then those that are still too large take another: without
 * unpredictable branches, the processor works on several at once. */
void fth_random_permute_all(fth_random_key key, uint64_t count, int64_t *positions, size_t number)
{
    enum { BLOCK = 256 };
    int half_bits = choose_half_bits(count);
    for (size_t begin = 0; count > 1 && begin < number; begin += BLOCK) {
        uint64_t values[BLOCK];
        size_t places[BLOCK], left = number - begin < BLOCK ? number - begin : BLOCK;
        for (size_t i = 0; i < left; i++) {
            places[i] = begin + i;
            values[i] = (uint64_t)positions[begin + i];
        }
        while (left > 0) {
            size_t too_large = 0;
            permute_bits_of_all(key, half_bits, values, left);
            for (size_t i = 0; i < left; i++) {
                uint64_t value = values[i];
                size_t place = places[i];
                positions[place] = (int64_t)value; /* the last one stays */
                values[too_large] = value;
                places[too_large] = place;
                too_large += value >= count;
            }
            left = too_large;
        }
    }
}
