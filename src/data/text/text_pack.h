/* Texts packed for a model: the tokens of several samples one after the other, with segments,
 * positions and ends. */
#ifndef FTH_DATA_TEXT_PACK_H
#define FTH_DATA_TEXT_PACK_H

#include "data/data.h"

/* Starts zeroed; owns its arrays. */
typedef struct fth_text_pack {
    int32_t *tokens, *segments, *positions; /* (token_capacity) */
    int32_t *ends;                          /* (capacity) */
    int64_t count, token_count;
    int64_t capacity, token_capacity;
} fth_text_pack;

/* Makes room for so many samples and tokens, and empties the pack. */
fth_status fth_text_pack_reserve(fth_text_pack *pack, int64_t samples, int64_t tokens);
void fth_text_pack_release(fth_text_pack *pack);

/* Adds a sample, for which there must be room: `count` tokens, the first `first_count` of which are
 * of segment 0. */
void fth_text_pack_add(fth_text_pack *pack, const int32_t *tokens, int64_t count, int64_t first_count);

/* In the form of a batch; lent. */
fth_text_batch fth_text_pack_get(const fth_text_pack *pack, int64_t first_token);

#endif
