/* See s3_internal.h: reading. What comes back is checked against the checksum kept with it: ours ("sha256" or "tree"
 * in the metadata), else the ETag where that is an MD5. */
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "store/s3_internal.h"

enum { LIST_BODY_BYTES = 64 << 20 };

/* ---- checksums ---- */

/* The ETag where it is an MD5: 32 hex digits, and no encryption that makes it something else. */
static bool is_md5(const fth_store_version *version, const fth_http_response *response)
{
    char *encrypted = fth_http_header(response, "x-amz-server-side-encryption");
    char *customer = fth_http_header(response, "x-amz-server-side-encryption-customer-algorithm");
    bool plain =
        !encrypted && !customer && strlen(version->text) == 32 && strspn(version->text, "0123456789abcdef") == 32;
    free(encrypted);
    free(customer);
    return plain;
}

/* Compares the bytes of a whole object with what the answer's headers say of them. */
static fth_status verify(const fth_s3 *s3, const fth_http_response *response, const void *bytes, size_t size_bytes)
{
    fth_status status = FTH_OK;
    fth_store_version version;
    char hex[65];
    unsigned char md5[EVP_MAX_MD_SIZE];
    char *sha256 = fth_s3_meta(s3, response, "sha256"), *tree = fth_s3_meta(s3, response, "tree");

    fth_s3_version(s3, response, &version);
    if (sha256 && strlen(sha256) == 64) {
        fth_sha256_hex(bytes, size_bytes, hex);
        FTH_REQUIRE(strcmp(hex, sha256) == 0, FTH_CORRUPT, "what arrived is not what was stored (SHA-256)");
    } else if (tree) {
        FTH_TRY(fth_s3_check_tree(tree, bytes, size_bytes));
    } else if (!s3->google && is_md5(&version, response)) {
        EVP_Digest(bytes, size_bytes, md5, NULL, EVP_md5(), NULL);
        fth_hex(md5, 16, hex);
        FTH_REQUIRE(strcmp(hex, version.text) == 0, FTH_CORRUPT, "what arrived is not what was stored (MD5)");
    }

out:
    free(sha256);
    free(tree);
    return status;
}

static fth_status verify_body(void *context, const fth_http_response *response)
{
    fth_s3_request *request = context;
    return verify(fth_s3_of(request->store), response, response->body, (size_t)response->body_bytes);
}

/* ---- get ---- */

/* An answer of 404 that is about the bucket is an error, one about the object is not. */
static bool says_no_object(const fth_http_response *response)
{
    if (response->code != 404)
        return false;
    char *code = fth_s3_xml_value(response->body, response->body_bytes, "Code");
    bool bucket = code && strcmp(code, "NoSuchBucket") == 0;
    free(code);
    return !bucket;
}

fth_status fth_s3_get(fth_store *store, const char *key, size_t max_bytes, fth_deadline deadline, char **bytes,
                      size_t *size_bytes, fth_store_version *version)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_s3_request request = {.store = store,
                              .what = "get",
                              .method = "GET",
                              .key = key,
                              .max_body_bytes = max_bytes,
                              .check = verify_body,
                              .deadline = deadline};
    FTH_TRY(fth_s3_send(&request, &response));
    if (says_no_object(&response))
        goto out;
    if (response.code != 200) {
        status = fth_s3_explain(&request, &response);
        goto out;
    }
    fth_s3_version(fth_s3_of(store), &response, version);
    *bytes = response.body;
    *size_bytes = (size_t)response.body_bytes;
    response.body = NULL;

out:
    fth_http_response_release(&response);
    fth_s3_release(&request);
    return status;
}

/* Into memory, or to a function as it comes. */
static fth_status get_range(fth_store *store, const char *key, uint64_t offset, void *into, const fth_store_sink *sink,
                            size_t size_bytes, const fth_store_version *version, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_s3_request request = {.store = store,
                              .what = "get",
                              .method = "GET",
                              .key = key,
                              .into = into,
                              .into_bytes = size_bytes,
                              .sink = sink ? sink->take : NULL,
                              .sink_context = sink ? sink->context : NULL,
                              .deadline = deadline};
    fth_s3_add_made_header(&request, "range",
                           fth_format("bytes=%" PRIu64 "-%" PRIu64, offset, offset + size_bytes - 1));
    if (version && version->text[0])
        fth_s3_add_match(&request, version);
    FTH_TRY(fth_s3_send(&request, &response));
    FTH_REQUIRE(response.code != 412, FTH_CORRUPT, "get %s: the object has been replaced meanwhile", request.name);
    FTH_REQUIRE(response.code != 416, FTH_CORRUPT, "get %s: the object is shorter than %" PRIu64 " bytes", request.name,
                offset + size_bytes);
    /* A whole answer to a range from the beginning is as good. */
    if (response.code != 206 && !(response.code == 200 && offset == 0)) {
        status = fth_s3_explain(&request, &response);
        goto out;
    }
    FTH_REQUIRE(response.body_bytes == size_bytes, FTH_CORRUPT, "get %s: the object is shorter than %" PRIu64 " bytes",
                request.name, offset + size_bytes);

out:
    fth_http_response_release(&response);
    fth_s3_release(&request);
    return status;
}

