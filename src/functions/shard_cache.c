/* See shard_cache.h.
 *
 * A shard is FOLDER/<hash of the URL's public form>.shard: a header and the bytes as they came. It
 * is written under a temporary name and renamed, without a sync: the checksum finds out what a
 * crash has torn. Image files, which cannot be read from the archive, are in FOLDER/<hash of URL
 * and ETag>.tar beside it. A file's time is that of its last use.
 *
 *     nothing -> .tmp-... (grows) -> header with ETag, size and checksum -> renamed
 *                broken off: removed at once, or when it is found an hour later
 *
 * Bytes come into a file and are mapped, so that an archive takes no memory of its own while it is
 * read. */
#include "functions/shard_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "data/archive/archive_set.h"
#include "http/http.h"

enum { LEFTOVER_S = 3600, MAX_TRIES = 8, STALL_S = 20 };
static const uint64_t usual_limit_bytes = 400000000;

typedef struct shard_header {
    char magic[8];
    uint64_t size_bytes, hash; /* of the bytes that follow */
    char etag[128];
} shard_header;
static const char magic[8] = "fthshd1";

/* A shard's bytes, mapped; `bytes` is NULL where there are none. */
typedef struct shard_bytes {
    const uint8_t *mapping;
    size_t mapped_bytes;
    const uint8_t *bytes;
    size_t size_bytes;
    char etag[128];
} shard_bytes;

/* What a data set was made of. */
typedef struct opened_from {
    char *url; /* public form; NULL: nothing is open */
    char etag[128];
    int64_t first, count;
    bool ranged;
    fth_normalization normalization;
    int height, width;
} opened_from;

struct fth_shard_cache {
    char *path; /* NULL: shards are held in memory */
    int folder;
    uint64_t limit_bytes;
    unsigned serial;             /* of temporaries */
    fth_http_client *clients[2]; /* [1]: for URLs that are foreign; connections are not shared */
    fth_dataset *dataset;
    opened_from from;
};

/* ---- the cache ---- */

static void forget(fth_shard_cache *cache)
{
    fth_dataset_free(cache->dataset);
    free(cache->from.url);
    cache->dataset = NULL;
    cache->from = (opened_from){0};
}

/* The folder, made for this user alone where it was not there. Whoever else can write to it chooses
 * what is trained with: such a one, as anybody can make it in /tmp, is not used. NULL: it can be
 * used; else why not. */
static const char *open_folder(const char *path, int *folder)
{
    struct stat facts;
    if (mkdir(path, 0700) != 0 && errno == ENOENT && fth_folder_create(path) == FTH_OK)
        chmod(path, 0700);
    *folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*folder < 0 || fstat(*folder, &facts) != 0)
        return strerror(errno);
    if (facts.st_uid != geteuid())
        return "it belongs to another user";
    if (facts.st_mode & (S_IWGRP | S_IWOTH))
        return "other users may write to it";
    return faccessat(*folder, ".", W_OK | X_OK, AT_EACCESS) == 0 ? NULL : strerror(errno);
}

fth_status fth_shard_cache_open(const char *folder, uint64_t limit_bytes, fth_shard_cache **result)
{
    fth_status status = FTH_OK;
    fth_shard_cache *cache = NULL;

    FTH_TRY(fth_allocate(1, sizeof *cache, &cache));
    cache->folder = -1;
    cache->limit_bytes = limit_bytes > 0 ? limit_bytes : usual_limit_bytes;
    cache->path = strdup(folder);
    FTH_REQUIRE(cache->path, FTH_NO_MEMORY, "no memory for a path");
    const char *unfit = open_folder(folder, &cache->folder);
    if (unfit) {
        fth_log_warning("cannot keep shards in %s: %s; they are fetched for every invocation", folder, unfit);
        free(cache->path);
        cache->path = NULL;
    }
    *result = cache;
    cache = NULL;

out:
    fth_shard_cache_free(cache);
    return status;
}

