/* Decoded images kept in memory while there is room. */
#ifndef FTH_DATA_DECODED_CACHE_H
#define FTH_DATA_DECODED_CACHE_H

#include "data/image/decode.h"

typedef struct fth_decoded_cache fth_decoded_cache;

fth_status fth_decoded_cache_create(size_t entries, uint64_t max_bytes, fth_decoded_cache **cache);
void fth_decoded_cache_free(fth_decoded_cache *cache);
/* False if the entry is not there. */
bool fth_decoded_cache_find(fth_decoded_cache *cache, size_t entry, fth_picture *picture);
/* Keeps a copy while there is room. */
void fth_decoded_cache_keep(fth_decoded_cache *cache, size_t entry, const fth_picture *picture);

#endif
