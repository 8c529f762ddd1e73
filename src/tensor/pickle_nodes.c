/* The memory and the small change of pickles: an arena with a budget, nodes, and words for
 * messages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/pickle_internal.h"

/* The costliest opcodes are a byte or two that make a node or lengthen a list, so no honest pickle
 * needs more than this for each byte read so far; a hostile one is stopped by it. The maximum is
 * room for several 100,000 tensors. */
#define BUDGET_PER_BYTE ((size_t)64)
#define BUDGET_AT_LEAST ((size_t)1 << 16)
#define BUDGET_AT_MOST  ((size_t)1 << 29)
#define BLOCK_BYTES     ((size_t)1 << 16)

typedef struct arena_block {
    struct arena_block *next;
    size_t used, size;
    max_align_t memory[];
} arena_block;

struct fth_pickle_arena {
    arena_block *blocks;
    size_t taken, budget;
    const char *origin; /* valid while reading */
};

fth_status fth_pickle_arena_create(const char *origin, fth_pickle_arena **arena)
{
    fth_status status = fth_allocate(1, sizeof **arena, arena);
    if (status == FTH_OK)
        (*arena)->origin = origin;
    return status;
}

void fth_pickle_arena_allow(fth_pickle_arena *arena, size_t bytes_read)
{
    size_t budget = BUDGET_AT_MOST;
    if (bytes_read < BUDGET_AT_MOST / BUDGET_PER_BYTE)
        budget = bytes_read * BUDGET_PER_BYTE;
    arena->budget = budget < BUDGET_AT_LEAST ? BUDGET_AT_LEAST : budget;
}

void fth_pickle_arena_free(fth_pickle_arena *arena)
{
    while (arena && arena->blocks) {
        arena_block *block = arena->blocks;
        arena->blocks = block->next;
        free(block);
    }
    free(arena);
}

fth_status fth_pickle_arena_take(fth_pickle_arena *arena, size_t size_bytes, void *pointer_to_pointer)
{
    arena_block *block = arena->blocks;
    size_t rounded = fth_align_up(size_bytes, sizeof(max_align_t) / 2);
    if (rounded < size_bytes || rounded > arena->budget - arena->taken)
        return fth_fail(FTH_CORRUPT, "%s: the pickle unfolds into far more than its size; it is not a list of tensors",
                        arena->origin);
    if (!block || block->size - block->used < rounded) {
        size_t size = rounded > BLOCK_BYTES ? rounded : BLOCK_BYTES;
        fth_status status = fth_allocate(1, sizeof *block + size, &block);
        if (status != FTH_OK)
            return status;
        block->size = size;
        block->next = arena->blocks;
        arena->blocks = block;
    }
    void *memory = (char *)block->memory + block->used;
    block->used += rounded;
    arena->taken += rounded;
    memcpy(pointer_to_pointer, &memory, sizeof memory);
    return FTH_OK;
}

fth_status fth_pickle_node_create(fth_pickle_arena *arena, fth_pickle_kind kind, fth_pickle_node **node)
{
    fth_status status = fth_pickle_arena_take(arena, sizeof **node, node);
    if (status == FTH_OK)
        (*node)->kind = (uint8_t)kind;
    return status;
}

fth_status fth_pickle_node_append(fth_pickle_arena *arena, fth_pickle_node *node, fth_pickle_node *const *items,
                                  size_t count)
{
    if (count > UINT32_MAX / 4 - node->count)
        return fth_fail(FTH_CORRUPT, "%s: a list of too many items", arena->origin);
    if (count > node->capacity - node->count) {
        size_t capacity = node->capacity ? (size_t)node->capacity * 2 : 2;
        if (capacity < node->count + count)
            capacity = node->count + count;
        fth_pickle_node **larger;
        fth_status status = fth_pickle_arena_take(arena, capacity * sizeof *larger, &larger);
        if (status != FTH_OK)
            return status;
        if (node->count)
            memcpy(larger, node->items, node->count * sizeof *larger);
        node->items = larger;
        node->capacity = (uint32_t)capacity;
    }
    if (count)
        memcpy(node->items + node->count, items, count * sizeof *items);
    node->count += (uint32_t)count;
    return FTH_OK;
}

bool fth_pickle_text_is(const fth_pickle_node *node, const char *text)
{
    size_t length = strlen(text);
    return node->kind == FTH_PICKLE_TEXT && node->count == length && memcmp(node->bytes, text, length) == 0;
}

fth_pickle_node *fth_pickle_dict_find(const fth_pickle_node *dict, const char *key, size_t key_length)
{
    for (size_t i = dict->count; i >= 2; i -= 2) {
        const fth_pickle_node *found = dict->items[i - 2];
        if (found->kind == FTH_PICKLE_TEXT && found->count == key_length &&
            (key_length == 0 || memcmp(found->bytes, key, key_length) == 0))
            return dict->items[i - 1];
    }
    return NULL;
}

const char *fth_pickle_printable(const char *text, size_t length, char *out, size_t size)
{
    size_t at = 0;
    for (; at < length && at + 4 < size; at++) {
        unsigned char byte = (unsigned char)text[at];
        out[at] = (char)(byte < 0x20 || byte >= 0x7f ? '?' : byte);
    }
    snprintf(out + at, size - at, "%s", at < length ? "..." : "");
    return out;
}

fth_status fth_pickle_refuse(const fth_pickle_place *place, const char *what)
{
    return fth_fail(FTH_UNSUPPORTED,
                    "%s: refused: %s%s%s at byte %zu: this file wants to run code; farthing reads tensors only (if you "
                    "trust it, load it in PyTorch and save its state_dict())",
                    place->origin, place->opcode, *what ? " " : "", what, place->at);
}

fth_status fth_pickle_corrupt(const fth_pickle_place *place, const char *what)
{
    return fth_fail(FTH_CORRUPT, "%s: damaged pickle: %s at byte %zu: %s", place->origin, place->opcode, place->at,
                    what);
}
