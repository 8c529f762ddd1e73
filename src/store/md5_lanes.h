/* MD5 of several blocks of bytes at once, a lane of the vector registers each.
 *
 * S3 servers compute the MD5 of every part anyway, as its ETag, so a Content-MD5 costs them nothing
 * to check, where a SHA-256 in the signature costs a second pass. MD5 itself cannot be parallel,
 * but parts can: 16 lanes hash some ten times as fast as one (bench/RESULTS.md), which makes the
 * check of both directions nearly free. */
#ifndef FTH_STORE_MD5_LANES_H
#define FTH_STORE_MD5_LANES_H

#include <stddef.h>

enum { FTH_MD5_LANES = 16, FTH_MD5_BYTES = 16 };

/* digests[i] of sizes[i] bytes at blocks[i], for count <= FTH_MD5_LANES. Fastest where the sizes
 * are equal. */
void fth_md5_lanes(const void *const *blocks, const size_t *sizes, int count, unsigned char digests[][FTH_MD5_BYTES]);

#endif
