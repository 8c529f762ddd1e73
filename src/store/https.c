/* A web server as a store, for reading alone: get, ranges and stat of https://host/path/key.
 *
 * A query after the address (a presigned link's, a token's) goes with every request and into no
 * message. Redirects are followed, a few, and never from https to http. Lists there are none. Where
 * a server does not say that it takes ranges, a file is fetched as one piece, resumed where it
 * was interrupted (http/download.c). */
#include <curl/curl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_internal.h"

enum { MAX_REDIRECTS = 5 };

typedef struct web_state {
    char *base;  /* "https://host/path", no '/' at its end */
    char *query; /* "?a=b", or "" */
} web_state;

/* ---- opening ---- */

/* "https://name:password@host/a?q#f" in its parts; user and password stay in `base` alone. */
static fth_status web_open(fth_store *store, const char *scheme, const char *rest, const fth_store_options *options)
{
    fth_status status = FTH_OK;
    web_state *state = NULL;
    (void)options;
    FTH_TRY(fth_allocate(1, sizeof *state, &state));
    store->state = state;
    size_t path_length = strcspn(rest, "?#"), host_length = strcspn(rest, "/?#");
    while (path_length > host_length && rest[path_length - 1] == '/')
        path_length--;
    const char *query = strchr(rest, '?');
    const char *user_end = memchr(rest, '@', host_length);
    const char *host = user_end ? user_end + 1 : rest;
    FTH_REQUIRE(host < rest + host_length, FTH_INVALID, "%s:// needs the name of a server after it", scheme);
    state->base = fth_format("%s://%.*s", scheme, (int)path_length, rest);
    state->query = query ? strndup(query, strcspn(query, "#")) : strdup("");
    store->url = fth_format("%s://%.*s", scheme, (int)(path_length - (size_t)(host - rest)), host);
    FTH_REQUIRE(state->base && state->query && store->url, FTH_NO_MEMORY, "no memory for an address");

out:
    return status;
}

static void web_free(void *opaque)
{
    web_state *state = opaque;
    if (!state)
        return;
    free(state->base);
    free(state->query);
    free(state);
}

/* ---- requests ---- */

typedef struct web_request {
    fth_store *store;
    char *name; /* for messages */
    char *url;
    char range[80];
    const char *headers[2];
    int redirects;
} web_request;

static fth_status prepare(void *context, fth_http_request *request)
{
    web_request *web = context;
    request->url = web->url;
    request->headers = web->headers;
    return FTH_OK;
}

/* Where a redirect leads; NULL if it is none to follow. */
static char *resolve(const char *from, const char *to)
{
    const char *host = strstr(from, "://") + 3;
    if (strncmp(to, "https://", 8) == 0 || (strncmp(to, "http://", 7) == 0 && strncmp(from, "http://", 7) == 0))
        return strdup(to);
    if (to[0] == '/' && to[1] != '/')
        return fth_format("%.*s%s", (int)(host - from + (long)strcspn(host, "/?#")), from, to);
    return NULL;
}

static bool follow(void *context, const fth_http_response *response)
{
    web_request *web = context;
    int code = response->code;
    if ((code != 301 && code != 302 && code != 303 && code != 307 && code != 308) || web->redirects++ >= MAX_REDIRECTS)
        return false;
    char *to = fth_http_header(response, "Location"), *url = to ? resolve(web->url, to) : NULL;
    free(to);
    if (!url)
        return false;
    free(web->url);
    web->url = url;
    return true;
}

static fth_status begin(fth_store *store, const char *key, web_request *web)
{
    const web_state *state = store->state;
    char *escaped = fth_http_escape(key, true);
    web->store = store;
    web->name = fth_store_describe(store, key);
    web->url = escaped ? fth_format("%s/%s%s", state->base, escaped, state->query) : NULL;
    free(escaped);
    return web->name && web->url ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for an address");
}

static void end(web_request *web)
{
    free(web->name);
    free(web->url);
}

static fth_status ask(web_request *web, fth_http_request request, fth_deadline deadline, fth_http_response *response)
{
    fth_store_call call = {.what = web->name,
                           .request = request,
                           .deadline = deadline,
                           .prepare = prepare,
                           .mend = follow,
                           .context = web};
    return fth_store_send(web->store, &call, response);
}

