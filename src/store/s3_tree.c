/* See s3_internal.h: checksums of a large object.
 *
 * The parts' MD5s go with the parts, for the server. For the way back, an XXH3 of each 8 MiB goes
 * into the metadata, as the XXH3 over all of them: it is taken from each piece as it arrives, at
 * next to no cost. */
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "store/s3_internal.h"

enum { HASH_THREADS = 4 };

void fth_s3_sum_chunk(const void *bytes, size_t size_bytes, fth_s3_sum *sum)
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, size_bytes));
    memcpy(sum->bytes, canonical.digest, sizeof sum->bytes);
}

struct fth_s3_sum_state {
    XXH3_state_t *xxh3;
};

fth_status fth_s3_sum_add(fth_s3_sum_state **state, bool first, const void *bytes, size_t size_bytes)
{
    fth_status status = FTH_OK;
    if (!*state) {
        FTH_TRY(fth_allocate(1, sizeof **state, state));
        (*state)->xxh3 = XXH3_createState(); /* aligned as its vectors need */
        FTH_REQUIRE((*state)->xxh3, FTH_NO_MEMORY, "no memory for a checksum");
    }
    if (first)
        XXH3_128bits_reset((*state)->xxh3);
    XXH3_128bits_update((*state)->xxh3, bytes, size_bytes);

out:
    return status;
}

void fth_s3_sum_end(fth_s3_sum_state **state, fth_s3_sum *sum)
{
    XXH128_canonical_t canonical;
    if (!*state)
        return;
    if (sum && (*state)->xxh3) {
        XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest((*state)->xxh3));
        memcpy(sum->bytes, canonical.digest, sizeof sum->bytes);
    }
    XXH3_freeState((*state)->xxh3);
    free(*state);
    *state = NULL;
}

void fth_s3_tree_text(uint64_t chunk_bytes, const fth_s3_sum *sums, uint64_t chunks, char text[96])
{
    fth_s3_sum sum;
    char hex[2 * sizeof sum.bytes + 1];
    fth_s3_sum_chunk(sums, (size_t)chunks * sizeof *sums, &sum);
    fth_hex_encode(sum.bytes, sizeof sum.bytes, hex);
    snprintf(text, 96, "xxh3-%" PRIu64 "-%s", chunk_bytes, hex);
}

uint64_t fth_s3_tree_chunk_bytes(const char *tree)
{
    uint64_t chunk_bytes = tree && strncmp(tree, "xxh3-", 5) == 0 ? strtoull(tree + 5, NULL, 10) : 0;
    return chunk_bytes <= FTH_S3_MAX_CHUNK_BYTES ? chunk_bytes : 0;
}

uint64_t fth_s3_count_chunks(uint64_t size_bytes, uint64_t chunk_bytes)
{
    return (size_bytes + chunk_bytes - 1) / chunk_bytes;
}

fth_status fth_s3_check_tree(const char *tree, const void *bytes, uint64_t size_bytes)
{
    fth_status status = FTH_OK;
    fth_s3_sum *sums = NULL;
    char text[96];
    uint64_t chunk_bytes = fth_s3_tree_chunk_bytes(tree);
    if (chunk_bytes == 0) /* of a later version: nothing to compare */
        return FTH_OK;
    uint64_t chunks = fth_s3_count_chunks(size_bytes, chunk_bytes);
    FTH_TRY(fth_allocate((size_t)chunks + 1, sizeof *sums, &sums));
    for (uint64_t i = 0; i < chunks; i++) {
        uint64_t left = size_bytes - i * chunk_bytes;
        fth_s3_sum_chunk((const char *)bytes + i * chunk_bytes, (size_t)(left < chunk_bytes ? left : chunk_bytes),
                         &sums[i]);
    }
    fth_s3_tree_text(chunk_bytes, sums, chunks, text);
    FTH_REQUIRE(strcmp(text, tree) == 0, FTH_CORRUPT, "what arrived is not what was stored (XXH3)");

out:
    free(sums);
    return status;
}

/* ---- before an upload ---- */

typedef struct fth_s3_hashing {
    const fth_store_source *source;
    uint64_t part_bytes, parts;
    fth_store_meter *meter;
    unsigned char (*digests)[FTH_MD5_BYTES];
    fth_s3_sum *sums;
} fth_s3_hashing;

/* As many parts as there are lanes, from part i * lanes on. */
static fth_status hash_lanes(void *context, uint64_t i)
{
    fth_status status = FTH_OK;
    fth_s3_hashing *hashing = context;
    const fth_store_source *source = hashing->source;
    const void *blocks[FTH_MD5_LANES];
    size_t sizes[FTH_MD5_LANES];
    uint64_t first = i * FTH_MD5_LANES, left = hashing->parts - first;
    int count = left < FTH_MD5_LANES ? (int)left : FTH_MD5_LANES;

    for (int lane = 0; lane < count; lane++) {
        uint64_t offset = (first + (uint64_t)lane) * hashing->part_bytes, rest = source->size_bytes - offset;
        sizes[lane] = (size_t)(rest < hashing->part_bytes ? rest : hashing->part_bytes);
        FTH_TRY(source->at(source->context, offset, sizes[lane], &blocks[lane]));
        for (size_t at = 0; at < sizes[lane]; at += FTH_S3_CHUNK_BYTES) /* parts are whole chunks, but for the last */
            fth_s3_sum_chunk((const char *)blocks[lane] + at,
                             sizes[lane] - at < FTH_S3_CHUNK_BYTES ? sizes[lane] - at : FTH_S3_CHUNK_BYTES,
                             &hashing->sums[(offset + at) / FTH_S3_CHUNK_BYTES]);
    }
    /* The last part, when shorter, goes by itself, or the others would be cut to its length. */
    bool short_last = count > 1 && sizes[count - 1] < sizes[0];
    fth_md5_lanes(blocks, sizes, count - short_last, hashing->digests + first);
    if (short_last)
        EVP_Digest(blocks[count - 1], sizes[count - 1], hashing->digests[first + (uint64_t)count - 1], NULL, EVP_md5(),
                   NULL);
    if (!fth_store_meter_add(hashing->meter, 0))
        status = fth_fail(FTH_INTERRUPTED, "cancelled");

out:
    return status;
}

fth_status fth_s3_hash_parts(const fth_store_source *source, uint64_t part_bytes, fth_store_meter *meter,
                             unsigned char (*digests)[FTH_MD5_BYTES], char tree[96])
{
    fth_status status = FTH_OK;
    uint64_t chunks = fth_s3_count_chunks(source->size_bytes, FTH_S3_CHUNK_BYTES);
    fth_s3_hashing hashing = {.source = source, .part_bytes = part_bytes, .meter = meter, .digests = digests};
    hashing.parts = (source->size_bytes + part_bytes - 1) / part_bytes;
    FTH_TRY(fth_allocate((size_t)chunks, sizeof *hashing.sums, &hashing.sums));
    FTH_TRY(fth_store_in_parallel(HASH_THREADS, (hashing.parts + FTH_MD5_LANES - 1) / FTH_MD5_LANES, hash_lanes,
                                  &hashing, NULL));
    fth_s3_tree_text(FTH_S3_CHUNK_BYTES, hashing.sums, chunks, tree);

out:
    free(hashing.sums);
    return status;
}
