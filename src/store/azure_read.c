/* See azure_internal.h: get, ranges, stat and list. */
#include <curl/curl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/azure_internal.h"
#include "store/s3_internal.h" /* its XML scanner */

enum { CHECKED_RANGE_BYTES = 4 << 20 }; /* the service adds a checksum to ranges up to here */

fth_status fth_azure_get(fth_store *store, const char *key, size_t max_bytes, fth_deadline deadline, char **bytes,
                         size_t *size_bytes, fth_store_version *version)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_azure_request request = {.store = store,
                                 .what = "get",
                                 .method = "GET",
                                 .key = key,
                                 .deadline = deadline,
                                 .max_body_bytes = max_bytes ? max_bytes : 1};
    FTH_TRY(fth_azure_send(&request, &response));
    if (response.code == 404 && !fth_azure_says(&response, "ContainerNotFound"))
        goto out;
    if (response.code != 200) {
        status = fth_azure_explain(&request, &response);
        goto out;
    }
    FTH_REQUIRE(response.body_bytes <= max_bytes, FTH_INVALID, "get %s: more than the %zu bytes that are accepted",
                request.name, max_bytes);
    if (!response.body)
        FTH_TRY(fth_allocate(1, 1, &response.body));
    fth_azure_version(&response, version);
    *bytes = response.body;
    *size_bytes = response.body_bytes;
    response.body = NULL;

out:
    fth_azure_release(&request);
    fth_http_response_release(&response);
    return status;
}

static fth_status get_checked_range(fth_store *store, const char *key, uint64_t offset, void *into, size_t size_bytes,
                                    const fth_store_version *version, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    char range[64];
    fth_azure_request request = {.store = store,
                                 .what = "get",
                                 .method = "GET",
                                 .key = key,
                                 .deadline = deadline,
                                 .into = into,
                                 .into_bytes = size_bytes};
    snprintf(range, sizeof range, "bytes=%" PRIu64 "-%" PRIu64, offset, offset + size_bytes - 1);
    fth_azure_add_header(&request, "x-ms-range", range);
    fth_azure_add_header(&request, "x-ms-range-get-content-md5", "true");
    if (version)
        fth_azure_add_match(&request, version);
    FTH_TRY(fth_azure_send(&request, &response));
    FTH_REQUIRE(response.code != 412, FTH_CORRUPT, "get %s: it has been replaced meanwhile", request.name);
    FTH_REQUIRE(response.code != 416, FTH_CORRUPT, "get %s: it is shorter than %" PRIu64 " bytes", request.name,
                offset + size_bytes);
    if (response.code != 206 && response.code != 200) {
        status = fth_azure_explain(&request, &response);
        goto out;
    }
    FTH_REQUIRE(response.body_bytes == size_bytes, FTH_CORRUPT, "get %s: %" PRIu64 " bytes came instead of %zu",
                request.name, response.body_bytes, size_bytes);

out:
    fth_azure_release(&request);
    fth_http_response_release(&response);
    return status;
}

fth_status fth_azure_get_range(fth_store *store, const char *key, uint64_t offset, void *into, size_t size_bytes,
                               const fth_store_version *version, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    for (size_t at = 0; at < size_bytes; at += CHECKED_RANGE_BYTES) {
        size_t part = size_bytes - at < CHECKED_RANGE_BYTES ? size_bytes - at : CHECKED_RANGE_BYTES;
        FTH_TRY(get_checked_range(store, key, offset + at, (char *)into + at, part, version, deadline));
    }

out:
    return status;
}

fth_status fth_azure_head(fth_store *store, const char *key, fth_deadline deadline, fth_http_response *response,
                          bool *found)
{
    fth_status status = FTH_OK;
    fth_azure_request request = {.store = store, .what = "look at", .method = "HEAD", .key = key, .deadline = deadline};
    *found = false;
    FTH_TRY(fth_azure_send(&request, response));
    if (response->code == 404 && !fth_azure_says(response, "ContainerNotFound"))
        goto out;
    if (response->code != 200)
        status = fth_azure_explain(&request, response);
    else
        *found = true;

out:
    fth_azure_release(&request);
    return status;
}

static double parse_date(const char *text)
{
    time_t seconds = text ? curl_getdate(text, NULL) : -1;
    return seconds > 0 ? (double)seconds : 0;
}