static bool is_absent(const fth_http_response *response)
{
    return response->code == 404 || response->code == 410;
}

static fth_status explain(const web_request *web, const fth_http_response *response)
{
    int code = response->code;
    if (code == 401 || code == 403)
        return fth_fail(FTH_INVALID,
                        "get %s: the server refuses it (%d); the address lacks a token, or its token has expired",
                        web->name, code);
    if (code >= 300 && code < 400)
        return fth_fail(FTH_INVALID, "get %s: the server sends on to another address (%d) that cannot be followed",
                        web->name, code);
    return fth_fail(FTH_IO, "get %s: the server answered %d", web->name, code);
}

static void read_version(const fth_http_response *response, fth_store_version *version)
{
    char *tag = fth_http_header(response, "ETag");
    if (!tag)
        tag = fth_http_header(response, "Last-Modified");
    snprintf(version->text, sizeof version->text, "%s", tag ? tag : "");
    free(tag);
}

/* ---- the kind's functions ---- */

static fth_status web_get(fth_store *store, const char *key, size_t max_bytes, fth_deadline deadline, char **bytes,
                          size_t *size_bytes, fth_store_version *version)
{
    fth_status status = FTH_OK;
    web_request web = {0};
    fth_http_response response = {0};
    FTH_TRY(begin(store, key, &web));
    FTH_TRY(ask(&web, (fth_http_request){.method = "GET", .max_body_bytes = max_bytes ? max_bytes : 1}, deadline,
                &response));
    if (is_absent(&response))
        goto out;
    if (response.code != 200) {
        status = explain(&web, &response);
        goto out;
    }
    FTH_REQUIRE(response.body_bytes <= max_bytes, FTH_INVALID, "get %s: more than the %zu bytes that are accepted",
                web.name, max_bytes);
    if (!response.body)
        FTH_TRY(fth_allocate(1, 1, &response.body));
    read_version(&response, version);
    *bytes = response.body;
    *size_bytes = response.body_bytes;
    response.body = NULL;

out:
    end(&web);
    fth_http_response_release(&response);
    return status;
}

/* "bytes 4-6/10": from where on the answer's body is; false if it does not say. */
static bool read_offset(const fth_http_response *response, uint64_t *offset)
{
    char *text = fth_http_header(response, "Content-Range");
    bool found = text && sscanf(text, "bytes %" SCNu64, offset) == 1;
    free(text);
    return found;
}

static fth_status web_get_range(fth_store *store, const char *key, uint64_t offset, void *into, size_t size_bytes,
                                const fth_store_version *version, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    web_request web = {0};
    fth_http_response response = {0};
    fth_store_version now = {{0}};
    uint64_t from = 0;
    FTH_TRY(begin(store, key, &web));
    snprintf(web.range, sizeof web.range, "Range: bytes=%" PRIu64 "-%" PRIu64, offset, offset + size_bytes - 1);
    web.headers[0] = web.range;
    status =
        ask(&web, (fth_http_request){.method = "GET", .into = into, .into_bytes = size_bytes}, deadline, &response);
    if (status == FTH_INVALID) /* more came than was asked for */
        status = fth_fail_within(FTH_UNSUPPORTED, "get %s: the server gives no parts of files", web.name);
    if (status != FTH_OK)
        goto out;
    FTH_REQUIRE(!is_absent(&response), FTH_INVALID, "there is no %s", web.name);
    FTH_REQUIRE(response.code != 416, FTH_CORRUPT, "get %s: it is shorter than %" PRIu64 " bytes", web.name,
                offset + size_bytes);
    read_version(&response, &now);
    bool whole = response.code == 200 && offset == 0; /* a server without ranges, and an object no larger than asked */
    if (!whole && (response.code != 206 || !read_offset(&response, &from) || from != offset)) {
        status = response.code < 300 ? fth_fail(FTH_UNSUPPORTED, "get %s: the server gives no parts of files", web.name)
                                     : explain(&web, &response);
        goto out;
    }
    FTH_REQUIRE(response.body_bytes == size_bytes, FTH_CORRUPT, "get %s: %" PRIu64 " bytes came instead of %zu",
                web.name, response.body_bytes, size_bytes);
    FTH_REQUIRE(!version || strcmp(now.text, version->text) == 0, FTH_CORRUPT, "get %s: it has been replaced meanwhile",
                web.name);

out:
    end(&web);
    fth_http_response_release(&response);
    return status;
}

