/* See random.h. The permutation is a Feistel network over the smallest even number of bits that holds `count`, walked
 * until it lands inside: at most four walks on average. Eight rounds, because four leave small counts visibly uneven
 * (places of 5 or 10 items off by 20 to 30 %, measured over many keys); eight leave nothing to measure. */
#include "base/random.h"

#include <assert.h>
#include <math.h>

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

uint64_t fth_random_permute(fth_random_key key, uint64_t count, uint64_t position)
{
    assert(position < count);
    if (count <= 1)
        return 0;
    int half_bits = 1;
    while (half_bits < 31 && (count - 1) >> (2 * half_bits) != 0)
        half_bits++;
    uint64_t mask = (UINT64_C(1) << half_bits) - 1;
    uint64_t at = position;
    do {
        uint64_t left = at >> half_bits, right = at & mask;
        for (uint64_t round = 0; round < 8; round++) {
            uint64_t next = left ^ (fth_random_bits(key, (round << 32) | right) & mask);
            left = right;
            right = next;
        }
        at = (left << half_bits) | right;
    } while (at >= count);
    return at;
}
