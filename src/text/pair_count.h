/* Counts pairs of neighbouring pieces and the words that have them, and finds the most frequent,
 * for learning a vocabulary (learn.c). */
#ifndef FTH_TEXT_PAIR_COUNT_H
#define FTH_TEXT_PAIR_COUNT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct fth_pair_count fth_pair_count;

fth_status fth_pair_count_create(fth_pair_count **pairs);
void fth_pair_count_free(fth_pair_count *pairs);

/* The pair occurs so many times more in `word`. */
fth_status fth_pair_count_add(fth_pair_count *pairs, int32_t left, int32_t right, uint32_t word, int64_t times);
/* It occurs so many times less; it was added before. */
void fth_pair_count_subtract(fth_pair_count *pairs, int32_t left, int32_t right, int64_t times);

/* The most frequent pair; of several, the one with the smallest pieces. A count of 0: there is
 * none. `words` have it or had it, some repeatedly; they live until the pairs are freed. */
typedef struct fth_frequent_pair {
    int32_t left, right;
    int64_t count;
    const uint32_t *words;
    size_t word_count;
} fth_frequent_pair;
fth_status fth_pair_count_take(fth_pair_count *pairs, fth_frequent_pair *pair);

#endif
