/* See http.h. The states of a download:
 *
 *     nothing -> path.part + path.part.tag -> path.part whole -> checksum right -> path (published)
 *                (grows; broken off: stays)                      checksum wrong -> nothing
 *
 * path.part.tag holds what the server calls this version of the file (its ETag or date). A later
 * attempt sends it in If-Range, so the server answers with the rest (206) if the file is still that
 * one and with the whole (200) if not; without a tag, and without a checksum to catch a mixture,
 * nothing is resumed. An flock() on path.part keeps processes apart. */
#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "http/http.h"
#include "http/http_internal.h"

enum { MAX_ATTEMPTS = 6, MAX_REDIRECTS = 10, TAG_BYTES = 512 };

typedef struct transfer_state {
    const fth_download *download;
    fth_deadline deadline;
    char *told_url; /* without what must not be told */
    char *part, *tag_path;
    int descriptor;
    uint64_t size_bytes; /* of the part file */
    uint64_t max_bytes;
    char tag[TAG_BYTES]; /* of the reply being received; "" if there is none */
    bool strong_etag;
    uint64_t range_begin; /* where this reply says that its part of the file begins; UINT64_MAX: it does not */
    bool begun;           /* the first byte of this reply's body has come */
    CURL *curl;
    fth_status status; /* of our own callbacks */
    double said_at_s;
} transfer_state;

/* ---- the reply ---- */

