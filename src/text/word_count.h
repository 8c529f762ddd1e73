/* Counts words. */
#ifndef FTH_TEXT_WORD_COUNT_H
#define FTH_TEXT_WORD_COUNT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct fth_word_count fth_word_count;

fth_status fth_word_count_create(fth_word_count **words);
void fth_word_count_free(fth_word_count *words);

fth_status fth_word_count_add(fth_word_count *words, const char *bytes, size_t size_bytes);

/* Every word once, sorted by bytes; valid until the next call of any of these functions. */
typedef struct fth_counted_word {
    const char *bytes;
    size_t size_bytes;
    int64_t count;
} fth_counted_word;
fth_status fth_word_count_list(fth_word_count *words, const fth_counted_word **list, size_t *count);

#endif
