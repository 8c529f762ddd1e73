/* See s3_internal.h: a signed request. Each try is signed anew, since a signature holds the time, the keys may have
 * been renewed, and an answer may have taught us the server's clock or the bucket's region. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "store/s3_internal.h"

enum { MAX_CONFLICTS = 8 };

/* Signatures are good for 15 minutes; a clock that is off by less needs no mending. */
static const double CLOCK_OFF_S = 240;

void fth_s3_add_query(fth_s3_request *request, const char *name, const char *value)
{
    if (request->query_count < FTH_S3_MAX_PAIRS)
        request->query[request->query_count++] = (fth_pair){name, value};
}

void fth_s3_add_header(fth_s3_request *request, const char *name, const char *value)
{
    if (request->header_count < FTH_S3_MAX_PAIRS)
        request->headers[request->header_count++] = (fth_pair){name, value};
}

static const char *own(fth_s3_request *request, char *text)
{
    if (request->owned_count < FTH_S3_MAX_PAIRS)
        request->owned[request->owned_count++] = text;
    return text;
}

void fth_s3_add_made_header(fth_s3_request *request, const char *name, char *value)
{
    fth_s3_add_header(request, name, own(request, value));
}

static char *meta_name(const fth_s3 *s3, const char *name)
{
    return fth_format("x-%s-meta-%s", s3->google ? "goog" : "amz", name);
}

void fth_s3_add_meta(fth_s3_request *request, const char *name, const char *value)
{
    fth_s3_add_header(request, own(request, meta_name(fth_s3_of(request->store), name)), value);
}

char *fth_s3_meta(const fth_s3 *s3, const fth_http_response *response, const char *name)
{
    char *full = meta_name(s3, name);
    char *value = fth_http_header(response, full);
    free(full);
    return value;
}

void fth_s3_version(const fth_s3 *s3, const fth_http_response *response, fth_store_version *version)
{
    char *text = fth_http_header(response, s3->google ? "x-goog-generation" : "ETag");
    const char *begin = text ? text : "";
    size_t length = strlen(begin);
    if (length >= 2 && begin[0] == '"' && begin[length - 1] == '"') {
        begin++;
        length -= 2;
    }
    snprintf(version->text, sizeof version->text, "%.*s", (int)length, begin);
    free(text);
}

void fth_s3_add_match(fth_s3_request *request, const fth_store_version *version)
{
    fth_s3 *s3 = fth_s3_of(request->store);
    if (s3->google) {
        fth_s3_add_header(request, "x-goog-if-generation-match", version->text);
        return;
    }
    pthread_mutex_lock(&s3->mutex);
    bool bare = s3->bare_match;
    pthread_mutex_unlock(&s3->mutex);
    bool writes = strcmp(request->method, "PUT") == 0;
    fth_s3_add_made_header(request, "if-match",
                           bare && writes ? strdup(version->text) : fth_format("\"%s\"", version->text));
}

/* ---- signing ---- */

static fth_status prepare(void *context, fth_http_request *http)
{
    fth_status status = FTH_OK;
    fth_s3_request *request = context;
    fth_s3 *s3 = fth_s3_of(request->store);
    fth_keys keys = {0};
    char *whole = request->key ? fth_format("%s%s", s3->prefix, request->key) : strdup("");
    char *escaped = fth_http_escape(whole, true), *path = NULL, *query = NULL, *region = NULL, *host = NULL;

    free(request->url);
    request->url = NULL;
    fth_sigv4_free_lines(request->lines);
    request->lines = NULL;
    FTH_TRY(fth_credentials_get(s3->credentials, &keys));
    pthread_mutex_lock(&s3->mutex);
    path = fth_format("%s/%s", s3->base, escaped);
    if (!request->key && *s3->base) /* the bucket itself: "/bucket" */
        path[strlen(path) - 1] = '\0';
    query = fth_sigv4_query(request->query, request->query_count);
    request->url = fth_format("%s%s%s%s", s3->origin, path, *query ? "?" : "", query);
    region = strdup(s3->region);
    host = strdup(s3->host);
    double wall_s = fth_clock_wall_seconds() + s3->clock_offset_s;
    pthread_mutex_unlock(&s3->mutex);
    fth_sigv4 sign = {.google = s3->google,
                      .access_key = keys.access_key,
                      .secret_key = keys.secret_key,
                      .session_token = keys.session_token,
                      .region = region,
                      .service = s3->google ? "storage" : "s3",
                      .method = request->method,
                      .host = host,
                      .path = path,
                      .query = request->query,
                      .query_count = request->query_count,
                      .headers = request->headers,
                      .header_count = request->header_count,
                      .payload_hash = request->payload_hash ? request->payload_hash : request->hash,
                      .wall_s = wall_s};
    FTH_TRY(fth_sigv4_sign(&sign, &request->lines));
    http->url = request->url;
    http->headers = (const char *const *)request->lines;

out:
    fth_keys_release(&keys);
    free(whole);
    free(escaped);
    free(path);
    free(query);
    free(region);
    free(host);
    return status;
}

/* ---- mending ---- */

