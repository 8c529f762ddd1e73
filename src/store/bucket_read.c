/* See bucket_internal.h: reading. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/bucket_internal.h"

/* A get whose bytes are not those that were stored is asked for again. */
static fth_status verify(void *context, const fth_http_response *response)
{
    const fth_bucket_request *request = context;
    const void *bytes = request->into ? request->into : response->body;
    return fth_bucket_of(request->store)->cloud->verify(request->store, response, bytes, (size_t)response->body_bytes);
}

/* ---- get ---- */

fth_status fth_bucket_get(fth_store *store, const char *key, size_t max_bytes, fth_deadline deadline, char **bytes,
                          size_t *size_bytes, fth_store_version *version)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_bucket_request request = {.store = store,
                                  .what = "get",
                                  .method = "GET",
                                  .key = key,
                                  .max_body_bytes = max_bytes ? max_bytes : 1,
                                  .check = verify,
                                  .deadline = deadline};
    FTH_TRY(fth_bucket_send(&request, &response));
    if (fth_bucket_says_absent(store, &response))
        goto out;
    if (response.code != 200) {
        status = fth_bucket_explain(&request, &response);
        goto out;
    }
    FTH_REQUIRE(response.body_bytes <= max_bytes, FTH_INVALID, "get %s: more than the %zu bytes that are accepted",
                request.name, max_bytes);
    fth_bucket_version(store, &response, version);
    *bytes = response.body;
    *size_bytes = (size_t)response.body_bytes;
    response.body = NULL;

out:
    fth_http_response_release(&response);
    fth_bucket_end(&request);
    return status;
}

/* ---- ranges ---- */

/* Sends a request that says where its bytes go. */
static fth_status get_range(fth_bucket_request *request, uint64_t offset, size_t size_bytes,
                            const fth_store_version *version)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    uint64_t end = offset + size_bytes;
    request->what = "get";
    request->method = "GET";
    request->into_bytes = size_bytes;
    fth_bucket_add_made_header(request, fth_bucket_of(request->store)->cloud->range,
                               fth_format("bytes=%" PRIu64 "-%" PRIu64, offset, end - 1));
    if (version && version->text[0])
        fth_bucket_add_match(request, version);
    FTH_TRY(fth_bucket_send(request, &response));
    FTH_REQUIRE(response.code != 412, FTH_CORRUPT, "get %s: the object has been replaced meanwhile", request->name);
    FTH_REQUIRE(response.code != 416, FTH_CORRUPT, "get %s: the object is shorter than %" PRIu64 " bytes",
                request->name, end);
    /* A whole answer to a range from the beginning is as good. */
    if (response.code != 206 && !(response.code == 200 && offset == 0)) {
        status = fth_bucket_explain(request, &response);
        goto out;
    }
    FTH_REQUIRE(response.body_bytes == size_bytes, FTH_CORRUPT, "get %s: the object is shorter than %" PRIu64 " bytes",
                request->name, end);

out:
    fth_http_response_release(&response);
    fth_bucket_end(request);
    return status;
}

fth_status fth_bucket_get_range(fth_store *store, const char *key, uint64_t offset, void *into, size_t size_bytes,
                                const fth_store_version *version, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    size_t most = fth_bucket_of(store)->cloud->most_range_bytes;
    most = most ? most : size_bytes;
    for (size_t at = 0; at < size_bytes; at += most) {
        fth_bucket_request request = {
            .store = store, .key = key, .deadline = deadline, .into = (char *)into + at, .check = verify};
        FTH_TRY(get_range(&request, offset + at, size_bytes - at < most ? size_bytes - at : most, version));
    }

out:
    return status;
}

fth_status fth_bucket_get_range_to(fth_store *store, const char *key, uint64_t offset, size_t size_bytes,
                                   const fth_store_version *version, fth_deadline deadline, const fth_store_sink *sink)
{
    fth_bucket_request request = {.store = store, .key = key, .deadline = deadline, .sink = *sink};
    return get_range(&request, offset, size_bytes, version);
}

/* ---- stat ---- */

/* Where the answer to a HEAD that failed does not tell why, it is asked again in a way that
 * does. */
static fth_status explain_head(fth_store *store, const char *key, bool absent, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_bucket_request request = {.store = store, .what = "look at", .method = "GET", .key = key, .deadline = deadline};
    fth_bucket_add_header(&request, fth_bucket_of(store)->cloud->range, "bytes=0-0");
    FTH_TRY(fth_bucket_send(&request, &response));
    if (absent && (response.code < 300 || fth_bucket_says_absent(store, &response)))
        goto out; /* it is the object, then, that is missing, or was until now */
    FTH_REQUIRE(response.code >= 300, FTH_IO, "look at %s: it can be read, but HEAD is refused", request.name);
    status = fth_bucket_explain(&request, &response);

out:
    fth_http_response_release(&response);
    fth_bucket_end(&request);
    return status;
}

fth_status fth_bucket_head(fth_store *store, const char *key, fth_deadline deadline, fth_http_response *response,
                           bool *found)
{
    fth_status status = FTH_OK;
    fth_bucket *bucket = fth_bucket_of(store);
    fth_bucket_request request = {
        .store = store, .what = "look at", .method = "HEAD", .key = key, .deadline = deadline};
    *found = false;
    FTH_TRY(fth_bucket_send(&request, response));
    *found = response->code == 200;
    if (*found)
        goto out;
    bool absent = fth_bucket_says_absent(store, response);
    if (bucket->cloud->mute_heads && !(absent && atomic_load(&bucket->seen)))
        FTH_TRY(explain_head(store, key, absent, deadline));
    else if (!absent)
        status = fth_bucket_explain(&request, response);

out:
    fth_bucket_end(&request);
    return status;
}

fth_status fth_bucket_describe(const fth_store *store, const char *key, const fth_http_response *response,
                               fth_store_object *object)
{
    fth_status status = FTH_OK;
    char *length = fth_http_header(response, "Content-Length"), *date = fth_http_header(response, "Last-Modified");
    char *end = NULL;
    object->size_bytes = length ? strtoull(length, &end, 10) : 0;
    FTH_REQUIRE(length && end != length && !*end, FTH_CORRUPT, "look at %s: the server does not say how large it is",
                key);
    object->modified_s = fth_bucket_read_time(date);
    fth_bucket_version(store, response, &object->version);

out:
    free(length);
    free(date);
    return status;
}

fth_status fth_bucket_stat(fth_store *store, const char *key, fth_deadline deadline, fth_store_object *object,
                           bool *found)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    FTH_TRY(fth_bucket_head(store, key, deadline, &response, found));
    if (*found)
        FTH_TRY(fth_bucket_describe(store, key, &response, object));

out:
    fth_http_response_release(&response);
    return status;
}
