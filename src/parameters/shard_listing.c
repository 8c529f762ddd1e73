/* See shard_listing.h. */
#include "parameters/shard_listing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store.h"

/* A shard and its object in the store. */
typedef struct listed_object {
    const fth_listed_shard *shard;
    bool there;
    uint64_t size_bytes;
    char etag[sizeof(fth_store_version)]; /* "": unknown */
} listed_object;

struct fth_shard_listing {
    fth_store *store;
    double expiry_s;
    fth_shard_manifest manifest;
    listed_object *objects; /* sorted by name */
};

/* ---- the objects there are ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const listed_object *)a)->shard->name, ((const listed_object *)b)->shard->name);
}

static listed_object *find(const fth_shard_listing *listing, const char *name)
{
    const fth_listed_shard wanted = {.name = (char *)name};
    const listed_object key = {.shard = &wanted};
    return bsearch(&key, listing->objects, listing->manifest.shard_count, sizeof *listing->objects, by_name);
}

static bool note_object(void *context, const fth_store_object *object)
{
    const fth_shard_listing *listing = context;
    listed_object *found = find(listing, object->key);
    if (!found)
        return true;
    found->there = true;
    found->size_bytes = object->size_bytes;
    if (strncmp(fth_store_url(listing->store), "s3://", 5) == 0) /* other stores' versions are not ETags */
        snprintf(found->etag, sizeof found->etag, "%s", object->version.text);
    return true;
}

/* Checks once that every shard exists with its full size, so that a missing shard fails here and
 * not in every function. */
static fth_status find_objects(fth_shard_listing *listing)
{
    fth_status status = FTH_OK;
    const char *place = fth_store_url(listing->store);
    const size_t count = listing->manifest.shard_count;

    FTH_TRY(fth_allocate(count, sizeof *listing->objects, &listing->objects));
    for (size_t i = 0; i < count; i++)
        listing->objects[i].shard = &listing->manifest.shards[i];
    qsort(listing->objects, count, sizeof *listing->objects, by_name);
    if (!fth_store_can_list(listing->store))
        goto out;
    if (fth_store_list(listing->store, "", note_object, listing) != FTH_OK) {
        fth_log_info("cannot check that the shards exist: %s", fth_error_message());
        goto out; /* a key that may read objects may lack the right to list them */
    }
    for (size_t i = 0; i < count; i++) {
        const listed_object *object = &listing->objects[i];
        FTH_REQUIRE(object->there, FTH_INVALID, "shard %s, listed in %s/%s, does not exist", object->shard->name, place,
                    FTH_SHARD_MANIFEST_NAME);
        FTH_REQUIRE(object->size_bytes == object->shard->size_bytes, FTH_CORRUPT,
                    "shard %s in %s has %" PRIu64 " bytes, but %s says %" PRIu64, object->shard->name, place,
                    object->size_bytes, FTH_SHARD_MANIFEST_NAME, object->shard->size_bytes);
    }

out:
    return status;
}

/* ---- opening ---- */

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
    FTH_TRY(find_objects(listing));
    FTH_TRY(fth_shard_listing_make_url(listing, listing->manifest.shards[0].name,
                                       &probe)); /* fails now rather than at the first lease */
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
    free(listing->objects);
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

/* ---- the table of places ---- */

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

fth_status fth_shard_listing_check(const fth_shard_listing *listing, const fth_shards *shards)
{
    fth_shard_state shard;
    for (size_t i = 0; fth_shards_get_at(shards, i, &shard); i++)
        if (shard.listed && (!listing || !find(listing, shard.name)))
            return fth_fail(FTH_INVALID,
                            "this training uses shard %s, which %s; start the server with the --shards that it "
                            "began with",
                            shard.name, listing ? "--shards does not list" : "needs --shards");
    return FTH_OK;
}

/* ---- addresses ---- */

fth_status fth_shard_listing_make_url(const fth_shard_listing *listing, const char *name, char **url)
{
    return fth_shard_make_url(listing->store, name, listing->expiry_s, url);
}

const char *fth_shard_listing_etag(const fth_shard_listing *listing, const char *name)
{
    const listed_object *object = find(listing, name);
    return object ? object->etag : "";
}