/* The server's time, from "Date: Sun, 06 Nov 1994 08:49:37 GMT". */
static bool server_time(const fth_http_response *response, double *wall_s)
{
    char *text = fth_http_header(response, "Date");
    struct tm parts = {0};
    bool found = text && strptime(text, "%a, %d %b %Y %H:%M:%S", &parts) != NULL;
    if (found)
        *wall_s = (double)timegm(&parts);
    free(text);
    return found;
}

static bool mend_clock(fth_s3_request *request, const fth_http_response *response)
{
    fth_s3 *s3 = fth_s3_of(request->store);
    double theirs_s, now_s = fth_clock_wall_seconds();
    if (request->mended_clock || !server_time(response, &theirs_s))
        return false;
    pthread_mutex_lock(&s3->mutex);
    bool off = fabs(theirs_s - now_s - s3->clock_offset_s) > CLOCK_OFF_S;
    if (off)
        s3->clock_offset_s = theirs_s - now_s;
    pthread_mutex_unlock(&s3->mutex);
    if (off)
        fth_log_warning("this machine's clock is %.0f minutes %s the server's; going by the server's",
                        fabs(theirs_s - now_s) / 60, theirs_s > now_s ? "behind" : "ahead of");
    request->mended_clock = true;
    return off;
}

static bool mend_region(fth_s3_request *request, const fth_http_response *response)
{
    fth_s3 *s3 = fth_s3_of(request->store);
    char *region = fth_http_header(response, "x-amz-bucket-region");
    if (!region)
        region = fth_s3_xml_value(response->body, response->body_bytes, "Region");
    pthread_mutex_lock(&s3->mutex);
    bool other = !request->mended_region && !s3->google && region && *region && strcmp(region, s3->region) != 0 &&
                 strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(region);
    if (other) {
        fth_log_warning("the bucket '%s' is in the region %s, not in %s; going there (--s3-region saves this detour)",
                        s3->bucket, region, s3->region);
        free(s3->region);
        s3->region = strdup(region);
        if (s3->amazon)
            fth_s3_set_address(s3, NULL, NULL);
        request->mended_region = true;
    }
    pthread_mutex_unlock(&s3->mutex);
    free(region);
    return other;
}

static bool mend(void *context, const fth_http_response *response)
{
    fth_s3_request *request = context;
    fth_s3 *s3 = fth_s3_of(request->store);
    bool mended = false;
    char *code = fth_s3_xml_value(response->body, response->body_bytes, "Code");
    if (response->code == 301 || response->code == 307 || response->code == 400)
        mended = mend_region(request, response);
    if (!mended && (response->code == 403 || response->code == 400)) /* an answer to HEAD has no code: see the clock */
        mended = mend_clock(request, response);
    if (!mended && code && !request->mended_keys &&
        (strcmp(code, "ExpiredToken") == 0 || strcmp(code, "TokenRefreshRequired") == 0))
        mended = request->mended_keys = fth_credentials_renew(s3->credentials);
    bool busy = code && (strcmp(code, "RequestTimeout") == 0 || strcmp(code, "OperationAborted") == 0 ||
                         strcmp(code, "ConditionalRequestConflict") == 0 || strcmp(code, "BadDigest") == 0 ||
                         strcmp(code, "XAmzContentSHA256Mismatch") == 0);
    if (!mended && busy && request->conflicts < MAX_CONFLICTS) {
        fth_backoff backoff = {.first_s = 0.05, .most_s = 2, .tries = request->conflicts++};
        mended = fth_backoff_wait(&backoff, 0, request->deadline);
    }
    free(code);
    return mended;
}

/* ---- sending ---- */

fth_status fth_s3_send(fth_s3_request *request, fth_http_response *response)
{
    fth_status status = FTH_OK;
    fth_s3 *s3 = fth_s3_of(request->store);
    if (!request->name)
        request->name = request->key ? fth_store_describe(request->store, request->key) : strdup(request->store->url);
    char *what = fth_format("%s %s", request->what, request->name);
    if (!request->payload_hash)
        fth_sha256_hex(request->body ? request->body : "", (size_t)request->body_bytes, request->hash);
    fth_store_call call = {.what = what,
                           .request = {.method = request->method,
                                       .body = request->body,
                                       .body_bytes = request->body_bytes,
                                       .into = request->into,
                                       .into_bytes = request->into_bytes,
                                       .sink = request->sink,
                                       .sink_context = request->sink_context,
                                       .max_body_bytes = request->max_body_bytes},
                           .deadline = request->deadline,
                           .stall_s = request->stall_s,
                           .prepare = prepare,
                           .mend = mend,
                           .check = request->check,
                           .context = request,
                           .meter = request->meter};
    status = fth_store_send(request->store, &call, response);
    request->uncertain = request->uncertain || call.uncertain;
    if (status == FTH_OK && response->code < 300) {
        pthread_mutex_lock(&s3->mutex);
        s3->bucket_seen = true;
        pthread_mutex_unlock(&s3->mutex);
    }
    free(what);
    return status;
}

void fth_s3_release(fth_s3_request *request)
{
    for (int i = 0; i < request->owned_count; i++)
        free(request->owned[i]);
    fth_sigv4_free_lines(request->lines);
    free(request->url);
    free(request->name);
    request->owned_count = 0;
    request->lines = NULL;
    request->url = request->name = NULL;
}
