/* See space.h. Two-level segregated fit (Masmano et al., 2004): free blocks are in lists by size
 * class, eight classes per power of two, and bitmaps mark the non-empty lists. In the request's own
 * class the first few blocks are compared; every block of the next class fits. All blocks are also
 * in one list by address, in which neighbours merge. The blocks' records are in an array and are
 * referred to by index. */
#include "batches/memory/space.h"

#include <stdlib.h>

enum { STEPS = 8, POWERS = 40, CLASSES = POWERS * STEPS, SEARCH = 16, WORDS = CLASSES / 64 };

typedef struct space_block {
    uint64_t offset, units;
    uint32_t before, after;            /* by address */
    uint32_t previous_free, next_free; /* in the list of its class; next_free also links unused records */
    bool free;
} space_block;

struct fth_space {
    uint64_t size_units, used_units;
    space_block *blocks;
    size_t count, capacity;
    uint32_t unused; /* unused records */
    uint32_t last;   /* by address */
    uint32_t heads[CLASSES];
    uint64_t filled[WORDS]; /* marks the non-empty heads */
};

static uint64_t units_of(uint64_t size_bytes)
{
    return size_bytes == 0 ? 1 : (size_bytes - 1) / FTH_SPACE_UNIT + 1;
}

/* Sizes below 2 * STEPS have a class each. */
static int class_of(uint64_t units)
{
    if (units < STEPS)
        return (int)units;
    int power = 63 - __builtin_clzll(units); /* at least 3 */
    int place = (power - 2) * STEPS + (int)((units >> (power - 3)) & (STEPS - 1));
    return place < CLASSES ? place : CLASSES - 1;
}

static void list_free(fth_space *space, uint32_t index)
{
    space_block *block = &space->blocks[index];
    int place = class_of(block->units);
    block->free = true;
    block->previous_free = FTH_NO_BLOCK;
    block->next_free = space->heads[place];
    if (block->next_free != FTH_NO_BLOCK)
        space->blocks[block->next_free].previous_free = index;
    space->heads[place] = index;
    space->filled[place / 64] |= UINT64_C(1) << place % 64;
}

static void unlist_free(fth_space *space, uint32_t index)
{
    space_block *block = &space->blocks[index];
    int place = class_of(block->units);
    if (block->previous_free != FTH_NO_BLOCK)
        space->blocks[block->previous_free].next_free = block->next_free;
    else
        space->heads[place] = block->next_free;
    if (block->next_free != FTH_NO_BLOCK)
        space->blocks[block->next_free].previous_free = block->previous_free;
    if (space->heads[place] == FTH_NO_BLOCK)
        space->filled[place / 64] &= ~(UINT64_C(1) << place % 64);
    block->free = false;
}

/* A record for another block; FTH_NO_BLOCK: no memory. May move all records. */
static uint32_t describe_block(fth_space *space, space_block block)
{
    uint32_t index = space->unused;
    if (index != FTH_NO_BLOCK) {
        space->unused = space->blocks[index].next_free;
    } else {
        if (space->count >= FTH_NO_BLOCK ||
            fth_grow(&space->blocks, space->count, &space->capacity, sizeof block) != FTH_OK)
            return FTH_NO_BLOCK;
        index = (uint32_t)space->count++;
    }
    space->blocks[index] = block;
    return index;
}

static void forget_block(fth_space *space, uint32_t index)
{
    space->blocks[index].next_free = space->unused;
    space->unused = index;
}

/* Links a new record after `index` by address. */
static void link_behind(fth_space *space, uint32_t index, uint32_t fresh)
{
    space_block *block = &space->blocks[index], *next = &space->blocks[fresh];
    next->before = index;
    next->after = block->after;
    if (block->after != FTH_NO_BLOCK)
        space->blocks[block->after].before = fresh;
    else
        space->last = fresh;
    block->after = fresh;
}

/* Splits a block that is in no free list; neither is the rest. False: no memory, nothing was
 * split. */
static bool cut(fth_space *space, uint32_t index, uint64_t units, uint32_t *rest)
{
    space_block end = {.offset = space->blocks[index].offset + units * FTH_SPACE_UNIT,
                       .units = space->blocks[index].units - units};
    *rest = describe_block(space, end);
    if (*rest == FTH_NO_BLOCK)
        return false;
    space->blocks[index].units = units;
    link_behind(space, index, *rest);
    return true;
}

/* Merges a block that is in no list with the free one after it. */
static void absorb_next(fth_space *space, uint32_t index)
{
    space_block *block = &space->blocks[index];
    uint32_t next = block->after;
    if (next == FTH_NO_BLOCK || !space->blocks[next].free)
        return;
    unlist_free(space, next);
    block->units += space->blocks[next].units;
    block->after = space->blocks[next].after;
    if (block->after != FTH_NO_BLOCK)
        space->blocks[block->after].before = index;
    else
        space->last = index;
    forget_block(space, next);
}