void fth_shard_cache_free(fth_shard_cache *cache)
{
    if (!cache)
        return;
    forget(cache);
    fth_http_client_free(cache->clients[0]);
    fth_http_client_free(cache->clients[1]);
    if (cache->folder >= 0)
        close(cache->folder);
    free(cache->path);
    free(cache);
}

/* "<32 hex digits>ENDING" */
static void name_file(const char *what, const char *more, const char *ending, char name[48])
{
    char hex[65], *text = fth_format("%s %s", what, more);
    fth_hex_sha256(text ? text : what, strlen(text ? text : what), hex);
    snprintf(name, 48, "%.32s%s", hex, ending);
    free(text);
}

/* ---- room ---- */

typedef struct cached_file {
    char name[64];
    struct timespec used;
    uint64_t size_bytes;
} cached_file;

static int compare_use(const void *a, const void *b)
{
    const struct timespec x = ((const cached_file *)a)->used, y = ((const cached_file *)b)->used;
    if (x.tv_sec != y.tv_sec)
        return x.tv_sec < y.tv_sec ? -1 : 1;
    return x.tv_nsec < y.tv_nsec ? -1 : x.tv_nsec > y.tv_nsec;
}

/* As name_file() makes them: others' archives in the folder are not ours to remove. */
static bool is_cached_name(const char *name)
{
    return strspn(name, "0123456789abcdef") == 32 &&
           (strcmp(name + 32, ".shard") == 0 || strcmp(name + 32, ".tar") == 0);
}

/* The files there are; temporaries that somebody has left are removed. Others in the folder are not
 * ours. */
