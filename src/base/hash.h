/* XXH3 with 64 bits, the checksum of large data. */
#ifndef FTH_BASE_HASH_H
#define FTH_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t fth_hash(const void *bytes, size_t size_bytes, uint64_t seed);

/* hash_wide.c: the same, for machines with AVX2. */
uint64_t fth_hash_wide(const void *bytes, size_t size_bytes, uint64_t seed);

#endif
