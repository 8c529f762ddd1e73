/* Who has which part of a range of bytes: the segment's allocator. It knows only offsets and never
 * touches the memory, so its state is its owner's alone, and can be built again from a list of what
 * is taken.
 *
 * Sizes are multiples of 64 bytes. A request gets the smallest free block that fits, of those that
 * a bounded search sees; blocks that are given back join their free neighbours. Constant time. The
 * caller locks. */
#ifndef FTH_BATCHES_SPACE_H
#define FTH_BATCHES_SPACE_H

#include "base/base.h"

typedef struct fth_space fth_space;

enum { FTH_SPACE_UNIT = 64 };
#define FTH_NO_BLOCK UINT32_MAX

fth_status fth_space_create(uint64_t size_bytes, fth_space **space);
void fth_space_free(fth_space *space);
uint64_t fth_space_used(const fth_space *space);

/* FTH_NO_BLOCK: no free block is large enough. */
uint32_t fth_space_take(fth_space *space, uint64_t size_bytes);
/* Takes a given place, behind all that are taken; FTH_NO_BLOCK if it overlaps one of them or ends
 * outside. */
uint32_t fth_space_take_at(fth_space *space, uint64_t offset, uint64_t size_bytes);
/* Gives back the end of a block. */
void fth_space_shrink(fth_space *space, uint32_t block, uint64_t size_bytes);
void fth_space_give_back(fth_space *space, uint32_t block);

uint64_t fth_space_offset(const fth_space *space, uint32_t block);
uint64_t fth_space_size(const fth_space *space, uint32_t block);

#endif