static fth_status list_files(fth_shard_cache *cache, cached_file **files, size_t *count)
{
    fth_status status = FTH_OK;
    size_t capacity = 0;
    int again = openat(cache->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = again >= 0 ? fdopendir(again) : NULL;
    double now = fth_clock_wall_seconds();

    *count = 0;
    FTH_REQUIRE(folder, FTH_IO, "list %s: %s", cache->path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(folder));) {
        struct stat facts;
        bool temporary = strncmp(entry->d_name, FTH_FILE_TEMPORARY, strlen(FTH_FILE_TEMPORARY)) == 0;
        if ((!temporary && !is_cached_name(entry->d_name)) ||
            fstatat(cache->folder, entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(facts.st_mode))
            continue;
        if (temporary) {
            if (now - (double)facts.st_mtim.tv_sec > LEFTOVER_S)
                unlinkat(cache->folder, entry->d_name, 0);
            continue;
        }
        FTH_TRY(fth_grow(files, *count, &capacity, sizeof **files));
        cached_file *file = &(*files)[*count];
        if (snprintf(file->name, sizeof file->name, "%s", entry->d_name) >= (int)sizeof file->name)
            continue;
        file->used = facts.st_mtim;
        file->size_bytes = (uint64_t)facts.st_blocks * 512;
        (*count)++;
    }

out:
    if (folder)
        closedir(folder);
    else if (again >= 0)
        close(again);
    return status;
}

/* Removes what was used longest ago until all is within the limit; `kept` (may be "") stays. Other
 * processes that have a removed file mapped keep it. */
static void make_room(fth_shard_cache *cache, const char *kept)
{
    cached_file *files = NULL;
    size_t count = 0;
    uint64_t total = 0;

    if (list_files(cache, &files, &count) != FTH_OK)
        fth_log_warning("%s", fth_error_message());
    for (size_t i = 0; i < count; i++)
        total += files[i].size_bytes;
    if (count > 0)
        qsort(files, count, sizeof *files, compare_use);
    for (size_t i = 0; i < count && total > cache->limit_bytes; i++) {
        if (strcmp(files[i].name, kept) == 0)
            continue;
        unlinkat(cache->folder, files[i].name, 0);
        total -= files[i].size_bytes;
    }
    free(files);
}

/* ---- bytes ---- */

static void release_bytes(shard_bytes *shard)
{
    if (shard->mapping)
        munmap((void *)shard->mapping, shard->mapped_bytes);
    *shard = (shard_bytes){0};
}

static bool map_descriptor(int descriptor, shard_bytes *shard)
{
    struct stat facts;
    if (fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size <= 0)
        return false;
    void *mapping = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (mapping == MAP_FAILED)
        return false;
    shard->mapping = mapping;
    shard->mapped_bytes = (size_t)facts.st_size;
    return true;
}

/* The shard of that name in the cache, with its checksum checked; false: there is none that is
 * whole. */
static bool find_cached(fth_shard_cache *cache, const char *name, shard_bytes *shard)
{
    shard_header header;
    int descriptor = cache->path ? openat(cache->folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    bool good = descriptor >= 0 && map_descriptor(descriptor, shard) && shard->mapped_bytes > sizeof header;
    if (good) {
        memcpy(&header, shard->mapping, sizeof header);
        shard->bytes = shard->mapping + sizeof header;
        shard->size_bytes = shard->mapped_bytes - sizeof header;
        good = memcmp(header.magic, magic, sizeof magic) == 0 && header.size_bytes == shard->size_bytes &&
               memchr(header.etag, '\0', sizeof header.etag) && header.etag[0] &&
               fth_hash(shard->bytes, shard->size_bytes, 0) == header.hash;
    }
    if (good) {
        memcpy(shard->etag, header.etag, sizeof shard->etag);
        futimens(descriptor, NULL); /* it was used now */
    } else {
        release_bytes(shard);
    }
    if (descriptor >= 0)
        close(descriptor);
    return good;
}

/* An ETag without its quotes, as stores and leases have it either way; "" if it is none. */
static void plain_etag(const char *given, char etag[128])
{
    size_t length = given ? strlen(given) : 0;
    bool quoted = length >= 2 && given[0] == '"' && given[length - 1] == '"';
    etag[0] = '\0';
    if (!given || strncmp(given, "W/", 2) == 0) /* a weak one says "alike", not "equal" */
        return;
    if (length - (quoted ? 2 : 0) < 128)
        snprintf(etag, 128, "%.*s", (int)(length - (quoted ? 2 : 0)), given + (quoted ? 1 : 0));
    for (const char *c = etag; *c; c++)
        if (*c < '!' || *c > '~' || *c == '"') { /* it would not be a header's value */
            etag[0] = '\0';
            return;
        }
}

/* ---- downloads ---- */

typedef struct shard_download {
    fth_shard_cache *cache;
    const fth_shard_request *request;
    char *shown_url;
    char temporary[64]; /* "": it has no name */
    int descriptor;
    uint64_t received_bytes; /* by all tries */
} shard_download;

static fth_status open_spool(shard_download *download)
{
    fth_shard_cache *cache = download->cache;
    if (cache->path) {
        make_room(cache, "");
        snprintf(download->temporary, sizeof download->temporary, FTH_FILE_TEMPORARY "%ld-%u", (long)getpid(),
                 cache->serial++);
        download->descriptor =
            openat(cache->folder, download->temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    } else {
        download->descriptor = memfd_create("shard", MFD_CLOEXEC);
    }
    if (download->descriptor < 0)
        return fth_fail(FTH_IO, "create a file for a shard in %s: %s", cache->path ? cache->path : "memory",
                        strerror(errno));
    return FTH_OK;
}

static fth_status take_bytes(void *context, uint64_t offset, const void *bytes, size_t size_bytes)
{
    shard_download *download = context;
    const char *at = bytes;
    off_t place = (off_t)(offset + sizeof(shard_header));
    for (size_t done = 0; done < size_bytes;) {
        ssize_t written = pwrite(download->descriptor, at + done, size_bytes - done, place + (off_t)done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return fth_fail(FTH_IO, "write a shard to %s: %s", download->cache->path ? download->cache->path : "memory",
                            strerror(errno));
        done += (size_t)written;
    }
    download->received_bytes += size_bytes;
    return FTH_OK;
}

static int look_at_stop(void *context, uint64_t sent_bytes, uint64_t received_bytes)
{
    const shard_download *download = context;
    (void)sent_bytes;
    (void)received_bytes;
    return download->request->stop && download->request->stop->asked;
}

/* One GET. *answered is false where another try may help. */
static fth_status request_once(shard_download *download, const char *cached_etag, fth_http_response *response,
                               bool *answered)
{
    const fth_shard_request *request = download->request;
    char condition[160];
    const char *const headers[] = {condition, NULL};
    snprintf(condition, sizeof condition, "If-None-Match: \"%s\"", cached_etag);
    *answered = false;
    if (ftruncate(download->descriptor, 0) != 0)
        return fth_fail(FTH_IO, "truncate a shard's file: %s", strerror(errno));
    fth_status status = fth_http_perform(download->cache->clients[request->foreign],
                                         &(fth_http_request){.method = "GET",
                                                             .url = request->url,
                                                             .headers = *cached_etag ? headers : NULL,
                                                             .into_bytes = download->cache->limit_bytes,
                                                             .sink = take_bytes,
                                                             .sink_context = download,
                                                             .stall_s = STALL_S,
                                                             .deadline = request->deadline,
                                                             .progress = look_at_stop,
                                                             .progress_context = download},
                                         response);
    if (request->stop && request->stop->asked)
        return fth_fail(FTH_INTERRUPTED, "stopped while fetching %s", download->shown_url);
    if (status == FTH_OK)
        *answered = response->code < 500 && response->code != 429 && response->code != 408;
    return status;
}

static fth_status explain_code(const shard_download *download, int code)
{
    const char *why = code == 403 || code == 401   ? ": its signature is wrong or has expired; presign it again"
                      : code == 404 || code == 410 ? ": there is no such object"
                      : code >= 300 && code < 400  ? ": redirects are not followed; give the address itself"
                                                   : "";
    return fth_fail(code >= 500 || code == 429 ? FTH_IO : FTH_INVALID, "fetch %s: the server answered %d%s",
                    download->shown_url, code, why);
}

/* Tries until there is an answer: *fresh is true where the body has come, and false where the
 * cached one is right. */
static fth_status fetch(shard_download *download, const char *cached_etag, char etag[128], bool *fresh)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_backoff backoff = {.first_s = 0.1, .most_s = 5};

    for (int tries = 1;; tries++) {
        bool answered = false;
        fth_http_response_release(&response);
        response = (fth_http_response){0};
        status = request_once(download, cached_etag, &response, &answered);
        if (answered)
            break;
        bool hopeless = status != FTH_OK && status != FTH_PEER_LOST && status != FTH_TIMEOUT;
        if (status == FTH_OK)
            status = explain_code(download, response.code);
        if (hopeless || tries >= MAX_TRIES)
            goto out;
        if (!fth_backoff_wait(&backoff, 0, download->request->deadline)) {
            status = fth_fail_within(FTH_TIMEOUT, "there was no time to try again");
            goto out;
        }
    }
    *fresh = response.code == 200;
    if (!*fresh && !(response.code == 304 && *cached_etag)) {
        status = explain_code(download, response.code);
        goto out;
    }
    char *given = fth_http_header(&response, "ETag");
    plain_etag(*fresh ? given : cached_etag, etag);
    free(given);

out:
    fth_http_response_release(&response);
    return status;
}

/* The file is whole: gives its bytes, and its name where it can be found again. */
static fth_status publish(shard_download *download, const char *name, const char *etag, shard_bytes *shard)
{
    fth_status status = FTH_OK;
    fth_shard_cache *cache = download->cache;
    shard_header header = {0};

    FTH_REQUIRE(map_descriptor(download->descriptor, shard) && shard->mapped_bytes > sizeof header, FTH_CORRUPT,
                "%s: is empty", download->shown_url);
    shard->bytes = shard->mapping + sizeof header;
    shard->size_bytes = shard->mapped_bytes - sizeof header;
    snprintf(shard->etag, sizeof shard->etag, "%s", etag);
    if (!*etag || !*download->temporary)
        goto out; /* nothing could be asked about it later */
    memcpy(header.magic, magic, sizeof magic);
    memcpy(header.etag, shard->etag, sizeof header.etag);
    header.size_bytes = shard->size_bytes;
    header.hash = fth_hash(shard->bytes, shard->size_bytes, 0);
    FTH_REQUIRE(pwrite(download->descriptor, &header, sizeof header, 0) == (ssize_t)sizeof header &&
                    renameat(cache->folder, download->temporary, cache->folder, name) == 0,
                FTH_IO, "publish a shard in %s: %s", cache->path, strerror(errno));
    download->temporary[0] = '\0';
    make_room(cache, name);

out:
    return status;
}

/* The bytes of a shard that a server has, from the cache where they are there. */
static fth_status get_remote(fth_shard_cache *cache, const fth_shard_request *request, const char *public_url,
                             shard_bytes *shard, uint64_t *received_bytes)
{
    fth_status status = FTH_OK;
    shard_download download = {.cache = cache, .request = request, .descriptor = -1};
    char name[48], wanted[128], etag[128] = "";
    bool fresh = false;

    plain_etag(request->etag, wanted);
    name_file(public_url, "", ".shard", name);
    if (find_cached(cache, name, shard) && *wanted && strcmp(wanted, shard->etag) == 0)
        return FTH_OK;
    download.shown_url = fth_http_harmless_url(request->url);
    FTH_REQUIRE(download.shown_url, FTH_NO_MEMORY, "no memory for an address");
    fth_http_client **client = &cache->clients[request->foreign];
    if (!*client)
        FTH_TRY(fth_http_client_open(
            &(fth_http_client_options){.attentive = true,
                                       .reach = request->foreign ? FTH_HTTP_ELSEWHERE : FTH_HTTP_NO_METADATA},
            client));
    FTH_TRY(open_spool(&download));
    FTH_TRY(fetch(&download, shard->etag, etag, &fresh));
    if (fresh) {
        release_bytes(shard);
        FTH_REQUIRE(!*wanted || strcmp(etag, wanted) == 0, FTH_CORRUPT,
                    "%s: has the ETag %s, not %s: it has been replaced since it was listed", download.shown_url, etag,
                    wanted);
        FTH_TRY(publish(&download, name, etag, shard));
    }
    FTH_REQUIRE(!*wanted || strcmp(shard->etag, wanted) == 0, FTH_CORRUPT,
                "%s: has the ETag %s, not %s: it has been replaced since it was listed", download.shown_url,
                shard->etag, wanted);

out:
    *received_bytes = download.received_bytes;
    if (download.descriptor >= 0)
        close(download.descriptor);
    if (*download.temporary)
        unlinkat(cache->folder, download.temporary, 0);
    free(download.shown_url);
    return status;
}

static fth_status get_local(const fth_shard_cache *cache, const char *url, shard_bytes *shard)
{
    fth_status status = FTH_OK;
    char *path = fth_http_unescape(url + strlen("file://"));
    struct stat facts;
    int descriptor = -1;

    FTH_REQUIRE(path, FTH_NO_MEMORY, "no memory for a path");
    FTH_REQUIRE(*path == '/', FTH_INVALID, "%s: after file:// comes a path that begins with /", url);
    descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FTH_REQUIRE(descriptor >= 0 && fstat(descriptor, &facts) == 0, FTH_INVALID, "open %s: %s", path, strerror(errno));
    FTH_REQUIRE(S_ISREG(facts.st_mode), FTH_INVALID, "open %s: not a file", path);
    FTH_REQUIRE((uint64_t)facts.st_size <= cache->limit_bytes, FTH_INVALID,
                "%s has %" PRId64 " bytes, more than the %" PRIu64 " a shard may have", path, (int64_t)facts.st_size,
                cache->limit_bytes);
    FTH_REQUIRE(map_descriptor(descriptor, shard), FTH_CORRUPT, "%s: is empty", path);
    shard->bytes = shard->mapping;
    shard->size_bytes = shard->mapped_bytes;
    snprintf(shard->etag, sizeof shard->etag, "%" PRIu64 "-%" PRId64 "-%" PRId64 ".%09ld", (uint64_t)facts.st_ino,
             (int64_t)facts.st_size, (int64_t)facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec);

out:
    if (descriptor >= 0)
        close(descriptor);
    free(path);
    return status;
}

/* ---- data sets ---- */

static opened_from describe(const fth_shard_request *request, char *public_url, const char *etag)
{
    opened_from from = {.url = public_url,
                        .first = request->first,
                        .count = request->count,
                        .ranged = request->ranged,
                        .height = request->height,
                        .width = request->width};
    snprintf(from.etag, sizeof from.etag, "%s", etag);
    if (request->normalization)
        from.normalization = *request->normalization;
    return from;
}

static bool is_same(const opened_from *a, const opened_from *b)
{
    return a->url && b->url && strcmp(a->url, b->url) == 0 && *a->etag && strcmp(a->etag, b->etag) == 0 &&
           a->first == b->first && a->count == b->count && a->ranged == b->ranged && a->height == b->height &&
           a->width == b->width && a->normalization.channels == b->normalization.channels &&
           (a->normalization.channels == 0 || fth_normalization_equal(&a->normalization, &b->normalization));
}

static fth_status open_set(fth_shard_cache *cache, const fth_shard_request *request, const char *public_url,
                           const shard_bytes *shard, fth_dataset **dataset)
{
    char name[48], *unpacked = NULL, *shown = fth_http_harmless_url(public_url);
    name_file(public_url, shard->etag, ".tar", name);
    if (cache->path && *shard->etag)
        unpacked = fth_path_join(cache->path, name);
    fth_status status = fth_archive_set_open(shard->bytes, shard->size_bytes, shown ? shown : "a shard",
                                             &(fth_archive_set_options){.first = request->first,
                                                                        .count = request->count,
                                                                        .ranged = request->ranged,
                                                                        .normalization = request->normalization,
                                                                        .height = request->height,
                                                                        .width = request->width,
                                                                        .max_bytes = request->max_bytes,
                                                                        .unpacked = unpacked,
                                                                        .deadline = request->deadline,
                                                                        .stop = request->stop},
                                             dataset);
    if (status == FTH_OK && unpacked && fth_file_exists(unpacked)) {
        utimensat(cache->folder, name, NULL, 0);
        make_room(cache, name);
    }
    free(unpacked);
    free(shown);
    return status;
}

fth_status fth_shard_cache_get(fth_shard_cache *cache, const fth_shard_request *request, fth_dataset **dataset,
                               fth_shard_facts *facts)
{
    fth_status status = FTH_OK;
    double began_s = fth_clock_seconds();
    shard_bytes shard = {0};
    char *public_url = fth_address_public(request->url);
    opened_from from = {0};

    *facts = (fth_shard_facts){0};
    *dataset = NULL;
    FTH_REQUIRE(public_url, FTH_NO_MEMORY, "no memory for an address");
    FTH_REQUIRE(!request->foreign || strncmp(public_url, "file:", 5) != 0, FTH_INVALID,
                "%s: refused: the parameter server is on another machine and must not choose files of this one; keep "
                "shards in a bucket or on a web server",
                public_url);
    if (strncmp(public_url, "file://", 7) == 0)
        FTH_TRY(get_local(cache, public_url, &shard));
    else if (strncmp(public_url, "https://", 8) == 0 || strncmp(public_url, "http://", 7) == 0)
        FTH_TRY(get_remote(cache, request, public_url, &shard, &facts->received_bytes));
    else
        FTH_REQUIRE(false, FTH_INVALID, "%s is no address of a shard: it begins with https://, http:// or file://",
                    public_url);
    from = describe(request, public_url, shard.etag);
    if (!is_same(&from, &cache->from)) {
        forget(cache); /* before there are two of them in memory */
        FTH_TRY(open_set(cache, request, public_url, &shard, &cache->dataset));
        cache->from = from;
        public_url = NULL;
    }
    *dataset = cache->dataset;
    snprintf(facts->etag, sizeof facts->etag, "%s", shard.etag);
    facts->first = request->first;
    facts->count = fth_dataset_get_info(cache->dataset)->count[FTH_TRAIN];
    facts->seconds = fth_clock_seconds() - began_s;

out:
    release_bytes(&shard);
    free(public_url);
    return status;
}