static bool header_is(const char *line, size_t length, const char *name, const char **value, size_t *value_length)
{
    size_t name_length = strlen(name);
    if (length <= name_length || strncasecmp(line, name, name_length) != 0 || line[name_length] != ':')
        return false;
    const char *begin = line + name_length + 1, *end = line + length;
    while (begin < end && (*begin == ' ' || *begin == '\t'))
        begin++;
    while (end > begin && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
        end--;
    *value = begin;
    *value_length = (size_t)(end - begin);
    return true;
}

static size_t take_header(char *line, size_t size, size_t count, void *context)
{
    transfer_state *transfer = context;
    const char *value;
    size_t length = size * count, value_length;
    if (length > 5 && strncasecmp(line, "HTTP/", 5) == 0) { /* a further reply, after a redirect */
        transfer->tag[0] = '\0';
        transfer->strong_etag = false;
        transfer->range_begin = UINT64_MAX;
    }
    if (header_is(line, length, "content-range", &value, &value_length)) { /* "bytes 100-199/200" */
        char number[24] = "";
        if (value_length > 6 && strncasecmp(value, "bytes ", 6) == 0)
            snprintf(number, sizeof number, "%.*s", (int)(value_length - 6), value + 6);
        if (isdigit((unsigned char)number[0]))
            transfer->range_begin = strtoull(number, NULL, 10);
        return length;
    }
    bool etag = header_is(line, length, "etag", &value, &value_length);
    if (etag && value_length > 2 && strncmp(value, "W/", 2) == 0)
        return length; /* a weak one says "alike", not "equal" */
    if ((etag || (header_is(line, length, "last-modified", &value, &value_length) && !transfer->strong_etag)) &&
        value_length > 0 && value_length < sizeof transfer->tag) {
        memcpy(transfer->tag, value, value_length);
        transfer->tag[value_length] = '\0';
        transfer->strong_etag = etag;
    }
    return length;
}

static fth_status drop_part(transfer_state *transfer)
{
    if (ftruncate(transfer->descriptor, 0) != 0)
        return fth_fail(FTH_IO, "truncate %s: %s", transfer->part, strerror(errno));
    transfer->size_bytes = 0;
    return FTH_OK;
}

/* Called before the first byte of a body: keeps or drops what is there, by what the server sends.
 * FTH_CORRUPT: a part that was not asked for; nothing is kept, and the next try asks for the
 * whole. */
static fth_status begin_body(transfer_state *transfer)
{
    fth_status status = FTH_OK;
    long code = 0;
    curl_off_t length = -1;
    curl_easy_getinfo(transfer->curl, CURLINFO_RESPONSE_CODE, &code);
    curl_easy_getinfo(transfer->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    transfer->begun = true;
    if (code != 206) {
        if (transfer->size_bytes > 0)
            fth_log_info("%s has changed or cannot be resumed; starting again", transfer->told_url);
        FTH_TRY(drop_part(transfer));
    } else if (transfer->range_begin != transfer->size_bytes) {
        FTH_TRY(drop_part(transfer));
        status =
            fth_fail(FTH_CORRUPT, "download %s: the server sends another part than was asked for", transfer->told_url);
        goto out;
    }
    FTH_REQUIRE(lseek(transfer->descriptor, (off_t)transfer->size_bytes, SEEK_SET) >= 0, FTH_IO, "seek in %s: %s",
                transfer->part, strerror(errno));
    FTH_REQUIRE(length < 0 || transfer->size_bytes + (uint64_t)length <= transfer->max_bytes, FTH_INVALID,
                "%s has %" PRIu64 " bytes, more than the %" PRIu64 " allowed", transfer->told_url,
                transfer->size_bytes + (uint64_t)length, transfer->max_bytes);
    if (transfer->tag[0])
        FTH_TRY(fth_file_write_all(transfer->tag_path, transfer->tag, strlen(transfer->tag)));
    else
        unlink(transfer->tag_path);

out:
    return status;
}

static size_t take_body(char *bytes, size_t size, size_t count, void *context)
{
    transfer_state *transfer = context;
    size_t length = size * count, done = 0;
    if (!transfer->begun && (transfer->status = begin_body(transfer)) != FTH_OK)
        return 0;
    if (transfer->size_bytes + length > transfer->max_bytes) {
        transfer->status = fth_fail(FTH_INVALID, "%s has more than the %" PRIu64 " bytes allowed", transfer->told_url,
                                    transfer->max_bytes);
        return 0;
    }
    while (done < length) {
        ssize_t written = write(transfer->descriptor, bytes + done, length - done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            transfer->status = fth_fail(FTH_IO, "write %s: %s", transfer->part, strerror(errno));
            return 0;
        }
        done += (size_t)written;
        transfer->size_bytes += (uint64_t)written;
    }
    double now = fth_clock_seconds();
    if (now - transfer->said_at_s > 10) {
        transfer->said_at_s = now;
        fth_log_info("downloading %s: %.1f MB so far", transfer->told_url, (double)transfer->size_bytes / 1e6);
    }
    return length;
}

/* ---- attempts ---- */

static bool is_stopped(const transfer_state *transfer)
{
    return transfer->download->stop && transfer->download->stop->asked;
}

static fth_status fail_stopped(const transfer_state *transfer)
{
    return fth_fail(FTH_INTERRUPTED, "stopped while downloading %s", transfer->told_url);
}

/* Asked by curl about once a second, and whenever something comes. */
static int look_at_stop(void *context, curl_off_t total, curl_off_t done, curl_off_t up_total, curl_off_t up_done)
{
    transfer_state *transfer = context;
    (void)total, (void)done, (void)up_total, (void)up_done;
    if (is_stopped(transfer))
        transfer->status = fail_stopped(transfer);
    return transfer->status != FTH_OK;
}

/* Sets what is the same for every attempt. */
static void set_up(transfer_state *transfer, char *error)
{
    const fth_download *download = transfer->download;
    CURL *curl = transfer->curl;
    double connect_s = download->connect_s > 0 ? download->connect_s : 30;
    double stall_s = download->stall_s > 0 ? download->stall_s : 60;
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, download->url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "farthing/" FTH_VERSION);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)(connect_s * 1000));
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)(stall_s < 1 ? 1 : stall_s));
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)(fth_deadline_left_seconds(transfer->deadline) * 1000) + 1);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, transfer);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, transfer);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look_at_stop);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, transfer);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
}

/* Asks for the rest of what is there, where it can be told to be the same file's; else for the
 * whole. */