fth_status fth_azure_stat(fth_store *store, const char *key, fth_deadline deadline, fth_store_object *object,
                          bool *found)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    char *length = NULL, *modified = NULL;
    FTH_TRY(fth_azure_head(store, key, deadline, &response, found));
    if (!*found)
        goto out;
    length = fth_http_header(&response, "Content-Length");
    modified = fth_http_header(&response, "Last-Modified");
    object->size_bytes = length ? strtoull(length, NULL, 10) : 0;
    object->modified_s = parse_date(modified);
    fth_azure_version(&response, &object->version);

out:
    free(length);
    free(modified);
    fth_http_response_release(&response);
    return status;
}

/* ---- lists ---- */

typedef struct page {
    const fth_azure *azure;
    bool (*visit)(void *context, const fth_store_object *);
    void *context;
    fth_store_object object; /* as far as it has been read */
    char *marker;            /* of the next page; "" for none */
    bool ended;
} page;

static bool ends_with(const char *text, const char *ending)
{
    size_t length = strlen(text), wanted = strlen(ending);
    return length >= wanted && strcmp(text + length - wanted, ending) == 0;
}

static fth_status take_leaf(void *context, const char *path, const char *text)
{
    page *list = context;
    if (ends_with(path, "/Blob/Name")) {
        free(list->object.key);
        list->object = (fth_store_object){.key = strdup(text)};
    } else if (ends_with(path, "/Properties/Content-Length")) {
        list->object.size_bytes = strtoull(text, NULL, 10);
    } else if (ends_with(path, "/Properties/Etag")) {
        size_t quoted = *text == '"';
        snprintf(list->object.version.text, sizeof list->object.version.text, "%.*s", (int)strcspn(text + quoted, "\""),
                 text + quoted);
    } else if (ends_with(path, "/Properties/Last-Modified")) {
        list->object.modified_s = parse_date(text);
    } else if (ends_with(path, "/NextMarker")) {
        free(list->marker);
        list->marker = strdup(text);
    }
    return FTH_OK;
}

static fth_status take_close(void *context, const char *path)
{
    page *list = context;
    if (!ends_with(path, "/Blob") || list->ended)
        return FTH_OK;
    fth_store_object object = list->object;
    size_t skip = strlen(list->azure->prefix);
    if (!object.key || strlen(object.key) <= skip)
        return FTH_OK;
    object.key += skip;
    if (fth_store_key_is_fine(object.key)) /* others, as folders' markers, cannot be addressed */
        list->ended = !list->visit(list->context, &object);
    return FTH_OK;
}

static fth_status read_page(fth_store *store, const char *prefix, page *list)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    char *begin = fth_format("%s%s", list->azure->prefix, prefix);
    char *escaped = begin ? fth_http_escape(begin, false) : NULL;
    char *marker = fth_http_escape(list->marker ? list->marker : "", false);
    char *query = escaped && marker ? fth_format("restype=container&comp=list&prefix=%s%s%s", escaped,
                                                 *marker ? "&marker=" : "", marker)
                                    : NULL;
    fth_azure_request request = {.store = store,
                                 .what = "list",
                                 .method = "GET",
                                 .query = query,
                                 .deadline = fth_store_deadline(store),
                                 .max_body_bytes = 64 << 20};
    fth_xml_visitor visitor = {.leaf = take_leaf, .close = take_close, .context = list};
    FTH_REQUIRE(query, FTH_NO_MEMORY, "no memory for an address");
    FTH_TRY(fth_azure_send(&request, &response));
    if (response.code != 200) {
        status = fth_azure_explain(&request, &response);
        goto out;
    }
    free(list->marker);
    list->marker = NULL;
    size_t mark = response.body_bytes >= 3 && memcmp(response.body, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* byte order */
    FTH_TRY(fth_s3_read_xml(response.body + mark, response.body_bytes - mark, &visitor));

out:
    free(begin);
    free(escaped);
    free(marker);
    free(query);
    fth_azure_release(&request);
    fth_http_response_release(&response);
    return status;
}

fth_status fth_azure_list(fth_store *store, const char *prefix, bool (*visit)(void *context, const fth_store_object *),
                          void *context)
{
    fth_status status = FTH_OK;
    page list = {.azure = fth_azure_of(store), .visit = visit, .context = context};
    do
        FTH_TRY(read_page(store, prefix, &list));
    while (!list.ended && list.marker && *list.marker);

out:
    free(list.marker);
    free(list.object.key);
    return status;
}
