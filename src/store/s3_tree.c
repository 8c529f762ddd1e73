/* See s3_internal.h: the checksum of a large object, made as S3 makes its ETag: the MD5 over the MD5s of its parts. */
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/s3_internal.h"

enum { HASH_THREADS = 4 };

typedef struct fth_s3_hashing {
    const fth_store_source *source;
    uint64_t part_bytes, parts;
    fth_store_meter *meter;
    unsigned char (*digests)[FTH_S3_DIGEST_BYTES];
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
    }
    /* The last part, when shorter, goes by itself, or the others would be cut to its length. */
    bool short_last = count > 1 && sizes[count - 1] < sizes[0];
    fth_md5_lanes(blocks, sizes, count - short_last, hashing->digests + first);
    if (short_last)
        EVP_Digest(blocks[count - 1], sizes[count - 1], hashing->digests[first + (uint64_t)count - 1], NULL, EVP_md5(),
                   NULL);
    if (hashing->meter && !fth_store_meter_add(hashing->meter, 0))
        status = fth_fail(FTH_INTERRUPTED, "cancelled");

out:
    return status;
}

fth_status fth_s3_hash_parts(const fth_store_source *source, uint64_t part_bytes, fth_store_meter *meter,
                             unsigned char (*digests)[FTH_S3_DIGEST_BYTES])
{
    fth_s3_hashing hashing = {.source = source, .part_bytes = part_bytes, .meter = meter, .digests = digests};
    hashing.parts = (source->size_bytes + part_bytes - 1) / part_bytes;
    return fth_store_in_parallel(HASH_THREADS, (hashing.parts + FTH_MD5_LANES - 1) / FTH_MD5_LANES, hash_lanes,
                                 &hashing, NULL);
}

void fth_s3_tree_text(uint64_t part_bytes, unsigned char (*digests)[FTH_S3_DIGEST_BYTES], uint64_t parts, char text[96])
{
    unsigned char digest[FTH_S3_DIGEST_BYTES];
    char hex[2 * FTH_S3_DIGEST_BYTES + 1];
    EVP_Digest(digests, (size_t)parts * FTH_S3_DIGEST_BYTES, digest, NULL, EVP_md5(), NULL);
    fth_hex(digest, sizeof digest, hex);
    snprintf(text, 96, "%" PRIu64 ":%s-%" PRIu64, part_bytes, hex, parts);
}

static fth_status bytes_at(void *context, uint64_t offset, uint64_t size_bytes, const void **bytes)
{
    (void)size_bytes;
    *bytes = (const char *)context + offset;
    return FTH_OK;
}

fth_status fth_s3_check_tree(const char *tree, const void *bytes, uint64_t size_bytes)
{
    fth_status status = FTH_OK;
    unsigned char(*digests)[FTH_S3_DIGEST_BYTES] = NULL;
    char text[96];
    uint64_t part_bytes = strtoull(tree, NULL, 10);
    FTH_REQUIRE(part_bytes > 0 && part_bytes <= UINT64_MAX / 2, FTH_CORRUPT, "its checksum '%.90s' is malformed", tree);
    uint64_t parts = (size_bytes + part_bytes - 1) / part_bytes;
    fth_store_source source = {.context = (void *)bytes, .size_bytes = size_bytes, .at = bytes_at};
    FTH_TRY(fth_allocate((size_t)parts + 1, FTH_S3_DIGEST_BYTES, &digests));
    FTH_TRY(fth_s3_hash_parts(&source, part_bytes, NULL, digests));
    fth_s3_tree_text(part_bytes, digests, parts, text);
    FTH_REQUIRE(strcmp(text, tree) == 0, FTH_CORRUPT, "what arrived is not what was stored (MD5 over its parts)");

out:
    free(digests);
    return status;
}