static void ask_for_rest(transfer_state *transfer, struct curl_slist **headers)
{
    char *tag = NULL, range[32];
    size_t tag_size = 0;
    bool has_tag = fth_file_exists(transfer->tag_path) &&
                   fth_file_read_all(transfer->tag_path, TAG_BYTES, &tag, &tag_size) == FTH_OK && tag_size > 0 &&
                   strpbrk(tag, "\r\n") == NULL;
    if (!has_tag && !transfer->download->sha256)
        transfer->size_bytes = 0;
    if (transfer->size_bytes > 0) { /* not CURLOPT_RESUME_FROM, which takes the whole file (200) for a failure */
        snprintf(range, sizeof range, "%" PRIu64 "-", transfer->size_bytes);
        curl_easy_setopt(transfer->curl, CURLOPT_RANGE, range);
    }
    if (transfer->size_bytes > 0 && has_tag) {
        char *line = fth_format("If-Range: %s", tag);
        *headers = curl_slist_append(*headers, line);
        free(line);
        curl_easy_setopt(transfer->curl, CURLOPT_HTTPHEADER, *headers);
    }
    free(tag);
}

/* One request for what is missing. *again: the transfer was interrupted, and another try may bring
 * the rest. */
static fth_status attempt(transfer_state *transfer, bool *again)
{
    fth_status status = FTH_OK;
    struct curl_slist *headers = NULL;
    char error[CURL_ERROR_SIZE] = "";
    CURL *curl = transfer->curl;

    *again = false;
    transfer->begun = false;
    transfer->range_begin = UINT64_MAX;
    transfer->status = FTH_OK;
    set_up(transfer, error);
    ask_for_rest(transfer, &headers);
    CURLcode code = curl_easy_perform(curl);
    long reply = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &reply);

    if (transfer->status != FTH_OK) { /* ours; its message stands */
        status = transfer->status;
        *again = status == FTH_CORRUPT;
        goto out;
    }
    if (code == CURLE_OK && !transfer->begun)
        FTH_TRY(begin_body(transfer)); /* an empty body */
    if (code == CURLE_OK)
        goto out;
    if (reply == 416 && transfer->size_bytes > 0) { /* the file is shorter than what is there: start over */
        FTH_TRY(drop_part(transfer));
        *again = true;
    } else {
        *again = reply < 400 || reply == 408 || reply == 429 || reply >= 500;
        *again = *again && code != CURLE_PEER_FAILED_VERIFICATION && code != CURLE_URL_MALFORMAT &&
                 code != CURLE_UNSUPPORTED_PROTOCOL && code != CURLE_TOO_MANY_REDIRECTS &&
                 !fth_deadline_passed(transfer->deadline);
    }
    bool refused = reply == 400 || reply == 401 || reply == 403 || reply == 409; /* without the right signature */
    if (refused && transfer->download->refused_advice)
        status = fth_fail(FTH_IO, "download %s: %s; %s", transfer->told_url, *error ? error : curl_easy_strerror(code),
                          transfer->download->refused_advice);
    else
        status =
            fth_fail(code == CURLE_OPERATION_TIMEDOUT ? FTH_TIMEOUT : FTH_IO,
                     "download %s: %s (%.1f MB are in %s, and the next try goes on from there)", transfer->told_url,
                     *error ? error : curl_easy_strerror(code), (double)transfer->size_bytes / 1e6, transfer->part);

out:
    curl_slist_free_all(headers);
    return status;
}

static fth_status fetch(transfer_state *transfer)
{
    bool again = false;
    fth_backoff backoff = {.first_s = 0.25};
    for (int failures = 0;;) {
        uint64_t before = transfer->size_bytes;
        fth_status status = attempt(transfer, &again);
        if (status == FTH_OK)
            return FTH_OK;
        failures = transfer->size_bytes > before ? 1 : failures + 1; /* while it grows, it is worth going on */
        if (failures == 1)
            backoff.tries = 0;
        if (!again || failures >= MAX_ATTEMPTS)
            return status;
        fth_log_warning("%s; trying again", fth_error_message());
        if (!fth_backoff_wait(&backoff, 0, transfer->deadline))
            return status;
        if (is_stopped(transfer))
            return fail_stopped(transfer);
    }
}

/* ---- the file ---- */

