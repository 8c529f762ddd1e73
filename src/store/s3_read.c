/* See s3_internal.h: reading. What comes back is checked against the checksum kept with it: ours
 * ("sha256" or "tree" in the metadata), else the ETag where that is an MD5, or Google's MD5. All of
 * them are of whole objects: a part of one is not checked. */
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "store/s3_internal.h"

/* ---- checksums ---- */

/* The ETag where it is an MD5: 32 hex digits, and no encryption that makes it something else. With
 * S3's own keys (AES256), which is how buckets of AWS are, it is that of the plain bytes. */
static bool is_md5(const fth_store_version *version, const fth_http_response *response)
{
    char *encrypted = fth_http_header(response, "x-amz-server-side-encryption");
    char *customer = fth_http_header(response, "x-amz-server-side-encryption-customer-algorithm");
    bool plain = (!encrypted || strcmp(encrypted, "AES256") == 0) && !customer && fth_hex_is_valid(version->text, 32);
    free(encrypted);
    free(customer);
    return plain;
}

/* Whether an answer has the whole object, which the range of a small one is. */
static bool is_whole(const fth_http_response *response, size_t size_bytes)
{
    unsigned long long first = 0, last = 0, whole = 0;
    if (response->code != 206)
        return true;
    char *range = fth_http_header(response, "Content-Range");
    bool all =
        range && sscanf(range, "bytes %llu-%llu/%llu", &first, &last, &whole) == 3 && first == 0 && whole == size_bytes;
    free(range);
    return all;
}

/* The MD5 that Google tells in base64, in one of its lines of hashes, as hex digits: of what is
 * stored, which is what came unless that was decompressed on the way. */
static bool find_google_md5(const fth_http_response *response, char hex[33])
{
    unsigned char md5[32];
    char *encoding = fth_http_header(response, "x-goog-stored-content-encoding");
    bool as_stored = !encoding || strcmp(encoding, "identity") == 0;
    free(encoding);
    for (const char *line = response->headers; as_stored && line; line = strchr(line, '\n')) {
        line += *line == '\n';
        size_t length = strcspn(line, "\r\n");
        const char *found = strncasecmp(line, "x-goog-hash:", 12) == 0 ? strstr(line, "md5=") : NULL;
        if (!found || found + 4 + 24 > line + length ||
            EVP_DecodeBlock(md5, (const unsigned char *)found + 4, 24) != 18)
            continue;
        fth_hex_encode(md5, 16, hex);
        return true;
    }
    return false;
}

static fth_status check_md5(const void *bytes, size_t size_bytes, const char *expected)
{
    unsigned char md5[EVP_MAX_MD_SIZE];
    char hex[33];
    EVP_Digest(bytes, size_bytes, md5, NULL, EVP_md5(), NULL);
    fth_hex_encode(md5, 16, hex);
    return strcmp(hex, expected) == 0 ? FTH_OK : fth_fail(FTH_CORRUPT, "what arrived is not what was stored (MD5)");
}

fth_status fth_s3_verify(const fth_store *store, const fth_http_response *response, const void *bytes,
                         size_t size_bytes)
{
    fth_status status = FTH_OK;
    fth_store_version version;
    char hex[65];
    if (!is_whole(response, size_bytes))
        return FTH_OK;
    char *sha256 = fth_bucket_meta(store, response, "sha256"), *tree = fth_bucket_meta(store, response, "tree");

    fth_bucket_version(store, response, &version);
    if (sha256 && strlen(sha256) == 64) {
        fth_hex_sha256(bytes, size_bytes, hex);
        FTH_REQUIRE(strcmp(hex, sha256) == 0, FTH_CORRUPT, "what arrived is not what was stored (SHA-256)");
    } else if (tree) {
        FTH_TRY(fth_s3_check_tree(tree, bytes, size_bytes));
    } else if (fth_s3_of(store)->google ? find_google_md5(response, hex) : is_md5(&version, response)) {
        FTH_TRY(check_md5(bytes, size_bytes, fth_s3_of(store)->google ? hex : version.text));
    }

out:
    free(sha256);
    free(tree);
    return status;
}

/* ---- files ---- */

/* The checksums of a large object's chunks, taken as they arrive. */
typedef struct fth_s3_arrivals {
    const char *tree;
    fth_s3_sum_state **states; /* of each chunk that has begun */
    fth_s3_sum *sums;
    uint64_t chunk_bytes, chunks;
} fth_s3_arrivals;

static fth_status sum_piece(void *context, uint64_t i, uint64_t offset, const void *bytes, size_t size_bytes)
{
    fth_s3_arrivals *arrivals = context;
    return fth_s3_sum_add(&arrivals->states[i], offset == 0, bytes, size_bytes);
}

static fth_status compare_sums(void *context)
{
    fth_s3_arrivals *arrivals = context;
    char text[96];
    for (uint64_t i = 0; i < arrivals->chunks; i++)
        fth_s3_sum_end(&arrivals->states[i], &arrivals->sums[i]);
    fth_s3_tree_text(arrivals->chunk_bytes, arrivals->sums, arrivals->chunks, text);
    return strcmp(text, arrivals->tree) == 0 ? FTH_OK
                                             : fth_fail(FTH_CORRUPT, "what arrived is not what was stored (XXH3)");
}

fth_status fth_s3_get_file(fth_store *store, const char *key, const char *path, const fth_store_progress *progress,
                           char sha256[65])
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_store_object object = {0};
    fth_s3_arrivals arrivals = {0};
    char *whole = NULL, *tree = NULL, *name = fth_store_describe(store, key);
    bool found = false;

    FTH_TRY(fth_bucket_head(store, key, fth_store_deadline(store), &response, &found));
    FTH_REQUIRE(found, FTH_INVALID, "%s: there is no such object", name);
    FTH_TRY(fth_bucket_describe(store, key, &response, &object));
    tree = fth_bucket_meta(store, &response, "tree");
    whole = fth_bucket_meta(store, &response, "sha256");
    fth_store_fetch fetch = {.key = key, .path = path, .object = &object, .progress = progress, .sha256 = sha256};
    fetch.range_to = fth_bucket_get_range_to;
    if (whole && strlen(whole) == 64) {
        fetch.digest_name = "SHA256";
        fetch.digest_expected = whole;
    } else if (fth_s3_tree_chunk_bytes(tree) > 0) {
        arrivals.tree = tree;
        arrivals.chunk_bytes = fth_s3_tree_chunk_bytes(tree);
        arrivals.chunks = fth_s3_count_chunks(object.size_bytes, arrivals.chunk_bytes);
        FTH_TRY(fth_allocate((size_t)arrivals.chunks + 1, sizeof *arrivals.sums, &arrivals.sums));
        FTH_TRY(fth_allocate((size_t)arrivals.chunks + 1, sizeof *arrivals.states, &arrivals.states));
        fetch.piece_bytes = arrivals.chunk_bytes;
        fetch.piece = sum_piece;
        fetch.check = compare_sums;
        fetch.context = &arrivals;
    } else if (!fth_s3_of(store)->google && is_md5(&object.version, &response)) {
        fetch.digest_name = "MD5";
        fetch.digest_expected = object.version.text;
    }
    FTH_TRY(fth_store_fetch_file(store, &fetch));

out:
    fth_http_response_release(&response);
    fth_store_object_release(&object);
    for (uint64_t i = 0; arrivals.states && i < arrivals.chunks; i++)
        fth_s3_sum_end(&arrivals.states[i], NULL);
    free(arrivals.states);
    free(arrivals.sums);
    free(tree);
    free(whole);
    free(name);
    return status;
}
