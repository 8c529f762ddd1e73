/* Encoded images or unpacked data kept on the local disk, up to a limit, by several processes at
 * once.
 *
 * An entry appears complete and carries its length and a checksum, so one torn by kill -9 or a
 * crash is a miss. When there is no room, the oldest entries are deleted. Entries written or used
 * since this cache was opened stay: of a set larger than the limit, a part is kept. */
#ifndef FTH_DATA_DISK_CACHE_H
#define FTH_DATA_DISK_CACHE_H

#include "data/image/decode.h"

typedef struct fth_disk_cache fth_disk_cache;

/* `folder` is created if needed; NULL or "": objects/ in the cache folder. An entry has at most
 * FTH_MAX_IMAGE_FILE bytes. */
fth_status fth_disk_cache_open(const char *folder, uint64_t limit_bytes, fth_disk_cache **cache);
void fth_disk_cache_free(fth_disk_cache *cache);

/* `what` names everything that the bytes depend on. Any thread. */
bool fth_disk_cache_find(fth_disk_cache *cache, const char *what, fth_pixel_buffer *buffer, size_t *size_bytes);
/* Keeps a copy if there is room. A failing disk is logged once and is no error. */
void fth_disk_cache_keep(fth_disk_cache *cache, const char *what, const void *bytes, size_t size_bytes);

#endif
