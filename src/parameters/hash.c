/* See hash.h. */
#include "parameters/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t fth_hash(const void *bytes, size_t size_bytes)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2"))
        return fth_hash_wide(bytes, size_bytes);
#endif
    return XXH3_64bits(bytes, size_bytes);
}