fth_status fth_s3_get_range(fth_store *store, const char *key, uint64_t offset, void *into, size_t size_bytes,
                            const fth_store_version *version, fth_deadline deadline)
{
    return get_range(store, key, offset, into, NULL, size_bytes, version, deadline);
}

static fth_status get_range_to(fth_store *store, const char *key, uint64_t offset, size_t size_bytes,
                               const fth_store_version *version, fth_deadline deadline, const fth_store_sink *sink)
{
    return get_range(store, key, offset, NULL, sink, size_bytes, version, deadline);
}

/* ---- stat ---- */

/* A HEAD's answer has no body, so one that failed is asked again in a way that has. */
static fth_status explain_head(fth_store *store, const char *key, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_s3_request request = {.store = store, .what = "look at", .method = "GET", .key = key, .deadline = deadline};
    fth_s3_add_header(&request, "range", "bytes=0-0");
    FTH_TRY(fth_s3_send(&request, &response));
    status = response.code < 300 ? fth_fail(FTH_IO, "look at %s: it can be read, but HEAD is refused", request.name)
                                 : fth_s3_explain(&request, &response);

out:
    fth_http_response_release(&response);
    fth_s3_release(&request);
    return status;
}

/* Nor does a 404 to HEAD tell a missing bucket from a missing object. */
static fth_status check_bucket(fth_store *store, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    fth_s3 *s3 = fth_s3_of(store);
    fth_http_response response = {0};
    fth_s3_request request = {.store = store, .what = "list", .method = "GET", .deadline = deadline};
    pthread_mutex_lock(&s3->mutex);
    bool seen = s3->bucket_seen;
    pthread_mutex_unlock(&s3->mutex);
    if (seen)
        goto out;
    fth_s3_add_query(&request, "list-type", "2");
    fth_s3_add_query(&request, "max-keys", "1");
    FTH_TRY(fth_s3_send(&request, &response));
    if (response.code == 404)
        status = fth_s3_explain(&request, &response);

out:
    fth_http_response_release(&response);
    fth_s3_release(&request);
    return status;
}

fth_status fth_s3_head(fth_store *store, const char *key, fth_deadline deadline, fth_http_response *response,
                       bool *found)
{
    fth_status status = FTH_OK;
    fth_s3_request request = {.store = store, .what = "look at", .method = "HEAD", .key = key, .deadline = deadline};
    *found = false;
    FTH_TRY(fth_s3_send(&request, response));
    *found = response->code == 200;
    if (response->code == 404)
        FTH_TRY(check_bucket(store, deadline));
    else if (!*found)
        FTH_TRY(explain_head(store, key, deadline));

out:
    fth_s3_release(&request);
    return status;
}

static fth_status object_of(const fth_s3 *s3, const char *key, const fth_http_response *response,
                            fth_store_object *object)
{
    fth_status status = FTH_OK;
    char *length = fth_http_header(response, "Content-Length"), *date = fth_http_header(response, "Last-Modified");
    char *end = NULL;
    struct tm parts = {0};
    object->size_bytes = length ? strtoull(length, &end, 10) : 0;
    FTH_REQUIRE(length && end != length && !*end, FTH_CORRUPT, "look at %s: the server does not say how large it is",
                key);
    if (date && strptime(date, "%a, %d %b %Y %H:%M:%S", &parts))
        object->modified_s = (double)timegm(&parts);
    fth_s3_version(s3, response, &object->version);
    object->key = strdup(key);

out:
    free(length);
    free(date);
    return status;
}

fth_status fth_s3_stat(fth_store *store, const char *key, fth_deadline deadline, fth_store_object *object, bool *found)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    FTH_TRY(fth_s3_head(store, key, deadline, &response, found));
    if (*found)
        FTH_TRY(object_of(fth_s3_of(store), key, &response, object));

