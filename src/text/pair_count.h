/* How often each two pieces stand next to each other, in which words, and which pair is the most
 * frequent: what learning a vocabulary asks for (learn.c). */
#ifndef FTH_TEXT_PAIR_COUNT_H
#define FTH_TEXT_PAIR_COUNT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct fth_pair_count fth_pair_count;

fth_status fth_pair_count_create(fth_pair_count **pairs);
void fth_pair_count_free(fth_pair_count *pairs);

/* The pair is in `word` so many times more. */
fth_status fth_pair_count_add(fth_pair_count *pairs, int32_t left, int32_t right, uint32_t word, int64_t times);
/* It is so many times less; it was added before. */
void fth_pair_count_subtract(fth_pair_count *pairs, int32_t left, int32_t right, int64_t times);

/* The most frequent pair, of several the one with the smallest pieces; FTH_OK with a count of 0:
 * there is none. `words` are those that have it, and perhaps some that had it, some more than once;
 * they stay until the pairs are freed. */
typedef struct fth_frequent_pair {
    int32_t left, right;
    int64_t count;
    const uint32_t *words;
    size_t word_count;
} fth_frequent_pair;
fth_status fth_pair_count_take(fth_pair_count *pairs, fth_frequent_pair *pair);

#endif
