/* The shards that a server lists (--shards): their manifest (data/shard/shard_manifest.h), and
 * addresses of them to give out.
 *
 * Of a bucket the addresses are presigned, so that workers need no keys of it; of a folder they are
 * file:// URLs, of a web server its own. */
#ifndef FTH_PARAMETERS_SHARD_LISTING_H
#define FTH_PARAMETERS_SHARD_LISTING_H

#include "data/shard/shard_manifest.h"
#include "parameters/shards.h"

typedef struct fth_shard_listing fth_shard_listing;

/* Reads the manifest at `address` (store/store.h) and looks whether its shards are there. Addresses
 * given out are good for `expiry_s`. */
fth_status fth_shard_listing_open(const char *address, double expiry_s, fth_shard_listing **listing);
void fth_shard_listing_free(fth_shard_listing *listing);

const fth_shard_manifest *fth_shard_listing_manifest(const fth_shard_listing *listing);
const char *fth_shard_listing_address(const fth_shard_listing *listing); /* without secrets */
/* Adds its shards to the table, each to be gone through `epochs` times. */
fth_status fth_shard_listing_add(const fth_shard_listing *listing, int64_t epochs, fth_shards *shards);
/* FTH_INVALID, naming one, if the table has listed shards that this listing has not; `listing` NULL
 * has none. */
fth_status fth_shard_listing_check(const fth_shard_listing *listing, const fth_shards *shards);

/* An address of the shard that anyone can GET; free() it. */
fth_status fth_shard_listing_make_url(const fth_shard_listing *listing, const char *name, char **url);
/* The ETag it had when the listing was opened; "" where that is not known. */
const char *fth_shard_listing_etag(const fth_shard_listing *listing, const char *name);

#endif