/* Opens and locks the part file. Another process's lock is waited for; if it published the file
 * meanwhile, the descriptor stays -1. */
static fth_status lock_part(transfer_state *transfer)
{
    const char *path = transfer->download->path;
    bool said = false;
    for (;;) {
        if (fth_file_exists(path))
            return FTH_OK;
        int descriptor = open(transfer->part, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (descriptor < 0)
            return fth_fail(FTH_IO, "create %s: %s", transfer->part, strerror(errno));
        if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
            struct stat ours, named; /* its last owner may have renamed it between our open and our lock */
            if (fstat(descriptor, &ours) == 0 && stat(transfer->part, &named) == 0 && ours.st_ino == named.st_ino &&
                ours.st_dev == named.st_dev) {
                transfer->descriptor = descriptor;
                transfer->size_bytes = (uint64_t)ours.st_size;
                return FTH_OK;
            }
        } else if (errno != EWOULDBLOCK && errno != EINTR) {
            fth_status status = fth_fail(FTH_IO, "lock %s: %s", transfer->part, strerror(errno));
            close(descriptor);
            return status;
        }
        close(descriptor);
        if (fth_deadline_passed(transfer->deadline))
            return fth_fail(FTH_TIMEOUT, "another process that is downloading %s to %s did not finish in time",
                            transfer->told_url, path);
        if (!said)
            fth_log_info("another process is downloading %s; waiting for it", transfer->told_url);
        said = true;
        fth_sleep(0.2);
        if (is_stopped(transfer))
            return fail_stopped(transfer);
    }
}

static fth_status publish(transfer_state *transfer, char sha256[65])
{
    fth_status status = FTH_OK;
    const fth_download *download = transfer->download;
    uint64_t size_bytes;
    char *folder = fth_format("%s", download->path);

    FTH_TRY(fth_file_sha256_of(transfer->part, sha256, &size_bytes));
    if (download->sha256 && strcasecmp(download->sha256, sha256) != 0) {
        unlink(transfer->part);
        unlink(transfer->tag_path);
        status = fth_fail(FTH_CORRUPT, "%s: the download has the SHA-256 %s, but %s was asked for", transfer->told_url,
                          sha256, download->sha256);
        goto out;
    }
    FTH_REQUIRE(fsync(transfer->descriptor) == 0, FTH_IO, "sync %s: %s", transfer->part, strerror(errno));
    FTH_REQUIRE(rename(transfer->part, download->path) == 0, FTH_IO, "rename %s to %s: %s", transfer->part,
                download->path, strerror(errno));
    unlink(transfer->tag_path);
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    FTH_TRY(fth_folder_sync(slash ? folder : "."));

out:
    free(folder);
    return status;
}

fth_status fth_http_download(const fth_download *download, char sha256[65])
{
    fth_status status = FTH_OK;
    uint64_t size_bytes;
    transfer_state transfer = {.download = download,
                               .deadline = fth_deadline_in(download->total_s > 0 ? download->total_s : 86400),
                               .told_url = fth_http_harmless_url(download->url),
                               .part = fth_format("%s.part", download->path),
                               .tag_path = fth_format("%s.part.tag", download->path),
                               .max_bytes = download->max_bytes ? download->max_bytes : INT64_MAX,
                               .said_at_s = fth_clock_seconds(),
                               .descriptor = -1};

    fth_http_start_curl();
    FTH_TRY(lock_part(&transfer));
    if (transfer.descriptor < 0) {
        FTH_TRY(fth_file_sha256_of(download->path, sha256, &size_bytes));
        goto out;
    }
    transfer.curl = curl_easy_init();
    FTH_REQUIRE(transfer.curl, FTH_NO_MEMORY, "no memory for a download");
    FTH_TRY(fetch(&transfer));
    FTH_TRY(publish(&transfer, sha256));

out:
    curl_easy_cleanup(transfer.curl);
    if (transfer.descriptor >= 0)
        close(transfer.descriptor); /* unlocks */
    free(transfer.told_url);
    free(transfer.part);
    free(transfer.tag_path);
    return status;
}
