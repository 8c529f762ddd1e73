/* Attention's dropout as graph/ops.h defines it, for attention.cu, which is C++ and cannot read
 * that header. */
#include "graph/ops.h"

uint32_t attention_threshold(float probability);
bool attention_keeps(uint64_t seed, uint64_t step, uint32_t id, uint64_t token, int heads, int head, int key,
                     float probability);

uint32_t attention_threshold(float probability)
{
    return fth_attention_threshold(probability);
}

bool attention_keeps(uint64_t seed, uint64_t step, uint32_t id, uint64_t token, int heads, int head, int key,
                     float probability)
{
    const uint64_t draw = fth_attention_draw(fth_dropout_key(seed, step, id), token, heads, head, key);
    return fth_attention_keeps(draw, fth_attention_threshold(probability), key);
}
