/* See bucket_internal.h: a request to a bucket. Each attempt is signed again, since a signature
 * holds the time, the keys may have been renewed, and an answer may have given the server's clock
 * or the bucket's region. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "store/bucket_internal.h"

void fth_bucket_release(fth_bucket *bucket)
{
    free(bucket->name);
    free(bucket->prefix);
}

/* ---- what a request is made of ---- */

void fth_bucket_add_query(fth_bucket_request *request, const char *name, const char *value)
{
    if (request->query_count < FTH_BUCKET_MAX_PAIRS)
        request->query[request->query_count++] = (fth_pair){name, value};
}

void fth_bucket_add_header(fth_bucket_request *request, const char *name, const char *value)
{
    if (request->header_count < FTH_BUCKET_MAX_PAIRS)
        request->headers[request->header_count++] = (fth_pair){name, value};
}

static const char *own(fth_bucket_request *request, char *text)
{
    if (request->owned_count < FTH_BUCKET_MAX_PAIRS)
        request->owned[request->owned_count++] = text;
    return text;
}

void fth_bucket_add_made_header(fth_bucket_request *request, const char *name, char *value)
{
    fth_bucket_add_header(request, name, own(request, value));
}

void fth_bucket_add_meta(fth_bucket_request *request, const char *name, const char *value)
{
    const fth_bucket_kind *cloud = fth_bucket_of(request->store)->cloud;
    fth_bucket_add_header(request, own(request, fth_format("%s%s", cloud->meta, name)), value);
}

char *fth_bucket_meta(const fth_store *store, const fth_http_response *response, const char *name)
{
    char *full = fth_format("%s%s", fth_bucket_of(store)->cloud->meta, name);
    char *value = full ? fth_http_header(response, full) : NULL;
    free(full);
    return value;
}

/* ---- versions and times ---- */

void fth_bucket_read_version(const char *text, fth_store_version *version)
{
    size_t length = strlen(text);
    bool quoted = length >= 2 && text[0] == '"' && text[length - 1] == '"';
    snprintf(version->text, sizeof version->text, "%.*s", (int)(quoted ? length - 2 : length), text + quoted);
}

void fth_bucket_version(const fth_store *store, const fth_http_response *response, fth_store_version *version)
{
    char *text = fth_http_header(response, fth_bucket_of(store)->cloud->version);
    fth_bucket_read_version(text ? text : "", version);
    free(text);
}

void fth_bucket_add_match(fth_bucket_request *request, const fth_store_version *version)
{
    fth_bucket *bucket = fth_bucket_of(request->store);
    bool writes = strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0;
    bool quoted = bucket->cloud->quoted && !(writes && atomic_load(&bucket->bare_match));
    fth_bucket_add_made_header(request, bucket->cloud->match,
                               quoted ? fth_format("\"%s\"", version->text) : strdup(version->text));
}

double fth_bucket_read_time(const char *text)
{
    static const char *const forms[] = {"%a, %d %b %Y %H:%M:%S", "%Y-%m-%dT%H:%M:%S"};
    for (size_t i = 0; text && i < FTH_COUNT_OF(forms); i++) {
        struct tm parts = {0};
        if (strptime(text, forms[i], &parts))
            return (double)timegm(&parts);
    }
    return 0;
}

/* ---- sending ---- */

static fth_status prepare(void *context, fth_http_request *http)
{
    fth_bucket_request *request = context;
    free(request->url);
    request->url = NULL;
    fth_sigv4_free_lines(request->lines);
    request->lines = NULL;
    fth_status status = fth_bucket_of(request->store)->cloud->sign(request);
    http->url = request->url;
    http->headers = (const char *const *)request->lines;
    return status;
}

fth_status fth_bucket_send(fth_bucket_request *request, fth_http_response *response)
{
    fth_status status = FTH_OK;
    fth_bucket *bucket = fth_bucket_of(request->store);
    if (!request->name)
        request->name = request->key ? fth_store_describe(request->store, request->key) : strdup(request->store->url);
    char *what = fth_format("%s %s", request->what, request->name);
    fth_store_call call = {.what = what,
                           .request = {.method = request->method,
                                       .body = request->body,
                                       .body_bytes = request->body_bytes,
                                       .into = request->into,
                                       .into_bytes = request->into_bytes,
                                       .sink = request->sink.take,
                                       .sink_context = request->sink.context,
                                       .max_body_bytes = request->max_body_bytes},
                           .deadline = request->deadline,
                           .stall_s = request->stall_s,
                           .prepare = prepare,
                           .mend = bucket->cloud->mend,
                           .check = request->check,
                           .context = request,
                           .meter = request->meter};
    FTH_REQUIRE(request->name && what, FTH_NO_MEMORY, "no memory for an address");
    status = fth_store_send(request->store, &call, response);
    request->tries += call.tries;
    request->uncertain = request->uncertain || call.uncertain;
    if (status == FTH_OK && response->code < 300)
        atomic_store(&bucket->seen, true);

out:
    free(what);
    return status;
}

void fth_bucket_end(fth_bucket_request *request)
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

/* ---- errors ---- */

bool fth_bucket_says(const fth_store *store, const fth_http_response *response, const char *code)
{
    char *said = fth_bucket_of(store)->cloud->error_code(response);
    bool same = said && strcmp(said, code) == 0;
    free(said);
    return same;
}

bool fth_bucket_says_absent(const fth_store *store, const fth_http_response *response)
{
    return response->code == 404 && !fth_bucket_says(store, response, fth_bucket_of(store)->cloud->no_bucket);
}

fth_status fth_bucket_explain(const fth_bucket_request *request, const fth_http_response *response)
{
    fth_status status = FTH_OK;
    const fth_bucket *bucket = fth_bucket_of(request->store);
    const fth_bucket_kind *cloud = bucket->cloud;
    char *code = cloud->error_code(response), *origin = cloud->origin(request->store), *advice = NULL;
    char *message = fth_xml_value(response->body, response->body_bytes, "Message");
    const char *space = code ? " " : "", *named = code ? code : "", *where = origin ? origin : "the server";

    const fth_cloud_error *known = cloud->errors;
    while (known->code && !(code && strcmp(known->code, code) == 0))
        known++;
    if (known->code) {
        advice =
            fth_format(known->advice, known->names == FTH_NAMES_KEYS ? cloud->keys_from(request->store) : bucket->name);
        status = fth_fail(known->status, "%s %s: %s (%s: %d %s)", request->what, request->name,
                          advice ? advice : known->advice, where, response->code, code);
    } else if (response->code == 403) {
        status = fth_fail(FTH_INVALID, "%s %s: access denied (%s: 403%s%s); the keys came from %s", request->what,
                          request->name, where, space, named, cloud->keys_from(request->store));
    } else {
        status = fth_fail(response->code == 404 ? FTH_INVALID : FTH_IO, "%s %s: %s answered %d%s%s%s%.300s",
                          request->what, request->name, where, response->code, space, named,
                          message && *message ? ": " : "", message ? message : "");
    }
    free(code);
    free(origin);
    free(advice);
    free(message);
    return status;
}
