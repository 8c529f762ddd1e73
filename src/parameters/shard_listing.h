/* The shards that a server lists (--shards): their manifest (data/shard/shard_manifest.h), and the
 * addresses that workers get. Addresses in a bucket are presigned, so that workers need no keys;
 * those in a folder are file:// URLs, those of a web server its own URLs. */
#ifndef FTH_PARAMETERS_SHARD_LISTING_H
#define FTH_PARAMETERS_SHARD_LISTING_H

#include "data/shard/shard_manifest.h"
#include "parameters/shards.h"

typedef struct fth_shard_listing fth_shard_listing;

/* Reads the manifest at `address` (store/store.h) and checks that its shards exist. Presigned
 * addresses are valid for `expiry_s`. */
fth_status fth_shard_listing_open(const char *address, double expiry_s, fth_shard_listing **listing);
void fth_shard_listing_free(fth_shard_listing *listing);

const fth_shard_manifest *fth_shard_listing_manifest(const fth_shard_listing *listing);
const char *fth_shard_listing_address(const fth_shard_listing *listing); /* without secrets */
/* Adds the listed shards to the table, each for `epochs` epochs. */
fth_status fth_shard_listing_add(const fth_shard_listing *listing, int64_t epochs, fth_shards *shards);
/* FTH_INVALID, naming one, if the table has listed shards that are not in `listing` (may be
 * NULL). */
fth_status fth_shard_listing_check(const fth_shard_listing *listing, const fth_shards *shards);

/* An address that anyone can GET the shard from; free() it. */
fth_status fth_shard_listing_make_url(const fth_shard_listing *listing, const char *name, char **url);
/* The shard's ETag when the listing was opened; "" if unknown. */
const char *fth_shard_listing_etag(const fth_shard_listing *listing, const char *name);

#endif
