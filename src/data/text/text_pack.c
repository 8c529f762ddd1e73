/* See text_pack.h. */
#include "data/text/text_pack.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void fth_text_pack_release(fth_text_pack *pack)
{
    free(pack->tokens);
    free(pack->segments);
    free(pack->positions);
    free(pack->ends);
    *pack = (fth_text_pack){0};
}

fth_status fth_text_pack_reserve(fth_text_pack *pack, int64_t samples, int64_t tokens)
{
    fth_status status = FTH_OK;
    const size_t bytes = (size_t)tokens * sizeof(int32_t);

    pack->count = pack->token_count = 0;
    if (samples <= pack->capacity && tokens <= pack->token_capacity)
        return FTH_OK;
    fth_text_pack_release(pack);
    FTH_TRY(fth_allocate_aligned(bytes, &pack->tokens));
    FTH_TRY(fth_allocate_aligned(bytes, &pack->segments));
    FTH_TRY(fth_allocate_aligned(bytes, &pack->positions));
    FTH_TRY(fth_allocate_aligned((size_t)samples * sizeof(int32_t), &pack->ends));
    pack->capacity = samples;
    pack->token_capacity = tokens;

out:
    return status;
}

void fth_text_pack_add(fth_text_pack *pack, const int32_t *tokens, int64_t count, int64_t first_count)
{
    assert(pack->count < pack->capacity && count <= pack->token_capacity - pack->token_count);
    int32_t *segments = pack->segments + pack->token_count, *positions = pack->positions + pack->token_count;
    if (count > 0)
        memcpy(pack->tokens + pack->token_count, tokens, (size_t)count * sizeof *tokens);
    for (int64_t i = 0; i < count; i++) {
        segments[i] = i >= first_count;
        positions[i] = (int32_t)i;
    }
    pack->token_count += count;
    pack->ends[pack->count++] = (int32_t)pack->token_count;
}

fth_text_batch fth_text_pack_get(const fth_text_pack *pack, int64_t first_token)
{
    return (fth_text_batch){.tokens = pack->tokens,
                            .segments = pack->segments,
                            .positions = pack->positions,
                            .ends = pack->ends,
                            .token_count = pack->token_count,
                            .first_token = first_token};
}
