/* See hash.h. */
#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t fth_hash(const void *bytes, size_t size_bytes, uint64_t seed)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2"))
        return fth_hash_wide(bytes, size_bytes, seed);
#endif
    return XXH3_64bits_withSeed(bytes, size_bytes, seed);
}