/* Frees a block that is in no list, and merges it with its neighbours. */
static void release(fth_space *space, uint32_t index)
{
    uint32_t before = space->blocks[index].before;
    absorb_next(space, index);
    if (before != FTH_NO_BLOCK && space->blocks[before].free) {
        unlist_free(space, before);
        space->blocks[index].free = false;
        list_free(space, index); /* so that its predecessor can absorb it */
        absorb_next(space, before);
        index = before;
    }
    list_free(space, index);
}

fth_status fth_space_create(uint64_t size_bytes, fth_space **space)
{
    fth_status status = FTH_OK;
    fth_space *made = NULL;
    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    made->size_units = size_bytes / FTH_SPACE_UNIT;
    made->unused = FTH_NO_BLOCK;
    for (int i = 0; i < CLASSES; i++)
        made->heads[i] = FTH_NO_BLOCK;
    made->last =
        describe_block(made, (space_block){.units = made->size_units, .before = FTH_NO_BLOCK, .after = FTH_NO_BLOCK});
    FTH_REQUIRE(made->last != FTH_NO_BLOCK, FTH_NO_MEMORY, "no memory to manage the cache's memory");
    list_free(made, made->last);
    *space = made;
    made = NULL;
out:
    fth_space_free(made);
    return status;
}

void fth_space_free(fth_space *space)
{
    if (!space)
        return;
    free(space->blocks);
    free(space);
}

uint64_t fth_space_used(const fth_space *space)
{
    return space->used_units * FTH_SPACE_UNIT;
}

/* The smallest fitting block among the first of a class. */
static uint32_t search_class(const fth_space *space, int place, uint64_t units)
{
    uint32_t best = FTH_NO_BLOCK, index = space->heads[place];
    for (int i = 0; i < SEARCH && index != FTH_NO_BLOCK; i++, index = space->blocks[index].next_free) {
        uint64_t size = space->blocks[index].units;
        if (size >= units && (best == FTH_NO_BLOCK || size < space->blocks[best].units))
            best = index;
        if (size == units)
            break;
    }
    return best;
}

/* The next non-empty class after `place`; -1: none. */
static int next_filled(const fth_space *space, int place)
{
    for (int word = (place + 1) / 64; word < WORDS; word++) {
        uint64_t bits = space->filled[word];
        if (word == (place + 1) / 64)
            bits &= ~UINT64_C(0) << (place + 1) % 64;
        if (bits)
            return word * 64 + __builtin_ctzll(bits);
    }
    return -1;
}

uint32_t fth_space_take(fth_space *space, uint64_t size_bytes)
{
    uint64_t units = units_of(size_bytes);
    int place = class_of(units);
    uint32_t index = search_class(space, place, units), rest;
    if (index == FTH_NO_BLOCK && (place = next_filled(space, place)) >= 0)
        index = search_class(space, place, units);
    if (index == FTH_NO_BLOCK)
        return FTH_NO_BLOCK;
    unlist_free(space, index);
    if (space->blocks[index].units > units && cut(space, index, units, &rest))
        list_free(space, rest);
    space->used_units += space->blocks[index].units;
    return index;
}

uint32_t fth_space_take_at(fth_space *space, uint64_t offset, uint64_t size_bytes)
{
    uint32_t index = space->last, rest;
    const space_block *last = &space->blocks[index];
    uint64_t units = units_of(size_bytes), last_end = last->offset / FTH_SPACE_UNIT + last->units;
    if (!last->free || offset % FTH_SPACE_UNIT != 0 || offset < last->offset || offset / FTH_SPACE_UNIT > last_end ||
        units > last_end - offset / FTH_SPACE_UNIT)
        return FTH_NO_BLOCK;
    unlist_free(space, index);
    if (offset > last->offset) {
        bool was_cut = cut(space, index, (offset - last->offset) / FTH_SPACE_UNIT, &rest);
        list_free(space, index);
        if (!was_cut)
            return FTH_NO_BLOCK;
        index = rest;
    }
    if (space->blocks[index].units > units) {
        if (!cut(space, index, units, &rest)) {
            release(space, index);
            return FTH_NO_BLOCK;
        }
        list_free(space, rest);
    }
    space->used_units += units;
    return index;
}

void fth_space_shrink(fth_space *space, uint32_t block, uint64_t size_bytes)
{
    uint64_t units = units_of(size_bytes), had = space->blocks[block].units;
    uint32_t rest;
    if (units < had && cut(space, block, units, &rest)) {
        space->used_units -= had - units;
        release(space, rest);
    }
}

void fth_space_give_back(fth_space *space, uint32_t block)
{
    space->used_units -= space->blocks[block].units;
    release(space, block);
}

uint64_t fth_space_offset(const fth_space *space, uint32_t block)
{
    return space->blocks[block].offset;
}

uint64_t fth_space_size(const fth_space *space, uint32_t block)
{
    return space->blocks[block].units * FTH_SPACE_UNIT;
}
