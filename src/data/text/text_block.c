/* See text_block.h. */
#include "data/text/text_block.h"

#include <stdlib.h>
#include <string.h>

fth_status fth_text_block_add(fth_text_block *block, const char *text, size_t length, uint32_t *where)
{
    if (block->size + length + 1 > UINT32_MAX)
        return fth_fail(FTH_UNSUPPORTED, "the names of the images take more than 4 GiB");
    if (block->size + length + 1 > block->capacity) {
        size_t wanted = block->capacity + block->capacity / 2 + length + 4096;
        char *grown = realloc(block->text, wanted);
        if (!grown)
            return fth_fail(FTH_NO_MEMORY, "no memory for %zu bytes of names", wanted);
        block->text = grown;
        block->capacity = wanted;
    }
    *where = (uint32_t)block->size;
    memcpy(block->text + block->size, text, length);
    block->text[block->size + length] = '\0';
    block->size += length + 1;
    return FTH_OK;
}
