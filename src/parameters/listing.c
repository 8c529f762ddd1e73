/* See listing.h. */
#include "parameters/listing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store.h"

struct fth_shard_listing {
    fth_store *store;
    double expiry_s;
    fth_shard_manifest manifest;
};

fth_status fth_shard_listing_open(const char *address, double expiry_s, fth_shard_listing **result)
{
    fth_status status = FTH_OK;
    fth_shard_listing *listing = NULL;
    char *probe = NULL;
    bool found = false;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *listing, &listing));
    listing->expiry_s = expiry_s;
    FTH_TRY(fth_store_open(address, NULL, &listing->store));
    const char *place = fth_store_url(listing->store);
    FTH_TRY(fth_shard_manifest_read(listing->store, &listing->manifest, &found));
    FTH_REQUIRE(found, FTH_INVALID,
                "--shards %s has no %s; make it with `farthing data shard --data NAME --parts N --to %s`", place,
                FTH_SHARD_MANIFEST_NAME, place);
    FTH_TRY(fth_shard_listing_make_url(listing, listing->manifest.shards[0].name, &probe)); /* now, not in an hour */
    *result = listing;
    listing = NULL;

out:
    fth_wipe_text(probe);
    fth_shard_listing_free(listing);
    return status;
}

void fth_shard_listing_free(fth_shard_listing *listing)
{
    if (!listing)
        return;
    fth_shard_manifest_release(&listing->manifest);
    fth_store_free(listing->store);
    free(listing);
}

const fth_shard_manifest *fth_shard_listing_manifest(const fth_shard_listing *listing)
{
    return &listing->manifest;
}

const char *fth_shard_listing_address(const fth_shard_listing *listing)
{
    return fth_store_url(listing->store);
}

fth_status fth_shard_listing_add(const fth_shard_listing *listing, int64_t epochs, fth_shards *shards)
{
    fth_status status = FTH_OK;
    for (size_t i = 0; i < listing->manifest.shard_count; i++) {
        const fth_listed_shard *listed = &listing->manifest.shards[i];
        fth_shard_state shard = {.listed = true, .samples = listed->samples, .epochs = epochs};
        snprintf(shard.name, sizeof shard.name, "%s", listed->name);
        FTH_TRY(fth_shards_add(shards, &shard));
    }

out:
    return status;
}

static bool has(const fth_shard_listing *listing, const char *name)
{
    for (size_t i = 0; listing && i < listing->manifest.shard_count; i++)
        if (strcmp(listing->manifest.shards[i].name, name) == 0)
            return true;
    return false;
}

fth_status fth_shard_listing_check(const fth_shard_listing *listing, const fth_shards *shards)
{
    fth_shard_state shard;
    if (fth_shards_count(shards).listed == (listing ? (int64_t)listing->manifest.shard_count : 0))
        return FTH_OK; /* what is listed was added, so there are no others */
    for (size_t i = 0; fth_shards_get_at(shards, i, &shard); i++)
        if (shard.listed && !has(listing, shard.name))
            return fth_fail(FTH_INVALID,
                            "this training has gone through part of shard %s, which %s; start the server with the "
                            "--shards that it began with",
                            shard.name, listing ? "--shards does not list" : "is listed by --shards, which is missing");
    return FTH_OK;
}

fth_status fth_shard_listing_make_url(const fth_shard_listing *listing, const char *name, char **url)
{
    return fth_shard_make_url(listing->store, name, listing->expiry_s, url);
}
