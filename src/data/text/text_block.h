/* Many short texts in one block, each identified by its offset. */
#ifndef FTH_DATA_TEXT_BLOCK_H
#define FTH_DATA_TEXT_BLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

typedef struct fth_text_block {
    char *text; /* free() it */
    size_t size, capacity;
} fth_text_block;

/* Adds a text and a NUL. A block holds up to 4 GiB. */
fth_status fth_text_block_add(fth_text_block *block, const char *text, size_t length, uint32_t *where);

#endif
