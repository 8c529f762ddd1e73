/* The segment's allocator, for a range of bytes. It handles offsets only and never touches the
 * memory, so its state is private to the owner and can be rebuilt from a list of allocated blocks.
 *
 * Sizes are multiples of 64 bytes. A request gets the smallest fitting free block that a bounded
 * search finds; freed blocks merge with free neighbours. Constant time. The caller locks. */
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
/* Allocates a given place after all allocated blocks; FTH_NO_BLOCK if it overlaps one or ends
 * outside. */
uint32_t fth_space_take_at(fth_space *space, uint64_t offset, uint64_t size_bytes);
/* Frees the end of a block. */
void fth_space_shrink(fth_space *space, uint32_t block, uint64_t size_bytes);
void fth_space_give_back(fth_space *space, uint32_t block);

uint64_t fth_space_offset(const fth_space *space, uint32_t block);
uint64_t fth_space_size(const fth_space *space, uint32_t block);

#endif
