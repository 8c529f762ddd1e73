/* Sets of text: tables of texts and labels, tokenized once, when the set is opened. Ids stay in
 * memory, with held-out samples already separated. */
#ifndef FTH_DATA_TEXT_SET_H
#define FTH_DATA_TEXT_SET_H

#include "data/data_internal.h"
#include "text/tokenizer.h"

typedef struct fth_text_set fth_text_set; /* the state of a data set of text */

/* A sample, which lives as long as the set. */
typedef struct fth_text_sample {
    const int32_t *tokens;
    uint32_t count, first_count; /* of which first_count belong to the first text of a pair */
    int32_t label;
    const float *targets; /* NULL where labels are classes */
} fth_text_sample;

fth_text_sample fth_text_set_get(const fth_text_set *set, fth_split split, int64_t index);
/* The text of a sample, lent; false unless the set was opened with keep_text. */
bool fth_text_set_get_text(const fth_text_set *set, fth_split split, int64_t index, fth_text_pair *text);
/* Tokens of each sample. */
const uint32_t *fth_text_set_lengths(const fth_text_set *set, fth_split split);

#endif
