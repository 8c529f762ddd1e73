/* Counter-based random numbers.
 *
 * Every draw is a pure function of a key and a counter (SplitMix64's output function over key +
 * counter * golden ratio), so shuffles, augmentation, initialization and dropout need no state to
 * save: (seed, epoch, sample) determine them, in any order, on any machine.  */
#ifndef FTH_BASE_RANDOM_H
#define FTH_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

typedef struct fth_random_key {
    uint64_t bits;
} fth_random_key;

/* What a key is for; keeps draws for different purposes independent under one seed. */
typedef enum fth_random_use {
    FTH_RANDOM_INITIALIZE = 1,
    FTH_RANDOM_SHUFFLE,
    FTH_RANDOM_SPLIT,
    FTH_RANDOM_AUGMENT,
    FTH_RANDOM_DROPOUT,
    FTH_RANDOM_GENERATE,
    FTH_RANDOM_BATCH_ORDER
} fth_random_use;

static inline uint64_t fth_random_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 64 random bits for `counter` under `key`. */
static inline uint64_t fth_random_bits(fth_random_key key, uint64_t counter)
{
    return fth_random_mix(key.bits + (counter + 1) * 0x9e3779b97f4a7c15u);
}

/* A key derived from another by a number: fth_random_fork(fth_random_fork(key, epoch), sample). */
static inline fth_random_key fth_random_fork(fth_random_key key, uint64_t number)
{
    return (fth_random_key){fth_random_mix(fth_random_bits(key, number) ^ 0x5851f42d4c957f2du)};
}

fth_random_key fth_random_key_for(uint64_t seed, fth_random_use use);

/* Uniform in [0, 1) with 53 bits. */
static inline double fth_random_uniform(fth_random_key key, uint64_t counter)
{
    return (double)(fth_random_bits(key, counter) >> 11) * 0x1p-53;
}

/* Uniform in [0, bound); bound >= 1. */
static inline uint64_t fth_random_below(fth_random_key key, uint64_t counter, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)fth_random_bits(key, counter) * bound) >> 64);
}

/* Standard normal (Box-Muller over one draw's two halves). */
double fth_random_normal(fth_random_key key, uint64_t counter);
/* `count` of them, from counter `first` on, times `deviation`: the same on every machine, and
 * within 1e-14 of what fth_random_normal() gives; much faster. */
void fth_random_fill_normal(fth_random_key key, uint64_t first, size_t count, double deviation, float *to);

/* A keyed permutation of 0..count-1 in constant memory: where `position` goes. */
uint64_t fth_random_permute(fth_random_key key, uint64_t count, uint64_t position);
/* The same for each of `positions`, in place; several times as fast. */
void fth_random_permute_all(fth_random_key key, uint64_t count, int64_t *positions, size_t number);

#endif