out:
    fth_http_response_release(&response);
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
    fth_s3 *s3 = fth_s3_of(store);
    fth_http_response response = {0};
    fth_store_object object = {0};
    fth_s3_arrivals arrivals = {0};
    char *whole = NULL, *tree = NULL, *name = fth_store_describe(store, key);
    bool found = false;

    FTH_TRY(fth_s3_head(store, key, fth_store_deadline(store), &response, &found));
    FTH_REQUIRE(found, FTH_INVALID, "%s: there is no such object", name);
    FTH_TRY(object_of(s3, key, &response, &object));
    tree = fth_s3_meta(s3, &response, "tree");
    whole = fth_s3_meta(s3, &response, "sha256");
    fth_store_fetch fetch = {.key = key, .path = path, .object = &object, .progress = progress, .sha256 = sha256};
    fetch.range_to = get_range_to;
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
    } else if (!s3->google && is_md5(&object.version, &response)) {
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

/* ---- list ---- */

typedef struct fth_s3_page {
    fth_s3 *s3;
    bool (*visit)(void *context, const fth_store_object *object);
    void *context;
    bool ended, more;
    char *token;
    char *key; /* of the entry being read */
    fth_store_object object;
} fth_s3_page;

static fth_status take_leaf(void *context, const char *path, const char *text)
{
    fth_s3_page *page = context;
    struct tm parts = {0};
    static const char entry[] = "ListBucketResult/Contents/";
    if (strcmp(path, "ListBucketResult/IsTruncated") == 0) {
        page->more = strcmp(text, "true") == 0;
    } else if (strcmp(path, "ListBucketResult/NextContinuationToken") == 0) {
        free(page->token);
        page->token = strdup(text);
    } else if (strncmp(path, entry, sizeof entry - 1) == 0) {
        const char *name = path + sizeof entry - 1;
        if (strcmp(name, "Key") == 0) {
            free(page->key);
            page->key = strdup(text);
        } else if (strcmp(name, "Size") == 0) {
            page->object.size_bytes = strtoull(text, NULL, 10);
        } else if (strcmp(name, "LastModified") == 0 && strptime(text, "%Y-%m-%dT%H:%M:%S", &parts)) {
            page->object.modified_s = (double)timegm(&parts);
        } else if (strcmp(name, "ETag") == 0 && !page->s3->google) {
            size_t length = strlen(text);
            bool quoted = length >= 2 && text[0] == '"' && text[length - 1] == '"';
            snprintf(page->object.version.text, sizeof page->object.version.text, "%.*s",
                     (int)(quoted ? length - 2 : length), text + quoted);
        } else if (strcmp(name, "Generation") == 0 && page->s3->google) {
            snprintf(page->object.version.text, sizeof page->object.version.text, "%s", text);
        }
    }
    return FTH_OK;
}

static fth_status take_entry(void *context, const char *path)
{
    fth_s3_page *page = context;
    if (strcmp(path, "ListBucketResult/Contents") != 0)
        return FTH_OK;
    size_t prefix_length = strlen(page->s3->prefix);
    if (page->key && !page->ended && strncmp(page->key, page->s3->prefix, prefix_length) == 0) {
        page->object.key = page->key + prefix_length;
        /* Empty objects named "folder/", which consoles make, are none of ours, nor are our own probes. */
        if (fth_store_key_is_fine(page->object.key) && strncmp(page->object.key, ".farthing/", 10) != 0)
            page->ended = !page->visit(page->context, &page->object);
    }
    free(page->key);
    page->key = NULL;
    page->object = (fth_store_object){0};
    return FTH_OK;
}

static fth_status list_page(fth_store *store, const char *prefix, fth_s3_page *page)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    char *token = page->token;
    fth_s3_request request = {.store = store,
                              .what = "list",
                              .method = "GET",
                              .max_body_bytes = LIST_BODY_BYTES,
                              .deadline = fth_store_deadline(store)};
    fth_xml_visitor visitor = {.leaf = take_leaf, .close = take_entry, .context = page};
    page->token = NULL;
    page->more = false;
    fth_s3_add_query(&request, "list-type", "2");
    fth_s3_add_query(&request, "prefix", prefix);
    if (token)
        fth_s3_add_query(&request, "continuation-token", token);
    FTH_TRY(fth_s3_send(&request, &response));
    if (response.code != 200) {
        status = fth_s3_explain(&request, &response);
        goto out;
    }
    status = fth_s3_read_xml(response.body, (size_t)response.body_bytes, &visitor);
    if (status != FTH_OK) {
        status = fth_fail_within(status, "list %s", store->url);
        goto out;
    }
    FTH_REQUIRE(!page->more || page->token, FTH_CORRUPT, "list %s: the server says that there is more, but not where",
                store->url);
    FTH_REQUIRE(!page->more || !token || strcmp(token, page->token) != 0, FTH_CORRUPT,
                "list %s: the server gives the same page again and again", store->url);

out:
    fth_http_response_release(&response);
    fth_s3_release(&request);
    free(token);
    free(page->key);
    page->key = NULL;
    return status;
}

fth_status fth_s3_list(fth_store *store, const char *prefix, bool (*visit)(void *context, const fth_store_object *),
                       void *context)
{
    fth_status status = FTH_OK;
    fth_s3 *s3 = fth_s3_of(store);
    fth_s3_page page = {.s3 = s3, .visit = visit, .context = context, .more = true};
    char *whole = fth_format("%s%s", s3->prefix, prefix);
    while (page.more && !page.ended)
        FTH_TRY(list_page(store, whole, &page));

out:
    free(whole);
    free(page.token);
    return status;
}
