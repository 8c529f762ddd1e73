/* See memory.h. */
#include "base/memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Areas of at least this size use huge pages if available: the first touch of a page costs more
 * than filling it. */
static const size_t huge_page = (size_t)2 << 20;

fth_status fth_allocate(size_t count, size_t size, void *pointer_to_pointer)
{
    bool fits = size == 0 || count <= SIZE_MAX / size;
    void *memory = fits ? calloc(count ? count : 1, size ? size : 1) : NULL;
    if (!memory)
        return fth_fail(FTH_NO_MEMORY, "no memory for %zu × %zu bytes", count, size);
    memcpy(pointer_to_pointer, &memory, sizeof memory);
    return FTH_OK;
}

fth_status fth_allocate_aligned(size_t size_bytes, void *pointer_to_pointer)
{
    size_t rounded = fth_align_up(size_bytes ? size_bytes : 1, FTH_ALIGNMENT);
    const bool large = rounded >= 2 * huge_page;
    void *memory = NULL;
    if (rounded < size_bytes || posix_memalign(&memory, large ? huge_page : FTH_ALIGNMENT, rounded) != 0)
        return fth_fail(FTH_NO_MEMORY, "no memory for %.1f MB", (double)size_bytes / 1e6);
    if (large)
        madvise(memory, rounded / huge_page * huge_page, MADV_HUGEPAGE);
    memset(memory, 0, rounded);
    memcpy(pointer_to_pointer, &memory, sizeof memory);
    return FTH_OK;
}

void fth_wipe(void *bytes, size_t size_bytes)
{
    explicit_bzero(bytes, size_bytes);
}

void fth_wipe_text(char *text)
{
    if (text)
        fth_wipe(text, strlen(text));
    free(text);
}

fth_status fth_grow(void *pointer_to_pointer, size_t count, size_t *capacity, size_t item_size)
{
    if (count < *capacity)
        return FTH_OK;
    size_t wanted = *capacity ? *capacity * 2 : 16;
    void *memory;
    memcpy(&memory, pointer_to_pointer, sizeof memory);
    if (wanted > SIZE_MAX / item_size || !(memory = realloc(memory, wanted * item_size)))
        return fth_fail(FTH_NO_MEMORY, "no memory for %zu × %zu bytes", wanted, item_size);
    memcpy(pointer_to_pointer, &memory, sizeof memory);
    *capacity = wanted;
    return FTH_OK;
}
