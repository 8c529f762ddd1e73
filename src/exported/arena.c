/* Memory for a program's small parts. */
#include <stdlib.h>
#include <string.h>

#include "exported/program_internal.h"

enum { BLOCK_BYTES = 1 << 15 };

struct fth_exported_block {
    fth_exported_block *next;
    size_t capacity;
    max_align_t bytes[];
};

fth_status fth_exported_take(fth_exported_arena *arena, size_t count, size_t size, void *pointer_to_pointer)
{
    size_t wanted = 0;
    if (__builtin_mul_overflow(count, size, &wanted) || wanted > SIZE_MAX / 2)
        return fth_fail(FTH_NO_MEMORY, "no memory for %zu items of %zu bytes", count, size);
    wanted = fth_align_up(wanted ? wanted : 1, _Alignof(max_align_t));
    if (!arena->blocks || wanted > arena->blocks->capacity - arena->used) {
        const size_t capacity = wanted > BLOCK_BYTES ? wanted : BLOCK_BYTES;
        fth_exported_block *block = NULL;
        fth_status status = fth_allocate(1, sizeof *block + capacity, &block);
        if (status != FTH_OK)
            return status;
        block->next = arena->blocks;
        block->capacity = capacity;
        arena->blocks = block;
        arena->used = 0;
    }
    void *taken = (char *)arena->blocks->bytes + arena->used;
    arena->used += wanted;
    memcpy(pointer_to_pointer, &taken, sizeof taken);
    return FTH_OK;
}

fth_status fth_exported_take_text(fth_exported_arena *arena, const char *text, size_t length, const char **copy)
{
    char *bytes = NULL;
    fth_status status = fth_exported_take(arena, length + 1, 1, &bytes);
    if (status == FTH_OK) {
        memcpy(bytes, text, length);
        *copy = bytes;
    }
    return status;
}

void fth_exported_arena_release(fth_exported_arena *arena)
{
    while (arena->blocks) {
        fth_exported_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
    *arena = (fth_exported_arena){0};
}
