/* See shard_download.h. */
#include "functions/shard_download.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_TRIES = 8, STALL_S = 20 };

typedef struct transfer {
    const fth_shard_download_options *with;
    uint64_t received_bytes; /* by all tries */
} transfer;

void fth_plain_etag(const char *given, char etag[128])
{
    size_t length = given ? strlen(given) : 0;
    bool quoted = length >= 2 && given[0] == '"' && given[length - 1] == '"';
    etag[0] = '\0';
    if (!given || strncmp(given, "W/", 2) == 0) /* a weak one means "similar", not "equal" */
        return;
    if (length - (quoted ? 2 : 0) < 128)
        snprintf(etag, 128, "%.*s", (int)(length - (quoted ? 2 : 0)), given + (quoted ? 1 : 0));
    for (const char *c = etag; *c; c++)
        if (*c < '!' || *c > '~' || *c == '"') { /* not valid in a header */
            etag[0] = '\0';
            return;
        }
}

static fth_status take_bytes(void *context, uint64_t offset, const void *bytes, size_t size_bytes)
{
    transfer *download = context;
    const char *at = bytes;
    off_t place = (off_t)(offset + download->with->offset);
    for (size_t done = 0; done < size_bytes;) {
        ssize_t written = pwrite(download->with->descriptor, at + done, size_bytes - done, place + (off_t)done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return fth_fail(FTH_IO, "write a shard to %s: %s", download->with->place, strerror(errno));
        done += (size_t)written;
    }
    download->received_bytes += size_bytes;
    return FTH_OK;
}

static int look_at_stop(void *context, uint64_t sent_bytes, uint64_t received_bytes)
{
    const transfer *download = context;
    (void)sent_bytes;
    (void)received_bytes;
    return download->with->request->stop && download->with->request->stop->asked;
}

/* One GET. *answered is false if another try may help. */
static fth_status request_once(transfer *download, fth_http_response *response, bool *answered)
{
    const fth_shard_request *request = download->with->request;
    const char *cached_etag = download->with->cached_etag;
    char condition[160];
    const char *const headers[] = {condition, NULL};
    snprintf(condition, sizeof condition, "If-None-Match: \"%s\"", cached_etag);
    *answered = false;
    if (ftruncate(download->with->descriptor, 0) != 0)
        return fth_fail(FTH_IO, "truncate a shard's file: %s", strerror(errno));
    fth_status status = fth_http_perform(download->with->client,
                                         &(fth_http_request){.method = "GET",
                                                             .url = request->url,
                                                             .headers = *cached_etag ? headers : NULL,
                                                             .into_bytes = download->with->limit_bytes,
                                                             .sink = take_bytes,
                                                             .sink_context = download,
                                                             .stall_s = STALL_S,
                                                             .deadline = request->deadline,
                                                             .progress = look_at_stop,
                                                             .progress_context = download},
                                         response);
    if (request->stop && request->stop->asked)
        return fth_fail(FTH_INTERRUPTED, "stopped while fetching %s", download->with->shown_url);
    if (status == FTH_OK)
        *answered = response->code < 500 && response->code != 429 && response->code != 408;
    return status;
}

static fth_status explain_code(const transfer *download, int code)
{
    const char *why = code == 403 || code == 401   ? ": its signature is wrong or has expired; presign it again"
                      : code == 404 || code == 410 ? ": there is no such object"
                      : code >= 300 && code < 400  ? ": redirects are not followed; give the address itself"
                                                   : "";
    return fth_fail(code >= 500 || code == 429 ? FTH_IO : FTH_INVALID, "fetch %s: the server answered %d%s",
                    download->with->shown_url, code, why);
}

fth_status fth_shard_download(const fth_shard_download_options *options, char etag[128], bool *fresh,
                              uint64_t *received_bytes)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_backoff backoff = {.first_s = 0.1, .most_s = 5};
    transfer one = {.with = options};
    const char *cached_etag = options->cached_etag;

    for (int tries = 1;; tries++) {
        bool answered = false;
        fth_http_response_release(&response);
        response = (fth_http_response){0};
        status = request_once(&one, &response, &answered);
        if (answered)
            break;
        bool hopeless = status != FTH_OK && status != FTH_PEER_LOST && status != FTH_TIMEOUT;
        if (status == FTH_OK)
            status = explain_code(&one, response.code);
        if (hopeless || tries >= MAX_TRIES)
            goto out;
        if (!fth_backoff_wait(&backoff, 0, options->request->deadline)) {
            status = fth_fail_within(FTH_TIMEOUT, "there was no time to try again");
            goto out;
        }
    }
    *fresh = response.code == 200;
    if (!*fresh && !(response.code == 304 && *cached_etag)) {
        status = explain_code(&one, response.code);
        goto out;
    }
    char *given = fth_http_header(&response, "ETag");
    fth_plain_etag(*fresh ? given : cached_etag, etag);
    free(given);

out:
    *received_bytes = one.received_bytes;
    fth_http_response_release(&response);
    return status;
}
