/* Host memory: zeroed and overflow-checked, aligned for vector instructions. */
#ifndef FTH_BASE_MEMORY_H
#define FTH_BASE_MEMORY_H

#include <stddef.h>

#include "base/status.h"

#define FTH_ALIGNMENT ((size_t)64)

static inline size_t fth_align_up(size_t size, size_t alignment)
{
    return (size + alignment - 1) / alignment * alignment;
}

/* Zeroed memory for `count` items of `size` bytes each. The message of FTH_NO_MEMORY says how much
 * was requested. */
fth_status fth_allocate(size_t count, size_t size, void *pointer_to_pointer);

/* The same, aligned to FTH_ALIGNMENT; free() it. Large areas have huge pages where the system gives
 * them. */
fth_status fth_allocate_aligned(size_t size_bytes, void *pointer_to_pointer);

/* Overwrites secrets in a way that the compiler cannot optimize away. */
void fth_wipe(void *bytes, size_t size_bytes);
/* Wipes a text to its end and frees it; NULL is fine. */
void fth_wipe_text(char *text);

/* Room for one more item in a growing array: doubles `*capacity` when `count` has reached it. */
fth_status fth_grow(void *pointer_to_pointer, size_t count, size_t *capacity, size_t item_size);

#endif