/* Asks for the first byte, which tells the size: of links that are good for GET alone, where HEAD
 * is refused. */
static fth_status look_by_get(web_request *web, fth_deadline deadline, fth_http_response *response,
                              uint64_t *size_bytes)
{
    fth_status status = FTH_OK;
    char first[1], *range = NULL;
    snprintf(web->range, sizeof web->range, "Range: bytes=0-0");
    web->headers[0] = web->range;
    *size_bytes = 0;
    FTH_TRY(
        ask(web, (fth_http_request){.method = "GET", .into = first, .into_bytes = sizeof first}, deadline, response));
    range = fth_http_header(response, response->code == 206 ? "Content-Range" : "Content-Length");
    const char *slash = range ? strchr(range, '/') : NULL;
    if (response->code == 206 && slash)
        *size_bytes = strtoull(slash + 1, NULL, 10);
    else if (response->code == 200 && range)
        *size_bytes = strtoull(range, NULL, 10);

out:
    free(range);
    return status;
}

/* *ranges (may be NULL): the server supports ranges. */
static fth_status look_at(fth_store *store, const char *key, fth_deadline deadline, fth_store_object *object,
                          bool *found, bool *ranges)
{
    fth_status status = FTH_OK;
    web_request web = {0};
    fth_http_response response = {0};
    char *length = NULL, *modified = NULL, *accepts = NULL;
    FTH_TRY(begin(store, key, &web));
    FTH_TRY(ask(&web, (fth_http_request){.method = "HEAD"}, deadline, &response));
    bool refused = response.code == 403 || response.code == 405 || response.code == 501;
    if (refused)
        FTH_TRY(look_by_get(&web, deadline, &response, &object->size_bytes));
    if (is_absent(&response))
        goto out;
    bool empty = refused && response.code == 416;
    if (response.code != 200 && response.code != 206 && !empty) {
        status = explain(&web, &response);
        goto out;
    }
    length = fth_http_header(&response, "Content-Length");
    modified = fth_http_header(&response, "Last-Modified");
    accepts = fth_http_header(&response, "Accept-Ranges");
    if (!refused)
        object->size_bytes = length ? strtoull(length, NULL, 10) : 0;
    time_t seconds = modified ? curl_getdate(modified, NULL) : -1;
    object->modified_s = seconds > 0 ? (double)seconds : 0;
    read_version(&response, &object->version);
    *found = true;
    if (ranges)
        *ranges = response.code == 206 || (length && accepts && strcasecmp(accepts, "bytes") == 0);

out:
    free(length);
    free(modified);
    free(accepts);
    end(&web);
    fth_http_response_release(&response);
    return status;
}

static fth_status web_stat(fth_store *store, const char *key, fth_deadline deadline, fth_store_object *object,
                           bool *found)
{
    return look_at(store, key, deadline, object, found, NULL);
}

static fth_status web_get_file(fth_store *store, const char *key, const char *path, const fth_store_progress *progress,
                               char sha256[65])
{
    fth_status status = FTH_OK;
    web_request web = {0};
    fth_store_object object = {0};
    bool found = false, ranges = false;
    char ignored[65];
    FTH_TRY(look_at(store, key, fth_store_deadline(store), &object, &found, &ranges));
    FTH_TRY(begin(store, key, &web));
    FTH_REQUIRE(found, FTH_INVALID, "there is no %s", web.name);
    if (ranges) {
        FTH_TRY(fth_store_get_file_by_ranges(store, key, path, progress, sha256));
        goto out;
    }
    fth_download download = {.url = web.url, .path = path};
    FTH_TRY(fth_http_download(&download, sha256 ? sha256 : ignored));

out:
    end(&web);
    fth_store_object_release(&object);
    return status;
}

static const char *const schemes[] = {"https", "http", NULL};

const fth_store_kind fth_store_kind_https = {
    .name = "https",
    .schemes = schemes,
    .open = web_open,
    .free = web_free,
    .get = web_get,
    .get_range = web_get_range,
    .stat = web_stat,
    .get_file = web_get_file,
};
